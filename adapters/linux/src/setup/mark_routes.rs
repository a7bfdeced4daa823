//! Rules and routes that lead packets with a mark into the interfaces of tunnels (`mark_out`).
//!
//! Each mark has a routing table with a default route into the interface, and each destination of the
//! tunnel's outbound policies has a rule that leads packets with the mark into the table. The source does not
//! matter: the kernel routes a packet before NAT gives it the source that the policy expects. If the
//! interface goes, the kernel removes the route, and a second one of low preference drops these packets.

use crate::Error;
use crate::journal::{Journal, Undo};
use crate::netlink::{self, Netlink};
use crate::route::Prefix;
use crate::setup::ignore_existing;
use crate::setup::routing_check::Lost;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_sa::{Selector, SpdId};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;

/// Priority of the rules: behind that for local addresses, before those of the main SPD.
const PRIORITY: u32 = 200;
/// The first table: mark 0 would have it. Administrators use small numbers.
const FIRST_TABLE: u32 = 0x4000_0000;

/// A tunnel whose packets have a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkedTunnel {
    pub(crate) mark: u32,
    /// Index of the interface.
    pub(crate) index: u32,
}

/// The routing table for packets with this mark.
const fn table_of(mark: u32) -> u32 {
    FIRST_TABLE | mark
}

/// Whether a table may be that of a mark.
pub(crate) const fn is_of_mark(table: u32) -> bool {
    table & 0xc000_0000 == FIRST_TABLE
}

/// The rules and routes of all marks.
#[derive(Debug, Default)]
pub(super) struct MarkRoutes {
    tunnels: BTreeMap<SpdId, MarkedTunnel>,
    /// Outbound policies of SPDs besides the main one.
    policies: BTreeMap<PolicyId, (SpdId, Selector)>,
    /// The rules that are set.
    rules: BTreeSet<MarkRule>,
    /// Tables with routes, with the interface of each.
    tables: BTreeMap<TableKey, u32>,
    /// Tables that the journal lists, and that are empty since they were cleared.
    cleared: BTreeSet<u32>,
}

/// A table for an IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TableKey {
    v4: bool,
    table: u32,
}

/// Packets with a mark to these addresses use the table of the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MarkRule {
    dst: Prefix,
    mark: u32,
}

impl MarkRoutes {
    /// Uses exactly these tunnels. Returns whether they have changed.
    pub(super) fn set_tunnels(&mut self, tunnels: BTreeMap<SpdId, MarkedTunnel>) -> bool {
        let has_changed = self.tunnels != tunnels;
        self.tunnels = tunnels;
        has_changed
    }

    /// Notes an outbound policy.
    pub(super) fn add(&mut self, id: PolicyId, policy: &Policy) {
        if !policy.spd.is_main() {
            self.policies.insert(id, (policy.spd, policy.selector));
        }
    }

    /// Notes that an outbound policy was removed.
    pub(super) fn remove(&mut self, id: PolicyId) {
        self.policies.remove(&id);
    }

    /// Whether a route of this table or a change of one of these interfaces matters.
    pub(super) fn is_affected(&self, tables: &BTreeSet<u32>, links: &BTreeSet<u32>) -> bool {
        self.tables.iter().any(|(key, index)| tables.contains(&key.table) || links.contains(index))
    }

    /// Sets the rules of an IP version again that are not among those of the kernel. If that fails,
    /// [`set_missing`](Self::set_missing) tries again.
    pub(super) fn restore_rules(
        &mut self,
        v4: bool,
        present: &[RuleMessage],
        netlink: &mut Netlink,
        lost: &mut Lost,
    ) {
        let present: HashSet<(Option<IpAddr>, u8, u32)> = present.iter().filter_map(mark_rule_key).collect();
        let is_lost = |rule: &MarkRule| {
            let key = rule.message();
            rule.dst.is_ipv4() == v4 && mark_rule_key(&key).is_some_and(|key| !present.contains(&key))
        };
        for rule in self.rules.extract_if(.., |rule| is_lost(rule)).collect::<Vec<_>>() {
            lost.add(&rule);
            if netlink.add_rule(rule.message()).or_else(ignore_existing).is_ok() {
                self.rules.insert(rule);
            }
        }
    }

