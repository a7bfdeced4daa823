//! Post-quantum pre-shared keys (RFC 8784) between two engines: every case of table 1, with shared keys and
//! with EAP.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[path = "hostile/forge.rs"]
mod forge;
mod pair;
#[path = "pair/passwords.rs"]
mod passwords;

use casemate_crypto::SecretBytes;
use casemate_eap::Method;
use casemate_ike::config::{
    Connection, EapIdentity, FurtherRounds, IdPattern, LocalEap, LocalMethod, PpkId, PpkPolicy, RemoteMethod,
};
use casemate_ike::{DownReason, Event, InitiateError, SharedKeys, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use forge::{Attack, Raw, notifies};
use pair::{Pair, connection};
use passwords::{Passwords, by_eap};
use std::sync::Arc;
use std::time::Duration;

const ID: &[u8] = b"carol@ppk";
const PPK: &[u8] = b"the first post-quantum pre-shared key";
const OTHER: &[u8] = b"the other post-quantum pre-shared key";

/// A side: its PPKs, and the policy of its connection.
struct Side<'a> {
    ppks: &'a [(&'a [u8], &'a [u8])],
    id: Option<&'a [u8]>,
    required: bool,
}

impl Side<'_> {
    const OPTIONAL: Self = Self { ppks: &[(ID, PPK)], id: Some(ID), required: false };
    const REQUIRED: Self = Self { required: true, ..Self::OPTIONAL };
    const NONE: Self = Self { ppks: &[], id: None, required: false };

    fn policy(&self) -> PpkPolicy {
        PpkPolicy { id: self.id.map(PpkId::new), required: self.required }
    }

    fn keys(&self) -> SharedKeys {
        let all = pair::key(b"shared key of both hosts");
        self.ppks.iter().fold(all, |keys, (id, key)| keys.with_ppk(id, SecretBytes::new(key)))
    }
}

fn pair_of(left: &Side<'_>, right: &Side<'_>, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let (mut of_left, mut of_right) = (connection("left", "right"), connection("right", "left"));
    (of_left.ppk, of_right.ppk) = (left.policy(), right.policy());
    change(&mut of_left, &mut of_right);
    let mut pair = Pair::new(of_left, of_right);
    pair.left.keys = Box::new(left.keys());
    pair.right.keys = Box::new(right.keys());
    pair
}

fn run(mut pair: Pair) -> Pair {
    pair.left.initiate(pair.now);
    pair.run();
    for _ in 0..120 {
        pair.advance(Duration::from_secs(1));
    }
    pair
}

/// Whether the keys of the IKE SA depend on a PPK, if both sides have established it. Both must agree.
fn uses_ppk(pair: &Pair) -> Option<bool> {
    let used = |side: &pair::IkePeer| side.ike.status().next().map(|status| status.ppk_id.is_some());
    let (left, right) = (used(&pair.left), used(&pair.right));
    assert_eq!(left, right);
    if left.is_some() {
        pair.check_children(1);
    }
    left
}

fn faults(side: &pair::IkePeer) -> Vec<StateFault> {
    let of_event = |event: &Event| match event {
        Event::Fault { fault: casemate_ike::PeerFault::State(fault), .. } => Some(*fault),
        _ => None,
    };
    side.events.iter().filter_map(of_event).collect()
}

fn refused(fault: StateFault) -> DownReason {
    DownReason::Fault(fault.into())
}

const REFUSED: DownReason = DownReason::Refused(NotifyType::AUTHENTICATION_FAILED);

#[test]
fn both_sides_with_the_same_key_use_it() {
    let any = Side { id: None, ..Side::OPTIONAL };
    let suffix = Side { id: Some(b"*@ppk"), ..Side::OPTIONAL };
    for left in [Side::OPTIONAL, Side::REQUIRED] {
        for right in [&Side::OPTIONAL, &Side::REQUIRED, &any, &suffix] {
            assert_eq!(uses_ppk(&run(pair_of(&left, right, |_, _| {}))), Some(true));
        }
    }
}

