//! Judges the certificates of peers, as the conditions of their connection say.

use super::Conditions;
use crate::swanctl::Revocation;
use casemate::peer_name;
use casemate_crypto::{Providers, PublicKey};
use casemate_ike::config::{IdPattern, Identity};
use casemate_ike::{AuthorityHash, PeerCertificates};
use casemate_pki::{CertFault, Options, TrustStore, VerifiedCert};
use std::fmt;

/// What is needed to judge the peers of one connection.
pub(super) struct Judge {
    pub(super) conditions: Conditions,
    /// The authorities that the connection trusts, and what helps to find a way to them.
    pub(super) store: TrustStore,
    /// The names of those authorities for CERTREQ.
    pub(super) authorities: Vec<AuthorityHash>,
    /// The peer certificates that it names, in DER.
    pub(super) pinned: Vec<Vec<u8>>,
}

/// Why a peer is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing was shown, and nothing is known.
    NoCertificate,
    /// The certificate is no good.
    Certificate(CertFault),
    /// It is not one of those that the connection names.
    NotPinned,
    /// It does not bear the identity.
    OtherName,
    /// No authority above it is the one that is wanted.
    OtherAuthority,
    /// It, or one above it, is not what `auth` asks for.
    NotWanted(CertFault, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("none was shown"),
            Self::Certificate(fault) => fault.fmt(f),
            Self::NotPinned => f.write_str("not one of those that the connection names"),
            Self::OtherName => f.write_str("it does not bear this identity"),
            Self::OtherAuthority => f.write_str("it is not below the authority that the connection names"),
            Self::NotWanted(fault, auth) => write!(f, "{fault} by remote.auth = {auth}"),
        }
    }
}

impl Judge {
    pub(super) const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The key of the peer, if its certificate is trusted for its identity.
    pub(super) fn judge(
        &self,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
        is_meant: &dyn Fn(&IdPattern, &Identity) -> bool,
    ) -> Result<PublicKey, Refusal> {
        let options = self.options();
        let name = peer_name(shown.id).ok_or(Refusal::OtherName)?;
        let cert = if self.pinned.is_empty() {
            let cert = self.store.verify(shown.chain, shown.unix_time, &options, providers);
            let cert = cert.map_err(|fault| match fault {
                CertFault::Empty => Refusal::NoCertificate,
                fault => self.refused(fault),
            })?;
            if !cert.is_named(&name) {
                return Err(Refusal::OtherName);
            }
            cert
        } else {
            self.pinned_one(shown, &name, &options)?
        };
        if let Some(pattern) = &self.conditions.ca_id {
            let subject = |der: &[u8]| casemate_pki::subject(der).map(|name| Identity::Name(name.to_vec()));
            let mut authorities = cert.issuers().filter_map(subject);
            if !authorities.any(|id| is_meant(pattern, &id)) {
                return Err(Refusal::OtherAuthority);
            }
        }
        Ok(cert.public_key().clone())
    }

    /// The certificate that the connection names: the one that was shown, or the one with the identity.
    fn pinned_one(
        &self,
        shown: &PeerCertificates<'_>,
        name: &casemate_pki::PeerName<'_>,
        options: &Options,
    ) -> Result<VerifiedCert, Refusal> {
        let candidates: Vec<&Vec<u8>> = match shown.chain.first() {
            Some(own) => self.pinned.iter().filter(|pinned| pinned.as_slice() == *own).collect(),
            None => self.pinned.iter().collect(),
        };
        let mut refusal = Refusal::NotPinned;
        for der in candidates {
            match VerifiedCert::pinned(der, shown.unix_time, options) {
                Ok(cert) if cert.is_named(name) => return Ok(cert),
                Ok(_) => refusal = Refusal::OtherName,
                Err(fault) => refusal = self.refused(fault),
            }
        }
        Err(refusal)
    }

    fn refused(&self, fault: CertFault) -> Refusal {
        match fault {
            CertFault::KeyNotWanted { .. } | CertFault::SchemeNotWanted(_) => {
                Refusal::NotWanted(fault, self.conditions.signatures.text.clone())
            }
            _ => Refusal::Certificate(fault),
        }
    }

    fn options(&self) -> Options {
        let revocation = match self.conditions.revocation {
            Revocation::Strict => casemate_pki::Revocation::Strict,
            Revocation::IfUri => casemate_pki::Revocation::IfUri,
            Revocation::Relaxed => casemate_pki::Revocation::Relaxed,
        };
        Options { revocation, demands: self.conditions.signatures.demands(), ..Options::default() }
    }
}
