//! Packet filters of the receiving sockets, in classic BPF.
//!
//! The filter of a packet socket keeps packets that may concern the data path: ESP and AH, whole or in
//! fragments, and ICMP messages about path MTUs. `packet_socket` classifies the packets again, because a
//! filter cannot walk a chain of IPv6 extension headers.
//!
//! The filters of the sockets for virtual addresses keep the frames in which a host says that it has one of
//! them.
//!
//! If urgent packets overtake others, two sockets share the packets, and the urgent socket is read first.
//! Protected packets show only their outer header, so its DSCP tells whether a packet is urgent.

use casemate_sched::{Class, DscpTable};
use casemate_wire::dscp::Dscp;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::IpVersion;
use socket2::SockFilter;
use std::net::{Ipv4Addr, Ipv6Addr};

/// One step of a filter. The first step that decides ends the filter; a packet that reaches the end is
/// dropped.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Instruction and operand.
    Load(u16, u32),
    /// Keeps the packet if the loaded value equals this one.
    KeepIf(u32),
    /// Drops the packet if the loaded value equals this one.
    DropIf(u32),
    /// Drops the packet unless the loaded value equals this one.
    DropUnless(u32),
    /// Drops the packet if the loaded value has any of these bits.
    DropIfAnyBit(u32),
    /// Skips this many steps unless the loaded value equals this one.
    SkipUnless(u32, u8),
    /// Skips this many steps if the loaded value equals this one.
    SkipIf(u32, u8),
}

// Instructions of classic BPF (linux/bpf_common.h).
const WORD: u16 = 0x20;
const HALF: u16 = 0x28;
const BYTE: u16 = 0x30;
const HALF_BEHIND_HEADER: u16 = 0x48;
const LOAD_HEADER_LEN: u16 = 0xb1;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

// Offsets of metadata of the packet (linux/filter.h).
const PACKET_TYPE: u32 = 0xffff_f004;
const INTERFACE: u32 = 0xffff_f008;

/// Packet type of a packet to this host.
const TO_US: u32 = 0;
/// Packet type of a frame to another host.
const TO_OTHER_HOST: u32 = 3;
/// Bits of the packet types that are not those of received frames (linux/if_packet.h): 4 and above, such as
/// frames that this host sends.
const NOT_RECEIVED: u32 = !3;
const ESP: u32 = 50;
const AH: u32 = 51;

const V4: [Step; 9] = {
    const ICMP: u32 = 1;
    const LATER_FRAGMENT: u32 = 0x1fff;
    // Type 3, code 4.
    const FRAGMENTATION_NEEDED: u32 = 0x0304;
    [
        // The protocol. Every fragment has it.
        Step::Load(BYTE, 9),
        Step::KeepIf(ESP),
        Step::KeepIf(AH),
        Step::DropUnless(ICMP),
        Step::Load(HALF, 6),
        Step::DropIfAnyBit(LATER_FRAGMENT),
        Step::Load(LOAD_HEADER_LEN, 0),
        Step::Load(HALF_BEHIND_HEADER, 0),
        Step::KeepIf(FRAGMENTATION_NEEDED),
    ]
};

const V6: [Step; 14] = {
    const HOP_BY_HOP: u32 = 0;
    const ROUTING: u32 = 43;
    const FRAGMENT: u32 = 44;
    const ICMPV6: u32 = 58;
    const DESTINATION: u32 = 60;
    const PACKET_TOO_BIG: u32 = 2;
    [
        // The first next header field.
        Step::Load(BYTE, 6),
        Step::KeepIf(ESP),
        Step::KeepIf(AH),
        Step::KeepIf(HOP_BY_HOP),
        Step::KeepIf(ROUTING),
        Step::KeepIf(DESTINATION),
        Step::SkipUnless(FRAGMENT, 4),
        // The next header field of the fragment header.
        Step::Load(BYTE, 40),
        Step::KeepIf(ESP),
        Step::KeepIf(AH),
        Step::KeepIf(DESTINATION),
        Step::DropUnless(ICMPV6),
        Step::Load(BYTE, 40),
        Step::KeepIf(PACKET_TOO_BIG),
    ]
};

