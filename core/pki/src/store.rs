//! Trust store of the administrator: trusted roots, intermediate CAs and CRLs.

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::{AlgorithmPolicy, CertFault, VerifiedCert, path};
use alloc::vec::Vec;
use casemate_crypto::{HashAlg, KeyLimits, Providers};

/// Limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum number of roots.
    pub roots: usize,
    /// Maximum number of intermediate CAs.
    pub intermediates: usize,
    /// Maximum number of CRLs.
    pub crls: usize,
    /// Maximum length of a certificate, in bytes. Also for certificates of a peer.
    pub certificate_len: usize,
    /// Maximum length of a CRL, in bytes.
    pub crl_len: usize,
    /// Maximum number of certificates of one peer.
    pub chain: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            roots: 256,
            intermediates: 256,
            crls: 256,
            certificate_len: 1 << 16,
            crl_len: 1 << 24,
            chain: 16,
        }
    }
}

/// Requirements on a path beyond RFC 5280.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Maximum number of CAs between the certificate and the root. Self-issued ones do not count (RFC 5280
    /// section 4.2.1.9).
    pub max_intermediates: usize,
    /// When a CRL is required.
    pub revocation: Revocation,
    /// Minimum strength of every key on the path.
    pub key_limits: KeyLimits,
    /// Keys and signatures that the connection accepts, for every certificate of the path.
    pub algorithms: AlgorithmPolicy,
    /// Whether certificates and CRLs may be signed with SHA-1. The default is no, as RFC 8247 section 3.2
    /// requires of IKE itself.
    pub accept_sha1: bool,
    /// Policies that must all be valid for the path (RFC 5280 section 6.1.1 (c)).
    #[cfg(feature = "policies")]
    pub policies: Vec<crate::PolicyOid>,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        let (key_limits, revocation) = (KeyLimits::default(), Revocation::default());
        let demands = AlgorithmPolicy::default();
        Self {
            max_intermediates: 8,
            revocation,
            key_limits,
            algorithms: demands,
            accept_sha1: false,
            #[cfg(feature = "policies")]
            policies: Vec::new(),
        }
    }
}

/// Roots, intermediate CAs and CRLs.
#[derive(Debug, Clone, Default)]
pub struct TrustStore {
    limits: StoreLimits,
    roots: Vec<Vec<u8>>,
    intermediates: Vec<Vec<u8>>,
    crls: Vec<Vec<u8>>,
    /// CAs, one of which must be on a path.
    #[cfg(feature = "policies")]
    required: Vec<Vec<u8>>,
}

