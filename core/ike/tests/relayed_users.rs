//! Users whom an AAA server has authenticated: whose IKE SAs and virtual addresses a peer takes over depends
//! on what is proved, and not on the EAP identity that it claims.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "pair/passwords.rs"]
mod passwords;

use casemate_eap::{EapFault, Method};
use casemate_ike::config::{
    CloseAction, Connection, EapIdentity, IdPattern, Identity, LocalEap, LocalMethod, SERVER_POOL, Unique,
};
use casemate_ike::diagnosis::Explanation;
use casemate_ike::{DownReason, Event, IkeState, UserIdentity};
use pair::{IkePeer, LEFT, Pair, with_pool};
use passwords::{Answered, Passwords, Relay, by_eap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const CLAIMED: &str = "carol";

/// The gateway of the test, with two addresses, and a client that claims to be `carol`.
struct Logins {
    pair: Pair,
    client: Connection,
    count: u64,
}

impl Logins {
    fn new(change: impl FnOnce(&mut Connection)) -> Self {
        let (mut client, mut gateway, pool) = with_pool("10.9.0.2", &["0.0.0.0"]);
        let identity = Some(CLAIMED.into());
        client.local.method = LocalMethod::Eap(LocalEap { identity, methods: vec![Method::Gtc] });
        gateway.remote.method = by_eap(EapIdentity::Asked, Vec::new());
        (client.resumption, gateway.resumption) = (true, true);
        client.dpd_delay = Some(Duration::from_secs(10));
        client.keying_tries = 0;
        Arc::make_mut(&mut client.children[0]).dpd_action = CloseAction::Restart;
        change(&mut gateway);
        let mut pair = Pair::new(client.clone(), gateway);
        pair.right.add_pool(&pool);
        pair.right.ike.explain_faults();
        Self { pair, client, count: 0 }
    }

    /// A client without any state logs in, with INITIAL_CONTACT, and the server says this of its user. The
    /// other clients are silent.
    fn log_in(&mut self, user: Answered) {
        self.log_in_with(Relay { user, ..Relay::default() });
    }

    fn log_in_with(&mut self, relay: Relay) {
        let Self { pair, client, count } = self;
        *count += 1;
        pair.now = pair.now.after(Duration::from_secs(1));
        pair.left = IkePeer::new(LEFT, 40 + *count, client.clone());
        pair.left.keys = Passwords::new(&[(CLAIMED, "sesame")]);
        let mut keys = Passwords::new(&[(CLAIMED, "sesame")]);
        keys.relay = Some(relay);
        pair.right.keys = keys;
        pair.left.initiate(pair.now);
        for _ in 0..3 {
            pair.run();
            let half_open = pair.right.ike.status().find(|sa| sa.state == IkeState::Connecting);
            if let Some(sa) = half_open {
                pair.right
                    .with_context(pair.now, |ike, host, context| ike.continue_eap(sa.id, host, context));
            }
        }
        pair.run();
    }

    /// The users of the gateway's IKE SAs, and their virtual addresses.
    fn known(&self) -> Vec<(UserIdentity, Vec<IpAddr>)> {
        let of = |sa: casemate_ike::IkeStatus| (sa.eap_identity.unwrap(), sa.virtual_addrs);
        let established = self.pair.right.ike.status().filter(|sa| sa.state == IkeState::Established);
        established.map(of).collect()
    }

    fn addrs(&self) -> Vec<String> {
        self.known().into_iter().flat_map(|(_, addrs)| addrs).map(|addr| addr.to_string()).collect()
    }

    /// Why the last login has failed.
    fn eap_fault(&self) -> Option<EapFault> {
        self.pair.right.events.iter().rev().find_map(|event| match event {
            Event::Fault { explanation: Some(explanation), .. } => match **explanation {
                Explanation::Eap { fault, .. } => Some(fault),
                _ => None,
            },
            _ => None,
        })
    }
}

const ALICE: Answered = Answered::NameInTunnel("alice");
const BOB: Answered = Answered::NameInTunnel("bob");
const FIRST: &str = "10.9.0.1";
const SECOND: &str = "10.9.0.2";

#[test]
fn the_user_of_the_server_counts_and_not_the_claimed_identity() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        let mut logins = Logins::new(|gateway| gateway.unique = unique);
        logins.log_in(ALICE);
        logins.log_in(BOB);
        assert_eq!(logins.addrs(), [FIRST, SECOND], "{unique:?}: {:?}", logins.pair.right.down_reasons());
        // Alice begins again.
        logins.log_in(ALICE);
        assert_eq!(logins.pair.right.down_reasons(), [DownReason::InitialContact], "{unique:?}");
        let mut addrs = logins.addrs();
        addrs.sort();
        assert_eq!(addrs, [FIRST, SECOND], "{unique:?}");
        let users: Vec<_> = logins.known().into_iter().map(|(user, _)| user).collect();
        let named = |name: &str| UserIdentity::Proven(name.into());
        assert_eq!(users, [named("bob"), named("alice")], "{unique:?}");
    }
}

