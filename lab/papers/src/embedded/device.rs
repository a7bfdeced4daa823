//! The measured device: an application that executes the requests of the host, with its own TCP/IP stack
//! ([`LibraryDevice`]) or as a client of a stack server ([`run_application()`]).

use super::flow::{LEN, MAX_MESSAGE_LEN, PORT, Request, Role};
use casemate_socketd_client::{Session, TcpListener, TcpStream};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Length of a socket buffer in bytes, for each direction. It equals that of the stack server.
const BUFFER_LEN: usize = 128 << 10;
/// Maximum number of connections: one may still be closing when the next one begins.
const CONNECTIONS: usize = 4;
/// Maximum number of received frames before the application runs.
const BURST: usize = 64;

static MESSAGE: [u8; MAX_MESSAGE_LEN] = [0x5A; MAX_MESSAGE_LEN];

/// Application with a TCP/IP stack as a library, in one thread, as Genode linked lwIP.
pub struct LibraryDevice<D> {
    /// Network device, with or without IPsec.
    pub device: D,
    /// Network interface of the stack.
    pub interface: Interface,
    /// Sockets of the application and of others.
    pub sockets: SocketSet<'static>,
    services: Vec<Service>,
}

/// A connection and its state.
struct Service {
    socket: SocketHandle,
    state: ServiceState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServiceState {
    /// The request has not arrived yet.
    Idle,
    ReceiveAll,
    SendAll(usize),
    /// Receiving a message of `size` bytes, of which `left` are missing.
    Receive {
        size: usize,
        left: usize,
    },
    /// Sending a message of `size` bytes, of which `left` are missing.
    Send {
        size: usize,
        left: usize,
    },
}

impl<D: Device> LibraryDevice<D> {
    /// Creates a device with an address. `seed` determines the initial sequence numbers of TCP.
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
        let room = || SocketBuffer::new(vec![0; BUFFER_LEN]);
        let service = |_| {
            let mut socket = Socket::new(room(), room());
            // As in a minimal build of smoltcp.
            socket.set_congestion_control(CongestionControl::None);
            Service { socket: sockets.add(socket), state: ServiceState::Idle }
        };
        let services = (0..CONNECTIONS).map(service).collect();
        is_taken.then_some(Self { device, interface, sockets, services })
    }

    /// Polls once: receives frames, calls `other_work`, runs the application and sends frames. Returns the
    /// time until the next poll, not counting the needs of `other_work`.
    pub fn poll(
        &mut self,
        now: Instant,
        other_work: impl FnOnce(&Interface, &mut D, &mut SocketSet<'static>),
    ) -> Duration {
        let Self { device, interface, sockets, services } = self;
        interface.poll_maintenance(now);
        let is_flooded = (0..BURST)
            .all(|_| interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None);
        other_work(interface, device, sockets);
        let mut has_more = false;
        for service in services {
            has_more |= service.poll(sockets.get_mut(service.socket));
        }
        interface.poll_egress(now, device, sockets);
        if is_flooded || has_more {
            return Duration::ZERO;
        }
        interface.poll_delay(now, sockets).unwrap_or(Duration::MAX)
    }
}

impl Service {
    /// Advances the connection. Returns whether there is more to do at once.
    fn poll(&mut self, socket: &mut Socket<'_>) -> bool {
        if !socket.is_open() {
            self.state = ServiceState::Idle;
            // The socket is closed and the port is not 0, so this cannot fail.
            let _ = socket.listen(PORT);
            return false;
        }
        let has_more = self.advance(socket);
        if socket.state() == State::CloseWait && !socket.can_recv() {
            socket.close();
        }
        has_more
    }

    fn advance(&mut self, socket: &mut Socket<'_>) -> bool {
        match self.state {
            ServiceState::Idle => {
                self.state = read_request(socket).unwrap_or(ServiceState::Idle);
                self.state != ServiceState::Idle
            }
            ServiceState::ReceiveAll => {
                receive(socket, usize::MAX);
                false
            }
            // One message per poll, because an application calls the stack for each message.
            ServiceState::SendAll(size) => {
                let room = socket.send_capacity() - socket.send_queue();
                room >= size && send(socket, size) > 0
            }
            ServiceState::Receive { size, left } => {
                let left = left - receive(socket, left);
                let is_whole = left == 0;
                self.state = if is_whole {
                    ServiceState::Send { size, left: size }
                } else {
                    ServiceState::Receive { size, left }
                };
                is_whole
            }
            ServiceState::Send { size, left } => {
                let left = left - send(socket, left);
                self.state = if left == 0 {
                    ServiceState::Receive { size, left: size }
                } else {
                    ServiceState::Send { size, left }
                };
                false
            }
        }
    }
}

/// Reads the request once it is complete. Aborts the connection if the request is invalid.
fn read_request(socket: &mut Socket<'_>) -> Option<ServiceState> {
    if socket.recv_queue() < LEN {
        return None;
    }
    let mut bytes = [0; LEN];
    socket.recv_slice(&mut bytes).ok()?;
    let Some(Request { role, size }) = Request::decode(bytes) else {
        socket.abort();
        return None;
    };
    // Nagle's algorithm may delay streams, but not requests and responses.
    socket.set_nagle_enabled(matches!(role, Role::Receiver | Role::Sender));
    Some(match role {
        Role::Receiver => ServiceState::ReceiveAll,
        Role::Sender => ServiceState::SendAll(size),
        Role::Responder => ServiceState::Receive { size, left: size },
        Role::Initiator => ServiceState::Send { size, left: size },
    })
}

/// Reads up to `most` bytes and returns their number.
fn receive(socket: &mut Socket<'_>, most: usize) -> usize {
    let mut all = 0;
    loop {
        // The data may be split between the end and the beginning of the ring buffer.
        let left = most - all;
        match socket.recv(|data| (data.len().min(left), data.len().min(left))) {
            Ok(len @ 1..) => all += len,
            _ => return all,
        }
    }
}

/// Sends up to `size` bytes, as far as the buffer has space, and returns their number.
fn send(socket: &mut Socket<'_>, size: usize) -> usize {
    socket.send_slice(MESSAGE.get(..size).unwrap_or_default()).unwrap_or(0)
}

/// Runs the application as a client of `casemate stack` until an error occurs. Prints `ready`.
pub fn run_application(server: &Path) -> io::Result<()> {
    let stack = Session::connect(server)?;
    let listener = TcpListener::bind(&stack, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT))?;
    // A standard output that is full or closed does not stop the application.
    let _ = writeln!(io::stdout(), "ready");
    loop {
        let (stream, _) = listener.accept()?;
        // An error ends only its own connection.
        std::thread::spawn(move || serve(&stream));
    }
}

fn serve(mut stream: &TcpStream) -> io::Result<()> {
    let mut request = [0; LEN];
    stream.read_exact(&mut request)?;
    let Some(Request { role, size }) = Request::decode(request) else { return Ok(()) };
    let mut buffer = vec![0x5A; MAX_MESSAGE_LEN];
    let message = buffer.get_mut(..size).unwrap_or_default();
    match role {
        Role::Responder => loop {
            stream.read_exact(message)?;
            stream.write_all(message)?;
        },
        Role::Initiator => loop {
            stream.write_all(message)?;
            stream.read_exact(message)?;
        },
        Role::Sender => loop {
            stream.write_all(message)?;
        },
        Role::Receiver => {
            while stream.read(&mut buffer)? > 0 {}
            stream.shutdown_write()
        }
    }
}
