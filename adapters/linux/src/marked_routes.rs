//! Routes of the host as IKE needs them: source addresses, addresses that peers may assign, and names.

use crate::Error;
use crate::ike::IKE_PORT;
use crate::netlink::{Netlink, NetworkMonitor};
use crate::resolver::Resolver;
use casemate::{HostAddrs, Lookup};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Routes for packets with our mark, which bypass the routes into the TUN interface.
pub(crate) struct MarkedRoutes {
    mark: u32,
    /// The TUN interface of the main SPD, which has the virtual addresses.
    tun: OwnTun,
    netlink: RefCell<Netlink>,
    monitor: RefCell<NetworkMonitor>,
    /// A change was read that was not reported yet.
    has_changed: Cell<bool>,
    /// Our addresses for packets to peers, found since the last change: hundreds of traps may ask for one.
    sources: RefCell<HashMap<IpAddr, IpAddr>>,
    /// MTUs of the links to peers, found since the last change.
    link_mtus: RefCell<HashMap<IpAddr, Option<usize>>>,
    resolver: Resolver,
    /// Addresses of interfaces that are switched off; `None` if that may have changed.
    switched_off: RefCell<Option<Vec<IpAddr>>>,
    /// The last error of a look-up. A look-up that fails counts as "no route".
    error: RefCell<Option<Error>>,
}

/// Sources and MTUs that are kept, at most.
const MAX_KEPT: usize = 16_384;

/// Index and name of a TUN interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnTun {
    pub(crate) index: u32,
    pub(crate) name: String,
}

impl MarkedRoutes {
    /// Routes for packets that carry `mark`, of an instance with this TUN interface.
    pub(crate) fn open(mark: u32, tun: OwnTun) -> Result<Self, Error> {
        Ok(Self {
            mark,
            tun,
            netlink: RefCell::new(Netlink::open()?),
            monitor: RefCell::new(NetworkMonitor::routes()?),
            has_changed: Cell::default(),
            sources: RefCell::default(),
            link_mtus: RefCell::default(),
            resolver: Resolver::new()?,
            switched_off: RefCell::default(),
            error: RefCell::default(),
        })
    }

    /// Looks up host names.
    pub(crate) const fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The last error of a look-up since the last call.
    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.take()
    }

    /// Forgets what was found before a change.
    fn read_changes(&self) {
        if self.monitor.borrow_mut().read().any {
            self.has_changed.set(true);
            self.switched_off.replace(None);
            self.sources.borrow_mut().clear();
            self.link_mtus.borrow_mut().clear();
        }
    }

    /// Keeps an error for [`take_error`](Self::take_error).
    fn found<T>(&self, result: Result<Option<T>, Error>) -> Option<T> {
        result.unwrap_or_else(|error| {
            self.error.replace(Some(error));
            None
        })
    }

    /// Whether only interfaces that are switched off have this address.
    fn is_switched_off(&self, addr: IpAddr) -> bool {
        let mut known = self.switched_off.borrow_mut();
        if known.is_none() {
            let found = self.netlink.borrow_mut().addresses_switched_off();
            *known = self.found(found.map(Some));
        }
        known.as_ref().is_some_and(|addrs| addrs.contains(&addr))
    }

    /// Our address for packets to `remote`; `None` without a route.
    fn find_source(&self, remote: IpAddr) -> io::Result<Option<IpAddr>> {
        let any: SocketAddr = if remote.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = match UdpSocket::bind(any) {
            // The kernel has no IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => return Ok(None),
            socket => socket?,
        };
        SockRef::from(&socket).set_mark(self.mark)?;
        // Sends nothing: the kernel only looks up the route. An error means that there is none.
        if socket.connect((remote, IKE_PORT)).is_err() {
            return Ok(None);
        }
        Ok(Some(socket.local_addr()?.ip()))
    }

    /// An error if the route to `remote`, on which packets get the address `source`, leads into our TUN
    /// interface, or if only the TUN interface has the address. IKE would depend on its own tunnel.
    fn check_past_tun(&self, remote: IpAddr, source: IpAddr) -> Result<(), Error> {
        let netlink = &mut *self.netlink.borrow_mut();
        let name = &self.tun.name;
        let what = if netlink.interface_to(remote, self.mark)? == Some(self.tun.index) {
            format!(
                "it leads into {name}, the interface of the tunnels themselves: `ip route replace default \
                 via ROUTER dev LINK` names the interface of the link"
            )
        } else if netlink.addresses_of(self.tun.index)?.contains(&source)
            && !self.is_on_another_link(source, netlink)?
        {
            format!(
                "its source would be {source}, a virtual address of {name}: an address on the interface of \
                 the link was expected"
            )
        } else {
            return Ok(());
        };
        Err(Error::other(format!("the route to {remote} is not used"), what))
    }

    /// Whether an interface besides our TUN interface has this address of the host.
    fn is_on_another_link(&self, addr: IpAddr, netlink: &mut Netlink) -> Result<bool, Error> {
        let links: Vec<u32> = netlink
            .addresses_of_links()?
            .into_iter()
            .filter(|(_, known)| *known == addr)
            .map(|(index, _)| index)
            .collect();
        // The host may have an address that no interface has, by a route of type `local`.
        Ok(links.is_empty() || links.iter().any(|index| *index != self.tun.index))
    }
}

