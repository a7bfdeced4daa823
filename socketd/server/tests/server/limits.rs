//! Limits are enforced, and applications are isolated from each other.

use crate::harness::{Harness, V4, limits};
use casemate_socketd::{Limits, PortGrant, TooManyApplications};
use casemate_socketd_protocol::{Error, LocalTransport, Request, Response, SocketId};
use smoltcp::socket::udp;
use std::net::SocketAddr;

#[test]
fn sockets_have_a_limit() {
    let mut harness = Harness::new(limits());
    let (mut app, mut other) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let first = app.open(&mut harness, Request::Bind { local: None, port: 0 });
    for _ in 1..8 {
        app.open(&mut harness, Request::Bind { local: None, port: 0 });
    }
    for call in [
        Request::Bind { local: None, port: 0 },
        Request::Connect { remote: SocketAddr::new(V4, 9) },
        Request::Listen { local: None, port: 7_000, backlog: 1 },
    ] {
        assert_eq!(app.request(&mut harness, call, &[]).0, Err(Error::TooManySockets), "{call:?}");
    }
    // A backlog that exceeds the limit leaves no sockets behind.
    let listen = Request::Listen { local: None, port: 7_000, backlog: 9 };
    assert_eq!(other.request(&mut harness, listen, &[]).0, Err(Error::TooManySockets));
    assert_eq!(harness.sockets.iter().count(), 8);
    other.listen(&mut harness, 7_000, 8);
    // A closed socket makes room.
    assert_eq!(app.request(&mut harness, Request::Close { socket: first }, &[]).0, Ok(Response::Done));
    app.open(&mut harness, Request::Bind { local: None, port: 0 });
}

#[test]
fn connections_in_time_wait_make_room() {
    let mut harness = Harness::new(limits());
    let (mut app, mut other) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let listener = app.listen(&mut harness, 7_000, 1);
    // Each connection leaves `one`, the side that closes first, in TIME-WAIT.
    for _ in 0..30 {
        let out = other.connect(&mut harness, SocketAddr::new(V4, 7_000));
        let into = app.accept(&mut harness, listener);
        assert_eq!(app.request(&mut harness, Request::Close { socket: into }, &[]).0, Ok(Response::Done));
        assert_eq!(other.receive(&mut harness, out).0, Ok(Response::Received { from: None }));
        assert_eq!(other.request(&mut harness, Request::Close { socket: out }, &[]).0, Ok(Response::Done));
        harness.rounds(3);
    }
}

#[test]
fn waiting_requests_have_a_limit() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let socket = app.listen(&mut harness, 7_000, 1);
    for _ in 0..4 {
        app.begin(Request::Accept { socket, wait: true }, &[]);
    }
    let more = Request::Accept { socket, wait: true };
    assert_eq!(app.request(&mut harness, more, &[]).0, Err(Error::TooManyRequests));
}

#[test]
fn applications_have_a_limit() {
    let mut harness = Harness::new(limits());
    let mut all: Vec<_> = (0..4).map(|_| harness.admit(PortGrant::none())).collect();
    let transport = || LocalTransport::pair(limits().rings).1;
    assert!(harness.server.is_full());
    assert_eq!(harness.server.admit(transport(), PortGrant::none()), Err(TooManyApplications));
    harness.end(&all.remove(1));
    assert!(harness.server.admit(transport(), PortGrant::none()).is_ok());
    let counters = harness.server.counters();
    assert_eq!((counters.admitted, counters.rejected), (5, 1));
}

