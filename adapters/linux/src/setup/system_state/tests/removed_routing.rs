//! Routes, rules and virtual addresses that other programs remove are set again.

use super::lost_routes::{in_namespace, routes};
use super::*;
use crate::setup::mark_routes::MarkedTunnel;

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 1));

fn v6() -> IpAddr {
    "fd03::1".parse().unwrap()
}

/// A host with virtual addresses, a tunnel for each IP version, and one for packets with a mark.
fn host() -> Host {
    host_with(Nft::direct())
}

fn host_with(nft: Nft) -> Host {
    let mut host = Host::make(PolicyTable::new(10, 1), PolicyTable::new(10, 2), &[], nft);
    host.assign(&[V4, v6()]);
    for (src, dst) in [("10.3.0.1/32", "10.1.0.0/16"), ("fd03::1/128", "fd01::/64")] {
        host.add(Direction::Outbound, policy(src, dst, protect(), 10));
    }
    let mut marked = policy("0.0.0.0/0", "10.6.0.0/16", protect(), 10);
    marked.spd = SpdId::new(7);
    host.add(Direction::Outbound, marked);
    let tunnel = MarkedTunnel { mark: 7, index: host.tun.index() };
    host.state.set_marked_tunnels([(SpdId::new(7), tunnel)].into());
    host.state.reconcile_blocking().unwrap();
    host.state.read_system_changes();
    host
}

/// Everything that the host needs, besides the guard.
fn everything() -> Vec<String> {
    let mut all = routes();
    for version in ["-4", "-6"] {
        let rules = run_program("ip", &[version, "rule"]);
        all.extend(rules.lines().filter(|rule| !rule.contains("lookup local")).map(str::to_owned));
        let marked = run_program("ip", &[version, "route", "show", "table", "all"]);
        all.extend(marked.lines().filter(|route| route.contains("table 1073741831")).map(str::to_owned));
        let addresses = run_program("ip", &["-o", version, "address", "show", "dev", TUN, "scope", "global"]);
        all.extend(addresses.lines().map(|line| line.split_whitespace().nth(3).unwrap().to_owned()));
    }
    all
}

/// Does what the event loop does until everything is as before. Returns the reports about failures.
fn until_restored(host: &mut Host, before: &[String]) -> Vec<String> {
    let (mut reports, start) = (Vec::new(), Instant::now());
    while everything() != before {
        let after = everything();
        assert!(start.elapsed() < Duration::from_secs(5), "{reports:#?} {before:#?} {after:#?}");
        host.state.read_system_changes();
        host.state.reconcile(&mut |error| reports.push(error.to_string()));
        std::thread::sleep(Duration::from_millis(10));
    }
    reports
}

fn ip(command: &str) {
    run_program("ip", &command.split(' ').collect::<Vec<_>>());
}

#[test]
fn what_another_program_removes_is_set_again_and_logged() {
    in_namespace(|| {
        let mut host = host();
        let before = everything();
        assert_eq!(before.len(), 12, "{before:#?}");
        for removal in [
            "-4 rule del pref 220",
            "-6 rule del pref 220",
            "-4 rule del pref 200",
            "-4 route flush table 50510",
            "-6 route flush table 50510",
            "-4 route flush table 1073741831",
            "-4 route del unreachable default table 1073741831",
            "-4 route replace 10.1.0.0/16 dev lo table 50510",
        ] {
            ip(removal);
            assert_ne!(everything(), before, "{removal}");
            assert_eq!(until_restored(&mut host, &before), [""; 0], "{removal}");
            let messages = host.state.take_routing_messages();
            let [message] = messages.as_slice() else { panic!("{removal}: {messages:?}") };
            assert!(message.contains("had been removed"), "{message}");
        }
        host.end();
    });
}

/// Packets with a mark leave in clear without its rule and routes.
#[test]
fn rules_for_marks_do_not_wait_for_nft() {
    in_namespace(|| {
        let (nft, process) = Process::start(Duration::from_secs(5));
        let mut host = host_with(nft);
        let before = everything();
        host.add(Direction::Outbound, policy("10.9.0.0/16", "10.0.1.0/24", Action::Bypass, 1));
        process.stop();
        assert!(!host.state.reconcile(&mut |error| panic!("{error}")));
        for removal in ["-4 rule del pref 200", "-4 route flush table 1073741831"] {
            ip(removal);
            until_restored(&mut host, &before);
            assert!(!host.state.reconcile(&mut |error| panic!("{error}")));
        }
        process.go_on();
        host.state.reconcile_blocking().unwrap();
        host.end();
    });
}

