//! Session resumption (RFC 5723), between complete engines: a client on the left, a gateway on the right.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;
#[path = "pair/passwords.rs"]
mod passwords;

use casemate_crypto::SecretBytes;
use casemate_eap::Method;
use casemate_ike::config::{
    AddrPattern, CloseAction, Connection, EapIdentity, Lifespan, LocalEap, LocalMethod, Unique,
};
use casemate_ike::{DownReason, Event, IkeSaId, IkeSettings, IkeState, PeerFault, StateFault};
use casemate_wire::ike::{ExchangeType, Header, Message, Notify, NotifyType, PayloadType};
use pair::{IkePeer, LEFT, Pair, RIGHT, connection, key, with_pool};
use passwords::{Passwords, Relay, by_eap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const DEAD: Duration = Duration::from_secs(200);

/// Lets the client ask for a ticket, notice that the gateway is silent, and start again.
fn resuming(mut left: Connection, mut right: Connection) -> (Connection, Connection) {
    (left.resumption, right.resumption) = (true, true);
    left.dpd_delay = Some(Duration::from_secs(10));
    left.keying_tries = 0;
    for child in &mut left.children {
        Arc::make_mut(child).dpd_action = CloseAction::Restart;
    }
    (left, right)
}

fn pair_of(left: Connection, right: Connection) -> Pair {
    let (left, right) = resuming(left, right);
    Pair::new(left, right)
}

fn defaults() -> Pair {
    pair_of(connection("left", "right"), connection("right", "left"))
}

fn establish(pair: &mut Pair) {
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
}

fn established() -> Pair {
    let mut pair = defaults();
    establish(&mut pair);
    pair
}

/// Passes the time while no message arrives.
fn lose_link(pair: &mut Pair, time: Duration) {
    for _ in 0..time.as_secs() {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        for host in [&mut pair.left, &mut pair.right] {
            host.handle_timeouts(now);
            host.sent.clear();
        }
    }
}

/// Loses the link until the client has noticed, and lets the client reach the gateway again.
fn lose_and_return(pair: &mut Pair) {
    lose_link(pair, DEAD);
    assert_eq!(pair.left.down_reasons(), [DownReason::DeadPeer]);
    pair.advance(Duration::from_secs(70));
}

/// What each established IKE SA of a host resumes.
fn resumed(host: &IkePeer) -> Vec<Option<IkeSaId>> {
    let up = |event: &Event| match event {
        Event::IkeUp { resumes, .. } => Some(*resumes),
        _ => None,
    };
    host.events.iter().filter_map(up).collect()
}

fn faults(host: &IkePeer) -> Vec<PeerFault> {
    let fault = |event: &Event| match event {
        Event::Fault { fault, .. } => Some(*fault),
        _ => None,
    };
    host.events.iter().filter_map(fault).collect()
}

fn not_resumed(host: &IkePeer) -> usize {
    host.events.iter().filter(|event| matches!(event, Event::NotResumed { .. })).count()
}

/// Checks that both hosts have one IKE SA, which resumes the first one.
fn check_resumed(pair: &Pair) {
    for host in [&pair.left, &pair.right] {
        let [None, Some(_)] = resumed(host)[..] else { panic!("{:?}", resumed(host)) };
        let sas: Vec<_> = host.ike.status().map(|sa| (sa.state, sa.is_resumed)).collect();
        assert_eq!(sas, [(IkeState::Established, true)]);
        assert!(host.leaked_spis().is_empty());
    }
    pair.check_children(1);
}

/// Checks that both hosts have one IKE SA, with a new proof of both identities.
fn check_authenticated(pair: &Pair) {
    for host in [&pair.left, &pair.right] {
        assert!(resumed(host).iter().all(Option::is_none), "{:?}", resumed(host));
        let sas: Vec<_> = host.ike.status().map(|sa| (sa.state, sa.is_resumed)).collect();
        assert_eq!(sas, [(IkeState::Established, false)]);
    }
    pair.check_children(1);
}

fn exchange(message: &[u8]) -> ExchangeType {
    Header::parse(message).unwrap().exchange
}

/// Loses the link until the client presents its ticket. Returns the request.
fn presented(pair: &mut Pair) -> Vec<u8> {
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        let request = pair.left.sent.back().map(|transmit| transmit.message.clone());
        if let Some(request) = request.filter(|one| exchange(one) == ExchangeType::IKE_SESSION_RESUME) {
            return request;
        }
        pair.left.sent.clear();
    }
    panic!("no ticket is presented");
}

