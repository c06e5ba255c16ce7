//! Temporary names of files that are being written: known while this process lives, and swept once it is gone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How temporary names start.
pub const PREFIX: &str = ".argand-";
/// How temporary names end.
pub const SUFFIX: &str = ".tmp";

/// The temporary names of this process.
fn names() -> MutexGuard<'static, Vec<PathBuf>> {
    static NAMES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a temporary name.
pub fn remember(name: &Path) {
    names().push(name.to_path_buf());
}

/// Forgets a name that is temporary no longer.
pub fn forget(name: &Path) {
    names().retain(|other| other != name);
}

/// Held while files take their names.
static FINISHING: Mutex<()> = Mutex::new(());

/// Does what signals that can be handled must not interrupt: [`abandon`] waits for it.
pub fn uninterrupted<R>(work: impl FnOnce() -> R) -> R {
    let _held = FINISHING.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Removes the temporary files of this process, before it ends by a signal.
pub fn abandon() {
    let _held = FINISHING.lock().unwrap_or_else(PoisonError::into_inner);
    names().drain(..).for_each(|name| drop(fs::remove_file(name)));
}

/// Marks a temporary file as in use until this process ends, however it ends. Not every file system has locks; where there are none,
/// nothing is swept.
pub fn hold(file: &File) {
    let _ = file.try_lock();
}

/// Removes the temporary files in a folder whose processes are gone: those that nobody holds. Younger ones may be about to be held.
pub fn sweep(folder: &Path) {
    const YOUNG: Duration = Duration::from_secs(60);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        let old = |metadata: fs::Metadata| {
            let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
            (metadata.is_file() && age > YOUNG).then_some(())
        };
        if ours && entry.metadata().ok().and_then(old).is_some() {
            // Opened for writing: somebody else's is left alone.
            let file = File::options().write(true).open(entry.path());
            if file.is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
