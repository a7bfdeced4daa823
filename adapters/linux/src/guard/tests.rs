use super::*;
use casemate_sa::{AddrRange, PortRange, Selector};

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
    guard.again(policies.iter().map(|(priority, demand)| (Direction::Outbound, rank(*priority), *demand)));
    guard
}

#[test]
fn a_filter_without_policies_has_one_empty_layer_each_way() {
    let script = guard(&[]).script();
    let chains = ["  chain in0 {\n  }\n", "  chain out0_frag {\n  }\n"];
    for line in chains.into_iter().chain(["    jump in0\n", "    jump out0\n", "    jump out0_frag\n"]) {
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
    let (shape, second) = Shape::of(&inside("10.1.0.0/16", "10.2.0.2/32").selector).unwrap();
    let change =
        |add, remove| Update::Elements(vec![SetChange { set: "out0_v4_s16_d32".into(), shape, add, remove }]);
    let nothing = || Update::Elements(vec![]);
    assert_eq!(guard.update(), change(vec![second], vec![]));
    assert_eq!(guard.update(), nothing(), "once");
    // Asked for twice, it is there once, and goes with the last who asks for it.
    guard.add(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
    guard.remove(Direction::Outbound, rank(2), &inside("10.1.0.0/16", "10.2.0.2/32"));
    assert_eq!(guard.update(), nothing());
    guard.remove(Direction::Outbound, rank(3), &inside("10.1.0.0/16", "10.2.0.2/32"));
    assert_eq!(guard.update(), change(vec![], vec![second]));
    // What comes and goes at once is not worth a word.
    guard.add(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
    guard.remove(Direction::Outbound, rank(4), &inside("10.1.0.0/16", "10.2.0.9/32"));
    assert_eq!(guard.update(), nothing());
}

/// What nft is to do; a change without it is none here.
fn script(update: Update) -> String {
    match update {
        Update::Script(script) => script,
        Update::Elements(changes) => panic!("without nft: {changes:?}"),
    }
}

#[test]
fn a_policy_that_moves_to_another_set_is_in_one_of_them_at_any_moment() {
    let (here, there) = (inside("10.1.0.0/16", "10.2.0.9/32"), inside("10.1.0.9/32", "10.2.0.9/32"));
    let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32")), (2, here)]);
    guard.settle();
    guard.remove(Direction::Outbound, rank(2), &here);
    guard.add(Direction::Outbound, rank(2), &there);
    let moved = script(guard.update());
    assert!(moved.starts_with("add set inet casemate_tun5 out0_v4_s32_d32 "), "{moved}");
    let goes = "\ndelete element inet casemate_tun5 out0_v4_s16_d32 { 10.1.0.0 . 10.2.0.9 }\n";
    assert!(moved.ends_with(goes), "{moved}");
    for n in 0..3_000u16 {
        let [high, low] = n.to_be_bytes();
        let to = |net: u8| inside("10.1.0.0/16", &format!("{net}.9.{high}.{low}/32"));
        guard.add(Direction::Outbound, rank(3), &to(11));
        guard.add(Direction::Inbound, rank(3), &to(12));
    }
    let many = script(guard.update());
    assert_eq!((many.matches(". 11.9.").count(), many.matches(". 12.9.").count()), (3_000, 3_000));
    assert!(
        many.contains("\nadd element inet casemate_tun5 out0_v4_s16_d32 { 10.1.0.0 . 11.9.0.0, "),
        "{many}"
    );
}

#[test]
fn a_policy_of_another_shape_changes_one_chain() {
    let mut guard = guard(&[(1, inside("10.1.0.0/16", "10.2.0.1/32"))]);
    guard.settle();
    guard.add(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
    assert_eq!(
        script(guard.update()),
        "add set inet casemate_tun5 in0_v4_s32_d16 { type ipv4_addr . ipv4_addr; elements = { 10.2.0.1 . 10.1.0.0 } }\n\
         flush chain inet casemate_tun5 in0\n\
         add rule inet casemate_tun5 in0 ip saddr . ip daddr & 255.255.0.0 @in0_v4_s32_d16 counter drop\n\
         flush chain inet casemate_tun5 in0_frag\n\
         add rule inet casemate_tun5 in0_frag ip saddr . ip daddr & 255.255.0.0 @in0_v4_s32_d16 counter drop\n"
    );
    guard.remove(Direction::Inbound, rank(1), &inside("10.2.0.1/32", "10.1.0.0/16"));
    assert_eq!(
        script(guard.update()),
        "flush chain inet casemate_tun5 in0\nflush chain inet casemate_tun5 in0_frag\n\
         delete set inet casemate_tun5 in0_v4_s32_d16\n"
    );
}

#[test]
fn what_passes_packets_makes_the_filter_anew_in_one_transaction() {
    let mut guard = guard(&[(5, inside("10.1.0.0/16", "10.2.0.1/32"))]);
    guard.settle();
    guard.add(Direction::Outbound, rank(3), &bypass("0.0.0.0/0", "10.2.0.0/24"));
    assert!(guard.is_other());
    let update = script(guard.update());
    let lead = "table inet casemate_tun5 { }\ndelete table inet casemate_tun5\ntable inet casemate_tun5 {\n";
    assert!(update.starts_with(lead), "{update}");
    assert!(!guard.is_other());
    guard.distrust();
    assert!(script(guard.update()).starts_with(lead));
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
    // What passes because of its port passes whole.
    assert!(
        script.contains("  chain out_fragment {\n    jump out0_frag\n    jump out1_frag\n  }\n"),
        "{script}"
    );
    assert_eq!(script.matches("th dport 53 accept").count(), 1);
}

#[test]
fn the_protocol_of_an_ipv6_fragment_is_not_believed() {
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
fn what_passes_passes_no_more_than_its_policy_says() {
    let mut open = bypass("10.1.0.0/16", "10.2.0.0/16");
    open.selector.dst_port = PortRange::single(53);
    let script = guard(&[(1, open), (2, inside("10.1.0.0/16", "10.2.0.0/16"))]).script();
    assert!(!script.contains("10.2.0.0/16 accept"), "ports of any protocol are no rule: {script}");
}

#[test]
fn neighbours_and_routers_are_heard_and_redirects_are_not() {
    let script = guard(&[(1, inside("fe80::/10", "::/0"))]).script();
    assert_eq!(script.matches("icmpv6 type { 135, 136 } ip6 hoplimit 255 accept\n").count(), 2);
    let routers = "icmpv6 type { 133, 134 } ip6 hoplimit 255 ip6 saddr { ::/128, fe80::/10 } accept\n";
    assert_eq!(script.matches(routers).count(), 2);
    assert!(!script.contains("137"), "{script}");
    // None of them comes in fragments (RFC 6980).
    let (_, sent) = script.split_once("chain sent").unwrap();
    assert!(sent.find("frag more-fragments 1 goto out_fragment") < sent.find("icmpv6"), "{script}");
}
