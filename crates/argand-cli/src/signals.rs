//! Signals that end the program: what it has begun to write goes first.

/// Removes temporary files before a signal ends the program, and turns the signal of a file grown too large into an error.
#[cfg(unix)]
pub(crate) fn handle() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

    // Where a signal cannot be handled, it does what it would have done anyway.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    if let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        std::thread::spawn(move || {
            for signal in signals.forever() {
                argand_paper::temporary::abandon();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    }
}

#[cfg(not(unix))]
pub(crate) fn handle() {}
