//! A peer that refuses every rekeying is asked again, with increasing pauses (RFC 7296 section 2.8).

use crate::forge::{Attack, Raw};
use crate::pair::{Pair, Side, connection};
use casemate_ike::DownReason;
use casemate_ike::config::{Connection, Lifespan};
use casemate_wire::ike::{ExchangeType, Header, NotifyType};
use std::sync::Arc;
use std::time::Duration;

const REKEYED: Lifespan = Lifespan {
    rekey: Some(Duration::from_secs(100)),
    jitter: Duration::ZERO,
    hard: Some(Duration::from_secs(400)),
};

/// Seconds at which the right side requests a rekeying within `time`. Each request is rejected with
/// `refusal`.
fn asked_at(right: Connection, refusal: &Raw, time: u64) -> (Vec<u64>, Side) {
    let mut attack = Attack::on(Pair::new(connection("left", "right"), right));
    let mut asked = Vec::new();
    for second in 1..time {
        attack.pair.now = attack.pair.now.after(Duration::from_secs(1));
        attack.pair.right.handle_timeouts(attack.pair.now);
        let sent: Vec<_> = attack.pair.right.sent.drain(..).collect();
        for request in sent {
            let header = Header::parse(&request.message).unwrap();
            assert!(!header.flags.response && header.exchange == ExchangeType::CREATE_CHILD_SA);
            asked.push(second);
            let header = attack.forger.header(header.exchange, header.message_id, true);
            let answer = attack.forger.seal(&header, core::slice::from_ref(refusal));
            assert!(attack.give(&answer).is_empty());
        }
    }
    (asked, attack.pair.right)
}

#[test]
fn a_refused_rekeying_is_requested_again() {
    for kind in [NotifyType::NO_ADDITIONAL_SAS, NotifyType::NO_PROPOSAL_CHOSEN, NotifyType::TEMPORARY_FAILURE]
    {
        for of_child in [true, false] {
            let mut right = connection("right", "left");
            match of_child {
                true => Arc::make_mut(&mut right.children[0]).lifespan = REKEYED,
                false => right.lifespan = REKEYED,
            }
            let (asked, right) = asked_at(right, &Raw::notify(kind, &[]), 399);
            assert_eq!(asked[0], 100);
            // Pauses of 2, 4, 8, 16, 32 and 64 seconds, and up to twice as long.
            assert!(asked.len() >= 6, "{kind} {of_child}: {asked:?}");
            let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(pauses.iter().all(|pause| (2..=129).contains(pause)), "{pauses:?}");
            if kind != NotifyType::TEMPORARY_FAILURE {
                assert!(asked.len() <= 9 && pauses[4] >= 32, "{pauses:?}");
            }
            assert_eq!((right.down_reasons(), right.children().len()), (Vec::<DownReason>::new(), 1));
            assert!(right.leaked_spis().is_empty());
        }
    }
}