/// Filter of a packet socket: ESP and AH with their fragments, and "fragmentation needed" or "packet too
/// big"; with IPv6, also packets with extension headers that may hide one of these. Drops packets from
/// interface `tun`, and those of another share.
pub(crate) fn protected_packets(version: IpVersion, tun: u32, share: &SocketShare) -> Vec<SockFilter> {
    let kinds = match version {
        IpVersion::V4 => &V4[..],
        IpVersion::V6 => &V6,
    };
    assemble(&[&from_outside(tun)[..], &share.steps(version), kinds].concat(), u32::MAX)
}

/// Drops every packet.
pub(crate) fn nothing() -> Vec<SockFilter> {
    assemble(&[], u32::MAX)
}

/// Filter of a packet socket for whole ARP frames: those with one of these sender addresses that other hosts
/// sent to this host or to all. At most 100 addresses.
pub(crate) fn arp_from(senders: &[Ipv4Addr]) -> Vec<SockFilter> {
    const ARP_PROTOCOL: u32 = ETHERNET_HEADER_LEN + 2;
    const ARP_SENDER: u32 = ETHERNET_HEADER_LEN + 14;
    const IPV4: u32 = 0x0800;
    let arp = [Step::Load(HALF, ARP_PROTOCOL), Step::DropUnless(IPV4), Step::Load(WORD, ARP_SENDER)];
    let senders = senders.iter().map(|sender| Step::KeepIf(sender.to_bits()));
    assemble(&RECEIVED.into_iter().chain(arp).chain(senders).collect::<Vec<_>>(), u32::MAX)
}

/// Filter of a packet socket for whole IPv6 frames: neighbour advertisements for one of these addresses,
/// without extension headers, that other hosts sent to this host or to a group. At most 28 addresses.
pub(crate) fn advertisements_of(targets: &[Ipv6Addr]) -> Vec<SockFilter> {
    const NEXT_HEADER: u32 = ETHERNET_HEADER_LEN + 6;
    const HOP_LIMIT: u32 = ETHERNET_HEADER_LEN + 7;
    const TYPE_AND_CODE: u32 = ETHERNET_HEADER_LEN + 40;
    const TARGET: u32 = ETHERNET_HEADER_LEN + 48;
    const ICMPV6: u32 = 58;
    // RFC 4861 section 7.1.2: type 136, code 0; a router would have decreased the hop limit.
    let advertisement = [
        Step::Load(BYTE, NEXT_HEADER),
        Step::DropUnless(ICMPV6),
        Step::Load(HALF, TYPE_AND_CODE),
        Step::DropUnless(136 << 8),
        Step::Load(BYTE, HOP_LIMIT),
        Step::DropUnless(255),
    ];
    let of = |target: &Ipv6Addr| {
        let bits = target.to_bits();
        let word = |shift: u32| (bits >> shift) as u32;
        [
            Step::Load(WORD, TARGET),
            Step::SkipUnless(word(96), 6),
            Step::Load(WORD, TARGET + 4),
            Step::SkipUnless(word(64), 4),
            Step::Load(WORD, TARGET + 8),
            Step::SkipUnless(word(32), 2),
            Step::Load(WORD, TARGET + 12),
            Step::KeepIf(word(0)),
        ]
    };
    let targets = targets.iter().flat_map(of);
    assemble(&RECEIVED.into_iter().chain(advertisement).chain(targets).collect::<Vec<_>>(), u32::MAX)
}

/// Drops frames that this host sent, or that are for another host.
const RECEIVED: [Step; 3] =
    [Step::Load(WORD, PACKET_TYPE), Step::DropIf(TO_OTHER_HOST), Step::DropIfAnyBit(NOT_RECEIVED)];
const ETHERNET_HEADER_LEN: u32 = 14;

/// Selects the socket for a UDP port with two sockets: 1, the second one, for urgent packets and for IKE;
/// otherwise 0.
pub(crate) fn reuseport_selector(version: IpVersion, urgent: &UrgentDscps) -> Vec<SockFilter> {
    // The non-ESP marker of IKE messages, four zeros (RFC 3948 section 2.2). A keepalive is shorter; the load
    // fails and the result is 0.
    let is_ike = [Step::Load(WORD, 0), Step::KeepIf(0)];
    assemble(&[&is_ike[..], &urgent.keep_steps(version)].concat(), 1)
}

fn from_outside(tun: u32) -> [Step; 4] {
    [Step::Load(WORD, PACKET_TYPE), Step::DropUnless(TO_US), Step::Load(WORD, INTERFACE), Step::DropIf(tun)]
}

