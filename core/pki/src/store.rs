//! What the administrator trusts: roots, and CAs and CRLs that help to find a path to them.

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::{CertFault, Demands, Revocation, VerifiedCert, path};
use alloc::vec::Vec;
use casemate_crypto::{HashAlg, KeyLimits, Providers};

/// How much a store takes. Each counts for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Number of roots.
    pub roots: usize,
    /// Number of intermediate CAs.
    pub intermediates: usize,
    /// Number of CRLs.
    pub crls: usize,
    /// Longest certificate, in bytes. Also for those of a peer.
    pub certificate_len: usize,
    /// Longest CRL, in bytes.
    pub crl_len: usize,
    /// Most certificates of one peer.
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

/// What is asked of a path beyond RFC 5280.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most CAs between the certificate and the root. Those with issuer and subject alike do not count (RFC 5280 section 4.2.1.9).
    pub max_intermediates: usize,
    /// Whether CRLs are needed.
    pub revocation: Revocation,
    /// Which keys are too weak, in every certificate of the path.
    pub key_limits: KeyLimits,
    /// Which keys and signatures the connection takes, in every certificate of the path.
    pub demands: Demands,
    /// Whether certificates and CRLs may be signed over SHA-1 digests. RFC 8247 section 3.2 says no for IKE itself, and so does the default.
    pub accept_sha1: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (key_limits, revocation) = (KeyLimits::default(), Revocation::default());
        let demands = Demands::default();
        Self { max_intermediates: 8, revocation, key_limits, demands, accept_sha1: false }
    }
}

/// Roots, intermediate CAs and CRLs.
#[derive(Debug, Clone, Default)]
pub struct TrustStore {
    limits: StoreLimits,
    roots: Vec<Vec<u8>>,
    intermediates: Vec<Vec<u8>>,
    crls: Vec<Vec<u8>>,
}

impl TrustStore {
    /// An empty store, which trusts nobody.
    pub fn new(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Trusts a CA. It is a certificate like any other: valid for a time, with constraints, and a CA by its extensions.
    pub fn add_root(&mut self, der: &[u8]) -> Result<(), CertFault> {
        self.check_certificate(der)?;
        push(&mut self.roots, der, self.limits.roots)
    }

    /// Gives a CA that is not trusted for itself, so that peers need not send it.
    pub fn add_intermediate(&mut self, der: &[u8]) -> Result<(), CertFault> {
        self.check_certificate(der)?;
        push(&mut self.intermediates, der, self.limits.intermediates)
    }

    /// Gives a CRL. Its signature is verified when it is used. Says whether it can be of use: one with critical extensions that are not
    /// known here, a delta, or one that speaks for other issuers is not kept (`false`).
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

    /// The roots, in DER.
    pub fn roots(&self) -> impl Iterator<Item = &[u8]> {
        self.roots.iter().map(Vec::as_slice)
    }

    /// The SHA-1 digests of the roots' keys, one after the other, as a CERTREQ payload has them (RFC 7296 section 3.7). Empty if no provider
    /// has SHA-1.
    pub fn certificate_authorities(&self, providers: &Providers<'_>) -> Vec<u8> {
        let keys = self.roots.iter().filter_map(|der| Some(Cert::parse(der).ok()?.spki));
        let digests = keys.filter_map(|key| providers.hash(HashAlg::Sha1, &[key]));
        digests.flat_map(|digest| digest.as_slice().to_vec()).collect()
    }

    /// Finds a path from a peer's certificate to a root, and checks all that is on it (RFC 5280 section 6).
    ///
    /// `chain` has the peer's certificate first, then CAs that may help, in any order and with others among them, as CERT payloads come (RFC
    /// 7296 section 3.6). `now` is in seconds since 1970. If there is no path, the fault is that of the first that was tried.
    pub fn verify(
        &self,
        chain: &[&[u8]],
        now: u64,
        options: &Options,
        providers: &Providers<'_>,
    ) -> Result<VerifiedCert, CertFault> {
        if chain.len() > self.limits.chain || chain.iter().any(|der| der.len() > self.limits.certificate_len)
        {
            return Err(CertFault::TooLarge);
        }
        let (peer, helpers) = chain.split_first().ok_or(CertFault::Empty)?;
        // What a peer sends beside its own certificate may be anything.
        let helpers = helpers.iter().copied().chain(self.intermediates.iter().map(Vec::as_slice));
        let pool = helpers.filter_map(|der| Cert::parse(der).ok()).collect();
        let roots = self.roots.iter().filter_map(|der| Cert::parse(der).ok()).collect();
        let crls = self.crls.iter().filter_map(|der| Crl::parse(der).ok()).collect();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        path::Search::new(path::Known { roots, pool, crls }, now, options, providers).run(peer)
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
