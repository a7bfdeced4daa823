//! Addresses that a host has already, and addresses that no host can have.

use super::*;

fn error(addresses: Vec<VirtualAddress>, lifetime: Duration) -> String {
    VirtualAddresses::open(addresses, lifetime).unwrap_err().to_string()
}

#[test]
fn what_a_crashed_run_has_left_is_removed() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let before = ip("-6 route");
            let mut crashed = open(LONG);
            crashed.take(at(0)).unwrap();
            drop(crashed);
            assert_eq!(present().len(), 2, "an end without give_up leaves them to their lifetime");
            let mut standby = open(LONG);
            assert!(present().is_empty());
            assert_eq!(ip("-6 route"), before);
            assert!(!standby.is_held());
            // By now another run may have had them, with other prefixes.
            ip("addr add 192.0.2.1/25 dev wire valid_lft 300 preferred_lft 300");
            ip("addr add 2001:db8::1/64 dev lo valid_lft 300 preferred_lft 300");
            standby.take(at(0)).unwrap();
            assert_eq!(present().len(), 2);
            let all = ip("addr");
            assert!(all.contains("192.0.2.1/24") && !all.contains("192.0.2.1/25"), "{all}");
            assert_eq!(all.matches("2001:db8::1/").count(), 1, "{all}");
        })
        .unwrap();
}

#[test]
fn addresses_of_the_administrator_or_another_program_are_refused_and_kept() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            for (place, what, reason) in [
                ("192.0.2.1/24 dev wire", "192.0.2.1: interface wire", "configured statically"),
                ("192.0.2.1/32 dev lo", "192.0.2.1: interface lo", "configured statically"),
                ("2001:db8::1/64 dev wire", "2001:db8::1: interface wire", "configured statically"),
                ("2001:db8::1/64 dev wire valid_lft 301", "2001:db8::1: interface wire", "another program"),
            ] {
                let mut earlier = open(LONG);
                // A former run has left the address of the other IP version.
                let other = if what.starts_with('1') { "2001:db8::1/64" } else { "192.0.2.1/24" };
                ip(&format!("addr add {other} dev wire valid_lft 300 preferred_lft 300"));
                ip(&format!(
                    "addr add {place} {}",
                    if place.contains("lft") { "preferred_lft 301" } else { "" }
                ));
                let text = error(both(), LONG);
                assert!(text.starts_with(&format!("virtual address {what} has it: ")), "{text}");
                assert!(text.contains(reason), "{text}");
                assert_eq!(present().len(), 2, "nothing is removed");
                assert_eq!(earlier.take(at(0)).unwrap_err().to_string()[..40], text[..40]);
                assert!(!earlier.is_held());
                assert_eq!(present().len(), 2, "nothing is removed");
                let addr = place.split(' ').take(3).collect::<Vec<_>>().join(" ");
                ip(&format!("addr del {addr} && ip addr del {other} dev wire"));
            }
            open(LONG).take(at(0)).unwrap();
        })
        .unwrap();
}

#[test]
fn interfaces_that_cannot_have_the_addresses_are_refused() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let on = |addr, interface| error(vec![virtual_address(addr, interface)], LONG);
            assert_eq!(on("192.0.2.1", "eth7"), "interface eth7: No such device (os error 19)");
            let lo = on("192.0.2.1", "lo");
            assert_eq!(lo, "interface lo: it is no Ethernet interface: expected one");
            std::fs::write("/proc/sys/net/ipv6/conf/wire/disable_ipv6", "1").unwrap();
            let disabled = "interface wire: IPv6 is disabled: expected net.ipv6.conf.wire.disable_ipv6 = 0";
            assert_eq!(on("2001:db8::1", "wire"), disabled);
            VirtualAddresses::open(vec![virtual_address("192.0.2.1", "wire")], LONG).unwrap();
        })
        .unwrap();
}

