//! Warnings about passwords that are not those of one user.

use super::problem::{Location, Problems};
use super::{Config, KeyPurpose};
use casemate_ike::config::{Connection, EapIdentity, RemoteMethod};
use std::sync::Arc;

/// Warns of passwords without `id`, where there are several users. `places` are the names and locations of
/// the sections of `config.shared_keys`.
pub(super) fn warn(config: &Config, places: &[(String, Location)], problems: &Problems) {
    let passwords =
        || config.shared_keys.iter().zip(places).filter(|(key, _)| key.purpose == KeyPurpose::Eap);
    let has_users =
        config.connections.iter().any(asks_for_users) || passwords().any(|(key, _)| !key.ids.is_empty());
    for (_, (name, location)) in passwords().filter(|(key, _)| has_users && key.ids.is_empty()) {
        let why = "without `id`, it is the password of every user name that no other section has: `id` with \
                   a user name was expected";
        problems.warn(location, format!("{name}: {why}"));
    }
}

/// Whether a round of the connection asks each peer for its user name, and verifies the password here.
fn asks_for_users(connection: &Arc<Connection>) -> bool {
    let remotes = std::iter::once(&connection.remote).chain(&connection.further_rounds.remote);
    remotes.map(|remote| &remote.method).any(|method| match method {
        RemoteMethod::Eap(eap) => eap.identity == EapIdentity::Asked && !eap.is_relayed(),
        _ => false,
    })
}
