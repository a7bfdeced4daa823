//! `local` and `remote`: how each side proves who it is.

use super::schema::{Keys, Problems, Rule, Schema};
use super::signature::{self, Auth, SignatureRules};
use super::value::{self, choice};
use super::view::View;
use casemate_ike::config::{IdPattern, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod};
use casemate_ike::spelling;
use std::path::{Path, PathBuf};

/// Conditions under which a peer's certificate or key is taken. Empty lists allow any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConditions {
    /// The connection that they belong to; [`RemoteMethod`] names them by it.
    pub connection: String,
    /// Certificates of peers.
    pub certs: Vec<PathBuf>,
    /// Certificates of authorities of which one has to stand above the peer's.
    pub cacerts: Vec<PathBuf>,
    /// Public keys of peers without certificates.
    pub pubkeys: Vec<PathBuf>,
    /// Identity that the certificate of one of the authorities has to have.
    pub ca_id: Option<IdPattern>,
    /// How much must be known of revocation.
    pub revocation: Revocation,
    /// Signatures that are taken.
    pub signatures: SignatureRules,
}

/// How much must be known of the revocation of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// It is known not to be revoked.
    Strict,
    /// It is known not to be revoked, if it says where that could be learnt.
    IfUri,
    /// It is not known to be revoked.
    Relaxed,
}

/// What a connection's `local` says beyond what IKE has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSignature {
    /// The connection.
    pub connection: String,
    /// Certificates to choose from; [`LocalMethod`] names them by their paths. None are all in the folder.
    pub certs: Vec<PathBuf>,
    /// Public keys of our own, to be used without a certificate.
    pub pubkeys: Vec<PathBuf>,
    /// Signatures to make, the preferred ones first.
    pub signatures: SignatureRules,
}

/// What follows if a peer is not told how to prove who it is. The next step is part of the warning.
pub(super) const ANY_PROOF: &str = "any pre-shared key and any trusted certificate of the peer is accepted; set `auth` of `remote` to \
     `pubkey` or `psk`";

const NO_EAP: &str = "EAP is not implemented";
const NO_TOKEN: &str = "tokens are not implemented";

pub(super) const LOCAL: Schema = Schema {
    keys: &[
        ("round", Rule::NoEffect),
        ("certs", Rule::Take),
        ("pubkeys", Rule::Take),
        ("auth", Rule::Take),
        ("id", Rule::Take),
        ("eap_id", Rule::Never(NO_EAP)),
        ("aaa_id", Rule::Never(NO_EAP)),
        ("xauth_id", Rule::Never("XAuth is a part of IKEv1, which is not implemented")),
    ],
    sections: &["cert"],
};

pub(super) const REMOTE: Schema = Schema {
    keys: &[
        ("round", Rule::NoEffect),
        ("id", Rule::Take),
        ("eap_id", Rule::Never(NO_EAP)),
        ("groups", Rule::Never("attribute certificates and AAA servers are not implemented")),
        ("cert_policy", Rule::Never("certificate policies are not looked at")),
        ("certs", Rule::Take),
        ("cacerts", Rule::Take),
        ("ca_id", Rule::Take),
        ("pubkeys", Rule::Take),
        ("revocation", Rule::Take),
        ("auth", Rule::Take),
    ],
    sections: &["cert", "cacert"],
};

/// A section that names a file; `cacert` of an authority has the same keys.
pub(super) const FILE: Schema = Schema {
    keys: &[
        ("file", Rule::Take),
        ("handle", Rule::Never(NO_TOKEN)),
        ("slot", Rule::Never(NO_TOKEN)),
        ("module", Rule::Never(NO_TOKEN)),
    ],
    sections: &[],
};

