//! A disk in memory that fails on request, and loses unsynchronized writes when its power is cut.

use crate::disk::Disk;
use casemate_test_support::TestRng;
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes that a disk writes completely or not at all.
const SECTOR: usize = 512;

/// The disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// What reads return.
    contents: Vec<u8>,
    /// What is on the disk for sure.
    synced: Vec<u8>,
    /// Changes since the last synchronization.
    unsynced: Vec<Change>,
    /// Maximum length; `None` is unlimited.
    pub(super) capacity: Option<usize>,
    /// Number of synchronizations that succeed; `None` is unlimited.
    pub(super) syncs_left: Option<usize>,
    /// Number of writes that succeed; `None` is unlimited.
    pub(super) writes_left: Option<usize>,
    /// Error of a write that fails.
    pub(super) write_error: Option<io::ErrorKind>,
    /// Whether the next write panics.
    pub(super) panics: bool,
    /// Number of writes, synchronizations and changes of the length so far.
    pub(super) operations: usize,
    /// Number of synchronizations so far.
    pub(super) syncs: usize,
    /// Before which operation the power is cut, and the seed of what remains.
    pub(super) cut_at: Option<(usize, u64)>,
    /// The last revision that the store has confirmed, as its user says.
    pub(super) confirmed: u64,
    /// What the disk had when its power was cut, and which revision was confirmed then.
    pub(super) cut: Option<(Vec<u8>, u64)>,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                // A write beyond the end, whose new length was lost, is lost, too.
                let end = contents.len().min(offset + data.len());
                if let Some(room) = contents.get_mut(*offset..end) {
                    room.copy_from_slice(&data[..room.len()]);
                }
            }
            Self::Length(len) => contents.resize(*len, 0),
        }
    }
}

impl SimulatedDisk {
    pub(super) fn with_contents(contents: &[u8]) -> Self {
        let disk = Self::default();
        disk.state().contents = contents.into();
        disk.state().synced = contents.into();
        disk
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// What reads return.
    pub(super) fn contents(&self) -> Vec<u8> {
        self.state().contents.clone()
    }
}

impl State {
    /// Counts an operation, and notes what the disk has if its power is cut before it. The store goes on:
    /// what it does later does not change the noted contents.
    fn begin_operation(&mut self) {
        self.operations += 1;
        if let Some((at, seed)) = self.cut_at
            && at == self.operations
        {
            self.cut = Some((self.after_power_cut(&mut TestRng::new(seed)), self.confirmed));
        }
    }

    /// What the disk has after its power was cut: what was synchronized, and any of the sectors that were
    /// written since.
    fn after_power_cut(&self, rng: &mut TestRng) -> Vec<u8> {
        let mut contents = self.synced.clone();
        // From none to all of the changes arrive.
        let share = rng.below(5);
        for change in &self.unsynced {
            match change {
                Change::Write(offset, data) => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if rng.below(4) < share {
                            Change::Write(offset + index * SECTOR, sector.into()).apply(&mut contents);
                        }
                    }
                }
                Change::Length(len) if rng.below(4) < share => Change::Length(*len).apply(&mut contents),
                Change::Length(_) => {}
            }
        }
        contents
    }
}

impl Disk for SimulatedDisk {
    type Backend = Self;

    fn backend(&self) -> io::Result<Self> {
        Ok(self.clone())
    }
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().contents.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (state, offset) = (self.state(), offset as usize);
        let range = state.contents.get(offset..offset + out.len());
        out.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation();
        if state.capacity.is_some_and(|capacity| len as usize > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let change = Change::Length(len as usize);
        change.apply(&mut state.contents);
        state.unsynced.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation();
        let unsynced = std::mem::take(&mut state.unsynced);
        if state.syncs_left == Some(0) {
            // As Linux does: the error is reported once. The changes are lost, but reads return them.
            state.syncs_left = None;
            return Err(io::Error::from_raw_os_error(5));
        }
        state.syncs_left = state.syncs_left.map(|left| left - 1);
        state.syncs += 1;
        unsynced.iter().for_each(|change| change.apply(&mut state.synced));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.begin_operation();
        if std::mem::take(&mut state.panics) {
            drop(state);
            panic!("a defect of the database, on purpose");
        }
        if state.writes_left == Some(0) {
            return Err(state.write_error.unwrap_or(io::ErrorKind::Other).into());
        }
        state.writes_left = state.writes_left.map(|left| left - 1);
        assert!(offset as usize + data.len() <= state.contents.len(), "a write beyond the end");
        let change = Change::Write(offset as usize, data.into());
        change.apply(&mut state.contents);
        state.unsynced.push(change);
        Ok(())
    }
}
