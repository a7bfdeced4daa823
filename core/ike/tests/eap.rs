//! Initiators that authenticate themselves by EAP, between complete engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;
#[path = "pair/passwords.rs"]
mod passwords;

use casemate_eap::{EapFault, Method};
use casemate_ike::config::{
    AddrPattern, Connection, EapIdentity, IdPattern, Identity, LocalEap, LocalMethod, RemoteMethod,
    SERVER_POOL,
};
use casemate_ike::diagnosis::{Explanation, Mismatch};
use casemate_ike::{DownReason, Event, IkeSettings, PeerFault, StateFault};
use casemate_wire::ike::NotifyType;
use pair::{Pair, connection, key, with_pool};
use passwords::{Passwords, Relay, by_eap};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The left host uses EAP, the right one a shared key.
fn use_eap(left: &mut Connection, right: &mut Connection, asked: EapIdentity) {
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    right.remote.method = by_eap(asked, vec![Method::Gtc]);
}

fn pair(asked: EapIdentity, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    use_eap(&mut left, &mut right, asked);
    change(&mut left, &mut right);
    let mut pair = Pair::new(left, right);
    pair.left.keys = Passwords::new(&[("left", "open"), ("carol", "sesame")]);
    pair.right.keys = Passwords::new(&[("left", "open"), ("carol", "sesame")]);
    pair.left.ike.explain_faults();
    pair.right.ike.explain_faults();
    pair
}