/// There are 64 DSCPs, with one step each, and a few other steps. A jump of classic BPF has 8 bits.
const FITS_JUMP: &str = "a filter has fewer steps than a jump can skip";

/// Assembles one instruction for each step, then "drop" and "keep". "Keep" returns `kept`.
fn assemble(steps: &[Step], kept: u32) -> Vec<SockFilter> {
    let mut program = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        // Steps between this one and the end.
        let behind = steps.len().saturating_sub(index).saturating_sub(1);
        let drop = u8::try_from(behind).or_broken(FITS_JUMP, u8::MAX);
        let keep = drop.checked_add(1).or_broken(FITS_JUMP, u8::MAX);
        program.push(match *step {
            Step::Load(code, operand) => SockFilter::new(code, 0, 0, operand),
            Step::KeepIf(value) => SockFilter::new(JUMP_IF_EQUAL, keep, 0, value),
            Step::DropIf(value) => SockFilter::new(JUMP_IF_EQUAL, drop, 0, value),
            Step::DropUnless(value) => SockFilter::new(JUMP_IF_EQUAL, 0, drop, value),
            Step::DropIfAnyBit(bits) => SockFilter::new(JUMP_IF_ANY_BIT, drop, 0, bits),
            Step::SkipUnless(value, count) => SockFilter::new(JUMP_IF_EQUAL, 0, count, value),
            Step::SkipIf(value, count) => SockFilter::new(JUMP_IF_EQUAL, count, 0, value),
        });
    }
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program.push(SockFilter::new(RETURN, 0, 0, kept));
    program
}

/// `A &= k` (linux/bpf_common.h).
const AND: u16 = 0x54;
/// Added to an offset, makes it relative to the IP header wherever the packet begins for the program
/// (linux/filter.h).
const FROM_IP_HEADER: u32 = 0xfff0_0000;

/// The DSCPs of the most urgent class; at least one.
#[derive(Debug, Clone)]
pub(crate) struct UrgentDscps(Vec<Dscp>);

/// The share of the packets that a socket receives.
#[derive(Debug)]
pub(crate) enum SocketShare {
    /// All packets.
    All,
    /// Urgent packets.
    Urgent(UrgentDscps),
    /// All other packets.
    Rest(UrgentDscps),
}

impl UrgentDscps {
    /// The urgent DSCPs of a table; `None` if there are none.
    pub(crate) fn of(table: &DscpTable) -> Option<Self> {
        let all = (0..=u8::MAX).map_while(Dscp::new);
        let points: Vec<Dscp> = all.filter(|dscp| table.class_of(*dscp) == Class::LowLatency).collect();
        (!points.is_empty()).then_some(Self(points))
    }

    /// Steps that keep urgent packets; other packets continue. For programs that do not begin at the IP
    /// header.
    fn keep_steps(&self, version: IpVersion) -> Vec<Step> {
        let keep = |dscp: &Dscp| Step::KeepIf(dscp_field(version, *dscp));
        load_dscp(version, FROM_IP_HEADER).into_iter().chain(self.0.iter().map(keep)).collect()
    }
}

impl SocketShare {
    /// The shares of all sockets, in the order in which the sockets are read.
    pub(crate) fn all(urgent: Option<&UrgentDscps>) -> Vec<Self> {
        match urgent {
            Some(urgent) => vec![Self::Urgent(urgent.clone()), Self::Rest(urgent.clone())],
            None => vec![Self::All],
        }
    }

    /// Steps that drop packets of another share; packets of this share continue. For programs that begin at
    /// the IP header.
    fn steps(&self, version: IpVersion) -> Vec<Step> {
        let mut steps = load_dscp(version, 0).to_vec();
        match self {
            Self::All => return Vec::new(),
            Self::Rest(UrgentDscps(points)) => {
                steps.extend(points.iter().map(|dscp| Step::DropIf(dscp_field(version, *dscp))));
            }
            Self::Urgent(UrgentDscps(points)) => {
                let Some((last, others)) = points.split_last() else { return Vec::new() };
                for (at, dscp) in (0u8..).zip(others) {
                    let remaining = u8::try_from(others.len()).ok().and_then(|count| count.checked_sub(at));
                    let remaining = remaining.or_broken(FITS_JUMP, u8::MAX);
                    steps.push(Step::SkipIf(dscp_field(version, *dscp), remaining));
                }
                steps.push(Step::DropUnless(dscp_field(version, *last)));
            }
        }
        steps
    }
}

