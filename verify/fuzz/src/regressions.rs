//! Inputs that failed once: `regressions/TARGET/NAME.hex` with hexadecimal digits, and comments after `#`.

use crate::{TARGETS, Target};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Input from a file.
pub struct Regression {
    /// Path of the file.
    pub path: PathBuf,
    /// Decoded input.
    pub input: Vec<u8>,
}

/// Regressions of a target, sorted by name.
pub fn of(target: &Target) -> io::Result<Vec<Regression>> {
    let directory = directory().join(target.name);
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let load = |path: PathBuf| Ok(Regression { input: read(&path)?, path });
    paths.into_iter().map(load).collect()
}

/// Reads a file with hexadecimal digits.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let text = fs::read_to_string(path)?;
    let hex: String = text.lines().filter_map(|line| line.split('#').next()).collect();
    from_hex(&hex).ok_or_else(|| io::Error::other(format!("{}: invalid hexadecimal digits", path.display())))
}

/// Directories that belong to no target.
pub fn strays() -> io::Result<Vec<PathBuf>> {
    let mut strays = Vec::new();
    for entry in fs::read_dir(directory())? {
        let entry = entry?;
        let is_known = TARGETS.iter().any(|target| entry.file_name() == target.name);
        if entry.file_type()?.is_dir() && !is_known {
            strays.push(entry.path());
        }
    }
    Ok(strays)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

/// Encodes bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal digits; white space is ignored.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16))
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}
