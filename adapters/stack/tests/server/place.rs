//! The place where it all happens.

use casemate_rings::{Answer, Call, Caller, Error, Geometry, Handle, Local, Readiness, Tag, Transport};
use casemate_stack::{Grant, Limits, Notice, Server, SessionId};
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
        buffer: 4_096,
        datagrams: 4,
        calls: 4,
        turn: 8,
        geometry: Geometry::new(9, 9).unwrap(),
    }
}

/// The server and its stack, which hears what it says itself.
pub(crate) struct Place {
    pub(crate) server: Server<Local>,
    pub(crate) interface: Interface,
    pub(crate) device: Loopback,
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) now: Instant,
    pub(crate) notices: Vec<Notice>,
}

impl Place {
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

    pub(crate) fn admit(&mut self, grant: Grant) -> Application {
        let (end, other) = Local::pair(self.server.limits().geometry);
        let id = self.server.admit(other, grant).unwrap();
        Application::new(id, end, self.server.limits().geometry)
    }

    /// One round of the loop that a program has.
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
        self.server.end(application.id, self.now, &mut self.sockets);
    }
}

/// An application.
pub(crate) struct Application {
    pub(crate) id: SessionId,
    pub(crate) caller: Caller<Local>,
    next: u32,
}

/// What came of a call, and the data with it.
pub(crate) type Reply = (Result<Answer, Error>, Vec<u8>);

impl Application {
    fn new(id: SessionId, end: Local, geometry: Geometry) -> Self {
        Self { id, caller: Caller::new(end, geometry).unwrap(), next: 0 }
    }

    pub(crate) fn memory(&self) -> &[std::sync::atomic::AtomicU64] {
        self.caller.transport().memory()
    }

    /// Makes a call and does not wait.
    pub(crate) fn begin(&mut self, call: Call, data: &[u8]) -> Tag {
        self.next += 1;
        self.caller.call(Tag(self.next), &call, data).unwrap();
        Tag(self.next)
    }

    /// The next answer that has come.
    pub(crate) fn take(&mut self) -> Option<(Tag, Reply)> {
        let outcome = self.caller.answer().unwrap()?;
        let mut data = vec![0; outcome.len];
        self.caller.data(&mut data);
        self.caller.pass().unwrap();
        Some((outcome.tag, (outcome.answer, data)))
    }

    /// Makes a call and waits for its answer, which is the next.
    pub(crate) fn ask(&mut self, place: &mut Place, call: Call, data: &[u8]) -> Reply {
        let tag = self.begin(call, data);
        for _ in 0..1_000 {
            place.round();
            if let Some((answered, reply)) = self.take() {
                assert_eq!(answered, tag);
                return reply;
            }
        }
        panic!("{call:?}: no answer");
    }

    /// The same, of a call that opens something.
    pub(crate) fn open(&mut self, place: &mut Place, call: Call) -> Handle {
        match self.ask(place, call, &[]).0 {
            Ok(Answer::Opened { socket, .. } | Answer::Accepted { socket, .. }) => socket,
            other => panic!("{call:?}: {other:?}"),
        }
    }

    pub(crate) fn listen(&mut self, place: &mut Place, port: u16, backlog: u16) -> Handle {
        self.open(place, Call::Listen { local: None, port, backlog })
    }

    /// A connection, when it is established.
    pub(crate) fn connect(&mut self, place: &mut Place, remote: SocketAddr) -> Handle {
        let socket = self.open(place, Call::Connect { remote });
        let interest = Readiness { read: false, write: true };
        let ready = self.ask(place, Call::Poll { socket, interest, patient: true }, &[]).0;
        assert_eq!(ready, Ok(Answer::Ready(interest)));
        socket
    }

    pub(crate) fn accept(&mut self, place: &mut Place, socket: Handle) -> Handle {
        self.open(place, Call::Accept { socket, patient: true })
    }

    pub(crate) fn receive(&mut self, place: &mut Place, socket: Handle) -> Reply {
        self.ask(place, Call::Receive { socket, most: u32::MAX, patient: true }, &[])
    }
}

/// Bytes that are told from any others.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8 ^ at as u8).collect()
}

/// Sends everything over one connection and receives it at the end of another one; `meanwhile` is done between rounds.
pub(crate) fn transfer(
    place: &mut Place,
    (from, out): (&mut Application, Handle),
    (to, into): (&mut Application, Handle),
    data: &[u8],
    mut meanwhile: impl FnMut(&mut Place),
) -> Vec<u8> {
    let (mut sent, mut received, mut last) = (0, Vec::new(), false);
    to.begin(Call::Receive { socket: into, most: 1_000, patient: true }, &[]);
    from.begin(Call::Send { socket: out }, &data[..data.len().min(1_500)]);
    for _ in 0..data.len() + 10_000 {
        place.round();
        meanwhile(place);
        while let Some((_, (answer, _))) = from.take() {
            match answer {
                Ok(Answer::Sent { bytes }) => sent += bytes as usize,
                Err(Error::NotNow) | Ok(Answer::Done) => {}
                other => panic!("send: {other:?}"),
            }
            if sent < data.len() {
                from.begin(Call::Send { socket: out }, &data[sent..data.len().min(sent + 1_500)]);
            } else if !last {
                last = true;
                from.begin(Call::Finish { socket: out }, &[]);
            }
        }
        while let Some((_, (answer, data))) = to.take() {
            assert_eq!(answer, Ok(Answer::Received { from: None }));
            if data.is_empty() {
                return received;
            }
            received.extend(data);
            to.begin(Call::Receive { socket: into, most: 1_000, patient: true }, &[]);
        }
    }
    panic!("{} of {} bytes, {sent} sent", received.len(), data.len());
}
