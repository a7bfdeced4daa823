//! Verifies peer certificates against the conditions of their connection, and keeps the refusals for the log.

use super::raw_keys::{KnownKeys, RawKey};
use crate::log::utc_text;
use crate::revocation::{Authorities, CrlFiles, PathCheck, PathVerdict, RevocationLink};
use crate::swanctl::PeerConditions;
use casemate::peer_name;
use casemate_crypto::{Providers, PublicKey};
use casemate_ike::config::{IdPattern, Identity};
use casemate_ike::{AuthorityHash, PeerCertificates, PeerStatus, StatusQuery};
use casemate_pki::{CertFault, TrustStore, VerifiedCert, VerifyOptions};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use std::{fmt, mem};

/// A peer whose certificate or signature was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPeer {
    /// Identity of the peer.
    pub peer: Identity,
    /// Name of the connection that refused it.
    pub connection: String,
    /// The certificate or signature, and why it was refused.
    pub reason: String,
}

/// Maximum number of refusals kept until they are read.
const MAX_REFUSALS: usize = 64;

/// Refusals since they were last read.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Vec<RefusedPeer>>);

impl Refusals {
    pub(super) fn add(&self, refused: RefusedPeer) {
        let mut refusals = self.lock();
        if refusals.len() < MAX_REFUSALS {
            refusals.push(refused);
        }
    }

    /// Forgets the refusals of a peer.
    pub(super) fn clear(&self, peer: &Identity) {
        self.lock().retain(|refused| refused.peer != *peer);
    }

    pub(super) fn take(&self) -> Vec<RefusedPeer> {
        mem::take(&mut *self.lock())
    }

    /// Locks the refusals. Ignores poisoning: a refusal is added as a whole, so a thread that panicked
    /// cannot leave half of one.
    fn lock(&self) -> MutexGuard<'_, Vec<RefusedPeer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifies the peers of one connection.
pub(super) struct PeerVerifier {
    pub(super) conditions: PeerConditions,
    /// The CAs that the connection trusts, and intermediate certificates.
    pub(super) store: TrustStore,
    /// The CRLs of the store with their files.
    pub(super) crl_files: CrlFiles,
    /// Hashes of the trusted CAs for CERTREQ.
    pub(super) authorities: Vec<AuthorityHash>,
    /// The peer certificates that the connection names, in DER.
    pub(super) pinned: Vec<Vec<u8>>,
    /// The public key of the only peer, if the connection names one instead of certificates.
    pub(super) raw_key: Option<RawKey>,
    /// Keys of which any may authenticate a peer that has its key ID as the identity.
    pub(super) known_keys: KnownKeys,
}

/// Why a peer certificate is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The peer sent no certificate, and the connection names none.
    NoCertificate,
    /// The same, and this host has asked for none, because it trusts no CA for the connection.
    NoAuthority,
    /// No trusted CA has issued the certificate; its issuer as text.
    UnknownIssuer(String),
    /// The certificate is invalid.
    Certificate(CertFault),
    /// A certificate of the chain is revoked: its subject, and the file of the CRL.
    Revoked { subject: String, file: PathBuf },
    /// A certificate of the chain is not valid at the time of this host.
    OutOfDate(OutOfDate),
    /// The certificate is not one that the connection names.
    NotPinned,
    /// The certificate does not contain the identity.
    OtherName,
    /// No CA in the chain has the required subject.
    OtherAuthority,
    /// A policy of `cert_policy` is not valid for the chain.
    NoPolicy(String),
    /// A key or signature in the chain violates `auth`.
    NotWanted(CertFault, String),
}

/// A certificate that is not valid yet, or has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutOfDate {
    fault: CertFault,
    /// Subject as text.
    subject: String,
    /// First or last second of its validity, in Unix time.
    limit: u64,
    /// Time of this host, in Unix time.
    now: u64,
}

impl OutOfDate {
    /// The first certificate whose validity does not include the time, or `None` if there is none.
    fn find<'c>(fault: CertFault, mut certs: impl Iterator<Item = &'c [u8]>, now: u64) -> Option<Self> {
        certs.find_map(|cert| {
            let (start, end) = casemate_pki::validity(cert)?;
            let [start, end] = [start, end].map(|seconds| u64::try_from(seconds).unwrap_or(0));
            let limit = match fault {
                CertFault::NotYetValid => Some(start).filter(|start| now < *start),
                _ => Some(end).filter(|end| *end < now),
            }?;
            let subject = Identity::Dn(casemate_pki::subject(cert)?.to_vec()).to_string();
            Some(Self { fault, subject, limit, now })
        })
    }
}

