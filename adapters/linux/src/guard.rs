//! A packet filter that keeps clear text off the wire where policy demands protection (RFC 4301 section 5).
//!
//! Routes lead the host's traffic into the TUN interface, but a socket bound to another interface goes past them, and
//! clear text that arrives from outside never meets the data path. So the two SPDs stand once more in nftables, as far as
//! they concern clear text. Written as a script for `nft -f -`.

use casemate_datapath::spd::{Action, Policy};
use casemate_sa::{PortRange, Selector};
use std::fmt::{self, Write as _};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Protocols whose header begins with two ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// What the script is made from.
#[derive(Debug)]
pub(crate) struct GuardSpec<'a> {
    /// The TUN interface, behind which everything is in order.
    pub(crate) tun: &'a str,
    /// What our own packets carry.
    pub(crate) mark: u32,
    /// UDP ports on which ESP arrives.
    pub(crate) encap_ports: &'a [u16],
    /// The policies for packets that leave, the first that decides first.
    pub(crate) outbound: &'a [&'a Policy],
    /// The policies for packets that come in.
    pub(crate) inbound: &'a [&'a Policy],
}

/// The table's name, one for each TUN interface.
pub(crate) fn table_name(tun: &str) -> String {
    format!("casemate_{tun}")
}

/// The whole table.
pub(crate) fn script(spec: &GuardSpec<'_>) -> String {
    let (table, tun, mark) = (table_name(spec.tun), spec.tun, spec.mark);
    let mut text = format!("table inet {table} {{\n");
    chain(&mut text, "in", "prerouting");
    let _ = writeln!(text, "    iifname {{ \"{tun}\", \"lo\" }} accept");
    text.push_str("    meta l4proto { esp, ah } accept\n");
    if !spec.encap_ports.is_empty() {
        let ports: Vec<String> = spec.encap_ports.iter().map(u16::to_string).collect();
        let _ = writeln!(text, "    udp dport {{ {} }} accept", ports.join(", "));
    }
    // A later fragment shows no port, and is worth nothing without the first one.
    text.push_str("    ip frag-off & 0x1fff != 0 accept\n    frag frag-off != 0 accept\n");
    text.push_str(NEIGHBOUR_DISCOVERY);
    policies(&mut text, spec.inbound);
    text.push_str("  }\n");
    chain(&mut text, "out", "postrouting");
    let _ = writeln!(text, "    oifname {{ \"{tun}\", \"lo\" }} accept\n    meta mark {mark} accept");
    text.push_str(NEIGHBOUR_DISCOVERY);
    policies(&mut text, spec.outbound);
    text.push_str("  }\n}\n");
    text
}

/// Without it a link is no link. Hop limit 255 shows that it was not routed (RFC 4861 section 6.1).
const NEIGHBOUR_DISCOVERY: &str = "    icmpv6 type 133-137 ip6 hoplimit 255 accept\n";

fn chain(text: &mut String, name: &str, hook: &str) {
    let _ = writeln!(text, "  chain {name} {{\n    type filter hook {hook} priority -300; policy accept;");
}

/// One rule for each policy, in their order.
fn policies(text: &mut String, policies: &[&Policy]) {
    for policy in policies {
        text.push_str("    ");
        matching(text, &policy.selector);
        text.push_str(match policy.action {
            Action::Bypass => "accept\n",
            Action::Discard | Action::Protect(_) => "counter drop\n",
        });
    }
}

/// The selector as nft's matching expressions, each with a space behind it.
fn matching(text: &mut String, selector: &Selector) {
    let ip = if selector.src.is_ipv4() { "ip" } else { "ip6" };
    // A range is shown as nft writes it: a prefix, or first and last address.
    let _ = write!(text, "{ip} saddr {} {ip} daddr {} ", selector.src, selector.dst);
    let Some(protocol) = selector.proto else { return };
    let _ = write!(text, "meta l4proto {protocol} ");
    let names = match protocol {
        ICMP => ["icmp type", "icmp code"],
        ICMPV6 => ["icmpv6 type", "icmpv6 code"],
        _ if WITH_PORTS.contains(&protocol) => ["th sport", "th dport"],
        _ => return,
    };
    for (name, range) in names.into_iter().zip([selector.src_port, selector.dst_port]) {
        if !range.is_any() {
            let _ = write!(text, "{name} {} ", Ports(range, protocol));
        }
    }
}

/// Ports, types or codes, and the protocol they belong to.
struct Ports(PortRange, u8);

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Types and codes of ICMP have 8 bits; nft refuses more.
        let limit = if matches!(self.1, ICMP | ICMPV6) { 255 } else { u16::MAX };
        let (first, last) = (self.0.first().min(limit), self.0.last().min(limit));
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}
