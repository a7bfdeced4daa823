//! Packets sealed with the correct key, by a conforming peer or by a malicious one that seals any contents.

use super::is_tunnel;
use crate::datapath::generate;
use crate::input::Input;
use casemate_crypto::{CipherAlg, EspSuite, JobStatus, MacJob, Tag};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Consumed, Direction, Inbound, Unmatched};
use casemate_sa::{AddrRange, Mode, SaParams, Selector, SpdId, Transform};
use casemate_test_support::hosts::{Host, Link, LinkSpec, PROVIDERS, Received, Sent, packets};
use casemate_wire::esp::EspPlaintext;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, ext, proto, version};

/// Expected result of a sealed packet that arrives unchanged for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The packet is delivered.
    Delivered,
    /// The packet is consumed as a dummy packet.
    Dummy,
    /// The packet is delivered unchanged, or dropped.
    Any,
}

#[derive(Debug, Clone)]
pub(super) struct Sealed {
    pub(super) seq: u64,
    pub(super) wire: Vec<u8>,
    /// Packet to deliver; none if the contents are invalid.
    plain: Option<Vec<u8>>,
    expected: Expected,
}

impl Sealed {
    /// Checks that a delivered packet equals the sealed one. In a tunnel, a changed outer header may add a
    /// congestion mark; in transport mode, ESP does not authenticate the outer header.
    pub(super) fn assert_delivered(&self, spec: &LinkSpec, packet: &[u8], is_changed: bool) {
        let plain = self.plain.as_deref().expect("an invalid packet was delivered");
        if !is_changed {
            assert_eq!(packet, plain);
        } else if is_tunnel(spec) {
            assert_eq!(without_mark(packet), without_mark(plain));
        } else {
            assert!(packet.ends_with(payload(plain)), "{packet:02x?} for {plain:02x?}");
        }
    }

    pub(super) fn assert_expected(&self, received: &Received) {
        match self.expected {
            Expected::Delivered => assert!(matches!(received, Received::Packet(_)), "{received:?}"),
            Expected::Dummy => assert_eq!(*received, Received::Other(Inbound::Consumed(Consumed::Dummy))),
            Expected::Any => assert!(matches!(
                received,
                Received::Packet(_) | Received::Other(Inbound::Drop(_) | Inbound::Consumed(Consumed::Dummy))
            )),
        }
    }
}

/// Packet without its congestion mark, and whether its checksum was valid.
fn without_mark(packet: &[u8]) -> (Vec<u8>, bool) {
    let mut packet = packet.to_vec();
    let is_right = match version(&packet).unwrap() {
        IpVersion::V4 => {
            let mut ip = Ipv4::parse(&mut packet[..]).unwrap();
            let is_right = ip.verify_checksum();
            ip.set_ecn(0);
            ip.fill_checksum();
            is_right
        }
        IpVersion::V6 => {
            Ipv6::parse(&mut packet[..]).unwrap().set_ecn(0);
            true
        }
    };
    (packet, is_right)
}

/// Part of the packet that transport mode protects.
fn payload(packet: &[u8]) -> &[u8] {
    match version(packet).unwrap() {
        IpVersion::V4 => &packet[Ipv4::parse(packet).unwrap().header_len()..],
        IpVersion::V6 => &packet[ext::parse_chain(packet).unwrap().transport.at..],
    }
}

fn protocol(packet: &[u8]) -> u8 {
    match version(packet).unwrap() {
        IpVersion::V4 => Ipv4::parse(packet).unwrap().protocol(),
        IpVersion::V6 => ext::parse_chain(packet).unwrap().transport.next_header,
    }
}

/// Packet of a conforming peer; `None` if the peer rejects the requested packet.
pub(super) fn conforming_packet(input: &mut Input<'_>, spec: &LinkSpec, link: &mut Link) -> Option<Sealed> {
    let plain = generate::packet(input, spec.ends.inner);
    let Sent::Wire(wire, _) = link.a.send(&plain) else { return None };
    let seq = link.a.dp.last_seq(link.a_out[0]).unwrap();
    let expected = match protocol(&plain) {
        proto::NO_NEXT if !is_tunnel(spec) => Expected::Dummy,
        // Inside transport mode this is another layer, which has no SA.
        proto::ESP | proto::AH if !is_tunnel(spec) => Expected::Any,
        _ => Expected::Delivered,
    };
    Some(Sealed { seq, wire, plain: Some(plain), expected })
}

/// Packet of a malicious peer that has the key; `None` if the link does not permit one.
pub(super) fn malicious_packet(input: &mut Input<'_>, spec: &LinkSpec, highest: u64) -> Option<Sealed> {
    let [_] = &spec.layers[..] else { return None };
    let mut params = spec.params(0, true);
    params.last_sent = highest.checked_add(u64::from(input.u8() & 3))?;
    let is_null = matches!(&params.transform, Transform::Esp { suite: EspSuite::Separate(CipherAlg::Null, mac), .. } if !mac.takes_nonce());
    if is_null && input.flag() {
        malicious_trailer(input, spec, &params)
    } else {
        malicious_payload(input, spec, params)
    }
}

