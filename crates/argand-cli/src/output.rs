//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use argand_paper::temporary;
use tempfile::TempPath;

use crate::failure::Failure;

/// Bytes buffered before a write.
const BUFFER: usize = 1 << 18;

/// A buffered file that takes its name in [`commit`](Self::commit); dropped earlier, it leaves nothing behind.
///
/// On Linux the contents have no name until then, so that even a killed process leaves nothing behind. Elsewhere, and
/// on file systems without unnamed files, they wait under a temporary name in the same folder; a signal to end removes them, and
/// what a killed process left behind is removed by the next that writes there.
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
                temporary::remember(&name);
                (file, Some(name))
            }
        };
        temporary::hold(&file);
        temporary::sweep(&folder);
        Ok(Self { file: BufWriter::with_capacity(BUFFER, file), name, target, folder })
    }

    /// Writes everything to disk and replaces the target in one step.
    ///
    /// # Errors
    /// The system cannot write, for example for lack of space; the target is then unchanged.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        let folder = self.folder.clone();
        self.complete()?.name()?.place()?;
        sync_folder(&folder);
        Ok(())
    }

    /// As [`commit`](Self::commit), together with a file that describes this one. All contents are on disk before anything changes;
    /// then an old description that differs goes first, so that at no moment this file stands beside another's description.
    ///
    /// # Errors
    /// The system cannot write.
    pub(crate) fn commit_with(self, description: Option<Self>) -> Result<(), Failure> {
        let Some(description) = description else { return self.commit() };
        let folders = [self.folder.clone(), description.folder.clone()];
        let (main, description) = (self.complete()?, description.complete()?);
        let changed = description.target.exists() && !same_contents(&description.target, &description.file);
        // A few steps that take no time but for the file system's journal.
        temporary::uninterrupted(|| {
            let (main, description) = (main.name()?, description.name()?);
            if changed {
                let old = &description.target;
                fs::remove_file(old).map_err(|error| Failure::io(old, "replace", &error))?;
            }
            main.place()?;
            description.place()
        })?;
        folders.iter().for_each(|folder| sync_folder(folder));
        Ok(())
    }

    /// Writes everything to disk.
    fn complete(self) -> Result<Complete, Failure> {
        let target = self.target.clone();
        let complete = || -> io::Result<Complete> {
            let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
            if let Ok(replaced) = fs::metadata(&self.target) {
                file.set_permissions(replaced.permissions())?;
            }
            file.sync_all()?;
            Ok(Complete { file, name: self.name, target: self.target, folder: self.folder })
        };
        complete().map_err(|error| Failure::io(&target, "write", &error))
    }
}

/// A file that is on disk, with or without a temporary name.
struct Complete {
    file: File,
    name: Option<TempPath>,
    target: PathBuf,
    folder: PathBuf,
}

impl Complete {
    /// Gives it a temporary name, if it has none.
    fn name(self) -> Result<Named, Failure> {
        let name = match self.name {
            Some(name) => name,
            None => name_file(&self.file, &self.folder).map_err(|error| Failure::io(&self.target, "write", &error))?,
        };
        Ok(Named { _file: self.file, name, target: self.target })
    }
}

/// A file that is on disk under a temporary name.
struct Named {
    /// Held open, so that nobody sweeps it.
    _file: File,
    name: TempPath,
    target: PathBuf,
}

impl Named {
    /// Gives it its name.
    fn place(self) -> Result<(), Failure> {
        let name = self.name.to_path_buf();
        let placed = self.name.persist(&self.target);
        temporary::forget(&name);
        placed.map_err(|refused| Failure::io(&self.target, "write", &refused.error))
    }
}

/// The files are whole and in place; not every file system can sync a folder, and none needs to.
fn sync_folder(folder: &Path) {
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    #[cfg(not(unix))]
    let _ = folder;
}

/// Whether a file has the contents of another, which is small.
fn same_contents(path: &Path, file: &File) -> bool {
    let read = || -> io::Result<bool> {
        use io::Read;
        let (mut new, mut file) = (Vec::new(), file);
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut new)?;
        let old = File::open(path)?;
        let mut same = Vec::new();
        old.take(new.len() as u64 + 1).read_to_end(&mut same)?;
        Ok(same == new)
    };
    read().unwrap_or(false)
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
    builder.prefix(temporary::PREFIX).suffix(temporary::SUFFIX);
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

