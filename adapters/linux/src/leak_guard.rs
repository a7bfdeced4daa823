//! The guard: a packet filter in nftables against traffic in clear that policy wants protected (RFC 4301
//! sections 5 and 7.4).
//!
//! Routes direct the host's traffic into the TUN interface. But a socket that is bound to another interface
//! bypasses these routes, and packets in clear that arrive from outside never reach the data path. So the two
//! SPDs exist once more in nftables, as far as they concern traffic in clear. docs/manual/guard.md says what
//! the guard guarantees.
//!
//! Policies that bypass traffic are rules, in their order. Between two of them there is a rule group:
//! policies that all drop, so that their order does not matter. A rule group is two chains, for whole packets
//! and for fragments, with a few sets that contain its policies as elements ([`set_key`]). A Child SA adds
//! and removes elements; the chains change when a rule group gets its first policy of a shape, or loses the
//! last one. Either way a change is one transaction.
//!
//! | base chain | hook | packets |
//! |---|---|---|
//! | `fragments` | prerouting, before reassembly by the kernel | arriving fragments, by what each shows |
//! | `delivered` | input | packets to this host; ESP, AH, IKE and encapsulated ESP pass |
//! | `forwarded` | forward | packets to other hosts; no packet passes that policy wants protected |
//! | `sent` | postrouting | packets that leave; our own pass by their mark, except into the TUN interface |
//!
//! IPv4 packets to this host are whole in the input hook. The kernel reassembles IPv6 packets behind that
//! hook, so the first fragment is judged before. Later fragments to this host pass: no first fragment of a
//! protected flow has passed, and no fragment that came through an SA waits, because this host receives only
//! whole packets from the data path (`Datapath::set_local_addrs`).

mod direction_rules;
mod set_key;

use crate::VirtualAddress;
use crate::netfilter::ElementMessage;
use crate::setup::desired_state::{Handling, PolicyIntent, PolicyRank, RankedPolicy};
use casemate_datapath::Direction;
use direction_rules::DirectionRules;
pub(crate) use direction_rules::SetChange;
pub(crate) use set_key::{SetKey, SetShape};
use std::fmt::Write as _;

/// Name of the nftables table, one for each TUN interface.
pub(crate) fn table_name(tun: &str) -> String {
    format!("casemate_{tun}")
}

/// The parts of the filter that do not depend on policies.
#[derive(Debug, Clone)]
pub(crate) struct GuardConfig {
    /// The TUN interface. Packets from and to it pass.
    pub(crate) tun: String,
    /// Mark of our own packets.
    pub(crate) mark: u32,
    /// UDP ports on which ESP arrives.
    pub(crate) encap_ports: Vec<u16>,
    /// Addresses of a cell.
    pub(crate) cell_addresses: Vec<VirtualAddress>,
}

/// The desired filter, and how the kernel's filter differs from it.
#[derive(Debug)]
pub(crate) struct LeakGuard {
    config: GuardConfig,
    outbound: DirectionRules,
    inbound: DirectionRules,
    /// The filter of the kernel is unknown or completely different.
    is_unknown: bool,
}

/// The change from the kernel's filter to the desired one. It is one transaction, so that a policy that moves
/// from one set to another is in one of them at any moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuardUpdate {
    /// Script for `nft -f -`.
    Script(String),
    /// Elements to add to sets and remove from them, as many as [`ElementMessage::fit_in_batch`] allows; may
    /// be empty.
    Elements(Vec<SetChange>),
}

/// The difference between the kernel's filter and the desired one.
#[derive(Debug, Default)]
struct GuardChanges {
    /// Changes of sets, chains and rules, for `nft -f -`.
    script: String,
    elements: Vec<SetChange>,
}

impl GuardChanges {
    fn element(&mut self, set: String, shape: SetShape, key: SetKey, is_added: bool) {
        if self.elements.last().is_none_or(|last| last.set != set) {
            self.elements.push(SetChange { set, shape, add: Vec::new(), remove: Vec::new() });
        }
        if let Some(change) = self.elements.last_mut() {
            if is_added { change.add.push(key) } else { change.remove.push(key) }
        }
    }