/// The ticket in a request.
fn ticket_at(request: &[u8]) -> std::ops::Range<usize> {
    let message = Message::parse(request).unwrap();
    for payload in message.payloads() {
        let payload = payload.unwrap();
        if payload.kind != PayloadType::NOTIFY {
            continue;
        }
        let notify = Notify::parse(payload.body).unwrap();
        if notify.kind == NotifyType::TICKET_OPAQUE {
            let from = notify.data.as_ptr().addr() - request.as_ptr().addr();
            return from..from + notify.data.len();
        }
    }
    panic!("no ticket");
}

#[test]
fn a_client_resumes_its_session_after_the_link_was_lost() {
    let mut pair = established();
    let before = pair.right.ike.status().next().unwrap();
    lose_and_return(&mut pair);
    check_resumed(&pair);
    assert_eq!(pair.right.down_reasons(), [DownReason::Replaced], "the gateway had not noticed");
    assert_eq!(resumed(&pair.right)[1], Some(before.id));
    let after = pair.right.ike.status().next().unwrap();
    assert_eq!((after.peer, after.suite), (before.peer, before.suite));
    assert_eq!(not_resumed(&pair.left), 0);
    assert_eq!((faults(&pair.left), faults(&pair.right)), (vec![], vec![]));
}

#[test]
fn a_session_is_resumed_again_and_again() {
    let mut pair = established();
    for count in 2..5 {
        lose_link(&mut pair, DEAD);
        pair.advance(Duration::from_secs(70));
        assert_eq!(resumed(&pair.right).len(), count);
        assert!(resumed(&pair.right)[1..].iter().all(Option::is_some));
        pair.check_children(1);
    }
}

#[test]
fn a_gateway_that_has_noticed_accepts_the_ticket_as_well() {
    let (left, mut right) = resuming(connection("left", "right"), connection("right", "left"));
    right.dpd_delay = Some(Duration::from_secs(10));
    let mut pair = Pair::new(left, right);
    establish(&mut pair);
    lose_and_return(&mut pair);
    assert_eq!(pair.right.down_reasons(), [DownReason::DeadPeer]);
    check_resumed(&pair);
}

/// The client has given up the IKE SA and answers a request of the gateway with its crash token (RFC 6290).
#[test]
fn a_crash_token_of_the_client_does_not_void_its_ticket() {
    let (mut left, mut right) = resuming(connection("left", "right"), connection("right", "left"));
    Arc::make_mut(&mut left.children[0]).dpd_action = CloseAction::Clear;
    right.remote_addrs = vec![AddrPattern::Any];
    right.dpd_delay = Some(Duration::from_secs(150));
    let mut pair = Pair::new(left, right);
    pair.left.ike.set_crash_secret(Some(SecretBytes::new(&[1; 32])));
    establish(&mut pair);
    lose_link(&mut pair, DEAD);
    pair.advance(Duration::from_secs(30));
    pair.left.initiate(pair.now);
    pair.run();
    check_resumed(&pair);
    let [DownReason::Forgotten { .. }] = pair.right.down_reasons()[..] else {
        panic!("{:?}", pair.right.down_reasons())
    };
}

/// The client sleeps until the gateway takes it for dead. The gateway answers the next request of the client
/// with its crash token.
#[test]
fn a_client_that_has_slept_resumes_after_the_crash_token_of_the_gateway() {
    for is_restarted in [false, true] {
        let (left, mut right) = resuming(connection("left", "right"), connection("right", "left"));
        right.remote_addrs = vec![AddrPattern::Any];
        right.dpd_delay = Some(Duration::from_secs(10));
        let mut pair = Pair::new(left, right.clone());
        pair.right.ike.set_crash_secret(Some(SecretBytes::new(&[1; 32])));
        establish(&mut pair);
        for _ in 0..DEAD.as_secs() {
            pair.now = pair.now.after(Duration::from_secs(1));
            pair.right.handle_timeouts(pair.now);
            pair.right.sent.clear();
        }
        assert_eq!(pair.right.down_reasons(), [DownReason::DeadPeer]);
        if is_restarted {
            pair.right = IkePeer::new(pair::RIGHT, 9, right);
            pair.right.ike.set_crash_secret(Some(SecretBytes::new(&[1; 32])));
        }
        pair.advance(Duration::from_secs(5));
        match is_restarted {
            false => check_resumed(&pair),
            // The restarted gateway does not know the ticket.
            true => assert_eq!((resumed(&pair.left), not_resumed(&pair.left)), (vec![None, None], 1)),
        }
    }
}