impl fmt::Display for OutOfDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, subject, limit, now } = self;
        let text = |seconds| {
            let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            time.map_or_else(|| "a time that cannot be shown".into(), utc_text)
        };
        let until = if *fault == CertFault::NotYetValid { "from" } else { "until" };
        let (limit, now) = (text(*limit), text(*now));
        write!(f, "{fault}: {subject}, valid {until} {limit}; the time of this host is {now}")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("the peer sent none"),
            Self::NoAuthority => f.write_str(
                "the peer sent none, and this host has asked for none, because it trusts no CA for this \
                 connection: the certificate of the peer's CA was expected in x509ca",
            ),
            Self::UnknownIssuer(issuer) => {
                write!(
                    f,
                    "no path to a trusted root: the certificate of its issuer, {issuer}, or of a CA above it \
                     was expected in x509ca"
                )
            }
            Self::Certificate(fault) => fault.fmt(f),
            Self::Revoked { subject, file } => {
                write!(f, "{}: {subject}, by CRL {}", CertFault::Revoked, file.display())
            }
            Self::OutOfDate(refusal) => refusal.fmt(f),
            Self::NotPinned => f.write_str("the connection names other certificates"),
            Self::OtherName => f.write_str("it does not contain this identity"),
            Self::OtherAuthority => {
                f.write_str("its chain does not contain the CA that the connection names")
            }
            Self::NoPolicy(policies) => {
                write!(f, "its chain does not have every policy of remote.cert_policy = {policies}")
            }
            Self::NotWanted(fault, auth) => write!(f, "{fault} by remote.auth = {auth}"),
        }
    }
}

/// The refusal of a chain of which no trusted CA has issued a certificate. It names the issuer of the last
/// certificate of the path that the peer has sent.
fn unknown_issuer(chain: &[&[u8]]) -> Refusal {
    let mut issuer = chain.first().and_then(|own| casemate_pki::issuer(own));
    for _ in chain {
        let of = |der: &&&[u8]| casemate_pki::subject(der) == issuer && !casemate_pki::is_self_issued(der);
        let Some(above) = chain.iter().find(of) else { break };
        issuer = casemate_pki::issuer(above);
    }
    match issuer.map(|name| Identity::Dn(name.to_vec())) {
        Some(name) => Refusal::UnknownIssuer(name.to_string()),
        None => Refusal::Certificate(CertFault::UnknownIssuer),
    }
}

/// The refusal of a chain with a certificate that is not valid now.
fn out_of_date<'c>(fault: CertFault, certs: impl Iterator<Item = &'c [u8]>, now: u64) -> Refusal {
    OutOfDate::find(fault, certs, now).map_or(Refusal::Certificate(fault), Refusal::OutOfDate)
}

impl PeerVerifier {
    pub(super) const fn conditions(&self) -> &PeerConditions {
        &self.conditions
    }

    /// Returns the public key of the peer if its certificate is trusted for its identity, or the configured
    /// key: the connection has one identity then, which the peer has shown.
    pub(super) fn verify(
        &self,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
        pattern_matches: &dyn Fn(&IdPattern, &Identity) -> bool,
    ) -> Result<PublicKey, Refusal> {
        if let Some(key) = &self.raw_key {
            return Ok(key.key.clone());
        }
        let options = self.options();
        if let Some(known) = self.known_key(shown) {
            options.algorithms.check_key(&known).map_err(|fault| self.refusal(fault))?;
            return Ok(known);
        }
        let name = peer_name(shown.id).ok_or(Refusal::OtherName)?;
        let cert = if self.pinned.is_empty() {
            let cert = self.store.verify(shown.chain, shown.unix_time, &options, providers);
            let cert = cert.map_err(|fault| match fault {
                CertFault::Empty if self.authorities.is_empty() => Refusal::NoAuthority,
                CertFault::Empty => Refusal::NoCertificate,
                CertFault::UnknownIssuer => unknown_issuer(shown.chain),
                CertFault::Revoked => self.revoked(shown.chain),
                CertFault::NotYetValid | CertFault::Expired => {
                    let accepted = self.store.accepted_authorities();
                    out_of_date(fault, shown.chain.iter().copied().chain(accepted), shown.unix_time)
                }
                fault => self.refusal(fault),
            })?;
            if !cert.has_name(&name) {
                return Err(Refusal::OtherName);
            }
            cert
        } else {
            self.named_certificate(shown, &name, &options)?
        };
        if let Some(pattern) = &self.conditions.ca_id {
            let subject = |der: &[u8]| casemate_pki::subject(der).map(|name| Identity::Dn(name.to_vec()));
            let mut authorities = cert.issuers().filter_map(subject);
            if !authorities.any(|id| pattern_matches(pattern, &id)) {
                return Err(Refusal::OtherAuthority);
            }
        }
        Ok(cert.public_key().clone())
    }

    /// The key of the folder `pubkey` whose key ID a peer without a certificate has shown.
    fn known_key(&self, shown: &PeerCertificates<'_>) -> Option<PublicKey> {
        let is_shown = |known: &&RawKey| known.id.as_ref() == Some(shown.id);
        let mut known = self.known_keys.iter().filter(|_| shown.chain.is_empty());
        known.find(is_shown).map(|known| known.key.clone())
    }

