//! Several rounds of authentication (RFC 4739), between complete engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_eap::{EapCredentials, Method};
use casemate_ike::config::{
    Connection, EapIdentity, FurtherRounds, IdPattern, Identity, LocalAuth, LocalEap, LocalMethod,
    RemoteAuth, RemoteEap, RemoteMethod, Unique,
};
use casemate_ike::{Credentials, DownReason, Event, PeerFault, StateFault};
use casemate_wire::ike::NotifyType;
use pair::{Pair, connection, without_certificates};
use std::time::Duration;

/// Shared keys by both identities, and passwords.
struct Keys {
    shared: Vec<(&'static str, &'static str, SecretBytes)>,
    passwords: Vec<(&'static str, SecretBytes)>,
}

impl Keys {
    fn new(shared: &[(&'static str, &'static str, &str)], passwords: &[(&'static str, &str)]) -> Box<Self> {
        let shared = shared.iter().map(|(one, other, key)| (*one, *other, SecretBytes::new(key.as_bytes())));
        let passwords = passwords.iter().map(|(id, text)| (*id, SecretBytes::new(text.as_bytes())));
        Box::new(Self { shared: shared.collect(), passwords: passwords.collect() })
    }

    /// The keys of both hosts in most tests.
    fn usual() -> Box<Self> {
        let shared = [
            ("left", "right", "first"),
            ("laptop", "right", "second"),
            ("left", "right-2", "third"),
            ("laptop", "right-2", "fourth"),
            ("tablet", "right", "fifth"),
        ];
        Self::new(&shared, &[("laptop", "open"), ("carol", "sesame")])
    }
}

impl EapCredentials for Keys {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&casemate_legacy::LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        self.passwords.iter().find(|(id, _)| id.as_bytes() == identity).map(|(_, password)| password)
    }
}

impl Credentials for Keys {
    fn shared_key(&self, _: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        let is = |one: &str, id: &Identity| named(one) == *id;
        let suits = |(a, b, _): &&(&str, &str, SecretBytes)| {
            is(a, local) && is(b, remote) || is(b, local) && is(a, remote)
        };
        self.shared.iter().find(suits).map(|(_, _, key)| key)
    }

    without_certificates!();

