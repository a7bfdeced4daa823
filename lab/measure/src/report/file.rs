//! Reads and writes records and pages. Files are written to a temporary name and renamed, so they are never
//! incomplete.

use crate::report::{Record, page};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File name of the page in a results directory.
pub const PAGE: &str = "report.html";

/// Error of reading or writing a file.
#[derive(Debug)]
pub enum Error {
    /// System error.
    Io(PathBuf, io::Error),
    /// The file is not a valid record.
    InvalidRecord(PathBuf, serde_json::Error),
    /// The directory contains no record.
    NoRecords(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::InvalidRecord(path, error) => {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or_default();
                let (path, line) = (path.display(), error.line());
                write!(f, "{path}:{line}: {what}; expected a result that `casemate lab run` has written")
            }
            Self::NoRecords(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path}: no file *.json; expected a directory that `casemate lab run` has \
                     written"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

/// Writes a record to `EXPERIMENT.json` in `directory` and returns the path.
pub fn write(record: &Record, directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(format!("{}.json", record.experiment));
    let mut text =
        serde_json::to_string_pretty(record).map_err(|error| Error::InvalidRecord(path.clone(), error))?;
    text.push('\n');
    write_atomically(&path, &text)?;
    Ok(path)
}

/// Reads one record.
pub fn read(path: &Path) -> Result<Record, Error> {
    let text = fs::read(path).map_err(|error| Error::Io(path.into(), error))?;
    serde_json::from_slice(&text).map_err(|error| Error::InvalidRecord(path.into(), error))
}

/// Reads all records of a directory, sorted by file name.
pub fn read_all(directory: &Path) -> Result<Vec<Record>, Error> {
    let failed = |error| Error::Io(directory.into(), error);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        return Err(Error::NoRecords(directory.into()));
    }
    paths.iter().map(|path| read(path)).collect()
}

/// Renders the page of all records in `directory`, writes it there and returns the path.
pub fn write_page(directory: &Path) -> Result<PathBuf, Error> {
    let path = directory.join(PAGE);
    write_atomically(&path, &page::render(&read_all(directory)?))?;
    Ok(path)
}

fn write_atomically(path: &Path, text: &str) -> Result<(), Error> {
    let half = path.with_added_extension("part");
    fs::write(&half, text).map_err(|error| Error::Io(half.clone(), error))?;
    fs::rename(&half, path).map_err(|error| Error::Io(path.into(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::tests::record;
    use crate::report::{
        Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape, Skipped, Table,
    };
    use casemate_test_support::TempDir;

    fn full_part() -> Part {
        Part {
            title: "Table 1".into(),
            text: "As it was.".into(),
            figures: vec![Figure {
                title: "Rates".into(),
                caption: "Higher is better.".into(),
                x: Axis::names("row", ["none", "all"]),
                y: Axis::log("Mb/s"),
                series: vec![
                    Series::paper("paper", Shape::Line, [Point::at(0.0, 315.0), Point::at(1.0, f64::NAN)]),
                    Series::ours("ours", Shape::Bars, [Point::with_range(0.0, 1.0 / 3.0, 0.1, 0.7)]),
                ],
            }],
            tables: vec![Table {
                title: "T".into(),
                columns: vec!["a".into()],
                rows: vec![vec!["1".into()]],
            }],
            findings: vec![Finding {
                what: "order".into(),
                paper: "this".into(),
                ours: "that".into(),
                agreement: Agreement::NotMeasured,
                why: "no root".into(),
            }],
            samples: vec![Samples::repeated("rate", "Mb/s", vec![1.0, 2.5e-7, 3.0])],
            skipped: vec![Skipped { what: "kernel".into(), why: "no QEMU".into(), failed: false }],
        }
    }

    #[test]
    fn records_round_trip() {
        let scratch = TempDir::new("round").unwrap();
        let record = record(full_part());
        let path = write(&record, scratch.path()).unwrap();
        assert_eq!(path.file_name().unwrap(), "streams.json");
        assert_eq!(read_all(scratch.path()).unwrap(), [record]);
        let page = write_page(scratch.path()).unwrap();
        assert!(fs::read_to_string(page).unwrap().contains("On &lt;wires&gt;"));
        // No temporary file is left behind.
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }

    #[test]
    fn parse_errors_name_file_line_and_expectation() {
        let scratch = TempDir::new("broken").unwrap();
        let path = write(&record(full_part()), scratch.path()).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let told = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err().to_string()
        };
        let line = 1 + whole.lines().position(|line| line.contains("\"quick\"")).unwrap();
        let error = told(&whole.replace("\"quick\": true", "\"quick\": \"yes\""));
        assert!(error.contains(&format!("streams.json:{line}: ")), "{error}");
        assert!(error.contains("expected a boolean"), "{error}");
        assert!(error.contains("expected a result that `casemate lab run` has written"), "{error}");
        assert!(told(&whole[..whole.len() / 2]).contains("EOF"));
        assert!(
            told(&whole.replace("\"quick\"", "\"slow\"")).contains("unknown field `slow`, expected one of")
        );
    }

    #[test]
    fn an_empty_directory_is_an_error() {
        let scratch = TempDir::new("empty").unwrap();
        let error = read_all(scratch.path()).unwrap_err().to_string();
        assert!(error.contains("no file *.json"), "{error}");
        let gone = scratch.file("gone");
        assert!(read_all(&gone).unwrap_err().to_string().contains("gone"));
    }
}