#[test]
fn no_ticket_without_resumption_on_both_sides() {
    for (on_left, on_right) in [(false, true), (true, false)] {
        let (mut left, mut right) = resuming(connection("left", "right"), connection("right", "left"));
        (left.resumption, right.resumption) = (on_left, on_right);
        let mut pair = Pair::new(left, right);
        establish(&mut pair);
        lose_and_return(&mut pair);
        check_authenticated(&pair);
        assert_eq!(not_resumed(&pair.left), 0);
    }
}

/// One round trip less than a full exchange of a client with a password: 2 in place of 4.
#[test]
fn a_client_with_a_password_resumes_without_it() {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    let identity = EapIdentity::Ike;
    right.remote.method = by_eap(identity, vec![Method::Gtc]);
    let mut pair = pair_of(left, right);
    pair.left.keys = Passwords::new(&[("left", "open")]);
    pair.right.keys = Passwords::new(&[("left", "open")]);
    establish(&mut pair);
    let before = pair.right.ike.status().next().unwrap();
    // The client has no password any more.
    pair.left.keys = Passwords::new(&[]);
    lose_and_return(&mut pair);
    check_resumed(&pair);
    let after = pair.right.ike.status().next().unwrap();
    assert_eq!(after.eap_identity.as_ref().unwrap().proven(), Some(&b"left"[..]));
    assert_eq!(after.eap_identity, before.eap_identity);
}

#[test]
fn a_changed_password_voids_tickets() {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    let identity = EapIdentity::Ike;
    right.remote.method = by_eap(identity, vec![Method::Gtc]);
    for new in [&[][..], &[("left", "sesame")]] {
        let mut pair = pair_of(left.clone(), right.clone());
        pair.left.keys = Passwords::new(&[("left", "open")]);
        pair.right.keys = Passwords::new(&[("left", "open")]);
        establish(&mut pair);
        pair.right.keys = Passwords::new(new);
        lose_and_return(&mut pair);
        assert_eq!(resumed(&pair.right), [None]);
        assert!(faults(&pair.right).contains(&StateFault::NotResumable.into()));
        assert!(not_resumed(&pair.left) > 0);
    }
}

#[test]
fn a_changed_shared_key_voids_tickets() {
    let mut pair = established();
    (pair.left.keys, pair.right.keys) = (Box::new(key(b"another key")), Box::new(key(b"another key")));
    lose_and_return(&mut pair);
    check_authenticated(&pair);
    assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
}

/// A removed or replaced post-quantum pre-shared key voids the tickets of IKE SAs that depend on it.
#[cfg(feature = "ppk")]
#[test]
fn a_changed_ppk_voids_tickets() {
    use casemate_ike::config::{PpkId, PpkPolicy};
    const ID: &[u8] = b"carol@ppk";
    let keys = |ppk: Option<&[u8]>| {
        let keys = key(b"shared key of both hosts");
        Box::new(ppk.into_iter().fold(keys, |keys, ppk| keys.with_ppk(ID, SecretBytes::new(ppk))))
    };
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    for connection in [&mut left, &mut right] {
        connection.ppk = PpkPolicy { id: Some(PpkId::new(ID)), required: false };
    }
    let (first, second) = (Some(&b"the first"[..]), Some(&b"the second"[..]));
    for new in [first, second, None] {
        let mut pair = pair_of(left.clone(), right.clone());
        (pair.left.keys, pair.right.keys) = (keys(first), keys(first));
        establish(&mut pair);
        (pair.left.keys, pair.right.keys) = (keys(new), keys(new));
        lose_and_return(&mut pair);
        if new == first {
            check_resumed(&pair);
        } else {
            check_authenticated(&pair);
            assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
        }
        for host in [&pair.left, &pair.right] {
            let ids: Vec<_> = host.ike.status().map(|sa| sa.ppk_id).collect();
            assert_eq!(ids, [new.map(|_| ID.to_vec())]);
        }
    }
}