fn run(mut pair: Pair) -> Pair {
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

/// The EAP identity that the right host has verified.
fn proven(pair: &Pair) -> Option<Vec<u8>> {
    let identity = |event: &Event| match event {
        Event::IkeUp { eap_identity, .. } => Some(eap_identity.as_ref()?.proven()?.to_vec()),
        _ => None,
    };
    pair.right.events.iter().find_map(identity)
}

/// The EAP identity that an IKE SA of the right host shows as proven.
fn proven_now(pair: &Pair) -> Option<Vec<u8>> {
    pair.right.ike.status().next()?.eap_identity?.proven().map(Vec::from)
}

fn faults(events: &[Event]) -> Vec<PeerFault> {
    let fault = |event: &Event| match event {
        Event::Fault { fault, .. } => Some(*fault),
        _ => None,
    };
    events.iter().filter_map(fault).collect()
}

fn eap_fault(events: &[Event]) -> Option<EapFault> {
    events.iter().find_map(|event| match event {
        Event::Fault { explanation: Some(explanation), .. } => match **explanation {
            Explanation::Eap { fault, .. } => Some(fault),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn the_ike_identity_is_the_eap_identity_unless_another_is_configured() {
    let asked_for = |asked| run(pair(asked, |_, _| {}));
    for asked in [EapIdentity::Ike, EapIdentity::Asked, EapIdentity::Fixed(b"left".into())] {
        let pair = asked_for(asked);
        pair.check_children(1);
        assert_eq!(proven(&pair).as_deref(), Some(&b"left"[..]));
        assert_eq!(proven_now(&pair).as_deref(), Some(&b"left"[..]));
    }
    let set = |left: &mut Connection, _: &mut Connection| {
        let identity = Some(b"carol".to_vec());
        left.local.method = LocalMethod::Eap(LocalEap { identity, methods: vec![Method::Gtc] });
    };
    let asked = run(pair(EapIdentity::Asked, set));
    assert_eq!(proven(&asked).as_deref(), Some(&b"carol"[..]));
    // The responder verifies the password of `left`, whatever the peer calls itself.
    let not_asked = run(pair(EapIdentity::Ike, set));
    assert_eq!(not_asked.right.children().len(), 0);
}

#[test]
fn an_eap_sa_is_rekeyed_and_closed_like_any_other() {
    let mut pair = run(pair(EapIdentity::Ike, |_, _| {}));
    let old = pair.left.ike.status().next().unwrap().id;
    assert!(pair.left.with_context(pair.now, |ike, host, context| ike.rekey(old, host, context)));
    pair.run();
    pair.check_children(1);
    assert_eq!(proven_now(&pair).as_deref(), Some(&b"left"[..]));
}

#[test]
fn a_pool_gives_an_address_after_eap() {
    let (mut left, mut right, pool) = with_pool("10.9.0.1", &["0.0.0.0"]);
    use_eap(&mut left, &mut right, EapIdentity::Ike);
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    pair.left.keys = Passwords::new(&[("left", "open")]);
    pair.right.keys = Passwords::new(&[("left", "open")]);
    let pair = run(pair);
    pair.check_children(1);
    let status = pair.left.ike.status().next().unwrap();
    assert_eq!(status.virtual_addrs, ["10.9.0.1".parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn a_wrong_or_unknown_password_is_refused_in_the_same_way() {
    for known in [&[("left", "closed")][..], &[]] {
        let mut pair = pair(EapIdentity::Ike, |_, _| {});
        pair.right.keys = Passwords::new(known);
        let pair = run(pair);
        assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
        assert_eq!(pair.right.down_reasons(), [DownReason::Fault(StateFault::EapFailed.into())]);
        assert_eq!(faults(&pair.right.events), [StateFault::EapFailed.into()]);
        let expected = if known.is_empty() { EapFault::NoPassword } else { EapFault::WrongPassword };
        assert_eq!(eap_fault(&pair.right.events), Some(expected));
        assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
    }
}

#[test]
fn an_initiator_without_a_password_says_so() {
    let mut pair = pair(EapIdentity::Ike, |_, _| {});
    pair.left.keys = Passwords::new(&[]);
    let pair = run(pair);
    assert_eq!(eap_fault(&pair.left.events), Some(EapFault::NoPassword));
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(StateFault::EapFailed.into())]);
    assert_eq!(pair.right.ike.status().count(), 0, "the responder has closed its half-open IKE SA");
}

/// What the initiator sends after an invalid proof of the responder: nothing of EAP.
#[test]
fn nothing_of_eap_leaves_before_the_responder_has_proved_itself() {
    let mut pair = pair(EapIdentity::Asked, |_, _| {});
    let mut wrong = Passwords::new(&[("left", "open")]);
    wrong.shared = key(b"the key of an impostor");
    pair.right.keys = wrong;
    let pair = run(pair);
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(StateFault::AuthMismatch.into())]);
    assert_eq!(eap_fault(&pair.right.events), None, "the responder has seen no EAP response");
    assert_eq!(proven(&pair), None);
}

/// An initiator that offers EAP alone (RFC 5998).
fn offer_eap_only(left: &mut Connection) {
    let methods = vec![Method::MsChapV2, Method::Gtc, Method::Ttls];
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: methods.clone() });
    left.remote.method = by_eap(EapIdentity::Ike, methods);
}

/// GTC does not authenticate the responder (RFC 5998 section 4).
#[test]
fn eap_alone_authenticates_a_responder_only_by_a_mutual_method() {
    let pair = run(pair(EapIdentity::Ike, |left, right| {
        offer_eap_only(left);
        right.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    }));
    assert_eq!(faults(&pair.right.events), [StateFault::AuthMethod.into()]);
    assert_eq!(pair.left.children().len(), 0);
}

/// Both sides accept more methods. Only the one that both have, and that is mutual, is used; the test has no
/// TLS.
#[test]
fn eap_alone_uses_the_mutual_methods() {
    let pair = run(pair(EapIdentity::Ike, |left, right| {
        offer_eap_only(left);
        right.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Ttls] });
        right.remote.method = by_eap(EapIdentity::Ike, vec![Method::MsChapV2, Method::Ttls]);
    }));
    let faults = [eap_fault(&pair.left.events), eap_fault(&pair.right.events)];
    assert!(faults.contains(&Some(EapFault::Unsupported)), "{faults:?}");
}

