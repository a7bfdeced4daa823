//! Records and pages as files. What is there is whole: it is written under another name first.

use crate::{Record, page};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the page in a directory of results.
pub const PAGE: &str = "report.html";

/// Why a file could not be read or written.
#[derive(Debug)]
pub enum Error {
    /// The system refused.
    Io(PathBuf, io::Error),
    /// It does not hold a record.
    NoRecord(PathBuf, serde_json::Error),
    /// The directory holds no record at all.
    Empty(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::NoRecord(path, error) => {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or_default();
                let (path, line) = (path.display(), error.line());
                write!(f, "{path}:{line}: {what}; a result as `casemate lab run` writes it was expected")
            }
            Self::Empty(path) => {
                let path = path.display();
                write!(f, "{path}: no file *.json, a directory that `casemate lab run` wrote was expected")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Writes a record to `EXPERIMENT.json` in `directory` and returns where that is.
pub fn write(record: &Record, directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{}.json", record.experiment));
    let mut text =
        serde_json::to_string_pretty(record).map_err(|error| Error::NoRecord(path.clone(), error))?;
    text.push('\n');
    write_whole(&path, &text)?;
    Ok(path)
}

/// Reads one record.
pub fn read(path: &Path) -> Result<Record, Error> {
    let text = fs::read(path).map_err(|error| Error::Io(path.into(), error))?;
    serde_json::from_slice(&text).map_err(|error| Error::NoRecord(path.into(), error))
}

/// Reads all records of a directory, in the order of their names.
pub fn read_all(directory: &Path) -> Result<Vec<Record>, Error> {
    let failed = |error| Error::Io(directory.into(), error);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        return Err(Error::Empty(directory.into()));
    }
    paths.iter().map(|path| read(path)).collect()
}

/// Makes the page of all records in a directory and returns where it is.
pub fn write_page(directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(PAGE);
    write_whole(&path, &page::render(&read_all(directory)?))?;
    Ok(path)
}

fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let half = path.with_added_extension("part");
    fs::write(&half, text).map_err(|error| Error::Io(half.clone(), error))?;
    fs::rename(&half, path).map_err(|error| Error::Io(path.into(), error))
}

#[cfg(test)]
mod tests;
