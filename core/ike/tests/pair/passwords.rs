//! Credentials of hosts that use EAP: passwords, and an AAA server that the test has answer.

use crate::pair::{key, without_certificates};
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_eap::{
    Authenticated, Authenticator, AuthenticatorStep, EapContext, EapCredentials, LocalAuthenticator, Method,
};
use casemate_ike::config::{Connection, EapIdentity, Identity, RemoteEap, RemoteMethod};
use casemate_ike::{Credentials, EapSession, SharedKeys};
use casemate_wire::ike::Eap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared key for the responder, and passwords for EAP identities.
pub(crate) struct Passwords {
    pub(crate) shared: SharedKeys,
    pub(crate) passwords: Vec<(&'static str, SecretBytes)>,
    /// Server for relayed conversations.
    pub(crate) relay: Option<Relay>,
}

impl Passwords {
    pub(crate) fn new(passwords: &[(&'static str, &str)]) -> Box<Self> {
        let passwords = passwords.iter().map(|(id, text)| (*id, SecretBytes::new(text.as_bytes())));
        Box::new(Self { shared: key(b"a key that both have"), passwords: passwords.collect(), relay: None })
    }
}

impl EapCredentials for Passwords {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&casemate_legacy::LEGACY)
    }

    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        self.passwords.iter().find(|(id, _)| id.as_bytes() == identity).map(|(_, password)| password)
    }
}

impl Credentials for Passwords {
    fn shared_key(&self, on: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        self.shared.shared_key(on, local, remote)
    }

    #[cfg(feature = "ppk")]
    fn ppk(&self, id: &[u8]) -> Option<&SecretBytes> {
        self.shared.ppk(id)
    }

    #[cfg(feature = "ppk")]
    fn has_ppks(&self) -> bool {
        self.shared.has_ppks()
    }

    without_certificates!();

    fn eap(&self) -> &dyn EapCredentials {
        self
    }

    fn eap_authenticator(&self, session: &EapSession<'_>) -> Option<Box<dyn Authenticator>> {
        let relay = self.relay.as_ref()?;
        Some(Box::new(RelayedPeer {
            local: LocalAuthenticator::new(session.identity.clone(), vec![Method::Gtc]),
            asked: relay.asked.clone(),
            addrs: relay.addrs.clone(),
            user: relay.user,
            answer: None,
        }))
    }
}

/// A peer that is authenticated by EAP.
pub(crate) fn by_eap(identity: EapIdentity, methods: Vec<Method>) -> RemoteMethod {
    RemoteMethod::Eap(RemoteEap { identity, methods, groups: Vec::new() })
}

/// A server that the test has answer. It chooses GTC.
#[derive(Default)]
pub(crate) struct Relay {
    /// Number of responses of the peer, that to the identity request included.
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) addrs: Vec<IpAddr>,
    pub(crate) user: Answered,
}

/// What is known of the user after the server has accepted the peer.
#[derive(Clone, Copy, Default)]
#[allow(dead_code, reason = "most tests need no names of a server")]
pub(crate) enum Answered {
    /// The method has authenticated the EAP identity.
    #[default]
    Identity,
    /// The server names the user.
    Name(&'static str),
    /// The method may have authenticated another identity, and the server names no user.
    Unproven,
    /// The same method, and a server that names the user.
    NameInTunnel(&'static str),
}

impl Answered {
    fn complete(self, done: &mut Authenticated) {
        let (Self::Name(name) | Self::NameInTunnel(name)) = self else {
            done.is_identity_proven = matches!(self, Self::Identity);
            return;
        };
        done.user = Some(name.into());
        done.is_identity_proven = matches!(self, Self::Name(_));
    }
}

struct RelayedPeer {
    local: LocalAuthenticator,
    asked: Arc<AtomicUsize>,
    addrs: Vec<IpAddr>,
    user: Answered,
    answer: Option<AuthenticatorStep>,
}

impl RelayedPeer {
    fn delay(&mut self, mut step: AuthenticatorStep) -> AuthenticatorStep {
        if let AuthenticatorStep::Succeeded(_, done) = &mut step {
            done.addrs.clone_from(&self.addrs);
            self.user.complete(done);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answer = Some(step);
        AuthenticatorStep::Pending
    }
}

impl Authenticator for RelayedPeer {
    fn start(&mut self, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.local.start(context);
        self.delay(step)
    }

    fn receive(&mut self, response: &Eap<'_>, context: &mut EapContext<'_>) -> AuthenticatorStep {
        let step = self.local.receive(response, context);
        self.delay(step)
    }

    fn poll(&mut self, _: &mut EapContext<'_>) -> AuthenticatorStep {
        self.answer.take().unwrap()
    }

    fn identity(&self) -> Option<&[u8]> {
        self.local.identity()
    }
}
