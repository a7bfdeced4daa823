//! Hostile messages of additional key exchanges (RFC 9242, RFC 9370): public values that are truncated, too
//! long, of another method, swapped or repeated, and messages out of turn, in both roles.
//!
//! Each test checks the response and the fault, that no SPI is leaked, and that an honest peer is served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod followup;
#[path = "../hostile/forge.rs"]
mod forge;
mod intermediate;
#[path = "../pair/mod.rs"]
mod pair;
mod values;

use casemate_crypto::KexMethod;
use casemate_ike::config::{AdditionalKex, AdditionalKexes, Connection, KexRound};
use casemate_ike::{IkeSettings, StateFault};
use pair::{IkePeer, Pair, connection};
use std::sync::Arc;

/// Two rounds with ML-KEM. Their messages have different lengths.
const ROUNDS: [(u8, KexMethod); 2] = [(1, KexMethod::MlKem512), (3, KexMethod::MlKem768)];

fn rounds() -> AdditionalKexes {
    let kex = |method| AdditionalKex { methods: vec![method], optional: false };
    ROUNDS.into_iter().map(|(round, method)| (KexRound::new(round).unwrap(), kex(method))).collect()
}

fn with_rounds(mut connection: Connection) -> Connection {
    for proposal in &mut connection.proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], rounds());
    }
    for proposal in &mut Arc::make_mut(&mut connection.children[0]).proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], rounds());
    }
    connection
}

/// Two hosts that require the rounds. Their messages are not fragmented.
fn pair() -> Pair {
    let settings = IkeSettings { max_fragment_bytes: 9_000, ..IkeSettings::SERVER };
    let mut pair = Pair::with_defaults();
    pair.left = IkePeer::with(settings, pair::LEFT, 1, with_rounds(connection("left", "right")));
    pair.right = IkePeer::with(settings, pair::RIGHT, 2, with_rounds(connection("right", "left")));
    for side in [&mut pair.left, &mut pair.right] {
        side.ike.report_keys(true);
    }
    pair
}

/// Checks that the left side establishes an IKE SA with the right side, whatever happened before.
fn check_honest(pair: &mut Pair, what: &str) {
    let connection = with_rounds(connection("left", "right"));
    pair.left = IkePeer::new(pair::LEFT, 77, connection);
    pair.left.ike.report_keys(true);
    pair.left.initiate(pair.now);
    pair.run();
    assert_eq!(pair.left.children().len(), 1, "{what}: {:?}", pair.left.events);
    assert!(pair.right.leaked_spis().is_empty(), "{what}");
}

fn faults(side: &IkePeer, fault: StateFault) -> u64 {
    side.ike.faults().state(fault)
}