    fn eap(&self) -> &dyn EapCredentials {
        self
    }
}

fn named(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

fn local_key(id: &str) -> LocalAuth {
    LocalAuth { id: Some(named(id)), method: LocalMethod::SharedKey }
}

fn remote_key(id: &str) -> RemoteAuth {
    RemoteAuth { id: IdPattern::Exact(named(id)), method: RemoteMethod::SharedKey }
}

fn local_eap(id: &str) -> LocalAuth {
    let eap = LocalEap { identity: None, methods: vec![Method::Gtc] };
    LocalAuth { id: Some(named(id)), method: LocalMethod::Eap(eap) }
}

fn remote_eap(id: &str) -> RemoteAuth {
    let eap = RemoteEap { identity: EapIdentity::Ike, methods: vec![Method::Gtc], groups: Vec::new() };
    RemoteAuth { id: IdPattern::Exact(named(id)), method: RemoteMethod::Eap(eap) }
}

/// Rounds of both hosts: those of the left one, as it and as the right one have them; then those of the right
/// one.
struct Plan {
    left: Vec<LocalAuth>,
    left_seen: Vec<RemoteAuth>,
    right: Vec<LocalAuth>,
    right_seen: Vec<RemoteAuth>,
}

/// The left host has these rounds, the right one has one.
fn client(left: &[LocalAuth], seen: &[RemoteAuth]) -> Plan {
    let (right, right_seen) = (vec![local_key("right")], vec![remote_key("right")]);
    Plan { left: left.to_vec(), left_seen: seen.to_vec(), right, right_seen }
}

fn with_rounds(mut connection: Connection, local: Vec<LocalAuth>, remote: Vec<RemoteAuth>) -> Connection {
    let (mut local, mut remote) = (local.into_iter(), remote.into_iter());
    (connection.local, connection.remote) = (local.next().unwrap(), remote.next().unwrap());
    connection.further_rounds = FurtherRounds::new(local.collect(), remote.collect());
    connection
}

fn pair(plan: Plan) -> Pair {
    let Plan { left, left_seen, right, right_seen } = plan;
    let left = with_rounds(connection("left", "right"), left, right_seen);
    let right = with_rounds(connection("right", "left"), right, left_seen);
    let mut pair = Pair::new(left, right);
    pair.left.keys = Keys::usual();
    pair.right.keys = Keys::usual();
    pair
}

fn run(plan: Plan) -> Pair {
    let mut pair = pair(plan);
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

fn faults(events: &[Event]) -> Vec<PeerFault> {
    let fault = |event: &Event| match event {
        Event::Fault { fault, .. } => Some(*fault),
        _ => None,
    };
    events.iter().filter_map(fault).collect()
}

/// The identities that a host has accepted, in the order of the rounds.
fn proven(events: &[Event]) -> Vec<String> {
    let ids = |event: &Event| match event {
        Event::IkeUp { peer, earlier_rounds, .. } => {
            let earlier = earlier_rounds.iter().map(|round| round.peer.to_string());
            Some(earlier.chain([peer.to_string()]).collect())
        }
        _ => None,
    };
    events.iter().find_map(ids).unwrap_or_default()
}

/// Checks that the right host has refused the left one for this reason, and that nothing is left over.
fn check_refused(pair: &Pair, fault: StateFault) {
    assert_eq!(faults(&pair.right.events), [fault.into()]);
    assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
    assert!(proven(&pair.right.events).is_empty() && proven(&pair.left.events).is_empty());
    assert_eq!(pair.right.ike.status().count(), 0);
    assert!(pair.left.leaked_spis().is_empty() && pair.right.leaked_spis().is_empty());
}

#[test]
fn the_initiator_proves_two_identities_in_any_combination() {
    for (left, seen) in [
        ([local_key("left"), local_key("laptop")], [remote_key("left"), remote_key("laptop")]),
        ([local_key("left"), local_eap("laptop")], [remote_key("left"), remote_eap("laptop")]),
        ([local_eap("carol"), local_key("laptop")], [remote_eap("carol"), remote_key("laptop")]),
        ([local_eap("carol"), local_eap("laptop")], [remote_eap("carol"), remote_eap("laptop")]),
    ] {
        let names = left.iter().map(|round| round.id.as_ref().unwrap().to_string()).collect::<Vec<_>>();
        let mut pair = pair(client(&left, &seen));
        pair.left.keys = Keys::usual();
        let mut keys = Keys::usual();
        keys.shared.push(("carol", "right", SecretBytes::new(b"first")));
        pair.right.keys = keys;
        let mut keys = Keys::usual();
        keys.shared.push(("carol", "right", SecretBytes::new(b"first")));
        pair.left.keys = keys;
        pair.left.initiate(pair.now);
        pair.run();
        pair.check_children(1);
        assert_eq!(proven(&pair.right.events), names);
        assert_eq!(proven(&pair.left.events), ["right"]);
        let status = pair.right.ike.status().next().unwrap();
        assert_eq!(status.peer, Some(named("laptop")));
        assert_eq!(status.earlier_rounds.len(), 1);
        let is_eap = |round: &RemoteAuth| matches!(round.method, RemoteMethod::Eap(_));
        assert_eq!(status.earlier_rounds[0].eap_identity.is_some(), is_eap(&seen[0]));
    }
}

#[test]
fn both_hosts_have_rounds() {
    let left = [local_key("left"), local_key("laptop")];
    let seen = [remote_key("left"), remote_key("laptop")];
    for (left, seen, right_rounds) in [(&left[..1], &seen[..1], 2), (&left[..], &seen[..], 2)] {
        let mut plan = client(left, seen);
        plan.right = [local_key("right"), local_key("right-2")][..right_rounds].to_vec();
        plan.right_seen = [remote_key("right"), remote_key("right-2")][..right_rounds].to_vec();
        let pair = run(plan);
        pair.check_children(1);
        assert_eq!(proven(&pair.left.events), ["right", "right-2"]);
        assert_eq!(proven(&pair.right.events).len(), left.len());
    }
    // While the left host uses EAP, the right one goes on with its own rounds.
    let mut plan =
        client(&[local_key("left"), local_eap("laptop")], &[remote_key("left"), remote_eap("laptop")]);
    plan.right.push(local_key("right-2"));
    plan.right_seen.push(remote_key("right-2"));
    let pair = run(plan);
    pair.check_children(1);
    assert_eq!(proven(&pair.left.events), ["right", "right-2"]);
}

/// A peer that leaves out a round, adds one, or begins with another one.
#[test]
fn other_rounds_than_the_configured_ones_are_refused() {
    let two = [remote_key("left"), remote_key("laptop")];
    // One round, by a peer that does not support several.
    check_refused(&run(client(&[local_key("left")], &two)), StateFault::AuthRounds);
    // A third round is announced.
    let three = [local_key("left"), local_key("laptop"), local_key("tablet")];
    check_refused(&run(client(&three, &two)), StateFault::AuthRounds);
    let two_local = [local_key("left"), local_key("laptop")];
    let three_seen = [remote_key("left"), remote_key("laptop"), remote_key("tablet")];
    check_refused(&run(client(&two_local, &three_seen)), StateFault::AuthRounds);
    let swapped = [local_key("laptop"), local_key("left")];
    check_refused(&run(client(&swapped, &two)), StateFault::NoPeer);
    let repeated = [local_key("left"), local_key("left")];
    check_refused(&run(client(&repeated, &two)), StateFault::WrongIdentity);
    // The second round by another method than the configured one.
    let by_eap = [local_key("left"), local_eap("laptop")];
    check_refused(&run(client(&by_eap, &two)), StateFault::AuthMethod);
    let wants_eap = [remote_key("left"), remote_eap("laptop")];
    check_refused(&run(client(&two_local, &wants_eap)), StateFault::AuthMethod);
}

/// With one round configured, the responder does not announce that it supports several.
#[test]
fn an_initiator_with_two_rounds_sends_nothing_to_a_peer_that_supports_one() {
    let two_local = [local_key("left"), local_key("laptop")];
    let pair = run(client(&two_local, &[remote_key("left")]));
    assert_eq!(pair.left.down_reasons(), [DownReason::Fault(StateFault::AuthRounds.into())]);
    assert!(faults(&pair.right.events).is_empty(), "the right host has seen no IKE_AUTH request");
}

#[test]
fn a_wrong_proof_in_any_round_ends_the_ike_sa() {
    let plan = |eap: bool| {
        let second = if eap { local_eap("laptop") } else { local_key("laptop") };
        let seen = if eap { remote_eap("laptop") } else { remote_key("laptop") };
        client(&[local_key("left"), second], &[remote_key("left"), seen])
    };
    for (key, fault) in [
        (("left", "right", "wrong"), StateFault::AuthMismatch),
        (("laptop", "right", "wrong"), StateFault::AuthMismatch),
    ] {
        let mut pair = pair(plan(false));
        let mut keys = Keys::usual();
        keys.shared.insert(0, (key.0, key.1, SecretBytes::new(key.2.as_bytes())));
        pair.left.keys = keys;
        pair.left.initiate(pair.now);
        pair.run();
        check_refused(&pair, fault);
    }
    let mut pair = pair(plan(true));
    let mut keys = Keys::usual();
    keys.passwords[0].1 = SecretBytes::new(b"closed");
    pair.left.keys = keys;
    pair.left.initiate(pair.now);
    pair.run();
    assert!(proven(&pair.right.events).is_empty() && pair.right.children().is_empty());
    assert_eq!(faults(&pair.right.events), [StateFault::EapFailed.into()]);
}

/// The responder leaves out its second round, or repeats its first one.
#[test]
fn a_responder_must_pass_its_rounds_too() {
    for (right, fault) in [
        (vec![local_key("right")], StateFault::AuthRounds),
        (vec![local_key("right"), local_key("right")], StateFault::WrongIdentity),
        (vec![local_key("right"), local_key("right-2"), local_key("right")], StateFault::AuthRounds),
    ] {
        // The right host announces rounds because of its peer.
        let mut plan =
            client(&[local_key("left"), local_key("laptop")], &[remote_key("left"), remote_key("laptop")]);
        plan.right = right;
        plan.right_seen.push(remote_key("right-2"));
        let pair = run(plan);
        assert_eq!(pair.left.down_reasons(), [DownReason::Fault(fault.into())]);
        assert!(proven(&pair.left.events).is_empty());
        assert_eq!(pair.right.ike.status().count(), 0, "the left host has told the right one");
    }
}

#[test]
fn a_peer_that_stops_after_the_first_round_gets_nothing() {
    let mut pair =
        pair(client(&[local_key("left"), local_key("laptop")], &[remote_key("left"), remote_key("laptop")]));
    pair.left.initiate(pair.now);
    pair.deliver_to_right();
    pair.deliver_to_left();
    // The first IKE_AUTH request arrives; the left host says nothing more.
    pair.deliver_to_right();
    assert_eq!(pair.right.sent.len(), 1);
    assert!(proven(&pair.right.events).is_empty() && pair.right.children().is_empty());
    for _ in 0..60 {
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.right.handle_timeouts(pair.now);
    }
    assert_eq!(pair.right.ike.status().count(), 0, "the half-open IKE SA has expired");
    assert!(proven(&pair.right.events).is_empty());
}

#[test]
fn lost_and_repeated_messages_change_nothing() {
    let mut pair =
        pair(client(&[local_key("left"), local_eap("laptop")], &[remote_key("left"), remote_eap("laptop")]));
    pair.left.initiate(pair.now);
    for _ in 0..10 {
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

/// The same device replaces its IKE SA; another device with the same user does not.
#[test]
fn uniqueness_considers_all_rounds() {
    for (second_device, expected) in [("left", 1), ("tablet", 2)] {
        let mut pair = pair(client(
            &[local_key("left"), local_eap("laptop")],
            &[remote_key("left"), remote_eap("laptop")],
        ));
        let mut connections: Vec<_> =
            pair.right.ike.connections().iter().map(|one| (**one).clone()).collect();
        connections[0].unique = Unique::Replace;
        connections[0].remote.id = IdPattern::Any;
        let right = connections.remove(0);
        pair.right.ike.configure(vec![right.into()], &[]);
        pair.left.initiate(pair.now);
        pair.run();
        // As after a restart of the left host, which forgets its IKE SA.
        pair.now = pair.now.after(Duration::from_secs(1));
        let left = with_rounds(
            connection("left", "right"),
            vec![local_key(second_device), local_eap("laptop")],
            vec![remote_key("right")],
        );
        let mut restarted = pair::IkePeer::new(pair::LEFT, 7, left);
        restarted.keys = Keys::usual();
        pair.left = restarted;
        pair.left.initiate(pair.now);
        pair.run();
        assert_eq!(pair.right.ike.status().count(), expected, "{second_device}");
    }
}
