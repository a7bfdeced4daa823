//! The contexts of a compressor: which one belongs to a flow, and which one a new flow gets.
//!
//! A look-up takes the same time for any number of contexts, unless flows are chosen so that their hashes
//! collide.

use super::flow::Flow;
use crate::headers::{Headers, Ip, Transport};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Packets of other flows after which a flow may lose its context to a new one. Without it, more flows than
/// contexts would send nothing but IR headers.
const MIN_IDLE: u64 = 256;

/// Contexts of which a new flow gets the one that is idle for the longest time.
const CANDIDATES: usize = 16;

/// The contexts of a channel.
#[derive(Debug)]
pub(super) struct FlowTable {
    /// By CID. None is ever removed.
    entries: Vec<Entry>,
    max_contexts: usize,
    /// The first entry with each value of the low bits of the hash.
    buckets: Vec<Option<u16>>,
    /// Number of the next candidates, in groups.
    next_group: usize,
    /// Start of the hash.
    seed: u16,
}

#[derive(Debug)]
struct Entry {
    flow: Box<Flow>,
    hash: u32,
    /// CID of the next entry of the same bucket.
    next: Option<u16>,
    /// Number of the last packet.
    last_used: u64,
}

impl FlowTable {
    /// Makes a table without contexts, with room for those from 0 to `max_cid`.
    pub(super) fn new(max_cid: u16, seed: u16) -> Self {
        let max_contexts = usize::from(max_cid).saturating_add(1);
        let buckets = core::iter::repeat_n(None, max_contexts.next_power_of_two()).collect();
        Self { entries: Vec::new(), max_contexts, buckets, next_group: 0, seed }
    }

