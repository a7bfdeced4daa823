//! The self-test: short versions of the host's tests, run on another processor architecture.

use crate::Board;
use crate::peers::{AuthMethod, Certificates, EstablishedSa, MOON, PeerPair, SUN};
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_crypto::{Providers, SecretBytes};
use casemate_datapath::fragment::Fragments;
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{DropReason, Inbound};
use casemate_ike::config::IdPattern;
use casemate_ike::{Credentials, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{DfPolicy, Limits, Mode, Transform};
use casemate_test_support::hosts::{Ends, Link, LinkSpec, Received, packets, suites};
use casemate_vectors::{BRIEF, brief};

/// A part of the self-test. Returns the number of test cases, or `None` on a failure.
type Part = fn(&Board) -> Option<usize>;

/// Runs all parts and reports the number of test cases of each. Returns true if all passed; a failed
/// assertion may also panic.
pub fn run(board: &Board) -> bool {
    let parts: [(&str, Part); 3] = [("algorithms", algorithms), ("packets", packet_tests), ("IKE", ike)];
    for (name, part) in parts {
        let Some(tried) = part(board) else {
            board.report("FAILED:", 1);
            (board.print)(name);
            (board.print)("\n");
            return false;
        };
        board.report(name, tried);
    }
    board.report("heap", (board.heap)());
    board.report("stack", (board.stack)());
    (board.print)("self-test passed\n");
    true
}

// Known answer tests: the vectors of `casemate-vectors` that a small processor can run, for all algorithms.

/// Returns the number of test cases. All must run and pass.
fn algorithms(board: &Board) -> Option<usize> {
    let report = brief(&RUSTCRYPTO);
    for failure in report.failures() {
        (board.print)(failure);
        (board.print)("\n");
    }
    for family in report.families.iter().filter(|family| family.run > 0) {
        board.report(&family.name, family.run);
    }
    report.assert(BRIEF);
    Some(report.run())
}

// ESP and AH between two hosts in memory, in both modes and with both IP versions. Packets arrive
// unchanged, once, whole or in fragments, and modified packets are dropped.

const LENGTHS: [usize; 5] = [0, 1, 15, 64, 1400];

/// Returns the number of packets tested.
fn packet_tests(_: &Board) -> Option<usize> {
    let tunnels = [(4, 4), (4, 6), (6, 4), (6, 6)].map(|(outer, inner)| Ends::tunnel(outer, inner));
    let tunnels = tunnels.map(|ends| (Mode::Tunnel, ends));
    let transports = [4, 6].map(|version| (Mode::Transport, Ends::transport(version)));
    let mut tried = 0_usize;
    for (mode, ends) in tunnels.into_iter().chain(transports) {
        for transform in transforms() {
            let limits = Limits { sas: 4, flows: 4, ..Limits::DEVICE };
            let mut spec = LinkSpec::single(ends, mode, transform);
            // The DF bit is cleared so that tunnel packets can be fragmented, too.
            (spec.limits, spec.esn, spec.outer.df) = (limits, true, DfPolicy::Clear);
            tried = tried.checked_add(test_link(&mut spec.build())?)?;
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

/// Returns the number of packets that were delivered or correctly dropped.
fn test_link(link: &mut Link) -> Option<usize> {
    let (from, to) = link.ends.inner;
    let mut tried = 0_usize;
    for len in LENGTHS {
        let clear = packets::udp(from, to, (40_000, 53), &vec![0x5A; len], false);
        let wire = link.a.send(&clear).wire();
        // Flip a bit of the last byte, which belongs to the ICV or, with AH, to the payload.
        let mut forged = wire.clone();
        *forged.last_mut()? ^= 1;
        is_dropped(link, &forged, DropReason::IcvMismatch)?;
        let received = if len == 1400 {
            link.b.receive(&fragment_and_reassemble(&wire)?)
        } else {
            link.b.receive(&wire)
        };
        (received == Received::Packet(clear)).then_some(())?;
        is_dropped(link, &wire, DropReason::Replay)?;
        tried = tried.checked_add(3)?;
    }
    Some(tried)
}

fn is_dropped(link: &mut Link, packet: &[u8], reason: DropReason) -> Option<()> {
    (link.b.receive(packet) == Received::Other(Inbound::Drop(reason))).then_some(())
}

/// Fragments a packet and reassembles the fragments in reverse order.
fn fragment_and_reassemble(wire: &[u8]) -> Option<Vec<u8>> {
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

// IKEv2 between two endpoints: authentication with a key and with certificates, rekeying, and packets
// over the SAs.

const PROVIDERS: Providers<'static> = Providers(&[&RUSTCRYPTO]);

/// Returns the number of successful exchanges.
fn ike(_: &Board) -> Option<usize> {
    let key = |bytes: &[u8]| SharedKeys::new().with(IdPattern::Any, SecretBytes::new(bytes));
    let (keys, others) = (key(b"a key that both have"), key(b"a key that one has!!"));
    let with_key = session(&keys, &keys, AuthMethod::SharedKey)?;
    // A peer with a wrong key is refused.
    is_refused(&keys, &others, AuthMethod::SharedKey)?;
    let (moon, sun) = (Certificates::load(MOON, &PROVIDERS)?, Certificates::load(SUN, &PROVIDERS)?);
    let with_certificates = session(&moon, &sun, AuthMethod::Certificate)?;
    // So is a peer that shows the certificate of another peer.
    is_refused(&moon, &moon, AuthMethod::Certificate)?;
    with_key.checked_add(with_certificates)
}

fn session(left: &dyn Credentials, right: &dyn Credentials, auth: AuthMethod) -> Option<usize> {
    let mut pair = PeerPair::new(left, right, &PROVIDERS);
    pair.configure(1, auth, |_| {})?;
    pair.initiate(0, true)?;
    pair.exchange_packets()?;
    let before = pair.established()[0].first()?.clone();
    pair.rekey_child(*before.children.first()?)?;
    pair.exchange_packets()?;
    pair.rekey(before.ike)?;
    pair.exchange_packets()?;
    let [left, right] = pair.established();
    let one_child = |sas: &[EstablishedSa]| matches!(sas, [sa] if sa.children.len() == 1);
    let after = left.first()?;
    let replaced = after.ike != before.ike && after.children != before.children;
    (one_child(&left) && one_child(&right) && replaced).then_some(3)
}

fn is_refused(left: &dyn Credentials, right: &dyn Credentials, auth: AuthMethod) -> Option<()> {
    let mut pair = PeerPair::new(left, right, &PROVIDERS);
    pair.configure(1, auth, |_| {})?;
    pair.initiate(0, true)?;
    pair.established().iter().all(|sas| sas.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn the_self_test_passes_on_the_host() {
        let board = Board { print: |text| std::print!("{text}"), heap: || 0, stack: || 0 };
        assert!(run(&board));
    }
}
