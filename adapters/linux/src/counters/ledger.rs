//! Reserves numbers ahead of their use, so that the data path never waits for the disk.
//!
//! Each SA has a block of numbers that is written down. When half of it is used, a thread writes the next block down; until
//! it has done so the other half is used. If the disk is slower than that, the data path drops packets with the reason
//! `counter-not-reserved`.

use super::account::Account;
use super::file::{CounterFile, CountersError};
use crate::confine;
use casemate_datapath::{Datapath, SaId};
use casemate_sa::SaParams;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

/// How many numbers are reserved at a time. What is left of a block at a crash is lost, out of four thousand million.
pub const BLOCK: u64 = 1 << 17;
/// So many sealed packets may pass between two looks at the counters: no counter can have gone further.
const LOOK_EVERY: u64 = BLOCK / 4;

/// A file of counters with the blocks of this run reserved in it.
pub struct Opened {
    file: CounterFile,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    account: Account,
    id: Option<SaId>,
    /// The highest number that the SA has.
    ceiling: u64,
    /// The last number that is on the disk.
    reserved: u64,
    /// The last number that the writer was asked for.
    requested: u64,
}

impl Opened {
    /// Begins with a file that nothing is reserved in yet.
    pub fn new(file: CounterFile) -> Self {
        Self { file, entries: Vec::new() }
    }

    /// Matches all outbound SAs of this run with the records of a file that an earlier version wrote. To be called before the first
    /// [`resume`](Self::resume). Returns the highest number among records that no SA matches, or 0: each counter-mode key begins
    /// after it, because it may be that key's.
    pub fn adopt<'s>(&mut self, sas: impl Iterator<Item = &'s SaParams>) -> u64 {
        sas.for_each(|sa| self.file.adopt(sa));
        self.file.highest_old()
    }

    /// Sets the SA's last number to what the file says, if that is higher; answers which it is now. The SA gets an
    /// account.
    pub fn resume(&mut self, sa: &mut SaParams) -> u64 {
        let account = self.file.account(sa);
        let ceiling = if sa.esn { u64::MAX } else { u32::MAX.into() };
        sa.last_sent = sa.last_sent.max(self.file.reserved(&account)).min(ceiling);
        let reserved = sa.last_sent.saturating_add(BLOCK).min(ceiling);
        self.entries.push(Entry { account, id: None, ceiling, reserved, requested: reserved });
        sa.last_sent
    }

    /// Tells which SA the account resumed last belongs to.
    pub fn belongs_to(&mut self, id: SaId) {
        if let Some(entry) = self.entries.last_mut() {
            entry.id = Some(id);
        }
    }

    /// Writes the first blocks down and lets the SAs use them. From here on a thread of its own writes.
    pub fn start(mut self, datapath: &mut Datapath) -> Result<Ledger, CountersError> {
        let blocks: Vec<_> = self.entries.iter().map(|entry| (entry.account, entry.reserved)).collect();
        self.file.reserve(&blocks)?;
        for entry in &self.entries {
            if let Some(id) = entry.id {
                datapath.set_durable(id, entry.reserved);
            }
        }
        let (to_writer, requests) = sync_channel::<Vec<(Account, u64)>>(1);
        let (replies, from_writer) = sync_channel(1);
        let mut file = self.file;
        let writer = thread::spawn(move || {
            // It writes files of this user. Without this, nothing is written and nothing is sent.
            if confine::renounce().is_err() {
                return file;
            }
            while let Ok(blocks) = requests.recv() {
                if replies.send(file.reserve(&blocks)).is_err() {
                    break;
                }
            }
            file
        });
        Ok(Ledger {
            entries: self.entries,
            writer: Some(Writer { thread: writer, requests: to_writer, replies: from_writer }),
            is_writing: false,
            since_look: 0,
        })
    }
}

struct Writer {
    thread: JoinHandle<CounterFile>,
    requests: SyncSender<Vec<(Account, u64)>>,
    replies: Receiver<Result<(), CountersError>>,
}

/// The accounts of a running data path.
pub struct Ledger {
    entries: Vec<Entry>,
    writer: Option<Writer>,
    is_writing: bool,
    since_look: u64,
}

impl Ledger {
    /// Whether [`keep`](Self::keep) would do anything with these but count.
    #[inline]
    pub fn has_work(&self, sealed: u64, urgent: bool) -> bool {
        self.is_writing || urgent || self.since_look.saturating_add(sealed) >= LOOK_EVERY
    }

    /// To be called when it [has work](Self::has_work), with the number of packets that were sealed since the last call. Releases what has
    /// been written down and asks for more where half a block is used. `urgent` looks at once, because a packet found no number.
    #[inline]
    pub fn keep(
        &mut self,
        datapath: &mut Datapath,
        sealed: u64,
        urgent: bool,
    ) -> Option<Result<(), CountersError>> {
        self.since_look = self.since_look.saturating_add(sealed);
        if self.is_writing {
            return self.collect(datapath);
        }
        if self.has_work(0, urgent) {
            self.look(datapath);
        }
        None
    }

    /// Whether the thread that writes has ended before the run: no more numbers will be released.
    pub fn has_ended(&self) -> bool {
        self.writer.is_none()
    }

    fn look(&mut self, datapath: &mut Datapath) {
        self.since_look = 0;
        let mut blocks = Vec::new();
        for entry in &mut self.entries {
            let Some(last) = entry.id.and_then(|id| datapath.last_seq(id)) else { continue };
            if entry.reserved < entry.ceiling && entry.reserved.saturating_sub(last) <= BLOCK / 2 {
                entry.requested = last.saturating_add(BLOCK).min(entry.ceiling);
                blocks.push((entry.account, entry.requested));
            }
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| !blocks.is_empty()) {
            // Nothing is being written, so there is room for a request, unless the thread has ended.
            self.is_writing = writer.requests.try_send(blocks).is_ok();
            if !self.is_writing {
                self.writer = None;
            }
        }
    }

    fn collect(&mut self, datapath: &mut Datapath) -> Option<Result<(), CountersError>> {
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

    /// Ends an orderly run: gives back what was not used.
    pub fn close(mut self, datapath: &mut Datapath) -> Result<(), CountersError> {
        let Some(Writer { thread, requests, .. }) = self.writer.take() else { return Ok(()) };
        drop(requests);
        let Ok(mut file) = thread.join() else { return Ok(()) };
        let used = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.account, entry.id.and_then(|id| datapath.last_seq(id))?)));
        file.settle(&used.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_datapath::Config;

    #[test]
    fn the_end_of_the_thread_that_writes_is_noticed() {
        let scratch = casemate_scratch::Scratch::new("ledger");
        let file = CounterFile::open(&scratch.file("counters")).unwrap();
        let (requests, _) = sync_channel(1);
        let (_, replies) = sync_channel(1);
        let writer = Writer { thread: thread::spawn(|| file), requests, replies };
        let mut ledger =
            Ledger { entries: Vec::new(), writer: Some(writer), is_writing: true, since_look: 0 };
        assert!(!ledger.has_ended());
        ledger.keep(&mut Datapath::new(Config::server(1)), 1, false);
        assert!(ledger.has_ended());
    }
}
