//! The sections `local` and `remote`: how each side authenticates itself.

use super::credential_rules::{OwnSignature, PeerConditions, Revocation};
use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::signature::{self, Auth, SignatureRules};
use super::token;
use super::value::{self, Parsed, choice};
use casemate_ike::config::{
    EapIdentity, IdPattern, LocalAuth, LocalEap, LocalMethod, RemoteAuth, RemoteEap, RemoteMethod,
};
use casemate_pki::PolicyOid;
use std::path::{Path, PathBuf};

/// Warning for a peer whose authentication method is not given, with the next step.
pub(super) const ANY_PROOF: &str = "any pre-shared key and any trusted certificate of the peer is accepted; \
     set `auth` of `remote` to `pubkey` or `psk`";

const EAP_ID_WITHOUT_EAP: &str = "it applies to EAP only: auth = eap was expected beside it";
const AAA_ID_WITHOUT_TLS: &str = "it applies to EAP with TLS only: auth = eap-tls was expected beside it";
const ONLY_SERVERS_KNOW_GROUPS: &str = "only a RADIUS server names groups of the peer, because attribute \
     certificates are not implemented: auth = eap-radius was expected with it";
const NO_SOURCE_OF_GROUPS: &str = "no peer would be accepted, because no attribute of the RADIUS server \
     names groups: class_group = yes, or filter_id = yes, was expected in charon.plugins.eap-radius";

pub(super) const LOCAL: Schema = Schema {
    keys: &[
        ("round", Rule::Read),
        ("certs", Rule::Read),
        ("pubkeys", Rule::Read),
        ("auth", Rule::Read),
        ("id", Rule::Read),
        ("eap_id", Rule::Read),
        ("aaa_id", Rule::Read),
        ("xauth_id", Rule::Refused("XAuth is a part of IKEv1, which is not implemented")),
    ],
    sections: &["cert"],
};

pub(super) const REMOTE: Schema = Schema {
    keys: &[
        ("round", Rule::Read),
        ("id", Rule::Read),
        ("eap_id", Rule::Read),
        ("groups", Rule::Read),
        ("cert_policy", Rule::Read),
        ("certs", Rule::Read),
        ("cacerts", Rule::Read),
        ("ca_id", Rule::Read),
        ("pubkeys", Rule::Read),
        ("revocation", Rule::Read),
        ("auth", Rule::Read),
    ],
    sections: &["cert", "cacert"],
};

/// A section that names a certificate in a file or on a token; also `cacert` of an authority.
pub(super) const FILE: Schema = Schema {
    keys: &[("file", Rule::Read), ("handle", Rule::Read), ("slot", Rule::Read), ("module", Rule::Read)],
    sections: &[],
};

/// Where a section of a round belongs.
#[derive(Clone, Copy)]
pub(super) struct RoundContext<'c> {
    /// Name of the connection.
    pub(super) connection: &'c str,
    /// Number of the round, from 0.
    pub(super) round: usize,
    /// The directory of the configuration file.
    pub(super) directory: &'c Path,
    /// Whether AAA servers name groups of peers.
    pub(super) has_groups: bool,
    pub(super) problems: &'c Problems,
}

/// Sorts sections of one side by `round`, as strongSwan does: a section without the key is as one with 0, and
/// equal sections stay in their order.
pub(super) fn sort_rounds<'r, 't>(
    sections: Vec<Resolved<'r, 't>>,
    schema: &Schema,
    problems: &Problems,
) -> Vec<Resolved<'r, 't>> {
    let number = |section: &Resolved<'_, '_>| {
        Keys::new(section, schema, problems).get("round", value::parse_number::<u32>).unwrap_or(0)
    };
    let mut numbered: Vec<_> = sections.into_iter().map(|section| (number(&section), section)).collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, section)| section).collect()
}

