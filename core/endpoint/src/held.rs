//! Packets that wait for their Child SA: those that have triggered a trap, and those that follow them until
//! the SA exists.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use casemate_sa::{Instant, SpdId};
use casemate_wire::ip::destination;
use core::net::IpAddr;
use core::time::Duration;

/// Packets at once.
const MAX_PACKETS: usize = 128;
/// Packets to one destination, so that one flow does not take the places of all others.
const MAX_PER_DESTINATION: usize = 16;
/// Bytes of all packets.
const MAX_BYTES: usize = 128 << 10;
/// Time for which a packet is kept. A negotiation with a few lost messages fits; later, most senders have
/// repeated or given up what they sent.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Copies of packets with the verdict [`Hold`](casemate_datapath::Outbound::Hold), in order.
///
/// The adapter adds them, and submits them to the data path again when an SA is added. A packet that still
/// has no SA is added again with its former deadline.
#[derive(Debug, Default)]
pub struct HeldPackets {
    packets: VecDeque<HeldPacket>,
    bytes: usize,
}

/// A packet that waits.
#[derive(Debug)]
pub struct HeldPacket {
    spd: SpdId,
    bytes: Box<[u8]>,
    destination: Option<IpAddr>,
    until: Instant,
}

impl HeldPacket {
    /// The SPD whose policies apply to it.
    pub const fn spd(&self) -> SpdId {
        self.spd
    }

    /// The packet as it was submitted to the data path.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl HeldPackets {
    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Adds a copy of a packet. Returns whether there is room; the caller drops the packet otherwise.
    pub fn hold(&mut self, spd: SpdId, packet: &[u8], now: Instant) -> bool {
        let destination = destination(packet);
        let to_same = self.packets.iter().filter(|held| held.destination == destination).count();
        let has_room = self.packets.len() < MAX_PACKETS
            && to_same < MAX_PER_DESTINATION
            && self.bytes.saturating_add(packet.len()) <= MAX_BYTES;
        if has_room {
            self.push(HeldPacket { spd, bytes: packet.into(), destination, until: now.after(MAX_WAIT) });
        }
        has_room
    }

    /// Takes all packets, the oldest first.
    pub fn take_all(&mut self) -> VecDeque<HeldPacket> {
        self.bytes = 0;
        core::mem::take(&mut self.packets)
    }

    /// Adds a packet again that was taken and still has no SA. The limits do not apply: it had its place.
    pub fn push(&mut self, packet: HeldPacket) {
        self.bytes = self.bytes.saturating_add(packet.bytes.len());
        self.packets.push_back(packet);
    }

    /// Takes a packet that has waited too long. The caller drops it.
    pub fn take_expired(&mut self, now: Instant) -> Option<HeldPacket> {
        let at = self.packets.iter().position(|held| held.until <= now)?;
        let expired = self.packets.remove(at)?;
        self.bytes = self.bytes.saturating_sub(expired.bytes.len());
        Some(expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// An IPv4 packet of this length to 10.0.0.`last`, marked with a number.
    fn packet(last: u8, len: usize, mark: u8) -> Vec<u8> {
        let mut bytes = Vec::from([0x45, mark, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 17, 0, 0]);
        bytes.extend([10, 1, 0, 1, 10, 0, 0, last]);
        bytes.resize(len, 0);
        bytes
    }

    const NOW: Instant = Instant::from_secs(100);

    #[test]
    fn packets_keep_their_order_and_expire() {
        let mut held = HeldPackets::default();
        for mark in 0..3 {
            assert!(held.hold(
                SpdId::MAIN,
                &packet(1, 40, mark),
                NOW.after(Duration::from_secs(mark.into()))
            ));
        }
        let mut taken = held.take_all();
        assert!(held.is_empty() && held.take_expired(Instant::from_secs(1_000)).is_none());
        assert_eq!(taken.iter().map(|held| held.bytes()[1]).collect::<Vec<_>>(), [0, 1, 2]);
        // The second one found its SA.
        taken.remove(1);
        taken.into_iter().for_each(|packet| held.push(packet));
        let at = NOW.after(MAX_WAIT);
        assert_eq!(held.take_expired(at).map(|held| held.bytes()[1]), Some(0));
        assert!(held.take_expired(at).is_none());
        assert!(held.take_expired(at.after(Duration::from_secs(2))).is_some() && held.is_empty());
        assert_eq!(held.bytes, 0);
    }

    #[test]
    fn one_destination_leaves_room_for_others_and_memory_is_bounded() {
        let mut held = HeldPackets::default();
        let kept = (0..100).filter(|_| held.hold(SpdId::MAIN, &packet(1, 40, 0), NOW)).count();
        assert_eq!(kept, MAX_PER_DESTINATION);
        let kept = (2..=255).filter(|last| held.hold(SpdId::MAIN, &packet(*last, 40, 0), NOW)).count();
        assert_eq!(kept, MAX_PACKETS - MAX_PER_DESTINATION);
        let mut held = HeldPackets::default();
        let kept = (0..200).filter(|last| held.hold(SpdId::MAIN, &packet(*last, 9_000, 0), NOW)).count();
        assert_eq!(kept, MAX_BYTES / 9_000);
    }
}
