//! Peers that say nothing, or nothing any more.

use crate::heap;
use crate::host::{Speaker, Wanted, talk};
use casemate_lwip::*;

/// Tries a peer that does not answer. Says how many messages that took.
fn try_in_vain(a: &mut Speaker) -> usize {
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
fn a_peer_that_never_answers_is_given_up() {
    let mut a = Speaker::new(1);
    assert_eq!(a.add(&Wanted::shared()), 0);
    let begin = a.now;
    assert_eq!(try_in_vain(&mut a), 7, "the request, and six repetitions");
    let seconds = (a.now - begin) / 1_000_000;
    assert!((120..=180).contains(&seconds), "{seconds}");
    assert_eq!(a.events, [(EVENT_IKE_DOWN, String::new(), "the peer does not answer".into())]);
    assert!(a.due().is_none());
    // It can be tried again, and leaves nothing behind.
    a.events.clear();
    let before = heap::in_use();
    assert_eq!(try_in_vain(&mut a), 7);
    a.events = vec![];
    assert!(heap::in_use() <= before, "{}", heap::in_use() - before);
}

#[test]
fn a_peer_that_died_is_found_out() {
    let (mut a, mut b) = (Speaker::new(1), Speaker::new(2));
    let wanted = Wanted { dpd_seconds: 10, ..Wanted::shared() };
    assert_eq!((a.add(&wanted), b.add(&wanted)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    talk(&mut a, &mut b);
    assert_eq!(a.children(), 1);
    drop(b);
    a.serve_until(|a| a.counts().ike_sas == 0);
    a.look();
    let ends: Vec<_> = a.events.iter().filter(|(.., why)| why == "the peer does not answer").collect();
    assert_eq!(ends.len(), 2, "the IKE SA and its Child SA: {:?}", a.events);
    assert_eq!(a.children(), 0);
}

#[test]
fn who_ends_it_tells_the_peer() {
    let (mut a, mut b) = (Speaker::new(1), Speaker::new(2));
    assert_eq!((a.add(&Wanted::shared()), b.add(&Wanted::shared())), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    talk(&mut a, &mut b);
    assert_eq!(b.remove(c"peer"), 0);
    talk(&mut a, &mut b);
    assert_eq!((a.counts().ike_sas, b.counts().ike_sas), (0, 0));
    assert!(a.events.iter().any(|(kind, _, why)| (*kind, &**why) == (EVENT_IKE_DOWN, "closed by the peer")));
    assert_eq!(b.initiate(c"peer"), Code::Absent as i32);
}