#[test]
fn without_the_key_on_one_side_the_policies_decide() {
    let elsewhere = Side { ppks: &[(b"dave@ppk", PPK)], id: None, required: false };
    let not_allowed = Side { id: Some(b"*@example.org"), ..Side::OPTIONAL };
    let not_allowed_required = Side { required: true, id: Some(b"*@example.org"), ..Side::OPTIONAL };
    let without_id = Side { id: None, ..Side::OPTIONAL };
    let cases = [
        // USE_PPK, no PPK on the responder.
        (&Side::OPTIONAL, &Side::NONE, Ok(())),
        (&Side::REQUIRED, &Side::NONE, Err((refused(StateFault::PpkUnused), None))),
        // No USE_PPK.
        (&Side::NONE, &Side::OPTIONAL, Ok(())),
        (&without_id, &Side::OPTIONAL, Ok(())),
        (&Side::NONE, &Side::REQUIRED, Err((REFUSED, Some(StateFault::PpkUnused)))),
        // USE_PPK of both, but another PPK.
        (&Side::OPTIONAL, &elsewhere, Ok(())),
        (&Side::REQUIRED, &elsewhere, Err((REFUSED, Some(StateFault::PpkMissing)))),
        (&Side::OPTIONAL, &not_allowed, Ok(())),
        (&Side::REQUIRED, &not_allowed, Err((REFUSED, Some(StateFault::PpkMissing)))),
        (&Side::OPTIONAL, &not_allowed_required, Err((REFUSED, Some(StateFault::PpkMissing)))),
    ];
    for (number, (left, right, expected)) in cases.into_iter().enumerate() {
        let pair = run(pair_of(left, right, |_, _| {}));
        match expected {
            Ok(()) => assert_eq!(uses_ppk(&pair), Some(false), "case {number}"),
            Err((reason, fault)) => {
                assert_eq!(uses_ppk(&pair), None, "case {number}");
                assert_eq!(pair.left.down_reasons(), [reason], "case {number}");
                assert_eq!(faults(&pair.right), Vec::from_iter(fault), "case {number}");
            }
        }
    }
}

/// Whatever the order of the connections is, the one that accepts the PPK comes before one without it.
#[test]
fn a_connection_with_the_key_comes_before_one_without() {
    for is_first in [true, false] {
        let mut pair = pair_of(&Side::OPTIONAL, &Side::OPTIONAL, |_, _| {});
        let with = Connection { name: "with".into(), ..(*pair.right.ike.connections()[0]).clone() };
        let mut without = Connection { name: "without".into(), ..with.clone() };
        without.ppk.id = Some(PpkId::new(b"dave@ppk"));
        let both = if is_first { [with, without] } else { [without, with] };
        pair.right.ike.configure(both.map(Arc::new).to_vec(), &[]);
        assert_eq!(uses_ppk(&run(pair)), Some(true), "{is_first}");
    }
}

/// A peer that has not announced PPKs is refused before it is asked for its password.
#[test]
fn a_required_key_comes_before_the_password() {
    let mut pair = pair_of(&Side::NONE, &Side::REQUIRED, by_password);
    for (host, side) in [(&mut pair.left, Side::NONE), (&mut pair.right, Side::REQUIRED)] {
        let passwords = Passwords::new(&[("left", "open")]);
        host.keys = Box::new(Passwords { shared: side.keys(), ..*passwords });
    }
    pair.left.initiate(pair.now);
    let message = pair.left.sent.pop_front().unwrap();
    pair::deliver(&mut pair.right, message, pair.now);
    let message = pair.right.sent.pop_front().unwrap();
    pair::deliver(&mut pair.left, message, pair.now);
    let first = pair.left.sent.pop_front().unwrap();
    pair::deliver(&mut pair.right, first, pair.now);
    assert_eq!(faults(&pair.right), [StateFault::PpkUnused]);
}