impl TrustStore {
    /// Returns an empty store, which trusts no certificate.
    pub fn new(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a trusted CA. Its validity period, constraints and extensions are checked like those of any
    /// certificate. If the store trusts the CA that has issued it, too, paths lead to that one.
    pub fn add_root(&mut self, der: &[u8]) -> Result<(), CertFault> {
        self.check_certificate(der)?;
        push(&mut self.roots, der, self.limits.roots)
    }

    /// Adds a trusted CA, and requires that each path contains one of the CAs that were added in this way.
    #[cfg(feature = "policies")]
    pub fn add_required_root(&mut self, der: &[u8]) -> Result<(), CertFault> {
        self.add_root(der)?;
        push(&mut self.required, der, self.limits.roots)
    }

    /// Adds a CA that is not trusted itself, so that peers need not send it.
    pub fn add_intermediate(&mut self, der: &[u8]) -> Result<(), CertFault> {
        self.check_certificate(der)?;
        push(&mut self.intermediates, der, self.limits.intermediates)
    }

    /// Adds a CRL. Its signature is verified when it is used. Returns `false` if the CRL cannot be used and
    /// is not kept: an indirect CRL, or one with an unknown critical extension. A delta CRL revokes what it
    /// lists; only a complete one shows that a certificate is not revoked.
    pub fn add_crl(&mut self, der: &[u8]) -> Result<bool, CertFault> {
        if der.len() > self.limits.crl_len {
            return Err(CertFault::TooLarge);
        }
        let crl = Crl::parse(der).map_err(|_| CertFault::MalformedCrl)?;
        if !crl.check_entries().map_err(|_| CertFault::MalformedCrl)? {
            return Ok(false);
        }
        push(&mut self.crls, der, self.limits.crls).map(|()| true)
    }

    /// What the CRLs of the store say about a certificate: revoked, if one lists it, or until when one says
    /// that it is not. `None` if no valid one covers it.
    #[cfg(feature = "status")]
    pub fn crl_status(
        &self,
        issued: crate::IssuedCert<'_>,
        verifier: &crate::StatusVerifier<'_>,
    ) -> Option<crate::StatusAnswer> {
        let complete = self.crls.iter().filter_map(|der| verifier.verify_crl(issued, der).ok());
        let deltas = self.crls.iter().filter_map(|der| verifier.verify_delta_crl(issued, der).ok());
        let is_revoked = |answer: &crate::StatusAnswer| answer.status == crate::CertStatus::Revoked;
        let answers = complete.chain(deltas.filter(is_revoked));
        answers.max_by_key(|answer| (answer.status == crate::CertStatus::Revoked, answer.valid_until))
    }

    /// CAs in DER below which a peer's certificate must be: those that are required, or else the trusted ones.
    pub fn accepted_authorities(&self) -> impl Iterator<Item = &[u8]> {
        #[cfg(feature = "policies")]
        let accepted = if self.required.is_empty() { &self.roots } else { &self.required };
        #[cfg(not(feature = "policies"))]
        let accepted = &self.roots;
        accepted.iter().map(Vec::as_slice)
    }

    /// Concatenated SHA-1 hashes of the keys of the accepted authorities, as in a CERTREQ payload (RFC 7296 section 3.7). Empty if
    /// no provider supports SHA-1.
    pub fn certificate_authorities(&self, providers: &Providers<'_>) -> Vec<u8> {
        let keys = self.accepted_authorities().filter_map(|der| Some(Cert::parse(der).ok()?.spki));
        let digests = keys.filter_map(|key| providers.hash(HashAlg::Sha1, &[key]));
        digests.flat_map(|digest| digest.as_slice().to_vec()).collect()
    }

    /// Finds and verifies a path from a peer's certificate to a root (RFC 5280 section 6).
    ///
    /// `chain` has the peer's certificate first, then possible CA certificates in any order, as in CERT
    /// payloads (RFC 7296 section 3.6). `now` is in seconds since 1970. If there is no valid path, the error
    /// is that of the first path tried.
    pub fn verify(
        &self,
        chain: &[&[u8]],
        now: u64,
        options: &VerifyOptions,
        providers: &Providers<'_>,
    ) -> Result<VerifiedCert, CertFault> {
        if chain.len() > self.limits.chain || chain.iter().any(|der| der.len() > self.limits.certificate_len)
        {
            return Err(CertFault::TooLarge);
        }
        let (peer, intermediates) = chain.split_first().ok_or(CertFault::Empty)?;
        // A peer may send anything after its own certificate.
        let intermediates = intermediates.iter().copied().chain(self.intermediates.iter().map(Vec::as_slice));
        let pool = intermediates.filter_map(|der| Cert::parse(der).ok()).collect();
        let roots = self.roots.iter().filter_map(|der| Cert::parse(der).ok()).collect();
        let crls = self.crls.iter().filter_map(|der| Crl::parse(der).ok()).collect();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let known = path::Candidates {
            roots,
            intermediates: pool,
            crls,
            #[cfg(feature = "policies")]
            required: self.required.iter().map(Vec::as_slice).collect(),
        };
        path::PathSearch::new(known, now, options, providers).run(peer)
    }

    fn check_certificate(&self, der: &[u8]) -> Result<(), CertFault> {
        if der.len() > self.limits.certificate_len {
            return Err(CertFault::TooLarge);
        }
        Cert::parse(der).map(|_| ()).map_err(|_| CertFault::Malformed)
    }
}

fn push(list: &mut Vec<Vec<u8>>, der: &[u8], most: usize) -> Result<(), CertFault> {
    if list.iter().any(|known| known == der) {
        return Ok(());
    }
    if list.len() >= most {
        return Err(CertFault::TooLarge);
    }
    list.push(der.to_vec());
    Ok(())
}

/// When a CRL is required, of those that the administrator has added to the store. A certificate that is
/// listed in a CRL of its issuer is rejected in any case. The names are those of strongSwan's `revocation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Revocation {
    /// A certificate that no CRL covers is accepted.
    #[default]
    Relaxed,
    /// Like [`Strict`](Self::Strict) for certificates with a CRL distribution point, and like
    /// [`Relaxed`](Self::Relaxed) for others.
    IfUri,
    /// Every certificate below the root needs a valid CRL of its issuer.
    Strict,
}