#[test]
fn a_virtual_address_that_another_program_removes_is_set_again() {
    in_namespace(|| {
        let mut host = host();
        let before = everything();
        for removal in ["-4 address flush dev tun5", "-6 address del fd03::1/128 dev tun5"] {
            ip(removal);
            assert_ne!(everything(), before, "{removal}");
            until_restored(&mut host, &before);
            let messages = host.state.take_routing_messages().concat();
            assert!(messages.contains("ip address add"), "{messages}");
        }
        host.state.remove_addresses(&[V4]).unwrap();
        until_restored(&mut host, &everything());
        host.state.read_system_changes();
        host.state.reconcile_blocking().unwrap();
        assert!(!everything().contains(&"10.3.0.1/32".into()), "the peer does not assign it any more");
        host.end();
    });
}

/// The failure while it is off is reported once.
#[test]
fn routes_come_back_with_their_interface() {
    in_namespace(|| {
        let mut host = host();
        let before = everything();
        ip("link set tun5 down");
        let (mut reports, start) = (Vec::new(), Instant::now());
        while start.elapsed() < Duration::from_millis(2500) {
            host.state.read_system_changes();
            host.state.reconcile(&mut |error| reports.push(error.to_string()));
            std::thread::sleep(host.state.time_to_retry().unwrap().min(Duration::from_millis(100)));
        }
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(reports[0].contains("Network is down"), "{reports:?}");
        host.state.take_routing_messages();
        ip("link set tun5 up");
        until_restored(&mut host, &before);
        let messages = host.state.take_routing_messages();
        assert!(messages.contains(&"the system follows the policies again".into()), "{messages:?}");
        host.end();
    });
}

#[test]
fn routes_come_back_when_ipv6_is_on_again() {
    in_namespace(|| {
        let mut host = host();
        let before = everything();
        for interface in ["tun5", "all"] {
            let name = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
            std::fs::write(&name, "1").unwrap();
            host.state.read_system_changes();
            let mut failed = 0;
            host.state.reconcile(&mut |_| failed += 1);
            assert_eq!(failed, 1);
            std::fs::write(&name, "0").unwrap();
            until_restored(&mut host, &before);
        }
        host.end();
    });
}

/// Another program that removes the rule continuously must not keep Casemate busy.
#[test]
fn rules_are_restored_at_a_bounded_rate() {
    in_namespace(|| {
        let mut host = host();
        let (before, start, mut removed) = (everything(), Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(3) {
            let is_there = run_program("ip", &["rule"]).contains("220:");
            if is_there {
                ip("rule del pref 220");
                removed += 1;
            }
            host.state.read_system_changes();
            host.state.reconcile(&mut |error| panic!("{error}"));
        }
        assert!((11..=15).contains(&removed), "{removed}");
        let messages = host.state.take_routing_messages();
        let repeated = messages.iter().filter(|message| message.contains("again and again")).count();
        assert_eq!((repeated, messages.len()), (1, 10), "{messages:?}");
        until_restored(&mut host, &before);
        host.end();
    });
}

/// The guard knows the interface by its name.
#[test]
fn another_name_of_the_interface_is_reported() {
    in_namespace(|| {
        let mut host = host();
        let mut reports = Vec::new();
        for (old, new) in [("tun5", "other"), ("other", "tun5")] {
            ip(&format!("link set {old} down"));
            ip(&format!("link set {old} name {new}"));
            ip(&format!("link set {new} up"));
            host.state.read_system_changes();
            host.state.reconcile(&mut |error| reports.push(error.to_string()));
        }
        let [report] = reports.as_slice() else { panic!("{reports:?}") };
        assert!(report.contains("`ip link set other name tun5` was expected"), "{report}");
        let messages = host.state.take_routing_messages();
        assert!(messages.contains(&"the system follows the policies again".into()), "{messages:?}");
        host.end();
    });
}

#[test]
fn a_renamed_interface_of_a_tunnel_is_removed_at_the_end() {
    in_namespace(|| {
        let mut host = Host::empty();
        let mut netlink = Netlink::open().unwrap();
        let tunnel = Tun::create("ipsec5", &mut netlink).unwrap();
        host.state.record_tunnels(&[("ipsec5".to_owned(), tunnel.index())].into()).unwrap();
        tunnel.set_persistent(true).unwrap();
        drop(tunnel);
        ip("link set ipsec5 name other");
        host.end();
        assert!(!run_program("ip", &["-o", "link"]).contains("other"));
    });
}
