//! The file of reserved sequence numbers.
//!
//! ```text
//! casemate counters 2
//! salt <32 hexadecimal digits>
//! key <64 hexadecimal digits> <the last number reserved>
//! sa <64 hexadecimal digits> <the last number reserved>
//! old <64 hexadecimal digits> <the last number reserved>
//! sum <64 hexadecimal digits>
//! ```
//!
//! There is one line for each [`NumberSpace`]: a salted hash, so that the file reveals nothing about keys.
//! The sum is SHA-256 of all lines before it. A change writes a new file and renames it over the old one, so
//! there is always one complete file, and a damaged file is rejected.
//!
//! Version 1 identified each SA by a hash of its algorithms, keys, SPI and addresses. Such records become
//! `old` ones. A record that an SA of this run matches is moved to the number space of that SA. The keys of
//! the other records are unknown, and any key may be one of them: so every counter-mode key starts after the
//! highest `old` number.

use super::{HASH_LEN, LastNumber, NumberSpace, SpaceKind};
use crate::Error;
use crate::private_file::{self, OthersAccess};
use casemate_sa::SaParams;
use casemate_wire::invariant::OrBroken;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "casemate counters 2";
const FIRST_LINE_V1: &str = "casemate counters 1";
const SALT_LEN: usize = 16;
/// Room for a million number spaces.
const MAX_LEN: u64 = 100 << 20;

/// Why a counter file cannot be used.
#[derive(Debug)]
pub enum CountersError {
    /// The operating system refused an operation.
    Io(PathBuf, io::Error),
    /// Another process uses the file.
    InUse(PathBuf),
    /// The file is not a counter file.
    WrongFile(PathBuf),
    /// The thread that writes the file could not do its work.
    Writer(Error),
    /// The file is damaged.
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What was expected there.
        expected: &'static str,
    },
}

impl fmt::Display for CountersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "It is unknown which numbers were used, so the keys must not be used again: \
                              delete the file only together with the keys";
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::InUse(path) => write!(
                f,
                "{}: another process uses this counter file; each instance needs its own",
                path.display()
            ),
            Self::Writer(error) => error.fmt(f),
            Self::WrongFile(path) => write!(
                f,
                "{}: not a counter file: the first line was expected to be `{FIRST_LINE}`",
                path.display()
            ),
            Self::Damaged { path, line, expected } => {
                write!(f, "{}:{line}: the file is damaged: {expected} was expected. {ADVICE}", path.display())
            }
        }
    }
}

impl std::error::Error for CountersError {}

/// The file, locked for this process.
#[derive(Debug)]
pub struct CounterFile {
    path: PathBuf,
    salt: [u8; SALT_LEN],
    reserved: BTreeMap<NumberSpace, u64>,
    is_new: bool,
    // The lock is on a separate file, because each change replaces the counter file.
    _lock: File,
}

impl CounterFile {
    /// Opens the file, which need not exist, and locks it.
    pub fn open(path: &Path) -> Result<Self, CountersError> {
        let lock = lock(path)?;
        let text = match read(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(CountersError::Io(path.into(), error)),
        };
        let Records { salt, reserved } = match &text {
            Some(text) => Records::parse(text, path)?,
            None => Records { salt: new_salt(path)?, reserved: BTreeMap::new() },
        };
        Ok(Self { path: path.into(), salt, reserved, is_new: text.is_none(), _lock: lock })
    }

    /// Whether the file did not exist: then it is unknown which numbers were used before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The number space of an outbound SA.
    pub fn number_space(&self, sa: &SaParams) -> NumberSpace {
        NumberSpace::of(sa, &self.salt)
    }

    /// Moves the number that version 1 recorded for this SA to the number space of the SA. Must be called for
    /// all SAs of a run before [`reserved`](Self::reserved), which depends on the remaining records.
    pub(super) fn migrate_v1(&mut self, sa: &SaParams) {
        if let Some(number) = self.reserved.remove(&NumberSpace::v1(sa, &self.salt)) {
            self.raise(LastNumber { space: self.number_space(sa), number });
        }
    }

    /// The last number that may have been used; 0 if none was.
    pub fn reserved(&self, space: &NumberSpace) -> u64 {
        let own = self.reserved.get(space).copied().unwrap_or(0);
        if space.kind == SpaceKind::Key { own.max(self.highest_v1()) } else { own }
    }

    /// The highest number of records whose keys are unknown; 0 if there is no such record.
    pub(super) fn highest_v1(&self) -> u64 {
        let v1_records = self.reserved.iter().filter(|(space, _)| space.kind == SpaceKind::V1);
        v1_records.map(|(_, number)| *number).max().unwrap_or(0)
    }

    fn raise(&mut self, LastNumber { space, number }: LastNumber) {
        let reserved = self.reserved.entry(space).or_insert(0);
        *reserved = number.max(*reserved);
    }

    /// Writes these numbers to the file. On return they are on the disk. Numbers lower than the written ones
    /// change nothing.
    pub fn reserve(&mut self, upto: &[LastNumber]) -> Result<(), CountersError> {
        for last in upto {
            self.raise(*last);
        }
        self.write()
    }

