//! The guard: a packet filter in nftables against cleartext that policy wants protected (RFC 4301 sections 5
//! and 7.4).
//!
//! Routes lead the host's traffic into the TUN interface, but a socket bound to another interface goes past them, and
//! clear text that arrives from outside never meets the data path. So the two SPDs stand once more in nftables, as far as
//! they concern clear text. docs/manual/guard.md says what it guarantees.
//!
//! Policies that pass packets are rules, in their order. Between two of them lies a layer: policies that all
//! drop, so that their order means nothing. A layer is two chains, for whole packets and for fragments, with
//! a few sets that hold its policies as elements ([`shape`]). A Child SA brings and takes elements; the
//! chains change when a layer gets a shape that it had not, or loses one. Either way a change is one transaction.
//!
//! | base chain | hook | judges |
//! |---|---|---|
//! | `fragments` | prerouting, before anything in the kernel reassembles | fragments that arrive, by what each of them shows |
//! | `delivered` | input | packets to this host; ESP, AH, IKE and encapsulated ESP pass |
//! | `forwarded` | forward | packets to others; nothing passes that policy wants protected |
//! | `sent` | postrouting | packets that leave; Casemate's own pass by their mark |
//!
//! IPv4 packets to this host are whole in the input hook. The kernel reassembles IPv6 packets behind that
//! hook, so the first fragment is judged before. Later fragments to this host pass: no first fragment of a
//! protected flow has passed, and none waits that came through an SA, because this host gets whole
//! packets only (`Datapath::set_hosts`).

mod shape;
mod side;

use crate::netfilter::Elements;
use crate::rank::{Demand, Purpose, Rank};
use casemate_datapath::Direction;
pub(crate) use shape::{Key, Shape};
pub(crate) use side::SetChange;
use side::Side;
use std::fmt::Write as _;

/// The table's name, one for each TUN interface.
pub(crate) fn table_name(tun: &str) -> String {
    format!("casemate_{tun}")
}

/// What a filter is besides policies.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The TUN interface, behind which everything is in order.
    pub(crate) tun: String,
    /// What our own packets carry.
    pub(crate) mark: u32,
    /// UDP ports on which ESP arrives.
    pub(crate) encap_ports: Vec<u16>,
}

/// The filter that policies ask for, and how far the kernel's differs from it.
#[derive(Debug)]
pub(crate) struct Guard {
    frame: Frame,
    outbound: Side,
    inbound: Side,
    /// The kernel's filter is another one altogether.
    anew: bool,
}

/// How the kernel's filter becomes what is wanted: in one transaction, so that a policy that moves from one set
/// to another is in one of them at any moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// For `nft -f -`.
    Script(String),
    /// Elements that come into sets and leave them, as many as [`Elements::fit`] allows; perhaps none.
    Elements(Vec<SetChange>),
}

/// What differs between the kernel's filter and the one that is wanted.
#[derive(Debug, Default)]
struct Difference {
    /// Sets, chains and rules, for `nft -f -`.
    script: String,
    elements: Vec<SetChange>,
}

impl Difference {
    fn element(&mut self, set: String, (shape, key): (Shape, Key), comes: bool) {
        if self.elements.last().is_none_or(|last| last.set != set) {
            self.elements.push(SetChange { set, shape, add: Vec::new(), remove: Vec::new() });
        }
        if let Some(change) = self.elements.last_mut() {
            if comes { change.add.push(key) } else { change.remove.push(key) }
        }
    }

    /// Everything in one transaction: without `nft` if it is few elements and nothing else.
    fn into_update(mut self, table: &str) -> Update {
        if self.script.is_empty() && Elements::fit(&self.elements) {
            return Update::Elements(self.elements);
        }
        self.elements.iter().for_each(|change| change.write(table, &mut self.script));
        Update::Script(self.script)
    }
}

impl Guard {
    /// A filter without policies, which the kernel does not have yet.
    pub(crate) fn new(frame: Frame) -> Self {
        Self { frame, outbound: Side::new("out"), inbound: Side::new("in"), anew: true }
    }

