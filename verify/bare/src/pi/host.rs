//! A host: smoltcp over a wire's end, guarded or not, and an application with one TCP connection.

use super::application::Application;
use crate::wire::{Above, End};
use alloc::vec;
use core::net::IpAddr;
use smoltcp::iface::{Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Bytes of the buffer in each direction, as the devices of the other figures have.
const BUFFER: usize = 128 << 10;
/// Packets that are taken before the application has a turn.
const BURST: usize = 64;
/// What the stack takes for its MTU: packets become longer by protection and still fit, and segments are 1,360 bytes long in every row.
const MTU: usize = 1_400;
const PORT: u16 = 5_002;
const OTHER_PORT: u16 = 50_000;

/// A host.
pub(super) struct Host<D> {
    device: Short<D>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    pub(super) application: Application,
}

impl<D: Above> Host<D> {
    /// Without a connection.
    pub(super) fn new(device: D, own: IpAddr, application: Application) -> Self {
        let mut device = Short(device);
        let mut config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        config.random_seed = 1;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        // There is room for one.
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

    /// Waits for a connection. `None` if the stack does not take that.
    pub(super) fn listen(&mut self) -> Option<()> {
        self.sockets.get_mut::<Socket<'_>>(self.socket).listen(PORT).ok()
    }

    /// Begins a connection. `None` if the stack does not take that.
    pub(super) fn connect(&mut self, to: IpAddr) -> Option<()> {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        socket.connect(self.interface.context(), (to, PORT), OTHER_PORT).ok()
    }

    /// Packets in, the application's turn, packets out. Whether there was anything to do.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let Self { device, interface, sockets, socket, application } = self;
        let mut taken = 0;
        while taken < BURST
            && interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None
        {
            taken += 1;
        }
        let has_worked = application.turn(sockets.get_mut(*socket));
        let has_sent = interface.poll_egress(now, device, sockets) != PollResult::None;
        taken > 0 || has_worked || has_sent
    }

    /// The end of the wire.
    pub(super) fn wire(&mut self) -> &mut End {
        self.device.0.wire()
    }
}

/// A device that takes packets of [`MTU`] bytes at most.
struct Short<D>(D);

impl<D: Device> Device for Short<D> {
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
