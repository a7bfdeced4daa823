//! Packets that only a peer with the right key can send: the ICV is correct, but the content violates the
//! RFC.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{CipherAlg, EspSuite, JobStatus, MacAlg, MacJob, MacKind, Provider, Tag};
use casemate_datapath::{Consumed, Direction, DropReason, Inbound};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Mode, Transform};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, Received, packets, suites};
use casemate_wire::ip::v4::Ipv4;

const ICV: usize = 12;

fn sha1() -> MacAlg {
    MacAlg::standard(MacKind::HmacSha1)
}

/// NULL encryption, so that tests can change the trailer and sign again.
fn spec(mode: Mode) -> LinkSpec {
    let ends = if mode == Mode::Tunnel { Ends::tunnel(4, 4) } else { Ends::transport(4) };
    LinkSpec::single(ends, mode, suites::esp(EspSuite::Separate(CipherAlg::Null, sha1()), 1))
}

/// Changes the text of a sealed packet and signs it again.
fn forge(spec: &LinkSpec, payload: &[u8], change: impl FnOnce(&mut [u8])) -> (Host, Vec<u8>) {
    let mut link = spec.build();
    let (a, b) = spec.ends.inner;
    let mut wire = link.a.send(&packets::udp(a, b, (1, 2), payload, false)).wire();
    let end = wire.len() - ICV;
    change(&mut wire[28..end]);
    let Transform::Esp { integ, .. } = &spec.layers[0].1 else { panic!("ESP") };
    let key = RUSTCRYPTO.mac(sha1(), integ.expose()).unwrap();
    let job =
        MacJob { nonce: [0; 12], data: &wire[20..end], tag: Tag::zeroed(ICV), status: JobStatus::Pending };
    let mut jobs = [job];
    key.sign(&mut jobs);
    let tag = jobs[0].tag;
    wire[end..].copy_from_slice(tag.as_slice());
    (link.b, wire)
}

#[test]
fn padding_is_checked() {
    let spec = spec(Mode::Tunnel);
    let (mut b, wire) = forge(&spec, b"12345", |_| {});
    assert!(matches!(b.receive(&wire), Received::Packet(_)), "the forged packet has a valid ICV");
    // The text ends with padding 1, the pad length and the next header.
    let (mut b, wire) = forge(&spec, b"12345", |text| text[text.len() - 3] ^= 1);
    b.must_drop(&wire, DropReason::BadPadding);
    let (mut b, wire) = forge(&spec, b"12345", |text| text[text.len() - 2] = 255);
    b.must_drop(&wire, DropReason::BadPadding);
}

#[test]
fn tunnel_next_header_must_match_the_inner_version() {
    let spec = spec(Mode::Tunnel);
    for (next_header, verdict) in [
        (41, Inbound::Drop(DropReason::BadNextHeader)),
        (17, Inbound::Drop(DropReason::BadNextHeader)),
        (59, Inbound::Consumed(Consumed::Dummy)),
    ] {
        let (mut b, wire) = forge(&spec, b"1234", |text| text[text.len() - 1] = next_header);
        assert_eq!(b.receive(&wire), Received::Other(verdict), "next header {next_header}");
    }
    let (mut b, wire) = forge(&spec, b"1234", |text| text[0] = 0x55);
    b.must_drop(&wire, DropReason::InnerMalformed);
    let (mut b, wire) = forge(&spec, b"1234", |text| text[2..4].copy_from_slice(&[0xff, 0xff]));
    b.must_drop(&wire, DropReason::InnerMalformed);
}

#[test]
fn link_padding_is_ignored() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        let (mut b, mut wire) = forge(&spec(mode), b"1234", |_| {});
        wire.extend_from_slice(&[0; 6]);
        assert!(matches!(b.receive(&wire), Received::Packet(_)), "{mode}");
    }
}

#[test]
fn impossible_lengths_are_truncated() {
    let spec = spec(Mode::Tunnel);
    let mut link = spec.build();
    let (a, b) = spec.ends.inner;
    let wire = link.a.send(&packets::udp(a, b, (1, 2), b"1234", false)).wire();
    for len in 20..wire.len() {
        let mut cut = wire[..len].to_vec();
        let mut ip = Ipv4::parse_quoted(&mut cut[..]).unwrap();
        ip.set_total_len(len as u16);
        ip.fill_checksum();
        let reason = match link.b.receive(&cut) {
            Received::Other(Inbound::Drop(reason)) => reason,
            other => panic!("{len} bytes: {other:?}"),
        };
        let aligned = len >= 20 + 8 + 4 + ICV && len % 4 == 0;
        assert_eq!(
            reason,
            if aligned { DropReason::IcvMismatch } else { DropReason::Truncated },
            "{len} bytes"
        );
    }
}

#[test]
fn bundle_requires_all_its_sas() {
    let ends = Ends::transport(4);
    let esp = (Mode::Transport, suites::esp(suites::gcm(), 1));
    let ah = (Mode::Transport, suites::ah(sha1(), 5));
    let mut bundle = LinkSpec::single(ends, Mode::Transport, esp.1.clone());
    bundle.layers.push(ah.clone());
    let packet = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"x", false);
    // The sender uses only one of the two SAs. The receiver has both.
    for (layer, one) in [esp, ah].into_iter().enumerate() {
        let mut receiver = bundle.build().b;
        let mut sender = bundle.build().a;
        let mut alone = bundle.policy(true);
        let template = match &alone.action {
            casemate_datapath::spd::Action::Protect(templates) => templates.templates()[layer],
            other => panic!("{other}"),
        };
        alone.action =
            casemate_datapath::spd::Action::Protect(casemate_datapath::spd::Bundle::single(template));
        let first = sender.dp.policies(Direction::Outbound).next().unwrap().0;
        sender.dp.remove_policy(Direction::Outbound, first);
        sender.dp.add_policy(Direction::Outbound, alone).unwrap();
        let wire = sender.send(&packet).wire();
        assert_eq!(wire[9], one.1.protocol().number());
        receiver.must_drop(&wire, DropReason::PolicyMismatch);
    }
}
