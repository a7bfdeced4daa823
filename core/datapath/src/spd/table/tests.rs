//! The table compared with a naive model. The value ranges are so small that policies overlap and flows
//! match.

use super::*;
use crate::spd::test_flows::{later, later_opaque, whole};
use crate::spd::{Action, Policy};
use casemate_sa::{PortRange, SpdId};
use casemate_wire::flow::FlowPorts;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

fn v4(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

fn v6(host: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into()
}

fn policy(priority: u32, src: AddrRange, dst: AddrRange) -> Policy {
    Policy { spd: SpdId::MAIN, selector: Selector::between(src, dst), action: Action::Bypass, priority }
}

/// Definition of the table: an ordered list that is read from the top.
#[derive(Debug, Default)]
struct SpdModel(Vec<(PolicyId, Policy)>);

impl SpdModel {
    fn insert(&mut self, id: PolicyId, policy: Policy) {
        let at = self.0.iter().position(|(_, p)| p.priority > policy.priority).unwrap_or(self.0.len());
        self.0.insert(at, (id, policy));
    }

    fn lookup(&self, flow: &FlowKey) -> Lookup<'_> {
        for (id, policy) in &self.0 {
            let selector = &policy.selector;
            let addrs = selector.src.contains(flow.src()) && selector.dst.contains(flow.dst());
            let proto = judge(selector.proto, flow.proto(), |wanted, visible| wanted == visible);
            let ports = (selector.src_port, selector.dst_port);
            let ports = judge(
                (ports != (PortRange::ANY, PortRange::ANY)).then_some(ports),
                flow.ports(),
                |(src_port, dst_port), shown| src_port.contains(shown.src) && dst_port.contains(shown.dst),
            );
            match (addrs, proto, ports) {
                (false, ..) | (_, Some(false), _) | (_, _, Some(false)) => {}
                (true, Some(true), Some(true)) => return Lookup::Match(*id, policy),
                (true, ..) => return Lookup::NeedsPorts,
            }
        }
        Lookup::NoMatch
    }
}

/// Whether the wanted value matches the visible one; `None` if it is not visible.
fn judge<W, S>(wanted: Option<W>, visible: Option<S>, matches: impl Fn(W, S) -> bool) -> Option<bool> {
    match wanted {
        None => Some(true),
        Some(wanted) => visible.map(|visible| matches(wanted, visible)),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Policy),
    /// Removes the policy at this index of the model, modulo its length.
    Remove(usize),
    Lookup(FlowKey),
}

fn any_addr(v4_only: bool) -> impl Strategy<Value = IpAddr> {
    (0..8u8).prop_map(move |host| if v4_only { v4(host) } else { v6(host) })
}

fn any_range(is_v4: bool) -> impl Strategy<Value = AddrRange> {
    let width = if is_v4 { 32u8 } else { 128 };
    prop_oneof![
        4 => (any_addr(is_v4), width - 3..=width).prop_map(|(a, len)| AddrRange::prefix(a, len).unwrap()),
        1 => (any_addr(is_v4), Just(0)).prop_map(|(a, len)| AddrRange::prefix(a, len).unwrap()),
        1 => (any_addr(is_v4), any_addr(is_v4))
            .prop_map(|(a, b)| AddrRange::new(a.min(b), a.max(b)).unwrap()),
    ]
}

fn any_ports() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        3 => Just(PortRange::ANY),
        1 => (0..3u16, 0..3u16).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap()),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    any::<bool>().prop_flat_map(|is_v4| {
        let proto = prop_oneof![Just(None), Just(Some(6)), Just(Some(17))];
        (any_range(is_v4), any_range(is_v4), proto, any_ports(), any_ports(), 0..4u32).prop_map(
            |(src, dst, proto, src_port, dst_port, priority)| Policy {
                spd: SpdId::MAIN,
                selector: Selector { src, dst, proto, src_port, dst_port },
                action: Action::Discard,
                priority,
            },
        )
    })
}