#[test]
fn without_a_mutual_method_only_the_peer_can_start() {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    use_eap(&mut left, &mut right, EapIdentity::Ike);
    for (methods, is_started_by_peer) in
        [(vec![Method::Gtc], true), (vec![Method::Ttls], true), (vec![Method::Gtc, Method::Tls], false)]
    {
        left.local.method =
            LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc, Method::Tls] });
        left.remote.method = by_eap(EapIdentity::Ike, methods.clone());
        assert_eq!(left.is_started_by_peer(), is_started_by_peer, "{methods:?}");
    }
}

#[test]
fn a_peer_with_a_shared_key_does_not_pass_for_one_with_eap() {
    let pair = run(pair(EapIdentity::Ike, |left, _| left.local.method = LocalMethod::SharedKey));
    assert_eq!(faults(&pair.right.events), [StateFault::AuthMethod.into()]);
    // Nor does a peer without an AUTH payload where a shared key is demanded.
    let pair = run(self::pair(EapIdentity::Ike, |_, right| right.remote.method = RemoteMethod::SharedKey));
    assert_eq!(faults(&pair.right.events), [StateFault::AuthMethod.into()]);
}

#[test]
fn a_peer_that_does_not_ask_for_eap_gets_no_password() {
    // The responder accepts the shared key only, and authenticates the initiator without EAP: it cannot, for
    // there is no AUTH payload.
    let pair = run(pair(EapIdentity::Ike, |_, right| {
        right.remote.method = RemoteMethod::Any("right".into());
        right.remote.id = IdPattern::Any;
    }));
    assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
}

#[test]
fn lost_and_repeated_messages_change_nothing() {
    let mut pair = pair(EapIdentity::Asked, |_, _| {});
    pair.left.initiate(pair.now);
    for _ in 0..8 {
        // Each request arrives twice, and each first response is lost.
        let requests: Vec<_> = pair.left.sent.drain(..).collect();
        for request in &requests {
            pair::deliver(&mut pair.right, request.clone(), pair.now);
        }
        let first: Vec<_> = pair.right.sent.drain(..).collect();
        for request in requests {
            pair::deliver(&mut pair.right, request, pair.now);
        }
        let second: Vec<_> = pair.right.sent.iter().cloned().collect();
        assert_eq!(first, second, "a repeated request gets the same response");
        pair.deliver_to_left();
    }
    pair.check_children(1);
}

/// The gateway cannot start the new IKE SA, and announces when it closes the old one (RFC 4478).
#[test]
fn a_client_reauthenticates_before_the_gateway_closes_its_ike_sa() {
    for is_roaming in [false, true] {
        let mut pair = pair(EapIdentity::Ike, |left, right| {
            right.reauth = Some(Duration::from_secs(600));
            if is_roaming {
                // Without EAP: the gateway does not know the address of the client.
                left.local.method = LocalMethod::SharedKey;
                right.remote.method = RemoteMethod::SharedKey;
                right.remote_addrs = vec![AddrPattern::Any];
            }
        });
        pair.left.initiate(pair.now);
        pair.run();
        pair.advance(Duration::from_secs(425));
        assert!(pair.left.down_reasons().is_empty(), "the lifetime is 540 s");
        for _ in 0..1_300 {
            pair.advance(Duration::from_secs(1));
            pair.check_children(1);
        }
        assert_eq!(pair.right.ike.status().count(), 1);
        assert!(pair.left.down_reasons().iter().all(|reason| *reason == DownReason::Reauth));
        assert!((2..=4).contains(&pair.left.down_reasons().len()), "{:?}", pair.left.down_reasons());
        assert!(!pair.right.events.iter().any(|event| matches!(event, Event::InitiateFailed { .. })));
    }
}

/// A pair whose right host passes EAP on.
fn relayed(relay: Relay, change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = pair(EapIdentity::Ike, |left, right| {
        let identity = EapIdentity::Ike;
        right.remote.method = by_eap(identity, Vec::new());
        change(left, right);
    });
    let mut keys = Passwords::new(&[("left", "open")]);
    keys.relay = Some(relay);
    pair.right.keys = keys;
    pair
}

