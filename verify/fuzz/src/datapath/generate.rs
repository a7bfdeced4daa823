//! Generated inputs: links between two hosts, with all modes, both IP versions and different kinds of
//! suites; and valid but unusual IP packets.

use crate::input::Input;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_sa::{Limits, Mode, Transform};
use casemate_test_support::hosts::{Ends, LinkSpec, packets, suites};
use casemate_wire::ip::proto;
use casemate_wire::ip::v4::Ipv4;
use core::net::IpAddr;

/// Number of links.
pub(super) const LINKS: u8 = 18;

/// Small tables, because they are created for every input.
const LIMITS: Limits = Limits {
    sas: 8,
    policies: 4,
    flows: 16,
    audit_events: 4,
    replay_window: 1 << 12,
    reassemblies: 0,
    reassembly_bytes: 0,
};

/// Link that the first byte of an input selects.
pub(super) fn link_spec(choice: u8) -> LinkSpec {
    let (ends, mode, transform) = single(choice % LINKS);
    let mut spec = LinkSpec::single(ends, mode, transform);
    spec.limits = LIMITS;
    match choice % LINKS {
        1 => (spec.esn, spec.last_seq) = (true, (1 << 32) - 3),
        3 | 14 => spec.encap = true,
        8 => spec.window = 0,
        11 => (spec.esn, spec.window) = (true, 32),
        12 | 13 => spec.layers.push((Mode::Transport, ah(MacKind::HmacSha256))),
        15 => spec.tfc_pad_to = 64,
        16 => spec.window = 1_000,
        _ => {}
    }
    spec
}

fn single(choice: u8) -> (Ends, Mode, Transform) {
    use Mode::{Transport, Tunnel};
    let (cbc, ctr) = (CipherAlg::AesCbc(AesBits::B128), CipherAlg::AesCtr(AesBits::B256));
    let gmac = MacKind::AesGmac(AesBits::B128);
    match choice {
        0 | 15 => (Ends::tunnel(4, 4), Tunnel, esp(suites::gcm())),
        1 | 14 => (Ends::tunnel(6, 6), Tunnel, esp(suites::gcm())),
        2 => (Ends::transport(6), Transport, esp(suites::cbc_sha1())),
        3 => (Ends::tunnel(4, 6), Tunnel, esp(suites::cbc_sha1())),
        4 => (Ends::transport(4), Transport, esp(EspSuite::Combined(AeadAlg::ChaCha20Poly1305))),
        5 => (Ends::tunnel(6, 4), Tunnel, separate(ctr, MacKind::AesXcbc)),
        6 => (Ends::tunnel(4, 4), Tunnel, separate(CipherAlg::Null, MacKind::HmacSha256)),
        7 => (Ends::transport(4), Transport, separate(CipherAlg::Null, gmac)),
        8 => {
            let ccm = AeadAlg::aes_ccm(AesBits::B128, 8).unwrap();
            (Ends::tunnel(4, 4), Tunnel, esp(EspSuite::Combined(ccm)))
        }
        9 => (Ends::tunnel(6, 6), Tunnel, ah(MacKind::HmacSha256)),
        10 => (Ends::transport(4), Transport, ah(MacKind::HmacSha1)),
        11 => (Ends::transport(6), Transport, ah(MacKind::AesCmac)),
        12 => (Ends::transport(4), Transport, esp(suites::gcm())),
        13 => (Ends::tunnel(6, 4), Tunnel, separate(cbc, MacKind::HmacSha512)),
        16 => (Ends::tunnel(4, 4), Tunnel, ah(gmac)),
        _ => (Ends::transport(6), Transport, separate(CipherAlg::Null, MacKind::HmacSha256)),
    }
}

fn esp(suite: EspSuite) -> Transform {
    suites::esp(suite, 1)
}

fn separate(cipher: CipherAlg, mac: MacKind) -> Transform {
    esp(EspSuite::Separate(cipher, MacAlg::standard(mac)))
}

fn ah(mac: MacKind) -> Transform {
    suites::ah(MacAlg::standard(mac), 9)
}

const WITH_HEADERS: u8 = 0x10;
const DF: u8 = 0x20;
const FRAGMENT: u8 = 0x40;
const LONG: u8 = 0x80;

/// Packet from `src` to `dst`.
pub(super) fn packet(input: &mut Input<'_>, (src, dst): (IpAddr, IpAddr)) -> Vec<u8> {
    let (shape, tos) = (input.u8(), input.u8());
    let protocol = match shape & 7 {
        0..=2 => proto::UDP,
        3 => proto::TCP,
        4 if src.is_ipv4() => proto::ICMP,
        4 => proto::ICMPV6,
        5 => proto::NO_NEXT,
        _ => input.u8(),
    };
    let mut packet = packets::ip(src, dst, protocol, &payload(input, shape & LONG != 0), shape & DF != 0);
    if shape & WITH_HEADERS != 0 {
        packet = with_headers(input, &packet);
    }
    match src {
        IpAddr::V4(_) => {
            let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
            ip.set_tos(tos);
            if shape & FRAGMENT != 0 {
                ip.set_fragment(input.u16(), input.flag());
            }
            ip.fill_checksum();
        }
        IpAddr::V6(_) => packet[..2].copy_from_slice(&[0x60 | tos >> 4, tos << 4]),
    }
    packet
}

/// Some bytes of the input, followed by regular ones.
fn payload(input: &mut Input<'_>, is_long: bool) -> Vec<u8> {
    let len = usize::from(input.u8()) + if is_long { 1_300 } else { 0 };
    let chosen = usize::from(input.u8() & 31).min(len);
    let mut payload = input.take(chosen).to_vec();
    payload.extend((payload.len()..len).map(|i| i as u8));
    payload
}

/// Adds IPv4 options or IPv6 extension headers.
fn with_headers(input: &mut Input<'_>, packet: &[u8]) -> Vec<u8> {
    let count = 1 + input.index(3);
    if packet[0] >> 4 == 4 {
        let options: Vec<u8> = (0..count * 4).map(|_| input.u8()).collect();
        return packets::with_v4_options(packet, &options);
    }
    let headers: Vec<(u8, Vec<u8>)> = (0..count)
        .map(|_| {
            let kind = [proto::DEST_OPTS, proto::ROUTING, proto::HOP_BY_HOP, proto::FRAGMENT][input.index(4)];
            // The length field covers 8 bytes, the fixed length of a fragment header.
            let [_, _, rest @ ..] = input.array::<8>();
            (kind, [&[0, 0][..], &rest].concat())
        })
        .collect();
    packets::with_v6_headers(packet, &headers)
}