    /// Combines all changes into one transaction; without `nft` if they are only a few elements.
    fn into_update(mut self, table: &str) -> GuardUpdate {
        if self.script.is_empty() && ElementMessage::fit_in_batch(&self.elements) {
            return GuardUpdate::Elements(self.elements);
        }
        self.elements.iter().for_each(|change| change.write(table, &mut self.script));
        GuardUpdate::Script(self.script)
    }
}

impl LeakGuard {
    /// A filter without policies, which the kernel does not have yet.
    pub(crate) fn new(config: GuardConfig) -> Self {
        Self {
            config,
            outbound: DirectionRules::new("out"),
            inbound: DirectionRules::new("in"),
            is_unknown: true,
        }
    }

    /// Name of the nftables table.
    pub(crate) fn table(&self) -> String {
        table_name(&self.config.tun)
    }

    /// Adds a policy.
    pub(crate) fn add(&mut self, direction: Direction, rank: PolicyRank, intent: &PolicyIntent) {
        match intent.handling {
            Handling::DataPath { .. } => self.rules_mut(direction).add(rank, &intent.selector),
            Handling::Bypass => self.is_unknown = true,
        }
    }

    /// Removes a policy.
    pub(crate) fn remove(&mut self, direction: Direction, rank: PolicyRank, intent: &PolicyIntent) {
        match intent.handling {
            Handling::DataPath { .. } => self.rules_mut(direction).remove(rank, &intent.selector),
            Handling::Bypass => self.is_unknown = true,
        }
    }

    const fn rules_mut(&mut self, direction: Direction) -> &mut DirectionRules {
        match direction {
            Direction::Outbound => &mut self.outbound,
            Direction::Inbound => &mut self.inbound,
        }
    }

    /// Whether the filter needs a [`rebuild`](Self::rebuild): bypass policies, which separate the rule
    /// groups, were added or removed.
    pub(crate) const fn needs_rebuild(&self) -> bool {
        self.is_unknown
    }

    /// Rebuilds the filter from all policies. It replaces the filter of the kernel.
    pub(crate) fn rebuild(&mut self, all: impl Iterator<Item = RankedPolicy> + Clone) {
        *self = Self::new(self.config.clone());
        let is_bypass = |policy: &RankedPolicy| policy.intent.handling == Handling::Bypass;
        for RankedPolicy { direction, rank, intent } in all.clone().filter(is_bypass) {
            self.rules_mut(direction).add_bypass(rank, &intent.selector);
        }
        for RankedPolicy { direction, rank, intent } in all.filter(|policy| !is_bypass(policy)) {
            self.rules_mut(direction).add(rank, &intent.selector);
        }
    }

    /// Takes the changes that make the kernel's filter the desired one. They count as applied.
    pub(crate) fn take_update(&mut self) -> GuardUpdate {
        if self.is_unknown {
            self.mark_applied();
            return GuardUpdate::Script(self.replacement_script());
        }
        let table = self.table();
        let mut changes = GuardChanges::default();
        for rules in [&mut self.outbound, &mut self.inbound] {
            rules.take_changes(&table, &mut changes);
        }
        changes.into_update(&table)
    }

    /// Marks the filter of the kernel as unknown.
    pub(crate) const fn mark_unknown(&mut self) {
        self.is_unknown = true;
    }

    /// Marks the [`script`](Self::script) as applied.
    pub(crate) fn mark_applied(&mut self) {
        self.is_unknown = false;
        [&mut self.outbound, &mut self.inbound].into_iter().for_each(DirectionRules::mark_applied);
    }

    /// Script that replaces the table, if it exists, in one transaction: there is no moment without a filter.
    pub(crate) fn replacement_script(&self) -> String {
        let table = self.table();
        // The first line creates the table, so that the second line always succeeds.
        format!("table inet {table} {{ }}\ndelete table inet {table}\n{}", self.script())
    }

