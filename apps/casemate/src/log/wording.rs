//! Values of a configuration in the words of the configuration file.

use crate::printable;
use casemate_eap::Method;
use casemate_ike::config::{
    AddrPattern, ChildConfig, Connection, IdPattern, Identity, IdentityKind, LocalMethod, RemoteMethod,
};
use casemate_ike::diagnosis::Proposal;
use casemate_ike::{TrafficSelector, TrafficSelectorTemplate, UserIdentity};
use casemate_strongswan::notation;
use casemate_wire::ike::AuthMethod;
use std::fmt::Display;

/// `ppk_id` of a connection.
pub fn ppk_id(connection: &Connection) -> String {
    match &connection.ppk.id {
        Some(id) => format!("`{}`", octets(id.octets())),
        None => "(none)".into(),
    }
}

/// Octets that are text as a rule, such as a PPK_ID.
pub fn octets(octets: &[u8]) -> String {
    printable::line(&String::from_utf8_lossy(octets)).to_string()
}

/// Joins the items of a list with commas.
pub fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Addresses, as in `remote_addrs`.
pub fn addrs(patterns: &[AddrPattern]) -> String {
    list(patterns.iter().map(|pattern| match pattern {
        AddrPattern::Any => "%any".to_owned(),
        AddrPattern::Range(range) if pattern.is_single() => range.first().to_string(),
        AddrPattern::Range(range) => range.to_string(),
        AddrPattern::Host(name) => name.to_string(),
    }))
}

/// Accepted identities, as in `remote.id`.
pub fn id_pattern(pattern: &IdPattern) -> String {
    match pattern {
        IdPattern::Any => "%any".into(),
        IdPattern::Exact(id) => id.to_string(),
        IdPattern::Suffix(IdentityKind::Email, suffix) => format!("*@{}", suffix.trim_start_matches('@')),
        IdPattern::Suffix(_, suffix) => format!("*{suffix}"),
        IdPattern::DnPattern(text) => text.clone(),
    }
}

/// Identity of this host, as in `local.id`.
pub fn local_id(connection: &Connection) -> String {
    match (&connection.local.id, &connection.local.method) {
        (Some(id), _) => id.to_string(),
        (None, LocalMethod::Certificate(_)) => "the subject of the certificate (no local.id)".into(),
        (None, LocalMethod::SharedKey) => "the address of this host (no local.id)".into(),
        (None, LocalMethod::Eap(_)) => {
            "the subject of the certificate in local.certs, or the address of this host (no local.id)".into()
        }
    }
}

/// An identity of a peer.
pub fn received_id(id: Option<&Identity>) -> String {
    id.map_or_else(|| "an identity that is too long to show or of an unknown type".into(), quoted)
}

/// An EAP identity in quotes.
pub fn eap_identity(identity: &[u8]) -> String {
    format!("`{}`", printable::line(&eap_identity_text(identity)))
}

/// The user of a peer that has passed EAP.
pub fn user(user: &UserIdentity) -> String {
    match user {
        UserIdentity::Proven(identity) => format!("EAP identity {}", eap_identity(identity)),
        UserIdentity::Claimed { identity, .. } => {
            format!("unproven EAP identity {}", eap_identity(identity))
        }
    }
}

/// An EAP identity as text, not escaped. A distinguished name in DER has its usual form.
pub fn eap_identity_text(identity: &[u8]) -> String {
    match casemate_pki::is_der_sequence(identity) {
        true => Identity::Dn(identity.into()).to_string(),
        false => String::from_utf8_lossy(identity).into_owned(),
    }
}

pub(super) fn quoted(id: &Identity) -> String {
    format!("`{id}`")
}

/// Authentication of this host, as in `local.auth`.
pub fn local_auth(connection: &Connection) -> String {
    match &connection.local.method {
        LocalMethod::SharedKey => "psk".into(),
        LocalMethod::Certificate(_) => "pubkey".into(),
        LocalMethod::Eap(eap) => eap_auth(&eap.methods),
    }
}

/// Accepted authentication of the peer, as in `remote.auth`.
pub fn remote_auth(connection: &Connection) -> String {
    match &connection.remote.method {
        RemoteMethod::SharedKey => "psk".into(),
        RemoteMethod::Certificate(_) => "pubkey".into(),
        RemoteMethod::Any(_) => "any".into(),
        RemoteMethod::Eap(eap) if eap.is_relayed() => "eap-radius".into(),
        RemoteMethod::Eap(eap) => eap_auth(&eap.methods),
    }
}

/// The keyword of EAP with these methods.
fn eap_auth(methods: &[Method]) -> String {
    match methods {
        [method] => method.to_string(),
        _ => "eap".into(),
    }
}

/// How a peer proved its identity.
pub fn auth_method(method: Option<AuthMethod>) -> &'static str {
    match method {
        None => "EAP (it sent no AUTH payload)",
        Some(AuthMethod::SHARED_KEY) => "a pre-shared key (psk)",
        Some(_) => "a signature (pubkey)",
    }
}

/// Traffic selectors.
pub fn traffic(selectors: &[TrafficSelector]) -> String {
    if selectors.is_empty() { "nothing".into() } else { list(selectors) }
}

/// Configured traffic selectors, as in `local_ts`.
pub fn templates(selectors: &[TrafficSelectorTemplate]) -> String {
    list(selectors.iter().map(|template| match template.addrs {
        Some(addrs) => TrafficSelector { addrs, proto: template.proto, ports: template.ports }.to_string(),
        None => {
            // The addresses only serve to write the protocol and ports.
            let addrs = casemate_sa::AddrRange::ANY_V4;
            let text = TrafficSelector { addrs, proto: template.proto, ports: template.ports }.to_string();
            text.replacen(&addrs.to_string(), "dynamic", 1)
        }
    }))
}

/// IKE proposals of a connection.
pub fn ike_proposals(connection: &Connection) -> Vec<Proposal> {
    connection.proposals.iter().map(Proposal::from).collect()
}

/// ESP or AH proposals of a child. `with_kex` is false for the first Child SA of an IKE SA, whose exchange
/// has no key exchange of its own.
pub fn child_proposals(child: &ChildConfig, with_kex: bool) -> Vec<Proposal> {
    child.proposals.iter().map(|proposal| Proposal::of_child(proposal, with_kex)).collect()
}

/// A list of proposals, as in `proposals` or `esp_proposals`.
pub fn proposals(list: &[Proposal]) -> String {
    if list.is_empty() { "nothing".into() } else { notation::proposals(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eap_identities_are_text() {
        let name =
            casemate_strongswan::parse_identity("C=CH, O=strongSwan Project, CN=carol").unwrap().unwrap();
        assert_eq!(eap_identity(&name.to_eap()), "`C=CH, O=strongSwan Project, CN=carol`");
        assert_eq!(eap_identity(b"carol\x1b[2J"), "`carol\\u{1b}[2J`");
        assert_eq!(eap_identity_text(b"DOMAIN\\carol"), "DOMAIN\\carol");
    }
}
