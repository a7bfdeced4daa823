//! ESP and AH between two hosts in memory, in both modes and with both IP versions: packets arrive as they were, once, whole or
//! in fragments, and not at all if a bit is another one.

use crate::Board;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{DropReason, Inbound};
use casemate_datapath_tests::{Ends, Link, LinkSpec, Received, packets, suites};
use casemate_sa::{DfPolicy, Limits, Mode, Transform};

const LENGTHS: [usize; 5] = [0, 1, 15, 64, 1400];

/// The number of packets.
pub(super) fn run(_: &Board) -> Option<usize> {
    let tunnels = [(4, 4), (4, 6), (6, 4), (6, 6)].map(|(outer, inner)| Ends::tunnel(outer, inner));
    let tunnels = tunnels.map(|ends| (Mode::Tunnel, ends));
    let transports = [4, 6].map(|version| (Mode::Transport, Ends::transport(version)));
    let mut tried = 0_usize;
    for (mode, ends) in tunnels.into_iter().chain(transports) {
        for transform in transforms() {
            let limits = Limits { sas: 4, flows: 4, ..Limits::DEVICE };
            let mut spec = LinkSpec::single(ends, mode, transform);
            // So that what is in a tunnel can be cut, too.
            (spec.limits, spec.esn, spec.outer.df) = (limits, true, DfPolicy::Clear);
            tried = tried.checked_add(exercise(&mut spec.build())?)?;
        }
    }
    Some(tried)
}

fn transforms() -> Vec<Transform> {
    let separate = |cipher, kind| EspSuite::Separate(cipher, MacAlg::standard(kind));
    let bits = AesBits::B256;
    vec![
        suites::esp(EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }), 1),
        suites::esp(EspSuite::Combined(AeadAlg::AesCcm { bits, icv: 8 }), 2),
        suites::esp(EspSuite::Combined(AeadAlg::ChaCha20Poly1305), 3),
        suites::esp(separate(CipherAlg::AesCbc(bits), MacKind::HmacSha256), 4),
        suites::esp(separate(CipherAlg::AesCtr(bits), MacKind::AesXcbc), 5),
        suites::esp(separate(CipherAlg::Null, MacKind::AesGmac(bits)), 6),
        suites::ah(MacAlg::standard(MacKind::HmacSha1), 7),
        suites::ah(MacAlg::standard(MacKind::AesCmac), 8),
    ]
}

/// How many packets crossed, or were rightly refused.
fn exercise(link: &mut Link) -> Option<usize> {
    let (from, to) = link.ends.inner;
    let mut tried = 0_usize;
    for len in LENGTHS {
        let clear = packets::udp(from, to, (40_000, 53), &vec![0x5A; len], false);
        let wire = link.a.send(&clear).wire();
        // A bit of the last byte, which is the ICV's or, with AH, the payload's.
        let mut forged = wire.clone();
        *forged.last_mut()? ^= 1;
        refuses(link, &forged, DropReason::IcvMismatch)?;
        let received =
            if len == 1400 { link.b.receive(&cut_and_joined(&wire)?) } else { link.b.receive(&wire) };
        (received == Received::Packet(clear)).then_some(())?;
        refuses(link, &wire, DropReason::Replay)?;
        tried = tried.checked_add(3)?;
    }
    Some(tried)
}

fn refuses(link: &mut Link, packet: &[u8], reason: DropReason) -> Option<()> {
    (link.b.receive(packet) == Received::Other(Inbound::Drop(reason))).then_some(())
}

/// A packet that was cut into fragments, which come in the wrong order.
fn cut_and_joined(wire: &[u8]) -> Option<Vec<u8>> {
    const MTU: usize = 1280;
    let mut fragments = Fragments::new(wire, MTU, 7).ok()?;
    let mut pieces = Vec::new();
    let mut piece = [0; MTU];
    while let Some(len) = fragments.next(&mut piece) {
        pieces.push(piece.get(..len)?.to_vec());
    }
    (pieces.len() > 1).then_some(())?;
    let mut reassembler = Reassembler::new(1, 4_096);
    let now = casemate_sa::Instant::from_secs(1);
    pieces.iter().rev().find_map(|piece| match reassembler.push(now, piece, Sender::Known) {
        Reassembly::Whole(packet) => Some(packet.data().to_vec()),
        Reassembly::Held | Reassembly::Dropped(_) => None,
    })
}
