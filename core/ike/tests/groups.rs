//! Groups that an AAA server names: they select the connection of a peer that has passed EAP.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_eap::{
    Authenticator, AuthenticatorStep, EapContext, EapCredentials, EapFault, LocalAuthenticator, Method,
};
use casemate_ike::config::{
    Childless, Connection, EapIdentity, FurtherRounds, Identity, LocalEap, LocalMethod, RemoteAuth,
    RemoteEap, RemoteMethod,
};
use casemate_ike::diagnosis::Explanation;
use casemate_ike::{Credentials, DownReason, EapSession, Event, SharedKeys, StateFault};
use casemate_wire::ike::{Eap, NotifyType};
use pair::{Pair, connection, key, without_certificates};
use std::sync::Arc;

/// A shared key, a password, and the groups of the peer on the AAA server.
struct Server {
    shared: SharedKeys,
    password: SecretBytes,
    groups: Vec<Vec<u8>>,
}

impl Server {
    fn new(groups: &[&str]) -> Box<Self> {
        let groups = groups.iter().map(|group| group.as_bytes().to_vec()).collect();
        Box::new(Self { shared: key(b"a key that both have"), password: SecretBytes::new(b"open"), groups })
    }
}

impl EapCredentials for Server {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        None
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        (identity == b"left").then_some(&self.password)
    }
}

impl Credentials for Server {
    fn shared_key(&self, on: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        self.shared.shared_key(on, local, remote)
    }

    without_certificates!();

    fn eap(&self) -> &dyn EapCredentials {
        self
    }

    fn eap_authenticator(&self, session: &EapSession<'_>) -> Option<Box<dyn Authenticator>> {
        let local = LocalAuthenticator::new(session.identity.clone(), vec![Method::Gtc]);
        Some(Box::new(GroupAuthenticator { local, groups: self.groups.clone() }))
    }
}

/// An authenticator that names groups.
struct GroupAuthenticator {
    local: LocalAuthenticator,
    groups: Vec<Vec<u8>>,
}

impl GroupAuthenticator {
    fn with_groups(&self, mut step: AuthenticatorStep) -> AuthenticatorStep {
        if let AuthenticatorStep::Succeeded(_, done) = &mut step {
            done.groups.clone_from(&self.groups);
        }
        step
    }
}

impl Authenticator for GroupAuthenticator {
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep {
        self.local.start(context)
    }

    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.local.receive(response, context);
        self.with_groups(step)
    }

    fn identity(&self) -> Option<&[u8]> {
        self.local.identity()
    }
}

fn relayed(groups: &[&str]) -> RemoteMethod {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    RemoteMethod::Eap(RemoteEap { identity: EapIdentity::Ike, methods: Vec::new(), groups })
}

/// A connection of the gateway for these groups.
fn gateway(name: &str, groups: &[&str]) -> Connection {
    let mut gateway = connection("right", "left");
    (gateway.name, gateway.remote.method) = (name.into(), relayed(groups));
    gateway
}

/// Connects a peer, which the server says belongs to `member`.
fn connect(member: &[&str], connections: Vec<Connection>) -> Pair {
    let mut left = connection("left", "right");
    left.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Gtc] });
    let mut pair = Pair::new(left, connections[0].clone());
    pair.right.ike.configure(connections.into_iter().map(Arc::new).collect(), &[]);
    pair.left.keys = Server::new(&[]);
    pair.right.keys = Server::new(member);
    pair.right.ike.explain_faults();
    pair.left.initiate(pair.now);
    pair.run();
    pair
}

fn selected(member: &[&str], connections: Vec<Connection>) -> Option<String> {
    let pair = connect(member, connections);
    let selected = pair.right.ike.status().next().map(|status| status.connection.name.clone());
    pair.check_children(usize::from(selected.is_some()));
    selected
}

#[test]
fn the_first_connection_with_a_group_of_the_peer_is_used() {
    let connections = || {
        let (research, sales) = (gateway("research", &["Research"]), gateway("sales", &["Sales", "Support"]));
        vec![research, sales, gateway("later", &["Support"])]
    };
    for (member, expected) in [
        (&["Research"][..], Some("research")),
        (&["Sales"], Some("sales")),
        (&["other", "SUPPORT"], Some("sales")),
        (&["Sales", "Research"], Some("research")),
        (&["Sale"], None),
        (&[""], None),
        (&[], None),
    ] {
        assert_eq!(selected(member, connections()).as_deref(), expected, "{member:?}");
    }
    // A connection without groups accepts every peer.
    let mut with_others = connections();
    with_others.push(gateway("others", &[]));
    assert_eq!(selected(&["Sale"], with_others).as_deref(), Some("others"));
}

#[test]
fn a_peer_without_a_group_is_refused_and_the_log_says_why() {
    let pair = connect(&["Guests"], vec![gateway("research", &["Research"])]);
    assert_eq!(pair.left.down_reasons(), [DownReason::Refused(NotifyType::AUTHENTICATION_FAILED)]);
    assert_eq!(pair.right.down_reasons(), [DownReason::Fault(StateFault::EapFailed.into())]);
    let explained = pair.right.events.iter().any(|event| match event {
        Event::Fault { explanation: Some(explanation), .. } => {
            matches!(**explanation, Explanation::Eap { fault: EapFault::NoGroup, .. })
        }
        _ => false,
    });
    assert!(explained, "{:?}", pair.right.events);
}

/// Neither side has proved to a connection what it demands beside the groups.
#[test]
fn a_connection_with_another_proof_is_not_selected() {
    let changes: [fn(&mut Connection); 6] = [
        |other| other.local.method = LocalMethod::Certificate(Vec::new()),
        |other| other.local.id = None,
        |other| other.remote.method = RemoteMethod::SharedKey,
        |other| {
            let RemoteMethod::Eap(eap) = &mut other.remote.method else { panic!() };
            eap.identity = EapIdentity::Fixed(b"left".into());
        },
        |other| {
            let again = RemoteAuth { id: other.remote.id.clone(), method: RemoteMethod::SharedKey };
            other.further_rounds = FurtherRounds::new(Vec::new(), vec![again]);
        },
        |other| other.childless = Childless::Force,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut other = gateway("sales", &["Sales"]);
        change(&mut other);
        assert_eq!(selected(&["Sales"], vec![gateway("research", &["Research"]), other]), None, "{number}");
    }
}

/// As the initiator, this host would ask no server for the groups of the responder.
#[test]
fn a_connection_with_groups_is_started_by_the_peer() {
    let mut both = gateway("both", &["Research"]);
    both.local.method = LocalMethod::Eap(LocalEap { identity: None, methods: vec![Method::Tls] });
    assert!(both.is_started_by_peer());
    both.remote.method = relayed(&[]);
    assert!(!both.is_started_by_peer());
}
