//! Link between the two peers.
//!
//! ```text
//!     our side: namespace, 10.9.0.1 fd09::1 on tap0          guest: 10.9.0.2 fd09::2 on eth0
//!     10.99.1.1 fd99:1::1 on lo   ------- 1500 bytes -------  10.99.2.1 fd99:2::1 on lo
//! ```
//!
//! With a device or a second kernel in place of the gateway, the namespace has a bridge between two TAP
//! interfaces and no address.

use crate::case::Family;
use crate::xfrm::Side;
use casemate_interop::{Netns, Result};

/// TAP interface of the guest.
pub(crate) const GUEST_TAP: &str = "tap0";
/// TAP interface of the device or the second kernel that replaces the gateway.
pub(crate) const SECOND_TAP: &str = "tap1";

/// Namespace that is our side of the link.
pub(crate) fn to_namespace() -> Result<Netns> {
    let netns = Netns::new()?;
    let addresses = addresses(GUEST_TAP, Side::Ours);
    netns.ip(&format!(
        "tuntap add dev {GUEST_TAP} mode tap\nlink set {GUEST_TAP} address {} addrgenmode none\n\
         link set {GUEST_TAP} up\n{addresses}",
        Side::Ours.mac()
    ))?;
    Ok(netns)
}

/// Namespace that only connects two guests.
pub(crate) fn between_guests() -> Result<Netns> {
    let netns = Netns::new()?;
    let mut lines = String::from("link add br0 type bridge\nlink set br0 addrgenmode none up\n");
    for tap in [GUEST_TAP, SECOND_TAP] {
        lines.push_str(&format!(
            "tuntap add dev {tap} mode tap\nlink set {tap} master br0 addrgenmode none up\n"
        ));
    }
    netns.ip(&lines)?;
    Ok(netns)
}

/// Commands for the addresses of one side, and for the Ethernet address of the other side: neighbour
/// discovery would match the tested policies.
pub(crate) fn addresses(interface: &str, side: Side) -> String {
    let peer = side.other();
    let mut lines = String::new();
    for (family, link, host) in [(Family::V4, 24, 32), (Family::V6, 64, 128)] {
        lines.push_str(&format!("addr add {}/{link} dev {interface}{}\n", side.link(family), no_dad(family)));
        lines.push_str(&format!("addr add {}/{host} dev lo{}\n", side.behind(family), no_dad(family)));
        lines.push_str(&format!("neigh add {} lladdr {} dev {interface}\n", peer.link(family), peer.mac()));
    }
    lines
}

/// Commands for routes to the networks behind the tunnel: a kernel looks up a route before its policies.
pub(crate) fn routes(side: Side) -> String {
    let peer = side.other();
    let route = |family| {
        format!(
            "ip route add {} via {} src {}\n",
            peer.behind(family),
            peer.link(family),
            side.behind(family)
        )
    };
    route(Family::V4) + &route(Family::V6)
}

fn no_dad(family: Family) -> &'static str {
    if family == Family::V6 { " nodad" } else { "" }
}