#[test]
fn another_key_with_the_same_id_authenticates_nobody() {
    let other = Side { ppks: &[(ID, OTHER)], ..Side::OPTIONAL };
    for left in [Side::OPTIONAL, Side::REQUIRED] {
        let pair = run(pair_of(&left, &other, |_, _| {}));
        assert_eq!(uses_ppk(&pair), None);
        assert_eq!(faults(&pair.right), [StateFault::AuthMismatch]);
    }
}

#[test]
fn an_initiator_that_requires_a_key_that_it_lacks_sends_nothing() {
    let without = Side { ppks: &[], ..Side::REQUIRED };
    let mut pair = pair_of(&without, &Side::OPTIONAL, |_, _| {});
    let connection = pair.left.ike.connections()[0].clone();
    let initiated = pair.left.with_context(pair.now, |engine, host, context| {
        engine.initiate(&connection, connection.children.first(), None, host, context)
    });
    assert_eq!(initiated.unwrap_err(), InitiateError::NoPpk);
    assert!(pair.left.sent.is_empty());
    assert_eq!(pair.left.ike.status().count(), 0);
}

#[test]
fn both_sides_rekey_after_a_ppk() {
    let mut pair = run(pair_of(&Side::REQUIRED, &Side::REQUIRED, |_, _| {}));
    for is_left in [true, false] {
        let now = pair.now;
        let side = if is_left { &mut pair.left } else { &mut pair.right };
        let (ike, child) = (side.ike.status().next().unwrap().id, side.children().last().unwrap().id);
        assert!(side.with_context(now, |engine, host, context| engine.rekey_child(child, host, context)));
        pair.run();
        let side = if is_left { &mut pair.left } else { &mut pair.right };
        assert!(side.with_context(now, |engine, host, context| engine.rekey(ike, host, context)));
        pair.run();
        assert_eq!(uses_ppk(&pair), Some(true));
    }
}

/// The left host proves its identity by a password.
fn by_password(left: &mut Connection, right: &mut Connection) {
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    right.remote.method = by_eap(EapIdentity::Ike, vec![Method::Gtc]);
    left.remote.method = RemoteMethod::SharedKey;
    left.remote.id = IdPattern::Any;
}

#[test]
fn a_client_with_a_password_uses_its_ppk_after_eap() {
    let elsewhere = Side { ppks: &[(b"dave@ppk", PPK)], id: None, required: false };
    let cases = [
        (&Side::OPTIONAL, &Side::OPTIONAL, Some(true)),
        (&Side::REQUIRED, &Side::REQUIRED, Some(true)),
        (&Side::OPTIONAL, &Side::NONE, Some(false)),
        (&Side::OPTIONAL, &elsewhere, Some(false)),
        (&Side::REQUIRED, &elsewhere, None),
        (&Side::NONE, &Side::REQUIRED, None),
    ];
    for (number, (left, right, expected)) in cases.into_iter().enumerate() {
        let mut pair = pair_of(left, right, by_password);
        for (host, side) in [(&mut pair.left, left), (&mut pair.right, right)] {
            let passwords = Passwords::new(&[("left", "open")]);
            host.keys = Box::new(Passwords { shared: side.keys(), ..*passwords });
        }
        let pair = run(pair);
        assert_eq!(uses_ppk(&pair), expected, "case {number}");
    }
}

/// The IKE_AUTH request of an initiator with a PPK, and the responder that waits for it.
fn attacked(right: &Side<'_>, change: impl FnOnce(&mut Connection)) -> (Attack, Vec<Raw>) {
    let pair = pair_of(&Side::OPTIONAL, right, |_, right| change(right));
    Attack::half_open(pair)
}

/// The request with other data in this notification; `None` leaves it out.
fn with_notify(request: &[Raw], kind: NotifyType, data: Option<&[u8]>) -> Vec<Raw> {
    let is_other =
        |payload: &&Raw| payload.kind != PayloadType::NOTIFY || notifies(&[(*payload).clone()])[0].0 != kind;
    let others = request.iter().filter(is_other).cloned();
    others.chain(data.map(|data| Raw::notify(kind, data))).collect()
}

