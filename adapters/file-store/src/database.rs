//! The database in the file: a table of entries, and the revision.
//!
//! An entry is stored below its key as the revision of its creation, the revision of its last change, 1 if it
//! is bound to a lease or 0, and the value. Revisions are 64 bits, big-endian.
//!
//! Each transaction has two phases: its pages are synchronized before the header names them, and the header
//! is synchronized before the transaction is confirmed. So the checksums of what the header names are correct
//! unless the file is damaged, and no damage looks like a transaction that a crash interrupted.

use crate::OpenError;
use crate::disk::{Disk, Faults, Recorded};
use casemate_store::{Change, Entry, Lease, Revision};
use redb::{Builder, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
/// Number in the table `numbers`: version of the format.
const FORMAT: &str = "format";
const FORMAT_1: u64 = 1;
/// Number in the table `numbers`: revision of the last change.
const REVISION: &str = "revision";
/// Bytes of pages that the database keeps in memory. All entries are in memory besides.
const CACHE: usize = 4 << 20;
/// Below this size, the file is not compacted.
const SMALL: u64 = 1 << 20;
/// Bytes that the database needs for an entry besides its key and value, for the comparison of sizes.
const ENTRY_OVERHEAD: usize = 64;

/// Why a database cannot be opened.
#[derive(Debug)]
pub(crate) enum OpenFault {
    /// An operation failed.
    Io(io::Error),
    /// The contents are not a database of this version.
    Damaged(String),
}

impl OpenFault {
    pub(crate) fn into_error(self, path: &Path) -> OpenError {
        match self {
            Self::Io(error) => OpenError::Io(path.into(), error),
            Self::Damaged(reason) => OpenError::Damaged(path.into(), reason),
        }
    }
}

impl From<io::Error> for OpenFault {
    fn from(error: io::Error) -> Self {
        // What redb reports for a file that it does not know, or that ends too early.
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Io(error),
        }
    }
}

impl From<redb::Error> for OpenFault {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            error => Self::Damaged(error.to_string()),
        }
    }
}

/// Why a transaction was not written.
#[derive(Debug)]
pub(crate) enum WriteFault {
    /// The storage has no room. The database has what it had before.
    Full,
    /// Something else failed, and it is unknown what the database has.
    Broken(String),
}

/// What a database contains.
pub(crate) struct Contents {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Entry>,
}

/// A database on a disk.
pub(crate) struct Database<D> {
    disk: D,
    /// `None` after the storage was full, until the next transaction.
    open: Option<redb::Database>,
    faults: Arc<Faults>,
    /// Revision of the last transaction.
    revision: Revision,
    /// Size of the file after it was compacted; 0 if it was not.
    compacted: u64,
}

/// Creates an empty database on an empty disk.
pub(crate) fn create<D: Disk>(disk: D) -> Result<(), OpenFault> {
    let backend = disk.backend()?;
    let database = builder().create_with_backend(backend).map_err(redb::Error::from)?;
    let written = (|| -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_two_phase_commit(true);
        transaction.open_table(ENTRIES)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(FORMAT, FORMAT_1)?;
        numbers.insert(REVISION, 0)?;
        drop(numbers);
        transaction.commit()?;
        Ok(())
    })();
    Ok(written?)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // Without this check, redb trusts a file that was closed in order, and may return damaged values.
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    builder
}

impl<D: Disk> Database<D> {
    /// Opens the database, and reads and verifies all of it.
    pub(crate) fn open(disk: D) -> Result<(Self, Contents), OpenFault> {
        let faults = Arc::default();
        let open = open_backend(&disk, &faults)?;
        let contents = read(&open)?;
        let revision = contents.revision;
        Ok((Self { disk, open: Some(open), faults, revision, compacted: 0 }, contents))
    }

