//! Data keys: each encrypts the records of one owner for an hour.
//!
//! An entry `data-keys/OWNER-NUMBER` contains a data key, encrypted with the wrapping key
//! ([`wrapping`](crate::wrapping)). OWNER is the takeover count of the owner that has made the key. A record
//! names its key by its own takeover count and the number:
//!
//! ```text
//!  | version (1) | takeover count (8) | number of the key (4) | nonce (12) | encrypted record | tag (16) |
//! ```
//! - An owner never encrypts with the key of another owner. So one process counts what a key encrypts, and
//!   measures its age with a monotonic clock.
//! - The entry of a new key is written in the transaction of the first record that it encrypts. So no record
//!   is without its key, whenever the owner ends.
//! - A key is *former* when its time is over, or its owner. Records of former keys are written again, a few
//!   at a time. The entry of a former key is deleted when the store cannot have, or get, a record that was
//!   encrypted with it: a write without an answer counts for the former key of its record and for the new one
//!   until a later write of that record has an answer.

use crate::StoreKeys;
use crate::key_change::KeyChange;
use crate::seal::{EntryCipher, KEY_LEN};
use crate::start::{SlotContents, StartError, spi_of};
use crate::wrapping::{NeededKeys, WrappingKeys};
use crate::writes::WriteFacts;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use casemate::Context;
use casemate_crypto::{Providers, Rng, SecretBytes};
use casemate_sa::Instant;
use casemate_store::{Entry, Write};
use core::time::Duration;
use zeroize::Zeroizing;

/// Time after which an owner makes a new data key.
const TIME: Duration = Duration::from_secs(3_600);
/// Part of that time after which the records of former keys are written again, if nothing else has.
const REWRITE: u32 = 6;
/// Pause between two groups of records that are written for that reason alone.
const PAUSE: Duration = Duration::from_millis(250);
/// Records in such a group.
const GROUP: usize = 60;
/// Most records of one data key. Beyond it, the key is replaced before the next write.
const MAX_RECORDS: u64 = 1 << 31;
/// A key is not replaced for its age while the store has this many.
const MAX_KEYS: usize = 8;
/// Most writes of [`DataKeys::writes`].
pub(crate) const MAX_KEY_WRITES: usize = 4;

const VERSION: u8 = 2;
/// Version, takeover count and number.
const HEADER_LEN: usize = 13;

/// Identifies a data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DataKeyId {
    /// Takeover count of the owner that has made it.
    pub(crate) owner: u64,
    /// Number among the keys of this owner.
    pub(crate) number: u32,
}

impl DataKeyId {
    fn header(self) -> Vec<u8> {
        [&[VERSION][..], &self.owner.to_be_bytes(), &self.number.to_be_bytes()].concat()
    }

    /// The data key of a record.
    fn of_record(value: &[u8]) -> Option<Self> {
        let (header, _) = value.split_first_chunk::<HEADER_LEN>()?;
        let (version, rest) = header.split_first()?;
        let (owner, number) = rest.split_first_chunk::<8>()?;
        let number = u32::from_be_bytes(*number.as_array()?);
        (*version == VERSION).then_some(Self { owner: u64::from_be_bytes(*owner), number })
    }

    /// The data key of an entry with this name.
    fn of_entry(keys: &StoreKeys, name: &[u8]) -> Option<Self> {
        let name = core::str::from_utf8(name.strip_prefix(&*keys.data_keys())?).ok()?;
        let (owner, number) = name.split_once('-')?;
        let owner = u64::from_str_radix(owner, 16).ok()?;
        let id = Self { owner, number: u32::from_str_radix(number, 16).ok()? };
        // Each key has one name.
        (keys.data_key(id) == [&*keys.data_keys(), name.as_bytes()].concat()).then_some(id)
    }
}

