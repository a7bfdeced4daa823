//! What is full refuses, and nobody has what is another's.

use crate::place::{Place, V4, limits};
use casemate_rings::{Answer, Call, Error, Handle, Local};
use casemate_stack::{Grant, Limits, TooManyApplications};
use smoltcp::socket::udp;
use std::net::SocketAddr;

#[test]
fn sockets_have_a_limit() {
    let mut place = Place::new(limits());
    let (mut one, mut other) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let first = one.open(&mut place, Call::Bind { local: None, port: 0 });
    for _ in 1..8 {
        one.open(&mut place, Call::Bind { local: None, port: 0 });
    }
    for call in [
        Call::Bind { local: None, port: 0 },
        Call::Connect { remote: SocketAddr::new(V4, 9) },
        Call::Listen { local: None, port: 7_000, backlog: 1 },
    ] {
        assert_eq!(one.ask(&mut place, call, &[]).0, Err(Error::TooManySockets), "{call:?}");
    }
    // A backlog that does not fit leaves nothing behind.
    let listen = Call::Listen { local: None, port: 7_000, backlog: 9 };
    assert_eq!(other.ask(&mut place, listen, &[]).0, Err(Error::TooManySockets));
    assert_eq!(place.sockets.iter().count(), 8);
    other.listen(&mut place, 7_000, 8);
    // What is closed makes room.
    assert_eq!(one.ask(&mut place, Call::Close { socket: first }, &[]).0, Ok(Answer::Done));
    one.open(&mut place, Call::Bind { local: None, port: 0 });
}

#[test]
fn connections_in_time_wait_make_room() {
    let mut place = Place::new(limits());
    let (mut one, mut other) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let listener = one.listen(&mut place, 7_000, 1);
    // Each leaves the side that closes first, `one`, in TIME-WAIT.
    for _ in 0..30 {
        let out = other.connect(&mut place, SocketAddr::new(V4, 7_000));
        let into = one.accept(&mut place, listener);
        assert_eq!(one.ask(&mut place, Call::Close { socket: into }, &[]).0, Ok(Answer::Done));
        assert_eq!(other.receive(&mut place, out).0, Ok(Answer::Received { from: None }));
        assert_eq!(other.ask(&mut place, Call::Close { socket: out }, &[]).0, Ok(Answer::Done));
        place.rounds(3);
    }
}

#[test]
fn calls_that_wait_have_a_limit() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let socket = one.listen(&mut place, 7_000, 1);
    for _ in 0..4 {
        one.begin(Call::Accept { socket, patient: true }, &[]);
    }
    let more = Call::Accept { socket, patient: true };
    assert_eq!(one.ask(&mut place, more, &[]).0, Err(Error::TooManyCalls));
}

#[test]
fn applications_have_a_limit() {
    let mut place = Place::new(limits());
    let mut all: Vec<_> = (0..4).map(|_| place.admit(Grant::none())).collect();
    let transport = || Local::pair(limits().geometry).1;
    assert!(place.server.is_full());
    assert_eq!(place.server.admit(transport(), Grant::none()), Err(TooManyApplications));
    place.end(&all.remove(1));
    assert!(place.server.admit(transport(), Grant::none()).is_ok());
    let counters = place.server.counters();
    assert_eq!((counters.admitted, counters.turned_away), (5, 1));
}

