//! Reserves numbers before they are used, so that the data path never waits for the disk.
//!
//! Each SA has a block of reserved numbers. When half of it is used, a thread writes the next block to the
//! file; the other half is used meanwhile. If the disk is slower than that, the data path drops packets with
//! the reason `counter-not-reserved`.

use super::file::{CounterFile, CountersError};
use super::{LastNumber, NumberSpace};
use crate::{Error, sandbox};
use casemate_datapath::{Datapath, SaId};
use casemate_sa::SaParams;
use casemate_wire::invariant::OrBroken;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

/// Numbers reserved at a time. A crash loses the rest of a block, of four thousand million numbers.
pub const BLOCK: u64 = 1 << 17;
/// Sealed packets between two checks of the numbers: no number can have advanced further.
const CHECK_INTERVAL: u64 = BLOCK / 4;

/// A counter file in which the blocks of this run are being reserved.
pub struct CounterStoreBuilder {
    file: CounterFile,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    number_space: NumberSpace,
    id: Option<SaId>,
    /// Highest number that the SA can use.
    ceiling: u64,
    /// Last number that is on the disk.
    reserved: u64,
    /// Last number that was requested from the writer.
    requested: u64,
}

impl CounterStoreBuilder {
    /// Starts with a file in which nothing is reserved yet.
    pub fn new(file: CounterFile) -> Self {
        Self { file, entries: Vec::new() }
    }

    /// Matches all outbound SAs of this run with the records of a file of an earlier version. Must be called
    /// before the first [`resume`](Self::resume). Returns the highest number among records that no SA
    /// matches, or 0: each counter-mode key starts after it, because the record may be that of the key.
    pub fn migrate_v1<'s>(&mut self, sas: impl Iterator<Item = &'s SaParams>) -> u64 {
        sas.for_each(|sa| self.file.migrate_v1(sa));
        self.file.highest_v1()
    }

    /// Raises the last number of the SA to the number in the file, and returns the result. Adds the number
    /// space of the SA.
    pub fn resume(&mut self, sa: &mut SaParams) -> u64 {
        let number_space = self.file.number_space(sa);
        let ceiling = if sa.esn { u64::MAX } else { u32::MAX.into() };
        sa.last_sent = sa.last_sent.max(self.file.reserved(&number_space)).min(ceiling);
        let reserved = sa.last_sent.saturating_add(BLOCK).min(ceiling);
        self.entries.push(Entry { number_space, id: None, ceiling, reserved, requested: reserved });
        sa.last_sent
    }

    /// Sets the SA of the number space that was resumed last.
    pub fn bind_last(&mut self, id: SaId) {
        if let Some(entry) = self.entries.last_mut().or_report("a number space was resumed before") {
            entry.id = Some(id);
        }
    }

    /// Reserves the first blocks and lets the SAs use them. From then on a thread of its own writes the file.
    pub fn start(mut self, datapath: &mut Datapath) -> Result<CounterStore, CountersError> {
        let last = |entry: &Entry| LastNumber { space: entry.number_space, number: entry.reserved };
        let blocks: Vec<_> = self.entries.iter().map(last).collect();
        self.file.reserve(&blocks)?;
        for entry in &self.entries {
            if let Some(id) = entry.id {
                datapath.set_durable(id, entry.reserved);
            }
        }
        Ok(CounterStore {
            entries: self.entries,
            writer: Some(Writer::start(self.file)?),
            is_writing: false,
            since_check: 0,
        })
    }
}

/// The thread that writes the file, and its channels.
struct Writer {
    thread: JoinHandle<CounterFile>,
    requests: SyncSender<Vec<LastNumber>>,
    replies: Receiver<Result<(), CountersError>>,
}

impl Writer {
    /// Starts the thread. Returns once the thread has dropped its capabilities.
    fn start(file: CounterFile) -> Result<Self, CountersError> {
        let (to_writer, requests) = sync_channel(1);
        let (to_store, replies) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("counter writer".into())
            .spawn(move || write_requests(file, &requests, &to_store))
            .map_err(|error| CountersError::Writer(Error::new(WRITER, error)))?;
        replies.recv().unwrap_or_else(|_| Err(writer_error("it panicked")))?;
        Ok(Self { thread, requests: to_writer, replies })
    }
}

const WRITER: &str = "the thread that writes the counter file";

fn writer_error(reason: &str) -> CountersError {
    CountersError::Writer(Error::other(WRITER, reason))
}

/// Main loop of the writer thread, which writes files of this user. Its first reply says whether it could
/// drop its capabilities; then there is one reply to each request.
fn write_requests(
    mut file: CounterFile,
    requests: &Receiver<Vec<LastNumber>>,
    replies: &SyncSender<Result<(), CountersError>>,
) -> CounterFile {
    let mut reply = sandbox::drop_capabilities().map_err(CountersError::Writer);
    let is_restricted = reply.is_ok();
    while replies.send(reply).is_ok() && is_restricted {
        let Ok(blocks) = requests.recv() else { break };
        reply = file.reserve(&blocks);
    }
    file
}

