//! Bypass policies for the control plane of a host: IKE, DHCP, multicast membership, neighbour discovery.
//!
//! If IPsec runs below the IP stack, a policy such as "protect everything" would also apply to neighbour and
//! address discovery, and to IKE itself (RFC 4301 section 4.4.1: such traffic needs explicit BYPASS entries).

use casemate_datapath::spd::{Action, InsertError, Policy};
use casemate_datapath::{Datapath, Direction};
use casemate_sa::{AddrRange, PortRange, Selector, SpdId};
use casemate_wire::ip::proto;

/// Priority of these policies, before all others by default.
const RANK: u32 = 0;

/// Internet Group Management Protocol.
const IGMP: u8 = 2;

/// Packets to bypass, by protocol and by port or ICMP type. Source and destination are those of outgoing
/// packets.
struct BypassRule {
    v6: bool,
    proto: u8,
    src_port: PortRange,
    dst_port: PortRange,
}

const fn ports(first: u16, last: u16) -> PortRange {
    match PortRange::new(first, last) {
        Some(range) => range,
        None => PortRange::ANY,
    }
}

const fn udp(v6: bool, src: PortRange, dst: PortRange) -> BypassRule {
    BypassRule { v6, proto: proto::UDP, src_port: src, dst_port: dst }
}

const fn icmpv6(types: PortRange) -> BypassRule {
    BypassRule { v6: true, proto: proto::ICMPV6, src_port: types, dst_port: PortRange::ANY }
}

const BYPASS_RULES: [BypassRule; 10] = [
    // IKE on both ports (RFC 7296 section 2).
    udp(false, PortRange::single(500), PortRange::ANY),
    udp(false, PortRange::single(4500), PortRange::ANY),
    udp(true, PortRange::single(500), PortRange::ANY),
    udp(true, PortRange::single(4500), PortRange::ANY),
    // DHCP for IPv4 (RFC 2131 section 4.1) and IPv6 (RFC 8415 section 7.2).
    udp(false, PortRange::single(68), PortRange::single(67)),
    udp(true, PortRange::single(546), PortRange::single(547)),
    // Multicast membership (RFC 3376, RFC 3810).
    BypassRule { v6: false, proto: IGMP, src_port: PortRange::ANY, dst_port: PortRange::ANY },
    icmpv6(ports(130, 132)),
    icmpv6(PortRange::single(143)),
    // Router and neighbour discovery (RFC 4861 section 4).
    icmpv6(ports(133, 137)),
];

impl BypassRule {
    fn policy(&self, direction: Direction) -> Policy {
        let any = if self.v6 { AddrRange::ANY_V6 } else { AddrRange::ANY_V4 };
        let is_icmp = self.proto == proto::ICMPV6;
        // Type and code keep their places in both directions.
        let (src_port, dst_port) = match direction {
            Direction::Inbound if !is_icmp => (self.dst_port, self.src_port),
            _ => (self.src_port, self.dst_port),
        };
        let selector = Selector { src: any, dst: any, proto: Some(self.proto), src_port, dst_port };
        Policy { spd: SpdId::MAIN, selector, action: Action::Bypass, priority: RANK }
    }
}

/// Lets IKE, DHCP, multicast membership and neighbour discovery pass in clear in both directions. Adds ten
/// policies in each direction, or none if there is no room for all.
pub fn bypass_control_plane(datapath: &mut Datapath) -> Result<(), InsertError> {
    let mut added = alloc::vec::Vec::new();
    for direction in [Direction::Outbound, Direction::Inbound] {
        for rule in &BYPASS_RULES {
            match datapath.add_policy(direction, rule.policy(direction)) {
                Ok(id) => added.push((direction, id)),
                Err(error) => {
                    for (direction, id) in added {
                        datapath.remove_policy(direction, id);
                    }
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
