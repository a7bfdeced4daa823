//! Routes that the kernel removes together with an address are set again.

use super::*;
use crate::netns::Netns;
use crate::setup::mark_routes::MarkedTunnel;

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 3, 0, 1));

fn v6() -> IpAddr {
    "fd03::1".parse().unwrap()
}

/// A host with two tunnels for each IP version, of which one prefers a virtual address as the source and the
/// other always the host's own, and a bypass, so that each kind of route is there.
fn host() -> Host {
    let mut netlink = Netlink::open().unwrap();
    let lo = netlink.link("lo").unwrap().index;
    netlink.add_address(lo, [192, 0, 2, 1].into(), 32).unwrap();
    netlink.add_address(lo, "2001:db8::1".parse().unwrap(), 128).unwrap();
    let mut host = Host::empty();
    for (src, dst) in [
        ("10.3.0.1/32", "10.1.0.0/16"),
        ("0.0.0.0/0", "10.5.0.0/16"),
        ("fd03::1/128", "fd01::/64"),
        ("::/0", "fd05::/64"),
    ] {
        host.add(Direction::Outbound, policy(src, dst, protect(), 10));
    }
    host.add(Direction::Outbound, policy("0.0.0.0/0", "10.5.9.0/24", Action::Bypass, 5));
    host.state.reconcile_blocking().unwrap();
    host
}

pub(super) fn routes() -> Vec<String> {
    let (_, mut routes) = system();
    // The kernel shows the default metric of IPv6 routes only in some cases.
    routes.iter_mut().for_each(|route| *route = route.replace(" metric 1024", ""));
    routes
}

pub(super) fn in_namespace(test: impl FnOnce() + Send) {
    match Netns::new() {
        Ok(netns) => netns.run(test).unwrap(),
        Err(error) => casemate_test_support::skip(error),
    }
}

/// The last IPv4 address of the interface takes all IPv4 routes through it with it, without a report.
#[test]
fn routes_stay_when_virtual_addresses_go() {
    in_namespace(|| {
        let mut host = host();
        let before = routes();
        assert_eq!(before.len(), 5, "{before:?}");
        for addrs in [&[V4][..], &[v6()], &[V4, v6()]] {
            host.state.add_addresses(addrs).unwrap();
            host.state.reconcile_blocking().unwrap();
            assert_ne!(routes(), before, "they prefer {addrs:?}");
            host.state.remove_addresses(addrs).unwrap();
            host.state.reconcile_blocking().unwrap();
            assert_eq!(routes(), before, "after {addrs:?}");
        }
        host.end();
    });
}

/// A new IKE SA brings the addresses of the former one, whose removal comes first, or may have failed.
#[test]
fn addresses_of_a_former_ike_sa_can_come_again() {
    in_namespace(|| {
        let mut host = host();
        let own = |host: &Host| Netlink::open().unwrap().addresses_of(host.tun.index()).unwrap();
        let addrs = [V4, v6()];
        host.state.add_addresses(&addrs).unwrap();
        host.state.remove_addresses(&addrs).unwrap();
        host.state.add_addresses(&addrs).unwrap();
        assert!(addrs.iter().all(|addr| own(&host).contains(addr)));
        host.state.add_addresses(&addrs).unwrap();
        host.state.remove_addresses(&addrs).unwrap();
        assert!(!addrs.iter().any(|addr| own(&host).contains(addr)));
        host.end();
    });
}

/// The addresses are the same before and after, but routes have gone or have lost their source.
#[test]
fn routes_stay_when_another_program_replaces_an_address() {
    in_namespace(|| {
        let mut host = host();
        host.state.add_addresses(&[V4, v6()]).unwrap();
        host.state.reconcile_blocking().unwrap();
        let before = routes();
        while host.state.read_system_changes() {}
        for addr in [V4, v6()] {
            let (index, len) = (host.tun.index(), if addr.is_ipv4() { 32 } else { 128 });
            let mut netlink = Netlink::open().unwrap();
            netlink.remove_address(index, addr, len).unwrap();
            netlink.add_address(index, addr, len).unwrap();
            assert_ne!(routes(), before, "the kernel changes routes with {addr}");
            host.wait_for_address_change();
            host.state.reconcile_blocking().unwrap();
            assert_eq!(routes(), before, "after {addr}");
        }
        host.end();
    });
}

/// The default route of a mark into the interface, which another program has given its only address.
#[test]
fn routes_of_marks_stay_when_an_address_goes() {
    in_namespace(|| {
        let mut host = Host::empty();
        let mut marked = policy("0.0.0.0/0", "10.1.0.0/16", protect(), 10);
        marked.spd = SpdId::new(7);
        host.add(Direction::Outbound, marked);
        let tunnel = MarkedTunnel { mark: 7, index: host.tun.index() };
        host.state.set_marked_tunnels([(SpdId::new(7), tunnel)].into());
        host.state.reconcile_blocking().unwrap();
        let marked = || {
            let all = run_program("ip", &["-4", "route", "show", "table", "all"]);
            all.lines()
                .filter(|route| route.contains("default dev tun5"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let before = marked();
        assert_eq!(before.len(), 1, "{before:?}");
        let (index, mut netlink) = (host.tun.index(), Netlink::open().unwrap());
        netlink.add_address(index, V4, 32).unwrap();
        netlink.remove_address(index, V4, 32).unwrap();
        assert_eq!(marked(), [""; 0], "the kernel removes it");
        host.wait_for_address_change();
        host.state.reconcile_blocking().unwrap();
        assert_eq!(marked(), before);
        host.end();
    });
}