    /// Writes changes, after which the revision is this one. They are on the disk when the function returns.
    pub(crate) fn write<'c>(
        &mut self,
        changes: impl Iterator<Item = &'c Change>,
        revision: Revision,
    ) -> Result<(), WriteFault> {
        // Only the last change of an entry counts.
        let last: BTreeMap<&[u8], Option<&Entry>> =
            changes.map(|change| (change.key.as_slice(), change.after.as_ref())).collect();
        let result = write(self.opened()?, last, revision);
        self.after_write(result)?;
        self.revision = revision;
        Ok(())
    }

    /// Compacts the file if it is much larger than the entries, which have this number and these bytes. A
    /// disk without room for that is no error.
    pub(crate) fn compact_if_large(&mut self, entries: usize, bytes: usize) -> Result<(), WriteFault> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let size = len(&self.disk)?;
        let live = entries.saturating_mul(ENTRY_OVERHEAD).saturating_add(bytes) as u64;
        // A file that does not get smaller is not compacted again and again.
        if size <= SMALL || size.div_ceil(4) <= live || size.div_ceil(2) <= self.compacted {
            return Ok(());
        }
        let result = open.compact().map(|_| ()).map_err(redb::Error::from);
        match self.after_write(result) {
            Ok(()) | Err(WriteFault::Full) => self.compacted = len(&self.disk)?,
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// The open database. Opens it again if the storage was full, and sees that nothing is missing.
    fn opened(&mut self) -> Result<&redb::Database, WriteFault> {
        if self.open.is_none() {
            self.faults = Arc::default();
            let opened = open_backend(&self.disk, &self.faults).and_then(|open| Ok((read(&open)?, open)));
            let (contents, open) = match opened {
                Ok(opened) => opened,
                // To open it needs room, too.
                Err(_) if self.faults.is_only_full() => return Err(WriteFault::Full),
                Err(fault) => return Err(WriteFault::Broken(format!("after the disk was full: {fault:?}"))),
            };
            if contents.revision != self.revision {
                let (found, expected) = (contents.revision.0, self.revision.0);
                return Err(WriteFault::Broken(format!(
                    "the file has revision {found} after the disk was full: {expected} was expected"
                )));
            }
            self.open = Some(open);
        }
        self.open.as_ref().ok_or(WriteFault::Full)
    }

    /// Closes the database after an error, and says what the error means.
    fn after_write(&mut self, result: Result<(), redb::Error>) -> Result<(), WriteFault> {
        let Err(error) = result else { return Ok(()) };
        self.open = None;
        if self.faults.is_only_full() {
            Err(WriteFault::Full)
        } else {
            Err(WriteFault::Broken(error.to_string()))
        }
    }
}

fn open_backend<D: Disk>(disk: &D, faults: &Arc<Faults>) -> Result<redb::Database, OpenFault> {
    let backend = Recorded::new(disk.backend()?, faults.clone());
    if backend.len()? == 0 {
        return Err(OpenFault::Damaged("the file is empty".into()));
    }
    Ok(builder().create_with_backend(backend).map_err(redb::Error::from)?)
}

fn len<D: Disk>(disk: &D) -> Result<u64, WriteFault> {
    let size = disk.backend().and_then(|backend| backend.len());
    size.map_err(|error| WriteFault::Broken(format!("the size of the file: {error}")))
}

fn write(
    database: &redb::Database,
    last: BTreeMap<&[u8], Option<&Entry>>,
    revision: Revision,
) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, entry) in last {
            match entry {
                Some(entry) => entries.insert(key, encode(entry).as_slice())?,
                None => entries.remove(key)?,
            };
        }
        transaction.open_table(NUMBERS)?.insert(REVISION, revision.0)?;
    }
    Ok(transaction.commit()?)
}

fn read(database: &redb::Database) -> Result<Contents, OpenFault> {
    let damaged = |what: &str| OpenFault::Damaged(what.into());
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let numbers = transaction.open_table(NUMBERS).map_err(redb::Error::from)?;
    let number = |name| -> Result<Option<u64>, OpenFault> {
        Ok(numbers.get(name).map_err(redb::Error::from)?.map(|number| number.value()))
    };
    if number(FORMAT)? != Some(FORMAT_1) {
        return Err(damaged("its format is not 1"));
    }
    let revision = Revision(number(REVISION)?.ok_or_else(|| damaged("it has no revision"))?);
    let table = transaction.open_table(ENTRIES).map_err(redb::Error::from)?;
    let mut entries = Vec::new();
    for item in table.iter().map_err(redb::Error::from)? {
        let (key, value) = item.map_err(redb::Error::from)?;
        let entry = decode(key.value(), value.value());
        let entry = entry.filter(|entry| entry.created <= entry.changed && entry.changed <= revision);
        entries.push(entry.ok_or_else(|| damaged("an entry is malformed"))?);
    }
    Ok(Contents { revision, entries })
}

fn encode(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entry.value.len().saturating_add(17));
    bytes.extend_from_slice(&entry.created.0.to_be_bytes());
    bytes.extend_from_slice(&entry.changed.0.to_be_bytes());
    bytes.push(entry.lease.is_some().into());
    bytes.extend_from_slice(&entry.value);
    bytes
}

fn decode(key: &[u8], bytes: &[u8]) -> Option<Entry> {
    let (created, rest) = bytes.split_first_chunk()?;
    let (changed, rest) = rest.split_first_chunk()?;
    let (is_bound, value) = rest.split_first()?;
    // Which lease it was no longer matters: the leases of a former process have ended.
    let lease = match is_bound {
        0 => None,
        1 => Some(Lease(0)),
        _ => return None,
    };
    let (created, changed) = (Revision(u64::from_be_bytes(*created)), Revision(u64::from_be_bytes(*changed)));
    Some(Entry { key: key.to_vec(), value: value.to_vec(), created, changed, lease })
}
