use super::*;
use casemate_sa::{AddrRange, Selector};

fn range(text: &str) -> AddrRange {
    let (addr, len) = text.split_once('/').unwrap();
    AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
}

fn inside(src: &str, dst: &str) -> Demand {
    let selector = Selector::between(range(src), range(dst));
    Demand { selector, purpose: Purpose::Inside { end: None } }
}

fn bypass(src: &str, dst: &str) -> Demand {
    Demand { purpose: Purpose::Bypass, ..inside(src, dst) }
}

fn rank(priority: u32) -> Rank {
    Rank { priority, serial: 1 }
}

fn guard(policies: &[(u32, Demand)]) -> Guard {
    let mut guard = Guard::new(Frame { tun: "tun5".into(), mark: 7, encap_ports: vec![500, 4500] });
    guard.again(policies.iter().map(|(priority, demand)| (Direction::Outbound, rank(*priority), demand)));
    guard
}

#[test]
fn a_filter_without_policies_has_one_empty_layer_each_way() {
    let script = guard(&[]).script();
    for line in ["  chain in0 {\n  }\n", "  chain out0 {\n  }\n", "    jump in0\n", "    jump out0\n"] {
        assert_eq!(script.matches(line).count(), 1, "{line} in {script}");
    }
    assert!(script.contains("    udp dport { 500, 4500 } accept\n"));
}

#[test]
fn what_passes_stands_between_layers_in_the_order_of_the_policies() {
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
fn a_policy_like_others_is_one_element() {
    let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32"))]);
    guard.settle();
    guard.add(Direction::Outbound, rank(2), &inside("10.1.0.0/16", "10.2.0.2/32"));
    let change = |add: &[[u8; 8]], remove: &[[u8; 8]]| {
        let of = |keys: &[[u8; 8]]| keys.iter().map(|key| key.to_vec()).collect();
        let elements = vec![SetChange { set: "out0_v4_s16_d32".into(), add: of(add), remove: of(remove) }];
        Update { script: String::new(), elements }
    };
    assert_eq!(guard.update(), change(&[[10, 1, 0, 0, 10, 2, 0, 2]], &[]));
    assert_eq!(guard.update(), Update::default(), "once");
    // Asked for twice, it is there once, and goes with the last who asks for it.
    guard.add(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
    guard.remove(Direction::Outbound, rank(2), &inside("10.1.0.0/16", "10.2.0.2/32"));
    assert_eq!(guard.update(), Update::default());
    guard.remove(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
    assert_eq!(guard.update(), change(&[], &[[10, 1, 0, 0, 10, 2, 0, 2]]));
    // What comes and goes at once is not worth a word.
    guard.add(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
    guard.remove(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
    assert_eq!(guard.update(), Update::default());
}

#[test]
fn a_policy_of_another_shape_changes_one_chain() {
    let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32"))]);
    guard.settle();
    guard.add(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
    let came = guard.update();
    assert_eq!(
        came.script,
        "add set inet casemate_tun5 in0_v4_s32_d16 { type ipv4_addr . ipv4_addr; elements = { 10.2.0.1 . 10.1.0.0 } }\n\
         flush chain inet casemate_tun5 in0\n\
         add rule inet casemate_tun5 in0 ip saddr . ip daddr & 255.255.0.0 @in0_v4_s32_d16 counter drop\n"
    );
    assert_eq!(came.elements, []);
    guard.remove(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
    let went = guard.update();
    assert_eq!(
        went.script,
        "flush chain inet casemate_tun5 in0\ndelete set inet casemate_tun5 in0_v4_s32_d16\n"
    );
    assert_eq!(went.elements, []);
}

#[test]
fn what_passes_packets_makes_the_filter_anew_in_one_transaction() {
    let mut guard = guard(&[(5, inside("10.1.0.0/16", "10.2.0.1/32"))]);
    guard.settle();
    guard.add(Direction::Outbound, rank(3), &bypass("0.0.0.0/0", "10.2.0.0/24"));
    assert!(guard.is_other());
    let update = guard.update();
    let lead = "table inet casemate_tun5 { }\ndelete table inet casemate_tun5\ntable inet casemate_tun5 {\n";
    assert!(update.script.starts_with(lead), "{}", update.script);
    assert!(!guard.is_other());
    guard.distrust();
    assert!(guard.update().script.starts_with(lead));
}
