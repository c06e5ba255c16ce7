//! Runs work on our own thread pools, without Python's lock, and interruptibly.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Pools by number of threads, and the process that started them.
static POOLS: Mutex<(u32, BTreeMap<usize, Arc<ThreadPool>>)> = Mutex::new((0, BTreeMap::new()));

/// A pool with this many threads; the default is one per core (or `RAYON_NUM_THREADS`).
///
/// A forked process inherits the memory of its parent's pools but not the threads, so it gets its own pools.
pub(crate) fn pool(threads: Option<usize>) -> PyResult<Arc<ThreadPool>> {
    let threads = threads.unwrap_or(0);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pools.0 != process {
        // Never dropped: dropping would wait for threads that do not exist here.
        std::mem::forget(std::mem::take(&mut pools.1));
        pools.0 = process;
    }
    if let Some(pool) = pools.1.get(&threads) {
        return Ok(Arc::clone(pool));
    }
    let built = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("argand-{index}")).build();
    let pool = Arc::new(built.map_err(|error| PyRuntimeError::new_err(format!("n_jobs: {error}")))?);
    pools.1.insert(threads, Arc::clone(&pool));
    Ok(pool)
}

/// Runs work that owns its data on a pool; when Python is interrupted, stops waiting and lets the work finish by itself.
pub(crate) fn interruptible<R: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    let pool = pool(threads)?;
    let (sender, mut receiver) = channel();
    std::thread::spawn(move || {
        // After an interrupt, nobody is listening.
        let _ = sender.send(pool.install(work));
    });
    loop {
        let (received, back) = py.detach(move || (receiver.recv_timeout(Duration::from_millis(100)), receiver));
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("argand failed; please report this as a bug"));
            }
        }
        receiver = back;
    }
}