/// Links an unnamed file beside the target: a link alone cannot replace a file.
#[cfg(target_os = "linux")]
fn name_file(file: &File, folder: &Path) -> io::Result<TempPath> {
    use rustix::fs::{AtFlags, CWD};
    use std::hash::{BuildHasher, Hasher};
    loop {
        // The standard hasher has a random key per process and changes with every use.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let name = folder.join(format!("{}{random:016x}{}", temporary::PREFIX, temporary::SUFFIX));
        temporary::remember(&name);
        match rustix::fs::linkat(CWD, descriptor_path(file), CWD, &name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return TempPath::try_from_path(name),
            Err(error) => {
                temporary::forget(&name);
                if error != rustix::io::Errno::EXIST {
                    return Err(error.into());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn name_file(_file: &File, _folder: &Path) -> io::Result<TempPath> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Checks that a file of at least so many bytes has room in the folder of `path`.
#[cfg(target_os = "linux")]
pub(crate) fn check_room(path: &Path, bytes: u64) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(system) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if bytes > free {
        let [bytes, free] = [bytes, free].map(crate::info::bytes);
        let what = format!("would take {bytes}, and {free} are free there");
        return Err(Failure::input(path, format!("{what}; use fewer --features, or another disk")));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn check_room(_path: &Path, _bytes: u64) -> Result<(), Failure> {
    Ok(())
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

/// Checks that an output file is not in a folder whose files belong together.
pub(crate) fn check_outside<'a>(
    option: &str,
    path: &Path,
    mut folders: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let file = resolve(path);
    match folders.find(|folder| file.parent() == Some(&resolve(folder))) {
        Some(folder) => {
            let what = format!("expected another file than the inputs, got {} in {}", path.display(), folder.display());
            Err(Failure::Input(format!("{option}: {what}")))
        }
        None => Ok(()),
    }
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
    use std::time::{Duration, SystemTime};

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
        let Some(_) = unnamed_file(folder.path()) else {
            eprintln!("not tested: the temporary folder's file system has no unnamed files");
            return;
        };
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

    /// A description never stands beside a file that it does not describe: an old one goes before the file changes.
    #[test]
    fn a_file_and_its_description_appear_together() {
        for way in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let (main, description) = (folder.path().join("z"), folder.path().join("s"));
            let written = |path: &Path, text: &str| {
                let mut file = AtomicFile::create_with(path, way).unwrap();
                file.write_all(text.as_bytes()).unwrap();
                file
            };
            for text in ["one", "two", "two"] {
                written(&main, text).commit_with(Some(written(&description, text))).unwrap();
                assert_eq!([&main, &description].map(|path| fs::read_to_string(path).unwrap()), [text; 2]);
                assert_eq!(names(folder.path()), ["s", "z"]);
            }
            // Where the main file cannot be placed, the old description is gone rather than wrong.
            let (file, other) = (written(&main, "three"), written(&description, "three"));
            fs::remove_file(&main).unwrap();
            fs::create_dir(&main).unwrap();
            assert!(file.commit_with(Some(other)).is_err());
            assert_eq!(names(folder.path()), ["z"]);
        }
    }

    /// What a killed process left is removed; what somebody still writes, what is young and what is not ours stays.
    #[test]
    fn files_of_dead_processes_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let old = SystemTime::now() - Duration::from_secs(3600);
        let mut held = Vec::new();
        for name in [".argand-dead.tmp", ".argand-alive.tmp", ".argand-young.tmp", ".argand-other", "argand-x.tmp"] {
            let file = File::create(path(name)).unwrap();
            if name != ".argand-young.tmp" {
                file.set_modified(old).unwrap();
            }
            if name == ".argand-alive.tmp" {
                file.lock().unwrap();
                held.push(file);
            }
        }
        for way in WAYS {
            AtomicFile::create_with(&path("out"), way).unwrap().commit().unwrap();
            let left = [".argand-alive.tmp", ".argand-other", ".argand-young.tmp", "argand-x.tmp", "out"];
            assert_eq!(names(folder.path()), left);
        }
    }

    #[test]
    fn a_full_disk_is_known_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(check_room(&folder.path().join("z.npy"), 1000), Ok(()));
        if cfg!(target_os = "linux") {
            let failure = check_room(&folder.path().join("z.npy"), 1 << 60).unwrap_err();
            assert!(failure.exit_code() == 2 && failure.to_string().contains("would take"), "{failure}");
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
