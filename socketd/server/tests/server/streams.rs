//! TCP connections.

use crate::harness::{Harness, V4, V6, limits, pattern, transfer};
use casemate_socketd::PortGrant;
use casemate_socketd_protocol::{Error, Readiness, Request, Response};
use smoltcp::time::Duration;
use std::net::{IpAddr, SocketAddr};

#[test]
fn two_applications_exchange_data_over_the_stack() {
    for addr in [V4, V6] {
        let mut harness = Harness::new(limits());
        let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
        let listener = left.listen(&mut harness, 7_000, 2);
        let out = right.connect(&mut harness, SocketAddr::new(addr, 7_000));
        let accepted = left.request(&mut harness, Request::Accept { socket: listener, wait: true }, &[]).0;
        let Ok(Response::Accepted { socket: into, peer }) = accepted else { panic!("{accepted:?}") };
        assert!(peer.ip() == addr && peer.port() >= 49_152);
        let data = pattern(50_000, 1);
        assert!(transfer(&mut harness, (&mut right, out), (&mut left, into), &data, |_| ()) == data);
        // The other direction is still open.
        assert_eq!(
            left.request(&mut harness, Request::Send { socket: into }, b"thanks").0,
            Ok(Response::Sent { bytes: 6 })
        );
        assert_eq!(
            right.receive(&mut harness, out),
            (Ok(Response::Received { from: None }), b"thanks".to_vec())
        );
        assert_eq!(
            right.request(&mut harness, Request::Send { socket: out }, b"x").0,
            Err(Error::WriteShutDown)
        );
        for (is_left, socket) in [(true, into), (false, out), (true, listener)] {
            let application = if is_left { &mut left } else { &mut right };
            assert_eq!(
                application.request(&mut harness, Request::Close { socket }, &[]).0,
                Ok(Response::Done)
            );
            assert_eq!(
                application.request(&mut harness, Request::Close { socket }, &[]).0,
                Err(Error::NoSocket)
            );
        }
        // After FIN and TIME-WAIT no socket is left.
        harness.now += Duration::from_secs(20);
        harness.rounds(20);
        assert_eq!(harness.sockets.iter().count(), 0);
        assert_eq!(harness.server.due(), None);
    }
}

#[test]
fn requests_without_wait_do_not_block() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let listener = app.listen(&mut harness, 7_000, 1);
    let accept = Request::Accept { socket: listener, wait: false };
    assert_eq!(app.request(&mut harness, accept, &[]).0, Err(Error::WouldBlock));
    let out = app.connect(&mut harness, SocketAddr::new(V4, 7_000));
    let receive = Request::Receive { socket: out, max_len: 10, wait: false };
    assert_eq!(app.request(&mut harness, receive, &[]).0, Err(Error::WouldBlock));
    let interest = Readiness { read: true, write: false };
    assert_eq!(
        app.request(&mut harness, Request::Poll { socket: out, interest, wait: false }, &[]).0,
        Err(Error::WouldBlock)
    );
    // The peer's buffer is full: nothing more is accepted, and nothing is lost.
    let mut sent = 0;
    for _ in 0..50 {
        match app.request(&mut harness, Request::Send { socket: out }, &[7; 1_500]).0 {
            Ok(Response::Sent { bytes }) => sent += bytes,
            Err(Error::WouldBlock) => harness.rounds(20),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sent, 2 * 4_096, "the buffers of both ends");
}

#[test]
fn a_waiting_request_can_be_cancelled() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let socket = app.listen(&mut harness, 7_000, 1);
    let accept = app.begin(Request::Accept { socket, wait: true }, &[]);
    harness.rounds(5);
    assert_eq!(app.take(), None);
    let cancel = app.begin(Request::Cancel { request: accept }, &[]);
    harness.rounds(1);
    assert_eq!(app.take(), Some((accept, (Err(Error::Cancelled), vec![]))));
    assert_eq!(app.take(), Some((cancel, (Ok(Response::Done), vec![]))));
    // The socket is closed while a request waits for it.
    let accept = app.begin(Request::Accept { socket, wait: true }, &[]);
    let close = app.begin(Request::Close { socket }, &[]);
    harness.rounds(2);
    assert_eq!(app.take().map(|(tag, _)| tag), Some(close));
    assert_eq!(app.take(), Some((accept, (Err(Error::NoSocket), vec![]))));
}

#[test]
fn failed_connections_return_the_expected_errors() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let interest = Readiness { read: false, write: true };
    // No socket listens on the port.
    let socket = app.open(&mut harness, Request::Connect { remote: SocketAddr::new(V4, 9) });
    let poll = Request::Poll { socket, interest, wait: true };
    assert_eq!(app.request(&mut harness, poll, &[]).0, Err(Error::ConnectionRefused));
    // No host has the address: the connection times out.
    let unreachable: IpAddr = "10.0.0.77".parse().unwrap();
    let socket = app.open(&mut harness, Request::Connect { remote: SocketAddr::new(unreachable, 9) });
    let tag = app.begin(Request::Poll { socket, interest, wait: true }, &[]);
    let begin = harness.now;
    let answered = (0..2_000).find_map(|_| {
        harness.now += Duration::from_millis(99);
        harness.round();
        app.take()
    });
    assert_eq!(answered, Some((tag, (Err(Error::ConnectionRefused), vec![]))));
    assert!((100..110).contains(&(harness.now - begin).secs()), "{}", harness.now - begin);
    // Destinations without a route.
    for (remote, expected) in
        [("0.0.0.0:9", Error::NoRoute), ("224.0.0.1:9", Error::NoRoute), ("10.0.0.2:0", Error::NoRoute)]
    {
        let done = app.request(&mut harness, Request::Connect { remote: remote.parse().unwrap() }, &[]).0;
        assert_eq!(done, Err(expected), "{remote}");
    }
}

#[test]
fn a_reset_connection_returns_an_error() {
    let mut harness = Harness::new(limits());
    let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let listener = left.listen(&mut harness, 7_000, 1);
    let out = right.connect(&mut harness, SocketAddr::new(V4, 7_000));
    left.accept(&mut harness, listener);
    harness.end(&left);
    harness.rounds(3);
    assert_eq!(right.receive(&mut harness, out).0, Err(Error::ConnectionReset));
    assert_eq!(
        right.request(&mut harness, Request::Send { socket: out }, b"x").0,
        Err(Error::ConnectionReset)
    );
    // The port is free for another application.
    right.listen(&mut harness, 7_000, 1);
}

#[test]
fn a_backlog_survives_connections_that_end_early() {
    let mut harness = Harness::new(limits());
    let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
    let listener = left.listen(&mut harness, 7_000, 1);
    for _ in 0..5 {
        right.connect(&mut harness, SocketAddr::new(V4, 7_000));
        harness.end(&right);
        harness.rounds(3);
        right = harness.admit(PortGrant::none());
        // The connection was established and reset; `accept` skips it.
        let accept = Request::Accept { socket: listener, wait: false };
        assert_eq!(left.request(&mut harness, accept, &[]).0, Err(Error::WouldBlock));
    }
    let out = right.connect(&mut harness, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut harness, listener);
    let data = pattern(5_000, 9);
    assert!(transfer(&mut harness, (&mut right, out), (&mut left, into), &data, |_| ()) == data);
}
