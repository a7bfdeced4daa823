//! Other hosts that use the addresses, and frames that must not count as that.

use super::super::frames;
use super::*;

/// The frames with which a host of this Ethernet address would announce both addresses.
fn claims(mac: MacAddress) -> [Vec<u8>; 2] {
    let [v4, v6] = VIRTUAL;
    [
        frames::arp_announcement(v4.parse().unwrap(), mac),
        frames::advertisement(v6.parse().unwrap(), mac, true),
    ]
}

const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x99]);

/// Whether each socket of one host has frames to read within 100 ms.
fn readable(owner: &VirtualAddresses) -> [bool; 2] {
    let fds: Vec<_> = owner.descriptors().collect();
    let mut ready = [false; 2];
    for (fd, ready) in fds.iter().zip(&mut ready) {
        let mut one = [false];
        crate::sys::poll_readable(&[*fd], &mut one, Duration::from_millis(100)).unwrap();
        *ready = one[0];
    }
    ready
}

#[test]
fn two_owners_notice_each_other() {
    let Some(lan) = lan(2) else { return };
    let macs = [0, 1].map(|host: usize| lan.hosts[host].run(own_mac).unwrap());
    let mut owners = [0, 1].map(|host: usize| lan.hosts[host].run(|| open(LONG)).unwrap());
    let [first, second] = &mut owners;
    first.take(at(0)).unwrap();
    assert_eq!(readable(first), [false; 2], "not by its own announcements");
    second.take(at(0)).unwrap();
    let both = |mac| VIRTUAL.map(|addr| (addr.to_string(), mac)).to_vec();
    assert_eq!(readable(first), [true; 2]);
    assert_eq!(conflicts(first.poll(at(50))), both(macs[1]), "announced again at once");
    assert_eq!(readable(second), [true; 2]);
    assert_eq!(conflicts(second.poll(at(101))), both(macs[0]));
}

#[test]
fn probes_find_a_host_that_has_the_addresses() {
    let Some(lan) = lan(2) else { return };
    let macs = [0, 1].map(|host: usize| lan.hosts[host].run(own_mac).unwrap());
    let mut hosts = [0, 1].map(|host: usize| lan.hosts[host].run(|| open(LONG)).unwrap());
    let [first, second] = &mut hosts;
    second.probe().unwrap();
    assert_eq!(readable(second), [false; 2], "there is no other host");
    first.take(at(0)).unwrap();
    assert_eq!(conflicts(second.poll(at(10))).len(), 2, "announced");
    let both = |mac| VIRTUAL.map(|addr| (addr.to_string(), mac)).to_vec();
    // Later than the events above. The owner does not notice the probe.
    readable(first);
    assert!(first.poll(at(20)).is_empty());
    second.probe().unwrap();
    assert_eq!(readable(second), [true; 2]);
    assert_eq!(conflicts(second.poll(at(2_000))), both(macs[0]));
    assert!(!second.is_held());
    assert!(first.poll(at(50)).is_empty(), "a probe is no use of the address by {}", macs[1]);
}

#[test]
fn the_traffic_of_this_host_is_no_conflict() {
    let Some(lan) = lan(2) else { return };
    let [host, other] = &lan.hosts[..] else { unreachable!() };
    // A second interface of the host at the same bridge: Linux may answer there, too.
    connect(host, &lan.switch, "wire2", "port9");
    let injector_of_other = other.run(injector).unwrap();
    host.run(|| {
        let mut owner = open(LONG);
        owner.take(at(0)).unwrap();
        let second = Netlink::open().unwrap().ethernet_link("wire2").unwrap();
        let injector = FrameInjector::open(second.index).unwrap();
        claims(MacAddress(second.mac)).iter().for_each(|frame| injector.send(frame).unwrap());
        assert_eq!(readable(&owner), [true; 2], "it receives what its other interface has sent");
        assert!(owner.poll(at(10)).is_empty());
        // A switch that returns frames.
        claims(own_mac()).iter().for_each(|frame| injector_of_other.send(frame).unwrap());
        assert_eq!(readable(&owner), [true; 2]);
        assert!(owner.poll(at(20)).is_empty());
        // The kernel resolves neighbours, with a virtual address as sender, and answers for it.
        ip("neigh flush dev wire && ping -c 1 -W 5 -I 192.0.2.1 192.0.2.11");
        ip("neigh flush dev wire && ping -c 1 -W 5 -I 2001:db8::1 2001:db8::11");
        assert_eq!(readable(&owner), [false; 2]);
        for millis in [100, 500, 1_000, 2_000, 5_000, 15_000] {
            assert!(owner.poll(at(millis)).is_empty());
        }
    })
    .unwrap();
}

