//! The packet filter of the receiving sockets, in the kernel's classic BPF.
//!
//! It keeps what may concern the data path: ESP and AH in whole or in fragments, and ICMP messages about path MTUs. Some
//! decisions are left to the second look in `receive`, for a filter cannot walk a chain of IPv6 extension headers.
//!
//! Where two sockets share what comes, `share` says which packets are whose.

mod share;

pub(crate) use share::{Share, Urgent};

use casemate_wire::ip::IpVersion;
use socket2::SockFilter;

/// One step of a filter. The first that decides, decides; at the end the packet is dropped.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Instruction and operand.
    Load(u16, u32),
    /// Keeps the packet if the loaded value is this one.
    KeepIf(u32),
    /// Drops it if it is this one.
    DropIf(u32),
    /// Drops it unless it is this one.
    DropUnless(u32),
    /// Drops it if the value has any of these bits.
    DropIfAnyBit(u32),
    /// Skips this many steps unless the value is this one.
    SkipUnless(u32, u8),
    /// Skips this many steps if it is this one.
    SkipIf(u32, u8),
}

// Instructions of classic BPF (linux/bpf_common.h).
const WORD: u16 = 0x20;
const HALF: u16 = 0x28;
const BYTE: u16 = 0x30;
const HALF_BEHIND_HEADER: u16 = 0x48;
const HEADER_LEN: u16 = 0xb1;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

// What the kernel knows of a packet beside its bytes (linux/filter.h).
const PACKET_TYPE: u32 = 0xffff_f004;
const INTERFACE: u32 = 0xffff_f008;

/// Packet type of what is addressed to this host.
const TO_US: u32 = 0;
const ESP: u32 = 50;
const AH: u32 = 51;

const V4: [Step; 9] = {
    const ICMP: u32 = 1;
    const LATER_FRAGMENT: u32 = 0x1fff;
    // Type 3 code 4.
    const FRAGMENTATION_NEEDED: u32 = 0x0304;
    [
        // The protocol, which every fragment names.
        Step::Load(BYTE, 9),
        Step::KeepIf(ESP),
        Step::KeepIf(AH),
        Step::DropUnless(ICMP),
        Step::Load(HALF, 6),
        Step::DropIfAnyBit(LATER_FRAGMENT),
        Step::Load(HEADER_LEN, 0),
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
        // What it is a fragment of.
        Step::Load(BYTE, 40),
        Step::KeepIf(ESP),
        Step::KeepIf(AH),
        Step::KeepIf(DESTINATION),
        Step::DropUnless(ICMPV6),
        Step::Load(BYTE, 40),
        Step::KeepIf(PACKET_TOO_BIG),
    ]
};

/// ESP and AH with their fragments, and "fragmentation needed" or "packet too big"; with IPv6, what hides behind extension
/// headers, too. Nothing that comes from interface `tun`, and of the rest this share.
pub(crate) fn protected(version: IpVersion, tun: u32, share: &Share) -> Vec<SockFilter> {
    let kinds = match version {
        IpVersion::V4 => &V4[..],
        IpVersion::V6 => &V6,
    };
    assemble(&[&from_outside(tun)[..], &share.steps(version), kinds].concat(), u32::MAX)
}

/// For a port that two sockets share: 1, the second of them, for what is urgent and for IKE; else 0.
pub(crate) fn port(version: IpVersion, urgent: &Urgent) -> Vec<SockFilter> {
    // Four zeros in front of a message of IKE (RFC 3948 section 2.2). A keepalive is shorter, and then it is 0.
    let is_ike = [Step::Load(WORD, 0), Step::KeepIf(0)];
    assemble(&[&is_ike[..], &urgent.kept(version)].concat(), 1)
}

fn from_outside(tun: u32) -> [Step; 4] {
    [Step::Load(WORD, PACKET_TYPE), Step::DropUnless(TO_US), Step::Load(WORD, INTERFACE), Step::DropIf(tun)]
}

/// One instruction for each step, then "drop" and "keep", which answers `kept`.
fn assemble(steps: &[Step], kept: u32) -> Vec<SockFilter> {
    let mut program = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let drop = u8::try_from(steps.len().saturating_sub(index).saturating_sub(1)).unwrap_or(u8::MAX);
        let keep = drop.saturating_add(1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::io::Read;

    /// Whether the kernel, running the filter, keeps the packet. A local socket stands in for a packet socket; only what
    /// asks for the interface has no answer there.
    pub(super) fn keeps(steps: &[Step], packet: &[u8]) -> bool {
        let (sender, receiver) = Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap();
        receiver.attach_filter(&assemble(steps, u32::MAX)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        // A filtered datagram is refused already when it is sent.
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
    fn v4_keeps_protection_and_path_mtus() {
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
        assert!(!keeps(&V4, &[0x45; 9]), "too short to say");
    }

    #[test]
    fn v6_keeps_protection_path_mtus_and_what_it_cannot_see() {
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
            assert_eq!(keeps(&V6, &packet), kept, "next header {next}, first byte behind {first}");
        }
    }

    #[test]
    fn what_has_no_interface_is_dropped() {
        // No interface at all: the kernel ends the program with "drop".
        let packet = v4_packet(50, 0, [0, 0]);
        assert!(!keeps(&[&from_outside(3)[..], &V4].concat(), &packet));
    }
}
