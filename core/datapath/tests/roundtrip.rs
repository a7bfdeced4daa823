//! Every suite in every mode and IP version: a host opens what the other sealed, to the same bytes.
// Helpers outside #[test] functions: a broken expectation is meant to stop the test.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use casemate_crypto::{
    AeadJob, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, JobStatus, MacAlg, MacKind, Provider,
};
use casemate_datapath::{Direction, DropReason, Inbound};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Mode, Spi, Transform};
use casemate_test_support::hosts::{Ends, Host, LinkSpec, Received, Sent, packets, suites};

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 13, 14, 15, 16, 255, 1400, 1401, 9000];

fn modes_and_addrs() -> Vec<(Mode, Ends)> {
    let tunnels = [(4, 4), (4, 6), (6, 4), (6, 6)].map(|(o, i)| (Mode::Tunnel, Ends::tunnel(o, i)));
    let transports = [4, 6].map(|version| (Mode::Transport, Ends::transport(version)));
    tunnels.into_iter().chain(transports).collect()
}

/// Sends packets of all lengths in both directions. Returns their number.
fn exercise(spec: &LinkSpec, what: &str) -> usize {
    let mut link = spec.build();
    let (x, y) = spec.ends.inner;
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let payload: Vec<u8> = (0..len).map(|i| (i + n) as u8).collect();
        let forth = packets::udp(x, y, (40_000, 53), &payload, false);
        let wire = link.a.send(&forth).wire();
        if len >= 13 && !matches!(spec.layers[0].1, Transform::Ah { .. }) && !is_null(&spec.layers[0].1) {
            assert!(!wire.windows(13).any(|w| w == &payload[..13]), "{what}: payload of {len} in clear");
        }
        assert_eq!(link.b.receive(&wire), Received::Packet(forth), "{what}, {len} bytes");
        let back = packets::udp(y, x, (53, 40_000), &payload, true);
        let wire = link.b.send(&back).wire();
        assert_eq!(link.a.receive(&wire), Received::Packet(back), "{what}, {len} bytes back");
    }
    let sent = [&link.a, &link.b].map(|host| counts(host, Direction::Outbound));
    let received = [&link.b, &link.a].map(|host| counts(host, Direction::Inbound));
    assert_eq!(sent, received, "{what}");
    2 * LENGTHS.len()
}

/// SPI, packets and bytes of each SA.
fn counts(host: &Host, direction: Direction) -> Vec<(Spi, u64, u64)> {
    let sas = host.dp.sas().filter(|sa| sa.id.direction() == direction);
    let mut counts: Vec<_> = sas.map(|sa| (sa.spi, sa.meter.packets, sa.meter.bytes)).collect();
    counts.sort();
    counts
}

fn is_null(transform: &Transform) -> bool {
    matches!(transform, Transform::Esp { suite: EspSuite::Separate(CipherAlg::Null, _), .. })
}

#[test]
fn esp_with_every_suite() {
    let mut packets = 0;
    for suite in suites::all_esp() {
        for (mode, ends) in modes_and_addrs() {
            for (esn, encap) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut spec = LinkSpec::single(ends, mode, suites::esp(suite, 1));
                (spec.esn, spec.encap) = (esn, encap);
                packets += exercise(&spec, &format!("{suite} {mode} {ends:?} esn {esn} udp {encap}"));
            }
        }
    }
    println!("{packets} packets");
    assert_eq!(packets, (1 + 9 + 9 + 3 + 7 + 9 * 7) * 6 * 4 * 24);
}

#[test]
fn ah_with_every_suite() {
    for mac in suites::all_ah() {
        for (mode, ends) in modes_and_addrs() {
            for esn in [false, true] {
                let mut spec = LinkSpec::single(ends, mode, suites::ah(mac, 1));
                spec.esn = esn;
                exercise(&spec, &format!("{mac} {mode} {ends:?} esn {esn}"));
            }
        }
    }
}

