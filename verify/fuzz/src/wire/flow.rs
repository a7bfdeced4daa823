//! Selectors that the SPD reads from a packet.

use crate::Target;
use casemate_datapath::ecn::Ecn;
use casemate_test_support::hosts::{Ends, packets};
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::{FlowKey, FlowPorts, FragmentKind, HeaderSummary};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6, proto};
use core::net::IpAddr;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

pub(crate) const TARGET: Target = Target {
    name: "flow",
    about: "flow keys: same result as a naive reading of the headers; equal flows have equal keys",
    max_len: 256,
    run,
    seeds,
    dictionary: &[],
};

static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn run(bytes: &[u8]) {
    let (whole, quoted) = (FlowKey::parse(bytes), FlowKey::parse_quoted(bytes));
    assert!(quoted.is_ok() || whole.is_err(), "a complete packet can be quoted");
    if let Ok(key) = whole {
        assert_eq!(quoted, Ok(key));
    }
    check_ecn(bytes);
    check_overview(bytes);
    for (key, is_whole) in [(whole, true), (quoted, false)] {
        assert_eq!(key.is_ok(), read_selectors(bytes, is_whole).is_some());
        let (Ok(key), Some(selectors)) = (key, read_selectors(bytes, is_whole)) else { continue };
        assert_eq!(Selectors::of(&key), selectors);
        assert_eq!(Ok(key.version()), ip::version(bytes));
        let rebuilt = match (selectors.addrs, selectors.proto, selectors.ports, selectors.fragment) {
            ((IpAddr::V4(src), IpAddr::V4(dst)), Some(proto), Some(ports), FragmentKind::Whole) => {
                FlowKey::v4(src, dst, proto, ports)
            }
            ((IpAddr::V6(src), IpAddr::V6(dst)), Some(proto), Some(ports), FragmentKind::Whole) => {
                FlowKey::v6(src, dst, proto, ports)
            }
            _ => continue,
        };
        let rebuilt = rebuilt.with_dscp(key.dscp());
        assert_eq!(rebuilt, key);
        assert_eq!(HASH.hash_one(rebuilt), HASH.hash_one(key));
    }
}

/// Checks the additional fields against the IP header.
fn check_overview(bytes: &[u8]) {
    let Ok(overview) = HeaderSummary::parse(bytes) else { return assert!(FlowKey::parse(bytes).is_err()) };
    let header = match overview.key.version() {
        IpVersion::V4 => {
            let ip = Ipv4::parse(bytes).unwrap();
            (usize::from(ip.total_len()), ip.tos(), ip.df())
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(bytes).unwrap();
            (ip.total_len(), ip.traffic_class(), true)
        }
    };
    assert_eq!((overview.total_len(), overview.tos(), overview.df()), header);
}

/// Reads and writes the ECN field of both IP versions.
fn check_ecn(bytes: &[u8]) {
    let Ok(ecn) = Ecn::from_packet(bytes) else { return };
    let mut copy = bytes.to_vec();
    for mark in [Ecn::Ce, Ecn::NotEct, ecn] {
        mark.write_to(&mut copy).unwrap();
        assert_eq!(Ecn::from_packet(&copy), Ok(mark));
    }
    // The IPv4 checksum may have changed from one zero to the other.
    if copy[0] >> 4 == 4 && copy[10..12] != bytes[10..12] {
        assert!(matches!((&copy[10..12], &bytes[10..12]), ([0, 0] | [255, 255], [0, 0] | [255, 255])));
        copy[10..12].copy_from_slice(&bytes[10..12]);
    }
    assert_eq!(copy, bytes);
}

#[derive(Debug, PartialEq)]
struct Selectors {
    addrs: (IpAddr, IpAddr),
    proto: Option<u8>,
    ports: Option<FlowPorts>,
    fragment: FragmentKind,
    dscp: Dscp,
}

