//! The file of reserved counters.
//!
//! ```text
//! casemate counters 1
//! salt <32 hexadecimal digits>
//! <64 hexadecimal digits> <the last number reserved>
//! sum <64 hexadecimal digits>
//! ```
//!
//! One line an account: a salted hash of what the counter belongs to, so that the file says nothing of the key. The sum is
//! SHA-256 of all before it. A change writes a new file and renames it over the old one, so there is always one whole file,
//! and a file that is damaged is not taken for a younger one but refused.

use casemate_sa::{SaParams, Transform};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "casemate counters 1";
const SALT_LEN: usize = 16;
/// Room for a million accounts.
const MAX_LEN: u64 = 100 << 20;

/// Names what a counter belongs to: algorithm, key, SPI and addresses of an SA, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account([u8; 32]);

/// Why there are no counters.
#[derive(Debug)]
pub enum CountersError {
    /// The operating system refused.
    Io(PathBuf, io::Error),
    /// Another process uses the file.
    InUse(PathBuf),
    /// The file is something else.
    Alien(PathBuf),
    /// The file is damaged.
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What was expected there.
        expected: &'static str,
    },
}

impl fmt::Display for CountersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "Nobody knows which counters were used, so the keys must not be used again: delete the file \
                              only together with them";
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::InUse(path) => write!(
                f,
                "{}: another process keeps its counters there; each instance needs a file of its own",
                path.display()
            ),
            Self::Alien(path) => write!(
                f,
                "{}: not a file of counters: the first line was expected to be `{FIRST_LINE}`",
                path.display()
            ),
            Self::Damaged { path, line, expected } => {
                write!(f, "{}:{line}: the file is damaged: {expected} was expected. {ADVICE}", path.display())
            }
        }
    }
}

impl std::error::Error for CountersError {}

/// The file, held for this process alone.
#[derive(Debug)]
pub struct CounterFile {
    path: PathBuf,
    salt: [u8; SALT_LEN],
    reserved: BTreeMap<Account, u64>,
    is_new: bool,
    // The lock is on a file of its own, because the counters get a new file with every change.
    _lock: File,
}

impl CounterFile {
    /// Opens the file, which need not exist, and keeps others from it.
    pub fn open(path: &Path) -> Result<Self, CountersError> {
        let lock = lock(path)?;
        let text = match read(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(CountersError::Io(path.into(), error)),
        };
        let (salt, reserved) = match &text {
            Some(text) => parse(text, path)?,
            None => (new_salt(path)?, BTreeMap::new()),
        };
        Ok(Self { path: path.into(), salt, reserved, is_new: text.is_none(), _lock: lock })
    }

    /// Whether the file did not exist: then nothing is known of numbers used before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The account of an outbound SA.
    pub fn account(&self, sa: &SaParams) -> Account {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(&self.salt);
        match &sa.transform {
            Transform::Esp { suite, encr, integ } => {
                part(format!("esp {suite}").as_bytes());
                part(encr.expose());
                part(integ.expose());
            }
            Transform::Ah { suite, integ } => {
                part(format!("ah {suite}").as_bytes());
                part(integ.expose());
            }
        }
        part(&sa.spi.get().to_be_bytes());
        for addr in [sa.src, sa.dst] {
            match addr {
                IpAddr::V4(addr) => part(&addr.octets()),
                IpAddr::V6(addr) => part(&addr.octets()),
            }
        }
        Account(hash.finalize().into())
    }

    /// The last number that may have been used; 0 for an account that is not in the file.
    pub fn reserved(&self, account: &Account) -> u64 {
        self.reserved.get(account).copied().unwrap_or(0)
    }

    /// Writes these numbers down. When it returns, they are on the disk. Lower numbers than written before change nothing.
    pub fn reserve(&mut self, upto: &[(Account, u64)]) -> Result<(), CountersError> {
        for (account, number) in upto {
            let reserved = self.reserved.entry(*account).or_insert(0);
            *reserved = (*number).max(*reserved);
        }
        self.write()
    }

    /// Gives numbers back that were reserved and not used, at the end of an orderly run.
    pub fn settle(&mut self, used: &[(Account, u64)]) -> Result<(), CountersError> {
        self.reserved.extend(used.iter().copied());
        self.write()
    }

    fn write(&self) -> Result<(), CountersError> {
        let temporary = with_suffix(&self.path, ".new");
        let failed = |error| CountersError::Io(self.path.clone(), error);
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(failed)?;
        file.write_all(self.text().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&temporary, &self.path).map_err(failed)?;
        // The new name, too, has to be on the disk.
        File::open(directory_of(&self.path)).and_then(|directory| directory.sync_all()).map_err(failed)
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nsalt {}\n", Hex(&self.salt));
        for (Account(account), number) in &self.reserved {
            let _ = writeln!(text, "{} {number}", Hex(account));
        }
        let sum = Sha256::digest(text.as_bytes());
        let _ = writeln!(text, "sum {}", Hex(&sum));
        text
    }
}

fn lock(path: &Path) -> Result<File, CountersError> {
    let failed = |error| CountersError::Io(path.into(), error);
    let name = with_suffix(path, ".lock");
    let file =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CountersError::InUse(path.into())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn new_salt(path: &Path) -> Result<[u8; SALT_LEN], CountersError> {
    let mut salt = [0; SALT_LEN];
    getrandom::fill(&mut salt).map_err(|error| CountersError::Io(path.into(), io::Error::other(error)))?;
    Ok(salt)
}

type Contents = ([u8; SALT_LEN], BTreeMap<Account, u64>);

fn parse(bytes: &[u8], path: &Path) -> Result<Contents, CountersError> {
    let alien = || CountersError::Alien(path.into());
    let text = str::from_utf8(bytes).map_err(|_| alien())?;
    let mut lines = text.split_inclusive('\n').enumerate();
    if lines.next().map(|(_, line)| line.trim_end_matches('\n')) != Some(FIRST_LINE) {
        return Err(alien());
    }
    let damaged = |line: usize, expected| CountersError::Damaged {
        path: path.into(),
        line: line.saturating_add(1),
        expected,
    };
    let salt = lines.next().and_then(|(_, line)| parse_hex(line.strip_prefix("salt ")?.strip_suffix('\n')?));
    let salt = salt.ok_or_else(|| damaged(1, "`salt` and 32 hexadecimal digits"))?;
    let mut reserved = BTreeMap::new();
    let mut at = FIRST_LINE.len().saturating_add("salt \n\n".len()).saturating_add(SALT_LEN * 2);
    for (number, line) in lines {
        if let Some(sum) = line.strip_prefix("sum ") {
            let sum = sum.strip_suffix('\n').and_then(parse_hex::<32>);
            let summed = text.get(..at).unwrap_or_default();
            let is_last = at.saturating_add(line.len()) == text.len();
            if is_last && sum == Some(Sha256::digest(summed.as_bytes()).into()) {
                return Ok((salt, reserved));
            }
            return Err(damaged(number, "the right sum, and nothing behind it"));
        }
        let entry = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
        let entry = entry.and_then(|(account, last)| Some((parse_hex(account)?, last.parse().ok()?)));
        let (account, last) = entry.ok_or_else(|| damaged(number, "64 hexadecimal digits and a number"))?;
        reserved.insert(Account(account), last);
        at = at.saturating_add(line.len());
    }
    Err(damaged(text.lines().count(), "the line with the sum"))
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

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
