//! The nodes of a cell, as a node sees them, and those that administrators have drained.
//!
//! A drained node does not become the owner. The entry has no lease, so that a restart of the node changes
//! nothing.

use crate::keeper::Requests;
use crate::registration::{self, ForwardAddress};
use crate::{StoreKeys, read};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_store::{Completion, Entry, Outcome, Request, RequestId, Store, StoreError, Transaction, Write};
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
    /// Where it receives packets that other nodes forward, if it does and runs.
    pub forward: Option<ForwardAddress>,
}

/// The nodes of a cell.
#[derive(Debug, Default)]
pub(crate) struct Members {
    running: BTreeMap<Vec<u8>, Option<ForwardAddress>>,
    drained: BTreeSet<Vec<u8>>,
    /// Requests for the running and for the drained nodes.
    requests: [Option<RequestId>; 2],
    next_at: Instant,
    /// The request that drains this node, or lets it own the SAs again.
    change: Option<(RequestId, bool)>,
    /// The end of that request: whether the node is drained now.
    changed: Option<Result<bool, StoreError>>,
    /// The last known owner other than this node, and where it receives packets.
    target: Option<(Vec<u8>, Option<ForwardAddress>)>,
}

impl Members {
    /// Reads the nodes if that is due.
    pub(crate) fn poll<S: Store>(&mut self, keys: &StoreKeys, now: Instant, requests: &mut Requests<S>) {
        if now < self.next_at || self.requests.iter().any(Option::is_some) {
            return;
        }
        self.next_at = now.after(INTERVAL);
        self.requests = [keys.nodes(), keys.all_drained()].map(|prefix| requests.submit(read(prefix, &[])));
    }

    /// Takes the end of a request. Returns it if it is another one.
    pub(crate) fn completed(&mut self, keys: &StoreKeys, completion: Completion) -> Option<Completion> {
        let Completion { id, outcome } = &completion;
        if let Some((_, is_drained)) = self.change.take_if(|(change, _)| change == id) {
            self.changed = Some(outcome.as_ref().map(|_| is_drained).map_err(|error| *error));
            return None;
        }
        let is_this = |request: &Option<RequestId>| *request == Some(*id);
        let Some(which) = self.requests.iter().position(is_this) else { return Some(completion) };
        self.requests.get_mut(which).map(Option::take);
        if let Ok(Outcome::Entries { entries, .. }) = outcome {
            match which {
                0 => self.running = registered(entries, &keys.nodes()),
                _ => self.drained = names(entries, &keys.all_drained()),
            }
        }
        None
    }

    /// Drains this node, or lets it own the SAs again. Returns whether the request is submitted: there is one
    /// at a time.
    pub(crate) fn drain<S: Store>(
        &mut self,
        keys: &StoreKeys,
        node: &[u8],
        is_drained: bool,
        requests: &mut Requests<S>,
    ) -> bool {
        if self.change.is_some() {
            return false;
        }
        self.change = requests.submit(drain(keys, node, is_drained)).map(|id| (id, is_drained));
        self.change.is_some()
    }

    /// Takes the end of the last such request: whether the node is drained now.
    pub(crate) const fn take_changed(&mut self) -> Option<Result<bool, StoreError>> {
        self.changed.take()
    }

    pub(crate) fn all(&self) -> Vec<Member> {
        let names: BTreeSet<&Vec<u8>> = self.running.keys().chain(&self.drained).collect();
        let member = |name: &Vec<u8>| Member {
            name: name.clone(),
            is_running: self.running.contains_key(name),
            is_drained: self.drained.contains(name),
            forward: self.running.get(name).copied().flatten(),
        };
        names.into_iter().map(member).collect()
    }

    /// Where the owner receives packets. `owner` is the node that owns the SAs; without one, and while the
    /// owner is not among the nodes, the last known address stays.
    pub(crate) fn forward_target(&mut self, owner: Option<&[u8]>) -> Option<ForwardAddress> {
        if let Some(owner) = owner {
            match (self.running.get(owner), &self.target) {
                (Some(forward), _) => self.target = Some((owner.to_vec(), *forward)),
                (None, Some((known, _))) if known == owner => {}
                (None, _) => self.target = None,
            }
        }
        self.target.as_ref().and_then(|(_, forward)| *forward)
    }
}

/// The nodes of entries, and where they receive packets.
fn registered(entries: &[Entry], prefix: &[u8]) -> BTreeMap<Vec<u8>, Option<ForwardAddress>> {
    let node = |Entry { key, value, .. }: &Entry| {
        Some((key.strip_prefix(prefix)?.to_vec(), registration::forward_address(value)))
    };
    entries.iter().filter_map(node).collect()
}

/// The names in the keys of entries.
fn names(entries: &[Entry], prefix: &[u8]) -> BTreeSet<Vec<u8>> {
    entries.iter().filter_map(|entry| entry.key.strip_prefix(prefix)).map(<[u8]>::to_vec).collect()
}

/// A request that drains a node, or lets it become the owner again.
fn drain(keys: &StoreKeys, node: &[u8], is_drained: bool) -> Request {
    let key = keys.drained(node);
    let write = match is_drained {
        true => Write::Put { key, value: node.to_vec(), lease: None },
        false => Write::Delete(key),
    };
    Request::Commit(Transaction { comparisons: Vec::new(), writes: [write].into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::RunId;
    use alloc::format;
    use casemate_test_support::TestRng;

    fn forward(port: u16) -> ForwardAddress {
        let address = format!("10.0.0.1:{port}").parse().unwrap();
        ForwardAddress { address, run: RunId::random(&mut TestRng::new(port.into())) }
    }

    #[test]
    fn the_last_known_owner_is_the_target_until_there_is_another_one() {
        let mut members = Members::default();
        assert_eq!(members.forward_target(Some(b"gw1")), None, "not among the nodes yet");
        members.running = [(b"gw1".to_vec(), Some(forward(1))), (b"gw2".to_vec(), None)].into();
        assert_eq!(members.forward_target(None), None);
        assert_eq!(members.forward_target(Some(b"gw1")), Some(forward(1)));
        // The slot has no owner, or the lease of the owner has ended and no other node owns the slot.
        assert_eq!(members.forward_target(None), Some(forward(1)));
        members.running.remove(&b"gw1"[..]);
        assert_eq!(members.forward_target(Some(b"gw1")), Some(forward(1)));
        // Another owner, which receives nothing.
        assert_eq!(members.forward_target(Some(b"gw2")), None);
        members.running.insert(b"gw1".to_vec(), Some(forward(3)));
        assert_eq!(members.forward_target(Some(b"gw1")), Some(forward(3)), "another run");
        assert_eq!(members.forward_target(Some(b"gw3")), None, "unknown");
        assert_eq!(members.forward_target(None), None);
    }
}