impl casemate::Routes for MarkedRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.read_changes();
        let known = self.sources.borrow().get(&remote).copied();
        if known.is_some() {
            return known;
        }
        let source = self.find_source(remote);
        let source = source.map_err(|error| Error::new(format!("source address for {remote}"), error));
        let found = self.found(source.and_then(|source| {
            source.map(|source| self.check_past_tun(remote, source).map(|()| source)).transpose()
        }));
        if let Some(source) = found {
            keep(&mut self.sources.borrow_mut(), remote, source);
        }
        found
    }

    fn has_addr(&self, addr: IpAddr) -> bool {
        // Only an error that says so means that the address is gone.
        let bound = UdpSocket::bind((addr, 0));
        bound.err().and_then(|error| error.raw_os_error()) != Some(libc::EADDRNOTAVAIL)
            && !self.is_switched_off(addr)
    }

    fn can_be_virtual(&self, addr: IpAddr, peer: IpAddr) -> bool {
        let netlink = &mut *self.netlink.borrow_mut();
        let is_local = netlink.route_to(addr, self.mark).map(|route| route.is_some_and(|to| to.is_local));
        // Our TUN interface has the address of a former IKE SA a little longer than the IKE SA exists.
        let is_own = is_local.and_then(|is_local| Ok(is_local && self.is_on_another_link(addr, netlink)?));
        let is_router =
            netlink.route_to(peer, self.mark).map(|route| route.is_some_and(|to| to.gateway == Some(addr)));
        // Without a reply of the kernel it is unknown.
        is_own.is_ok_and(|is_own| !is_own) && is_router.is_ok_and(|is_router| !is_router)
    }

    fn may_have_changed(&self) -> bool {
        self.read_changes();
        self.has_changed.take()
    }

    fn link_mtu(&self, remote: IpAddr) -> Option<usize> {
        self.read_changes();
        if let Some(known) = self.link_mtus.borrow().get(&remote) {
            return *known;
        }
        let result = self.netlink.borrow_mut().link_mtu_to(remote, self.mark);
        let is_known = result.is_ok();
        let mtu = self.found(result);
        if is_known {
            keep(&mut self.link_mtus.borrow_mut(), remote, mtu);
        }
        mtu
    }

    fn host_addrs(&self, name: &str, lookup: Lookup) -> HostAddrs {
        self.resolver.addrs(name, lookup)
    }
}