#[test]
fn only_messages_about_the_addresses_reach_the_process() {
    let Some(lan) = lan(2) else { return };
    let [host, other] = &lan.hosts[..] else { unreachable!() };
    let injector = other.run(injector).unwrap();
    let mut owner = host.run(|| open(LONG)).unwrap();
    let send = |frames: &[Vec<u8>]| frames.iter().for_each(|frame| injector.send(frame).unwrap());
    send(&claims(OTHER));
    assert_eq!(readable(&owner), [false; 2], "while the host does not have them");
    owner.take(at(0)).unwrap();
    send(&[
        frames::arp_announcement([192, 0, 2, 2].into(), OTHER),
        frames::advertisement("2001:db8::2".parse().unwrap(), OTHER, true),
    ]);
    // A probe for the address (RFC 5227 section 2.1.1) has no sender address.
    let [arp, advertisement] = claims(OTHER);
    let mut probe = arp.clone();
    probe[28..32].fill(0);
    let mut solicitation = advertisement.clone();
    solicitation[54] = 135;
    // Frames to other hosts reach all ports of a switch while it does not know theirs.
    let elsewhere = [arp, advertisement].map(|mut frame| {
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x55]);
        frame
    });
    host.run(|| ip("link set wire promisc on")).unwrap();
    send(&[probe, solicitation]);
    send(&elsewhere);
    assert_eq!(readable(&owner), [false; 2]);
    send(&claims(OTHER));
    assert_eq!(readable(&owner), [true; 2]);
    assert_eq!(conflicts(owner.poll(at(1))).len(), 2);
    send(&claims(OTHER));
    assert_eq!(readable(&owner), [true; 2]);
    owner.give_up().unwrap();
    assert_eq!(readable(&owner), [false; 2], "forgotten");
    owner.take(at(2)).unwrap();
    assert!(owner.poll(at(3)).is_empty());
    send(&claims(OTHER));
    assert_eq!(readable(&owner), [true; 2]);
    assert_eq!(conflicts(owner.poll(at(4))).len(), 2, "a new holding, a new event");
}

#[test]
fn a_flood_is_read_in_parts_and_reported_once_a_second() {
    let Some(lan) = lan(2) else { return };
    let [host, other] = &lan.hosts[..] else { unreachable!() };
    let injector = other.run(injector).unwrap();
    let mut owner = host.run(|| open(LONG)).unwrap();
    owner.take(at(0)).unwrap();
    let send = |count| {
        for _ in 0..count {
            claims(OTHER).iter().for_each(|frame| injector.send(frame).unwrap());
        }
    };
    send(100);
    let both = VIRTUAL.map(|addr| (addr.to_string(), OTHER)).to_vec();
    assert_eq!(readable(&owner), [true; 2]);
    assert_eq!(conflicts(owner.poll(at(10))), both);
    for _ in 0..2 {
        assert_eq!(readable(&owner), [true; 2], "more wait");
        assert!(owner.poll(at(20)).is_empty(), "once a second");
    }
    assert_eq!(readable(&owner), [true; 2], "the last four");
    assert!(owner.poll(at(30)).is_empty());
    assert_eq!(readable(&owner), [false; 2]);
    for (millis, expected) in [(1_009, Vec::new()), (1_010, both)] {
        send(1);
        assert_eq!(readable(&owner), [true; 2]);
        assert_eq!(conflicts(owner.poll(at(millis))), expected);
    }
}