/// Whether all data keys among these entries can be decrypted.
pub(crate) fn are_readable(keys: &StoreKeys, wrapping: &WrappingKeys, entries: &[Entry]) -> bool {
    let mut data_keys = entries.iter().filter(|entry| DataKeyId::of_entry(keys, &entry.key).is_some());
    data_keys.all(|entry| wrapping.unwrap_key(&entry.key, &entry.value).is_ok())
}

/// The key with which this owner encrypts.
struct CurrentKey {
    id: DataKeyId,
    cipher: EntryCipher,
    /// Value of its entry.
    wrapped: Vec<u8>,
    /// Whether the store has the entry.
    is_written: bool,
    made_at: Instant,
    /// Number of records that it has encrypted.
    records: u64,
}

/// The data keys of former owners, which decrypt their records.
pub(crate) struct FormerKeys(BTreeMap<DataKeyId, EntryCipher>);

/// A decrypted record.
pub(crate) struct OpenedRecord {
    /// Takeover count of the owner that has written it.
    pub(crate) owner: u64,
    pub(crate) text: Zeroizing<Vec<u8>>,
}

impl FormerKeys {
    /// Decrypts the record of an entry; `None` if its key is missing, or it is not authentic.
    pub(crate) fn open(&self, entry: &[u8], value: &[u8]) -> Option<OpenedRecord> {
        let id = DataKeyId::of_record(value)?;
        let text = self.0.get(&id)?.open::<HEADER_LEN>(entry, value).ok()?;
        Some(OpenedRecord { owner: id.owner, text })
    }
}

/// The key writes of a transaction without an answer.
#[derive(Default)]
struct KeyWrites {
    put: Option<DataKeyId>,
    deleted: Vec<DataKeyId>,
    /// Encrypted again, with another wrapping key.
    rewrapped: Vec<DataKeyId>,
}

/// The data keys in the store.
pub(crate) struct DataKeys {
    keys: StoreKeys,
    wrapping: WrappingKeys,
    /// The change of the wrapping key, which precedes all other writes.
    change: Option<KeyChange>,
    time: Duration,
    /// `None` if the next record needs a new key.
    current: Option<CurrentKey>,
    next_number: u32,
    /// Keys whose entries the store may have, and for each the number of records that it may have encrypted.
    known: BTreeMap<DataKeyId, usize>,
    /// Keys that may have encrypted the entry in the store, by the SPI in its name.
    by_spi: BTreeMap<u64, Vec<DataKeyId>>,
    in_progress: KeyWrites,
    /// When records of former keys may be written for that reason alone.
    rewrite_at: Instant,
}

impl DataKeys {
    pub(crate) fn new(keys: StoreKeys, wrapping: WrappingKeys) -> Self {
        Self {
            keys,
            wrapping,
            change: None,
            time: TIME,
            current: None,
            next_number: 0,
            known: BTreeMap::new(),
            by_spi: BTreeMap::new(),
            in_progress: KeyWrites::default(),
            rewrite_at: Instant::ZERO,
        }
    }

    /// Replaces keys after this time, instead of [`TIME`].
    pub(crate) const fn replace_after(&mut self, time: Duration) {
        self.time = time;
    }

    pub(crate) const fn wrapping(&self) -> &WrappingKeys {
        &self.wrapping
    }