    /// Returns numbers that were reserved and not used, at an orderly end.
    pub fn return_unused(&mut self, used: &[LastNumber]) -> Result<(), CountersError> {
        self.reserved.extend(used.iter().map(|last| (last.space, last.number)));
        self.write()
    }

    fn write(&self) -> Result<(), CountersError> {
        let temporary = private_file::with_suffix(&self.path, ".new");
        let failed = |error| CountersError::Io(self.path.clone(), error);
        // A crash may have left this file. The new file must not be a link to another place.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut options = File::options();
        let mut file =
            private_file::open(&temporary, options.write(true).create_new(true), OthersAccess::None)
                .map_err(failed)?;
        let written = file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| fs::rename(&temporary, &self.path)).map_err(|error| {
            // Otherwise a full disk would keep this file. The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })?;
        // The new name must be on the disk, too.
        File::open(private_file::directory_of(&self.path))
            .and_then(|directory| directory.sync_all())
            .map_err(failed)
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nsalt {}\n", Hex(&self.salt));
        for (NumberSpace { kind, hash }, number) in &self.reserved {
            let _ = writeln!(text, "{} {} {number}", kind.word(), Hex(hash));
        }
        let sum = Sha256::digest(text.as_bytes());
        let _ = writeln!(text, "sum {}", Hex(&sum));
        text
    }
}

fn lock(path: &Path) -> Result<File, CountersError> {
    let failed = |error| CountersError::Io(path.into(), error);
    let name = private_file::with_suffix(path, ".lock");
    private_file::check_parent(private_file::directory_of(path)).map_err(failed)?;
    let mut options = File::options();
    let file =
        private_file::open(&name, options.write(true).create(true).truncate(false), OthersAccess::Read)
            .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CountersError::InUse(path.into())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Another user who can write the file could lower the numbers.
    private_file::open(path, File::options().read(true), OthersAccess::Read)?
        .take(MAX_LEN)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn new_salt(path: &Path) -> Result<[u8; SALT_LEN], CountersError> {
    let mut salt = [0; SALT_LEN];
    getrandom::fill(&mut salt).map_err(|error| CountersError::Io(path.into(), io::Error::other(error)))?;
    Ok(salt)
}

/// The contents of a file.
struct Records {
    salt: [u8; SALT_LEN],
    reserved: BTreeMap<NumberSpace, u64>,
}

impl Records {
    fn parse(bytes: &[u8], path: &Path) -> Result<Self, CountersError> {
        let wrong_file = || CountersError::WrongFile(path.into());
        let text = str::from_utf8(bytes).map_err(|_| wrong_file())?;
        let mut lines = text.split_inclusive('\n').enumerate();
        let first_line = lines.next().and_then(|(_, line)| line.strip_suffix('\n'));
        if !first_line.is_some_and(|line| [FIRST_LINE, FIRST_LINE_V1].contains(&line)) {
            return Err(wrong_file());
        }
        let is_v1 = first_line == Some(FIRST_LINE_V1);
        let damaged = |line: usize, expected| CountersError::Damaged {
            path: path.into(),
            line: line.saturating_add(1),
            expected,
        };
        let salt =
            lines.next().and_then(|(_, line)| parse_hex(line.strip_prefix("salt ")?.strip_suffix('\n')?));
        let salt = salt.ok_or_else(|| damaged(1, "`salt` and 32 hexadecimal digits"))?;
        let mut reserved = BTreeMap::new();
        let mut at = FIRST_LINE.len().saturating_add("salt \n\n".len()).saturating_add(SALT_LEN * 2);
        for (number, line) in lines {
            if let Some(sum) = line.strip_prefix("sum ") {
                let sum = sum.strip_suffix('\n').and_then(parse_hex::<32>);
                let summed = text.get(..at).or_broken_default("`at` is the length of the lines before");
                let is_last = at.saturating_add(line.len()) == text.len();
                if is_last && sum == Some(Sha256::digest(summed.as_bytes()).into()) {
                    return Ok(Self { salt, reserved });
                }
                return Err(damaged(number, "the correct checksum, and nothing after it"));
            }
            let record = line.strip_suffix('\n').and_then(|line| parse_record(line, is_v1));
            let last = record
                .ok_or_else(|| damaged(number, "`key`, `sa` or `old`, 64 hexadecimal digits and a number"))?;
            if reserved.insert(last.space, last.number).is_some() {
                return Err(damaged(number, "one record for each number space"));
            }
            at = at.saturating_add(line.len());
        }
        Err(damaged(text.lines().count(), "the line with the checksum"))
    }
}

fn parse_record(line: &str, is_v1: bool) -> Option<LastNumber> {
    let (kind, rest) = if is_v1 {
        (SpaceKind::V1, line)
    } else {
        let (word, rest) = line.split_once(' ')?;
        (SpaceKind::ALL.into_iter().find(|kind| kind.word() == word)?, rest)
    };
    let (hash, last) = rest.split_once(' ')?;
    let space = NumberSpace { kind, hash: parse_hex::<HASH_LEN>(hash)? };
    Some(LastNumber { space, number: last.parse().ok()? })
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != N.checked_mul(2)? || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