/// Any payload with any next header: the receiver of a tunnel treats a transport mode packet as a tunnel
/// packet.
fn malicious_payload(input: &mut Input<'_>, spec: &LinkSpec, mut params: SaParams) -> Option<Sealed> {
    if !is_tunnel(spec) {
        return None;
    }
    let (next_header, payload) = contents(input, spec);
    (params.mode, params.tfc_pad_to) = (Mode::Transport, 0);
    let mut sender = Host::with_limits(Unmatched::Discard, spec.link_mtu, spec.limits);
    let id = sender.dp.add_sa(&params, Direction::Outbound, &PROVIDERS, sender.now).unwrap();
    let (src, dst) = spec.ends.outer;
    let (protocol, mode) = (params.transform.protocol(), Mode::Transport);
    let template = Template { protocol, mode, src: Some(src), dst: Some(dst), reqid: 0 };
    let selector = Selector::between(AddrRange::single(src), AddrRange::single(dst));
    let action = Action::Protect(Bundle::single(template));
    sender
        .dp
        .add_policy(Direction::Outbound, Policy { spd: SpdId::MAIN, selector, action, priority: 0 })
        .unwrap();
    let Sent::Wire(wire, _) = sender.send(&packets::ip(src, dst, next_header, &payload, false)) else {
        return None;
    };
    let plain = inner_packet(next_header, &payload);
    Some(Sealed { seq: sender.dp.last_seq(id)?, wire, plain, expected: Expected::Any })
}

/// Any bytes in place of padding and trailer, under NULL encryption with a valid ICV.
fn malicious_trailer(input: &mut Input<'_>, spec: &LinkSpec, params: &SaParams) -> Option<Sealed> {
    let Transform::Esp { suite: EspSuite::Separate(_, mac), integ, .. } = &params.transform else {
        return None;
    };
    let seq = params.last_sent.checked_add(1)?;
    let (_, mut text) = contents(input, spec);
    text.resize(text.len().next_multiple_of(4), 1);
    text.extend(input.array::<4>());
    let mut esp =
        [&params.spi.get().to_be_bytes()[..], &u32::try_from(seq).ok()?.to_be_bytes(), &text].concat();
    let tag = Tag::zeroed(mac.tag_len());
    let mut jobs = [MacJob { nonce: [0; 12], data: &esp, tag, status: JobStatus::Pending }];
    PROVIDERS.mac(*mac, integ.expose()).unwrap().sign(&mut jobs);
    let tag = jobs[0].tag;
    esp.extend_from_slice(tag.as_slice());
    let (src, dst) = spec.ends.outer;
    let wire = packets::ip(src, dst, proto::ESP, &esp, false);
    let plain = EspPlaintext::parse(&text).ok().and_then(|EspPlaintext { payload, padding, trailer }| {
        let is_counting = (1..=u8::MAX).zip(padding).all(|(n, byte)| n == *byte);
        match is_tunnel(spec) {
            _ if !is_counting => None,
            true => inner_packet(trailer.next_header, payload),
            false => Some(packets::ip(src, dst, trailer.next_header, payload, false)),
        }
    });
    Some(Sealed { seq, wire, plain, expected: Expected::Any })
}

/// Contents to seal: an IP packet with some changed bytes, or any bytes.
fn contents(input: &mut Input<'_>, spec: &LinkSpec) -> (u8, Vec<u8>) {
    let how = input.u8();
    let is_v4 = spec.ends.inner.0.is_ipv4();
    let next_header = match how >> 4 {
        0 => input.u8(),
        1 => proto::NO_NEXT,
        _ if is_v4 => proto::IPIP,
        _ => proto::IPV6,
    };
    if how & 8 != 0 {
        let len = usize::from(input.u8());
        return (next_header, input.take(len).to_vec());
    }
    let mut packet = generate::packet(input, spec.ends.inner);
    for _ in 0..how & 3 {
        let at = input.index(packet.len());
        packet[at] = input.u8();
    }
    if how & 4 != 0 {
        // TFC padding.
        packet.extend([0xfe; 16]);
    }
    (next_header, packet)
}

/// Packet that the receiver of a tunnel may find in a payload.
fn inner_packet(next_header: u8, payload: &[u8]) -> Option<Vec<u8>> {
    match version(payload).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(payload).ok().filter(|_| next_header == proto::IPIP)?;
            Some(payload[..ip.total_len().into()].to_vec())
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(payload).ok().filter(|_| next_header == proto::IPV6)?;
            Some(ip.packet().to_vec())
        }
    }
}
