//! TCP.

use crate::place::{Place, V4, V6, limits, pattern, transfer};
use casemate_rings::{Answer, Call, Error, Readiness};
use casemate_stack::Grant;
use smoltcp::time::Duration;
use std::net::{IpAddr, SocketAddr};

#[test]
fn two_applications_talk_over_the_stack() {
    for addr in [V4, V6] {
        let mut place = Place::new(limits());
        let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
        let listener = left.listen(&mut place, 7_000, 2);
        let out = right.connect(&mut place, SocketAddr::new(addr, 7_000));
        let accepted = left.ask(&mut place, Call::Accept { socket: listener, patient: true }, &[]).0;
        let Ok(Answer::Accepted { socket: into, peer }) = accepted else { panic!("{accepted:?}") };
        assert!(peer.ip() == addr && peer.port() >= 49_152);
        let data = pattern(50_000, 1);
        assert!(transfer(&mut place, (&mut right, out), (&mut left, into), &data, |_| ()) == data);
        // The other direction is open still.
        assert_eq!(
            left.ask(&mut place, Call::Send { socket: into }, b"thanks").0,
            Ok(Answer::Sent { bytes: 6 })
        );
        assert_eq!(right.receive(&mut place, out), (Ok(Answer::Received { from: None }), b"thanks".to_vec()));
        assert_eq!(right.ask(&mut place, Call::Send { socket: out }, b"x").0, Err(Error::Finished));
        for (is_left, socket) in [(true, into), (false, out), (true, listener)] {
            let application = if is_left { &mut left } else { &mut right };
            assert_eq!(application.ask(&mut place, Call::Close { socket }, &[]).0, Ok(Answer::Done));
            assert_eq!(application.ask(&mut place, Call::Close { socket }, &[]).0, Err(Error::NoSocket));
        }
        // FIN is answered, TIME-WAIT passes: nothing is left.
        place.now += Duration::from_secs(20);
        place.rounds(20);
        assert_eq!(place.sockets.iter().count(), 0);
        assert_eq!(place.server.due(), None);
    }
}

#[test]
fn calls_without_patience_do_not_wait() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let listener = one.listen(&mut place, 7_000, 1);
    let accept = Call::Accept { socket: listener, patient: false };
    assert_eq!(one.ask(&mut place, accept, &[]).0, Err(Error::NotNow));
    let out = one.connect(&mut place, SocketAddr::new(V4, 7_000));
    let receive = Call::Receive { socket: out, most: 10, patient: false };
    assert_eq!(one.ask(&mut place, receive, &[]).0, Err(Error::NotNow));
    let interest = Readiness { read: true, write: false };
    assert_eq!(
        one.ask(&mut place, Call::Poll { socket: out, interest, patient: false }, &[]).0,
        Err(Error::NotNow)
    );
    // A full buffer at the other side: nothing more is taken, and nothing is lost.
    let mut sent = 0;
    for _ in 0..50 {
        match one.ask(&mut place, Call::Send { socket: out }, &[7; 1_500]).0 {
            Ok(Answer::Sent { bytes }) => sent += bytes,
            Err(Error::NotNow) => place.rounds(20),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sent, 2 * 4_096, "the buffers of both ends");
}

#[test]
fn a_call_that_waits_can_be_cancelled() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let socket = one.listen(&mut place, 7_000, 1);
    let accept = one.begin(Call::Accept { socket, patient: true }, &[]);
    place.rounds(5);
    assert_eq!(one.take(), None);
    let cancel = one.begin(Call::Cancel { call: accept }, &[]);
    place.rounds(1);
    assert_eq!(one.take(), Some((accept, (Err(Error::Cancelled), vec![]))));
    assert_eq!(one.take(), Some((cancel, (Ok(Answer::Done), vec![]))));
    // One that is closed under a call that waits.
    let accept = one.begin(Call::Accept { socket, patient: true }, &[]);
    let close = one.begin(Call::Close { socket }, &[]);
    place.rounds(2);
    assert_eq!(one.take().map(|(tag, _)| tag), Some(close));
    assert_eq!(one.take(), Some((accept, (Err(Error::NoSocket), vec![]))));
}

#[test]
fn connections_fail_as_they_should() {
    let mut place = Place::new(limits());
    let mut one = place.admit(Grant::none());
    let interest = Readiness { read: false, write: true };
    // Nobody listens there.
    let socket = one.open(&mut place, Call::Connect { remote: SocketAddr::new(V4, 9) });
    let poll = Call::Poll { socket, interest, patient: true };
    assert_eq!(one.ask(&mut place, poll, &[]).0, Err(Error::Refused));
    // Nobody is there: it takes its time, and ends.
    let nobody: IpAddr = "10.0.0.77".parse().unwrap();
    let socket = one.open(&mut place, Call::Connect { remote: SocketAddr::new(nobody, 9) });
    let tag = one.begin(Call::Poll { socket, interest, patient: true }, &[]);
    let begin = place.now;
    let answered = (0..2_000).find_map(|_| {
        place.now += Duration::from_millis(99);
        place.round();
        one.take()
    });
    assert_eq!(answered, Some((tag, (Err(Error::Refused), vec![]))));
    assert!((100..110).contains(&(place.now - begin).secs()), "{}", place.now - begin);
    // Where no packet can go.
    for (remote, why) in
        [("0.0.0.0:9", Error::NoRoute), ("224.0.0.1:9", Error::NoRoute), ("10.0.0.2:0", Error::NoRoute)]
    {
        let done = one.ask(&mut place, Call::Connect { remote: remote.parse().unwrap() }, &[]).0;
        assert_eq!(done, Err(why), "{remote}");
    }
}

#[test]
fn a_connection_that_is_broken_off_is_told() {
    let mut place = Place::new(limits());
    let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let listener = left.listen(&mut place, 7_000, 1);
    let out = right.connect(&mut place, SocketAddr::new(V4, 7_000));
    left.accept(&mut place, listener);
    place.end(&left);
    place.rounds(3);
    assert_eq!(right.receive(&mut place, out).0, Err(Error::Reset));
    assert_eq!(right.ask(&mut place, Call::Send { socket: out }, b"x").0, Err(Error::Reset));
    // Its port is free for another one.
    right.listen(&mut place, 7_000, 1);
}

#[test]
fn a_backlog_survives_those_who_do_not_wait() {
    let mut place = Place::new(limits());
    let (mut left, mut right) = (place.admit(Grant::none()), place.admit(Grant::none()));
    let listener = left.listen(&mut place, 7_000, 1);
    for _ in 0..5 {
        right.connect(&mut place, SocketAddr::new(V4, 7_000));
        place.end(&right);
        place.rounds(3);
        right = place.admit(Grant::none());
        // The connection has come and gone; whoever accepts finds the next.
        let accept = Call::Accept { socket: listener, patient: false };
        assert_eq!(left.ask(&mut place, accept, &[]).0, Err(Error::NotNow));
    }
    let out = right.connect(&mut place, SocketAddr::new(V4, 7_000));
    let into = left.accept(&mut place, listener);
    let data = pattern(5_000, 9);
    assert!(transfer(&mut place, (&mut right, out), (&mut left, into), &data, |_| ()) == data);
}