/// Reads `local`. Without the section, Casemate signs with any certificate.
pub(super) fn local(
    resolved: Option<&Resolved<'_, '_>>,
    context: RoundContext<'_>,
) -> (LocalAuth, OwnSignature) {
    let RoundContext { connection, round, directory, problems, .. } = context;
    let mut own = OwnSignature {
        connection: connection.into(),
        round,
        certs: Vec::new(),
        pubkeys: Vec::new(),
        signatures: SignatureRules::default(),
        aaa_id: None,
    };
    let Some(resolved) = resolved else {
        return (LocalAuth { id: None, method: certificate(&own) }, own);
    };
    let keys = Keys::new(resolved, &LOCAL, problems);
    own.certs = files(&keys, "certs", &directory.join("x509"));
    own.certs.extend(file_sections(resolved, "cert", problems));
    own.pubkeys = files(&keys, "pubkeys", &directory.join("pubkey"));
    let eap_id = keys.get("eap_id", eap_identity).flatten();
    let auth = keys.get("auth", signature::auth);
    if keys.has("eap_id") && !matches!(auth, Some(Auth::Eap(_))) {
        eap_id_without_eap(&keys, auth.is_none());
    }
    own.aaa_id = keys.get("aaa_id", signature::aaa_id);
    if own.aaa_id.is_some() && !auth.as_ref().is_some_and(Auth::uses_tls) {
        keys.error("aaa_id", AAA_ID_WITHOUT_TLS);
    }
    let method = match auth {
        Some(Auth::Eap(methods)) => {
            let methods = signature::with_certificate(methods, !own.certs.is_empty());
            LocalMethod::Eap(LocalEap { identity: eap_id, methods })
        }
        Some(Auth::EapRadius) => {
            keys.error("auth", "eap-radius authenticates peers: eap was expected");
            LocalMethod::SharedKey
        }
        Some(Auth::SharedKey) => {
            if !own.certs.is_empty() || !own.pubkeys.is_empty() {
                keys.error("auth", "psk needs no certificate and no public key: pubkey was expected");
            }
            LocalMethod::SharedKey
        }
        Some(Auth::Signature(rules)) => {
            own.signatures = rules;
            certificate(&own)
        }
        None => certificate(&own),
    };
    (LocalAuth { id: keys.get("id", casemate_strongswan::parse_identity).flatten(), method }, own)
}

fn certificate(own: &OwnSignature) -> LocalMethod {
    LocalMethod::Certificate(
        own.certs.iter().chain(&own.pubkeys).map(|path| path.to_string_lossy().into_owned()).collect(),
    )
}

/// Reads `remote`. Without the section, any peer with any valid proof is accepted.
pub(super) fn remote(
    resolved: Option<&Resolved<'_, '_>>,
    context: RoundContext<'_>,
) -> (RemoteAuth, PeerConditions) {
    let RoundContext { connection, round, directory, has_groups, problems } = context;
    let mut conditions = PeerConditions {
        connection: connection.into(),
        round,
        certs: Vec::new(),
        cacerts: Vec::new(),
        pubkey: None,
        ca_id: None,
        policies: Vec::new(),
        revocation: Revocation::Relaxed,
        signatures: SignatureRules::default(),
    };
    let Some(resolved) = resolved else {
        return (RemoteAuth { id: IdPattern::Any, method: RemoteMethod::Any(connection.into()) }, conditions);
    };
    let keys = Keys::new(resolved, &REMOTE, problems);
    conditions.certs = files(&keys, "certs", &directory.join("x509"));
    conditions.certs.extend(file_sections(resolved, "cert", problems));
    conditions.cacerts = files(&keys, "cacerts", &directory.join("x509ca"));
    conditions.cacerts.extend(file_sections(resolved, "cacert", problems));
    conditions.ca_id = keys.get("ca_id", casemate_strongswan::parse_id_pattern);
    conditions.policies = keys.list("cert_policy", policy);
    let words =
        [("strict", Revocation::Strict), ("ifuri", Revocation::IfUri), ("relaxed", Revocation::Relaxed)];
    conditions.revocation = keys.get("revocation", choice(&words)).unwrap_or(Revocation::Relaxed);
    let id = keys.get("id", casemate_strongswan::parse_id_pattern).unwrap_or(IdPattern::Any);
    conditions.pubkey = peer_key(&keys, directory, &id, &conditions);
    // A condition that only a certificate can meet requires a certificate.
    let asking = ["certs", "cacerts", "pubkeys", "ca_id", "cert_policy"].into_iter().any(|key| keys.has(key));
    let asks = asking || !resolved.sections().is_empty();
    let auth = keys.get("auth", signature::auth);
    let eap_methods = match &auth {
        Some(Auth::Eap(methods)) => Some(methods.clone()),
        Some(Auth::EapRadius) => Some(Vec::new()),
        _ => None,
    };
    if keys.has("eap_id") && eap_methods.is_none() {
        eap_id_without_eap(&keys, auth.is_none());
    }
    let groups = groups(&keys, matches!(auth, Some(Auth::EapRadius)), has_groups);
    let method = match auth {
        Some(Auth::Eap(_) | Auth::EapRadius) => {
            let methods = eap_methods.unwrap_or_default();
            if asks && !methods.iter().all(|method| method.proves_certificate()) {
                keys.error(
                    "auth",
                    "this EAP method proves no certificate, but other keys require one: pubkey or eap-tls was \
                     expected",
                );
            }
            let identity = match keys.get("eap_id", eap_identity) {
                None => EapIdentity::Ike,
                Some(None) => EapIdentity::Asked,
                Some(Some(identity)) => EapIdentity::Fixed(identity),
            };
            RemoteMethod::Eap(RemoteEap { identity, methods, groups })
        }
        Some(Auth::SharedKey) => {
            if asks {
                keys.error(
                    "auth",
                    "psk proves no certificate, but other keys require one: pubkey was expected",
                );
            }
            RemoteMethod::SharedKey
        }
        Some(Auth::Signature(rules)) => {
            conditions.signatures = rules;
            RemoteMethod::Certificate(connection.into())
        }
        None if asks => RemoteMethod::Certificate(connection.into()),
        None => {
            keys.section_warning(&format!("there is no `auth`: {ANY_PROOF}"));
            RemoteMethod::Any(connection.into())
        }
    };
    (RemoteAuth { id, method }, conditions)
}

