//! Certification path from a peer's certificate to a root (RFC 5280 section 6), by depth-first search with
//! bounded work.
//!
//! Each step goes from a certificate to a possible issuer. The step checks everything that RFC 5280 requires
//! of the issuer and of the certificates below it, so a path that reaches a root is valid.

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::time::Seconds;
use crate::{CertFault, Revocation, VerifyOptions, dn};
use alloc::vec::Vec;
use casemate_crypto::{Providers, PublicKey, SignatureAlg};

/// Maximum number of signatures on certificates and CRLs that are verified for one peer.
const MAX_SIGNATURES: usize = 64;

/// Maximum number of bytes of names that are compared with constraints for one peer.
const MAX_COMPARED: usize = 1 << 20;

/// A certificate with a path to a trusted root.
#[derive(Debug, Clone)]
pub struct VerifiedCert {
    der: Vec<u8>,
    key: PublicKey,
    issuers: Vec<Vec<u8>>,
}

impl VerifiedCert {
    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Public key of the certificate.
    pub fn public_key(&self) -> &PublicKey {
        &self.key
    }

    /// CA certificates on the path in DER: first the issuer, last the root.
    pub fn issuers(&self) -> impl Iterator<Item = &[u8]> {
        self.issuers.iter().map(Vec::as_slice)
    }

    /// The certificates below the root, each with that of its issuer: first that of the peer. Empty if the
    /// certificate is accepted without a path.
    #[cfg(feature = "status")]
    pub fn issued(&self) -> impl Iterator<Item = crate::IssuedCert<'_>> {
        let certs = core::iter::once(self.der()).chain(self.issuers());
        certs.zip(self.issuers()).map(|(cert, issuer)| crate::IssuedCert { cert, issuer })
    }
}

impl VerifiedCert {
    /// Accepts a certificate that the administrator has configured, without a path. Checks its validity
    /// period, key and purpose. `now` is in seconds since 1970.
    pub fn pinned(der: &[u8], now: u64, options: &VerifyOptions) -> Result<Self, CertFault> {
        let peer = Cert::parse(der)?;
        let key = PublicKey::from_spki(peer.spki, options.key_limits)?;
        options.algorithms.check_key(&key)?;
        check_common(&peer, i64::try_from(now).unwrap_or(i64::MAX))?;
        check_peer(&peer)?;
        #[cfg(feature = "policies")]
        if !options.policies.iter().all(|policy| peer.extensions.policies.contains(policy)) {
            return Err(CertFault::Policy);
        }
        Ok(Self { der: der.to_vec(), key, issuers: Vec::new() })
    }
}

/// Whether issuer and subject of a certificate are equal, as in a root; `false` if it is malformed.
pub fn is_self_issued(der: &[u8]) -> bool {
    Cert::parse(der).is_ok_and(|cert| cert.is_self_issued())
}

/// Whether a certificate says that it belongs to a CA (RFC 5280 section 4.2.1.9); `false` if it is malformed.
pub fn is_authority(der: &[u8]) -> bool {
    Cert::parse(der).is_ok_and(|cert| cert.extensions.basic.is_some_and(|basic| basic.is_ca))
}

/// Subject of a certificate, a Name in DER; `None` if it is malformed.
pub fn subject(der: &[u8]) -> Option<&[u8]> {
    Cert::parse(der).ok().map(|cert| cert.subject)
}

/// First and last second of the validity of a certificate, in Unix time; `None` if it is malformed (RFC 5280
/// section 4.1.2.5).
pub fn validity(der: &[u8]) -> Option<(i64, i64)> {
    Cert::parse(der).ok().map(|cert| (cert.not_before, cert.not_after))
}

/// Issuer of a certificate, a Name in DER; `None` if it is malformed.
pub fn issuer(der: &[u8]) -> Option<&[u8]> {
    Cert::parse(der).ok().map(|cert| cert.issuer)
}

/// Certificates and CRLs available to the search.
pub(crate) struct Candidates<'a> {
    pub(crate) roots: Vec<Cert<'a>>,
    /// CA certificates that are not trusted themselves.
    pub(crate) intermediates: Vec<Cert<'a>>,
    pub(crate) crls: Vec<Crl<'a>>,
    /// CA certificates in DER, one of which must be on the path. Empty if any path will do.
    #[cfg(feature = "policies")]
    pub(crate) required: Vec<&'a [u8]>,
}

/// A search for a path.
pub(crate) struct PathSearch<'a> {
    candidates: Candidates<'a>,
    now: Seconds,
    options: &'a VerifyOptions,
    providers: &'a Providers<'a>,
    budget: WorkBudget,
}

/// Remaining work.
struct WorkBudget {
    signatures: usize,
    compared: usize,
}

impl<'a> PathSearch<'a> {
    pub(crate) fn new(
        known: Candidates<'a>,
        now: Seconds,
        options: &'a VerifyOptions,
        providers: &'a Providers<'a>,
    ) -> Self {
        let work = WorkBudget { signatures: MAX_SIGNATURES, compared: MAX_COMPARED };
        Self { candidates: known, now, options, providers, budget: work }
    }

