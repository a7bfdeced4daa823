//! Frames that announce an address or ask for it, and frames in which another host says that it has one.
//!
//! IPv4: ARP announcements (RFC 5227 section 3), probes (section 2.1.1) and the sender of any ARP message
//! (section 2.4). IPv6: unsolicited neighbour advertisements (RFC 4861 sections 4.4 and 7.2.6) and the
//! solicitations of duplicate address detection (RFC 4862 section 5.4.2). Ethernet only, without VLAN tags;
//! advertisements with extension headers in front are ignored.

use crate::packet_socket::ETHERTYPE_V6;
use crate::sys::LINK_ADDRESS_LEN;
use casemate_wire::checksum::pseudo_v6;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::proto;
use casemate_wire::ip::v6::{self, Ipv6Header};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// EtherType of ARP.
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
/// ARP for IPv4 on Ethernet: hardware type 1, protocol type 0x0800, address lengths 6 and 4 (RFC 826).
const ARP_FORMAT: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: [u8; 2] = [0, 1];
const BROADCAST: MacAddress = MacAddress([0xff; LINK_ADDRESS_LEN]);
/// The Ethernet address of the group of all nodes (RFC 2464 section 7).
const ALL_NODES_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Hop limit that shows that no router has forwarded the packet (RFC 4861 section 7.1.2).
const HOP_LIMIT: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement (RFC 4861 section 4.4).
const FROM_ROUTER: u8 = 0x80;
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_ADDRESS: u8 = 2;
/// Length of an advertisement without options, in bytes.
const ADVERTISEMENT_LEN: usize = 24;
/// Length of an option with an Ethernet address, in units of eight bytes.
const LINK_ADDRESS_UNITS: u8 = 1;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; LINK_ADDRESS_LEN]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Another host says that it has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressUse {
    pub(super) addr: IpAddr,
    pub(super) mac: MacAddress,
}

/// The ARP announcement of `addr`, as a whole frame: a broadcast request whose sender and target are the
/// address.
pub(super) fn arp_announcement(addr: Ipv4Addr, mac: MacAddress) -> Vec<u8> {
    arp_request(addr, addr, mac)
}

/// The ARP probe for `addr`, as a whole frame: a broadcast request whose sender has no address yet.
pub(super) fn arp_probe(addr: Ipv4Addr, mac: MacAddress) -> Vec<u8> {
    arp_request(Ipv4Addr::UNSPECIFIED, addr, mac)
}

fn arp_request(sender: Ipv4Addr, target: Ipv4Addr, mac: MacAddress) -> Vec<u8> {
    let (sender, target) = (sender.octets(), target.octets());
    let arp = [&ARP_FORMAT[..], &ARP_REQUEST, &mac.0, &sender, &[0; LINK_ADDRESS_LEN], &target].concat();
    frame(BROADCAST, mac, ETHERTYPE_ARP, &arp)
}

/// The unsolicited neighbour advertisement of `addr` to all nodes, as a whole frame. It overrides what they
/// know, and says whether this host is a router: hosts stop using a router that says that it is none.
pub(super) fn advertisement(addr: Ipv6Addr, mac: MacAddress, is_router: bool) -> Vec<u8> {
    let flags = if is_router { OVERRIDE | FROM_ROUTER } else { OVERRIDE };
    let option = [TARGET_LINK_ADDRESS, LINK_ADDRESS_UNITS];
    let icmp = [&[ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0][..], &addr.octets(), &option, &mac.0].concat();
    frame(ALL_NODES_MAC, mac, ETHERTYPE_V6, &icmpv6(addr, ALL_NODES, icmp))
}

/// The solicitation with which a host that has no address yet asks whether another one has `addr`, as a whole
/// frame to the solicited-node group of `addr` (RFC 4291 section 2.7.1).
pub(super) fn solicitation(addr: Ipv6Addr, mac: MacAddress) -> Vec<u8> {
    let [.., high, middle, low] = addr.octets();
    let group =
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(high), u16::from_be_bytes([middle, low]));
    let icmp = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &addr.octets()].concat();
    let packet = icmpv6(Ipv6Addr::UNSPECIFIED, group, icmp);
    frame(MacAddress([0x33, 0x33, 0xff, high, middle, low]), mac, ETHERTYPE_V6, &packet)
}

