//! What a host's own network needs in clear: policies for stacks that have IPsec below them.
//!
//! Where packets are guarded below IP, a policy such as "everything to everybody is protected" would catch the messages that find
//! neighbours and addresses, and IKE itself (RFC 4301 section 4.4.1: such traffic needs explicit BYPASS entries).

use casemate_datapath::spd::{Action, InsertError, Policy};
use casemate_datapath::{Datapath, Direction};
use casemate_sa::{AddrRange, PortRange, Selector};
use casemate_wire::ip::proto;

/// Rank of these policies: before all others that nobody ranked otherwise.
const RANK: u32 = 0;

/// Internet Group Management Protocol.
const IGMP: u8 = 2;

/// Which packets, by protocol and by port or ICMP type; oriented as they go out.
struct Chore {
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

const fn udp(v6: bool, src: PortRange, dst: PortRange) -> Chore {
    Chore { v6, proto: proto::UDP, src_port: src, dst_port: dst }
}

const fn icmpv6(types: PortRange) -> Chore {
    Chore { v6: true, proto: proto::ICMPV6, src_port: types, dst_port: PortRange::ANY }
}

const CHORES: [Chore; 10] = [
    // IKE, at both its ports (RFC 7296 section 2).
    udp(false, PortRange::single(500), PortRange::ANY),
    udp(false, PortRange::single(4500), PortRange::ANY),
    udp(true, PortRange::single(500), PortRange::ANY),
    udp(true, PortRange::single(4500), PortRange::ANY),
    // DHCP (RFC 2131 section 4.1), and for IPv6 (RFC 8415 section 7.2).
    udp(false, PortRange::single(68), PortRange::single(67)),
    udp(true, PortRange::single(546), PortRange::single(547)),
    // Multicast membership (RFC 3376, RFC 3810).
    Chore { v6: false, proto: IGMP, src_port: PortRange::ANY, dst_port: PortRange::ANY },
    icmpv6(ports(130, 132)),
    icmpv6(PortRange::single(143)),
    // Routers and neighbours (RFC 4861 section 4).
    icmpv6(ports(133, 137)),
];

impl Chore {
    fn policy(&self, direction: Direction) -> Policy {
        let any = if self.v6 { AddrRange::ANY_V6 } else { AddrRange::ANY_V4 };
        let is_icmp = self.proto == proto::ICMPV6;
        // Type and code stand at the same side in both directions.
        let (src_port, dst_port) = match direction {
            Direction::Inbound if !is_icmp => (self.dst_port, self.src_port),
            _ => (self.src_port, self.dst_port),
        };
        let selector = Selector { src: any, dst: any, proto: Some(self.proto), src_port, dst_port };
        Policy { selector, action: Action::Bypass, priority: RANK }
    }
}

/// Lets IKE, DHCP, multicast membership and neighbour discovery pass in clear, both ways: ten policies in each direction, or
/// none if there is no room for all.
pub fn housekeeping(datapath: &mut Datapath) -> Result<(), InsertError> {
    let mut added = alloc::vec::Vec::new();
    for direction in [Direction::Outbound, Direction::Inbound] {
        for chore in &CHORES {
            match datapath.add_policy(direction, chore.policy(direction)) {
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