/// Groups, one of which the AAA server must name. Attribute certificates, which name groups as well, are not
/// implemented.
fn groups(keys: &Keys<'_>, is_relayed: bool, has_groups: bool) -> Vec<String> {
    let groups = keys.list("groups", |name| match name.starts_with(['*', '%']) {
        true => Err("names of groups were expected, without patterns".into()),
        false => Ok(name.to_owned()),
    });
    match (is_relayed, has_groups) {
        _ if !keys.has("groups") => {}
        (false, _) => keys.error("groups", ONLY_SERVERS_KNOW_GROUPS),
        (true, false) => keys.error("groups", NO_SOURCE_OF_GROUPS),
        (true, true) if groups.is_empty() => keys.error("groups", "the name of a group was expected"),
        (true, true) => {}
    }
    groups
}

/// Refuses `eap_id` beside another method than EAP. A value of `auth` with an error of its own may have meant
/// EAP.
fn eap_id_without_eap(keys: &Keys<'_>, has_no_method: bool) {
    if !(has_no_method && keys.has("auth")) {
        keys.error("eap_id", EAP_ID_WITHOUT_EAP);
    }
}

/// The file with the public key of the peer. A key contains no identity: the peer has the one beside it, or
/// without one the key ID. Otherwise the owner of one key could take the identity of another.
fn peer_key(
    keys: &Keys<'_>,
    directory: &Path,
    id: &IdPattern,
    conditions: &PeerConditions,
) -> Option<PathBuf> {
    let mut listed = files(keys, "pubkeys", &directory.join("pubkey"));
    let key = listed.pop()?;
    if !listed.is_empty() {
        keys.error("pubkeys", "several keys of one peer are not implemented: one file was expected");
    }
    if conditions.names_certificate() {
        keys.error("pubkeys", "certificates or a public key were expected, not both");
    }
    if id.exact().is_none() && *id != IdPattern::Any {
        keys.error(
            "pubkeys",
            "a public key contains no identity: `id` with that of the peer was expected, or none for the \
             key ID",
        );
    }
    Some(key)
}

/// Reads the object identifier of a certificate policy.
fn policy(text: &str) -> Parsed<PolicyOid> {
    PolicyOid::parse(text)
        .ok_or_else(|| "an object identifier was expected, such as 1.3.6.1.4.1.36906.1.1.1".into())
}

/// Reads an EAP identity; `None` for `%any`.
fn eap_identity(text: &str) -> Parsed<Option<Vec<u8>>> {
    if text == "%any" {
        return Ok(None);
    }
    let identity = casemate_strongswan::parse_identity(text)?;
    Ok(identity.map(|identity| identity.to_eap()))
}

/// Files that a key lists, relative to their folder or with an absolute path.
fn files(keys: &Keys<'_>, name: &str, folder: &Path) -> Vec<PathBuf> {
    let files = keys.list(name, |file| Ok(folder.join(file)));
    keys.note_files(name, &files);
    files
}

/// Files of the sections whose names begin with `cert` or `cacert`.
fn file_sections(resolved: &Resolved<'_, '_>, front: &str, problems: &Problems) -> Vec<PathBuf> {
    let sections = resolved.sections();
    sections
        .iter()
        .filter(|section| section.name().starts_with(front))
        .filter_map(|section| file_section(section, problems))
        .collect()
}

/// The file that one `cert` or `cacert` section names, or the path of the object on a token.
pub(super) fn file_section(section: &Resolved<'_, '_>, problems: &Problems) -> Option<PathBuf> {
    let keys = Keys::new(section, &FILE, problems);
    match (keys.has("file"), keys.has("handle")) {
        (true, true) => keys.error("handle", "either `file` or `handle` was expected"),
        (false, false) => keys.section_error(
            "`file` was expected, the absolute path of a certificate, or `handle`, the CKA_ID of one on a \
             token",
        ),
        _ => {}
    }
    let on_token = token::reference(&keys).map(|reference| reference.to_path());
    let file = keys.get("file", absolute);
    keys.note_files("file", &file);
    keys.note_files("handle", &on_token);
    file.or(on_token)
}

/// Reads an absolute path.
pub(super) fn absolute(text: &str) -> value::Parsed<PathBuf> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("an absolute path was expected".into()) }
}