/// The server answers.
fn answer(pair: &mut Pair) {
    let id = pair.right.ike.status().next().unwrap().id;
    assert!(pair.right.with_context(pair.now, |ike, host, context| ike.continue_eap(id, host, context)));
}

#[test]
fn a_response_waits_for_the_server() {
    let relay = Relay::default();
    let asked = relay.asked.clone();
    let mut pair = run(relayed(relay, |_, _| {}));
    // Neither side can go on, before or after the peer's first EAP response.
    for count in 1..=2 {
        assert_eq!((asked.load(Ordering::Relaxed), pair.right.children().len()), (count, 0));
        answer(&mut pair);
        pair.run();
    }
    pair.check_children(1);
    assert_eq!(proven(&pair).as_deref(), Some(&b"left"[..]));
    // An answer that comes too late, or twice, changes nothing.
    answer(&mut pair);
    pair.run();
    pair.check_children(1);
    assert_eq!(faults(&pair.right.events), []);
}

#[test]
fn a_login_that_is_ended_after_eap_success_does_not_come_up() {
    let mut pair = relayed(Relay::default(), |_, _| {});
    pair.left.initiate(pair.now);
    for _ in 1..=2 {
        pair.run();
        answer(&mut pair);
    }
    pair.deliver_to_left();
    assert!(!pair.left.sent.is_empty(), "the last AUTH payload of the peer is under way");
    let id = pair.right.ike.status().next().unwrap().id;
    let ended = pair
        .right
        .with_context(pair.now, |ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    assert!(ended);
    pair.run();
    assert_eq!((pair.right.ike.status().count(), pair.right.children().len()), (0, 0));
    assert!(!pair.right.events.iter().any(|event| matches!(event, Event::IkeUp { .. })));
}

#[test]
fn a_repeated_request_is_ignored_while_the_server_decides() {
    let relay = Relay::default();
    let asked = relay.asked.clone();
    let mut pair = relayed(relay, |_, _| {});
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    let request: Vec<_> = pair.left.sent.drain(..).collect();
    for _ in 0..3 {
        for datagram in &request {
            pair::deliver(&mut pair.right, datagram.clone(), pair.now);
        }
    }
    assert_eq!((asked.load(Ordering::Relaxed), pair.right.sent.len()), (1, 0));
    assert_eq!(faults(&pair.right.events), []);
    answer(&mut pair);
    assert!(!pair.right.sent.is_empty());
    pair.run();
    answer(&mut pair);
    pair.run();
    pair.check_children(1);
}

#[test]
fn a_server_that_does_not_answer_holds_no_ike_sa() {
    let mut pair = run(relayed(Relay::default(), |_, _| {}));
    assert_eq!(pair.right.ike.half_open_count(), 1);
    pair.now = pair.now.after(IkeSettings::SERVER.half_open_time);
    pair.right.with_context(pair.now, |ike, host, context| ike.handle_timeouts(host, context));
    assert_eq!(pair.right.ike.status().count(), 0);
}

#[test]
fn without_a_server_the_peer_is_refused() {
    let mut pair = relayed(Relay::default(), |_, _| {});
    pair.right.keys = Passwords::new(&[("left", "open")]);
    let pair = run(pair);
    assert_eq!(faults(&pair.right.events), [StateFault::EapFailed.into()]);
    assert_eq!(eap_fault(&pair.right.events), Some(EapFault::NoServer));
    assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
}

/// This host does not know whether the method of the server authenticates both sides (RFC 5998 section 4).
#[test]
fn a_relayed_method_does_not_authenticate_this_host() {
    let pair = run(relayed(Relay::default(), |left, right| {
        offer_eap_only(left);
        right.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Ttls] });
    }));
    assert_eq!(faults(&pair.right.events), [StateFault::AuthMethod.into()]);
}