    /// Searches a path from this certificate.
    pub(crate) fn run(mut self, der: &[u8]) -> Result<VerifiedCert, CertFault> {
        let peer = Cert::parse(der)?;
        let key = PublicKey::from_spki(peer.spki, self.options.key_limits)?;
        self.options.algorithms.check_key(&key)?;
        check_common(&peer, self.now)?;
        check_peer(&peer)?;
        let known = core::mem::replace(
            &mut self.candidates,
            Candidates {
                roots: Vec::new(),
                intermediates: Vec::new(),
                crls: Vec::new(),
                #[cfg(feature = "policies")]
                required: Vec::new(),
            },
        );
        let mut path = Vec::from([&peer]);
        self.extend(&known, &mut path)?;
        let issuers = path.iter().skip(1).map(|cert| cert.der.to_vec()).collect();
        Ok(VerifiedCert { der: der.to_vec(), key, issuers })
    }

    /// Extends the path to a root. `max_intermediates` and the number of certificates bound the recursion,
    /// because no certificate is on a path twice.
    fn extend<'p>(
        &mut self,
        known: &'p Candidates<'p>,
        path: &mut Vec<&'p Cert<'p>>,
    ) -> Result<(), CertFault> {
        let mut first_fault = None;
        let roots = known.roots.iter().map(|root| (root, true));
        for (issuer, is_root) in roots.chain(known.intermediates.iter().map(|ca| (ca, false))) {
            if !may_have_issued(issuer, path) {
                continue;
            }
            let mut step = self.check_step(known, issuer, path);
            if step.is_ok() {
                path.push(issuer);
                let is_end = is_root && !has_trusted_issuer(known, issuer);
                step = if is_end { self.check_end(known, path) } else { self.extend(known, path) };
                if step.is_ok() {
                    return Ok(());
                }
                path.pop();
            }
            match step {
                Err(CertFault::WorkLimit) => return Err(CertFault::WorkLimit),
                Err(fault) => {
                    // The failure of another path says more than the lack of an issuer.
                    if first_fault.is_none_or(|known| known == CertFault::UnknownIssuer) {
                        first_fault = Some(fault);
                    }
                }
                Ok(()) => {}
            }
        }
        Err(first_fault.unwrap_or(CertFault::UnknownIssuer))
    }

    /// Checks what a path to a root has to fulfil as a whole, as far as this crate is built for it: a
    /// required CA, and the policies.
    fn check_end(&self, known: &Candidates<'_>, path: &[&Cert<'_>]) -> Result<(), CertFault> {
        #[cfg(feature = "policies")]
        {
            let has_required = path.iter().skip(1).any(|ca| known.required.contains(&ca.der));
            if !known.required.is_empty() && !has_required {
                return Err(CertFault::UnknownIssuer);
            }
            crate::policy::check(path, &self.options.policies)?;
        }
        let _ = (known, path);
        Ok(())
    }

    /// Checks whether `issuer` may be next on the path.
    fn check_step(
        &mut self,
        known: &Candidates<'_>,
        issuer: &Cert<'_>,
        path: &[&Cert<'_>],
    ) -> Result<(), CertFault> {
        check_common(issuer, self.now)?;
        check_ca(issuer)?;
        // RFC 5280 section 4.2.1.9: self-issued certificates and the peer's own certificate do not count.
        let below = path.iter().skip(1).filter(|cert| !cert.is_self_issued()).count();
        if issuer.extensions.basic.and_then(|basic| basic.path_len).is_some_and(|most| below > most) {
            return Err(CertFault::PathLength);
        }
        if below > self.options.max_intermediates {
            return Err(CertFault::Depth);
        }
        let child = path.last().ok_or(CertFault::Empty)?;
        let key = PublicKey::from_spki(issuer.spki, self.options.key_limits)?;
        self.options.algorithms.check_key(&key)?;
        let algorithm =
            SignatureAlg::from_algorithm_identifier(child.algorithm).map_err(CertFault::Algorithm)?;
        self.options.algorithms.check_scheme(algorithm)?;
        self.check_signature(&key, child.algorithm, child.tbs, child.signature)?;
        self.check_names(issuer, path)?;
        self.check_revocation(known, issuer, &key, child)
    }

    fn check_signature(
        &mut self,
        key: &PublicKey,
        algorithm: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CertFault> {
        let algorithm = SignatureAlg::from_algorithm_identifier(algorithm).map_err(CertFault::Algorithm)?;
        self.budget.signatures = self.budget.signatures.checked_sub(1).ok_or(CertFault::WorkLimit)?;
        let verdict = match self.options.accept_sha1 {
            true => self.providers.verify_allowing_sha1(algorithm, key, message, signature),
            false => self.providers.verify(algorithm, key, message, signature),
        };
        verdict.map_err(CertFault::Signature)
    }

    /// Checks the names of all certificates below the issuer except self-issued CA certificates (RFC 5280
    /// section 6.1.3).
    fn check_names(&mut self, issuer: &Cert<'_>, path: &[&Cert<'_>]) -> Result<(), CertFault> {
        let Some(constraints) = &issuer.extensions.name_constraints else { return Ok(()) };
        for (at, cert) in path.iter().enumerate() {
            let is_free = at > 0 && cert.is_self_issued();
            if !is_free && !constraints.allows(cert, &mut self.budget.compared) {
                let is_spent = self.budget.compared == 0;
                return Err(if is_spent { CertFault::WorkLimit } else { CertFault::NameConstraint });
            }
        }
        Ok(())
    }

    /// Looks up the certificate in the CRLs of its issuer (RFC 5280 section 6.3).
    fn check_revocation(
        &mut self,
        known: &Candidates<'_>,
        issuer: &Cert<'_>,
        key: &PublicKey,
        cert: &Cert<'_>,
    ) -> Result<(), CertFault> {
        let may_sign = issuer.extensions.key_usage.is_none_or(|usage| usage.may_sign_crls());
        let mut is_known = false;
        for crl in known.crls.iter().filter(|crl| may_sign && crl.covers(cert)) {
            match self.check_signature(key, crl.algorithm, crl.tbs, crl.signature) {
                Ok(()) if crl.this_update <= self.now => {}
                Err(CertFault::WorkLimit) => return Err(CertFault::WorkLimit),
                _ => continue,
            }
            // An expired CRL still lists the certificates that were revoked when it was issued.
            if crl.lists(cert.serial) {
                return Err(CertFault::Revoked);
            }
            is_known |= !crl.is_delta() && crl.next_update.is_some_and(|next| self.now <= next);
        }
        let is_needed = match self.options.revocation {
            Revocation::Relaxed => false,
            Revocation::IfUri => cert.extensions.distribution_points.is_some(),
            Revocation::Strict => true,
        };
        if is_needed && !is_known { Err(CertFault::RevocationUnknown) } else { Ok(()) }
    }
}

