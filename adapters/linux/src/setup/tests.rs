use super::*;
use crate::netns::Netns;
use casemate_datapath::spd::{Action, Bundle, PolicyTable, Template};
use casemate_sa::{AddrRange, Mode, Protocol, Selector};
use casemate_sched::{Class, DscpTable, Rule as ClassRule};

const NUMBERS: Numbers = Numbers { mark: 7, table: 8, priority: 9 };

fn range(text: &str) -> AddrRange {
    let (addr, len) = text.split_once('/').unwrap();
    AddrRange::prefix(addr.parse().unwrap(), len.parse().unwrap()).unwrap()
}

fn policy(src: &str, dst: &str, action: Action) -> Policy {
    Policy { selector: Selector::between(range(src), range(dst)), action, priority: 0 }
}

fn protect(src: Option<&str>) -> Action {
    let src = src.map(|addr| addr.parse().unwrap());
    Action::Protect(Bundle::single(Template {
        protocol: Protocol::Esp,
        mode: Mode::Tunnel,
        src,
        dst: None,
        reqid: 0,
    }))
}

fn wanted<'a>(outbound: &'a [(PolicyId, &'a Policy)]) -> Wanted<'a> {
    let (inbound, encap_ports, peers) = (&[][..], &[][..], &[][..]);
    Wanted {
        tun: "tun5",
        tun_mtu: 1400,
        numbers: NUMBERS,
        outbound,
        inbound,
        encap_ports,
        peers,
        held: &[],
        classifier: None,
    }
}

/// The policies in a table, by their names and in their order.
fn table(policies: &[Policy]) -> PolicyTable {
    let mut table = PolicyTable::new(100, 1);
    for policy in policies {
        table.insert(policy.clone()).unwrap();
    }
    table
}

fn planned(policies: &[Policy], addresses: &[&str]) -> Vec<String> {
    let table = table(policies);
    let policies: Vec<_> = table.iter().collect();
    let addresses = addresses.iter().map(|addr| addr.parse().unwrap()).collect();
    Scheme::new(&wanted(&policies), addresses).routes(NUMBERS.table).map(|route| route.to_string()).collect()
}

#[test]
fn protected_and_discarded_destinations_go_in_with_a_source_that_matches() {
    let policies = [
        policy("10.1.0.0/16", "10.2.0.0/16", protect(None)),
        policy("fd01::/64", "fd02::/64", protect(None)),
        policy("0.0.0.0/0", "10.3.0.0/16", Action::Discard),
    ];
    let addresses = ["127.0.0.1", "192.0.2.1", "10.1.0.1", "fe80::1", "fd01::1"];
    assert_eq!(
        planned(&policies, &addresses),
        [
            "ip -4 route add 10.2.0.0/16 dev tun5 table 8 src 10.1.0.1",
            "ip -4 route add 10.3.0.0/16 dev tun5 table 8 src 192.0.2.1",
            "ip -6 route add fd02::/64 dev tun5 table 8 src fd01::1",
        ]
    );
    assert_eq!(planned(&policies[..1], &[]), ["ip -4 route add 10.2.0.0/16 dev tun5 table 8"]);
}

#[test]
fn the_end_of_the_tunnel_is_preferred_as_source() {
    let policies = [policy("0.0.0.0/0", "0.0.0.0/0", protect(Some("192.0.2.9")))];
    let routes = planned(&policies, &["10.0.0.1", "192.0.2.9"]);
    assert_eq!(routes, ["ip -4 route add 0.0.0.0/0 dev tun5 table 8 src 192.0.2.9"]);
}

#[test]
fn what_passes_in_any_case_goes_past() {
    let bypass = policy("0.0.0.0/0", "10.9.0.0/16", Action::Bypass);
    let all = policy("0.0.0.0/0", "0.0.0.0/0", protect(None));
    let in_before = "ip -4 route add 0.0.0.0/0 dev tun5 table 8";
    let past = "ip -4 route add throw 10.9.0.0/16 table 8";
    assert_eq!(planned(&[bypass.clone(), all.clone()], &[]), [in_before, past]);
    // The order says that all is protected, so the bypass decides nothing.
    assert_eq!(planned(&[all.clone(), bypass.clone()], &[]), [in_before]);
    // A bypass for some senders or services only is for the data path to judge.
    let some = policy("10.1.0.0/16", "10.9.0.0/16", Action::Bypass);
    let mut service = bypass.clone();
    service.selector.proto = Some(6);
    assert_eq!(planned(&[some, service, all], &[]), [in_before]);
    // Nothing leads in, so nothing has to lead past.
    assert_eq!(planned(&[bypass], &[]), [""; 0]);
}

#[test]
fn of_policies_for_one_destination_the_first_says_how() {
    let addresses = ["192.0.2.1", "10.1.0.1"];
    let narrow = policy("10.1.0.0/16", "10.2.0.0/16", protect(None));
    let wide = policy("0.0.0.0/0", "10.2.0.0/16", protect(None));
    let route = |src| format!("ip -4 route add 10.2.0.0/16 dev tun5 table 8 src {src}");
    assert_eq!(planned(&[narrow.clone(), wide.clone()], &addresses), [route("10.1.0.1")]);
    assert_eq!(planned(&[wide.clone(), narrow], &addresses), [route("192.0.2.1")]);
    let bypass = policy("0.0.0.0/0", "10.2.0.0/16", Action::Bypass);
    assert_eq!(planned(&[bypass.clone(), wide.clone()], &addresses), [""; 0]);
    assert_eq!(planned(&[wide, bypass], &addresses), [route("192.0.2.1")]);
}

#[test]
fn every_change_is_shown_as_a_command() {
    let show = |change: Change| change.to_string();
    assert_eq!(
        show(Change::Tun { name: "tun5".into(), has_queues: false }),
        "ip tuntap add dev tun5 mode tun"
    );
    assert_eq!(
        show(Change::Tun { name: "tun5".into(), has_queues: true }),
        "ip tuntap add dev tun5 mode tun multi_queue"
    );
    assert_eq!(show(Change::Up { name: "tun5".into(), mtu: 1400 }), "ip link set dev tun5 mtu 1400 up");
    assert_eq!(
        show(Change::Sysctl { name: rp_filter_name("eth0"), value: "2" }),
        "sysctl -w net.ipv4.conf.eth0.rp_filter=2"
    );
    assert_eq!(
        show(Change::Guard { tun: "t".into(), script: "table\n".into() }),
        "nft -f - <<'END'\ntable\nEND"
    );
}

#[test]
fn rules_come_last_and_only_for_versions_that_are_led_in() {
    let table = table(&[policy("10.1.0.0/16", "10.2.0.0/16", protect(None))]);
    let policies: Vec<_> = table.iter().collect();
    let Ok(mut netlink) = Netlink::open() else { return };
    let plan = Plan::new(&wanted(&policies), &mut netlink).unwrap();
    let kinds: Vec<_> = plan.changes().iter().map(std::mem::discriminant).collect();
    let [Change::Tun { .. }, Change::Guard { .. }, Change::Up { .. }, ..] = plan.changes() else {
        panic!("the guard comes before traffic is led anywhere: {plan}");
    };
    assert!(matches!(plan.changes().last(), Some(Change::Rule(Rule { v4: true, .. }))));
    assert_eq!(kinds.iter().filter(|kind| Some(*kind) == kinds.last()).count(), 1);
}

#[test]
fn where_queues_for_classes_are_not_to_be_had_there_is_one_and_a_warning() {
    let Some(netns) = Netns::new().map_err(casemate_left_out::note).ok() else { return };
    let rule = |number: u32| {
        let range = AddrRange::single(IpAddr::from(number.to_be_bytes()));
        ClassRule { selector: Selector::between(range, range), class: Class::Least }
    };
    // More than a program can hold, whoever loads it.
    let rules: Vec<_> = (1..=10_000).map(rule).collect();
    let classifier = Classifier::new(rules, DscpTable::FLAT);
    let make = |classifier| {
        let mut netlink = Netlink::open().unwrap();
        let mut warnings = Vec::new();
        let tun =
            Tun::claim("tun5", classifier, &mut netlink, &mut |warning| warnings.push(warning)).unwrap();
        (tun.queues().count(), warnings)
    };
    assert_eq!(netns.run(|| make(None)).unwrap(), (1, vec![]));
    let (queues, warnings) = netns.run(|| make(Some(&classifier))).unwrap();
    assert_eq!((queues, warnings.len()), (1, 1));
    assert!(
        warnings[0].contains("share one queue") && warnings[0].contains("too many rules"),
        "{warnings:?}"
    );
}
