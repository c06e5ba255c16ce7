//! How the command line fails: one message for the user, one exit code for the shell.

use std::fmt;
use std::io;
use std::path::Path;

use argand::{Argument, Error};

/// Why a command stopped. Messages start with the path or argument they are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The arguments or input files are wrong, and the user can fix them: exit code 2.
    Input(String),
    /// The system failed, for example for lack of disk space: exit code 1.
    Other(String),
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Other(_) => 1,
        }
    }

    /// Translates a library error, naming the argument as the command line does.
    pub(crate) fn argument(error: &Error) -> Self {
        Self::Input(match error {
            Error::Invalid { argument, expected, received } => {
                let name = match argument {
                    // Not an option: columns and rows come from the files.
                    Argument::InputDim | Argument::Input(_) => "IN".to_owned(),
                    Argument::Methods => "--method".to_owned(),
                    other => format!("--{}", other.to_string().replace('_', "-")),
                };
                format!("{name}: expected {expected}, got {received}")
            }
            other => other.to_string(),
        })
    }

    /// A fault in the contents or the location of `path`.
    pub(crate) fn input(path: &Path, what: impl fmt::Display) -> Self {
        Self::Input(format!("{}: {what}", path.display()))
    }

    /// A system error on `path`; `doing` completes "cannot ...".
    pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> Self {
        let message = format!("{}: cannot {doing}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename => Self::Input(message),
            _ => Self::Other(message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message) | Self::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_mistakes_exit_with_2_and_the_machines_with_1() {
        let path = Path::new("x.npy");
        let missing = Failure::io(path, "open", &io::Error::from(io::ErrorKind::NotFound));
        assert_eq!((missing.exit_code(), missing.to_string().starts_with("x.npy: cannot open: ")), (2, true));
        assert_eq!(Failure::io(path, "write", &io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
        assert_eq!(Failure::input(path, "is odd").to_string(), "x.npy: is odd");
    }
}