    /// The whole table, for `nft -f -`.
    pub(crate) fn script(&self) -> String {
        let mut text = format!("table inet {} {{\n", self.table());
        for rules in [&self.inbound, &self.outbound] {
            rules.write_groups(&mut text);
            rules.write_dispatch_chains(&mut text);
        }
        self.arriving_fragments(&mut text);
        self.delivered(&mut text);
        self.forwarded(&mut text);
        self.sent(&mut text);
        text.push_str("}\n");
        text
    }

    /// Chain for arriving fragments. Conntrack reassembles at priority -400 and forgets on which interface
    /// each fragment arrived, so this chain comes before.
    fn arriving_fragments(&self, text: &mut String) {
        let GuardConfig { tun, encap_ports, .. } = &self.config;
        text.push_str("  chain fragment {\n    iifname \"lo\" accept\n");
        // The engine reassembles packets to this host. A fragment that it could not reassemble must not wait
        // for others.
        let _ = writeln!(text, "    iifname \"{tun}\" fib daddr type local counter drop");
        let _ = writeln!(text, "    iifname \"{tun}\" accept");
        // Packets that may be reassembled here: IPv4 packets are judged again in the input hook, IPv6 packets
        // by the ports of their first fragment.
        let ip = if encap_ports.is_empty() { "{ esp, ah }" } else { "{ esp, ah, udp }" };
        let _ = writeln!(text, "    fib daddr type local ip protocol {ip} accept");
        text.push_str("    fib daddr type local frag frag-off != 0 accept\n");
        if !encap_ports.is_empty() {
            let ports = set_of(encap_ports);
            let _ = writeln!(text, "    fib daddr type local meta nfproto ipv6 udp dport {ports} accept");
        }
        text.push_str("    goto in_fragment\n  }\n");
        base_chain(text, "fragments", "prerouting", -450);
        // One rule for most packets.
        text.push_str("    ip frag-off & 0x3fff == 0 accept\n");
        if_fragment("goto fragment", text);
        text.push_str("  }\n");
    }

    /// Chain for packets to this host: all packets in the input hook are.
    fn delivered(&self, text: &mut String) {
        let GuardConfig { tun, encap_ports, .. } = &self.config;
        base_chain(text, "delivered", "input", -300);
        // Packets of SAs come first, because they are the most frequent.
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

    /// Chain for forwarded packets. ESP, AH and IKE between other hosts are ordinary traffic. A packet with a
    /// source route (RFC 791) still has one of our addresses as its destination.
    fn forwarded(&self, text: &mut String) {
        base_chain(text, "forwarded", "forward", -300);
        let _ = writeln!(text, "    iifname \"{}\" accept", self.config.tun);
        // The next destination of a source route enters the header behind this hook, so no policy can judge
        // it. nftables detects the option only in packets that have passed no router yet. But a forwarded
        // packet with our address as its destination is forwarded because of options, whatever they are.
        text.push_str("    ip hdrlength > 5 fib daddr type local counter drop\n");
        // While the addresses move, nodes that do not have them would forward packets to each other.
        for VirtualAddress { addr, interface, .. } in &self.config.cell_addresses {
            let ip = if addr.is_ipv4() { "ip" } else { "ip6" };
            let _ = writeln!(text, "    iifname \"{interface}\" {ip} daddr {addr} counter drop");
        }
        if_fragment("goto in_fragment", text);
        text.push_str("    goto in_whole\n  }\n");
    }

    fn sent(&self, text: &mut String) {
        let GuardConfig { tun, mark, .. } = &self.config;
        base_chain(text, "sent", "postrouting", -300);
        // Our own packets would come out of the interface and be sent again, for ever.
        let _ = writeln!(text, "    meta mark {mark} oifname \"{tun}\" counter drop");
        let _ = writeln!(text, "    meta mark {mark} accept\n    oifname {{ \"{tun}\", \"lo\" }} accept");
        if_fragment("goto out_fragment", text);
        text.push_str(NEIGHBOUR_DISCOVERY);
        text.push_str("    goto out_whole\n  }\n");
    }
}

/// Neighbour discovery, and router discovery for hosts that configure themselves, which every link needs. Hop
/// limit 255 shows that the packet was not routed (RFC 4861 section 6.1). Routers, and hosts that ask for
/// them, have link-local addresses or none. Redirects are not needed.
const NEIGHBOUR_DISCOVERY: &str = "    icmpv6 type { 135, 136 } ip6 hoplimit 255 accept
    icmpv6 type { 133, 134 } ip6 hoplimit 255 ip6 saddr { ::/128, fe80::/10 } accept
";

fn base_chain(text: &mut String, name: &str, hook: &str, priority: i32) {
    let head = format!("  chain {name} {{\n    type filter hook {hook} priority {priority}; policy accept;");
    let _ = writeln!(text, "{head}");
}

/// Writes rules with this verdict for each fragment, the first one of a packet included. An atomic fragment
/// (RFC 6946) is a whole packet.
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
mod tests {
    use super::set_key::ShapedKey;
    use super::*;
    use casemate_sa::{AddrRange, PortRange, Selector};