impl Selectors {
    fn of(key: &FlowKey) -> Self {
        let bits = |addr: IpAddr| match addr {
            IpAddr::V4(addr) => addr.to_bits().into(),
            IpAddr::V6(addr) => addr.to_bits(),
        };
        assert_eq!((key.src_bits(), key.dst_bits()), (bits(key.src()), bits(key.dst())));
        let (proto, ports, fragment) = (key.proto(), key.ports(), key.fragment());
        Self { addrs: (key.src(), key.dst()), proto, ports, fragment, dscp: key.dscp() }
    }
}

/// Reads the selectors in a straightforward way.
fn read_selectors(bytes: &[u8], is_whole: bool) -> Option<Selectors> {
    let (addrs, tos, proto, upper, (offset, more)): ((IpAddr, IpAddr), _, _, _, _) =
        match ip::version(bytes).ok()? {
            IpVersion::V4 => {
                let ip = if is_whole { Ipv4::parse(bytes) } else { Ipv4::parse_quoted(bytes) }.ok()?;
                let end = bytes.len().min(ip.total_len().into());
                let upper = bytes[..end].get(ip.header_len()..).unwrap_or_default();
                let piece = (ip.frag_offset(), ip.mf());
                ((ip.src().into(), ip.dst().into()), ip.tos(), Some(ip.protocol()), upper, piece)
            }
            IpVersion::V6 => {
                let ip = if is_whole { Ipv6::parse(bytes) } else { Ipv6::parse_quoted(bytes) }.ok()?;
                let chain = ip.chain().ok()?;
                let fragment = chain.fragment.map_or((0, false), |fragment| (fragment.offset, fragment.more));
                let end = bytes.len().min(ip.total_len());
                let upper = bytes[..end].get(chain.last.at..).unwrap_or_default();
                ((ip.src().into(), ip.dst().into()), ip.traffic_class(), chain.upper(), upper, fragment)
            }
        };
    let fragment = match (offset, more) {
        (0, false) => FragmentKind::Whole,
        (0, true) => FragmentKind::First,
        _ => FragmentKind::Later,
    };
    let ports = if fragment == FragmentKind::Later { None } else { ports(proto?, upper) };
    Some(Selectors { addrs, proto, ports, fragment, dscp: Dscp::from_tos(tos) })
}

fn ports(proto: u8, upper: &[u8]) -> Option<FlowPorts> {
    match proto {
        proto::TCP | proto::UDP | proto::UDP_LITE | proto::SCTP | proto::DCCP => {
            let &[a, b, c, d] = upper.first_chunk()?;
            Some(FlowPorts { src: u16::from_be_bytes([a, b]), dst: u16::from_be_bytes([c, d]) })
        }
        proto::ICMP | proto::ICMPV6 => {
            upper.first_chunk().map(|&[kind, code]| FlowPorts::new(kind.into(), code.into()))
        }
        proto::MOBILITY => upper.get(2).map(|&kind| FlowPorts::new(kind.into(), 0)),
        _ => Some(FlowPorts::NONE),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for version in [4, 6] {
        let (src, dst) = Ends::tunnel(version, version).inner;
        let protocols = [proto::ICMP, proto::TCP, proto::UDP, proto::ICMPV6, proto::ESP, proto::MOBILITY];
        for protocol in protocols {
            seeds.push(packets::ip(src, dst, protocol, &[8, 0, 5, 0, 1, 2, 3, 4], false));
        }
    }
    let plain = seeds[7].clone();
    seeds.push(packets::with_v6_headers(&plain, &[(44, vec![0, 0, 0, 1, 0, 0, 0, 1])]));
    seeds.push(packets::with_v6_headers(&plain, &[(44, vec![0, 0, 0, 8, 0, 0, 0, 1])]));
    seeds.push(packets::with_v6_headers(&plain, &[(0, vec![0, 0, 1, 4, 0, 0, 0, 0])]));
    seeds
}