/// Whether a trusted CA has issued this one. The path then goes on, so that the constraints of the upper CA
/// and its CRLs apply to the lower one, although both are trusted.
fn has_trusted_issuer(known: &Candidates<'_>, ca: &Cert<'_>) -> bool {
    !ca.is_self_issued() && known.roots.iter().any(|root| dn::same_dn(root.subject, ca.issuer))
}

/// Whether name and key identifier of the issuer match, and the issuer is not on the path yet. Key
/// identifiers distinguish certificates with the same name.
fn may_have_issued(issuer: &Cert<'_>, path: &[&Cert<'_>]) -> bool {
    let Some(child) = path.last() else { return false };
    let ids = child.extensions.authority_key_id.zip(issuer.extensions.subject_key_id);
    ids.is_none_or(|(wanted, id)| wanted == id)
        && dn::same_dn(issuer.subject, child.issuer)
        && !path.iter().skip(1).any(|cert| cert.der == issuer.der)
}

/// Checks that apply to every certificate.
fn check_common(cert: &Cert<'_>, now: Seconds) -> Result<(), CertFault> {
    if cert.extensions.unknown_critical {
        return Err(CertFault::CriticalExtension);
    }
    if now < cert.not_before {
        return Err(CertFault::NotYetValid);
    }
    if now > cert.not_after {
        return Err(CertFault::Expired);
    }
    // RFC 5280 section 4.1.2.4: the issuer field must not be empty.
    if dn::is_empty(cert.issuer) {
        return Err(CertFault::Malformed);
    }
    let is_ca = cert.extensions.basic.is_some_and(|basic| basic.is_ca);
    let signs_certificates = cert.extensions.key_usage.is_some_and(|usage| usage.may_sign_certificates());
    // RFC 5280 sections 4.2.1.3 and 4.2.1.9: only CAs sign certificates. Section 4.2.1.10: only CAs have name
    // constraints.
    if !is_ca && (signs_certificates || cert.extensions.name_constraints.is_some()) {
        return Err(CertFault::NotCa);
    }
    // The purposes of a CA apply to all certificates below it, as in other implementations.
    if cert.extensions.purpose == Some(false) {
        return Err(CertFault::ExtendedKeyUsage);
    }
    Ok(())
}

fn check_peer(cert: &Cert<'_>) -> Result<(), CertFault> {
    // RFC 4945 section 5.1.3.2: digitalSignature or nonRepudiation, if keyUsage is present.
    let may_sign = cert.extensions.key_usage.is_none_or(|usage| usage.may_sign());
    if may_sign { Ok(()) } else { Err(CertFault::KeyUsage) }
}

fn check_ca(cert: &Cert<'_>) -> Result<(), CertFault> {
    if !cert.extensions.basic.is_some_and(|basic| basic.is_ca) {
        return Err(CertFault::NotCa);
    }
    if !cert.extensions.key_usage.is_none_or(|usage| usage.may_sign_certificates()) {
        return Err(CertFault::KeyUsage);
    }
    Ok(())
}