    /// Sets routes again that have gone. If that fails, [`set_missing`](Self::set_missing) tries again.
    pub(super) fn restore_routes(&mut self, netlink: &mut Netlink, lost: &mut Lost) -> Result<(), Error> {
        // Routes about which the kernel does not answer are set again, which does no harm.
        for (key, index) in std::mem::take(&mut self.tables) {
            let routes = netlink.routes(key.table, key.v4)?;
            let is_blocked = routes.iter().any(|route| route.header.kind == RouteType::Unreachable);
            let is_there = is_blocked && routes.iter().any(|route| netlink::leads_into(route, index));
            if !is_there {
                lost.add(&key);
            }
            if is_there || key.set_routes(index, netlink).is_ok() {
                self.tables.insert(key, index);
            }
        }
        Ok(())
    }

    /// The rules that policies and tunnels ask for, and the interface of each.
    fn wanted(&self) -> BTreeMap<MarkRule, u32> {
        let mut wanted = BTreeMap::<MarkRule, u32>::new();
        for (spd, selector) in self.policies.values() {
            let Some(MarkedTunnel { mark, index }) = self.tunnels.get(spd).copied() else { continue };
            let rules = Prefix::cover(&selector.dst).into_iter().map(|dst| MarkRule { dst, mark });
            wanted.extend(rules.map(|rule| (rule, index)));
        }
        wanted
    }

    /// Sets the rules and routes that policies and tunnels ask for and that are not set.
    pub(super) fn set_missing(&mut self, journal: &mut Journal, netlink: &mut Netlink) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (rule, index) in self.wanted() {
            outcome = outcome.and(self.set(rule, index, journal, netlink));
        }
        outcome
    }

    /// Removes the other rules and routes.
    pub(super) fn remove_others(&mut self, journal: &Journal, netlink: &mut Netlink) -> Result<(), Error> {
        let wanted = self.wanted();
        for rule in self.rules.extract_if(.., |rule| !wanted.contains_key(rule)).collect::<Vec<_>>() {
            let failed = |error| Error::new(format!("removal of `{rule}`"), error);
            netlink.remove_rule(rule.message()).or_else(crate::journal::ignore_missing).map_err(failed)?;
        }
        self.clear_others(journal, netlink)
    }

    /// Sets a rule and the routes of its table. Without the route into the interface, packets are dropped.
    fn set(
        &mut self,
        rule: MarkRule,
        index: u32,
        journal: &mut Journal,
        netlink: &mut Netlink,
    ) -> Result<(), Error> {
        let (key, mut routed) = (rule.table(), Ok(()));
        if self.tables.get(&key) != Some(&index) {
            journal.record(Undo::MarkTable { table: key.table })?;
            self.cleared.remove(&key.table);
            routed = key.set_routes(index, netlink);
            if routed.is_ok() {
                self.tables.insert(key, index);
            }
        }
        if !self.rules.contains(&rule) {
            let failed = |error| Error::new(format!("`{rule}`"), error);
            netlink.add_rule(rule.message()).or_else(ignore_existing).map_err(failed)?;
            self.rules.insert(rule);
        }
        routed
    }

    /// Clears the tables of marks that no tunnel has any more, also those of a former run. The journal keeps
    /// them: it would grow with each Child SA that has a mark of its own.
    fn clear_others(&mut self, journal: &Journal, netlink: &mut Netlink) -> Result<(), Error> {
        let known: BTreeSet<u32> = self.tunnels.values().map(|tunnel| table_of(tunnel.mark)).collect();
        let listed = journal.entries().iter().filter_map(|entry| match entry {
            Undo::MarkTable { table } => Some(*table),
            _ => None,
        });
        let is_former = |table: &u32| !known.contains(table) && !self.cleared.contains(table);
        let former: Vec<u32> = listed.filter(is_former).collect();
        self.tables.retain(|key, _| known.contains(&key.table));
        for table in former {
            clear(table, netlink)?;
            self.cleared.insert(table);
        }
        Ok(())
    }
}