#[test]
fn ah_over_esp() {
    let sha256 = suites::ah(MacAlg::standard(MacKind::HmacSha256), 9);
    for esp_mode in [Mode::Transport, Mode::Tunnel] {
        for version in [4, 6] {
            for esn in [false, true] {
                let ends = if esp_mode == Mode::Tunnel {
                    Ends::tunnel(version, 4)
                } else {
                    Ends::transport(version)
                };
                let mut spec = LinkSpec::single(ends, esp_mode, suites::esp(suites::gcm(), 1));
                spec.layers.push((Mode::Transport, sha256.clone()));
                spec.esn = esn;
                exercise(&spec, &format!("AH over ESP {esp_mode} v{version} esn {esn}"));
            }
        }
    }
}

#[test]
fn esn_across_a_subspace_boundary() {
    let implicit_iv = EspSuite::ImplicitIv(ImplicitIvAlg::ChaCha20Poly1305);
    let gmac = EspSuite::Separate(CipherAlg::Null, gmac());
    for suite in [suites::gcm(), suites::cbc_sha1(), gmac, implicit_iv] {
        let mut spec = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suite, 3));
        spec.esn = true;
        spec.last_seq = (5 << 32) - 4;
        exercise(&spec, &format!("{suite} across a subspace boundary"));
        // The ICV covers the upper half of the sequence number: a receiver in another subspace must reject
        // the packet.
        let (x, y) = spec.ends.inner;
        let mut sender = spec.build();
        spec.last_seq += 1 << 32;
        let mut receiver = spec.build();
        let wire = sender.a.send(&packets::udp(x, y, (1, 2), b"lap", false)).wire();
        receiver.b.must_drop(&wire, DropReason::IcvMismatch);
    }
}

/// The nonce of RFC 8750 section 4 is made by hand here, and the packet is opened by the cipher alone.
#[test]
fn implicit_iv_is_the_sequence_number() {
    let bits = AesBits::B256;
    for (alg, esn) in [
        (ImplicitIvAlg::AesGcm16(bits), false),
        (ImplicitIvAlg::AesGcm16(bits), true),
        (ImplicitIvAlg::AesCcm8(bits), true),
        (ImplicitIvAlg::ChaCha20Poly1305, false),
    ] {
        let transform = suites::esp(EspSuite::ImplicitIv(alg), 1);
        let Transform::Esp { encr, .. } = &transform else { panic!("ESP") };
        let mut spec = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, transform.clone());
        spec.esn = esn;
        let high = if esn { 3u32 } else { 0 };
        spec.last_seq = (u64::from(high) << 32) + 0x1234;
        let (x, y) = spec.ends.inner;
        let sent = packets::udp(x, y, (1, 2), b"voice", false);
        let wire = spec.build().a.send(&sent).wire();
        let (header, rest) = wire[20..].split_at(8);
        assert_eq!(header[4..], 0x1235u32.to_be_bytes(), "the sequence number");
        let aead = alg.aead();
        let (key, salt) = encr.expose().split_at(aead.key_len());
        let mut nonce = [salt, &high.to_be_bytes(), &header[4..]].concat();
        nonce.resize(12, 0);
        let aad =
            if esn { [&header[..4], &high.to_be_bytes(), &header[4..]].concat() } else { header.to_vec() };
        let (text, tag) = rest.split_at(rest.len() - aead.icv_len());
        let (mut text, mut tag) = (text.to_vec(), tag.to_vec());
        let mut jobs = [AeadJob {
            nonce: nonce.try_into().unwrap(),
            aad: &aad,
            text: &mut text,
            tag: &mut tag,
            status: JobStatus::Pending,
        }];
        RUSTCRYPTO.aead(aead, key).unwrap().open(&mut jobs);
        assert_eq!(jobs[0].status, JobStatus::Done, "{alg} esn {esn}");
        assert!(text.starts_with(&sent), "{alg} esn {esn}");
    }
}

fn gmac() -> MacAlg {
    MacAlg::standard(MacKind::AesGmac(casemate_crypto::AesBits::B128))
}