#[test]
fn a_server_is_not_asked_again_and_its_addresses_stay() {
    let (mut left, mut right, _) = with_pool("10.9.0.9", &["0.0.0.0"]);
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    let identity = EapIdentity::Ike;
    right.remote.method = by_eap(identity, Vec::new());
    right.pools = vec![casemate_ike::config::SERVER_POOL.into()];
    let mut pair = pair_of(left, right);
    let relay = Relay { addrs: vec!["10.77.0.5".parse().unwrap()], ..Relay::default() };
    let asked = relay.asked.clone();
    let mut keys = Passwords::new(&[("left", "open")]);
    keys.relay = Some(relay);
    pair.right.keys = keys;
    pair.left.keys = Passwords::new(&[("left", "open")]);
    pair.left.initiate(pair.now);
    for _ in 0..2 {
        pair.run();
        let id = pair.right.ike.status().next().unwrap().id;
        pair.right.with_context(pair.now, |ike, host, context| ike.continue_eap(id, host, context));
    }
    pair.run();
    pair.check_children(1);
    let before = asked.load(Ordering::Relaxed);
    lose_and_return(&mut pair);
    check_resumed(&pair);
    assert_eq!(asked.load(Ordering::Relaxed), before);
    let addrs = |host: &IkePeer| host.ike.status().next().unwrap().virtual_addrs;
    assert_eq!(
        (addrs(&pair.left), addrs(&pair.right)),
        (addrs(&pair.right), vec!["10.77.0.5".parse().unwrap()])
    );
}

#[test]
fn a_client_gets_its_virtual_address_back() {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0"]);
    let mut pair = pair_of(left, right);
    pair.right.add_pool(&pool);
    establish(&mut pair);
    let addrs = |host: &IkePeer| host.ike.status().next().unwrap().virtual_addrs;
    let before = addrs(&pair.right);
    lose_and_return(&mut pair);
    check_resumed(&pair);
    assert_eq!((addrs(&pair.left), addrs(&pair.right)), (before.clone(), before));
    // The end of the old IKE SA has not released the address.
    pair.left.with_context(pair.now, |ike, host, context| {
        let id = ike.status().next().unwrap().id;
        ike.terminate(id, DownReason::Local, host, context)
    });
    pair.run();
    assert_eq!(pair.right.ike.status().count(), 0);
}

#[test]
fn unique_keep_does_not_refuse_the_session_itself() {
    let (left, mut right) = resuming(connection("left", "right"), connection("right", "left"));
    right.unique = Unique::Keep;
    let mut pair = Pair::new(left, right);
    establish(&mut pair);
    lose_and_return(&mut pair);
    check_resumed(&pair);
}

#[test]
fn lost_messages_are_sent_again() {
    // Which of the first messages after the return of the link is lost.
    for lost in 0..4 {
        let mut pair = established();
        presented(&mut pair);
        for count in 0..30 {
            let from_left: Vec<_> = pair.left.sent.drain(..).collect();
            let from_right: Vec<_> = pair.right.sent.drain(..).collect();
            let (now, is_lost) = (pair.now, count == lost);
            for transmit in from_left.into_iter().filter(|_| !is_lost) {
                pair::deliver(&mut pair.right, transmit, now);
            }
            for transmit in from_right.into_iter().filter(|_| !is_lost) {
                pair::deliver(&mut pair.left, transmit, now);
            }
            if pair.left.sent.is_empty() && pair.right.sent.is_empty() {
                pair.now = pair.now.after(Duration::from_secs(1));
                pair.left.handle_timeouts(pair.now);
            }
        }
        pair.run();
        check_resumed(&pair);
    }
}

#[test]
fn a_cookie_is_returned() {
    let mut pair = established();
    let settings = IkeSettings { cookie_threshold: 0, ..IkeSettings::SERVER };
    let (_, right) = resuming(connection("left", "right"), connection("right", "left"));
    let mut pair =
        Pair { right: IkePeer::with(settings, RIGHT, 2, right), ..std::mem::replace(&mut pair, defaults()) };
    // The client starts again with the gateway that requires cookies.
    pair.left = IkePeer::new(LEFT, 1, (*pair.left.ike.connections()[0]).clone());
    establish(&mut pair);
    presented(&mut pair);
    pair.run();
    check_resumed(&pair);
    let cookies = faults(&pair.right).iter().filter(|fault| **fault == StateFault::Cookie.into()).count();
    assert_eq!(cookies, 2, "one for each exchange");
}