    /// Number of contexts in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get_mut(&mut self, cid: u16) -> Option<&mut Flow> {
        self.entries.get_mut(usize::from(cid)).map(|entry| &mut *entry.flow)
    }

    /// The context for the packet with this number.
    pub(super) fn touch(&mut self, cid: u16, packet: u64) -> Option<&mut Flow> {
        let entry = self.entries.get_mut(usize::from(cid))?;
        entry.last_used = packet;
        Some(&mut entry.flow)
    }

    /// CID of the flow to which these headers belong.
    pub(super) fn find(&self, headers: &Headers) -> Option<u16> {
        let hash = self.hash(headers);
        let mut next = self.buckets.get(self.bucket(hash)).copied().flatten();
        while let Some(cid) = next {
            let entry = self.entries.get(usize::from(cid))?;
            if entry.hash == hash && entry.flow.matches(headers) {
                break;
            }
            next = entry.next;
        }
        next
    }

    /// Adds the context of a new flow, or replaces one that is idle. Returns its CID; `None` if all contexts
    /// are in use.
    pub(super) fn insert(&mut self, headers: &Headers, msn: u16, packet: u64) -> Option<u16> {
        let hash = self.hash(headers);
        let index = match self.entries.len() {
            len if len < self.max_contexts => {
                let flow = Box::new(Flow::new(headers, msn));
                self.entries.push(Entry { flow, hash, next: None, last_used: packet });
                len
            }
            _ => {
                let index = self.idle(packet)?;
                self.unlink(index);
                let entry = self.entries.get_mut(index)?;
                entry.flow.replace(headers, msn);
                (entry.hash, entry.last_used) = (hash, packet);
                index
            }
        };
        let cid = u16::try_from(index).ok()?;
        let bucket = self.bucket(hash);
        let first = self.buckets.get_mut(bucket)?.replace(cid);
        self.entries.get_mut(index)?.next = first;
        Some(cid)
    }

    /// Index of a context that is idle. Each call considers other ones in turn.
    fn idle(&mut self, packet: u64) -> Option<usize> {
        let groups = self.entries.len().div_ceil(CANDIDATES);
        let group = self.next_group;
        self.next_group = group.saturating_add(1).checked_rem(groups).unwrap_or(0);
        let candidates = self.entries.iter().enumerate().skip(group.saturating_mul(CANDIDATES));
        let (index, entry) = candidates.take(CANDIDATES).min_by_key(|(_, entry)| entry.last_used)?;
        (packet.saturating_sub(entry.last_used) >= MIN_IDLE).then_some(index)
    }

    /// Removes an entry from its bucket.
    fn unlink(&mut self, index: usize) {
        let Some(Entry { hash, next: behind, .. }) = self.entries.get(index) else { return };
        let (bucket, behind) = (self.bucket(*hash), *behind);
        let mut link = self.buckets.get_mut(bucket);
        while let Some(slot) = link {
            match slot.map(usize::from) {
                Some(cid) if cid != index => link = self.entries.get_mut(cid).map(|entry| &mut entry.next),
                _ => {
                    *slot = behind;
                    return;
                }
            }
        }
    }

    fn bucket(&self, hash: u32) -> usize {
        // The number of buckets is a power of two.
        hash as usize & self.buckets.len().saturating_sub(1)
    }

    /// Hash of a flow. The flow of RTP has that of its UDP flow, because it takes over the context.
    fn hash(&self, headers: &Headers) -> u32 {
        let mix = |hash: u32, word: u32| (hash ^ word).wrapping_mul(0x9e37_79b1).rotate_left(15);
        let start = u32::from(self.seed);
        let hash = match headers.innermost() {
            Some(Ip::V4(ip)) => {
                [ip.src, ip.dst].iter().fold(start, |hash, a| mix(hash, u32::from_ne_bytes(*a)))
            }
            Some(Ip::V6(ip)) => {
                let words = [&ip.src, &ip.dst].into_iter().flat_map(|addr| addr.as_chunks::<4>().0);
                words.fold(start, |hash, word| mix(hash, u32::from_ne_bytes(*word)))
            }
            None => start,
        };
        let hash = match &headers.transport {
            Transport::Udp(udp) | Transport::Rtp(udp, _) => {
                mix(hash, u32::from(udp.src_port) << 16 | u32::from(udp.dst_port))
            }
            Transport::Esp(esp) => mix(hash, esp.spi),
            Transport::None => mix(hash, headers.innermost().map_or(0, Ip::next).into()),
        };
        hash ^ hash >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{Ipv4, Udp};
    use casemate_test_support::TestRng;
    use std::collections::BTreeMap;

    fn headers(flow: u16) -> Headers {
        let mut headers = Headers::new();
        let (src, dst) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let ip = Ipv4 { tos: 0, ident: 0, dont_fragment: true, ttl: 64, protocol: 17, src, dst };
        headers.ips.push(Ip::V4(ip));
        headers.transport = Transport::Udp(Udp { src_port: flow, dst_port: 9, checksum: 0 });
        headers
    }

    /// What the table should contain: flow and last packet of each context.
    #[derive(Default)]
    struct Model(BTreeMap<u16, (u16, u64)>);

    impl Model {
        fn find(&self, flow: u16) -> Option<u16> {
            self.0.iter().find(|(_, (other, _))| *other == flow).map(|(cid, _)| *cid)
        }
    }

    #[test]
    fn flows_keep_their_contexts_until_they_are_idle() {
        for (max_cid, flows) in [(0, 3), (3, 9), (15, 30), (40, 60), (100, 300)] {
            let (mut table, mut model) = (FlowTable::new(max_cid, 77), Model::default());
            let (mut rng, mut replaced) = (TestRng::new(1), 0);
            for packet in 1..50_000 {
                // The flows that are active change slowly.
                let flow = (packet / 500 + rng.next_u64() % (u64::from(max_cid) + 2)) % flows;
                let (flow, headers) = (flow as u16, headers(flow as u16));
                let found = table.find(&headers);
                assert_eq!(found, model.find(flow), "packet {packet}");
                let Some(cid) = found.or_else(|| table.insert(&headers, 0, packet)) else {
                    assert!(model.0.len() > usize::from(max_cid), "there is a free context");
                    continue;
                };
                assert!(cid <= max_cid && table.touch(cid, packet).unwrap().matches(&headers));
                if let Some((former, last_used)) =
                    model.0.insert(cid, (flow, packet)).filter(|_| found.is_none())
                {
                    assert!(former != flow && packet - last_used >= MIN_IDLE, "packet {packet}");
                    replaced += 1;
                }
                assert_eq!(table.len(), model.0.len());
            }
            assert!(replaced > 20, "{max_cid}: {replaced}");
        }
    }
}
