//! TCP connections and UDP.

use crate::harness::{Harness, V4, V6, limits, pattern, transfer};
use casemate_socketd::{Limits, PortGrant};
use casemate_socketd_protocol::{Error, Readiness, Request, Response, RingSizes, SocketId};
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
        assert!(transfer(&mut harness, right.end(out), left.end(into), &data, |_| ()) == data);
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
fn a_request_is_cancelled_when_one_response_fits() {
    // A response takes 5 words: the ring has room for 12, and then for 4 words of another.
    let mut harness = Harness::new(Limits { rings: RingSizes::new(9, 6).unwrap(), ..limits() });
    let mut app = harness.admit(PortGrant::none());
    let socket = app.listen(&mut harness, 7_000, 1);
    let accept = app.begin(Request::Accept { socket, wait: true }, &[]);
    let unread: Vec<_> = (0..11).map(|_| app.begin(Request::Close { socket: SocketId(9) }, &[])).collect();
    harness.rounds(5);
    let cancel = app.begin(Request::Cancel { request: accept }, &[]);
    harness.rounds(5);
    let mut received = Vec::new();
    while let Some((id, (response, _))) = app.take() {
        received.push((id, response));
        harness.round();
    }
    let mut expected: Vec<_> = unread.into_iter().map(|id| (id, Err(Error::NoSocket))).collect();
    expected.extend([(accept, Err(Error::Cancelled)), (cancel, Ok(Response::Done))]);
    assert_eq!(received, expected);
    assert_eq!(harness.notices, [], "the session has not ended");
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
    assert!(transfer(&mut harness, right.end(out), left.end(into), &data, |_| ()) == data);
}

#[test]
fn datagrams_keep_their_length_and_their_sender() {
    for addr in [V4, V6] {
        let mut harness = Harness::new(limits());
        let (mut left, mut right) = (harness.admit(PortGrant::none()), harness.admit(PortGrant::none()));
        let well_known = left.open(&mut harness, Request::Bind { local: Some(addr), port: 5_000 });
        let Ok(Response::Opened { socket, local }) =
            right.request(&mut harness, Request::Bind { local: None, port: 0 }, &[]).0
        else {
            panic!("no port")
        };
        assert!(local.port() >= 49_152);
        for len in [0, 1, 8, 999] {
            let data = pattern(len, len as u64);
            let to = SocketAddr::new(addr, 5_000);
            let sent = right.request(&mut harness, Request::SendTo { socket, to }, &data).0;
            assert_eq!(sent, Ok(Response::Sent { bytes: len as u32 }));
            let (answer, received) = left.receive(&mut harness, well_known);
            assert_eq!(answer, Ok(Response::Received { from: Some(SocketAddr::new(addr, local.port())) }));
            assert_eq!(received, data);
        }
        // A datagram is truncated to the requested length.
        let to = SocketAddr::new(addr, 5_000);
        assert!(right.request(&mut harness, Request::SendTo { socket, to }, &pattern(100, 3)).0.is_ok());
        let receive = Request::Receive { socket: well_known, max_len: 10, wait: true };
        assert_eq!(left.request(&mut harness, receive, &[]).1, pattern(100, 3)[..10]);
    }
}

#[test]
fn datagrams_without_a_valid_destination_are_refused() {
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let socket = app.open(&mut harness, Request::Bind { local: Some(V4), port: 5_000 });
    let mut to = |to: &str, len: usize| {
        let call = Request::SendTo { socket, to: to.parse().unwrap() };
        app.request(&mut harness, call, &vec![0; len]).0
    };
    // A destination of the other IP version: smoltcp itself would panic.
    assert_eq!(to("[fd00::2]:9", 3), Err(Error::NoRoute));
    assert_eq!(to("0.0.0.0:9", 3), Err(Error::NoRoute));
    assert_eq!(to("10.0.0.2:0", 3), Err(Error::NoRoute));
    let taken = place_capacity(&mut to);
    assert!((1..=4).contains(&taken), "{taken}");
    // The unspecified address, from a socket without a local address: smoltcp itself would panic for `::`.
    let mut harness = Harness::new(limits());
    let mut app = harness.admit(PortGrant::none());
    let socket = app.open(&mut harness, Request::Bind { local: None, port: 5_000 });
    for to in ["[::]:9", "0.0.0.0:9"] {
        let call = Request::SendTo { socket, to: to.parse().unwrap() };
        assert_eq!(app.request(&mut harness, call, &[0; 3]).0, Err(Error::NoRoute), "{to}");
    }
    // Longer than the socket buffer.
    let mut harness = Harness::new(casemate_socketd::Limits { buffer_bytes: 512, ..limits() });
    let mut app = harness.admit(PortGrant::none());
    let socket = app.open(&mut harness, Request::Bind { local: None, port: 0 });
    let call = Request::SendTo { socket, to: "10.0.0.2:9".parse().unwrap() };
    assert_eq!(app.request(&mut harness, call, &[0; 513]).0, Err(Error::TooLong));
}

/// Returns how many of four datagrams to a reachable destination are accepted. They are sent at once, so
/// the buffer does not fill up.
fn place_capacity(to: &mut impl FnMut(&str, usize) -> Result<Response, Error>) -> usize {
    (0..4).filter(|_| to("10.0.0.2:9", 900).is_ok()).count()
}

#[test]
fn a_datagram_waits_until_the_ring_has_room_for_all_of_it() {
    let sizes = casemate_socketd_protocol::RingSizes::new(9, 7).unwrap();
    let mut harness = Harness::new(casemate_socketd::Limits { rings: sizes, ..limits() });
    let mut app = harness.admit(PortGrant::none());
    let socket = app.open(&mut harness, Request::Bind { local: Some(V4), port: 5_000 });
    for n in 0..4u8 {
        let to = SocketAddr::new(V4, 5_000);
        assert!(app.request(&mut harness, Request::SendTo { socket, to }, &[n; 400]).0.is_ok());
    }
    // The response ring holds 1,024 bytes: two of these datagrams, and then it is full until the
    // application reads.
    let receive = Request::Receive { socket, max_len: 1_000, wait: true };
    let tags: Vec<_> = (0..4).map(|_| app.begin(receive, &[])).collect();
    harness.rounds(5);
    let mut received = Vec::new();
    for _ in 0..20 {
        match app.take() {
            Some((tag, (answer, data))) => {
                assert!(matches!(answer, Ok(Response::Received { from: Some(_) })), "{answer:?}");
                assert_eq!(tag, tags[received.len()]);
                received.push(data);
            }
            None => {
                assert!(!received.is_empty());
                harness.rounds(1);
            }
        }
    }
    assert_eq!(received.len(), 4);
    assert!(received.iter().zip(0..).all(|(data, n)| *data == [n; 400]));
}
