//! Warnings about connections that cannot authenticate with the keys and certificates of a configuration.
//!
//! Such a connection is no error: the others work, and a reload can add the key later.

use super::{Keyring, OwnCert};
use casemate::peer_name;
use casemate_ike::Credentials;
use casemate_ike::config::{AddrPattern, Connection, Identity, LocalMethod, RemoteMethod};

impl Keyring {
    /// A line for each connection that has no secret for its two sides, or no certificate for its identity.
    pub fn warnings<'c>(&self, connections: impl IntoIterator<Item = &'c Connection>) -> Vec<String> {
        let warnings = |connection| [self.secret_warning(connection), self.certificate_warning(connection)];
        connections.into_iter().flat_map(warnings).flatten().collect()
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

    fn certificate_warning(&self, connection: &Connection) -> Option<String> {
        let LocalMethod::Certificate(names) = &connection.local.method else { return None };
        let id = connection.local.id.as_ref();
        let of_connection = |own: &&OwnCert| names.iter().any(|name| own.path.as_os_str() == name.as_str());
        let name = &connection.name;
        if self.own_key(connection, &[]).is_none() {
            let suitable = id.map_or(String::new(), |id| format!(" that contains the identity {id}"));
            return Some(format!(
                "connection {name}: a certificate{suitable} and its private key were expected in x509 and \
                 private"
            ));
        }
        // No certificate contains such an identity; the peer may accept it all the same.
        let id = id.filter(|id| peer_name(id).is_some())?;
        let mut named = self.own.0.iter().filter(of_connection);
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
