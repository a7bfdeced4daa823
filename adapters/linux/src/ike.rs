//! Sending and receiving IKE messages over UDP (RFC 7296 section 2): port 500, and port 4500, which IKE
//! shares with ESP.

use crate::Error;
use crate::buffers::Buffers;
use crate::netlink::{Netlink, NetworkMonitor};
use crate::raw_socket::{AddressedPacket, RawSender, is_full};
use crate::resolver::Resolver;
use crate::udp::{UdpPort, UdpSender, datagram};
use casemate::path::FragmentPlan;
use casemate::{HostAddrs, Lookup};
use casemate_datapath::pmtu;
use casemate_ike::{Path, Transmit};
use casemate_sa::Instant;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, version};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, KEEPALIVE, NON_ESP_MARKER, Udp};
use socket2::SockRef;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// UDP port of IKE without ESP.
pub const IKE_PORT: u16 = 500;

/// A received IKE message.
#[derive(Debug)]
pub(crate) struct IkeDatagram {
    pub(crate) path: Path,
    /// The message, without the non-ESP marker.
    pub(crate) message: Vec<u8>,
}

/// The sockets of port 500, of both IP versions.
pub(crate) struct IkePorts(pub(crate) Vec<UdpPort>);

impl IkePorts {
    /// Opens the sockets. Their packets carry `mark`.
    pub(crate) fn open(mark: u32) -> Result<Self, Error> {
        let ports = UdpPort::open_both(IKE_PORT)?;
        ports.iter().try_for_each(|port| port.set_mark(mark))?;
        Ok(Self(ports))
    }

    /// Receives IKE messages from one socket.
    pub(crate) fn receive(
        port: &mut UdpPort,
        buffers: &mut Buffers,
        datagrams: &mut Vec<IkeDatagram>,
    ) -> io::Result<()> {
        match port.receive(buffers, usize::MAX) {
            Ok(_) => {}
            // An error of a datagram that was sent earlier, or no datagram to read.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(()),
            Err(error) => return Err(error),
        }
        let parse = |packet: &Packet<'_>| ike_datagram(packet.data(), payload_offset(packet.data())?);
        buffers.with_packets(|packets| datagrams.extend(packets.iter().filter_map(parse)));
        Ok(())
    }
}

/// The sockets that send IKE messages.
pub(crate) struct IkeSenders {
    /// Sockets of the UDP ports.
    pub(crate) ports: Vec<UdpSender>,
    /// Sends messages if ESP to a slow peer has filled the socket of their port.
    pub(crate) raw: Arc<RawSender>,
    /// Sends path MTU probes.
    pub(crate) probes: RawSender,
}

impl IkeSenders {
    /// Sends a message. `ident` is the identification of its fragments, if it has to be fragmented here.
    pub(crate) fn send(&self, ident: u32, now: Instant, transmit: &Transmit) -> io::Result<()> {
        let Path { local, remote } = transmit.path;
        // RFC 3948 section 2.3: a keepalive is one byte.
        let message = if transmit.message.is_empty() { &[KEEPALIVE][..] } else { &transmit.message };
        let marker = if transmit.non_esp_marker { &NON_ESP_MARKER[..] } else { &[] };
        if let Some(len) = transmit.probe_len {
            return self.send_probe(now, transmit.path, [marker, message], len);
        }
        let sender = self.ports.iter().find(|sender| sender.matches(local.port(), remote.ip()));
        let sender = sender.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        sender.send(local.ip(), remote, [marker, message]).or_else(|error| {
            let is_blocked = is_full(&error) && !local.ip().is_unspecified();
            let packet = if is_blocked { datagram(local, remote, [marker, message]) } else { None };
            send_raw(&self.raw, now, packet.ok_or(error)?, remote.ip(), ident)
        })
    }