fn fault_of(right: &Side<'_>, kind: NotifyType, data: Option<&[u8]>) -> Option<StateFault> {
    let (mut attack, request) = attacked(right, |_| {});
    attack.ask(ExchangeType::IKE_AUTH, &with_notify(&request, kind, data));
    faults(&attack.pair.right).first().copied()
}

/// RFC 8784 section 3: without a PPK_IDENTITY after both have announced PPKs, the negotiation fails.
#[test]
fn a_request_must_name_the_key_that_was_announced() {
    for right in [Side::OPTIONAL, Side::REQUIRED] {
        let missing = fault_of(&right, NotifyType::PPK_IDENTITY, None);
        assert_eq!(missing, Some(StateFault::PpkUnused));
    }
}

#[test]
fn names_of_other_types_are_not_known() {
    let opaque = [&[1], ID].concat();
    for name in [&opaque[..], &[0], &[], &[2], &[2; 3_000]] {
        // The initiator requires no key, so that its other proof counts.
        assert_eq!(fault_of(&Side::OPTIONAL, NotifyType::PPK_IDENTITY, Some(name)), None);
        let required = fault_of(&Side::REQUIRED, NotifyType::PPK_IDENTITY, Some(name));
        assert_eq!(required, Some(StateFault::PpkMissing));
    }
}

#[test]
fn a_proof_without_the_key_must_be_valid() {
    let elsewhere = Side { ppks: &[(b"dave@ppk", PPK)], id: None, required: false };
    for proof in [&[][..], &[0; 32], &[0; 5_000]] {
        let fault = fault_of(&elsewhere, NotifyType::NO_PPK_AUTH, Some(proof));
        assert_eq!(fault, Some(StateFault::AuthMismatch));
    }
    let none = fault_of(&elsewhere, NotifyType::NO_PPK_AUTH, None);
    assert_eq!(none, Some(StateFault::PpkMissing));
}

/// An initiator names its PPK in the first of several rounds only. The responder announces PPKs before it
/// knows how many rounds follow.
#[test]
fn later_rounds_name_no_key() {
    let (mut attack, request) = attacked(&Side::OPTIONAL, |right| {
        let mut second = right.remote.clone();
        second.method = by_eap(EapIdentity::Ike, vec![Method::Gtc]);
        right.further_rounds = FurtherRounds::new(Vec::new(), vec![second]);
    });
    attack.pair.right.keys = {
        let passwords = Passwords::new(&[("left", "open")]);
        Box::new(Passwords { shared: Side::OPTIONAL.keys(), ..*passwords })
    };
    let several = [NotifyType::MULTIPLE_AUTH_SUPPORTED, NotifyType::ANOTHER_AUTH_FOLLOWS];
    let first = request.iter().cloned().chain(several.map(|kind| Raw::notify(kind, &[])));
    attack.ask(ExchangeType::IKE_AUTH, &first.collect::<Vec<_>>());
    let id = request.iter().find(|payload| payload.kind == PayloadType::ID_I).unwrap();
    let asked = attack.ask(ExchangeType::IKE_AUTH, std::slice::from_ref(id));
    // A response with the password, of the type GTC (6).
    let eap = &asked.iter().find(|payload| payload.kind == PayloadType::EAP).unwrap().body;
    let password = [&[2, eap[1], 0, 9, 6][..], b"open"].concat();
    attack.ask(ExchangeType::IKE_AUTH, &[Raw::new(PayloadType::EAP, &password)]);
    // The proof is wrong: that no PPK is named is no fault.
    attack
        .ask(ExchangeType::IKE_AUTH, &[Raw::new(PayloadType::AUTH, &[&[2, 0, 0, 0][..], &[7; 32]].concat())]);
    assert_eq!(faults(&attack.pair.right), [StateFault::AuthMismatch]);
}
