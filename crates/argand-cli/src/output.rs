//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::failure::Failure;

/// Bytes buffered before a write.
const BUFFER: usize = 1 << 18;

/// A buffered file that takes its name in [`commit`](Self::commit); dropped earlier, it leaves nothing behind.
///
/// On Linux the contents have no name until then, so that even a killed process leaves nothing behind. Elsewhere, and
/// on file systems without unnamed files, they wait under a temporary name in the same folder.
pub(crate) struct AtomicFile {
    file: BufWriter<File>,
    /// The temporary name, where the file needs one.
    name: Option<TempPath>,
    target: PathBuf,
    folder: PathBuf,
}

impl AtomicFile {
    /// Checks that `path` can be written and starts the file that will replace it.
    ///
    /// # Errors
    /// [`Failure::Input`] if the folder is missing or not writable, or `path` exists and is not a regular file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Self::create_with(path, unnamed_file)
    }

    /// [`create`](Self::create) with the maker of unnamed files as an argument, which tests replace.
    fn create_with(path: &Path, unnamed_file: impl Fn(&Path) -> Option<File>) -> Result<Self, Failure> {
        let target = match fs::canonicalize(path) {
            // Follow symbolic links: the link survives and its target is replaced.
            Ok(existing) => existing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
            Err(error) => return Err(Failure::io(path, "write", &error)),
        };
        if target.is_dir() {
            return Err(Failure::input(path, "is a folder; name a file to write"));
        }
        // Renaming over /dev/null would replace the device.
        if target.exists() && !target.is_file() {
            return Err(Failure::input(path, "is not a regular file; name a file to write"));
        }
        let (Some(folder), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(Failure::input(path, "is not the name of a file"));
        };
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_path_buf() };
        if !folder.is_dir() {
            let what = format!("the folder {} does not exist; create it first", folder.display());
            return Err(Failure::input(path, what));
        }
        let (file, name) = match unnamed_file(&folder) {
            Some(file) => (file, None),
            None => {
                let (file, name) =
                    named_file(&folder).map_err(|error| Failure::io(path, "write", &error))?.into_parts();
                (file, Some(name))
            }
        };
        Ok(Self { file: BufWriter::with_capacity(BUFFER, file), name, target, folder })
    }

    /// Writes everything to disk and replaces the target in one step.
    ///
    /// # Errors
    /// The system cannot write, for example for lack of space; the target is then unchanged.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        let target = self.target.clone();
        self.into_place().map_err(|error| Failure::io(&target, "write", &error))
    }

    fn into_place(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Ok(replaced) = fs::metadata(&self.target) {
            file.set_permissions(replaced.permissions())?;
        }
        file.sync_all()?;
        match self.name {
            Some(name) => name.persist(&self.target).map_err(|refused| refused.error)?,
            None => name_and_rename(&file, &self.folder, &self.target)?,
        }
        // The file is whole and in place; not every file system can sync a folder, and none needs to.
        #[cfg(unix)]
        let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// A file under a temporary name, with the permissions of any new file (the umask).
fn named_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".argand-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// An unnamed file, or `None` if the system cannot make one or name it later.
#[cfg(target_os = "linux")]
fn unnamed_file(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // Whatever the error, a named file either works or explains it better.
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
    fs::symlink_metadata(descriptor_path(&file)).is_ok().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed_file(_folder: &Path) -> Option<File> {
    None
}

/// The system's path of an open file, through which an unnamed one gets its name.
#[cfg(target_os = "linux")]
fn descriptor_path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Links an unnamed file beside the target and moves it there: a link alone cannot replace a file.
#[cfg(target_os = "linux")]
fn name_and_rename(file: &File, folder: &Path, target: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};
    use std::hash::{BuildHasher, Hasher};
    loop {
        // The standard hasher has a random key per process and changes with every use.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let name = folder.join(format!(".argand-{random:016x}.tmp"));
        match rustix::fs::linkat(CWD, descriptor_path(file), CWD, &name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {
                return fs::rename(&name, target).inspect_err(|_| {
                    let _ = fs::remove_file(&name);
                });
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn name_and_rename(_file: &File, _folder: &Path, _target: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Checks that an output file is not also another input or output of the command.
pub(crate) fn check_free<'a>(
    option: &str,
    path: &Path,
    mut taken: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    if taken.any(|other| resolve(other) == resolve(path)) {
        let what = "expected another file than the inputs and other outputs";
        return Err(Failure::Input(format!("{option}: {what}, got {}", path.display())));
    }
    Ok(())
}

/// The file that a path leads to, however it is written.
fn resolve(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = || Some(fs::canonicalize(folder).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(new).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Both ways of holding the contents until the commit.
    const WAYS: [fn(&Path) -> Option<File>; 2] = [unnamed_file, |_| None];

    #[test]
    fn nothing_appears_without_commit() {
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let mut file = AtomicFile::create_with(&folder.path().join("out"), way).unwrap();
            file.write_all(&vec![1; 3 * BUFFER]).unwrap();
            drop(file);
            assert!(names(folder.path()).is_empty());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn contents_have_no_name_before_commit() {
        let folder = tempfile::tempdir().unwrap();
        let Some(_) = unnamed_file(folder.path()) else { return };
        let mut file = AtomicFile::create(&folder.path().join("out")).unwrap();
        file.write_all(&vec![1; 3 * BUFFER]).unwrap();
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn commit_creates_and_replaces() {
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            for contents in ["first and longer", "second"] {
                let mut file = AtomicFile::create_with(&path, way).unwrap();
                file.write_all(b"?").unwrap();
                file.write_all(&contents.as_bytes()[1..]).unwrap();
                file.seek(SeekFrom::Start(0)).unwrap();
                file.write_all(&contents.as_bytes()[..1]).unwrap();
                file.commit().unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), contents);
                assert_eq!(names(folder.path()), ["out"]);
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_the_umask_or_of_the_replaced_file() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let (path, plain) = (folder.path().join("out"), folder.path().join("plain"));
            File::create(&plain).unwrap();
            AtomicFile::create_with(&path, way).unwrap().commit().unwrap();
            assert_eq!(mode(&path), mode(&plain));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            AtomicFile::create_with(&path, way).unwrap().commit().unwrap();
            assert_eq!(mode(&path), 0o640);
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = AtomicFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn impossible_targets_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = |path: &Path| {
            let failure = AtomicFile::create(path).err().unwrap();
            assert_eq!(failure.exit_code(), 2, "{failure}");
            assert!(failure.to_string().starts_with(&format!("{}: ", path.display())), "{failure}");
            failure.to_string()
        };
        assert!(refuse(folder.path()).contains("is a folder"));
        assert!(refuse(&folder.path().join("no/out")).contains("does not exist; create it first"));
        assert!(refuse(Path::new("")).contains("not the name of a file"));
        #[cfg(unix)]
        assert!(refuse(Path::new("/dev/null")).contains("not a regular file"));
        fs::write(folder.path().join("file"), "").unwrap();
        refuse(&folder.path().join("file/out"));
        assert_eq!(names(folder.path()), ["file"]);
    }
}