    /// Whether the next transaction belongs to the change of the wrapping key.
    pub(crate) const fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Number of keys that the store has, or may have.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// Takes the data keys and records that a new owner has found. If another wrapping key has encrypted a
    /// data key, this is an error: the records of that key would be lost.
    pub(crate) fn restore(
        &mut self,
        contents: &SlotContents,
        providers: &Providers<'_>,
        rng: &mut dyn Rng,
        now: Instant,
    ) -> Result<FormerKeys, StartError> {
        let (mut former, mut rewrapped) = (BTreeMap::new(), BTreeMap::new());
        let failed = |_| StartError::WrappingKey;
        for Entry { key, value, .. } in &contents.data_keys {
            let Some(id) = DataKeyId::of_entry(&self.keys, key) else { continue };
            if id.owner >= contents.owner {
                return Err(StartError::LaterOwner);
            }
            self.known.insert(id, 0);
            let (data_key, wrapped_with) = self.wrapping.unwrap_key(key, value).map_err(failed)?;
            if wrapped_with == NeededKeys::Second {
                let wrapped = self.wrapping.first().wrap_key(key, &data_key, rng).map_err(failed)?;
                rewrapped.insert(id, wrapped);
            }
            former.insert(id, EntryCipher::new(&data_key, providers).map_err(failed)?);
        }
        let change = KeyChange::new(&self.keys, &self.wrapping, rewrapped, contents.proved, rng);
        self.change = change.map_err(failed)?;
        for Entry { key, value, .. } in &contents.records {
            if let (Some(spi), Some(id)) = (spi_of(key), DataKeyId::of_record(value)) {
                self.note_possible(spi, id);
            }
        }
        self.rewrite_at = self.first_rewrite(now);
        Ok(FormerKeys(former))
    }

    /// Encrypts a record of this owner for the entry of an SPI. Returns the value and its key. `None` if no
    /// provider has the algorithm.
    pub(crate) fn seal(
        &mut self,
        owner: u64,
        spi: u64,
        record: &SecretBytes,
        context: &mut Context<'_>,
    ) -> Option<(Vec<u8>, DataKeyId)> {
        let (sealed, id) = self.encrypt(owner, &self.keys.record(spi), record, context)?;
        self.note_possible(spi, id);
        Some((sealed, id))
    }

    /// Makes the key of this owner, if it has none. Returns whether its entry is still to be written.
    pub(crate) fn prepare(&mut self, owner: u64, context: &mut Context<'_>) -> bool {
        if self.current.is_none() {
            self.current = self.make(owner, context);
            self.known.extend(self.current_id().map(|id| (id, 0)));
        }
        self.current.as_ref().is_some_and(|current| !current.is_written)
    }

    /// Encrypts the text of an entry that no later owner needs, when the records of this one are gone.
    pub(crate) fn encrypt(
        &mut self,
        owner: u64,
        entry: &[u8],
        text: &SecretBytes,
        context: &mut Context<'_>,
    ) -> Option<(Vec<u8>, DataKeyId)> {
        self.prepare(owner, context);
        let current = self.current.as_mut()?;
        let id = current.id;
        current.records = current.records.saturating_add(1);
        let sealed = current.cipher.seal(entry, &id.header(), text, context.rng).ok()?;
        Some((sealed, id))
    }

    fn make(&mut self, owner: u64, context: &mut Context<'_>) -> Option<CurrentKey> {
        let id = DataKeyId { owner, number: self.next_number };
        self.next_number = self.next_number.checked_add(1)?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        context.rng.secret(&mut *key);
        let key = SecretBytes::new(&*key);
        let cipher = EntryCipher::new(&key, context.providers).ok()?;
        let wrapped = self.wrapping.first().wrap_key(&self.keys.data_key(id), &key, context.rng).ok()?;
        Some(CurrentKey { id, cipher, wrapped, is_written: false, made_at: context.now, records: 0 })
    }

    /// Ends the use of the current key if its time is over or it has encrypted many records. No write may be
    /// in progress.
    pub(crate) fn replace_if_due(&mut self, now: Instant) {
        let is_over = |current: &CurrentKey| {
            let is_old = now.since(current.made_at) >= self.time && self.known.len() < MAX_KEYS;
            current.is_written && (is_old || current.records >= MAX_RECORDS)
        };
        if self.current.as_ref().is_some_and(is_over) {
            self.retire(now);
        }
    }

    /// Ends the use of the current key.
    pub(crate) fn retire(&mut self, now: Instant) {
        self.current = None;
        self.rewrite_at = self.first_rewrite(now);
    }