/// Loads the field with the DSCP and clears its other bits.
fn load_dscp(version: IpVersion, from: u32) -> [Step; 2] {
    match version {
        IpVersion::V4 => [Step::Load(BYTE, from | 1), Step::Load(AND, 0xfc)],
        IpVersion::V6 => [Step::Load(HALF, from), Step::Load(AND, 0x0fc0)],
    }
}

/// The loaded value of a packet with this DSCP.
fn dscp_field(version: IpVersion, dscp: Dscp) -> u32 {
    let shift = match version {
        IpVersion::V4 => 2,
        IpVersion::V6 => 6,
    };
    u32::from(dscp.value()) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::io::Read;

    /// Whether the kernel keeps the packet when it runs the filter. A local socket replaces the packet
    /// socket; it has no interface, so steps that load the interface drop the packet.
    fn keeps(steps: &[Step], packet: &[u8]) -> bool {
        let (sender, receiver) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        receiver.attach_filter(&assemble(steps, u32::MAX)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        // The kernel reports already to the sender that a filter dropped a datagram.
        let _ = sender.send(packet);
        let mut buffer = [0; 100];
        (&receiver).read(&mut buffer).is_ok_and(|len| buffer[..len] == *packet)
    }

    fn v4_packet(protocol: u8, fragment: u16, icmp: [u8; 2]) -> Vec<u8> {
        let mut packet = vec![0; 28];
        (packet[0], packet[9]) = (0x46, protocol);
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[24..26].copy_from_slice(&icmp);
        packet
    }

    #[test]
    fn the_v4_filter_keeps_ipsec_and_path_mtu_messages() {
        for (protocol, fragment, icmp, kept) in [
            (50, 0, [0, 0], true),
            (51, 0, [0, 0], true),
            (50, 0x2000, [0, 0], true),
            (51, 5, [0, 0], true),
            (1, 0, [3, 4], true),
            (1, 0, [3, 1], false),
            (1, 0, [8, 0], false),
            (1, 7, [3, 4], false),
            (6, 0, [3, 4], false),
            (17, 0, [0, 0], false),
        ] {
            let packet = v4_packet(protocol, fragment, icmp);
            assert_eq!(keeps(&V4, &packet), kept, "protocol {protocol} fragment {fragment:x} icmp {icmp:?}");
        }
        assert!(!keeps(&V4, &[0x45; 9]), "too short for the protocol field");
    }

    #[test]
    fn the_v6_filter_keeps_ipsec_path_mtu_messages_and_extension_headers() {
        for (next, first, kept) in [
            (50, 9, true),
            (51, 9, true),
            (0, 9, true),
            (43, 9, true),
            (60, 9, true),
            (44, 50, true),
            (44, 51, true),
            (44, 60, true),
            (44, 17, false),
            (44, 2, false),
            (58, 2, true),
            (58, 128, false),
            (58, 50, false),
            (6, 2, false),
            (17, 50, false),
        ] {
            let mut packet = vec![0; 48];
            (packet[0], packet[6], packet[40]) = (0x60, next, first);
            assert_eq!(keeps(&V6, &packet), kept, "next header {next}, first byte behind the header {first}");
        }
    }

    #[test]
    fn packets_without_interface_are_dropped() {
        // Without an interface the kernel ends the program with "drop".
        let packet = v4_packet(50, 0, [0, 0]);
        assert!(!keeps(&[&from_outside(3)[..], &V4].concat(), &packet));
    }

    /// A frame of zeros in which these bytes stand at these offsets behind the Ethernet header.
    fn frame(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut frame = vec![0; 90];
        for (at, bytes) in fields {
            frame[14 + at..][..bytes.len()].copy_from_slice(bytes);
        }
        frame
    }

    /// Whether the kernel keeps the frame. A local socket has no packet types other than 0.
    fn keeps_frame(filter: &[SockFilter], frame: &[u8]) -> bool {
        let (sender, receiver) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        receiver.attach_filter(filter).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let _ = sender.send(frame);
        (&receiver).read(&mut [0; 100]).is_ok_and(|len| len == frame.len())
    }

    #[test]
    fn the_arp_filter_keeps_what_other_hosts_say_of_the_addresses() {
        let addrs = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 1, 0, 1)];
        let filter = arp_from(&addrs);
        for (protocol, sender, target, kept) in [
            (0x0800u16, addrs[0], addrs[0], true),
            (0x0800, addrs[1], [192, 0, 2, 7].into(), true),
            (0x0800, [192, 0, 2, 7].into(), addrs[0], false),
            (0x0800, Ipv4Addr::UNSPECIFIED, addrs[0], false),
            (0x0806, addrs[0], addrs[0], false),
        ] {
            let fields: [(usize, &[u8]); 3] =
                [(2, &protocol.to_be_bytes()), (14, &sender.octets()), (24, &target.octets())];
            assert_eq!(keeps_frame(&filter, &frame(&fields)), kept, "{protocol:x} {sender} {target}");
        }
        assert!(!keeps_frame(&filter, &frame(&[(2, &[8, 0]), (14, &addrs[0].octets())])[..30]), "too short");
        assert!(!keeps_frame(&arp_from(&[]), &frame(&[(2, &[8, 0])])));
    }

    #[test]
    fn the_filter_of_advertisements_keeps_those_of_the_addresses() {
        let addrs: Vec<Ipv6Addr> = (1..=16).map(|n| Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)).collect();
        let filter = advertisements_of(&addrs);
        let advertisement = |next, hops, kind, target: Ipv6Addr| {
            frame(&[(6, &[next, hops]), (40, &[kind, 0]), (48, &target.octets())])
        };
        for addr in &addrs {
            assert!(keeps_frame(&filter, &advertisement(58, 255, 136, *addr)), "{addr}");
            for word in 0..4 {
                let other = Ipv6Addr::from_bits(addr.to_bits() ^ 1 << (32 * word + 31));
                assert!(!keeps_frame(&filter, &advertisement(58, 255, 136, other)), "{other}");
            }
        }
        assert!(!keeps_frame(&filter, &advertisement(17, 255, 136, addrs[0])), "UDP");
        assert!(!keeps_frame(&filter, &advertisement(58, 254, 136, addrs[0])), "from behind a router");
        assert!(!keeps_frame(&filter, &advertisement(58, 255, 135, addrs[0])), "solicitation");
        let mut coded = advertisement(58, 255, 136, addrs[0]);
        coded[55] = 1;
        assert!(!keeps_frame(&filter, &coded), "code");
        let most = advertisements_of(&vec![addrs[0]; 28]);
        assert!(keeps_frame(&most, &advertisement(58, 255, 136, addrs[0])), "the longest filter");
    }

    #[test]
    fn nothing_passes_the_filter_of_a_socket_that_does_not_receive() {
        assert!(!keeps_frame(&nothing(), &frame(&[(0, &[1])])));
    }

    #[test]
    fn every_packet_is_in_exactly_one_share() {
        let table = DscpTable::default();
        let urgent = UrgentDscps::of(&table).unwrap();
        let [first, rest] = &SocketShare::all(Some(&urgent))[..] else { unreachable!() };
        for version in [IpVersion::V4, IpVersion::V6] {
            for dscp in (0..64).filter_map(Dscp::new) {
                let mut packet = vec![7; 40];
                match version {
                    IpVersion::V4 => packet[1] = dscp.value() << 2 | 3,
                    IpVersion::V6 => {
                        (packet[0], packet[1]) = (0x60 | dscp.value() >> 2, dscp.value() << 6 | 0x3f)
                    }
                }
                // The steps behind those of the share keep every packet.
                let end = [Step::Load(BYTE, 0), Step::KeepIf(packet[0].into())];
                let receives =
                    |share: &SocketShare| keeps(&[&share.steps(version)[..], &end].concat(), &packet);
                let is_urgent = table.class_of(dscp) == Class::LowLatency;
                assert_eq!(
                    (receives(first), receives(rest)),
                    (is_urgent, !is_urgent),
                    "{version:?} {dscp:?}"
                );
                assert!(receives(&SocketShare::All));
            }
        }
        assert!(UrgentDscps::of(&DscpTable::ALL_STANDARD).is_none());
        assert!(matches!(SocketShare::all(None)[..], [SocketShare::All]));
    }
}
