//! A BPF program by which the kernel sorts packets into the queues of a TUN interface, one queue for each
//! class.
//!
//! When packets arrive faster than they can be protected, the kernel drops packets, which costs nothing. But
//! a queue that all packets share would also drop voice. So a program in the kernel classifies each packet as
//! a [`Classifier`] does and returns the queue of its class. The program is eBPF, assembled here
//! (`assembler`, `program`), without a compiler and without a file. The classifier runs again when the packet
//! is read, which corrects what the program cannot see. docs/decisions/0034-gateway-scheduler.md has the
//! reasons.

mod assembler;
mod program;

pub(crate) use assembler::Instruction;

use crate::sys;
use casemate_sched::Classifier;
use std::io;
use std::os::fd::OwnedFd;

/// Loads the program of a classifier. The program returns the [index](casemate_sched::Class::index) of the
/// class of a packet.
///
/// Fails if the process may not load programs (CAP_BPF), and if the classifier has thousands of rules, more
/// than a program can hold.
pub(crate) fn load(classifier: &Classifier) -> io::Result<OwnedFd> {
    let program = program::of(classifier)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too many rules for a BPF program"))?;
    sys::bpf_load(&program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf_run;
    use casemate_sa::{AddrRange, PortRange, Selector};
    use casemate_sched::{Class, DscpTable, Rule};
    use casemate_wire::dscp::Dscp;
    use casemate_wire::flow::HeaderSummary;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::os::fd::AsFd;

    /// The result of the program for a packet.
    fn steered(program: &OwnedFd, packet: &[u8]) -> usize {
        let kind: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let frame = [&[0; 12][..], &kind, packet].concat();
        bpf_run(program.as_fd(), &frame).unwrap() as usize
    }

    /// `None` where tests may not load programs. A program that the verifier rejects is a failure.
    fn loaded(classifier: &Classifier) -> Option<OwnedFd> {
        match load(classifier) {
            Ok(program) => Some(program),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                casemate_test_support::skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Few different addresses, so that rules match packets.
    fn address(v4: bool, number: u8) -> IpAddr {
        if v4 {
            return Ipv4Addr::new(10 + number / 8 % 4 * 80, 0, 0, number % 8).into();
        }
        let upper = [0, 1, 0x8000_0000_0000_0000, u64::MAX][usize::from(number / 8 % 4)];
        let lower =
            [0, 1, 2, 0x7fff_ffff_ffff_ffff, 1 << 63, u64::MAX - 1, u64::MAX, 5][usize::from(number % 8)];
        Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower)).into()
    }

    fn range(v4: bool, a: u8, b: u8) -> AddrRange {
        let (a, b) = (address(v4, a), address(v4, b));
        match (a < b, v4) {
            (true, _) => AddrRange::new(a, b).unwrap(),
            (false, true) => AddrRange::ANY_V4,
            (false, false) => AddrRange::ANY_V6,
        }
    }

    prop_compose! {
        fn ports()(a in 0u16..6, b in 0u16..6) -> PortRange {
            PortRange::new(a * 13_107, b * 13_107).unwrap_or(PortRange::ANY)
        }
    }

    fn protocol() -> impl Strategy<Value = u8> {
        prop::sample::select(vec![6u8, 17, 1, 58, 132, 135, 136, 33, 50])
    }

    prop_compose! {
        fn rule()(
            v4 in any::<bool>(),
            src in any::<(u8, u8)>(),
            dst in any::<(u8, u8)>(),
            // In a later fragment, the next header field may name an extension header, which is not a
            // protocol.
            proto in prop::option::of(prop_oneof![protocol(), Just(60)]),
            src_port in ports(),
            dst_port in ports(),
            class in 0usize..5,
        ) -> Rule {
            let (src, dst) = (range(v4, src.0, src.1), range(v4, dst.0, dst.1));
            Rule { selector: Selector { src, dst, proto, src_port, dst_port }, class: Class::ALL[class] }
        }
    }

    prop_compose! {
        fn classifier()(
            rules in prop::collection::vec(rule(), 0..6),
            points in prop::option::of(prop::collection::vec((0u8..64, 0usize..5), 0..20)),
        ) -> Classifier {
            let mut table = DscpTable::default();
            if let Some(points) = points {
                table = DscpTable::ALL_STANDARD;
                for (dscp, class) in points {
                    table.assign(Dscp::new(dscp).unwrap(), Class::ALL[class]);
                }
            }
            Classifier::new(rules, table)
        }
    }

    prop_compose! {
        /// With options, as a fragment, and too short for its ports.
        fn v4_packet()(
            tos in any::<u8>(),
            words in 5u8..9,
            fragment in prop::sample::select(vec![0u16, 0x4000, 0x2000, 0x2005, 7, 0x1000]),
            proto in protocol(),
            (src, dst) in any::<(u8, u8)>(),
            upper in prop::collection::vec(any::<u8>(), 0..12),
        ) -> Vec<u8> {
            let len = usize::from(words) * 4 + upper.len();
            let mut packet = vec![0; usize::from(words) * 4];
            packet[0..2].copy_from_slice(&[0x40 | words, tos]);
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[6..8].copy_from_slice(&fragment.to_be_bytes());
            packet[8..10].copy_from_slice(&[64, proto]);
            for (at, number) in [(12, src), (16, dst)] {
                let IpAddr::V4(addr) = address(true, number) else { unreachable!() };
                packet[at..at + 4].copy_from_slice(&addr.octets());
            }
            packet.extend(upper);
            packet
        }
    }

    prop_compose! {
        /// With up to four extension headers.
        fn v6_packet()(
            tos in any::<u8>(),
            kinds in prop::collection::vec(prop::sample::select(vec![43u8, 44, 60]), 0..5),
            is_first_hop in any::<bool>(),
            units in 0u8..3,
            fragment in prop::sample::select(vec![0u16, 1, 8, 9]),
            proto in protocol(),
            (src, dst) in any::<(u8, u8)>(),
            upper in prop::collection::vec(any::<u8>(), 0..12),
        ) -> Vec<u8> {
            let mut kinds = kinds;
            if let (true, Some(first)) = (is_first_hop, kinds.first_mut()) {
                *first = 0;
            }
            let next_header = kinds.first().copied().unwrap_or(proto);
            let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, next_header, 64];
            for number in [src, dst] {
                let IpAddr::V6(addr) = address(false, number) else { unreachable!() };
                packet.extend(addr.octets());
            }
            for (at, kind) in kinds.iter().enumerate() {
                let next = kinds.get(at + 1).copied().unwrap_or(proto);
                let mut header = vec![next, 0];
                if *kind == 44 {
                    header.extend(fragment.to_be_bytes());
                    header.extend([0; 4]);
                } else {
                    header[1] = units;
                    // Padding options; or a routing header of an unknown type.
                    header.extend([1, units * 8 + 4]);
                    header.resize(usize::from(units) * 8 + 8, 0);
                }
                packet.extend(header);
            }
            packet.extend(upper);
            let len = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
            packet
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// The program must return what the classifier returns for the parsed packet.
        #[test]
        fn the_program_agrees_with_the_classifier(
            classifier in classifier(),
            packets in prop::collection::vec(prop_oneof![v4_packet(), v6_packet()], 16),
        ) {
            let Some(program) = loaded(&classifier) else { return Ok(()) };
            for packet in packets {
                let Ok(overview) = HeaderSummary::parse(&packet) else { continue };
                prop_assert_eq!(steered(&program, &packet), classifier.classify(&overview).index(), "{:?}", packet);
            }
        }

        /// Random bytes get a queue, too.
        #[test]
        fn every_packet_gets_a_queue(bytes in prop::collection::vec(any::<u8>(), 40..80)) {
            let Some(program) = loaded(&Classifier::default()) else { return Ok(()) };
            prop_assert!(steered(&program, &bytes) < Class::ALL.len());
        }
    }

    #[test]
    fn the_verifier_takes_many_rules_and_too_many_are_an_error() {
        let of = |count: u32| {
            let range = |n: u32| AddrRange::single(Ipv6Addr::from_bits(u128::from(n) << 60).into());
            let rules: Vec<Rule> = (0..count)
                .map(|n| Selector {
                    proto: Some(17),
                    src_port: PortRange::single(7),
                    ..Selector::between(range(n), range(n))
                })
                .map(|selector| Rule { selector, class: Class::Least })
                .collect();
            Classifier::new(rules, DscpTable::default())
        };
        assert!(program::of(&of(2_000)).is_none());
        let _ = loaded(&of(600));
    }
}
