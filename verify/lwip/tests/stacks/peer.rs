//! The peer: smoltcp over an IPsec device on one end of the wire.

use crate::pair::LIMITS;
use casemate::Endpoint;
use casemate_datapath::{Datapath, DropReason};
use casemate_ike::IkeSettings;
use casemate_smoltcp::{IpsecConfig, IpsecDevice};
use casemate_test_support::TestRng;
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{icmp, tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
const MTU: usize = 1_500;
/// Maximum number of frames that wait for lwIP.
const ROOM: usize = 1_000;

/// One end of the wire.
pub(crate) struct WireEnd {
    socket: UnixDatagram,
    waiting: VecDeque<Vec<u8>>,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl WireEnd {
    /// Sends a frame to lwIP.
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        self.seen.borrow_mut().push(frame.clone());
        self.waiting.push_back(frame);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(frame) = self.waiting.front() {
            if self.socket.send(frame).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

pub(crate) struct Rx(Vec<u8>);
pub(crate) struct Tx<'a>(&'a mut WireEnd);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        assert!(len <= MTU + ETHERNET, "a frame of {len} bytes is too long for the wire");
        let mut frame = vec![0; len];
        let written = f(&mut frame);
        self.0.send(frame);
        written
    }
}

impl Device for WireEnd {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        self.flush();
        let mut frame = vec![0; MTU + ETHERNET + 1];
        let len = self.socket.recv(&mut frame).ok()?;
        frame.truncate(len);
        self.seen.borrow_mut().push(frame.clone());
        Some((Rx(frame), Tx(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        self.flush();
        (self.waiting.len() < ROOM).then_some(Tx(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU + ETHERNET;
        capabilities
    }
}

/// The recorded frames.
pub(crate) struct Seen(Rc<RefCell<Vec<Vec<u8>>>>);

impl Seen {
    /// Returns and removes all recorded frames.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        self.0.borrow_mut().drain(..).collect()
    }

    /// Returns the protocols of all recorded IP packets without neighbour discovery, sorted and without
    /// duplicates, and removes the frames.
    pub(crate) fn protocols(&self) -> Vec<u8> {
        let mut protocols: Vec<u8> =
            self.take().iter().filter_map(|frame| protocol(&frame[ETHERNET..])).collect();
        protocols.sort_unstable();
        protocols.dedup();
        protocols
    }
}

/// Returns the protocol of an IP packet. Returns `None` for other packets and for neighbour discovery.
pub(crate) fn protocol(packet: &[u8]) -> Option<u8> {
    match ip::version(packet).ok()? {
        IpVersion::V4 => Some(Ipv4::parse(packet).ok()?.protocol()),
        IpVersion::V6 => {
            let chain = Ipv6::parse(packet).ok()?.chain().ok()?;
            let kind = packet.get(chain.last.at).copied();
            let is_neighbours =
                chain.last.next_header == ip::proto::ICMPV6 && kind.is_some_and(|kind| kind >= 130);
            (!is_neighbours).then_some(chain.last.next_header)
        }
    }
}

pub(crate) struct SmoltcpPeer {
    pub(crate) device: IpsecDevice<WireEnd>,
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
    clock: std::time::Instant,
}

impl SmoltcpPeer {
    pub(crate) fn new(
        socket: UnixDatagram,
        datapath: Datapath,
        addrs: &[(IpAddr, u8)],
        neighbour: IpAddr,
    ) -> (Self, Seen) {
        let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
        let seen = Rc::default();
        let end = WireEnd { socket, waiting: VecDeque::new(), seen: Rc::clone(&seen) };
        let mut device = IpsecDevice::new(
            end,
            IpsecConfig { endpoint, rng: Box::new(TestRng::new(0x1234)), limits: LIMITS },
        );
        let hardware = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 1]));
        let mut interface = Interface::new(Config::new(hardware), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            addrs
                .iter()
                .for_each(|(addr, len)| list.push(IpCidr::new(IpAddress::from(*addr), *len)).unwrap());
        });
        match neighbour {
            IpAddr::V4(addr) => drop(interface.routes_mut().add_default_ipv4_route(addr).unwrap()),
            IpAddr::V6(addr) => drop(interface.routes_mut().add_default_ipv6_route(addr).unwrap()),
        }
        let sockets = SocketSet::new(vec![]);
        (Self { device, interface, sockets, clock: std::time::Instant::now() }, Seen(seen))
    }

    /// Returns the time of the peer.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_micros(self.clock.elapsed().as_micros() as i64 + 5_000_000)
    }

    /// Runs the peer. Returns whether it had anything to do.
    pub(crate) fn poll(&mut self) -> bool {
        let now = self.now();
        self.interface.poll(now, &mut self.device, &mut self.sockets) != smoltcp::iface::PollResult::None
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
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 16], vec![0; 200_000]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(ident)).unwrap();
        self.sockets.add(socket)
    }

    /// Returns the drop counters of the data path that are not 0.
    pub(crate) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.device.endpoint().datapath().drops().iter().filter(|(_, count)| *count > 0).collect()
    }
}
