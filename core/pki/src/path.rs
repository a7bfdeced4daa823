//! The path from a peer's certificate to a root (RFC 5280 section 6), searched depth first with a bound on the work.
//!
//! A step goes from a certificate to one that may have issued it. All that RFC 5280 asks of the issuer and of what is below it is
//! checked in that step, so that a path that reaches a root is valid as it stands.

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::time::Seconds;
use crate::{CertFault, Options, Revocation, dn};
use alloc::vec::Vec;
use casemate_crypto::{Providers, PublicKey, SignatureAlg};

/// Most signatures that are verified for one peer, on certificates and CRLs.
const MAX_SIGNATURES: usize = 64;

/// Most bytes of names that are compared with constraints for one peer.
const MAX_COMPARED: usize = 1 << 20;

/// A certificate with a path to a root.
#[derive(Debug, Clone)]
pub struct VerifiedCert {
    der: Vec<u8>,
    key: PublicKey,
    issuers: Vec<Vec<u8>>,
}

impl VerifiedCert {
    /// The certificate itself, in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its key.
    pub fn public_key(&self) -> &PublicKey {
        &self.key
    }

    /// The CAs on the path, in DER: first the issuer, last the root.
    pub fn issuers(&self) -> impl Iterator<Item = &[u8]> {
        self.issuers.iter().map(Vec::as_slice)
    }
}

impl VerifiedCert {
    /// A certificate that the administrator has named: it needs no path. Its time, its key and its purpose are looked at all the
    /// same. `now` is in seconds since 1970.
    pub fn pinned(der: &[u8], now: u64, options: &Options) -> Result<Self, CertFault> {
        let peer = Cert::parse(der)?;
        let key = PublicKey::from_spki(peer.spki, options.key_limits)?;
        options.demands.check_key(&key)?;
        check_any(&peer, i64::try_from(now).unwrap_or(i64::MAX))?;
        check_peer(&peer)?;
        Ok(Self { der: der.to_vec(), key, issuers: Vec::new() })
    }
}

/// Whether issuer and subject of a certificate are alike, as in those of roots; `false` if it is malformed.
pub fn is_self_issued(der: &[u8]) -> bool {
    Cert::parse(der).is_ok_and(|cert| cert.is_self_issued())
}

/// The subject of a certificate, a Name in DER; `None` if it is malformed.
pub fn subject(der: &[u8]) -> Option<&[u8]> {
    Cert::parse(der).ok().map(|cert| cert.subject)
}

/// What the search may use.
pub(crate) struct Known<'a> {
    pub(crate) roots: Vec<Cert<'a>>,
    /// CAs that are not trusted for themselves.
    pub(crate) pool: Vec<Cert<'a>>,
    pub(crate) crls: Vec<Crl<'a>>,
}

/// One search.
pub(crate) struct Search<'a> {
    known: Known<'a>,
    now: Seconds,
    options: &'a Options,
    providers: &'a Providers<'a>,
    work: Work,
}

