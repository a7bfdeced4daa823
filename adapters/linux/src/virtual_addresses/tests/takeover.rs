//! Addresses that move from host to host, and what other hosts learn.

use super::*;
use crate::netns::Ping;

const PATIENCE: Duration = Duration::from_secs(20);

fn ping(addr: &str) {
    let sent = Ping::open(addr.parse().unwrap()).unwrap().send(b"anyone", PATIENCE);
    sent.unwrap_or_else(|error| panic!("{addr}: {error}; neighbours: {}", ip("neigh")));
}

/// Waits until the neighbour cache of this namespace has an Ethernet address for a virtual address.
fn await_neighbour(addr: &str, mac: MacAddress) {
    eventually(&format!("{addr} is at {mac}"), || {
        ip(&format!("neigh show {addr} dev wire")).contains(&mac.to_string()).then_some(())
    });
}

/// The former owner is stopped: its kernel has the addresses and answers for them.
#[test]
fn neighbours_send_to_the_new_owner_while_the_former_one_still_has_the_addresses() {
    let Some(lan) = lan(3) else { return };
    let [first, second, client] = &lan.hosts[..] else { unreachable!() };
    let mut former = first.run(|| open(LONG)).unwrap();
    former.take(at(0)).unwrap();
    let former_mac = first.run(own_mac).unwrap();
    client
        .run(|| {
            for addr in VIRTUAL {
                ping(addr);
                await_neighbour(addr, former_mac);
            }
        })
        .unwrap();
    let mut owner = second.run(|| open(LONG)).unwrap();
    let capture = second.run(capture).unwrap();
    owner.take(at(0)).unwrap();
    let mac = second.run(own_mac).unwrap();
    client
        .run(|| {
            for addr in VIRTUAL {
                await_neighbour(addr, mac);
                ping(addr);
                await_neighbour(addr, mac);
            }
        })
        .unwrap();
    // The requests have arrived at the new owner.
    let (mut requests, mut buffer) = (0, [0; 2_000]);
    while let Some(len) = capture.next(&mut buffer, Duration::from_millis(100)).unwrap() {
        requests += usize::from(buffer[..len].windows(6).any(|window| window == b"anyone"));
    }
    assert_eq!(requests, 4, "two requests and two replies");
    assert_eq!(first.run(present).unwrap().len(), 2, "the former owner has them");
}

#[test]
fn addresses_that_are_given_up_are_gone_at_once_and_others_stay() {
    let Some(lan) = lan(2) else { return };
    let [host, client] = &lan.hosts[..] else { unreachable!() };
    host.run(|| {
        // As with SLAAC: the own address has a lifetime.
        ip("addr del 2001:db8::10/64 dev wire");
        ip("addr add 2001:db8::10/64 dev wire nodad valid_lft 600 preferred_lft 600");
        ip("route add 198.51.100.0/24 via 192.0.2.11");
        let [addresses, routes] = ["addr show dev wire", "route"].map(ip_without_times);
        let v6_routes = ip_without_times("-6 route");
        let mut owner = open(LONG);
        assert!(!owner.is_held());
        owner.give_up().unwrap();
        owner.take(at(0)).unwrap();
        owner.take(at(1)).unwrap();
        assert!(owner.is_held());
        assert_eq!(present().len(), 2);
        assert!(ip("-4 route get 192.0.2.11").contains("src 192.0.2.10"), "a secondary address");
        assert!(ip("-6 route").contains("2001:db8::/64 dev wire proto kernel metric 512"));
        client.run(|| VIRTUAL.into_iter().for_each(ping)).unwrap();
        for _ in 0..2 {
            owner.give_up().unwrap();
            assert!(!owner.is_held());
            assert_eq!(owner.next_timeout(), None);
            assert_eq!(present(), [] as [IpAddr; 0]);
            assert_eq!(ip_without_times("addr show dev wire"), addresses);
            assert_eq!(ip_without_times("route"), routes);
            assert_eq!(ip_without_times("-6 route"), v6_routes);
        }
        owner.take(at(2)).unwrap();
        assert_eq!(present().len(), 2, "again");
    })
    .unwrap();
}