    /// Sends a path MTU probe. A probe that the system does not send counts as lost.
    fn send_probe(&self, now: Instant, path: Path, parts: [&[u8]; 2], len: u16) -> io::Result<()> {
        let Some(packet) = probe_packet(path, parts, len) else { return Ok(()) };
        match self.probes.send(now, &[AddressedPacket { bytes: &packet, dst: path.remote.ip() }]) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) || is_full(&error) => Ok(()),
            sent => sent.map(drop),
        }
    }
}

/// Returns an IP packet of `len` bytes with DF that begins with a datagram. The UDP length is that of the
/// datagram, so receivers ignore the zeros behind it (the surplus area of RFC 9868).
fn probe_packet(path: Path, parts: [&[u8]; 2], len: u16) -> Option<Vec<u8>> {
    let mut packet = datagram(path.local, path.remote, parts)?;
    packet.resize(packet.len().max(len.into()), 0);
    match version(&packet).ok()? {
        IpVersion::V4 => {
            let mut ip = Ipv4::parse(&mut packet[..]).ok()?;
            ip.set_total_len(len);
            ip.set_df(true);
            ip.fill_checksum();
        }
        IpVersion::V6 => {
            let payload_len = len.checked_sub(casemate_wire::ip::v6::HEADER_LEN as u16)?;
            Ipv6::parse(&mut packet[..]).ok()?.set_payload_len(payload_len);
        }
    }
    Some(packet)
}

/// Sends a datagram through a raw socket. If it is too long for its link, sends it in fragments of the
/// minimum MTU.
fn send_raw(raw: &RawSender, now: Instant, mut packet: Vec<u8>, dst: IpAddr, ident: u32) -> io::Result<()> {
    let error = match raw.send(now, &[AddressedPacket { bytes: &packet, dst }]) {
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => error,
        sent => return sent.map(drop),
    };
    if dst.is_ipv4()
        && let Ok(mut ip) = Ipv4::parse(&mut packet[..])
    {
        ip.set_ident((ident as u16).max(1));
        ip.fill_checksum();
    }
    let mtu = if dst.is_ipv4() { pmtu::V4_MIN_MTU } else { pmtu::V6_MIN_MTU };
    let mut pieces = FragmentPlan { mtu, ident }.fragments(&packet).map_err(|_| error)?;
    let mut piece = vec![0; mtu];
    while let Some(len) = pieces.next(&mut piece) {
        let bytes = piece.get(..len).or_broken_default("a fragment is inside its buffer");
        raw.send(now, &[AddressedPacket { bytes, dst }])?;
    }
    Ok(())
}

/// Extracts the IKE message from an IP packet. `offset` is where the message begins, behind the UDP header
/// and the non-ESP marker.
pub(crate) fn ike_datagram(packet: &[u8], offset: usize) -> Option<IkeDatagram> {
    let (src, dst, udp_offset) = match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok()?;
            (IpAddr::from(ip.src()), IpAddr::from(ip.dst()), ip.header_len())
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            (ip.src().into(), ip.dst().into(), ip.chain().ok()?.last.at)
        }
    };
    let udp = Udp::parse(packet.get(udp_offset..)?).ok()?;
    let end = udp_offset.checked_add(udp::HEADER_LEN)?.checked_add(udp.payload().len())?;
    let path =
        Path { local: SocketAddr::new(dst, udp.dst_port()), remote: SocketAddr::new(src, udp.src_port()) };
    Some(IkeDatagram { path, message: packet.get(offset..end)?.to_vec() })
}

/// Offset of the UDP payload in a packet from a [`UdpPort`].
fn payload_offset(packet: &[u8]) -> Option<usize> {
    let header = match version(packet).ok()? {
        IpVersion::V4 => casemate_wire::ip::v4::HEADER_LEN,
        IpVersion::V6 => casemate_wire::ip::v6::HEADER_LEN,
    };
    header.checked_add(udp::HEADER_LEN)
}