/// The number spaces of a running data path.
pub struct CounterStore {
    entries: Vec<Entry>,
    writer: Option<Writer>,
    is_writing: bool,
    since_check: u64,
}

impl CounterStore {
    /// Whether [`poll`](Self::poll) would do more than count.
    #[inline]
    pub fn needs_poll(&self, sealed: u64, urgent: bool) -> bool {
        self.is_writing || urgent || self.since_check.saturating_add(sealed) >= CHECK_INTERVAL
    }

    /// Must be called when [`needs_poll`](Self::needs_poll) returns `true`, with the number of packets sealed
    /// since the last call. Releases blocks that were written and requests more where half a block is used.
    /// `urgent` checks at once, because a packet found no number.
    #[inline]
    pub fn poll(
        &mut self,
        datapath: &mut Datapath,
        sealed: u64,
        urgent: bool,
    ) -> Option<Result<(), CountersError>> {
        self.since_check = self.since_check.saturating_add(sealed);
        if self.is_writing {
            return self.collect_reply(datapath);
        }
        if self.needs_poll(0, urgent) {
            self.request_blocks(datapath);
        }
        None
    }

    /// Whether the writer thread has ended before the run: then no more numbers are released.
    pub fn writer_has_ended(&self) -> bool {
        self.writer.is_none()
    }

    fn request_blocks(&mut self, datapath: &mut Datapath) {
        self.since_check = 0;
        let mut blocks = Vec::new();
        for entry in &mut self.entries {
            let Some(last) = entry.id.and_then(|id| datapath.last_seq(id)) else { continue };
            let unused =
                entry.reserved.checked_sub(last).or_broken("no number above the reserved is used", 0);
            if entry.reserved < entry.ceiling && unused <= BLOCK / 2 {
                entry.requested = last.saturating_add(BLOCK).min(entry.ceiling);
                blocks.push(LastNumber { space: entry.number_space, number: entry.requested });
            }
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| !blocks.is_empty()) {
            // Nothing is being written, so the channel has room for a request, unless the thread has ended.
            self.is_writing = writer.requests.try_send(blocks).is_ok();
            if !self.is_writing {
                self.writer = None;
            }
        }
    }

    fn collect_reply(&mut self, datapath: &mut Datapath) -> Option<Result<(), CountersError>> {
        let reply = match self.writer.as_ref()?.replies.try_recv() {
            Ok(reply) => reply,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                self.writer = None;
                return None;
            }
        };
        self.is_writing = false;
        for entry in self.entries.iter_mut().filter(|entry| entry.requested > entry.reserved) {
            if reply.is_err() {
                entry.requested = entry.reserved;
                continue;
            }
            entry.reserved = entry.requested;
            if let Some(id) = entry.id {
                datapath.set_durable(id, entry.reserved);
            }
        }
        Some(reply)
    }

    /// Ends an orderly run: returns unused numbers to the file. Does nothing if
    /// [`writer_has_ended`](Self::writer_has_ended): the next start skips the unused numbers.
    pub fn close(mut self, datapath: &mut Datapath) -> Result<(), CountersError> {
        let Some(Writer { thread, requests, .. }) = self.writer.take() else { return Ok(()) };
        drop(requests);
        let panicked = |_| writer_error("it panicked, so the next start skips unused sequence numbers");
        let mut file = thread.join().map_err(panicked)?;
        let used = self.entries.iter().filter_map(|entry| {
            let number = entry.id.and_then(|id| datapath.last_seq(id))?;
            Some(LastNumber { space: entry.number_space, number })
        });
        file.return_unused(&used.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_datapath::Config;

    #[test]
    fn the_end_of_the_writer_thread_is_detected() {
        let scratch = casemate_test_support::TempDir::new("counters").unwrap();
        let file = CounterFile::open(&scratch.file("counters")).unwrap();
        let (requests, _) = sync_channel(1);
        let (_, replies) = sync_channel(1);
        let writer = Writer { thread: thread::spawn(|| file), requests, replies };
        let mut store =
            CounterStore { entries: Vec::new(), writer: Some(writer), is_writing: true, since_check: 0 };
        assert!(!store.writer_has_ended());
        store.poll(&mut Datapath::new(Config::server(1)), 1, false);
        assert!(store.writer_has_ended());
    }

    /// The thread has the file, so unused numbers cannot be returned: the next start skips them.
    #[test]
    fn a_panic_of_the_writer_thread_is_an_error_of_close() {
        let (requests, _) = sync_channel(1);
        let (_, replies) = sync_channel(1);
        let writer = Writer { thread: thread::spawn(|| panic!("on purpose")), requests, replies };
        let store =
            CounterStore { entries: Vec::new(), writer: Some(writer), is_writing: false, since_check: 0 };
        assert!(store.close(&mut Datapath::new(Config::server(1))).is_err());
    }
}