#[test]
fn the_server_assigns_an_address_if_the_connection_takes_it() {
    let assigned: IpAddr = "10.77.0.9".parse().unwrap();
    for (pools, expected) in [(vec![SERVER_POOL.to_owned()], vec![assigned]), (vec![], vec![])] {
        let (left, _, _) = with_pool("10.9.0.1", &["0.0.0.0"]);
        let mut pair = run(relayed(Relay { addrs: vec![assigned], ..Relay::default() }, |to, right| {
            (to.vips, to.children) = (left.vips, left.children);
            right.children = with_pool("10.9.0.1", &["0.0.0.0"]).1.children;
            right.pools = pools;
        }));
        for _ in 0..2 {
            answer(&mut pair);
            pair.run();
        }
        let status = pair.left.ike.status().next().unwrap();
        assert_eq!(status.virtual_addrs, expected);
    }
}

/// An attacker that guesses passwords goes away after the failure request. charon sends an INFORMATIONAL
/// request.
#[test]
fn a_wrong_password_is_reported_before_the_peer_acknowledges_it() {
    let mut pair = pair(EapIdentity::Ike, |left, right| {
        left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::MsChapV2] });
        let identity = EapIdentity::Ike;
        right.remote.method = by_eap(identity, vec![Method::MsChapV2]);
    });
    pair.left.keys = Passwords::new(&[("left", "a guess")]);
    pair.left.initiate(pair.now);
    for _ in 0..3 {
        pair.deliver_to_right();
        pair.deliver_to_left();
    }
    assert_eq!(faults(&pair.right.events), [StateFault::EapFailed.into()]);
    assert_eq!(eap_fault(&pair.right.events), Some(EapFault::WrongPassword));
    let acknowledgement: Vec<_> = pair.left.sent.drain(..).collect();
    assert_eq!((acknowledgement.len(), pair.right.down_reasons().len()), (1, 0));
    pair.now = pair.now.after(IkeSettings::SERVER.half_open_time);
    pair.right.with_context(pair.now, |ike, host, context| ike.handle_timeouts(host, context));
    assert_eq!(pair.right.down_reasons(), [DownReason::Fault(StateFault::EapFailed.into())]);
    assert_eq!(faults(&pair.right.events).len(), 1, "it is reported once");
}

/// The client does not trust the responder, or has no password.
#[test]
fn a_peer_that_gives_up_breaks_no_rule() {
    let mut pair = pair(EapIdentity::Ike, |_, _| {});
    pair.left.keys = Passwords::new(&[]);
    let pair = run(pair);
    let refused = DownReason::Refused(NotifyType::AUTHENTICATION_FAILED);
    assert_eq!((pair.right.down_reasons(), faults(&pair.right.events)), (vec![refused], vec![]));
}

/// The client expects another name of the gateway, so EAP never begins.
#[test]
fn a_gateway_says_why_no_connection_accepts_eap() {
    let run_with = |change: fn(&mut Connection, &mut Connection)| {
        let pair = run(pair(EapIdentity::Ike, change));
        let explained = pair.right.events.iter().find_map(|event| match event {
            Event::Fault { fault, explanation: Some(explanation), .. } => Some((*fault, explanation.clone())),
            _ => None,
        });
        let (fault, explanation) = explained.unwrap();
        let Explanation::Initiator { considered, .. } = &*explanation else { panic!("{explanation:?}") };
        (fault, considered[0].mismatch)
    };
    assert_eq!(
        run_with(|left, _| left.remote.id = IdPattern::Exact(Identity::Fqdn("gate".into()))),
        (StateFault::NoPeer.into(), Mismatch::LocalIdentity)
    );
    assert_eq!(
        run_with(|_, right| right.remote.method = RemoteMethod::SharedKey),
        (StateFault::AuthMethod.into(), Mismatch::Proof(StateFault::AuthMethod))
    );
}
