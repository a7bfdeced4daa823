//! Lifetimes of the addresses in the kernel, and failures to extend and announce them.

use super::*;

use std::thread::sleep;
use std::time::Instant as Clock;

#[test]
fn the_kernel_removes_addresses_that_are_not_extended() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            ip("addr del 2001:db8::10/64 dev wire");
            ip("addr add 2001:db8::10/64 dev wire nodad valid_lft 600 preferred_lft 600");
            let mut owner = open(Duration::from_millis(1_500));
            let start = Clock::now();
            let now = |start: Clock| Instant::ZERO.after(start.elapsed());
            owner.take(now(start)).unwrap();
            let remaining = Netlink::open().unwrap().assigned_addresses().unwrap();
            let remaining = remaining.into_iter().filter(|own| VIRTUAL.contains(&&own.addr.to_string()[..]));
            assert!(remaining.map(|own| own.remaining).all(|secs| matches!(secs, Some(1 | 2))), "rounded up");
            while start.elapsed() < Duration::from_secs(5) {
                assert!(owner.poll(now(start)).is_empty());
                assert_eq!(present().len(), 2, "{:?}", start.elapsed());
                sleep(Duration::from_millis(50));
            }
            let stopped = Clock::now();
            assert_eq!(present().len(), 2);
            eventually("the addresses end", || present().is_empty().then_some(()));
            let after = stopped.elapsed();
            assert!(after > Duration::from_millis(1_400) && after < Duration::from_secs(6), "{after:?}");
            // An expired route remains until Linux collects it, and is not used.
            assert!(ip("-6 route get 2001:db8::11").contains("metric 256"), "the route of the own address");
            assert!(ip("-4 route get 192.0.2.11").contains("src 192.0.2.10"));
        })
        .unwrap();
}

/// A process that was stopped does not take the addresses back from the next owner.
#[test]
fn addresses_are_not_taken_back_after_their_lifetime() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let mut owner = open(Duration::from_secs(8));
            owner.take(at(0)).unwrap();
            assert!(owner.poll(at(7_999)).is_empty(), "late, but in time");
            assert!(owner.poll(at(15_998)).is_empty());
            let events = owner.poll(at(23_998));
            assert!(matches!(events[..], [AddressEvent::Expired { removed: Ok(()) }]), "{events:?}");
            assert!(!owner.is_held() && present().is_empty());
            assert_eq!(owner.next_timeout(), None);
            assert!(owner.poll(at(24_000)).is_empty() && present().is_empty());
            owner.take(at(25_000)).unwrap();
            assert!(owner.poll(at(25_100)).is_empty());
            assert_eq!(present().len(), 2);
        })
        .unwrap();
}

#[test]
fn lifetimes_are_extended_four_times_each() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let mut owner = VirtualAddresses::open(both(), Duration::from_secs(100)).unwrap();
            owner.take(at(0)).unwrap();
            let remove = |addr: &str| ip(&format!("addr del {addr} dev wire"));
            for seconds in [25, 50, 75, 100] {
                ["192.0.2.1/24", "2001:db8::1/64"].iter().for_each(|addr| drop(remove(addr)));
                assert!(owner.poll(at(seconds * 1_000 - 1)).is_empty());
                assert!(present().is_empty(), "{seconds} s");
                assert!(owner.next_timeout().unwrap() <= at(seconds * 1_000));
                assert!(owner.poll(at(seconds * 1_000)).is_empty());
                assert_eq!(present().len(), 2, "{seconds} s: an extension adds what is missing");
            }
        })
        .unwrap();
}

#[test]
fn an_interface_that_is_switched_off_or_removed_is_reported_once() {
    let Some(lan) = lan(1) else { return };
    lan.hosts[0]
        .run(|| {
            let mut owner = open(Duration::from_secs(100));
            owner.take(at(0)).unwrap();
            ip("link set wire down");
            let readable = |owner: &VirtualAddresses| {
                let fds: Vec<_> = owner.descriptors().collect();
                let (fds, mut ready) = (fds.try_into().unwrap(), [false; 2]);
                crate::sys::poll_readable::<2>(&fds, &mut ready, Duration::ZERO).unwrap();
                ready != [false; 2]
            };
            assert!(readable(&owner));
            let reported = |events: Vec<AddressEvent>| -> Vec<String> {
                let text = |event| match event {
                    AddressEvent::NotAnnounced { interface, error } => format!("{interface}: {error}"),
                    AddressEvent::NotExtended { address, error } => format!("{address}: {error}"),
                    other => panic!("{other:?}"),
                };
                events.into_iter().map(text).collect()
            };
            let down = reported(owner.poll(at(100)));
            assert_eq!(down, ["wire: announcement of 192.0.2.1 on wire: Network is down (os error 100)"]);
            assert!(!readable(&owner), "the event loop does not spin");
            assert!(owner.poll(at(500)).is_empty(), "once");
            ip("link set wire up");
            assert!(owner.poll(at(25_000)).is_empty(), "extended and announced");
            assert_eq!(present().len(), 2);
            ip("link set wire down");
            assert_eq!(reported(owner.poll(at(35_000))).len(), 1, "once more");
            ip("link del wire");
            let gone = reported(owner.poll(at(50_000)));
            let missing = "No such device (os error 19)";
            let extension =
                |addr, len| format!("{addr}: extension of virtual address {addr}/{len} on wire: {missing}");
            assert_eq!(gone, [extension("192.0.2.1", 24), extension("2001:db8::1", 64)]);
            assert!(owner.poll(at(75_000)).is_empty(), "once");
            assert!(!readable(&owner));
            owner.give_up().unwrap();
            let error = owner.take(at(80_000)).unwrap_err();
            assert_eq!(error.to_string(), format!("virtual address 192.0.2.1/24 on wire: {missing}"));
            assert!(!owner.is_held());
        })
        .unwrap();
}