#[test]
fn all_addresses_are_taken_or_none() {
    let Some(lan) = lan(1) else { return };
    connect(&lan.hosts[0], &lan.switch, "other", "port9");
    lan.hosts[0]
        .run(|| {
            let second = virtual_address("2001:db8:1::1", "wire");
            let addresses = vec![virtual_address("10.1.0.1", "other"), second];
            let mut owner = VirtualAddresses::open(addresses, LONG).unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/wire/disable_ipv6", "1").unwrap();
            let error = owner.take(at(0)).unwrap_err().to_string();
            assert!(error.starts_with("virtual address 2001:db8:1::1/64 on wire: "), "{error}");
            assert!(!owner.is_held());
            assert!(!ip("addr show dev other").contains("10.1.0.1"));
            std::fs::write("/proc/sys/net/ipv6/conf/wire/disable_ipv6", "0").unwrap();
            owner.take(at(0)).unwrap();
            assert!(ip("addr show dev other").contains("10.1.0.1"));
        })
        .unwrap();
}

#[test]
fn addresses_that_no_host_can_have_are_refused() {
    let address = |addr: &str, prefix_len| VirtualAddress {
        addr: addr.parse().unwrap(),
        prefix_len,
        interface: "none".into(),
    };
    for (addr, prefix_len, expected) in [
        ("192.0.2.1", 0, "a prefix length of 0: expected 1 to 32"),
        ("192.0.2.1", 33, "a prefix length of 33: expected 1 to 32"),
        ("2001:db8::1", 0, "a prefix length of 0: expected 1 to 128"),
        ("2001:db8::1", 129, "a prefix length of 129: expected 1 to 128"),
        ("192.0.2.0", 24, "expected an address of a host, between 192.0.2.0 and 192.0.2.255"),
        ("192.0.2.255", 24, "expected an address of a host, between 192.0.2.0 and 192.0.2.255"),
        ("0.0.0.0", 32, "expected the unicast address of a host"),
        ("127.0.0.1", 32, "expected the unicast address of a host"),
        ("224.0.0.1", 32, "expected the unicast address of a host"),
        ("255.255.255.255", 32, "expected the unicast address of a host"),
        ("::", 64, "expected the unicast address of a host"),
        ("::1", 64, "expected the unicast address of a host"),
        ("ff02::1", 64, "expected the unicast address of a host"),
        ("::ffff:192.0.2.1", 64, "expected the unicast address of a host"),
    ] {
        let text = error(vec![address(addr, prefix_len)], LONG);
        assert_eq!(text, format!("virtual address {addr}/{prefix_len} on none: {expected}"));
    }
    // These get as far as the interface, which does not exist.
    for (addr, prefix_len) in [("192.0.2.0", 31), ("192.0.2.1", 32), ("192.0.2.1", 1), ("2001:db8::", 128)] {
        let text = error(vec![address(addr, prefix_len)], LONG);
        assert!(text.starts_with("interface none: "), "{text}");
    }
    let twice = vec![address("192.0.2.1", 24), address("2001:db8::1", 64), address("192.0.2.1", 32)];
    let text = error(twice, LONG);
    let first = "virtual address 192.0.2.1/24 on none";
    assert_eq!(text, format!("virtual address 192.0.2.1/32 on none: it is given twice, also as {first}"));
    let many = |count| (1..=count).map(|n| address(&format!("192.0.2.{n}"), 24)).collect();
    assert_eq!(error(many(17), LONG), "17 virtual addresses: expected 1 to 16");
    assert_eq!(error(many(0), LONG), "0 virtual addresses: expected 1 to 16");
    assert!(error(many(16), LONG).starts_with("interface none: "));
    for lifetime in [Duration::ZERO, Duration::from_millis(999), LONG + Duration::from_nanos(1)] {
        let text = error(many(1), lifetime);
        assert!(text.ends_with("expected 1s to 300s"), "{text}");
    }
}
