//! The end of an ownership: what has changed is written, and then the numbers that were used.

use crate::handover::HandoverStep;
use crate::keeper::Keeper;
use crate::records::KeptRecords;
use casemate::{Context, Endpoint};
use casemate_store::{Request, Revision, Store};

/// Whether the ownership ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    /// The slot is handed over to another node.
    HandingOver(HandoverStep),
    /// When the last numbers of a slot that was given up at this revision are written.
    LastNumbers(Revision),
    /// When all changes and the numbers that were used are written.
    Writing,
    /// When the write in progress is completed, with the numbers that were used.
    WritingNumbers,
    /// The store was told to end the lease.
    Revoked,
}

impl<S: Store> Keeper<S> {
    /// Writes the changes and the numbers that were used, and ends the ownership. No packet may be sent or
    /// received any more. The caller calls [`poll`](Self::poll) until [`is_idle`](Self::is_idle).
    ///
    /// Without an answer to the last write, nothing more is written: the next owner begins behind the
    /// reserves, as after a crash.
    pub fn finish(&mut self, endpoint: &mut Endpoint, unix_time: u64, context: &mut Context<'_>) {
        match self.ending {
            Ending::HandingOver(HandoverStep::Released(at) | HandoverStep::Ready(at)) => {
                self.finish_handover(at, endpoint, context);
            }
            // Without an answer it is not known whether the slot is given up.
            Ending::HandingOver(HandoverStep::Releasing(_) | HandoverStep::Failed) => self.revoke(),
            _ => {
                self.note_changes(endpoint, context.now);
                self.end(endpoint, unix_time, context);
            }
        }
    }

    /// Deletes all records and then their data keys, and ends the ownership, as [`finish`](Self::finish).
    pub fn clear(&mut self, endpoint: &mut Endpoint, unix_time: u64, context: &mut Context<'_>) {
        self.note_changes(endpoint, context.now);
        self.data_keys.retire(context.now);
        let KeptRecords { by_spi, .. } = core::mem::take(&mut self.records);
        by_spi.into_keys().for_each(|spi| self.outbox.add([spi]));
        self.end(endpoint, unix_time, context);
    }

    /// Ends the ownership when everything is written.
    fn end(&mut self, endpoint: &mut Endpoint, unix_time: u64, context: &mut Context<'_>) {
        self.ending = Ending::Writing;
        self.retry_at = None;
        if self.current.is_some() {
            return;
        }
        if !self.may_write() {
            return self.revoke();
        }
        // Nothing is released: messages of this owner do not matter any more.
        let _ = self.begin_write(endpoint, unix_time, context);
    }

    /// Ends the lease, and with it the ownership.
    pub(crate) fn revoke(&mut self) {
        self.ending = Ending::Revoked;
        if let Some(lease) = self.lease() {
            self.revocation = self.requests.submit(Request::Revoke(lease));
        }
    }
}