#[test]
fn batch_with_many_verdicts() {
    let spec = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    let mut link = spec.build();
    let (x, y) = spec.ends.inner;
    let good: Vec<Vec<u8>> = (0..70u8).map(|n| packets::udp(x, y, (1, 2), &[n; 40], false)).collect();
    let unknown = packets::udp("10.9.9.9".parse().unwrap(), y, (1, 2), b"?", false);
    let mut batch: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
    batch.insert(5, &unknown);
    batch.insert(40, &[0xff; 7]);
    let sent = link.a.send_batch(&batch);
    assert_eq!(sent.len(), 72);
    let wires: Vec<Vec<u8>> = sent
        .into_iter()
        .filter_map(|sent| match sent {
            casemate_test_support::hosts::Sent::Wire(wire, _) => Some(wire),
            _ => None,
        })
        .collect();
    assert_eq!(wires.len(), 70);
    let mut arriving: Vec<&[u8]> = wires.iter().map(Vec::as_slice).collect();
    let forged: Vec<u8> =
        wires[3].iter().enumerate().map(|(i, b)| if i == 60 { b ^ 1 } else { *b }).collect();
    arriving.insert(2, &forged);
    arriving.insert(30, &wires[7]);
    let received = link.b.receive_batch(&arriving);
    assert_eq!(received[2], Received::Other(Inbound::Drop(DropReason::IcvMismatch)));
    assert_eq!(received[30], Received::Other(Inbound::Drop(DropReason::Replay)));
    let delivered = received.into_iter().filter(|r| matches!(r, Received::Packet(_)));
    assert!(delivered.zip(good).all(|(r, sent)| r == Received::Packet(sent)));
}

#[test]
fn transport_mode_keeps_headers_in_front() {
    let hop_by_hop = (0u8, vec![0, 0, 5, 2, 0, 0, 1, 0]);
    let dest_opts = (60u8, vec![0, 0, 1, 4, 0, 0, 0, 0]);
    let ends = Ends::transport(6);
    for transform in [suites::esp(suites::gcm(), 1), suites::ah(MacAlg::standard(MacKind::HmacSha1), 1)] {
        let spec = LinkSpec::single(ends, Mode::Transport, transform);
        let mut link = spec.build();
        let plain = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"extension headers", false);
        let packet = packets::with_v6_headers(&plain, &[hop_by_hop.clone(), dest_opts.clone()]);
        let wire = link.a.send(&packet).wire();
        assert_eq!(&wire[..6], &[packet[0], packet[1], packet[2], packet[3], wire[4], wire[5]]);
        assert_eq!(
            (wire[6], wire[40]),
            (0, if matches!(spec.layers[0].1, Transform::Ah { .. }) { 51 } else { 50 })
        );
        assert_eq!(link.b.receive(&wire), Received::Packet(packet));
    }
    let ends = Ends::transport(4);
    for transform in [suites::esp(suites::gcm(), 1), suites::ah(MacAlg::standard(MacKind::HmacSha1), 1)] {
        let mut link = LinkSpec::single(ends, Mode::Transport, transform).build();
        let plain = packets::udp(ends.inner.0, ends.inner.1, (1, 2), b"options", false);
        // Router alert (immutable), record route (mutable), padding.
        let packet = packets::with_v4_options(&plain, &[148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
        let wire = link.a.send(&packet).wire();
        assert_eq!(link.b.receive(&wire), Received::Packet(packet));
    }
}

/// The inner SA refuses a datagram that would be longer than an IP packet can be, after it has written its
/// ESP header. The outer SA must not look for headers in such a packet.
#[test]
fn packets_that_the_inner_of_two_sas_refuses_are_dropped() {
    let mut spec = LinkSpec::single(Ends::tunnel(4, 4), Mode::Tunnel, suites::esp(suites::gcm(), 1));
    spec.layers.push((Mode::Transport, suites::esp(suites::gcm(), 3)));
    spec.link_mtu = 1_500;
    let mut link = spec.build();
    let (src, dst) = spec.ends.inner;
    let mut refused = 0;
    for len in 65_400..65_507 {
        let packet = packets::udp(src, dst, (1_000, 53), &vec![7; len], false);
        for sent in [link.a.send(&packet), link.a.send_reassembled(&packet)] {
            match sent {
                Sent::Wire(..) => {}
                Sent::Drop(reason) => {
                    assert_eq!(reason, DropReason::TooLong, "{len}");
                    refused += 1;
                }
                other => panic!("{len}: {other:?}"),
            }
        }
    }
    assert!(refused > 0);
}