/// Routes for packets with our mark, which bypass the routes into the TUN interface.
pub(crate) struct MarkedRoutes {
    mark: u32,
    netlink: RefCell<Netlink>,
    monitor: NetworkMonitor,
    resolver: Resolver,
    /// Addresses of interfaces that are switched off; `None` if that may have changed.
    switched_off: RefCell<Option<Vec<IpAddr>>>,
    /// The last error of a look-up. A look-up that fails counts as "no route".
    error: RefCell<Option<Error>>,
}

impl MarkedRoutes {
    /// Routes for packets that carry `mark`.
    pub(crate) fn open(mark: u32) -> Result<Self, Error> {
        Ok(Self {
            mark,
            netlink: RefCell::new(Netlink::open()?),
            monitor: NetworkMonitor::routes()?,
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
}

impl casemate::Routes for MarkedRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let source = self.find_source(remote);
        self.found(source.map_err(|error| Error::new(format!("source address for {remote}"), error)))
    }

    fn has_addr(&self, addr: IpAddr) -> bool {
        // Only an error that says so means that the address is gone.
        let bound = UdpSocket::bind((addr, 0));
        bound.err().and_then(|error| error.raw_os_error()) != Some(libc::EADDRNOTAVAIL)
            && !self.is_switched_off(addr)
    }

    fn can_be_virtual(&self, addr: IpAddr, peer: IpAddr) -> bool {
        let netlink = &mut *self.netlink.borrow_mut();
        let is_own = netlink.route_to(addr, self.mark).map(|route| route.is_some_and(|to| to.is_local));
        let is_router =
            netlink.route_to(peer, self.mark).map(|route| route.is_some_and(|to| to.gateway == Some(addr)));
        // Without a reply of the kernel it is unknown.
        is_own.is_ok_and(|is_own| !is_own) && is_router.is_ok_and(|is_router| !is_router)
    }

    fn may_have_changed(&self) -> bool {
        let changed = self.monitor.read().any;
        if changed {
            self.switched_off.replace(None);
        }
        changed
    }

    fn link_mtu(&self, remote: IpAddr) -> Option<usize> {
        let mtu = self.netlink.borrow_mut().link_mtu_to(remote, self.mark);
        self.found(mtu)
    }

    fn host_addrs(&self, name: &str, lookup: Lookup) -> HostAddrs {
        self.resolver.addrs(name, lookup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{family, route_address};
    use crate::netns::Netns;
    use casemate::Routes as _;
    use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};
    use std::time::Duration;

    /// Every change that may affect the source address is reported, once.
    #[test]
    fn changes_of_links_addresses_and_routes_are_reported() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let routes = MarkedRoutes::open(1).unwrap();
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
            netlink.remove_route(route).unwrap();
            assert!(routes.may_have_changed() && !routes.may_have_changed());
            let down = std::process::Command::new("ip").args(["link", "set", "lo", "down"]).status();
            assert!(down.unwrap().success());
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
            let routes = MarkedRoutes::open(1).unwrap();
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

    #[test]
    fn a_message_longer_than_the_mtu_is_sent_raw_in_fragments() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let lo = netlink.link("lo").unwrap().index;
            netlink.set_up(lo, 1_300).unwrap();
            let (raw, now) = (RawSender::open(1).unwrap(), Instant::ZERO);
            for addr in ["127.0.0.1", "::1"] {
                let addr: IpAddr = addr.parse().unwrap();
                let receiver = UdpSocket::bind((addr, 0)).unwrap();
                receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let (from, to) = (SocketAddr::new(addr, IKE_PORT), receiver.local_addr().unwrap());
                for len in [100, 3_000] {
                    let message: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                    let packet = datagram(from, to, [&message, &[]]).unwrap();
                    send_raw(&raw, now, packet, addr, 7).unwrap();
                    let mut received = vec![0; 4_000];
                    assert_eq!(receiver.recv(&mut received).unwrap(), len, "{addr}");
                    assert_eq!(received[..len], message);
                }
            }
        };
        netns.run(test).unwrap();
    }
}