#[test]
fn a_forged_ticket_is_refused() {
    for place in [0, 8, 16, 100, usize::MAX] {
        let mut pair = established();
        let mut request = presented(&mut pair);
        let ticket = ticket_at(&request);
        let at = ticket.start + place.min(ticket.len() - 1);
        request[at] ^= 1;
        pair.left.sent.back_mut().unwrap().message = request;
        pair.run();
        check_authenticated(&pair);
        assert_eq!(faults(&pair.right), [StateFault::Ticket.into()]);
        assert_eq!(not_resumed(&pair.left), 1);
    }
}

#[test]
fn another_gateway_does_not_know_the_ticket() {
    let mut pair = established();
    presented(&mut pair);
    let (_, right) = resuming(connection("left", "right"), connection("right", "left"));
    pair.right = IkePeer::new(RIGHT, 9, right);
    pair.run();
    assert_eq!(faults(&pair.right), [StateFault::Ticket.into()]);
    assert_eq!((resumed(&pair.left), resumed(&pair.right)), (vec![None, None], vec![None]));
}

#[test]
fn an_expired_ticket_is_neither_presented_nor_accepted() {
    let mut pair = established();
    lose_link(&mut pair, Duration::from_secs(3_700));
    pair.advance(Duration::from_secs(130));
    check_authenticated(&pair);
    assert_eq!((not_resumed(&pair.left), faults(&pair.right)), (0, vec![]));
    // A request on its way for an hour.
    let mut pair = established();
    presented(&mut pair);
    pair.now = pair.now.after(Duration::from_secs(3_600));
    pair.deliver_to_right();
    assert_eq!(faults(&pair.right), [StateFault::Ticket.into()]);
}

/// A recorded request gets a response, but only the client can go on; and once it has, the ticket is void.
#[test]
fn a_replayed_ticket_is_refused() {
    let mut pair = established();
    let request = presented(&mut pair);
    pair.run();
    check_resumed(&pair);
    let transmit = casemate_ike::Transmit {
        path: pair.left.ike.status().next().unwrap().path,
        non_esp_marker: false,
        probe_len: None,
        message: request,
    };
    pair::deliver(&mut pair.right, transmit, pair.now);
    assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
    assert_eq!(pair.right.sent.len(), 1, "TICKET_NACK");
    assert_eq!(pair.right.ike.half_open_count(), 0);
    pair.check_children(1);
}

#[test]
fn a_closed_session_is_not_resumed() {
    // Who closes the IKE SA.
    for by_gateway in [false, true] {
        let mut pair = established();
        let request = {
            let mut copy = established();
            presented(&mut copy)
        };
        let host = if by_gateway { &mut pair.right } else { &mut pair.left };
        host.with_context(pair.now, |ike, host, context| {
            let id = ike.status().next().unwrap().id;
            ike.terminate(id, DownReason::Local, host, context)
        });
        pair.run();
        pair.left.initiate(pair.now);
        let first = pair.left.sent[0].message.clone();
        assert_eq!(exchange(&first), ExchangeType::IKE_SA_INIT, "the client has dropped the ticket");
        // A client that has kept it. Both pairs are the same up to here, so the ticket is the same.
        pair.left.sent[0].message = request;
        pair.deliver_to_right();
        assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
    }
}

/// A client that leaves the Delete payload unanswered must not come back with its ticket.
#[test]
fn a_session_has_ended_while_its_delete_payload_is_unanswered() {
    // The gateway closes the IKE SA while the link is lost, or rekeys it.
    let close: fn(&mut Pair) = |pair| {
        pair.right.with_context(pair.now, |ike, host, context| {
            let id = ike.status().next().unwrap().id;
            ike.terminate(id, DownReason::Local, host, context)
        });
    };
    let rekey: fn(&mut Pair) = |pair| {
        pair.right.with_context(pair.now, |ike, host, context| {
            let id = ike.status().next().unwrap().id;
            ike.rekey(id, host, context)
        });
        pair.run();
    };
    for end in [close, rekey] {
        let mut pair = established();
        let request = {
            let mut copy = established();
            presented(&mut copy)
        };
        end(&mut pair);
        pair.right.sent.clear();
        pair.left.sent.clear();
        // Another request of the client, in whose place the ticket is presented.
        pair.left.initiate(pair.now);
        pair.left.sent[0].message = request;
        pair.deliver_to_right();
        assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
    }
}

