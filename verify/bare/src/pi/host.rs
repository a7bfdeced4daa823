//! A host: smoltcp over one end of the wire, with or without IPsec, and an application with one TCP
//! connection.

use super::application::Application;
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
pub(super) struct Host<D> {
    device: SmallMtu<D>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    pub(super) application: Application,
}

impl<D: OnLink> Host<D> {
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
