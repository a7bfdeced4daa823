//! Requests to resume a session, with tickets that were changed on the way.

use super::check;
use super::forge::give_right;
use super::pair::{Pair, connection};
use crate::Target;
use crate::input::{Input, Script};
use casemate_ike::{Event, IkeState};
use casemate_wire::ike::{ExchangeType, Header};
use std::time::Duration;

pub(crate) const TARGET: Target = Target {
    name: "ike-resumption",
    about: "IKE responder: a changed request to resume a session gets at most one response, and \
            no IKE SA is established without the keys",
    max_len: 2_048,
    run,
    seeds,
    dictionary: &[],
};

/// Two hosts, and the request of the left one to resume their session.
fn resuming() -> (Pair, Vec<u8>) {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.resumption, right.resumption) = (true, true);
    left.dpd_delay = Some(Duration::from_secs(10));
    left.keying_tries = 1;
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.left.sent.clear();
    }
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap().message;
    assert_eq!(Header::parse(&request).unwrap().exchange, ExchangeType::IKE_SESSION_RESUME);
    (pair, request)
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (mut pair, request) = resuming();
    let established: Vec<_> = pair.right.ike.status().collect();
    for _ in 0..20 {
        if input.is_empty() {
            break;
        }
        let mut changed = request.clone();
        let (at, len) = (input.index(changed.len()), usize::from(input.u8() % 64));
        let with = input.take(len);
        changed.iter_mut().skip(at).zip(with).for_each(|(byte, with)| *byte ^= with);
        let answers = give_right(&mut pair, &changed);
        assert!(answers.len() <= 1, "{} responses", answers.len());
        assert!(answers.iter().all(|answer| answer.len() <= 1_000));
        check(&pair.right, false);
    }
    let now: Vec<_> = pair.right.ike.status().filter(|ike| ike.state != IkeState::Connecting).collect();
    assert_eq!(now, established);
    let ups = pair.right.events.iter().filter(|event| matches!(event, Event::IkeUp { .. })).count();
    assert_eq!(ups, established.len(), "an IKE SA was established without the key");
}

fn seeds() -> Vec<Vec<u8>> {
    let whole = Script::default().u16(0).u8(0);
    let ticket = Script::default().u16(90).u8(1).u8(1).u16(100).u8(8).bytes(&[1; 8]);
    let nonce = Script::default().u16(40).u8(1).u8(255);
    [whole, ticket, nonce].map(Script::finish).to_vec()
}