#[test]
fn a_changed_connection_voids_tickets() {
    let changes: [fn(&mut Connection); 3] = [
        |connection| connection.resumption = false,
        |connection| connection.remote_addrs = vec![AddrPattern::Any],
        |connection| connection.name = "renamed".into(),
    ];
    for change in changes {
        let mut pair = established();
        presented(&mut pair);
        let mut right = (*pair.right.ike.connections()[0]).clone();
        change(&mut right);
        pair.right.ike.configure(vec![Arc::new(right)], &[]);
        pair.run();
        assert_eq!(faults(&pair.right), [StateFault::NotResumable.into()]);
        assert_eq!(resumed(&pair.left), [None, None]);
    }
    // A change of the children alone keeps them.
    let mut pair = established();
    presented(&mut pair);
    let mut right = (*pair.right.ike.connections()[0]).clone();
    right.children.push(Arc::new(casemate_ike::config::ChildConfig::new("other")));
    pair.right.ike.configure(vec![Arc::new(right)], &[]);
    pair.run();
    check_resumed(&pair);
}

#[test]
fn rekeying_voids_the_ticket_and_the_client_requests_another() {
    for by_gateway in [false, true] {
        let mut pair = established();
        let host = if by_gateway { &mut pair.right } else { &mut pair.left };
        host.with_context(pair.now, |ike, host, context| {
            let id = ike.status().next().unwrap().id;
            ike.rekey(id, host, context)
        });
        pair.run();
        pair.advance(Duration::from_secs(2));
        lose_link(&mut pair, DEAD);
        pair.advance(Duration::from_secs(70));
        for host in [&pair.left, &pair.right] {
            assert!(resumed(host)[1].is_some(), "{:?}", resumed(host));
            assert_eq!(host.ike.status().count(), 1);
        }
        pair.check_children(1);
    }
}

#[test]
fn a_ticket_is_renewed_before_it_expires() {
    let mut pair = established();
    pair.advance(Duration::from_secs(5_000));
    lose_and_return(&mut pair);
    check_resumed(&pair);
}

/// Resuming does not put off the reauthentication.
#[test]
fn the_reauthentication_is_due_when_it_was() {
    let reauth = |mut connection: Connection| {
        connection.reauth = Some(Duration::from_secs(1_000));
        connection.lifespan =
            Lifespan { rekey: None, jitter: Duration::ZERO, hard: Some(Duration::from_secs(1_200)) };
        connection
    };
    let mut pair = pair_of(reauth(connection("left", "right")), connection("right", "left"));
    establish(&mut pair);
    lose_and_return(&mut pair);
    check_resumed(&pair);
    pair.advance(Duration::from_secs(800));
    assert_eq!(resumed(&pair.left).last(), Some(&None), "a full exchange after 1,000 s");
    assert_eq!(pair.left.ike.status().filter(|sa| !sa.is_resumed).count(), 1);
}

/// The gateway ignores the exchange.
#[test]
fn without_a_response_to_the_ticket_the_full_exchange_follows() {
    let mut pair = established();
    for _ in 0..400 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left.handle_timeouts(pair.now);
        pair.left.sent.retain(|transmit| {
            !transmit.message.is_empty() && exchange(&transmit.message) == ExchangeType::IKE_SA_INIT
        });
        if !pair.left.sent.is_empty() {
            break;
        }
    }
    pair.run();
    assert_eq!((resumed(&pair.left), resumed(&pair.right)), (vec![None, None], vec![None, None]));
}

#[test]
fn a_long_loss_of_the_link_ends_with_a_resumption() {
    let mut pair = established();
    lose_link(&mut pair, Duration::from_secs(1_000));
    pair.advance(Duration::from_secs(140));
    check_resumed(&pair);
}

/// After the attempts have ended, a command starts again.
#[test]
fn the_session_is_kept_for_the_next_command() {
    let (mut left, right) = resuming(connection("left", "right"), connection("right", "left"));
    left.keying_tries = 1;
    let mut pair = Pair::new(left, right);
    establish(&mut pair);
    lose_link(&mut pair, Duration::from_secs(600));
    assert_eq!(pair.left.ike.status().count(), 0);
    pair.left.initiate(pair.now);
    pair.run();
    check_resumed(&pair);
}

/// A client that gives up after one sequence, has lost its IKE SA and presents its ticket.
fn presenting_once() -> Pair {
    let (mut left, right) = resuming(connection("left", "right"), connection("right", "left"));
    left.keying_tries = 1;
    let mut pair = Pair::new(left, right);
    establish(&mut pair);
    presented(&mut pair);
    pair
}