fn any_flow() -> impl Strategy<Value = FlowKey> {
    any::<bool>().prop_flat_map(|is_v4| {
        let proto = prop_oneof![Just(6), Just(17), Just(50)];
        let ports = (0..4u16, 0..4u16).prop_map(|(src, dst)| FlowPorts { src, dst });
        (any_addr(is_v4), any_addr(is_v4), proto, ports, 0..10u8).prop_map(
            move |(src, dst, proto, ports, kind)| match kind {
                0..2 => later(src, dst, proto),
                2 if !is_v4 => later_opaque(src, dst),
                _ => whole(src, dst, proto, ports),
            },
        )
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_policy().prop_map(Step::Insert),
        1 => any::<usize>().prop_map(Step::Remove),
        6 => any_flow().prop_map(Step::Lookup),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_naive_list(steps in proptest::collection::vec(any_step(), 1..120), seed: u64) {
        const LIMIT: usize = 24;
        let (mut table, mut model) = (PolicyTable::new(LIMIT, seed), SpdModel::default());
        for step in steps {
            match step {
                Step::Insert(policy) => match table.insert(policy.clone()) {
                    Ok(id) => {
                        prop_assert!(model.0.len() < LIMIT);
                        model.insert(id, policy);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, InsertError::TableFull { limit: LIMIT });
                        prop_assert_eq!(model.0.len(), LIMIT);
                    }
                },
                Step::Remove(_) if model.0.is_empty() => {}
                Step::Remove(at) => {
                    let (id, policy) = model.0.remove(at % model.0.len());
                    prop_assert_eq!(table.get(id), Some(&policy));
                    prop_assert_eq!(table.remove(id), Some(policy));
                    prop_assert_eq!(table.get(id), None);
                    prop_assert_eq!(table.remove(id), None);
                }
                Step::Lookup(flow) => prop_assert_eq!(table.lookup(SpdId::MAIN, &flow), model.lookup(&flow)),
            }
            table.v4.assert_sound();
            table.v6.assert_sound();
            prop_assert_eq!(table.len(), model.0.len());
            let listed = table.iter().map(|(id, policy)| (id, policy.clone()));
            prop_assert_eq!(listed.collect::<Vec<_>>(), model.0.clone());
        }
    }
}

#[test]
fn priority_then_order_of_insertion() {
    let mut table = PolicyTable::new(8, 1);
    let wide = policy(10, AddrRange::ANY_V4, AddrRange::ANY_V4);
    let narrow = policy(10, AddrRange::single(v4(1)), AddrRange::single(v4(2)));
    let flow = whole(v4(1), v4(2), 6, FlowPorts::new(1, 2));
    let first = table.insert(wide.clone()).unwrap();
    let second = table.insert(narrow.clone()).unwrap();
    // Not the longest prefix: RFC 4301 section 4.4.1 leaves the order to the administrator.
    assert_eq!(table.lookup(SpdId::MAIN, &flow), Lookup::Match(first, &wide));
    let urgent = Policy { priority: 9, ..narrow.clone() };
    let third = table.insert(urgent.clone()).unwrap();
    assert_eq!(table.lookup(SpdId::MAIN, &flow), Lookup::Match(third, &urgent));
    table.remove(third);
    table.remove(first);
    assert_eq!(table.lookup(SpdId::MAIN, &flow), Lookup::Match(second, &narrow));
    table.remove(second);
    assert_eq!(table.lookup(SpdId::MAIN, &flow), Lookup::NoMatch);
    assert!(table.is_empty());
}

/// RFC 4301 section 7.
#[test]
fn hidden_ports() {
    let mut table = PolicyTable::new(8, 1);
    let any = policy(10, AddrRange::ANY_V4, AddrRange::ANY_V4);
    let mut telnet = any.clone();
    telnet.selector.proto = Some(6);
    telnet.selector.dst_port = PortRange::single(23);
    let any_id = table.insert(any.clone()).unwrap();
    let telnet_id = table.insert(telnet.clone()).unwrap();
    let fragment = later(v4(1), v4(2), 6);
    assert_eq!(
        table.lookup(SpdId::MAIN, &fragment),
        Lookup::Match(any_id, &any),
        "the rule with ports comes later"
    );
    table.remove(telnet_id);
    table.insert(Policy { priority: 5, ..telnet }).unwrap();
    assert_eq!(table.lookup(SpdId::MAIN, &fragment), Lookup::NeedsPorts);
    let udp = later(v4(1), v4(2), 17);
    assert_eq!(
        table.lookup(SpdId::MAIN, &udp),
        Lookup::Match(any_id, &any),
        "the rule with ports is for TCP"
    );
    table.remove(any_id);
    assert_eq!(table.lookup(SpdId::MAIN, &fragment), Lookup::NeedsPorts);
    assert_eq!(table.lookup(SpdId::MAIN, &udp), Lookup::NoMatch);
}

/// A later IPv6 fragment may hide even its protocol. It must not bypass a policy for a protocol.
#[test]
fn hidden_protocol() {
    let mut table = PolicyTable::new(8, 1);
    let any = policy(10, AddrRange::ANY_V6, AddrRange::ANY_V6);
    let mut tcp = Policy { action: Action::Discard, priority: 5, ..any.clone() };
    tcp.selector.proto = Some(6);
    let any_id = table.insert(any.clone()).unwrap();
    let opaque = later_opaque(v6(1), v6(2));
    assert_eq!(table.lookup(SpdId::MAIN, &opaque), Lookup::Match(any_id, &any));
    let tcp_id = table.insert(tcp.clone()).unwrap();
    assert_eq!(table.lookup(SpdId::MAIN, &opaque), Lookup::NeedsPorts);
    assert_eq!(table.lookup(SpdId::MAIN, &later(v6(1), v6(2), 6)), Lookup::Match(tcp_id, &tcp));
    assert_eq!(table.lookup(SpdId::MAIN, &later(v6(1), v6(2), 17)), Lookup::Match(any_id, &any));
}

#[test]
fn rejected_policies() {
    let mut table = PolicyTable::new(1, 1);
    let mixed = policy(1, AddrRange::ANY_V4, AddrRange::ANY_V6);
    let error = table.insert(mixed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "selector 0.0.0.0/0 -> ::/0 mixes IP versions: both must be IPv4 or both IPv6"
    );
    let first = table.insert(policy(1, AddrRange::ANY_V6, AddrRange::ANY_V6)).unwrap();
    let error = table.insert(policy(1, AddrRange::ANY_V6, AddrRange::ANY_V6)).unwrap_err();
    assert_eq!(error.to_string(), "policy table is full: it holds at most 1");
    table.remove(first);
    table.insert(policy(1, AddrRange::ANY_V6, AddrRange::ANY_V6)).unwrap();
    assert_eq!(table.get(first), None, "the slot is reused with a new generation");
}