#[test]
fn a_port_has_one_owner() {
    let mut harness = Harness::new(limits());
    let web = PortGrant::none().with_ports(80..=80);
    let (mut app, mut other) = (harness.admit(web.clone()), harness.admit(web));
    app.listen(&mut harness, 80, 1);
    app.open(&mut harness, Request::Bind { local: None, port: 5_000 });
    let listen = |port| Request::Listen { local: None, port, backlog: 1 };
    let bind = |port| Request::Bind { local: None, port };
    for (call, expected) in [
        (listen(80), Error::PortInUse),
        (bind(5_000), Error::PortInUse),
        (listen(81), Error::NotPermitted),
        (bind(500), Error::NotPermitted),
        (
            Request::Listen { local: Some("10.0.0.2".parse().unwrap()), port: 8_080, backlog: 1 },
            Error::AddressNotAvailable,
        ),
    ] {
        assert_eq!(other.request(&mut harness, call, &[]).0, Err(expected), "{call:?}");
    }
    // A port of the stack itself, such as that of IKE with NAT traversal, is in use too.
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; 8]);
    let mut own = udp::Socket::new(buffer(), buffer());
    own.bind(4_500).unwrap();
    harness.sockets.add(own);
    assert_eq!(other.request(&mut harness, bind(4_500), &[]).0, Err(Error::PortInUse));
    // While a connection uses the port, no other application can listen on it.
    let out = other.connect(&mut harness, SocketAddr::new(V4, 80));
    assert_eq!(other.request(&mut harness, listen(80), &[]).0, Err(Error::PortInUse));
    harness.end(&app);
    harness.rounds(3);
    assert_eq!(other.receive(&mut harness, out).0, Err(Error::ConnectionReset));
    other.listen(&mut harness, 80, 1);
}

#[test]
fn a_socket_id_of_another_application_is_unknown() {
    let mut harness = Harness::new(limits());
    let (mut app, mut other) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let listener = app.listen(&mut harness, 7_000, 1);
    let out = app.connect(&mut harness, SocketAddr::new(V4, 7_000));
    let into = app.accept(&mut harness, listener);
    let datagrams = app.open(&mut harness, Request::Bind { local: None, port: 5_000 });
    assert!(app.request(&mut harness, Request::Send { socket: out }, b"for app only").0.is_ok());
    let most = 100;
    for socket in [listener, out, into, datagrams, SocketId(77), SocketId(u32::MAX)] {
        let interest = casemate_socketd_protocol::Readiness { read: true, write: true };
        for call in [
            Request::Accept { socket, wait: true },
            Request::Receive { socket, max_len: most, wait: true },
            Request::Send { socket },
            Request::SendTo { socket, to: SocketAddr::new(V4, 5_000) },
            Request::ShutdownWrite { socket },
            Request::Poll { socket, interest, wait: true },
            Request::Close { socket },
        ] {
            assert_eq!(
                other.request(&mut harness, call, b"intruder"),
                (Err(Error::NoSocket), vec![]),
                "{call:?}"
            );
        }
    }
    assert_eq!(app.receive(&mut harness, into).1, b"for app only");
}

#[test]
fn requests_for_the_wrong_socket_type_fail() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let listener = app.listen(&mut harness, 7_000, 1);
    let datagrams = app.open(&mut harness, Request::Bind { local: None, port: 0 });
    let to = SocketAddr::new(V4, 7_000);
    for call in [
        Request::Accept { socket: datagrams, wait: true },
        Request::Send { socket: datagrams },
        Request::Send { socket: listener },
        Request::SendTo { socket: listener, to },
        Request::Receive { socket: listener, max_len: 9, wait: true },
        Request::ShutdownWrite { socket: datagrams },
    ] {
        assert_eq!(app.request(&mut harness, call, b"x").0, Err(Error::WrongKind), "{call:?}");
    }
}

#[test]
fn each_application_is_served_in_each_round() {
    let mut harness = Harness::new(Limits { requests_per_round: 2, ..limits() });
    let (mut busy, mut modest) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let socket = SocketId(9);
    let calls: Vec<_> = (0..11).map(|_| busy.begin(Request::Close { socket }, &[])).collect();
    let tag = modest.begin(Request::Close { socket }, &[]);
    assert!(harness.round(), "there is more to do");
    assert_eq!(modest.take().map(|(answered, _)| answered), Some(tag));
    let answered: Vec<_> = std::iter::from_fn(|| busy.take()).map(|(answered, _)| answered).collect();
    assert_eq!(answered, calls[..2], "two per round");
    harness.rounds(6);
    assert_eq!(std::iter::from_fn(|| busy.take()).count(), 9);
    assert!(!harness.round());
}
