//! The parts of the sections `local` and `remote` that are about keys and certificates, which IKE does not
//! need.

use super::signature::SignatureRules;
use casemate_ike::config::{IdPattern, Identity};
use casemate_pki::PolicyOid;
use std::path::PathBuf;

/// Requirements on the certificate or key of a peer. An empty list allows any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConditions {
    /// Name of the connection; [`RemoteMethod`](casemate_ike::config::RemoteMethod) refers to these
    /// conditions by it.
    pub connection: String,
    /// Round of authentication of the peer, from 0.
    pub round: usize,
    /// Allowed peer certificates.
    pub certs: Vec<PathBuf>,
    /// CA certificates, one of which must be in the peer's chain.
    pub cacerts: Vec<PathBuf>,
    /// Raw public key of the only peer, instead of certificates.
    pub pubkey: Option<PathBuf>,
    /// Required subject of one CA certificate in the chain.
    pub ca_id: Option<IdPattern>,
    /// Certificate policies that must all be valid for the peer's certificate.
    pub policies: Vec<PolicyOid>,
    /// Required revocation check.
    pub revocation: Revocation,
    /// Accepted signatures.
    pub signatures: SignatureRules,
}

impl PeerConditions {
    /// Whether the conditions demand something that only a certificate has.
    pub(crate) fn names_certificate(&self) -> bool {
        let Self { certs, cacerts, ca_id, policies, .. } = self;
        !certs.is_empty() || !cacerts.is_empty() || ca_id.is_some() || !policies.is_empty()
    }
}

/// Revocation check of a certificate, as in swanctl.conf(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    /// A CRL must show that the certificate is not revoked.
    Strict,
    /// Like `Strict` if the certificate names a source of revocation information.
    IfUri,
    /// Only a certificate that is known to be revoked is refused.
    Relaxed,
}

/// The parts of a connection's `local` section that IKE does not need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSignature {
    /// Name of the connection.
    pub connection: String,
    /// Round of authentication of this host, from 0.
    pub round: usize,
    /// Certificates to choose from; [`LocalMethod`](casemate_ike::config::LocalMethod) names them and the
    /// public keys by their paths. Without both, all in the folder of certificates.
    pub certs: Vec<PathBuf>,
    /// Own raw public keys, for use without a certificate.
    pub pubkeys: Vec<PathBuf>,
    /// Allowed signatures in order of preference.
    pub signatures: SignatureRules,
    /// Identity that the server of EAP with TLS must prove; `None` for that of the responder.
    pub aaa_id: Option<Identity>,
}
