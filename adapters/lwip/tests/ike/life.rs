//! Silent and dead peers.

use crate::host::{IkeHost, TestConnection, exchange_messages};
use casemate_lwip::*;
use casemate_test_support::allocator::bytes_in_use;

/// Initiates a connection to a silent peer. Returns the number of messages sent.
fn try_in_vain(a: &mut IkeHost) -> usize {
    assert_eq!(a.initiate(c"peer/all"), 0);
    let mut sent = 0;
    while a.counts().ike_sas > 0 {
        while a.transmit().is_some() {
            sent += 1;
        }
        a.now = a.due().unwrap();
        a.serve();
    }
    a.look();
    sent
}

#[test]
fn a_silent_peer_is_given_up() {
    let mut a = IkeHost::new(1);
    assert_eq!(a.add(&TestConnection::shared()), 0);
    let begin = a.now;
    assert_eq!(try_in_vain(&mut a), 7, "the request and six retransmissions");
    let seconds = (a.now - begin) / 1_000_000;
    assert!((120..=180).contains(&seconds), "{seconds}");
    assert_eq!(a.events, [(EVENT_IKE_DOWN, String::new(), "the peer does not respond".into())]);
    assert!(a.due().is_none());
    // A second attempt is possible and leaks no memory.
    a.events.clear();
    let before = bytes_in_use();
    assert_eq!(try_in_vain(&mut a), 7);
    a.events = vec![];
    assert!(bytes_in_use() <= before, "{}", bytes_in_use() - before);
}

#[test]
fn a_dead_peer_is_detected() {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    let connection = TestConnection { dpd_seconds: 10, ..TestConnection::shared() };
    assert_eq!((a.add(&connection), b.add(&connection)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!(a.children(), 1);
    drop(b);
    a.serve_until(|a| a.counts().ike_sas == 0);
    a.look();
    let ends: Vec<_> = a.events.iter().filter(|(.., reason)| reason == "the peer does not respond").collect();
    assert_eq!(ends.len(), 2, "the IKE SA and its Child SA: {:?}", a.events);
    assert_eq!(a.children(), 0);
}

#[test]
fn removing_a_connection_notifies_the_peer() {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    assert_eq!((a.add(&TestConnection::shared()), b.add(&TestConnection::shared())), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!(b.remove(c"peer"), 0);
    exchange_messages(&mut a, &mut b);
    assert_eq!((a.counts().ike_sas, b.counts().ike_sas), (0, 0));
    assert!(
        a.events.iter().any(|(kind, _, reason)| (*kind, &**reason) == (EVENT_IKE_DOWN, "closed by the peer"))
    );
    assert_eq!(b.initiate(c"peer"), Status::Absent as i32);
}
