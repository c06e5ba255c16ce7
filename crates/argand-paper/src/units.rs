//! Long work in units: each result is a file that appears whole, so an interrupted run loses only the units in progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use argand::rng::StreamVersion;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Context, Error, files};

/// How units share the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One unit per thread, side by side.
    Parallel,
    /// One after the other on a single thread, with nothing beside them: they measure time.
    AloneOnOneThread,
    /// One after the other on all threads.
    AloneOnAllThreads,
}

/// The contents of a unit's file.
#[derive(Serialize, Deserialize)]
struct Stored<C, R> {
    config: C,
    result: R,
    /// Of the rest; files of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

/// The file of the result for a configuration, named by the hash of the configuration.
fn place<C: Serialize>(folder: &Path, config: &C) -> Result<PathBuf, Error> {
    let config = serde_json::to_vec(&(StreamVersion::LATEST.number(), config))
        .map_err(|error| Error::Internal(error.to_string()))?;
    let hash = Sha256::digest(&config);
    let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{name}.json")))
}

/// A result kept earlier; if its file is bad in any way, the unit runs again.
fn stored<C: DeserializeOwned + PartialEq, R: DeserializeOwned>(path: &Path, config: &C) -> Option<R> {
    let text = fs::read_to_string(path).ok()?;
    let stored: Stored<C, R> = serde_json::from_str(&text).ok()?;
    let intact = stored.checksum.is_none() || stored.checksum == argand::json_checksum(&text);
    (intact && stored.config == *config).then_some(stored.result)
}

/// Seeds below `draws` in parts of at most `size`: the first of each part, and their number.
pub(crate) fn parts(draws: u64, size: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
    (0..draws.div_ceil(size)).map(move |part| (part * size, size.min(draws - part * size)))
}

/// Keeps a result known from elsewhere, unless there is one already.
pub(crate) fn keep<C, R>(context: &Context<'_>, item: &str, config: &C, result: R) -> Result<(), Error>
where
    C: Serialize,
    R: Serialize,
{
    let folder = context.settings.out.join("units").join(item);
    files::create_folder(&folder)?;
    let path = place(&folder, config)?;
    if path.exists() { Ok(()) } else { store(&path, &Stored { config, result, checksum: None }) }
}

fn store<C: Serialize, R: Serialize>(path: &Path, stored: &Stored<C, R>) -> Result<(), Error> {
    let mut json = serde_json::to_value(stored).map_err(|error| Error::Internal(error.to_string()))?;
    let checksum = argand::json_checksum(&json.to_string());
    if let (Some(fields), Some(checksum)) = (json.as_object_mut(), checksum) {
        fields.insert("checksum".to_owned(), checksum.into());
    }
    files::write(path, json.to_string().as_bytes())
}

/// The results for all configurations, in their order. Results of earlier runs come from `units/` in the output folder; the
/// rest is computed in the order of `configs`. With [`Settings::finished_only`](crate::Settings::finished_only) nothing runs, and missing
/// results are `None`.
///
/// `cost` weighs a unit in the estimate of the time left.
pub(crate) fn run<C, R>(
    context: &Context<'_>,
    item: &str,
    configs: &[C],
    sharing: Sharing,
    cost: impl Fn(&C) -> f64,
    work: impl Fn(&C) -> Result<R, Error> + Sync,
) -> Result<Vec<Option<R>>, Error>
where
    C: Serialize + DeserializeOwned + PartialEq + Sync,
    R: Serialize + DeserializeOwned + Send,
{
    let folder = context.settings.out.join("units").join(item);
    files::create_folder(&folder)?;
    let places = configs.iter().map(|config| place(&folder, config)).collect::<Result<Vec<_>, _>>()?;
    let results: Vec<Option<R>> = places.iter().zip(configs).map(|(place, config)| stored(place, config)).collect();
    if context.settings.finished_only {
        return Ok(results);
    }
    let open: Vec<usize> = (0..configs.len()).filter(|&unit| results[unit].is_none()).collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "weights are rough")]
    let weights: Vec<u64> = configs.iter().map(|config| (cost(config) * 1e3).clamp(1.0, 1e15) as u64).collect();
    let total: u64 = weights.iter().sum();
    let left: u64 = open.iter().map(|&unit| weights[unit]).sum();
    context.progress.start(item, total, total - left);
    let (workers, threads) = match sharing {
        Sharing::Parallel => (context.settings.threads, 1),
        Sharing::AloneOnOneThread => (1, 1),
        Sharing::AloneOnAllThreads => (1, context.settings.threads),
    };
    let (next, results, failed) = (AtomicUsize::new(0), Mutex::new(results), Mutex::new(None));
    let no_threads = |error: rayon::ThreadPoolBuildError| Error::Internal(format!("cannot start threads: {error}"));
    let worker = || -> Result<(), Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(no_threads)?;
        while let Some(&unit) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            if lock(&failed).is_some() {
                return Ok(());
            }
            let result = pool.install(|| work(&configs[unit]))?;
            let stored = Stored { config: &configs[unit], result, checksum: None };
            store(&places[unit], &stored)?;
            lock(&results)[unit] = Some(stored.result);
            context.progress.advance(weights[unit]);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..workers.min(open.len()) {
            scope.spawn(|| {
                if let Err(error) = worker() {
                    lock(&failed).get_or_insert(error);
                }
            });
        }
    });
    context.progress.finish();
    match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::{Settings, Silent};

    fn settings(folder: &Path) -> Settings {
        Settings { out: folder.to_owned(), threads: 2, ..Settings::default() }
    }

    /// Squares of numbers, and how many were computed.
    fn squares(settings: &Settings, numbers: &[u32], fail_at: Option<u32>) -> (Result<Vec<Option<u32>>, Error>, u32) {
        let calls = AtomicU32::new(0);
        let work = |&number: &u32| {
            if Some(number) == fail_at {
                return Err(Error::Data("no".to_owned()));
            }
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(number * number)
        };
        let context = Context { settings, progress: &Silent };
        let results = run(&context, "squares", numbers, Sharing::Parallel, |_| 1.0, work);
        (results, calls.into_inner())
    }

    #[test]
    fn what_is_finished_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        let (results, calls) = squares(&settings, &[3, 1, 2], None);
        assert_eq!((results.unwrap(), calls), (vec![Some(9), Some(1), Some(4)], 3));
        let (results, calls) = squares(&settings, &[1, 2, 3, 4], None);
        assert_eq!((results.unwrap(), calls), (vec![Some(1), Some(4), Some(9), Some(16)], 1));
        settings.finished_only = true;
        let (results, calls) = squares(&settings, &[5, 4], None);
        assert_eq!((results.unwrap(), calls), (vec![None, Some(16)], 0));
    }

    #[test]
    fn a_failure_keeps_what_was_finished_before() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { threads: 1, ..settings(folder.path()) };
        let (results, calls) = squares(&settings, &[1, 2, 3, 4], Some(3));
        assert!(matches!(results, Err(Error::Data(_))) && calls == 2);
        let (results, calls) = squares(&settings, &[1, 2, 3, 4], None);
        assert_eq!((results.unwrap().len(), calls), (4, 2));
    }

    #[test]
    fn damaged_files_are_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        squares(&settings, &[7], None).0.unwrap();
        let path = place(&folder.path().join("units/squares"), &7_u32).unwrap();
        for damage in ["", "{", "{\"config\":8,\"result\":64}", "{\"config\":7,\"result\":\"49\"}"] {
            fs::write(&path, damage).unwrap();
            let (results, calls) = squares(&settings, &[7], None);
            assert_eq!((results.unwrap(), calls), (vec![Some(49)], 1), "{damage}");
        }
    }

    /// A changed digit of a result would be shown as measured: every flipped bit runs the unit again, or changes nothing.
    #[test]
    fn every_flipped_bit_of_a_unit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let work = |&number: &u32| Ok(f64::from(number) / 7.0);
        let context = Context { settings: &settings, progress: &Silent };
        let compute = || run(&context, "sevenths", &[12_345], Sharing::Parallel, |_| 1.0, work).unwrap();
        assert_eq!(compute(), [Some(12_345.0 / 7.0)]);
        let path = place(&folder.path().join("units/sevenths"), &12_345_u32).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                fs::write(&path, bytes).unwrap();
                let read: Option<f64> = stored(&path, &12_345_u32);
                assert!(read.is_none() || read == Some(12_345.0 / 7.0), "byte {at}, bit {bit}: {read:?}");
                refused += usize::from(read.is_none());
            }
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(stored::<u32, f64>(&path, &12_345), None, "cut at {at}");
        }
        // All but those that only rename the checksum, which then is missing, as in files of earlier versions.
        assert!(refused >= 8 * (whole.len() - "checksum".len()), "{refused} of {}", 8 * whole.len());
    }

    #[test]
    fn results_known_otherwise_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let context = Context { settings: &settings, progress: &Silent };
        keep(&context, "squares", &5_u32, 25_u32).unwrap();
        keep(&context, "squares", &5_u32, 26_u32).unwrap();
        let (results, calls) = squares(&settings, &[5], None);
        assert_eq!((results.unwrap(), calls), (vec![Some(25)], 0));
    }
}
