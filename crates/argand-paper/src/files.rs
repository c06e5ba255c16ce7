//! Files that appear whole or not at all, and tables in them.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, temporary};

pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::io(path, "create", &error))?;
    // What a killed run left there.
    temporary::sweep(path);
    Ok(())
}

/// Writes under a temporary name in the same folder, then renames.
pub(crate) fn write(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let written = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(temporary::PREFIX).suffix(temporary::SUFFIX);
        // The permissions of any new file (the umask).
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(path.parent().unwrap_or(Path::new(".")))?;
        let name = file.path().to_path_buf();
        temporary::remember(&name);
        temporary::hold(file.as_file());
        file.write_all(contents)?;
        file.as_file().sync_all()?;
        let placed = file.persist(path);
        temporary::forget(&name);
        placed?;
        Ok(())
    };
    written().map_err(|error| Error::io(path, "write", &error))
}

/// One line per record, under a header of field names.
pub(crate) fn write_csv<R: Serialize>(path: &Path, records: &[R]) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(record).map_err(|error| Error::Internal(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| Error::Internal(error.to_string()))?;
    write(path, &bytes)
}

pub(crate) fn read_csv<R: DeserializeOwned>(path: &Path) -> Result<Vec<R>, Error> {
    let file = fs::File::open(path).map_err(|error| Error::io(path, "open", &error))?;
    let records = csv::Reader::from_reader(file).into_deserialize().collect::<Result<_, _>>();
    records.map_err(|error| Error::File { path: path.to_owned(), what: error.to_string() })
}
