//! The nodes of a cell, as a node sees them, and those that administrators have drained.
//!
//! A drained node does not become the owner. The entry has no lease, so that a restart of the node changes
//! nothing.

use crate::StoreKeys;
use crate::keeper::Requests;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_store::{
    Completion, Entry, MAX_RANGE, Outcome, Range, Request, RequestId, Store, Transaction, Write,
};
use core::time::Duration;

/// Interval in which a node reads the others.
const INTERVAL: Duration = Duration::from_secs(2);

/// A node of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name, as in the configuration of the node.
    pub name: Vec<u8>,
    /// Whether it runs: its lease has not ended.
    pub is_running: bool,
    /// Whether it does not become the owner.
    pub is_drained: bool,
}

/// The nodes of a cell.
#[derive(Debug, Default)]
pub(crate) struct Members {
    running: BTreeSet<Vec<u8>>,
    drained: BTreeSet<Vec<u8>>,
    /// Requests for the running and for the drained nodes.
    requests: [Option<RequestId>; 2],
    next_at: Instant,
}

impl Members {
    /// Reads the nodes if that is due.
    pub(crate) fn poll<S: Store>(&mut self, keys: &StoreKeys, now: Instant, requests: &mut Requests<S>) {
        if now < self.next_at || self.requests.iter().any(Option::is_some) {
            return;
        }
        self.next_at = now.after(INTERVAL);
        self.requests = [keys.nodes(), keys.all_drained()].map(|prefix| {
            let range = Range { prefix, after: None, limit: MAX_RANGE };
            requests.submit(Request::Read(range))
        });
    }

    /// Takes the end of a request. Returns it if it is another one.
    pub(crate) fn completed(&mut self, keys: &StoreKeys, completion: Completion) -> Option<Completion> {
        let Completion { id, outcome } = &completion;
        let is_this = |request: &Option<RequestId>| *request == Some(*id);
        let Some(which) = self.requests.iter().position(is_this) else { return Some(completion) };
        self.requests.get_mut(which).map(Option::take);
        if let Ok(Outcome::Entries { entries, .. }) = outcome {
            match which {
                0 => self.running = names(entries, &keys.nodes()),
                _ => self.drained = names(entries, &keys.all_drained()),
            }
        }
        None
    }

    pub(crate) fn all(&self) -> Vec<Member> {
        let names: BTreeSet<&Vec<u8>> = self.running.iter().chain(&self.drained).collect();
        let member = |name: &Vec<u8>| Member {
            name: name.clone(),
            is_running: self.running.contains(name),
            is_drained: self.drained.contains(name),
        };
        names.into_iter().map(member).collect()
    }
}

/// The names in the keys of entries.
fn names(entries: &[Entry], prefix: &[u8]) -> BTreeSet<Vec<u8>> {
    entries.iter().filter_map(|entry| entry.key.strip_prefix(prefix)).map(<[u8]>::to_vec).collect()
}

/// A request that drains a node, or lets it become the owner again.
pub(crate) fn drain(keys: &StoreKeys, node: &[u8], is_drained: bool) -> Request {
    let key = keys.drained(node);
    let write = match is_drained {
        true => Write::Put { key, value: node.to_vec(), lease: None },
        false => Write::Delete(key),
    };
    Request::Commit(Transaction { comparisons: Vec::new(), writes: [write].into() })
}
