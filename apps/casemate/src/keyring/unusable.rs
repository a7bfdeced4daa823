//! Warnings about connections that cannot authenticate with the keys and certificates of a configuration.
//!
//! Such a connection is no error: the others work, and a reload can add the key later.

use super::own::is_named;
use super::{Keyring, OwnCert};
use crate::log::wording;
use casemate::peer_name;
use casemate_eap::{EapCredentials, Method};
use casemate_ike::Credentials;
use casemate_ike::config::{
    AddrPattern, Connection, EapIdentity, Identity, LocalMethod, RemoteEap, RemoteMethod,
};
use std::borrow::Cow;
use std::sync::Arc;

impl Keyring {
    /// A line for each connection that has no secret for its two sides, or no certificate for its identity.
    pub fn warnings<'c>(&self, connections: impl IntoIterator<Item = &'c Connection>) -> Vec<String> {
        let warnings = |connection: &Connection| {
            [
                self.secret_warning(connection),
                self.certificate_warning(connection),
                self.password_warning(connection),
                self.usim_warning(connection),
            ]
        };
        let mut all = Vec::new();
        for connection in connections {
            for warning in in_rounds(connection).flat_map(|round| warnings(&round)).flatten() {
                if !all.contains(&warning) {
                    all.push(warning);
                }
            }
        }
        all
    }

    fn secret_warning(&self, connection: &Connection) -> Option<String> {
        let is_needed = connection.local.method == LocalMethod::SharedKey
            || connection.remote.method == RemoteMethod::SharedKey;
        let local = local_identity(connection);
        if !is_needed || self.shared.may_suit(local.as_ref(), &connection.remote.id) {
            return None;
        }
        let local = local.map_or("this host".into(), |id| id.to_string());
        let remote = connection.remote.id.exact().map_or("its peers".into(), ToString::to_string);
        Some(format!(
            "connection {}: no secret for {local} and {remote}: a section `ike` in `secrets` with these \
             identities, or without any, was expected",
            connection.name
        ))
    }

    /// A password is needed for our own EAP identity, and for that of a peer if the configuration names it.
    fn password_warning(&self, connection: &Connection) -> Option<String> {
        let names_no_user = |eap: &RemoteEap| match eap.identity {
            EapIdentity::Fixed(_) => false,
            EapIdentity::Ike => connection.remote.id.exact().is_none(),
            EapIdentity::Asked => true,
        };
        let lets_users_in = match &connection.remote.method {
            RemoteMethod::Eap(eap) => is_user_of(eap) && names_no_user(eap),
            _ => false,
        };
        if lets_users_in && self.eap.is_empty() {
            return Some(format!(
                "connection {}: no user has a password: a section `eap` in `secrets` was expected for each",
                connection.name
            ));
        }
        let is_server = self.eap_subject(connection).is_some();
        let mut identities = eap_identities(connection, is_server, needs_password);
        let missing = identities.find(|identity| self.eap.password(identity).is_none())?;
        Some(format!(
            "connection {}: no password for the EAP identity {}: a section `eap` in `secrets` with this `id` \
             was expected",
            connection.name,
            wording::eap_identity(&missing)
        ))
    }

    /// The keys of a USIM are needed for our own EAP identity, and for that of a peer if the configuration
    /// names it.
    fn usim_warning(&self, connection: &Connection) -> Option<String> {
        let mut missing =
            eap_identities(connection, false, |methods| methods.iter().all(|method| method.uses_usim()));
        let missing = missing.find(|identity| self.eap.subscriber(identity).is_none())?;
        Some(format!(
            "connection {}: no keys of a USIM for the EAP identity {}: a section `eap` in `secrets` with \
             this \
             `id` and K of 16 bytes, or K and OPc of 32 bytes, was expected",
            connection.name,
            wording::eap_identity(&missing)
        ))
    }

    fn certificate_warning(&self, connection: &Connection) -> Option<String> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let id = connection.local.id.as_ref();
        let of_connection = |own: &&Arc<OwnCert>| is_named(names, &own.path);
        let name = &connection.name;
        let own = self.own_key(connection, &[]);
        if own.is_none() {
            let suitable = id.map_or(String::new(), |id| format!(" that contains the identity {id}"));
            return Some(format!(
                "connection {name}: a certificate{suitable} and its private key were expected in x509 and \
                 private"
            ));
        }
        // No certificate contains such an identity; the peer may accept it all the same.
        let id = id.filter(|id| peer_name(id).is_some())?;
        // A raw key contains no identity.
        own.filter(|own| !own.chain.is_empty())?;
        let mut named = self.own.certs.iter().filter(of_connection);
        let is_missing = !names.is_empty() && !named.any(|own| own.contains_identity(id));
        is_missing.then(|| {
            format!(
                "connection {name}: {} does not contain the identity {id}, so peers will refuse it: another \
                 local.id or certificate was expected",
                names.join(", ")
            )
        })
    }
}

/// The connection in its rounds of authentication: first all of this host, then all of the peer.
fn in_rounds(connection: &Connection) -> impl Iterator<Item = Cow<'_, Connection>> {
    connection.in_local_rounds().chain(connection.in_remote_rounds().skip(1))
}

/// Whether a peer proves a password to this host, and not to an AAA server.
fn is_user_of(eap: &RemoteEap) -> bool {
    !eap.is_relayed() && needs_password(&eap.methods)
}

/// Whether each method proves a password.
fn needs_password(methods: &[Method]) -> bool {
    !methods.iter().any(|method| method.proves_certificate())
        && !methods.iter().all(|method| method.uses_usim())
}

/// Our own EAP identity and that of the peer, as far as the configuration names them, if their methods are of
/// this kind. `is_server`: this host proves a certificate, as the responder of TLS does.
fn eap_identities(
    connection: &Connection,
    is_server: bool,
    is_of_kind: impl Fn(&[Method]) -> bool,
) -> impl Iterator<Item = Vec<u8>> {
    let own = match &connection.local.method {
        LocalMethod::Eap(eap) if !is_server && is_of_kind(&eap.methods) => {
            eap.identity.clone().or_else(|| local_identity(connection).map(|id| id.to_eap()))
        }
        _ => None,
    };
    let peer = match &connection.remote.method {
        RemoteMethod::Eap(eap) if !eap.is_relayed() && is_of_kind(&eap.methods) => match &eap.identity {
            EapIdentity::Fixed(identity) => Some(identity.clone()),
            EapIdentity::Ike => connection.remote.id.exact().map(Identity::to_eap),
            EapIdentity::Asked => None,
        },
        _ => None,
    };
    own.into_iter().chain(peer)
}

/// The identity of this host: the configured one, or else its only address.
fn local_identity(connection: &Connection) -> Option<Identity> {
    let address = || match connection.local_addrs.as_slice() {
        [AddrPattern::Range(range)] if range.first() == range.last() => {
            Some(Identity::Address(range.first()))
        }
        _ => None,
    };
    connection.local.id.clone().or_else(address)
}