    /// The path of the certificates that a peer has shown, for the check of their status. `None` if there is
    /// nothing to check: a raw key, or a certificate that the connection names.
    pub(super) fn path(
        &self,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Option<Result<VerifiedCert, CertFault>> {
        if self.raw_key.is_some() || !self.pinned.is_empty() || self.known_key(shown).is_some() {
            return None;
        }
        let options = self.options();
        Some(self.store.verify(shown.chain, shown.unix_time, &options, providers))
    }

    /// Returns the named certificate of the connection: the one that the peer sent, or the one with the
    /// peer's identity.
    fn named_certificate(
        &self,
        shown: &PeerCertificates<'_>,
        name: &casemate_pki::PeerName<'_>,
        options: &VerifyOptions,
    ) -> Result<VerifiedCert, Refusal> {
        let candidates: Vec<&Vec<u8>> = match shown.chain.first() {
            Some(own) => self.pinned.iter().filter(|pinned| pinned.as_slice() == *own).collect(),
            None => self.pinned.iter().collect(),
        };
        let mut refusal = Refusal::NotPinned;
        for der in candidates {
            match VerifiedCert::pinned(der, shown.unix_time, options) {
                Ok(cert) if cert.has_name(name) => return Ok(cert),
                Ok(_) => refusal = Refusal::OtherName,
                Err(fault @ (CertFault::NotYetValid | CertFault::Expired)) => {
                    refusal = out_of_date(fault, std::iter::once(der.as_slice()), shown.unix_time);
                }
                Err(fault) => refusal = self.refusal(fault),
            }
        }
        Err(refusal)
    }

    /// The refusal of a chain of which a CRL file revokes a certificate, of the peer or of a CA.
    fn revoked(&self, chain: &[&[u8]]) -> Refusal {
        let revoked = |cert: &[u8]| {
            let file = self.crl_files.listing(cert)?.to_path_buf();
            let subject = Identity::Dn(casemate_pki::subject(cert)?.to_vec()).to_string();
            Some(Refusal::Revoked { subject, file })
        };
        let mut certs = chain.iter().copied().chain(self.store.accepted_authorities());
        certs.find_map(revoked).unwrap_or(Refusal::Certificate(CertFault::Revoked))
    }

    fn refusal(&self, fault: CertFault) -> Refusal {
        match fault {
            CertFault::KeyNotAllowed { .. } | CertFault::SignatureNotAllowed(_) => {
                Refusal::NotWanted(fault, self.conditions.signatures.text.clone())
            }
            CertFault::Policy if !self.conditions.policies.is_empty() => {
                let policies = self.conditions.policies.iter().map(ToString::to_string);
                Refusal::NoPolicy(policies.collect::<Vec<_>>().join(", "))
            }
            _ => Refusal::Certificate(fault),
        }
    }

    /// A certificate that a CRL file revokes is refused at once. `revocation` of the connection is applied
    /// later ([`StatusCheck`]), once the peer has proved that it has the private key.
    fn options(&self) -> VerifyOptions {
        VerifyOptions {
            revocation: casemate_pki::Revocation::Relaxed,
            algorithms: self.conditions.signatures.demands(),
            policies: self.conditions.policies.clone(),
            ..VerifyOptions::default()
        }
    }
}

/// Whether the certificates that a verifier has accepted are still valid for their issuers.
pub(super) struct StatusCheck<'k> {
    pub(super) verifier: &'k PeerVerifier,
    pub(super) authorities: &'k Authorities,
    /// The threads that fetch what is missing; `None` if nothing is fetched.
    pub(super) link: Option<&'k RevocationLink>,
    pub(super) providers: &'k Providers<'k>,
}

impl StatusCheck<'_> {
    /// Decides, or orders a look-up. The error says why a certificate is refused.
    pub(super) fn run(&self, query: &StatusQuery<'_>) -> Result<PeerStatus, String> {
        let Some(path) = self.verifier.path(&query.shown, self.providers) else {
            return Ok(PeerStatus::Accepted);
        };
        let check = PathCheck {
            policy: self.verifier.conditions().revocation,
            store: &self.verifier.store,
            crl_files: &self.verifier.crl_files,
            authorities: self.authorities,
            cache: self.link.map(RevocationLink::cache),
            now: query.shown.unix_time,
            stapled: query.stapled,
            is_last: query.is_last,
            providers: self.providers,
        };
        let path = path.map_err(|fault| match fault {
            CertFault::Revoked => self.verifier.revoked(query.shown.chain).to_string(),
            fault => fault.to_string(),
        });
        let mut verdict = check.run(&path?);
        if let (PathVerdict::Wanted(wanted), Some(link)) = (&mut verdict, self.link) {
            let trusted = self.authorities.responders.clone();
            match link.look_up(query.ike, mem::take(wanted), trusted) {
                Ok(()) => return Ok(PeerStatus::Pending),
                Err((wanted, why)) => verdict = check.without_look_up(&wanted, why),
            }
        }
        match verdict {
            PathVerdict::Accepted => Ok(PeerStatus::Accepted),
            // Nothing is wanted without a link.
            PathVerdict::Wanted(_) => Err("its status cannot be looked up".into()),
            PathVerdict::Refused(why) => Err(why),
        }
    }
}
