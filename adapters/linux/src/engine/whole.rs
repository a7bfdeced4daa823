//! Packets for this host leave the engine whole (RFC 4301 section 7.4).
//!
//! The kernel reassembles fragments by addresses, identification and protocol alone. A first fragment that
//! came through an SA would wait there for the later ones, and take cleartext from the wire that claims to be
//! one of them. So fragments for this host that came through SAs are put together here, and the guard drops
//! what would still reach the kernel's reassembly (`guard.rs`). Fragments that are forwarded stay as they
//! are: the guard lets no cleartext one follow them.

use super::common::Common;
use super::destination;
use casemate_datapath::DropReason;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_sa::{Instant, Limits};
use casemate_wire::ip::{Ipv6, proto};

/// The datagrams for this host of which some fragments came through SAs.
pub(super) struct Whole(Reassembler);

impl Whole {
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Reassembler::new(limits.reassemblies, limits.reassembly_bytes))
    }

    /// Delivers the packet that `fragment` completes, if it does.
    #[cold]
    pub(super) fn take(&mut self, fragment: &[u8], common: &Common, now: Instant) {
        match self.0.push(now, fragment, Sender::Known) {
            Reassembly::Held => {}
            Reassembly::Dropped(error) => common.note_drop(now, error.drop_reason(), fragment),
            Reassembly::Whole(packet) => {
                if common.tun.deliver(packet.data()).is_err() {
                    common.note_drop(now, DropReason::SendFailed, packet.data());
                }
            }
        }
        for _ in 0..self.0.take_evicted() {
            common.note_drop(now, DropReason::FragmentTableFull, &[]);
        }
    }

    /// Gives up datagrams whose fragments did not come in time; returns how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        self.0.expire(now)
    }
}

/// Whether a packet is a fragment for this host.
#[inline]
pub(super) fn is_fragment_for_us(packet: &[u8], common: &Common) -> bool {
    is_fragment(packet) && destination(packet).is_some_and(|dst| common.is_host(dst))
}

/// Whether a packet is a fragment, an atomic one (RFC 6946) not counted.
#[inline]
fn is_fragment(packet: &[u8]) -> bool {
    match packet {
        // The more-fragments bit and the offset.
        [first, _, _, _, _, _, flags, offset, ..] if first >> 4 == 4 => flags & 0x3f | offset != 0,
        [first, _, _, _, _, _, next, ..] if first >> 4 == 6 => {
            matches!(*next, proto::FRAGMENT | proto::HOP_BY_HOP | proto::ROUTING | proto::DEST_OPTS)
                && has_fragment_header(packet)
        }
        _ => false,
    }
}

#[cold]
fn has_fragment_header(packet: &[u8]) -> bool {
    let chain = Ipv6::parse(packet).and_then(|ip| ip.chain());
    chain.is_ok_and(|chain| chain.fragment.is_some_and(|fragment| !fragment.is_atomic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_known_by_their_headers() {
        let v4 = |flags: u16| {
            let mut packet = [0; 28];
            (packet[0], packet[3]) = (0x45, 28);
            packet[6..8].copy_from_slice(&flags.to_be_bytes());
            is_fragment(&packet)
        };
        // More fragments; an offset, in either byte; don't fragment.
        let shown = [0, 0x2000, 1, 0x100, 0x4000].map(v4);
        assert_eq!(shown, [false, true, true, true, false]);
        let v6 = |next: u8, offset_and_more: u16| {
            let mut packet = [0; 56];
            (packet[0], packet[5], packet[6]) = (0x60, 16, next);
            packet[40] = proto::UDP;
            packet[42..44].copy_from_slice(&offset_and_more.to_be_bytes());
            is_fragment(&packet)
        };
        assert!(v6(proto::FRAGMENT, 1) && v6(proto::FRAGMENT, 8));
        assert!(!v6(proto::FRAGMENT, 0) && !v6(proto::UDP, 1));
        assert!(!is_fragment(&[]) && !is_fragment(&[0x45; 7]) && !is_fragment(&[0x60; 6]));
    }
}