    /// The table's name.
    pub(crate) fn table(&self) -> String {
        table_name(&self.frame.tun)
    }

    /// A policy comes.
    pub(crate) fn add(&mut self, direction: Direction, rank: Rank, demand: &Demand) {
        match demand.purpose {
            Purpose::Inside { .. } => self.side(direction).add(rank, &demand.selector),
            Purpose::Bypass => self.anew = true,
        }
    }

    /// A policy goes.
    pub(crate) fn remove(&mut self, direction: Direction, rank: Rank, demand: &Demand) {
        match demand.purpose {
            Purpose::Inside { .. } => self.side(direction).remove(rank, &demand.selector),
            Purpose::Bypass => self.anew = true,
        }
    }

    const fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Outbound => &mut self.outbound,
            Direction::Inbound => &mut self.inbound,
        }
    }

    /// Whether it has to be made [`again`](Self::again): policies that pass packets came or went, which say where layers are.
    pub(crate) const fn is_other(&self) -> bool {
        self.anew
    }

    /// Makes it again from all policies; the kernel's is to be replaced.
    pub(crate) fn again(&mut self, all: impl Iterator<Item = (Direction, Rank, Demand)> + Clone) {
        *self = Self::new(self.frame.clone());
        let passing = |(.., demand): &(Direction, Rank, Demand)| demand.purpose == Purpose::Bypass;
        for (direction, rank, demand) in all.clone().filter(passing) {
            self.side(direction).pass(rank, &demand.selector);
        }
        for (direction, rank, demand) in all.filter(|policy| !passing(policy)) {
            self.side(direction).add(rank, &demand.selector);
        }
    }

    /// What is to be done so that the kernel's filter is this one. It counts as done.
    pub(crate) fn update(&mut self) -> Update {
        if self.anew {
            self.settle();
            return Update::Script(self.replacement());
        }
        let table = self.table();
        let mut difference = Difference::default();
        for side in [&mut self.outbound, &mut self.inbound] {
            side.update(&table, &mut difference);
        }
        difference.into_update(&table)
    }

    /// What the kernel has is not known any more.
    pub(crate) const fn distrust(&mut self) {
        self.anew = true;
    }

    /// The kernel has the [`script`](Self::script).
    pub(crate) fn settle(&mut self) {
        self.anew = false;
        [&mut self.outbound, &mut self.inbound].into_iter().for_each(Side::settle);
    }

    /// Puts the table in the place of the one that may be there, in one transaction: there is no moment without a filter.
    pub(crate) fn replacement(&self) -> String {
        let table = self.table();
        // The first line makes the second one right in any case.
        format!("table inet {table} {{ }}\ndelete table inet {table}\n{}", self.script())
    }

    /// The whole table, for `nft -f -`.
    pub(crate) fn script(&self) -> String {
        let mut text = format!("table inet {} {{\n", self.table());
        for side in [&self.inbound, &self.outbound] {
            side.layers(&mut text);
            side.order(&mut text);
        }
        self.arriving_fragments(&mut text);
        self.delivered(&mut text);
        self.forwarded(&mut text);
        self.sent(&mut text);
        text.push_str("}\n");
        text
    }

    /// Conntrack reassembles at priority -400 and forgets where each fragment came from, so this comes
    /// before.
    fn arriving_fragments(&self, text: &mut String) {
        let Frame { tun, encap_ports, .. } = &self.frame;
        text.push_str("  chain fragment {\n    iifname \"lo\" accept\n");
        // Those for this host were put together by the engine; one that was not must not wait for others.
        let _ = writeln!(text, "    iifname \"{tun}\" fib daddr type local counter drop");
        let _ = writeln!(text, "    iifname \"{tun}\" accept");
        // What may be reassembled here: IPv4 is judged again in the input hook, IPv6 by the ports of its
        // first fragment.
        let ip = if encap_ports.is_empty() { "{ esp, ah }" } else { "{ esp, ah, udp }" };
        let _ = writeln!(text, "    fib daddr type local ip protocol {ip} accept");
        text.push_str("    fib daddr type local frag frag-off != 0 accept\n");
        if !encap_ports.is_empty() {
            let ports = set_of(encap_ports);
            let _ = writeln!(text, "    fib daddr type local meta nfproto ipv6 udp dport {ports} accept");
        }
        text.push_str("    goto in_fragment\n  }\n");
        base_chain(text, "fragments", ("prerouting", -450));
        // Most packets: one rule for them.
        text.push_str("    ip frag-off & 0x3fff == 0 accept\n");
        if_fragment("goto fragment", text);
        text.push_str("  }\n");
    }

    /// Whatever is in the input hook is for this host.
    fn delivered(&self, text: &mut String) {
        let Frame { tun, encap_ports, .. } = &self.frame;
        base_chain(text, "delivered", ("input", -300));
        // Packets of SAs come first, because they are many.
        if !encap_ports.is_empty() {
            let _ = writeln!(text, "    udp dport {} accept", set_of(encap_ports));
        }
        text.push_str("    meta l4proto { esp, ah } accept\n");
        let _ = writeln!(text, "    iifname {{ \"{tun}\", \"lo\" }} accept");
        // The chain `fragments` has judged them.
        if_fragment("accept", text);
        text.push_str(NEIGHBOUR_DISCOVERY);
        text.push_str("    goto in_whole\n  }\n");
    }

    /// ESP, AH and IKE between others are traffic like any other. What a source route (RFC 791) leads on from here
    /// still has one of our addresses as its destination.
    fn forwarded(&self, text: &mut String) {
        base_chain(text, "forwarded", ("forward", -300));
        let _ = writeln!(text, "    iifname \"{}\" accept", self.frame.tun);
        // Its next destination comes into its header behind this hook, so no policy can judge it. nftables finds
        // the option only in packets that have passed no router yet; but what is forwarded and has our address
        // as its destination is led on by options, whatever they are.
        text.push_str("    ip hdrlength > 5 fib daddr type local counter drop\n");
        if_fragment("goto in_fragment", text);
        text.push_str("    goto in_whole\n  }\n");
    }

    fn sent(&self, text: &mut String) {
        let Frame { tun, mark, .. } = &self.frame;
        base_chain(text, "sent", ("postrouting", -300));
        let _ = writeln!(text, "    meta mark {mark} accept\n    oifname {{ \"{tun}\", \"lo\" }} accept");
        if_fragment("goto out_fragment", text);
        text.push_str(NEIGHBOUR_DISCOVERY);
        text.push_str("    goto out_whole\n  }\n");
    }
}

/// Neighbours, and routers for hosts that configure themselves: without it a link is no link. Hop limit 255
/// shows that it was not routed (RFC 4861 section 6.1); routers and those who ask for them have link-local
/// addresses or none. Redirects are not needed.
const NEIGHBOUR_DISCOVERY: &str = "    icmpv6 type { 135, 136 } ip6 hoplimit 255 accept
    icmpv6 type { 133, 134 } ip6 hoplimit 255 ip6 saddr { ::/128, fe80::/10 } accept
";

fn base_chain(text: &mut String, name: &str, (hook, priority): (&str, i32)) {
    let head = format!("  chain {name} {{\n    type filter hook {hook} priority {priority}; policy accept;");
    let _ = writeln!(text, "{head}");
}

/// Rules that do so with each fragment, the first one of a packet too. An atomic fragment (RFC 6946) is a
/// whole packet.
fn if_fragment(verdict: &str, text: &mut String) {
    for fragment in ["ip frag-off & 0x3fff != 0", "frag frag-off != 0", "frag more-fragments 1"] {
        let _ = writeln!(text, "    {fragment} {verdict}");
    }
}

fn set_of(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    format!("{{ {} }}", ports.join(", "))
}

#[cfg(test)]
mod tests;