#[test]
fn ports_are_nobody_elses() {
    let mut place = Place::new(limits());
    let web = Grant::none().with(80..=80);
    let (mut one, mut other) = (place.admit(web.clone()), place.admit(web));
    one.listen(&mut place, 80, 1);
    one.open(&mut place, Call::Bind { local: None, port: 5_000 });
    let listen = |port| Call::Listen { local: None, port, backlog: 1 };
    let bind = |port| Call::Bind { local: None, port };
    for (call, why) in [
        (listen(80), Error::PortInUse),
        (bind(5_000), Error::PortInUse),
        (listen(81), Error::NotPermitted),
        (bind(500), Error::NotPermitted),
        (
            Call::Listen { local: Some("10.0.0.2".parse().unwrap()), port: 8_080, backlog: 1 },
            Error::NotOurAddress,
        ),
    ] {
        assert_eq!(other.ask(&mut place, call, &[]).0, Err(why), "{call:?}");
    }
    // A port of the stack itself, as IKE's behind a NAT, is in use too.
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; 8]);
    let mut own = udp::Socket::new(buffer(), buffer());
    own.bind(4_500).unwrap();
    place.sockets.add(own);
    assert_eq!(other.ask(&mut place, bind(4_500), &[]).0, Err(Error::PortInUse));
    // As long as a connection has the port, nobody else listens there.
    let out = other.connect(&mut place, SocketAddr::new(V4, 80));
    assert_eq!(other.ask(&mut place, listen(80), &[]).0, Err(Error::PortInUse));
    place.end(&one);
    place.rounds(3);
    assert_eq!(other.receive(&mut place, out).0, Err(Error::Reset));
    other.listen(&mut place, 80, 1);
}

#[test]
fn a_handle_of_another_application_means_nothing() {
    let mut place = Place::new(limits());
    let (mut one, mut other) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let listener = one.listen(&mut place, 7_000, 1);
    let out = one.connect(&mut place, SocketAddr::new(V4, 7_000));
    let into = one.accept(&mut place, listener);
    let datagrams = one.open(&mut place, Call::Bind { local: None, port: 5_000 });
    assert!(one.ask(&mut place, Call::Send { socket: out }, b"for one alone").0.is_ok());
    let most = 100;
    for socket in [listener, out, into, datagrams, Handle(77), Handle(u32::MAX)] {
        let interest = casemate_rings::Readiness { read: true, write: true };
        for call in [
            Call::Accept { socket, patient: true },
            Call::Receive { socket, most, patient: true },
            Call::Send { socket },
            Call::SendTo { socket, to: SocketAddr::new(V4, 5_000) },
            Call::Finish { socket },
            Call::Poll { socket, interest, patient: true },
            Call::Close { socket },
        ] {
            assert_eq!(other.ask(&mut place, call, b"intruder"), (Err(Error::NoSocket), vec![]), "{call:?}");
        }
    }
    assert_eq!(one.receive(&mut place, into).1, b"for one alone");
}

#[test]
fn wrong_kinds_are_told() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let listener = one.listen(&mut place, 7_000, 1);
    let datagrams = one.open(&mut place, Call::Bind { local: None, port: 0 });
    let to = SocketAddr::new(V4, 7_000);
    for call in [
        Call::Accept { socket: datagrams, patient: true },
        Call::Send { socket: datagrams },
        Call::Send { socket: listener },
        Call::SendTo { socket: listener, to },
        Call::Receive { socket: listener, most: 9, patient: true },
        Call::Finish { socket: datagrams },
    ] {
        assert_eq!(one.ask(&mut place, call, b"x").0, Err(Error::WrongKind), "{call:?}");
    }
}

#[test]
fn everybody_has_a_turn() {
    let mut place = Place::new(Limits { turn: 2, ..limits() });
    let (mut busy, mut modest) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let socket = Handle(9);
    let calls: Vec<_> = (0..11).map(|_| busy.begin(Call::Close { socket }, &[])).collect();
    let tag = modest.begin(Call::Close { socket }, &[]);
    assert!(place.round(), "there is more to do");
    assert_eq!(modest.take().map(|(answered, _)| answered), Some(tag));
    let answered: Vec<_> = std::iter::from_fn(|| busy.take()).map(|(answered, _)| answered).collect();
    assert_eq!(answered, calls[..2], "two a turn");
    place.rounds(6);
    assert_eq!(std::iter::from_fn(|| busy.take()).count(), 9);
    assert!(!place.round());
}
