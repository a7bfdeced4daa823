//! The test harness: a server over a loopback interface, and applications.

use casemate_socketd::{Limits, Notice, PortGrant, Server, SessionId};
use casemate_socketd_protocol::{
    ClientChannel, Error, LocalTransport, Readiness, Request, RequestId, Response, RingSizes, SocketId,
    Transport,
};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Loopback, Medium};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;
use std::net::{IpAddr, SocketAddr};

pub(crate) const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

pub(crate) fn limits() -> Limits {
    Limits {
        applications: 4,
        sockets: 8,
        buffer_bytes: 4_096,
        buffer_datagrams: 4,
        waiting_requests: 4,
        requests_per_round: 8,
        rings: RingSizes::new(9, 9).unwrap(),
    }
}

/// The server and its stack over a loopback device.
pub(crate) struct Harness {
    pub(crate) server: Server<LocalTransport>,
    pub(crate) interface: Interface,
    pub(crate) device: Loopback,
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) now: Instant,
    pub(crate) notices: Vec<Notice>,
}

impl Harness {
    pub(crate) fn new(limits: Limits) -> Self {
        let mut device = Loopback::new(Medium::Ip);
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            list.push(format!("{V4}/24").parse().unwrap()).unwrap();
            list.push(format!("{V6}/64").parse().unwrap()).unwrap();
        });
        let sockets = SocketSet::new(vec![]);
        let server = Server::new(limits, 0x1234_5678);
        Self { server, interface, device, sockets, now: Instant::ZERO, notices: Vec::new() }
    }

    pub(crate) fn admit(&mut self, grant: PortGrant) -> Application {
        let (end, other) = LocalTransport::pair(self.server.limits().rings);
        let id = self.server.admit(other, grant).unwrap();
        Application::new(id, end, self.server.limits().rings)
    }

    /// One iteration of the loop that the owner of a server runs.
    pub(crate) fn round(&mut self) -> bool {
        self.now += Duration::from_millis(1);
        self.interface.poll(self.now, &mut self.device, &mut self.sockets);
        let Self { server, interface, sockets, notices, now, .. } = self;
        server.serve(*now, interface, sockets, |notice| notices.push(notice))
    }

    pub(crate) fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round();
        }
    }

    pub(crate) fn end(&mut self, application: &Application) {
        self.server.end_session(application.id, self.now, &mut self.sockets);
    }
}

/// An application.
pub(crate) struct Application {
    pub(crate) id: SessionId,
    pub(crate) channel: ClientChannel<LocalTransport>,
    next: u32,
}

/// The response to a request and its data.
pub(crate) type Reply = (Result<Response, Error>, Vec<u8>);

impl Application {
    fn new(id: SessionId, end: LocalTransport, sizes: RingSizes) -> Self {
        Self { id, channel: ClientChannel::new(end, sizes).unwrap(), next: 0 }
    }

    pub(crate) fn memory(&self) -> &[std::sync::atomic::AtomicU64] {
        self.channel.transport().memory()
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn begin(&mut self, call: Request, data: &[u8]) -> RequestId {
        self.next += 1;
        self.channel.send_request(RequestId(self.next), &call, data).unwrap();
        RequestId(self.next)
    }

    /// Returns the next response, if there is one.
    pub(crate) fn take(&mut self) -> Option<(RequestId, Reply)> {
        let outcome = self.channel.peek_response().unwrap()?;
        let mut data = vec![0; outcome.len];
        self.channel.read_data(&mut data);
        self.channel.pop_response().unwrap();
        Some((outcome.id, (outcome.response, data)))
    }

    /// Sends a request and waits for its response, which must be the next.
    pub(crate) fn request(&mut self, harness: &mut Harness, call: Request, data: &[u8]) -> Reply {
        let tag = self.begin(call, data);
        for _ in 0..1_000 {
            harness.round();
            if let Some((answered, reply)) = self.take() {
                assert_eq!(answered, tag);
                return reply;
            }
        }
        panic!("{call:?}: no response");
    }

    /// Sends a request that opens a socket, and returns the ID of the socket.
    pub(crate) fn open(&mut self, harness: &mut Harness, call: Request) -> SocketId {
        match self.request(harness, call, &[]).0 {
            Ok(Response::Opened { socket, .. } | Response::Accepted { socket, .. }) => socket,
            other => panic!("{call:?}: {other:?}"),
        }
    }

    pub(crate) fn listen(&mut self, harness: &mut Harness, port: u16, backlog: u16) -> SocketId {
        self.open(harness, Request::Listen { local: None, port, backlog })
    }

    /// Opens a connection and waits until it is established.
    pub(crate) fn connect(&mut self, harness: &mut Harness, remote: SocketAddr) -> SocketId {
        let socket = self.open(harness, Request::Connect { remote });
        let interest = Readiness { read: false, write: true };
        let ready = self.request(harness, Request::Poll { socket, interest, wait: true }, &[]).0;
        assert_eq!(ready, Ok(Response::Ready(interest)));
        socket
    }

    pub(crate) fn accept(&mut self, harness: &mut Harness, socket: SocketId) -> SocketId {
        self.open(harness, Request::Accept { socket, wait: true })
    }

    /// The end of a connection at this application.
    pub(crate) const fn end(&mut self, socket: SocketId) -> ConnectionEnd<'_> {
        ConnectionEnd { application: self, socket }
    }

    pub(crate) fn receive(&mut self, harness: &mut Harness, socket: SocketId) -> Reply {
        self.request(harness, Request::Receive { socket, max_len: u32::MAX, wait: true }, &[])
    }
}

/// Returns a recognizable byte pattern.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8 ^ at as u8).collect()
}

/// One end of a connection: the application and its socket.
pub(crate) struct ConnectionEnd<'a> {
    pub(crate) application: &'a mut Application,
    pub(crate) socket: SocketId,
}

/// Sends `data` from one end of a connection to the other, and returns the data received there. Calls
/// `meanwhile` after each round.
pub(crate) fn transfer(
    harness: &mut Harness,
    from: ConnectionEnd<'_>,
    to: ConnectionEnd<'_>,
    data: &[u8],
    mut meanwhile: impl FnMut(&mut Harness),
) -> Vec<u8> {
    let ConnectionEnd { application: from, socket: out } = from;
    let ConnectionEnd { application: to, socket: into } = to;
    let (mut sent, mut received, mut last) = (0, Vec::new(), false);
    to.begin(Request::Receive { socket: into, max_len: 1_000, wait: true }, &[]);
    from.begin(Request::Send { socket: out }, &data[..data.len().min(1_500)]);
    for _ in 0..data.len() + 10_000 {
        harness.round();
        meanwhile(harness);
        while let Some((_, (answer, _))) = from.take() {
            match answer {
                Ok(Response::Sent { bytes }) => sent += bytes as usize,
                Err(Error::WouldBlock) | Ok(Response::Done) => {}
                other => panic!("send: {other:?}"),
            }
            if sent < data.len() {
                from.begin(Request::Send { socket: out }, &data[sent..data.len().min(sent + 1_500)]);
            } else if !last {
                last = true;
                from.begin(Request::ShutdownWrite { socket: out }, &[]);
            }
        }
        while let Some((_, (answer, data))) = to.take() {
            assert_eq!(answer, Ok(Response::Received { from: None }));
            if data.is_empty() {
                return received;
            }
            received.extend(data);
            to.begin(Request::Receive { socket: into, max_len: 1_000, wait: true }, &[]);
        }
    }
    panic!("{} of {} bytes, {sent} sent", received.len(), data.len());
}
