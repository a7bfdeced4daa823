//! UDP.

use crate::harness::{Harness, V4, V6, limits, pattern};
use casemate_socketd::PortGrant;
use casemate_socketd_protocol::{Error, Request, Response};
use std::net::SocketAddr;

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