#[test]
fn a_method_that_authenticates_the_identity_needs_no_name_of_the_server() {
    let mut logins = Logins::new(|_| {});
    logins.log_in(Answered::Identity);
    logins.log_in(Answered::Identity);
    assert_eq!(logins.addrs(), [FIRST]);
    assert_eq!(logins.known()[0].0, UserIdentity::Proven(CLAIMED.into()));
    // The server calls another peer so.
    logins.log_in(Answered::Name("alice"));
    assert_eq!(logins.addrs(), [FIRST, SECOND]);
    logins.log_in(Answered::NameInTunnel(CLAIMED));
    assert_eq!(logins.addrs(), [SECOND, FIRST]);
}

#[test]
fn a_claimed_identity_replaces_no_ike_sa_and_takes_over_no_address() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        for former in [Answered::Identity, Answered::Unproven] {
            let mut logins = Logins::new(|gateway| gateway.unique = unique);
            logins.log_in(former);
            logins.log_in(Answered::Unproven);
            assert_eq!(logins.addrs(), [FIRST, SECOND], "{unique:?}");
            assert_eq!(logins.pair.right.down_reasons(), [], "{unique:?}");
            let (user, _) = logins.known().remove(1);
            assert_eq!((user.proven(), user.claimed()), (None, Some(CLAIMED.as_bytes())));
            // Nor does a proven user take over anything of it.
            logins.log_in(Answered::Name("dave"));
            assert_eq!(logins.addrs(), [FIRST, SECOND], "both addresses are in use");
        }
    }
}

#[test]
fn an_assigned_address_of_another_login_is_refused_without_a_proven_user() {
    let assigned: IpAddr = "10.77.0.9".parse().unwrap();
    for (user, expected) in [(Answered::Unproven, 1), (ALICE, 2)] {
        let mut logins = Logins::new(|gateway| {
            gateway.pools = vec![SERVER_POOL.into()];
            gateway.unique = Unique::Never;
        });
        for _ in 0..2 {
            logins.log_in_with(Relay { user, addrs: vec![assigned], ..Relay::default() });
        }
        assert_eq!(logins.addrs().len(), expected);
    }
}

/// The keys of the earlier IKE SA prove that it is the same client.
#[test]
fn a_claimed_identity_resumes_its_own_session_with_its_address() {
    let mut logins = Logins::new(|_| {});
    logins.log_in(Answered::Unproven);
    let before = logins.known();
    let pair = &mut logins.pair;
    for _ in 0..200 {
        pair.now = pair.now.after(Duration::from_secs(1));
        let now = pair.now;
        for host in [&mut pair.left, &mut pair.right] {
            host.handle_timeouts(now);
            host.sent.clear();
        }
        if !pair.left.down_reasons().is_empty() {
            break;
        }
    }
    pair.advance(Duration::from_secs(70));
    assert!(pair.right.ike.status().all(|sa| sa.is_resumed));
    assert_eq!(logins.known(), before, "the same login, with the same address");
}

/// A connection for one user only.
#[test]
fn a_connection_for_one_user_accepts_no_other_name_and_no_claim() {
    let by_eap_id = |gateway: &mut Connection| {
        gateway.remote.method = by_eap(EapIdentity::Fixed(CLAIMED.into()), Vec::new());
        gateway.remote.id = IdPattern::Any;
    };
    let by_id = |gateway: &mut Connection| {
        gateway.remote.method = by_eap(EapIdentity::Ike, Vec::new());
        gateway.remote.id = IdPattern::Exact(Identity::Fqdn(CLAIMED.into()));
    };
    let changes: [fn(&mut Connection); 2] = [by_eap_id, by_id];
    for (number, change) in changes.into_iter().enumerate() {
        for (user, expected) in [
            (Answered::Identity, None),
            (Answered::Name("Carol of Sales"), None),
            (Answered::NameInTunnel(CLAIMED), None),
            (BOB, Some(EapFault::OtherIdentity)),
            (Answered::Unproven, Some(EapFault::UnprovenIdentity)),
        ] {
            let mut logins = Logins::new(change);
            logins.client.local.id = Some(Identity::Fqdn(CLAIMED.into()));
            logins.log_in(user);
            assert_eq!(logins.eap_fault(), expected, "{number}");
            assert_eq!(logins.known().len(), usize::from(expected.is_none()), "{number}");
        }
    }
}

/// A pattern is for many users, who may have other names on the server.
#[test]
fn a_connection_for_many_users_accepts_a_claim() {
    let mut logins = Logins::new(|gateway| {
        gateway.remote.method = by_eap(EapIdentity::Ike, Vec::new());
        gateway.remote.id = IdPattern::Any;
    });
    logins.client.local.id = Some(Identity::Fqdn(CLAIMED.into()));
    logins.log_in(Answered::Unproven);
    assert_eq!(logins.addrs(), [FIRST]);
}
