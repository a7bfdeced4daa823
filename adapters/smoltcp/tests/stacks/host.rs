//! A host: an interface over an IPsec device on one end of the wire, and its sockets.

use crate::virtual_link::LinkEnd;
use casemate::Endpoint;
use casemate_datapath::DropReason;
use casemate_sa::Limits;
use casemate_smoltcp::{IpsecConfig, IpsecDevice};
use casemate_test_support::TestRng;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, Medium};
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::net::IpAddr;

/// Limits of a small host, with room for datagrams of all lengths.
pub(crate) const LIMITS: Limits = Limits { reassembly_bytes: 65_535, policies: 32, ..Limits::DEVICE };

/// Address of a host, and that of its peer.
#[derive(Clone, Copy)]
pub(crate) struct HostAddrs {
    pub(crate) own: IpAddr,
    pub(crate) peer: IpAddr,
}

impl HostAddrs {
    /// Returns the addresses as the peer sees them.
    pub(crate) fn reversed(self) -> Self {
        Self { own: self.peer, peer: self.own }
    }
}

pub(crate) struct Host {
    pub(crate) device: IpsecDevice<LinkEnd>,
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
}

impl Host {
    /// Creates a host with these addresses and `neighbour` as its default router.
    pub(crate) fn new(
        end: LinkEnd,
        endpoint: Endpoint,
        number: u8,
        addrs: &[(IpAddr, u8)],
        neighbour: IpAddr,
    ) -> Self {
        let medium = end.capabilities().medium;
        let setup =
            IpsecConfig { endpoint, rng: Box::new(TestRng::new(0x1234 + u64::from(number))), limits: LIMITS };
        let mut device = IpsecDevice::new(end, setup);
        let hardware = match medium {
            Medium::Ethernet => HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, number])),
            _ => HardwareAddress::Ip,
        };
        let mut interface = Interface::new(Config::new(hardware), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            for (addr, len) in addrs {
                list.push(IpCidr::new(IpAddress::from(*addr), *len)).unwrap();
            }
        });
        match neighbour {
            IpAddr::V4(addr) => drop(interface.routes_mut().add_default_ipv4_route(addr).unwrap()),
            IpAddr::V6(addr) => drop(interface.routes_mut().add_default_ipv6_route(addr).unwrap()),
        }
        Self { device, interface, sockets: SocketSet::new(vec![]) }
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
    }

    pub(crate) fn udp(&mut self, port: u16) -> SocketHandle {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 16], vec![0; 200_000]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(port).unwrap();
        self.sockets.add(socket)
    }

    pub(crate) fn tcp(&mut self) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; 65_535]);
        self.sockets.add(tcp::Socket::new(buffer(), buffer()))
    }

    pub(crate) fn icmp(&mut self, ident: u16) -> SocketHandle {
        self.icmp_at(icmp::Endpoint::Ident(ident))
    }

    /// Opens a socket for ICMP errors about datagrams sent from this UDP port.
    pub(crate) fn icmp_about(&mut self, port: u16) -> SocketHandle {
        self.icmp_at(icmp::Endpoint::Udp(port.into()))
    }

    fn icmp_at(&mut self, endpoint: icmp::Endpoint) -> SocketHandle {
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 16], vec![0; 200_000]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(endpoint).unwrap();
        self.sockets.add(socket)
    }

    /// Returns the drop counters of the data path that are not 0.
    pub(crate) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.device.endpoint().datapath().drops().iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Returns how many packets the data path dropped for this reason.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.device.endpoint().datapath().drops().get(reason)
    }
}

/// Runs both hosts in virtual time until `done` returns true, at most `limit` milliseconds.
pub(crate) fn run(
    now: &mut Instant,
    a: &mut Host,
    b: &mut Host,
    limit: u64,
    mut done: impl FnMut(&mut Host, &mut Host) -> bool,
) {
    for _ in 0..limit {
        a.poll(*now);
        b.poll(*now);
        if done(a, b) {
            return;
        }
        *now += Duration::from_millis(1);
    }
    panic!("not done after {limit} ms; drops: {:?}, {:?}", a.drops(), b.drops());
}