impl TableKey {
    /// Leads packets into the interface, or drops them without it.
    fn set_routes(self, index: u32, netlink: &mut Netlink) -> Result<(), Error> {
        let failed = |error| Error::new(format!("default route of table {}", self.table), error);
        let mut message = RouteMessage::default();
        message.header.address_family = netlink::family(self.v4);
        message.header.protocol = RouteProtocol::Static;
        let table = RouteAttribute::Table(self.table);
        let mut blocked = message.clone();
        blocked.header.kind = RouteType::Unreachable;
        blocked.attributes = vec![table.clone(), RouteAttribute::Priority(u32::MAX)];
        netlink.set_route(blocked).map_err(failed)?;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::Link;
        message.attributes = vec![table, RouteAttribute::Priority(1), RouteAttribute::Oif(index)];
        netlink.set_route(message).map_err(failed)
    }
}

impl MarkRule {
    fn table(&self) -> TableKey {
        TableKey { v4: self.dst.is_ipv4(), table: table_of(self.mark) }
    }

    fn message(&self) -> RuleMessage {
        let TableKey { v4, table } = self.table();
        let mut message = RuleMessage::default();
        message.header.family = netlink::family(v4);
        message.header.action = RuleAction::ToTable;
        message.header.dst_len = self.dst.len;
        message.attributes = vec![
            RuleAttribute::Priority(PRIORITY),
            RuleAttribute::FwMark(self.mark),
            RuleAttribute::FwMask(u32::MAX),
            RuleAttribute::Table(table),
        ];
        let dst = (self.dst.len > 0).then_some(RuleAttribute::Destination(self.dst.addr));
        message.attributes.extend(dst);
        message
    }
}

/// What identifies a rule for a mark: its destination and mark. `None` for a rule that is none of ours.
fn mark_rule_key(rule: &RuleMessage) -> Option<(Option<IpAddr>, u8, u32)> {
    let has = |attribute| rule.attributes.contains(&attribute);
    let mark = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::FwMark(mark) => Some(*mark),
        _ => None,
    })?;
    let dst = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Destination(dst) => Some(*dst),
        _ => None,
    });
    let is_ours = rule.header.action == RuleAction::ToTable
        && has(RuleAttribute::Priority(PRIORITY))
        && has(RuleAttribute::FwMask(u32::MAX))
        && has(RuleAttribute::Table(table_of(mark)));
    is_ours.then_some((dst, rule.header.dst_len, mark))
}

impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { v4, table } = self;
        let version = if *v4 { "-4" } else { "-6" };
        write!(f, "ip {version} route add default table {table}")
    }
}

impl fmt::Display for MarkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dst, mark } = self;
        let TableKey { v4, table } = self.table();
        let version = if v4 { "-4" } else { "-6" };
        write!(f, "ip {version} rule add pref {PRIORITY} to {dst} fwmark {mark} lookup {table}")
    }
}

/// Removes the rules that lead into the table of a mark, and its routes.
pub(crate) fn clear(table: u32, netlink: &mut Netlink) -> Result<(), Error> {
    for v4 in [true, false] {
        let failed = |error| Error::new(format!("removal of the rules for table {table}"), error);
        let leads_there = |rule: &RuleMessage| rule.attributes.contains(&RuleAttribute::Table(table));
        for rule in netlink.rules(v4)?.into_iter().filter(leads_there) {
            netlink.remove_rule(rule).or_else(crate::journal::ignore_missing).map_err(failed)?;
        }
        for route in netlink.routes(table, v4)? {
            netlink.remove_route(route).or_else(crate::journal::ignore_missing).map_err(failed)?;
        }
    }
    Ok(())
}
