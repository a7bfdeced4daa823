//! A packet filter that keeps clear text off the wire where policy demands protection (RFC 4301 section 5).
//!
//! Routes lead the host's traffic into the TUN interface, but a socket bound to another interface goes past them, and
//! clear text that arrives from outside never meets the data path. So the two SPDs stand once more in nftables, as far as
//! they concern clear text.
//!
//! Policies that pass packets are rules, in their order. Between two of them lies a layer: policies that all drop, so that
//! their order means nothing. A layer is a chain of its own, with a few sets that hold its policies as elements ([`shape`]).
//! A Child SA brings and takes elements; the chains change when a layer gets a shape that it had not, or loses one.

mod shape;
mod side;

use crate::rank::{Demand, Purpose, Rank};
use casemate_datapath::Direction;
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

/// How the kernel's filter becomes what is wanted. First the script, then the elements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// For `nft -f -`; empty if there is nothing for it to do.
    pub(crate) script: String,
    /// What comes into sets and leaves them.
    pub(crate) elements: Vec<SetChange>,
}

impl Update {
    fn element(&mut self, set: String, key: Vec<u8>, comes: bool) {
        if self.elements.last().is_none_or(|last| last.set != set) {
            self.elements.push(SetChange { set, add: Vec::new(), remove: Vec::new() });
        }
        if let Some(change) = self.elements.last_mut() {
            if comes { change.add.push(key) } else { change.remove.push(key) }
        }
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
    pub(crate) fn again<'a>(&mut self, all: impl Iterator<Item = (Direction, Rank, &'a Demand)> + Clone) {
        *self = Self::new(self.frame.clone());
        let passing = |(.., demand): &(Direction, Rank, &Demand)| demand.purpose == Purpose::Bypass;
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
            return Update { script: self.replacement(), elements: Vec::new() };
        }
        let table = self.table();
        let mut update = Update::default();
        for side in [&mut self.outbound, &mut self.inbound] {
            side.update(&table, &mut update);
        }
        update
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
    fn replacement(&self) -> String {
        let table = self.table();
        // The first line makes the second one right in any case.
        format!("table inet {table} {{ }}\ndelete table inet {table}\n{}", self.script())
    }

    /// The whole table, for `nft -f -`.
    pub(crate) fn script(&self) -> String {
        let Frame { tun, mark, encap_ports } = &self.frame;
        let mut text = format!("table inet {} {{\n", self.table());
        self.inbound.layers(&mut text);
        self.outbound.layers(&mut text);
        base_chain(&mut text, "in", "prerouting");
        let _ = writeln!(text, "    iifname {{ \"{tun}\", \"lo\" }} accept");
        text.push_str("    meta l4proto { esp, ah } accept\n");
        if !encap_ports.is_empty() {
            let ports: Vec<String> = encap_ports.iter().map(u16::to_string).collect();
            let _ = writeln!(text, "    udp dport {{ {} }} accept", ports.join(", "));
        }
        // A later fragment shows no port, and is worth nothing without the first one.
        text.push_str("    ip frag-off & 0x1fff != 0 accept\n    frag frag-off != 0 accept\n");
        text.push_str(NEIGHBOUR_DISCOVERY);
        self.inbound.order(&mut text);
        text.push_str("  }\n");
        base_chain(&mut text, "out", "postrouting");
        let _ = writeln!(text, "    oifname {{ \"{tun}\", \"lo\" }} accept\n    meta mark {mark} accept");
        text.push_str(NEIGHBOUR_DISCOVERY);
        self.outbound.order(&mut text);
        text.push_str("  }\n}\n");
        text
    }
}

/// Without it a link is no link. Hop limit 255 shows that it was not routed (RFC 4861 section 6.1).
const NEIGHBOUR_DISCOVERY: &str = "    icmpv6 type 133-137 ip6 hoplimit 255 accept\n";

fn base_chain(text: &mut String, name: &str, hook: &str) {
    let _ = writeln!(text, "  chain {name} {{\n    type filter hook {hook} priority -300; policy accept;");
}

#[cfg(test)]
mod tests;
