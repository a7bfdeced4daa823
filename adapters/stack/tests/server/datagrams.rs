//! UDP.

use crate::place::{Place, V4, V6, limits, pattern};
use casemate_rings::{Answer, Call, Error};
use casemate_stack::Grant;
use std::net::SocketAddr;

#[test]
fn datagrams_keep_their_length_and_their_sender() {
    for addr in [V4, V6] {
        let mut place = Place::new(limits());
        let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
        let well_known = left.open(&mut place, Call::Bind { local: Some(addr), port: 5_000 });
        let Ok(Answer::Opened { socket, local }) =
            right.ask(&mut place, Call::Bind { local: None, port: 0 }, &[]).0
        else {
            panic!("no port")
        };
        assert!(local.port() >= 49_152);
        for len in [0, 1, 8, 999] {
            let data = pattern(len, len as u64);
            let to = SocketAddr::new(addr, 5_000);
            let sent = right.ask(&mut place, Call::SendTo { socket, to }, &data).0;
            assert_eq!(sent, Ok(Answer::Sent { bytes: len as u32 }));
            let (answer, received) = left.receive(&mut place, well_known);
            assert_eq!(answer, Ok(Answer::Received { from: Some(SocketAddr::new(addr, local.port())) }));
            assert_eq!(received, data);
        }
        // Cut to what is asked for.
        let to = SocketAddr::new(addr, 5_000);
        assert!(right.ask(&mut place, Call::SendTo { socket, to }, &pattern(100, 3)).0.is_ok());
        let receive = Call::Receive { socket: well_known, most: 10, patient: true };
        assert_eq!(left.ask(&mut place, receive, &[]).1, pattern(100, 3)[..10]);
    }
}

#[test]
fn datagrams_that_cannot_go_are_refused() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let socket = one.open(&mut place, Call::Bind { local: Some(V4), port: 5_000 });
    let mut to = |to: &str, len: usize| {
        let call = Call::SendTo { socket, to: to.parse().unwrap() };
        one.ask(&mut place, call, &vec![0; len]).0
    };
    // The other version: smoltcp itself would panic.
    assert_eq!(to("[fd00::2]:9", 3), Err(Error::NoRoute));
    assert_eq!(to("0.0.0.0:9", 3), Err(Error::NoRoute));
    assert_eq!(to("10.0.0.2:0", 3), Err(Error::NoRoute));
    let taken = place_capacity(&mut to);
    assert!((1..=4).contains(&taken), "{taken}");
    // More than a socket holds.
    let mut place = Place::new(casemate_stack::Limits { buffer: 512, ..limits() });
    let mut one = place.admit(Grant::none());
    let socket = one.open(&mut place, Call::Bind { local: None, port: 0 });
    let call = Call::SendTo { socket, to: "10.0.0.2:9".parse().unwrap() };
    assert_eq!(one.ask(&mut place, call, &[0; 513]).0, Err(Error::TooLong));
}

/// Datagrams to one that is there are sent at once, so that room never ends.
fn place_capacity(to: &mut impl FnMut(&str, usize) -> Result<Answer, Error>) -> usize {
    (0..4).filter(|_| to("10.0.0.2:9", 900).is_ok()).count()
}

#[test]
fn a_datagram_waits_until_all_of_it_finds_room() {
    let geometry = casemate_rings::Geometry::new(9, 7).unwrap();
    let mut place = Place::new(casemate_stack::Limits { geometry, ..limits() });
    let mut one = place.admit(Grant::none());
    let socket = one.open(&mut place, Call::Bind { local: Some(V4), port: 5_000 });
    for n in 0..4u8 {
        let to = SocketAddr::new(V4, 5_000);
        assert!(one.ask(&mut place, Call::SendTo { socket, to }, &[n; 400]).0.is_ok());
    }
    // The ring of answers holds 1,024 bytes: two of these, and then it is full until somebody reads.
    let receive = Call::Receive { socket, most: 1_000, patient: true };
    let tags: Vec<_> = (0..4).map(|_| one.begin(receive, &[])).collect();
    place.rounds(5);
    let mut received = Vec::new();
    for _ in 0..20 {
        match one.take() {
            Some((tag, (answer, data))) => {
                assert!(matches!(answer, Ok(Answer::Received { from: Some(_) })), "{answer:?}");
                assert_eq!(tag, tags[received.len()]);
                received.push(data);
            }
            None => {
                assert!(!received.is_empty());
                place.rounds(1);
            }
        }
    }
    assert_eq!(received.len(), 4);
    assert!(received.iter().zip(0..).all(|(data, n)| *data == [n; 400]));
}
