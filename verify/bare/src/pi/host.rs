//! A host: smoltcp over one end of the wire, with or without IPsec, and the applications at both ends of a
//! TCP connection, for the four figures of the paper.

use crate::link::{LinkEnd, OnLink};
use alloc::vec;
use core::net::IpAddr;
use smoltcp::iface::{Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Buffer size per direction, as in the devices of the other figures.
const BUFFER: usize = 128 << 10;
/// Maximum number of packets received before the application runs.
const MAX_PACKETS_PER_ROUND: usize = 64;
/// MTU of the stack. Protected packets still fit the link, and segments have 1,360 bytes in all rows.
const MTU: usize = 1_400;
const PORT: u16 = 5_002;
const LOCAL_PORT: u16 = 50_000;

/// A host.
pub(super) struct TcpHost<D> {
    device: SmallMtu<D>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    pub(super) application: Application,
}

impl<D: OnLink> TcpHost<D> {
    /// Creates a host without a connection.
    pub(super) fn new(device: D, own: IpAddr, application: Application) -> Self {
        let mut device = SmallMtu(device);
        let mut config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        config.random_seed = 1;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        // The list has room for one address.
        interface.update_ip_addrs(|addrs| {
            let _ = addrs.push(IpCidr::new(own.into(), 24));
        });
        let room = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(room(), room());
        socket.set_nagle_enabled(application.streams());
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Self { device, interface, sockets, socket, application }
    }

    /// Listens for a connection. Returns `None` if the stack refuses.
    pub(super) fn listen(&mut self) -> Option<()> {
        self.sockets.get_mut::<Socket<'_>>(self.socket).listen(PORT).ok()
    }

    /// Opens a connection. Returns `None` if the stack refuses.
    pub(super) fn connect(&mut self, to: IpAddr) -> Option<()> {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        socket.connect(self.interface.context(), (to, PORT), LOCAL_PORT).ok()
    }

    /// Receives packets, runs the application, sends packets. Returns whether there was anything to do.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let Self { device, interface, sockets, socket, application } = self;
        let mut taken = 0;
        while taken < MAX_PACKETS_PER_ROUND
            && interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None
        {
            taken += 1;
        }
        let is_active = application.poll(sockets.get_mut(*socket));
        let has_sent = interface.poll_egress(now, device, sockets) != PollResult::None;
        taken > 0 || is_active || has_sent
    }

    /// Returns the host's end of the wire.
    pub(super) fn link_end(&mut self) -> &mut LinkEnd {
        self.device.0.link_end()
    }
}

/// A device with an MTU of [`MTU`].
struct SmallMtu<D>(D);

impl<D: Device> Device for SmallMtu<D> {
    type RxToken<'a>
        = D::RxToken<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = D::TxToken<'a>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        self.0.receive(now)
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        self.0.transmit(now)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

/// Maximum length of a message in bytes.
pub(super) const MAX_MESSAGE: usize = 16_384;
static MESSAGE: [u8; MAX_MESSAGE] = [0x5A; MAX_MESSAGE];

/// Traffic pattern: which side sends. The host is the peer of the measured device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    HostAsks,
    DeviceAsks,
    DeviceSends,
    HostSends,
}

/// All patterns with their names in the output.
pub(super) const FLOWS: [(&str, Flow); 4] = [
    ("host-asks", Flow::HostAsks),
    ("device-asks", Flow::DeviceAsks),
    ("device-sends", Flow::DeviceSends),
    ("host-sends", Flow::HostSends),
];

/// An application with one connection and messages of a fixed size.
pub(super) struct Application {
    size: usize,
    role: Role,
    /// Number of bytes read so far.
    pub(super) received: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    ReceiveStream,
    SendStream,
    /// Receive a message; the value is the number of missing bytes.
    ReceiveMessage(usize),
    /// Send a message; the value is the number of missing bytes.
    SendMessage(usize),
}

impl Flow {
    /// Returns whether transactions are counted instead of bytes.
    pub(super) const fn is_latency(self) -> bool {
        matches!(self, Self::HostAsks | Self::DeviceAsks)
    }
}

/// A traffic pattern with the length of its messages in bytes.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) flow: Flow,
    pub(super) size: usize,
}

impl Load {
    /// Returns the applications of the device and of the host.
    pub(super) const fn applications(self) -> [Application; 2] {
        let Self { flow, size } = self;
        let [device, host] = match flow {
            Flow::HostAsks => [Role::ReceiveMessage(size), Role::SendMessage(size)],
            Flow::DeviceAsks => [Role::SendMessage(size), Role::ReceiveMessage(size)],
            Flow::DeviceSends => [Role::SendStream, Role::ReceiveStream],
            Flow::HostSends => [Role::ReceiveStream, Role::SendStream],
        };
        [Application { size, role: device, received: 0 }, Application { size, role: host, received: 0 }]
    }
}

impl Application {
    /// Returns whether the stack may merge messages (Nagle's algorithm). Requests and responses must not
    /// be delayed.
    pub(super) const fn streams(&self) -> bool {
        matches!(self.role, Role::ReceiveStream | Role::SendStream)
    }

    /// Works as far as possible without blocking, and handles at most one message. Returns whether it did
    /// anything.
    pub(super) fn poll(&mut self, socket: &mut Socket<'_>) -> bool {
        let before = self.received;
        match self.role {
            Role::ReceiveStream => {
                self.received += receive(socket, usize::MAX);
                self.received > before
            }
            Role::SendStream => {
                let room = socket.send_capacity().saturating_sub(socket.send_queue());
                room >= self.size && send(socket, self.size) > 0
            }
            Role::ReceiveMessage(left) => {
                let len = receive(socket, left);
                self.received += len;
                self.role =
                    if len == left { Role::SendMessage(self.size) } else { Role::ReceiveMessage(left - len) };
                len > 0
            }
            Role::SendMessage(left) => {
                let len = send(socket, left);
                self.role =
                    if len == left { Role::ReceiveMessage(self.size) } else { Role::SendMessage(left - len) };
                len > 0
            }
        }
    }
}

/// Reads at most `max` bytes and returns the number of bytes read.
fn receive(socket: &mut Socket<'_>, max: usize) -> usize {
    let mut all = 0;
    loop {
        // The data in the ring buffer may be in two parts.
        let left = max - all;
        match socket.recv(|data| (data.len().min(left), data.len().min(left))) {
            Ok(len @ 1..) => all += len,
            _ => return all,
        }
    }
}

/// Sends up to `size` bytes, as far as there is room. Returns the number of bytes sent.
fn send(socket: &mut Socket<'_>, size: usize) -> usize {
    socket.send_slice(MESSAGE.get(..size).unwrap_or_default()).unwrap_or(0)
}