    fn range(text: &str) -> AddrRange {
        let (addr, len) = text.split_once('/').unwrap();
        AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn inside(src: &str, dst: &str) -> PolicyIntent {
        let selector = Selector::between(range(src), range(dst));
        PolicyIntent { selector, handling: Handling::DataPath { end: None } }
    }

    fn bypass(src: &str, dst: &str) -> PolicyIntent {
        PolicyIntent { handling: Handling::Bypass, ..inside(src, dst) }
    }

    fn rank(priority: u32) -> PolicyRank {
        PolicyRank { priority, serial: 1 }
    }

    fn guard(policies: &[(u32, PolicyIntent)]) -> LeakGuard {
        let mut guard = LeakGuard::new(GuardConfig {
            tun: "tun5".into(),
            mark: 7,
            encap_ports: vec![500, 4500],
            cell_addresses: Vec::new(),
        });
        let direction = Direction::Outbound;
        guard.rebuild(policies.iter().map(|(priority, intent)| RankedPolicy {
            direction,
            rank: rank(*priority),
            intent: *intent,
        }));
        guard
    }

    #[test]
    fn addresses_of_a_cell_are_not_forwarded_back() {
        let address = |addr: &str, interface: &str| VirtualAddress {
            addr: addr.parse().unwrap(),
            prefix_len: 24,
            interface: interface.into(),
        };
        let mut config = guard(&[]).config;
        config.cell_addresses = vec![address("192.0.2.1", "out0"), address("2001:db8::1", "in0")];
        let script = LeakGuard::new(config).script();
        let forwarded = script.split_once("chain forwarded").unwrap().1;
        for rule in ["\"out0\" ip daddr 192.0.2.1", "\"in0\" ip6 daddr 2001:db8::1"] {
            assert!(forwarded.contains(&format!("    iifname {rule} counter drop\n")), "{script}");
        }
    }

    #[test]
    fn a_filter_without_policies_has_one_empty_group_in_each_direction() {
        let script = guard(&[]).script();
        let chains = ["  chain in0 {\n  }\n", "  chain out0_frag {\n  }\n"];
        for line in chains.into_iter().chain(["    jump in0\n", "    jump out0\n", "    jump out0_frag\n"]) {
            assert_eq!(script.matches(line).count(), 1, "{line} in {script}");
        }
        assert!(script.contains("    udp dport { 500, 4500 } accept\n"));
    }

    #[test]
    fn bypass_rules_stand_between_groups_in_policy_order() {
        let script = guard(&[
            (30, inside("10.1.0.0/16", "10.4.0.0/16")),
            (20, bypass("0.0.0.0/0", "10.2.0.0/24")),
            (10, inside("10.1.0.0/16", "10.2.0.7/32")),
            (31, inside("10.1.0.0/16", "10.5.0.0/16")),
        ])
        .script();
        let text = |part: &str| script.contains(part);
        assert!(
            text("set out0_v4_s16_d32 { type ipv4_addr . ipv4_addr; elements = { 10.1.0.0 . 10.2.0.7 } }"),
            "{script}"
        );
        let later = "elements = { 10.1.0.0 . 10.4.0.0, 10.1.0.0 . 10.5.0.0 }";
        assert!(text(&format!("set out1_v4_s16_d16 {{ type ipv4_addr . ipv4_addr; {later} }}")), "{script}");
        let order = "    jump out0\n    ip saddr 0.0.0.0/0 ip daddr 10.2.0.0/24 accept\n    jump out1\n";
        assert!(text(order), "{script}");
    }

    #[test]
    fn a_policy_of_a_known_shape_is_one_element() {
        let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32"))]);
        guard.mark_applied();
        guard.add(Direction::Outbound, rank(2), &inside("10.1.0.0/16", "10.2.0.2/32"));
        let second = ShapedKey::of(&inside("10.1.0.0/16", "10.2.0.2/32").selector).unwrap();
        let ShapedKey { shape, key: second } = second;
        let change = |add, remove| {
            GuardUpdate::Elements(vec![SetChange { set: "out0_v4_s16_d32".into(), shape, add, remove }])
        };
        let nothing = || GuardUpdate::Elements(vec![]);
        assert_eq!(guard.take_update(), change(vec![second], vec![]));
        assert_eq!(guard.take_update(), nothing(), "once");
        // An element that two policies ask for exists once, until the last policy is removed.
        guard.add(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
        guard.remove(Direction::Outbound, rank(2), &inside("10.1.0.0/16", "10.2.0.2/32"));
        assert_eq!(guard.take_update(), nothing());
        guard.remove(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
        assert_eq!(guard.take_update(), change(vec![], vec![second]));
        // An element that is added and removed before an update is no change.
        guard.add(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
        guard.remove(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
        assert_eq!(guard.take_update(), nothing());
    }

    /// The script of an update; panics if it has none.
    fn script(update: GuardUpdate) -> String {
        match update {
            GuardUpdate::Script(script) => script,
            GuardUpdate::Elements(changes) => panic!("without nft: {changes:?}"),
        }
    }

    #[test]
    fn a_policy_that_moves_to_another_set_is_always_in_one_of_them() {
        let (here, there) = (inside("10.1.0.0/16", "10.2.0.9/32"), inside("10.1.0.9/32", "10.2.0.9/32"));
        let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32")), (2, here)]);
        guard.mark_applied();
        guard.remove(Direction::Outbound, rank(2), &here);
        guard.add(Direction::Outbound, rank(2), &there);
        let moved = script(guard.take_update());
        assert!(moved.starts_with("add set inet casemate_tun5 out0_v4_s32_d32 "), "{moved}");
        let goes = "\ndelete element inet casemate_tun5 out0_v4_s16_d32 { 10.1.0.0 . 10.2.0.9 }\n";
        assert!(moved.ends_with(goes), "{moved}");
        for n in 0..3_000u16 {
            let [high, low] = n.to_be_bytes();
            let to = |net: u8| inside("10.1.0.0/16", &format!("{net}.9.{high}.{low}/32"));
            guard.add(Direction::Outbound, rank(3), &to(11));
            guard.add(Direction::Inbound, rank(3), &to(12));
        }
        let many = script(guard.take_update());
        assert_eq!((many.matches(". 11.9.").count(), many.matches(". 12.9.").count()), (3_000, 3_000));
        assert!(
            many.contains("\nadd element inet casemate_tun5 out0_v4_s16_d32 { 10.1.0.0 . 11.9.0.0, "),
            "{many}"
        );
    }

    #[test]
    fn a_policy_of_a_new_shape_rewrites_one_group() {
        let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32"))]);
        guard.mark_applied();
        guard.add(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
        assert_eq!(
            script(guard.take_update()),
            "add set inet casemate_tun5 in0_v4_s32_d16 { type ipv4_addr . ipv4_addr; elements = { 10.2.0.1 . 10.1.0.0 } }\n\
             flush chain inet casemate_tun5 in0\n\
             add rule inet casemate_tun5 in0 ip saddr . ip daddr & 255.255.0.0 @in0_v4_s32_d16 counter drop\n\
             flush chain inet casemate_tun5 in0_frag\n\
             add rule inet casemate_tun5 in0_frag ip saddr . ip daddr & 255.255.0.0 @in0_v4_s32_d16 counter drop\n"
        );
        guard.remove(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
        assert_eq!(
            script(guard.take_update()),
            "flush chain inet casemate_tun5 in0\nflush chain inet casemate_tun5 in0_frag\n\
             delete set inet casemate_tun5 in0_v4_s32_d16\n"
        );
    }

    #[test]
    fn a_bypass_replaces_the_filter_in_one_transaction() {
        let mut guard = guard(&[(5, inside("10.1.0.0/16", "10.2.0.1/32"))]);
        guard.mark_applied();
        guard.add(Direction::Outbound, rank(3), &bypass("0.0.0.0/0", "10.2.0.0/24"));
        assert!(guard.needs_rebuild());
        let update = script(guard.take_update());
        let lead =
            "table inet casemate_tun5 { }\ndelete table inet casemate_tun5\ntable inet casemate_tun5 {\n";
        assert!(update.starts_with(lead), "{update}");
        assert!(!guard.needs_rebuild());
        guard.mark_unknown();
        assert!(script(guard.take_update()).starts_with(lead));
    }

    /// RFC 4301 section 7.4.
    #[test]
    fn policies_with_ports_drop_every_fragment_between_their_addresses() {
        let mut service = inside("10.1.0.0/16", "10.2.0.0/16");
        (service.selector.proto, service.selector.dst_port) = (Some(17), PortRange::single(53));
        let mut open = bypass("10.1.0.0/16", "10.2.0.9/32");
        (open.selector.proto, open.selector.dst_port) = (Some(17), PortRange::single(53));
        let script = guard(&[(1, open), (2, service)]).script();
        let of_fragments = "meta l4proto 17 ip saddr & 255.255.0.0 . ip daddr & 255.255.0.0 @out1_v4_s16_d16_p17_frag counter drop";
        assert!(script.contains(&format!("  chain out1_frag {{\n    {of_fragments}\n  }}\n")), "{script}");
        let whole = "@out1_v4_s16_d16_p17_dport counter drop\n  }\n";
        assert!(script.contains(whole), "{script}");
        // A packet that passes because of its port must be whole.
        assert!(
            script.contains("  chain out_fragment {\n    jump out0_frag\n    jump out1_frag\n  }\n"),
            "{script}"
        );
        assert_eq!(script.matches("th dport 53 accept").count(), 1);
    }

    #[test]
    fn the_protocol_of_an_ipv6_fragment_is_not_trusted() {
        let mut service = inside("fd01::/64", "fd02::/64");
        service.selector.proto = Some(6);
        let mut open = bypass("fd01::/64", "fd02::9/128");
        open.selector.proto = Some(50);
        let script = guard(&[(1, open), (2, service)]).script();
        assert!(script.contains("@out1_v6_s64_d64_p6 counter drop"), "{script}");
        assert!(script.contains("@out1_v6_s64_d64_frag counter drop"), "{script}");
        assert_eq!(script.matches("meta l4proto 50 accept").count(), 1);
    }

    #[test]
    fn a_bypass_rule_matches_no_more_than_its_policy() {
        let mut open = bypass("10.1.0.0/16", "10.2.0.0/16");
        open.selector.dst_port = PortRange::single(53);
        let script = guard(&[(1, open), (2, inside("10.1.0.0/16", "10.2.0.0/16"))]).script();
        assert!(!script.contains("10.2.0.0/16 accept"), "ports without a protocol are no rule: {script}");
    }

    #[test]
    fn neighbour_and_router_discovery_pass_and_redirects_do_not() {
        let script = guard(&[(1, inside("fe80::/10", "::/0"))]).script();
        assert_eq!(script.matches("icmpv6 type { 135, 136 } ip6 hoplimit 255 accept\n").count(), 2);
        let routers = "icmpv6 type { 133, 134 } ip6 hoplimit 255 ip6 saddr { ::/128, fe80::/10 } accept\n";
        assert_eq!(script.matches(routers).count(), 2);
        assert!(!script.contains("137"), "{script}");
        // Neighbour discovery is never fragmented (RFC 6980).
        let (_, sent) = script.split_once("chain sent").unwrap();
        assert!(sent.find("frag more-fragments 1 goto out_fragment") < sent.find("icmpv6"), "{script}");
    }
}