/// Output of `ip` without remaining lifetimes.
fn ip_without_times(args: &str) -> String {
    let text = ip(args);
    let words = text.split_whitespace().filter(|word| !word.ends_with("sec"));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn addresses_get_their_connected_routes() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            // Duplicate address detection, which the namespaces of tests switch off.
            std::fs::write("/proc/sys/net/ipv6/conf/wire/accept_dad", "1").unwrap();
            let mut owner = VirtualAddresses::open(
                vec![virtual_address("10.1.0.1", "wire"), virtual_address("2001:db8:1::1", "wire")],
                LONG,
            )
            .unwrap();
            owner.take(at(0)).unwrap();
            assert!(ip("-4 route get 10.1.0.2").contains("dev wire src 10.1.0.1"));
            assert!(ip("-6 route get 2001:db8:1::2").contains("dev wire proto kernel src 2001:db8:1::1"));
            assert!(!ip("addr show to 2001:db8:1::1").contains("tentative"), "valid at once");
            owner.give_up().unwrap();
            let [v4, v6] = ["-4 route show 10.1.0.0/24", "-6 route show 2001:db8:1::/64"].map(ip);
            assert_eq!((&v4[..], &v6[..]), ("", ""));
        })
        .unwrap();
}

/// Linux begins to deliver to an IPv6 address some time after it has added it.
#[test]
fn addresses_are_usable_when_they_are_announced() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            let mut owner = open(LONG);
            for _ in 0..100 {
                owner.take(at(0)).unwrap();
                let route = netlink.route_to(VIRTUAL[1].parse().unwrap(), 0).unwrap();
                assert!(route.unwrap().is_local);
                owner.give_up().unwrap();
            }
        })
        .unwrap();
}

#[test]
fn announcements_are_repeated_soon_and_then_every_ten_seconds() {
    let Some(lan) = lan(2) else { return };
    let [host, client] = &lan.hosts[..] else { unreachable!() };
    let capture = client.run(capture).unwrap();
    let mut owner = host.run(|| open(LONG)).unwrap();
    owner.take(at(0)).unwrap();
    assert_eq!(announcements(&capture).len(), 2, "at once");
    for millis in [100, 500, 1_000, 2_000, 5_000, 15_000, 25_000, 35_000, 45_000, 55_000, 65_000] {
        assert_eq!(owner.next_timeout(), Some(at(millis)));
        assert!(owner.poll(at(millis - 1)).is_empty());
        assert!(announcements(&capture).is_empty(), "before {millis} ms");
        assert!(owner.poll(at(millis)).is_empty());
        assert_eq!(announcements(&capture).len(), 2, "{millis} ms");
    }
    assert_eq!(owner.next_timeout(), Some(at(75_000)), "announcement and extension");
    // What was missed is not made up for.
    assert!(owner.poll(at(90_000)).is_empty());
    assert_eq!(announcements(&capture).len(), 2);
    assert_eq!(owner.next_timeout(), Some(at(100_000)));
    owner.give_up().unwrap();
    assert!(owner.poll(at(200_000)).is_empty());
    assert!(announcements(&capture).is_empty(), "after the end");
}

/// RFC 4861 section 7.2.5: a host stops using a router that says that it is none.
#[test]
fn advertisements_say_whether_the_host_is_a_router_and_where_it_is_now() {
    let Some(lan) = lan(2) else { return };
    let [host, client] = &lan.hosts[..] else { unreachable!() };
    let capture = client.run(capture).unwrap();
    let mut owner = host.run(|| open(LONG)).unwrap();
    owner.take(at(0)).unwrap();
    let flags = |frames: Vec<Vec<u8>>| frames.iter().find(|frame| frame.len() > 60).unwrap()[58];
    assert_eq!(flags(announcements(&capture)), 0x20);
    host.run(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/wire/forwarding", "1").unwrap();
        ip("link set wire address 02:00:00:00:00:77");
    })
    .unwrap();
    assert!(owner.poll(at(100)).is_empty());
    let frames = announcements(&capture);
    let now_at = |frame: &Vec<u8>| super::super::frames::address_use(frame).unwrap().mac.to_string();
    assert!(frames.iter().all(|frame| now_at(frame) == "02:00:00:00:00:77"), "{frames:x?}");
    assert_eq!((frames.len(), flags(frames)), (2, 0xa0));
}