/// Gives up the attempt and presents the ticket again.
fn present_again(pair: &mut Pair) {
    lose_link(pair, Duration::from_secs(600));
    assert_eq!(pair.left.ike.status().count(), 0);
    pair.left.initiate(pair.now);
}

/// Lets the gateway refuse the ticket, as an attacker could who changes the request or forges the response.
fn refuse(pair: &mut Pair) {
    let request = &mut pair.left.sent.back_mut().unwrap().message;
    assert_eq!(exchange(request), ExchangeType::IKE_SESSION_RESUME);
    let ticket = ticket_at(request);
    request[ticket.start] ^= 1;
    pair.deliver_to_right();
    pair.deliver_to_left();
}

/// A refusal is in clear and may be forged. It leads to the full exchange; if that fails, the next attempt
/// presents the ticket again, until it was refused three times.
#[test]
fn a_forged_refusal_does_not_void_the_ticket() {
    let mut pair = presenting_once();
    for refused in 1..=2 {
        refuse(&mut pair);
        assert_eq!(exchange(&pair.left.sent.back().unwrap().message), ExchangeType::IKE_SA_INIT);
        assert_eq!(not_resumed(&pair.left), refused);
        present_again(&mut pair);
    }
    pair.run();
    check_resumed(&pair);
    let mut pair = presenting_once();
    for _ in 1..=3 {
        refuse(&mut pair);
        present_again(&mut pair);
    }
    assert_eq!(exchange(&pair.left.sent.back().unwrap().message), ExchangeType::IKE_SA_INIT);
}

/// After the full exchange with the same gateway, the former ticket is not presented any more.
#[test]
fn the_full_exchange_replaces_a_refused_ticket() {
    let mut pair = presenting_once();
    refuse(&mut pair);
    pair.run();
    check_authenticated(&pair);
    presented(&mut pair);
    pair.run();
    assert_eq!(resumed(&pair.right).iter().flatten().count(), 1, "the new ticket is accepted");
}

/// The response to a ticket is in clear as well. If IKE_AUTH is not answered then, the next attempt presents
/// the ticket again: it was not used (RFC 5723 section 4.3.1).
#[test]
fn a_forged_response_does_not_void_the_ticket() {
    let mut pair = presenting_once();
    pair.deliver_to_right();
    pair.deliver_to_left();
    assert_eq!(exchange(&pair.left.sent.back().unwrap().message), ExchangeType::IKE_AUTH);
    present_again(&mut pair);
    pair.run();
    check_resumed(&pair);
}

/// A gateway that wants to authenticate the client again says so in IKE_AUTH, too.
#[test]
fn a_refusal_in_ike_auth_leads_to_the_full_exchange() {
    let mut pair = established();
    presented(&mut pair);
    pair.deliver_to_right();
    pair.deliver_to_left();
    pair.right.keys = Box::new(key(b"another key"));
    pair.left.keys = Box::new(key(b"another key"));
    pair.run();
    check_authenticated(&pair);
    assert_eq!((faults(&pair.right), not_resumed(&pair.left)), (vec![StateFault::NotResumable.into()], 1));
}

#[test]
fn secrets_differ_after_resumption() {
    let mut pair = established();
    pair.left.ike.report_keys(true);
    lose_and_return(&mut pair);
    check_resumed(&pair);
    let keys = pair.left.events.iter().filter_map(|event| match event {
        Event::Keys(keys) => Some(keys.encr.initiator.clone()),
        _ => None,
    });
    let keys: Vec<SecretBytes> = keys.collect();
    assert_eq!(keys.len(), 1);
    let children = pair.left.children();
    assert!(children.iter().all(|child| child.active));
}

/// IKE_SESSION_RESUME does not agree on it anew: the messages do not announce it.
#[test]
fn auth_covers_the_first_messages_of_both_sides_if_it_did_before() {
    for agreed in [true, false] {
        let left = Connection { full_transcript_auth: agreed, ..connection("left", "right") };
        let mut pair = pair_of(left, connection("right", "left"));
        establish(&mut pair);
        let request = presented(&mut pair);
        let announcement = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH.0.to_be_bytes();
        assert!(!request.windows(2).any(|part| part == announcement));
        pair.run();
        check_resumed(&pair);
        for host in [&pair.left, &pair.right] {
            assert_eq!(host.ike.status().next().unwrap().full_transcript_auth, agreed);
        }
    }
}