/// Reads `local`; without the section, it is a signature with any certificate.
pub(super) fn local(
    view: Option<&View<'_, '_>>,
    connection: &str,
    directory: &Path,
    problems: &Problems,
) -> (LocalAuth, OwnSignature) {
    let mut own = OwnSignature {
        connection: connection.into(),
        certs: Vec::new(),
        pubkeys: Vec::new(),
        signatures: SignatureRules::default(),
    };
    let Some(view) = view else {
        return (LocalAuth { id: None, method: certificate(&own) }, own);
    };
    let keys = Keys::new(view, &LOCAL, problems);
    own.certs = files(&keys, "certs", &directory.join("x509"));
    own.certs.extend(file_sections(view, "cert", problems));
    own.pubkeys = files(&keys, "pubkeys", &directory.join("pubkey"));
    let method = match keys.get("auth", signature::auth) {
        Some(Auth::SharedKey) => {
            if !own.certs.is_empty() || !own.pubkeys.is_empty() {
                keys.wrong("auth", "psk needs no certificate and no public key: pubkey was expected");
            }
            LocalMethod::SharedKey
        }
        Some(Auth::Signature(rules)) => {
            own.signatures = rules;
            certificate(&own)
        }
        None => certificate(&own),
    };
    (LocalAuth { id: keys.get("id", spelling::identity).flatten(), method }, own)
}

fn certificate(own: &OwnSignature) -> LocalMethod {
    LocalMethod::Certificate(own.certs.iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

/// Reads `remote`; without the section, any peer with any proof.
pub(super) fn remote(
    view: Option<&View<'_, '_>>,
    connection: &str,
    directory: &Path,
    problems: &Problems,
) -> (RemoteAuth, PeerConditions) {
    let mut conditions = PeerConditions {
        connection: connection.into(),
        certs: Vec::new(),
        cacerts: Vec::new(),
        pubkeys: Vec::new(),
        ca_id: None,
        revocation: Revocation::Relaxed,
        signatures: SignatureRules::default(),
    };
    let Some(view) = view else {
        return (RemoteAuth { id: IdPattern::Any, method: RemoteMethod::Any(connection.into()) }, conditions);
    };
    let keys = Keys::new(view, &REMOTE, problems);
    conditions.certs = files(&keys, "certs", &directory.join("x509"));
    conditions.certs.extend(file_sections(view, "cert", problems));
    conditions.cacerts = files(&keys, "cacerts", &directory.join("x509ca"));
    conditions.cacerts.extend(file_sections(view, "cacert", problems));
    conditions.pubkeys = files(&keys, "pubkeys", &directory.join("pubkey"));
    conditions.ca_id = keys.get("ca_id", spelling::id_pattern);
    let words =
        [("strict", Revocation::Strict), ("ifuri", Revocation::IfUri), ("relaxed", Revocation::Relaxed)];
    conditions.revocation = keys.get("revocation", choice(&words)).unwrap_or(Revocation::Relaxed);
    let id = keys.get("id", spelling::id_pattern).unwrap_or(IdPattern::Any);
    // What only a certificate can meet asks for one.
    let asking = ["certs", "cacerts", "pubkeys", "ca_id"].into_iter().any(|key| keys.has(key));
    let asks = asking || !view.sections().is_empty();
    let method = match keys.get("auth", signature::auth) {
        Some(Auth::SharedKey) => {
            if asks {
                keys.wrong("auth", "psk shows no certificate, but one is asked for: pubkey was expected");
            }
            RemoteMethod::SharedKey
        }
        Some(Auth::Signature(rules)) => {
            conditions.signatures = rules;
            RemoteMethod::Certificate(connection.into())
        }
        None if asks => RemoteMethod::Certificate(connection.into()),
        None => {
            keys.warn_section(&format!("there is no `auth`: {ANY_PROOF}"));
            RemoteMethod::Any(connection.into())
        }
    };
    (RemoteAuth { id, method }, conditions)
}

/// Files that a key lists, in their folder or with an absolute path.
fn files(keys: &Keys<'_>, name: &str, folder: &Path) -> Vec<PathBuf> {
    keys.list(name, |file| Ok(folder.join(file)))
}

/// Files of the sections `cert...` or `cacert...`.
fn file_sections(view: &View<'_, '_>, front: &str, problems: &Problems) -> Vec<PathBuf> {
    let sections = view.sections();
    sections
        .iter()
        .filter(|section| section.name().starts_with(front))
        .filter_map(|section| file_section(section, problems))
        .collect()
}

/// The file of one such section.
pub(super) fn file_section(section: &View<'_, '_>, problems: &Problems) -> Option<PathBuf> {
    let keys = Keys::new(section, &FILE, problems);
    if !keys.has("file") {
        keys.wrong_section("`file` was expected, the absolute path of a certificate");
    }
    keys.get("file", absolute)
}

/// Reads an absolute path.
pub(super) fn absolute(text: &str) -> value::Read<PathBuf> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("an absolute path was expected".into()) }
}
