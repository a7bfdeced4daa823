//! Explanations of failed negotiations and reports of retransmissions, between complete engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{AeadAlg, AesBits, KexMethod, PrfAlg};
use casemate_ike::config::{
    AdditionalKexes, ChildAlgorithms, ChildConfig, ChildProposal, Connection, EsnPolicy, EspCombined,
    IdPattern, Identity, IkeEncryption, IkeProposal,
};
use casemate_ike::diagnosis::{
    ChildMismatch, Explanation, MAX_CONSIDERED, MAX_PER_SECOND, Mismatch, PeerProof, Proposal, closest,
};
use casemate_ike::{Event, StateFault};
use casemate_sa::{AddrRange, Instant};
use casemate_wire::ike::{AuthMethod, ExchangeType, TransformType};
use pair::{IkePeer, Pair, connection, deliver, key};
use std::sync::Arc;
use std::time::Duration;

fn named(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

/// A proposal with AES-GCM and this key exchange method.
fn ike_proposal(bits: AesBits, kex: KexMethod) -> Vec<IkeProposal> {
    let encryption = IkeEncryption::Combined(vec![AeadAlg::AesGcm { bits, icv: 16 }]);
    vec![IkeProposal {
        encryption,
        prfs: vec![PrfAlg::HmacSha256],
        kex: vec![kex],
        additional: AdditionalKexes::new(),
    }]
}

/// Two hosts that explain faults, after an attempt of the left one.
fn attempt(left: Connection, right: Connection, change: impl FnOnce(&mut Pair)) -> Pair {
    let mut pair = Pair::new(left, right);
    pair.left.ike.explain_faults();
    pair.right.ike.explain_faults();
    change(&mut pair);
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

fn with_defaults() -> (Connection, Connection) {
    (connection("left", "right"), connection("right", "left"))
}

/// The last explained fault of a host, and the name of its connection.
fn explained(peer: &IkePeer) -> (StateFault, Option<String>, Explanation) {
    let found = peer.events.iter().rev().find_map(|event| match event {
        Event::Fault {
            fault: casemate_ike::PeerFault::State(fault),
            connection,
            explanation: Some(why),
            ..
        } => Some((*fault, connection.as_ref().map(|connection| connection.name.clone()), (**why).clone())),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no explanation: {:?}", peer.events))
}

#[test]
fn proposals_of_both_sides_and_their_difference() {
    let (mut left, mut right) = with_defaults();
    left.proposals = ike_proposal(AesBits::B256, KexMethod::X25519);
    right.proposals = ike_proposal(AesBits::B256, KexMethod::EcpP256);
    let pair = attempt(left.clone(), right, |_| {});
    let (fault, name, explanation) = explained(&pair.right);
    let Explanation::FirstRequest { offered, considered } = explanation else { panic!("{explanation:?}") };
    assert_eq!((fault, name), (StateFault::NoProposalChosen, None));
    assert_eq!(offered, [Proposal::from(&left.proposals[0])]);
    assert_eq!(considered.len(), 1);
    assert_eq!((&*considered[0].connection.name, considered[0].mismatch), ("right", Mismatch::Proposals));
    let configured = [Proposal::from(&considered[0].connection.proposals[0])];
    assert_eq!(closest(&offered, &configured).unwrap().kinds, [TransformType::KE]);
}

#[test]
fn addresses_that_no_connection_has() {
    let (left, mut right) = with_defaults();
    right.remote_addrs =
        vec![casemate_ike::config::AddrPattern::Range(AddrRange::single("192.0.2.77".parse().unwrap()))];
    let pair = attempt(left, right, |_| {});
    let (fault, _, explanation) = explained(&pair.right);
    let Explanation::FirstRequest { considered, .. } = explanation else { panic!("{explanation:?}") };
    assert_eq!((fault, considered[0].mismatch), (StateFault::NoConnection, Mismatch::RemoteAddress));
}

#[test]
fn identities_of_both_sides() {
    let (mut left, right) = with_defaults();
    left.local.id = Some(named("stranger"));
    let pair = attempt(left, right.clone(), |_| {});
    let (fault, name, explanation) = explained(&pair.right);
    let Explanation::Initiator { proof, asked, considered } = explanation else { panic!("{explanation:?}") };
    assert_eq!((fault, name.as_deref()), (StateFault::NoPeer, Some("right")));
    let method = Some(AuthMethod::SHARED_KEY);
    let expected = PeerProof {
        id: Some(named("stranger")),
        method,
        certificates: 0,
        #[cfg(feature = "ppk")]
        ppk_id: None,
    };
    assert_eq!(proof, expected);
    assert_eq!((asked, considered[0].mismatch), (Some(named("right")), Mismatch::RemoteIdentity));

    let (mut left, _) = with_defaults();
    left.remote.id = IdPattern::Exact(named("another"));
    let pair = attempt(left, right.clone(), |_| {});
    let (_, _, explanation) = explained(&pair.right);
    let Explanation::Initiator { asked, considered, .. } = explanation else { panic!("{explanation:?}") };
    assert_eq!((asked, considered[0].mismatch), (Some(named("another")), Mismatch::LocalIdentity));

    // The responder has no configured identity, so its address is not the one that the initiator expects.
    let (mut left, mut right) = with_defaults();
    left.remote.id = IdPattern::Suffix(casemate_ike::config::IdentityKind::Fqdn, ".test".into());
    right.local.id = Some(named("right"));
    let pair = attempt(left, right, |_| {});
    let (fault, name, explanation) = explained(&pair.left);
    let Explanation::Responder { proof, own } = explanation else { panic!("{explanation:?}") };
    assert_eq!((fault, name.as_deref()), (StateFault::WrongIdentity, Some("left")));
    assert_eq!((proof.id, own), (Some(named("right")), named("left")));
}

#[test]
fn a_wrong_key_is_attributed_to_the_connection_that_was_tried() {
    let (left, right) = with_defaults();
    let pair = attempt(left, right, |pair| pair.right.keys = Box::new(key(b"another key")));
    let (fault, _, explanation) = explained(&pair.right);
    let Explanation::Initiator { considered, .. } = explanation else { panic!("{explanation:?}") };
    assert_eq!(fault, StateFault::AuthMismatch);
    assert_eq!(considered[0].mismatch, Mismatch::Proof(StateFault::AuthMismatch));
}

/// The left connection with one child that differs in a field.
fn with_child(change: impl FnOnce(&mut ChildConfig)) -> Connection {
    let mut left = connection("left", "right");
    change(Arc::make_mut(&mut left.children[0]));
    left
}

#[test]
fn traffic_selectors_of_both_sides() {
    let other = AddrRange::prefix("10.77.0.0".parse().unwrap(), 16).unwrap();
    let left = with_child(|child| child.remote_ts[0].addrs = Some(other));
    let pair = attempt(left, connection("right", "left"), |_| {});
    let (fault, name, explanation) = explained(&pair.right);
    let Explanation::ChildRequest { traffic, considered, .. } = explanation else {
        panic!("{explanation:?}")
    };
    assert_eq!((fault, name.as_deref()), (StateFault::TsUnacceptable, Some("right")));
    assert_eq!(traffic.local[0].addrs, other);
    assert_eq!((considered.len(), considered[0].mismatch), (1, ChildMismatch::LocalTraffic));
    assert_eq!(considered[0].traffic.local[0].addrs.to_string(), "10.2.0.0/16");
}

#[test]
fn esp_proposals_of_both_sides() {
    let gmac = ChildAlgorithms::EspCombined(vec![EspCombined::Gmac(AesBits::B256)]);
    let proposal = ChildProposal {
        algorithms: gmac,
        kex: vec![],
        additional: AdditionalKexes::new(),
        esn: EsnPolicy::Disabled,
    };
    let left = with_child(|child| child.proposals = vec![proposal.clone()]);
    let pair = attempt(left, connection("right", "left"), |_| {});
    let (fault, _, explanation) = explained(&pair.right);
    let Explanation::ChildRequest { offered, considered, .. } = explanation else {
        panic!("{explanation:?}")
    };
    assert_eq!(fault, StateFault::NoProposalChosen);
    assert_eq!(offered, [Proposal::of_child(&proposal, false)]);
    assert_eq!(considered[0].mismatch, ChildMismatch::Proposals);
}

#[test]
fn nothing_is_explained_unless_requested() {
    let (mut left, right) = with_defaults();
    left.local.id = Some(named("stranger"));
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    let is_explained = |event: &Event| matches!(event, Event::Fault { explanation: Some(_), .. });
    assert!(!pair.right.events.iter().any(is_explained));
    assert!(pair.right.events.iter().any(|event| matches!(event, Event::Fault { .. })));
}

/// Many connections, and many requests of unauthenticated peers, have bounded explanations.
#[test]
fn explanations_are_bounded_in_size_and_number() {
    let (mut left, right) = with_defaults();
    left.proposals = ike_proposal(AesBits::B192, KexMethod::X25519);
    let mut pair = Pair::new(left, right.clone());
    let many = (0..200).map(|number| {
        let mut connection = right.clone();
        connection.name = format!("right{number}");
        connection.proposals = ike_proposal(AesBits::B256, KexMethod::X25519);
        Arc::new(connection)
    });
    pair.right.ike.configure(many.collect(), &[]);
    pair.right.ike.explain_faults();
    pair.left.initiate(pair.now);
    let request = pair.left.sent.pop_front().unwrap();
    for number in 0..100u8 {
        let mut request = request.clone();
        // Another SPI of the initiator.
        request.message[0] = number + 1;
        deliver(&mut pair.right, request, pair.now);
    }
    let explanations: Vec<&Explanation> = pair
        .right
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Fault { explanation, .. } => explanation.as_deref(),
            _ => None,
        })
        .collect();
    assert_eq!((pair.right.events.len(), explanations.len()), (100, MAX_PER_SECOND as usize));
    for explanation in explanations {
        let Explanation::FirstRequest { considered, .. } = explanation else { panic!("{explanation:?}") };
        assert_eq!(considered.len(), MAX_CONSIDERED);
    }
}

#[test]
fn each_retransmission_is_reported_with_its_number() {
    let mut pair = Pair::with_defaults();
    pair.left.initiate(pair.now);
    pair.left.sent.clear();
    for _ in 0..200 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.left.sent.clear();
    }
    let seen: Vec<(ExchangeType, u32, u32, Duration)> = pair
        .left
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Retransmitted { exchange, attempt, tries, wait, connection, path, .. } => {
                assert_eq!((&*connection.name, path.remote.port()), ("left", 500));
                Some((*exchange, *attempt, *tries, *wait))
            }
            _ => None,
        })
        .collect();
    let expected = [2, 4, 8, 16, 32, 60].into_iter().zip(1..);
    let expected =
        expected.map(|(wait, attempt)| (ExchangeType::IKE_SA_INIT, attempt, 6, Duration::from_secs(wait)));
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[test]
fn a_retransmission_of_ike_auth_is_reported() {
    let mut pair = Pair::with_defaults();
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.left.sent.clear();
    let later: Instant = pair.now.after(Duration::from_secs(1));
    pair.left.handle_timeouts(later);
    let is_auth = |event: &Event| {
        matches!(
            event,
            Event::Retransmitted { exchange: ExchangeType::IKE_AUTH, message_id: 1, attempt: 1, .. }
        )
    };
    assert!(pair.left.events.iter().any(is_auth), "{:?}", pair.left.events);
}