/// An IPv6 packet with this ICMPv6 message, whose checksum is filled in.
fn icmpv6(src: Ipv6Addr, dst: Ipv6Addr, mut icmp: Vec<u8>) -> Vec<u8> {
    let len = u16::try_from(icmp.len()).or_broken_default("the messages here have 24 or 32 bytes");
    let sum = pseudo_v6(src, dst, proto::ICMPV6, len.into()).add_bytes(&icmp).finish();
    icmp.iter_mut().skip(2).zip(sum.to_be_bytes()).for_each(|(out, byte)| *out = byte);
    let mut packet = vec![0; v6::HEADER_LEN];
    if let Some(header) = packet.first_chunk_mut() {
        Ipv6Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: len,
            next_header: proto::ICMPV6,
            hop_limit: HOP_LIMIT,
            src,
            dst,
        }
        .emit(header);
    }
    packet.extend(icmp);
    packet
}

fn frame(dst: MacAddress, src: MacAddress, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &ethertype.to_be_bytes(), payload].concat()
}

/// The use of an address that a frame shows. The checksum of an advertisement is not verified: the frame has
/// one of its own, and none of them authenticates the sender.
pub(super) fn address_use(frame: &[u8]) -> Option<AddressUse> {
    let (header, payload) = frame.split_at_checked(14)?;
    let (addresses, ethertype) = header.split_last_chunk::<2>()?;
    match u16::from_be_bytes(*ethertype) {
        ETHERTYPE_ARP => arp_sender(payload),
        ETHERTYPE_V6 => advertised_target(payload, MacAddress(*addresses.last_chunk()?)),
        _ => None,
    }
}

fn arp_sender(arp: &[u8]) -> Option<AddressUse> {
    let (format, rest) = arp.split_first_chunk()?;
    // Requests and replies alike (RFC 5227 section 2.4).
    let (_, rest) = rest.split_first_chunk::<2>()?;
    let (mac, rest) = rest.split_first_chunk()?;
    let addr = Ipv4Addr::from_octets(*rest.first_chunk()?);
    (*format == ARP_FORMAT).then_some(AddressUse { addr: addr.into(), mac: MacAddress(*mac) })
}

/// The target of an advertisement, with the Ethernet address in its option or else that of the sender.
fn advertised_target(packet: &[u8], sender: MacAddress) -> Option<AddressUse> {
    let (header, icmp) = packet.split_at_checked(v6::HEADER_LEN)?;
    if header.get(6..8)? != [proto::ICMPV6, HOP_LIMIT] || icmp.first_chunk()? != &[ADVERTISEMENT, 0] {
        return None;
    }
    let (advertisement, options) = icmp.split_at_checked(ADVERTISEMENT_LEN)?;
    let addr = Ipv6Addr::from_octets(*advertisement.last_chunk()?);
    Some(AddressUse { addr: addr.into(), mac: target_link_address(options).unwrap_or(sender) })
}