/// What is left to be spent.
struct Work {
    signatures: usize,
    compared: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        known: Known<'a>,
        now: Seconds,
        options: &'a Options,
        providers: &'a Providers<'a>,
    ) -> Self {
        let work = Work { signatures: MAX_SIGNATURES, compared: MAX_COMPARED };
        Self { known, now, options, providers, work }
    }

    /// The path from this certificate.
    pub(crate) fn run(mut self, der: &[u8]) -> Result<VerifiedCert, CertFault> {
        let peer = Cert::parse(der)?;
        let key = PublicKey::from_spki(peer.spki, self.options.key_limits)?;
        self.options.demands.check_key(&key)?;
        check_any(&peer, self.now)?;
        check_peer(&peer)?;
        let known = core::mem::replace(
            &mut self.known,
            Known { roots: Vec::new(), pool: Vec::new(), crls: Vec::new() },
        );
        let mut path = Vec::from([&peer]);
        self.extend(&known, &mut path)?;
        let issuers = path.iter().skip(1).map(|cert| cert.der.to_vec()).collect();
        Ok(VerifiedCert { der: der.to_vec(), key, issuers })
    }

    /// Leads the path on to a root. The depth of the recursion is bounded by `max_intermediates`, and by the number of certificates: none
    /// is twice on a path.
    fn extend<'p>(&mut self, known: &'p Known<'p>, path: &mut Vec<&'p Cert<'p>>) -> Result<(), CertFault> {
        let mut first_fault = None;
        let roots = known.roots.iter().map(|root| (root, true));
        for (issuer, is_root) in roots.chain(known.pool.iter().map(|ca| (ca, false))) {
            if !may_have_issued(issuer, path) {
                continue;
            }
            let mut step = self.check_step(known, issuer, path);
            if step.is_ok() {
                path.push(issuer);
                if is_root {
                    return Ok(());
                }
                step = self.extend(known, path);
                if step.is_ok() {
                    return Ok(());
                }
                path.pop();
            }
            match step {
                Err(CertFault::Work) => return Err(CertFault::Work),
                Err(fault) => {
                    // That a path ends nowhere says less than why another one fails.
                    if first_fault.is_none_or(|known| known == CertFault::UnknownIssuer) {
                        first_fault = Some(fault);
                    }
                }
                Ok(()) => {}
            }
        }
        Err(first_fault.unwrap_or(CertFault::UnknownIssuer))
    }

    /// Whether `issuer` may stand above this path.
    fn check_step(
        &mut self,
        known: &Known<'_>,
        issuer: &Cert<'_>,
        path: &[&Cert<'_>],
    ) -> Result<(), CertFault> {
        check_any(issuer, self.now)?;
        check_ca(issuer)?;
        // RFC 5280 section 4.2.1.9: what is self-issued does not count, and neither does the peer's own certificate.
        let below = path.iter().skip(1).filter(|cert| !cert.is_self_issued()).count();
        if issuer.extensions.basic.and_then(|basic| basic.path_len).is_some_and(|most| below > most) {
            return Err(CertFault::PathLength);
        }
        if below > self.options.max_intermediates {
            return Err(CertFault::Depth);
        }
        let child = path.last().ok_or(CertFault::Empty)?;
        let key = PublicKey::from_spki(issuer.spki, self.options.key_limits)?;
        self.options.demands.check_key(&key)?;
        let algorithm = SignatureAlg::from_identifier(child.algorithm).map_err(CertFault::Algorithm)?;
        self.options.demands.check_scheme(algorithm)?;
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
        let algorithm = SignatureAlg::from_identifier(algorithm).map_err(CertFault::Algorithm)?;
        self.work.signatures = self.work.signatures.checked_sub(1).ok_or(CertFault::Work)?;
        let verdict = match self.options.accept_sha1 {
            true => self.providers.verify_even_sha1(algorithm, key, message, signature),
            false => self.providers.verify(algorithm, key, message, signature),
        };
        verdict.map_err(CertFault::Signature)
    }

    /// RFC 5280 section 6.1.3: constraints are on the names of all below but of CAs that are self-issued.
    fn check_names(&mut self, issuer: &Cert<'_>, path: &[&Cert<'_>]) -> Result<(), CertFault> {
        let Some(constraints) = &issuer.extensions.name_constraints else { return Ok(()) };
        for (at, cert) in path.iter().enumerate() {
            let is_free = at > 0 && cert.is_self_issued();
            if !is_free && !constraints.allow(cert, &mut self.work.compared) {
                let is_spent = self.work.compared == 0;
                return Err(if is_spent { CertFault::Work } else { CertFault::NameConstraint });
            }
        }
        Ok(())
    }

    /// Looks for the certificate in the CRLs of its issuer (RFC 5280 section 6.3).
    fn check_revocation(
        &mut self,
        known: &Known<'_>,
        issuer: &Cert<'_>,
        key: &PublicKey,
        cert: &Cert<'_>,
    ) -> Result<(), CertFault> {
        let may_sign = issuer.extensions.key_usage.is_none_or(|usage| usage.may_sign_crls());
        let mut is_known = false;
        for crl in known.crls.iter().filter(|crl| may_sign && crl.covers(cert)) {
            match self.check_signature(key, crl.algorithm, crl.tbs, crl.signature) {
                Ok(()) if crl.this_update <= self.now => {}
                Err(CertFault::Work) => return Err(CertFault::Work),
                _ => continue,
            }
            // An old list still says what was revoked when it was made.
            if crl.lists(cert.serial) {
                return Err(CertFault::Revoked);
            }
            is_known |= crl.next_update.is_some_and(|next| self.now <= next);
        }
        let is_needed = match self.options.revocation {
            Revocation::Relaxed => false,
            Revocation::IfUri => cert.extensions.distribution_points.is_some(),
            Revocation::Strict => true,
        };
        if is_needed && !is_known { Err(CertFault::RevocationUnknown) } else { Ok(()) }
    }
}

/// By name and key identifier, which tell certificates apart that bear one name; and not on the path already.
fn may_have_issued(issuer: &Cert<'_>, path: &[&Cert<'_>]) -> bool {
    let Some(child) = path.last() else { return false };
    let ids = child.extensions.authority_key_id.zip(issuer.extensions.subject_key_id);
    ids.is_none_or(|(wanted, id)| wanted == id)
        && dn::same_dn(issuer.subject, child.issuer)
        && !path.iter().skip(1).any(|cert| cert.der == issuer.der)
}

/// What is asked of every certificate.
fn check_any(cert: &Cert<'_>, now: Seconds) -> Result<(), CertFault> {
    if cert.extensions.unknown_critical {
        return Err(CertFault::CriticalExtension);
    }
    if now < cert.not_before {
        return Err(CertFault::NotYetValid);
    }
    if now > cert.not_after {
        return Err(CertFault::Expired);
    }
    // RFC 5280 section 4.1.2.4: an issuer has a name.
    if dn::is_empty(cert.issuer) {
        return Err(CertFault::Malformed);
    }
    let is_ca = cert.extensions.basic.is_some_and(|basic| basic.is_ca);
    let signs_certificates = cert.extensions.key_usage.is_some_and(|usage| usage.may_sign_certificates());
    // RFC 5280 sections 4.2.1.3 and 4.2.1.9: only CAs sign certificates; section 4.2.1.10: only they have constraints.
    if !is_ca && (signs_certificates || cert.extensions.name_constraints.is_some()) {
        return Err(CertFault::NotCa);
    }
    // Purposes of a CA hold for all below it, as everybody takes them.
    if cert.extensions.purpose == Some(false) {
        return Err(CertFault::ExtendedKeyUsage);
    }
    Ok(())
}

fn check_peer(cert: &Cert<'_>) -> Result<(), CertFault> {
    // RFC 4945 section 5.1.3.2: digitalSignature or nonRepudiation, if keyUsage is there.
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
