//! Accounting-Requests that wait until the server has answered earlier ones.
//!
//! A server has 256 identifiers for requests of one source port (RFC 2866 section 3), and a gateway that ends
//! records the end of all its sessions at once.

use super::RequestId;
use crate::RadiusFault;
use crate::accounting::{AccountingRequest, AccountingStatus};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of records that wait: a Start and a Stop of each of 65,536 IKE SAs.
const MAX_RECORDS: usize = 131_072;
/// Maximum number of bytes of the records that wait.
const MAX_BYTES: usize = 64 << 20;

/// A record, and the servers that were asked without an answer.
#[derive(Debug)]
pub(super) struct WaitingRecord {
    pub(super) id: RequestId,
    pub(super) request: Box<AccountingRequest>,
    pub(super) asked: Vec<usize>,
}

/// The records that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct WaitingRecords {
    records: VecDeque<WaitingRecord>,
    bytes: usize,
}

impl WaitingRecords {
    /// Adds a record behind the others. Interim updates get half of the room, because later ones contain all
    /// that earlier ones do.
    pub(super) fn add(&mut self, id: RequestId, request: Box<AccountingRequest>) -> Result<(), RadiusFault> {
        let (records, bytes) = match request.status {
            AccountingStatus::Interim => (MAX_RECORDS / 2, MAX_BYTES / 2),
            AccountingStatus::Start | AccountingStatus::Stop(_) => (MAX_RECORDS, MAX_BYTES),
        };
        let size = self.bytes.saturating_add(request.size());
        if self.records.len() >= records || size > bytes {
            return Err(RadiusFault::Full);
        }
        self.bytes = size;
        self.records.push_back(WaitingRecord { id, request, asked: Vec::new() });
        Ok(())
    }

    /// Puts records back that a server has not answered, before the others. They were counted once, and are
    /// as many as can be outstanding.
    pub(super) fn put_back(&mut self, records: Vec<WaitingRecord>) {
        for record in records.into_iter().rev() {
            self.bytes = self.bytes.saturating_add(record.request.size());
            self.records.push_front(record);
        }
    }

    /// The servers that have not answered the first record; `None` if no record waits.
    pub(super) fn first_asked(&self) -> Option<&[usize]> {
        self.records.front().map(|record| &*record.asked)
    }

    /// Takes the first record.
    pub(super) fn take_first(&mut self) -> Option<WaitingRecord> {
        let record = self.records.pop_front()?;
        self.bytes = self.bytes.saturating_sub(record.request.size());
        Some(record)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}