    fn first_rewrite(&self, now: Instant) -> Instant {
        now.after(self.time.checked_div(REWRITE).unwrap_or_default())
    }

    fn current_id(&self) -> Option<DataKeyId> {
        self.current.as_ref().map(|current| current.id)
    }

    /// SPIs whose records are to be written now because a former key has encrypted them.
    pub(crate) fn take_due(&mut self, now: Instant) -> BTreeSet<u64> {
        let current = self.current_id();
        let is_former = |id: &DataKeyId| Some(*id) != current;
        if now < self.rewrite_at || !self.known.iter().any(|(id, records)| is_former(id) && *records > 0) {
            return BTreeSet::new();
        }
        self.rewrite_at = now.after(PAUSE);
        let of_former = self.by_spi.iter().filter(|(_, ids)| ids.iter().any(is_former));
        of_former.map(|(spi, _)| *spi).take(GROUP).collect()
    }

    /// Former keys that no record needs.
    fn unused(&self) -> impl Iterator<Item = DataKeyId> {
        let current = self.current_id();
        let unused = self.known.iter().filter(move |(id, records)| Some(**id) != current && **records == 0);
        unused.map(|(id, _)| *id)
    }

    /// Whether entries of former keys are to be deleted.
    pub(crate) fn has_unused(&self) -> bool {
        self.unused().next().is_some()
    }

    /// The writes of keys that belong to the next transaction, at most [`MAX_KEY_WRITES`] unless the wrapping
    /// key is changed.
    pub(crate) fn writes(&mut self) -> Vec<Write> {
        if let Some(change) = &self.change {
            let (writes, rewrapped) = change.writes(&self.keys);
            self.in_progress = KeyWrites { rewrapped, ..KeyWrites::default() };
            return writes;
        }
        let new = self.current.as_ref().filter(|current| !current.is_written);
        let put = new.map(|CurrentKey { id, wrapped, .. }| Write::Put {
            key: self.keys.data_key(*id),
            value: wrapped.clone(),
            lease: None,
        });
        let put_id = new.map(|current| current.id);
        let deleted: Vec<DataKeyId> = self.unused().take(MAX_KEY_WRITES.saturating_sub(1)).collect();
        let deletions = deleted.iter().map(|id| Write::Delete(self.keys.data_key(*id)));
        let writes = put.into_iter().chain(deletions).collect();
        self.in_progress = KeyWrites { put: put_id, deleted, rewrapped: Vec::new() };
        writes
    }

    /// Notes that the last transaction is executed, with these writes of records.
    pub(crate) fn written(&mut self, records: &[WriteFacts]) {
        let KeyWrites { put, deleted, rewrapped } = core::mem::take(&mut self.in_progress);
        self.change.take_if(|change| change.written(&rewrapped));
        if let Some(current) = self.current.as_mut().filter(|current| Some(current.id) == put) {
            current.is_written = true;
        }
        self.known.retain(|id, _| !deleted.contains(id));
        for WriteFacts { spi, data_key, .. } in records {
            let ids = self.by_spi.remove(spi).unwrap_or_default();
            // A later key belongs to a write that follows.
            let is_possible = |id: &DataKeyId| data_key.is_some_and(|written| *id >= written);
            let (kept, released): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_possible);
            released.iter().for_each(|id| self.release(id));
            if !kept.is_empty() {
                self.by_spi.insert(*spi, kept);
            }
        }
    }

    /// Notes that the key may have encrypted the entry of this SPI.
    fn note_possible(&mut self, spi: u64, id: DataKeyId) {
        // A record whose key is missing cannot be read.
        let Some(records) = self.known.get_mut(&id) else { return };
        let ids = self.by_spi.entry(spi).or_default();
        if !ids.contains(&id) {
            ids.push(id);
            *records = records.saturating_add(1);
        }
    }

    fn release(&mut self, id: &DataKeyId) {
        if let Some(records) = self.known.get_mut(id) {
            *records = records.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