/// Keeps what was found for a peer. Forgets everything if there are too many.
fn keep<T>(known: &mut HashMap<IpAddr, T>, remote: IpAddr, found: T) {
    if known.len() >= MAX_KEPT {
        known.clear();
    }
    known.insert(remote, found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{family, route_address};
    use crate::netns::Netns;
    use crate::tun::Tun;
    use casemate::Routes as _;
    use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};

    /// For tests without a TUN interface.
    fn no_tun() -> OwnTun {
        OwnTun { index: 0, name: "none".into() }
    }

    fn ip(arguments: &str) {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(done.unwrap().success(), "ip {arguments}");
    }

    /// The routes of an instance with the TUN interface `tun5`, on a host with the link `wire`.
    fn with_tun() -> (Tun, MarkedRoutes) {
        let mut netlink = Netlink::open().unwrap();
        let tun = Tun::create("tun5", &mut netlink).unwrap();
        tun.set_up(1_400, &mut netlink).unwrap();
        for arguments in [
            "link set lo up",
            "link add wire type veth peer name other",
            "link set other up",
            "link set wire up",
            "address add 192.0.2.2/24 dev wire",
            "route add default via 192.0.2.1 dev wire",
        ] {
            ip(arguments);
        }
        let routes = MarkedRoutes::open(7, OwnTun { index: tun.index(), name: "tun5".into() }).unwrap();
        (tun, routes)
    }

    /// Otherwise the next IKE SA would refuse the address of the former one, whose removal is to follow.
    #[test]
    fn an_address_that_only_the_tun_interface_has_can_be_virtual() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let (_tun, routes) = with_tun();
            let peer = IpAddr::from([198, 51, 100, 1]);
            for (addr, len) in [("10.9.0.1", 32), ("fd00:9::1", 128)] {
                let can_be_virtual = || routes.can_be_virtual(addr.parse().unwrap(), peer);
                let change = |what: &str, dev| ip(&format!("address {what} {addr}/{len} dev {dev}"));
                assert!(can_be_virtual(), "{addr} is no address of this host");
                change("add", "tun5");
                assert!(can_be_virtual(), "{addr}: only the TUN interface has it");
                change("add", "wire");
                assert!(!can_be_virtual(), "{addr}: another interface has it as well");
                change("del", "tun5");
                assert!(!can_be_virtual(), "{addr}: only another interface has it");
                change("del", "wire");
            }
            ip("route add local 10.9.0.0/24 dev lo");
            assert!(!routes.can_be_virtual([10, 9, 0, 1].into(), peer), "a local route");
            ip("address add 10.9.0.1/32 dev tun5");
            assert!(!routes.can_be_virtual([192, 0, 2, 1].into(), peer), "the router");
            assert!(routes.take_error().is_none());
        };
        netns.run(test).unwrap();
    }

    #[test]
    fn a_route_into_the_tun_interface_and_a_virtual_address_are_no_way_to_the_peer() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let (_tun, routes) = with_tun();
            let (peer, own) = (IpAddr::from([198, 51, 100, 1]), IpAddr::from([192, 0, 2, 2]));
            assert_eq!(routes.source_for(peer), Some(own));
            let refused = |expected: &str| {
                assert_eq!(routes.source_for(peer), None);
                let error = routes.take_error().unwrap().to_string();
                assert!(error.contains("198.51.100.1") && error.contains(expected), "{error}");
            };
            // Without an address, the kernel takes that of another interface as the source.
            ip("route replace default via 192.0.2.1 dev tun5 onlink");
            refused("it leads into tun5");
            ip("address add 10.9.0.1/32 dev tun5");
            refused("it leads into tun5");
            ip("route replace default via 192.0.2.1 dev wire src 10.9.0.1");
            refused("its source would be 10.9.0.1");
            // An address of the link that the TUN interface has as well is one of the link.
            ip("address add 192.0.2.2/32 dev tun5");
            ip("route replace default via 192.0.2.1 dev wire");
            assert_eq!(routes.source_for(peer), Some(own));
            assert!(routes.take_error().is_none());
        };
        netns.run(test).unwrap();
    }

    /// Every change that may affect the source address is reported, once.
    #[test]
    fn changes_of_links_addresses_and_routes_are_reported() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let routes = MarkedRoutes::open(1, no_tun()).unwrap();
            let (lo, peer) = (netlink.link("lo").unwrap().index, IpAddr::from([198, 51, 100, 1]));
            assert!(!routes.may_have_changed());
            netlink.set_up(lo, 1_500).unwrap();
            assert!(routes.may_have_changed() && !routes.may_have_changed());
            netlink.add_address(lo, [192, 0, 2, 1].into(), 32).unwrap();
            assert!(routes.may_have_changed() && !routes.may_have_changed());
            assert!(routes.has_addr([192, 0, 2, 1].into()) && !routes.has_addr(peer));
            assert_eq!(routes.source_for(peer), None);
            let mut route = RouteMessage::default();
            route.header.address_family = family(true);
            route.header.table = RouteHeader::RT_TABLE_MAIN;
            route.header.scope = RouteScope::Link;
            route.header.kind = RouteType::Unicast;
            route.header.destination_prefix_length = 32;
            route.attributes = vec![
                RouteAttribute::Destination(route_address(peer)),
                RouteAttribute::Oif(lo),
                RouteAttribute::PrefSource(route_address([192, 0, 2, 1].into())),
            ];
            netlink.add_route(route.clone()).unwrap();
            assert!(routes.may_have_changed() && !routes.may_have_changed());
            assert_eq!(routes.source_for(peer), Some([192, 0, 2, 1].into()));
            assert_eq!((routes.link_mtu(peer), routes.link_mtu(peer)), (Some(1_500), Some(1_500)));
            ip("link set lo mtu 1400");
            assert_eq!(routes.link_mtu(peer), Some(1_400));
            assert!(routes.may_have_changed());
            netlink.remove_route(route).unwrap();
            assert!(routes.may_have_changed() && !routes.may_have_changed());
            assert_eq!(routes.link_mtu(peer), None);
            ip("link set lo down");
            assert!(routes.may_have_changed() && !routes.has_addr([192, 0, 2, 1].into()));
        };
        netns.run(test).unwrap();
    }

    #[test]
    fn a_look_up_that_fails_is_reported_unlike_a_missing_route() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let routes = MarkedRoutes::open(1, no_tun()).unwrap();
            let peer = IpAddr::from([198, 51, 100, 1]);
            assert_eq!((routes.source_for(peer), routes.link_mtu(peer)), (None, None));
            assert!(routes.take_error().is_none());
            crate::sandbox::drop_capabilities().unwrap();
            assert_eq!(routes.source_for(peer), None);
            let error = routes.take_error().unwrap().to_string();
            assert!(error.starts_with("source address for 198.51.100.1: "), "{error}");
            assert!(routes.take_error().is_none());
        };
        netns.run(test).unwrap();
    }
}
