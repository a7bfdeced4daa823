//! The application with the stack as a library: one program, one flow of control, as Genode linked lwIP.

use crate::embedded::order::{Duty, LEN, LONGEST, Order, PORT};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};

/// Bytes of a socket's buffer, of which it has one in each direction: as many as the stack server's.
const BUFFER: usize = 128 << 10;
/// Connections at a time: one that ends may still be there when the next begins.
const CONNECTIONS: usize = 4;
/// Frames that are taken from the device before the application has a turn.
const BURST: usize = 64;

static MESSAGE: [u8; LONGEST] = [0x5A; LONGEST];

/// The stack, its device and the application.
pub struct Library<D> {
    /// Frames or packets, guarded or not.
    pub device: D,
    /// The stack.
    pub interface: Interface,
    /// The application's, and whoever else's.
    pub sockets: SocketSet<'static>,
    services: Vec<Service>,
}

/// A connection, and what is done with it.
struct Service {
    socket: SocketHandle,
    work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// The order has not come yet.
    Idle,
    Take,
    Give(usize),
    /// A message of `size` bytes comes, of which `left` are missing.
    Hear {
        size: usize,
        left: usize,
    },
    /// A message of `size` bytes goes, of which `left` are missing.
    Say {
        size: usize,
        left: usize,
    },
}

impl<D: Device> Library<D> {
    /// On a device, with an address of its own. `seed` makes TCP's first sequence numbers.
    pub fn new(
        mut device: D,
        hardware: HardwareAddress,
        address: IpCidr,
        seed: u64,
        now: Instant,
    ) -> Option<Self> {
        let mut config = Config::new(hardware);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, now);
        let mut is_taken = false;
        interface.update_ip_addrs(|list| is_taken = list.push(address).is_ok());
        let mut sockets = SocketSet::new(Vec::new());
        let room = || SocketBuffer::new(vec![0; BUFFER]);
        let service = |_| {
            let mut socket = Socket::new(room(), room());
            // As where smoltcp is built with no more than it needs.
            socket.set_congestion_control(CongestionControl::None);
            Service { socket: sockets.add(socket), work: Work::Idle }
        };
        let services = (0..CONNECTIONS).map(service).collect();
        is_taken.then_some(Self { device, interface, sockets, services })
    }

    /// One round: frames in, `beside`, the application's turn, frames out. Answers how long there is nothing to do by itself, but for
    /// what `beside` waits for.
    pub fn round(
        &mut self,
        now: Instant,
        beside: impl FnOnce(&Interface, &mut D, &mut SocketSet<'static>),
    ) -> Duration {
        let Self { device, interface, sockets, services } = self;
        interface.poll_maintenance(now);
        let is_flooded = (0..BURST)
            .all(|_| interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None);
        beside(interface, device, sockets);
        let mut has_more = false;
        for service in services {
            has_more |= service.turn(sockets.get_mut(service.socket));
        }
        interface.poll_egress(now, device, sockets);
        if is_flooded || has_more {
            return Duration::ZERO;
        }
        interface.poll_delay(now, sockets).unwrap_or(Duration::MAX)
    }
}

impl Service {
    /// Goes on; whether there is more to do at once.
    fn turn(&mut self, socket: &mut Socket<'_>) -> bool {
        if !socket.is_open() {
            self.work = Work::Idle;
            // The socket is closed and the port is not 0: nothing can be wrong.
            let _ = socket.listen(PORT);
            return false;
        }
        let has_more = self.work(socket);
        if socket.state() == State::CloseWait && !socket.can_recv() {
            socket.close();
        }
        has_more
    }

    fn work(&mut self, socket: &mut Socket<'_>) -> bool {
        match self.work {
            Work::Idle => {
                self.work = begin(socket).unwrap_or(Work::Idle);
                self.work != Work::Idle
            }
            Work::Take => {
                hear(socket, usize::MAX);
                false
            }
            // One message a turn, as an application calls the stack for each.
            Work::Give(size) => {
                let room = socket.send_capacity() - socket.send_queue();
                room >= size && say(socket, size) > 0
            }
            Work::Hear { size, left } => {
                let left = left - hear(socket, left);
                let is_whole = left == 0;
                self.work = if is_whole { Work::Say { size, left: size } } else { Work::Hear { size, left } };
                is_whole
            }
            Work::Say { size, left } => {
                let left = left - say(socket, left);
                self.work =
                    if left == 0 { Work::Hear { size, left: size } } else { Work::Say { size, left } };
                false
            }
        }
    }
}

/// The order, once it is there. Who says anything else is left waiting for itself to give up.
fn begin(socket: &mut Socket<'_>) -> Option<Work> {
    if socket.recv_queue() < LEN {
        return None;
    }
    let mut bytes = [0; LEN];
    socket.recv_slice(&mut bytes).ok()?;
    let Some(Order { duty, size }) = Order::decode(bytes) else {
        socket.abort();
        return None;
    };
    // Streams may be put together by the stack, questions and answers may not wait for that.
    socket.set_nagle_enabled(matches!(duty, Duty::Take | Duty::Give));
    Some(match duty {
        Duty::Take => Work::Take,
        Duty::Give => Work::Give(size),
        Duty::Answer => Work::Hear { size, left: size },
        Duty::Ask => Work::Say { size, left: size },
    })
}

/// Reads no more than `most` bytes; how many came.
fn hear(socket: &mut Socket<'_>, most: usize) -> usize {
    let mut all = 0;
    loop {
        // What is there may lie in two pieces, at the end of the buffer and at its beginning.
        let left = most - all;
        match socket.recv(|data| (data.len().min(left), data.len().min(left))) {
            Ok(len @ 1..) => all += len,
            _ => return all,
        }
    }
}

/// Sends so many bytes, or as many of them as there is room for.
fn say(socket: &mut Socket<'_>, size: usize) -> usize {
    socket.send_slice(MESSAGE.get(..size).unwrap_or_default()).unwrap_or(0)
}