fn target_link_address(mut options: &[u8]) -> Option<MacAddress> {
    // Each round takes at least eight bytes of a frame.
    loop {
        let [kind, units] = *options.first_chunk()?;
        let (option, rest) =
            options.split_at_checked(usize::from(units).checked_mul(8).filter(|len| *len > 0)?)?;
        if kind == TARGET_LINK_ADDRESS {
            return option.get(2..).and_then(|value| value.first_chunk()).map(|mac| MacAddress(*mac));
        }
        options = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_wire::ip::Ipv6;
    use proptest::prelude::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0xab, 7]);

    /// The field values are those of RFC 826, RFC 5227 section 3 and RFC 4861 section 4.4.
    #[test]
    fn announcements_have_the_fields_of_the_rfcs() {
        assert_eq!(MAC.to_string(), "02:00:00:00:ab:07");
        let arp = arp_announcement([192, 0, 2, 1].into(), MAC);
        let expected = "ffffffffffff 02000000ab07 0806 0001 0800 06 04 0001 \
                        02000000ab07 c0000201 000000000000 c0000201";
        assert_eq!(hex(&arp), expected.replace(' ', ""));
        let addr: Ipv6Addr = "2001:db8::1".parse().unwrap();
        for (is_router, flags) in [(true, "a0"), (false, "20")] {
            let frame = advertisement(addr, MAC, is_router);
            let target = "20010db8000000000000000000000001";
            let sum = hex(&frame[56..58]);
            let expected = format!(
                "333300000001 02000000ab07 86dd 6 00 00000 0020 3a ff {target} \
                 ff020000000000000000000000000001 88 00 {sum} {flags} 000000 {target} 02 01 02000000ab07"
            );
            assert_eq!(hex(&frame), expected.replace(' ', ""));
            let ip = Ipv6::parse(&frame[14..]).unwrap();
            let sum = pseudo_v6(ip.src(), ip.dst(), proto::ICMPV6, 32).add_bytes(&frame[54..]);
            assert!(sum.is_valid());
        }
    }

    /// The field values are those of RFC 5227 section 2.1.1, RFC 4862 section 5.4.2 and RFC 4291 section
    /// 2.7.1.
    #[test]
    fn probes_have_the_fields_of_the_rfcs() {
        let arp = arp_probe([192, 0, 2, 1].into(), MAC);
        let expected = "ffffffffffff 02000000ab07 0806 0001 0800 06 04 0001 \
                        02000000ab07 00000000 000000000000 c0000201";
        assert_eq!(hex(&arp), expected.replace(' ', ""));
        let frame = solicitation("2001:db8::12:3456".parse().unwrap(), MAC);
        let sum = hex(&frame[56..58]);
        let expected = format!(
            "3333ff123456 02000000ab07 86dd 6 00 00000 0018 3a ff 00000000000000000000000000000000 \
             ff0200000000000000000001ff123456 87 00 {sum} 00000000 20010db8000000000000000000123456"
        );
        assert_eq!(hex(&frame), expected.replace(' ', ""));
        let ip = Ipv6::parse(&frame[14..]).unwrap();
        assert!(pseudo_v6(ip.src(), ip.dst(), proto::ICMPV6, 24).add_bytes(&frame[54..]).is_valid());
        // Neither shows the use of an address.
        let none = Ipv4Addr::UNSPECIFIED.into();
        assert_eq!(address_use(&arp).map(|used| used.addr), Some(none));
        assert_eq!(address_use(&frame), None);
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn frames_show_who_uses_an_address() {
        let seen = |addr: &str, mac| Some(AddressUse { addr: addr.parse().unwrap(), mac });
        let mut arp = arp_announcement([192, 0, 2, 1].into(), MAC);
        assert_eq!(address_use(&arp), seen("192.0.2.1", MAC));
        arp[21] = 2;
        assert_eq!(address_use(&arp), seen("192.0.2.1", MAC), "a reply");
        arp[6..12].fill(9);
        assert_eq!(address_use(&arp), seen("192.0.2.1", MAC), "not the sender of the frame");
        for at in [12, 13, 15, 16, 18, 19] {
            let mut other = arp.clone();
            other[at] ^= 1;
            assert_eq!(address_use(&other), None, "offset {at}");
        }
        let frame = advertisement("2001:db8::1".parse().unwrap(), MAC, true);
        assert_eq!(address_use(&frame), seen("2001:db8::1", MAC));
        let mut other = frame.clone();
        other[80..86].fill(5);
        assert_eq!(address_use(&other), seen("2001:db8::1", MacAddress([5; 6])), "in the option");
        let without = frame[..78].to_vec();
        assert_eq!(address_use(&without), seen("2001:db8::1", MAC), "of the frame");
        let nonce = [&frame[..78], &[14, 1, 0, 0, 0, 0, 0, 0], &other[78..]].concat();
        assert_eq!(address_use(&nonce), seen("2001:db8::1", MacAddress([5; 6])), "behind another option");
        let empty = [&frame[..78], &[14, 0], &other[78..]].concat();
        assert_eq!(address_use(&empty), seen("2001:db8::1", MAC), "behind an option of length 0");
        for (at, what) in [(20, "next header"), (21, "hop limit"), (54, "type"), (55, "code")] {
            let mut other = frame.clone();
            other[at] ^= 2;
            assert_eq!(address_use(&other), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_frame_can_be_examined(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            kind in 0..4,
        ) {
            let prefix = match kind {
                0 => arp_announcement(Ipv4Addr::LOCALHOST, MAC),
                1 => advertisement(Ipv6Addr::LOCALHOST, MAC, true)[..78].to_vec(),
                2 => advertisement(Ipv6Addr::LOCALHOST, MAC, true)[..54].to_vec(),
                _ => Vec::new(),
            };
            bytes.splice(0..0, prefix);
            for len in 0..bytes.len() {
                let _ = address_use(&bytes[..len]);
            }
        }
    }
}
