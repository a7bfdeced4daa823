//! Policy table, compared with an ordered list.

use crate::Target;
use crate::input::{Input, Script};
use casemate_datapath::spd::{Action, InsertError, Lookup, Policy, PolicyId, PolicyTable};
use casemate_sa::{AddrRange, PortRange, Selector, SpdId};
use casemate_wire::flow::{FlowKey, FragmentKind};
use casemate_wire::ip::proto;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const TARGET: Target = Target {
    name: "spd",
    about: "policy table: inserts, removals and look-ups, compared with an ordered list",
    max_len: 1_024,
    run,
    seeds,
    dictionary: &[],
};

const LIMIT: usize = 12;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut table = PolicyTable::new(LIMIT, input.u8().into());
    let mut list: Vec<(PolicyId, Policy)> = Vec::new();
    let mut removed: Vec<PolicyId> = Vec::new();
    while !input.is_empty() {
        match input.u8() % 8 {
            0..=2 => insert(&mut table, &mut list, policy(&mut input)),
            3 if !list.is_empty() => {
                let (id, policy) = list.remove(input.index(list.len()));
                assert_eq!(table.remove(id), Some(policy));
                removed.push(id);
            }
            _ => {
                let flow = flow(&mut input);
                assert_eq!(table.lookup(SpdId::MAIN, &flow), lookup(&list, &flow), "{flow:?} in {list:#?}");
            }
        }
        assert_eq!((table.len(), table.is_empty()), (list.len(), list.is_empty()));
    }
    assert!(table.iter().eq(list.iter().map(|(id, policy)| (*id, policy))));
    assert!(list.iter().all(|(id, policy)| table.get(*id) == Some(policy)));
    assert!(removed.iter().all(|id| table.get(*id).is_none() && table.remove(*id).is_none()));
}

fn insert(table: &mut PolicyTable, list: &mut Vec<(PolicyId, Policy)>, policy: Policy) {
    let Selector { src, dst, .. } = policy.selector;
    match table.insert(policy.clone()) {
        Ok(id) => {
            assert!(list.len() < LIMIT && src.is_ipv4() == dst.is_ipv4());
            let at = list.iter().position(|(_, held)| held.priority > policy.priority).unwrap_or(list.len());
            list.insert(at, (id, policy));
        }
        Err(InsertError::MixedVersions { .. }) => assert_ne!(src.is_ipv4(), dst.is_ipv4()),
        Err(InsertError::TableFull { limit }) => assert_eq!((limit, list.len()), (LIMIT, LIMIT)),
    }
}

/// Searches the list from the top. The hidden ports of a fragment might match (RFC 4301 section 7).
fn lookup<'a>(list: &'a [(PolicyId, Policy)], flow: &FlowKey) -> Lookup<'a> {
    for (id, policy) in list {
        let Selector { src, dst, proto, src_port, dst_port } = &policy.selector;
        if !src.contains(flow.src()) || !dst.contains(flow.dst()) {
            continue;
        }
        let mut hidden = false;
        match (proto, flow.proto()) {
            (Some(wanted), Some(has)) if *wanted != has => continue,
            (Some(_), None) => hidden = true,
            _ => {}
        }
        match flow.ports() {
            Some(ports) if !src_port.contains(ports.src) || !dst_port.contains(ports.dst) => continue,
            None if !(src_port.is_any() && dst_port.is_any()) => hidden = true,
            _ => {}
        }
        return if hidden { Lookup::NeedsPorts } else { Lookup::Match(*id, policy) };
    }
    Lookup::NoMatch
}

/// Few addresses, so that policies overlap and flows match.
fn addr(input: &mut Input<'_>, is_v4: bool) -> IpAddr {
    let host = input.u8() & 7;
    if is_v4 {
        Ipv4Addr::new(10, 0, 0, host).into()
    } else {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into()
    }
}

fn range(input: &mut Input<'_>, is_v4: bool) -> AddrRange {
    let (addr, width) = (addr(input, is_v4), if is_v4 { 32 } else { 128 });
    match input.u8() % 8 {
        0 => AddrRange::prefix(addr, 0).unwrap(),
        1 | 2 => {
            let other = self::addr(input, is_v4);
            AddrRange::new(addr.min(other), addr.max(other)).unwrap()
        }
        n => AddrRange::prefix(addr, width - (n & 3)).unwrap(),
    }
}

fn ports(input: &mut Input<'_>) -> PortRange {
    match input.u8() {
        n if n & 0x80 == 0 => PortRange::ANY,
        n => {
            let (a, b) = (u16::from(n & 3), u16::from(n >> 2 & 3));
            PortRange::new(a.min(b), a.max(b)).unwrap()
        }
    }
}

fn policy(input: &mut Input<'_>) -> Policy {
    let shape = input.u8();
    let is_v4 = shape & 1 == 0;
    let dst_is_v4 = if shape & 0xf0 == 0xf0 { !is_v4 } else { is_v4 };
    let selector = Selector {
        src: range(input, is_v4),
        dst: range(input, dst_is_v4),
        proto: [None, Some(proto::TCP), Some(proto::UDP)][input.index(3)],
        src_port: ports(input),
        dst_port: ports(input),
    };
    let action = if shape & 2 == 0 { Action::Discard } else { Action::Bypass };
    Policy { spd: SpdId::MAIN, selector, action, priority: u32::from(shape >> 2 & 3) }
}

/// Flow, in some cases of a fragment that hides its ports or its protocol.
fn flow(input: &mut Input<'_>) -> FlowKey {
    let shape = input.u8();
    let (src, dst) = (addr(input, shape & 1 == 0), addr(input, shape & 1 == 0));
    let protocol = [proto::TCP, proto::UDP, proto::GRE][input.index(3)];
    let ports = [0, shape >> 4 & 3, 0, shape >> 6 & 3];
    let mut packet = casemate_test_support::hosts::packets::ip(src, dst, protocol, &ports, false);
    if shape & 2 != 0 {
        packet = later_fragment(packet, shape & 4 != 0);
    }
    let flow = FlowKey::parse(&packet).unwrap();
    assert_eq!(flow.fragment() == FragmentKind::Later, shape & 2 != 0);
    flow
}

fn later_fragment(mut packet: Vec<u8>, hides_protocol: bool) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[7] = 2;
        return packet;
    }
    let header = (proto::FRAGMENT, vec![0, 0, 0, 16, 0, 0, 0, 1]);
    packet = casemate_test_support::hosts::packets::with_v6_headers(&packet, &[header]);
    if hides_protocol {
        packet[40] = proto::DEST_OPTS;
    }
    packet
}

fn seeds() -> Vec<Vec<u8>> {
    let any = |shape: u8| Script::default().u8(0).u8(shape).bytes(&[1, 3, 2, 0, 1, 0x84, 0]);
    let insert = |shape: u8| any(shape).finish();
    let look = |shape: u8| vec![5, shape, 1, 2, 0];
    vec![
        [&[7][..], &insert(0), &insert(6), &look(0x10), &look(0x52), &[3, 0], &look(0x10)].concat(),
        [&[8][..], &insert(1), &insert(3), &look(0x11), &look(3), &look(7)].concat(),
    ]
}
