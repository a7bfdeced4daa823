//! Any bytes from the network get a verdict, and every drop is counted. Nothing panics.

use casemate_crypto::{MacAlg, MacKind, Rng};
use casemate_datapath::{DropReason, Inbound};
use casemate_sa::Mode;
use casemate_test_support::TestRng;
use casemate_test_support::hosts::{Ends, LinkSpec, Received, Sent, packets, suites};
use proptest::prelude::*;

fn specs() -> Vec<LinkSpec> {
    let ah = suites::ah(MacAlg::standard(MacKind::HmacSha256), 1);
    let esp = |suite| suites::esp(suite, 1);
    let mut bundle = LinkSpec::single(Ends::transport(4), Mode::Transport, esp(suites::gcm()));
    bundle.layers.push((Mode::Transport, ah.clone()));
    let mut natt = LinkSpec::single(Ends::tunnel(4, 6), Mode::Tunnel, esp(suites::cbc_sha1()));
    natt.encap = true;
    vec![
        LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, esp(suites::gcm())),
        LinkSpec::single(Ends::transport(6), Mode::Transport, esp(suites::cbc_sha1())),
        LinkSpec::single(Ends::tunnel(6, 6), Mode::Tunnel, ah),
        bundle,
        natt,
    ]
}

/// Receives a packet and checks that a drop is counted exactly once.
fn receive(link: &mut casemate_test_support::hosts::Link, bytes: &[u8]) {
    let counted =
        |host: &casemate_test_support::hosts::Host| host.dp.drops().iter().map(|(_, n)| n).sum::<u64>();
    let before = counted(&link.b);
    let dropped = matches!(link.b.receive(bytes), Received::Other(Inbound::Drop(_)));
    assert_eq!(counted(&link.b) - before, u64::from(dropped));
}

/// A peer with the right key protects a packet again and again.
#[test]
fn nesting_depth_is_limited() {
    let ends = Ends::transport(4);
    let mut link = LinkSpec::single(ends, Mode::Transport, suites::esp(suites::gcm(), 1)).build();
    let plain = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"?", false);
    let mut deeper = |times| (0..times).fold(plain.clone(), |packet, _| link.a.send(&packet).wire());
    let wires = [1, 2, 3, 20].map(&mut deeper);
    assert!(matches!(link.b.receive(&wires[0]), Received::Packet(_)));
    link.b.must_drop(&wires[1], DropReason::PolicyMismatch);
    link.b.must_drop(&wires[2], DropReason::NestedTooDeep);
    link.b.must_drop(&wires[3], DropReason::NestedTooDeep);
}

/// Protection would make the packet longer than IP allows: it is dropped, and no length wraps.
#[test]
fn cve_2022_27666_packets_longer_than_ip_allows() {
    for spec in specs() {
        let (from, to) = spec.ends.inner;
        let (mut sent, mut refused) = (0, 0);
        for payload in 65_300..=65_507 {
            let mut link = spec.build();
            match link.a.send(&packets::udp(from, to, (1, 2), &vec![7; payload], false)) {
                Sent::Wire(wire, _) => {
                    assert!(wire.len() > payload && wire.len() <= 65_535 + 40, "{payload}: {}", wire.len());
                    assert!(matches!(link.b.receive(&wire), Received::Packet(_)), "{payload}");
                    sent += 1;
                }
                Sent::Reply(reason, _) | Sent::Drop(reason) => {
                    let too_big = [DropReason::TooBig, DropReason::TooLong];
                    assert!(too_big.contains(&reason), "{payload}: {reason:?}");
                    refused += 1;
                }
                other => panic!("{payload}: {other:?}"),
            }
        }
        assert!(sent > 50 && refused > 10, "{sent} went, {refused} did not");
    }
}

/// CVE-2022-46397: with predictable CBC IVs an attacker can test guesses of the plaintext. The IV must
/// consist of bytes of the random source only (RFC 3602 section 3).
#[test]
fn cve_2022_46397_ivs_of_cbc_are_the_callers_random_bytes() {
    let ends = Ends::tunnel(4, 4);
    let mut link = LinkSpec::single(ends, Mode::Tunnel, suites::esp(suites::cbc_sha1(), 1)).build();
    let plain = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"the same", false);
    let mut source = TestRng::new(1);
    for _ in 0..50 {
        let mut drawn = [0; 16];
        source.public(&mut drawn);
        // IPv4 20, SPI 4, sequence number 4.
        assert_eq!(link.a.send(&plain).wire()[28..44], drawn);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes(which in 0usize..5, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut link = specs()[which].build();
        receive(&mut link, &bytes);
        let _ = link.a.send(&bytes);
    }

    /// Valid packets with a few changes, which get further than random bytes.
    #[test]
    fn mutated_packets(
        which in 0usize..5,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        shorten: bool,
    ) {
        let spec = &specs()[which];
        let mut link = spec.build();
        let (x, y) = spec.ends.inner;
        let mut wire = link.a.send(&packets::udp(x, y, (1, 2), &payload, false)).wire();
        for (at, value) in changes {
            let at = at.index(wire.len());
            wire[at] = value;
        }
        if shorten {
            wire.truncate(cut.index(wire.len()));
        }
        receive(&mut link, &wire);
    }
}
