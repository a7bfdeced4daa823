//! Status of certificates: whether their issuer has revoked them, as a CRL (RFC 5280 section 5) or an OCSP
//! response (RFC 6960) that was received says. [`StatusUris`] reads where the issuer publishes it.

mod fault;
mod ocsp;
mod responder;
mod uris;

use crate::certificate::Cert;
use crate::crl::Crl;
use crate::time::Seconds;
use crate::{CertFault, VerifyOptions};
use casemate_crypto::der::{Malformed, Reader, SEQUENCE};
use casemate_crypto::{HashAlg, Providers, PublicKey, SignatureAlg};

pub use fault::StatusFault;
pub use ocsp::{NONCE_LEN, OcspNonce};
pub(crate) use responder::has_ocsp_signing;
pub use uris::{MAX_URI_LEN, MAX_URIS, StatusUris, delta_crl_uris, is_base_of_delta, is_listed};

/// Maximum length of an OCSP response in bytes.
pub const MAX_OCSP_LEN: usize = 1 << 16;

/// Accepted difference between the clocks of this host and of the issuer, in seconds.
const CLOCK_SKEW: Seconds = 300;

/// How long an OCSP response without nextUpdate is used after thisUpdate, in seconds. RFC 6960 section
/// 4.2.2.1: without nextUpdate, newer information is available all the time.
const DEFAULT_VALIDITY: Seconds = 300;

/// A certificate of a verified path, and that of the CA that has issued it. Both in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuedCert<'a> {
    /// The certificate.
    pub cert: &'a [u8],
    /// The certificate of the next CA on the path.
    pub issuer: &'a [u8],
}

/// What the issuer says about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertStatus {
    /// It is not revoked.
    Good,
    /// It is revoked.
    Revoked,
}

/// Status of a certificate, from a valid CRL or OCSP response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusAnswer {
    /// Status.
    pub status: CertStatus,
    /// Until when the answer may be used, in seconds since 1970. Before the time of the call if the
    /// certificate is listed in a CRL that has expired: it stays revoked.
    pub valid_until: u64,
}

/// Verifies CRLs and OCSP responses.
#[derive(Clone, Copy)]
pub struct StatusVerifier<'a> {
    /// Current time, in seconds since 1970.
    pub now: u64,
    /// Minimum strength of keys, and whether SHA-1 is accepted.
    pub options: &'a VerifyOptions,
    /// Algorithms.
    pub providers: &'a Providers<'a>,
}

impl StatusVerifier<'_> {
    /// Verifies a complete CRL in DER, and looks up a certificate in it. A CRL that has expired still revokes
    /// the certificates that it lists; about others it says nothing.
    pub fn verify_crl(&self, issued: IssuedCert<'_>, der: &[u8]) -> Result<StatusAnswer, StatusFault> {
        self.look_up(issued, der, false)
    }

    /// Verifies a delta CRL in DER (RFC 5280 section 5.2.4), and looks up a certificate in it. A certificate
    /// that it does not list is good only if a complete CRL says so.
    pub fn verify_delta_crl(&self, issued: IssuedCert<'_>, der: &[u8]) -> Result<StatusAnswer, StatusFault> {
        self.look_up(issued, der, true)
    }

    fn look_up(
        &self,
        issued: IssuedCert<'_>,
        der: &[u8],
        is_delta: bool,
    ) -> Result<StatusAnswer, StatusFault> {
        let Parsed { cert, issuer } = Parsed::new(issued)?;
        let crl = Crl::parse(der)?;
        if crl.is_delta() != is_delta || !crl.check_entries()? || !crl.covers(&cert) {
            return Err(StatusFault::OtherScope);
        }
        if !issuer.extensions.key_usage.is_none_or(|usage| usage.may_sign_crls()) {
            return Err(StatusFault::KeyUsage);
        }
        let Crl { tbs, algorithm, signature, .. } = crl;
        self.check_signature(&self.key(&issuer)?, Signed { content: tbs, algorithm, signature })?;
        if crl.this_update > self.now().saturating_add(CLOCK_SKEW) {
            return Err(StatusFault::NotYetValid);
        }
        let valid_until = to_unix(crl.next_update.unwrap_or_default());
        if crl.lists(cert.serial) {
            return Ok(StatusAnswer { status: CertStatus::Revoked, valid_until });
        }
        match valid_until >= self.now {
            true => Ok(StatusAnswer { status: CertStatus::Good, valid_until }),
            false => Err(StatusFault::Stale),
        }
    }

    fn now(&self) -> Seconds {
        Seconds::try_from(self.now).unwrap_or(Seconds::MAX)
    }

    fn key(&self, cert: &Cert<'_>) -> Result<PublicKey, StatusFault> {
        let key = PublicKey::from_spki(cert.spki, self.options.key_limits);
        key.map_err(|fault| StatusFault::Issuer(fault.into()))
    }

    fn check_signature(&self, key: &PublicKey, signed: Signed<'_>) -> Result<(), StatusFault> {
        let alg = SignatureAlg::from_algorithm_identifier(signed.algorithm);
        let alg = alg.map_err(|fault| StatusFault::Issuer(CertFault::Algorithm(fault)))?;
        let verdict = match self.options.accept_sha1 {
            true => self.providers.verify_allowing_sha1(alg, key, signed.content, signed.signature),
            false => self.providers.verify(alg, key, signed.content, signed.signature),
        };
        verdict.map_err(StatusFault::Signature)
    }
}

/// Something signed.
#[derive(Clone, Copy)]
struct Signed<'a> {
    content: &'a [u8],
    /// Complete AlgorithmIdentifier.
    algorithm: &'a [u8],
    signature: &'a [u8],
}

/// A parsed certificate with its issuer.
struct Parsed<'a> {
    cert: Cert<'a>,
    issuer: Cert<'a>,
}

impl<'a> Parsed<'a> {
    fn new(issued: IssuedCert<'a>) -> Result<Self, StatusFault> {
        let parse = |der| Cert::parse(der).map_err(|fault| StatusFault::Issuer(fault.into()));
        let parsed = Self { cert: parse(issued.cert)?, issuer: parse(issued.issuer)? };
        match crate::dn::same_dn(parsed.cert.issuer, parsed.issuer.subject) {
            true => Ok(parsed),
            false => Err(StatusFault::Issuer(CertFault::UnknownIssuer)),
        }
    }
}

/// Hash of a certificate's key as in OCSP: without tag, length and unused bits (RFC 6960 section 4.1.1).
fn key_hash(cert: &Cert<'_>, alg: HashAlg, providers: &Providers<'_>) -> Option<casemate_crypto::Digest> {
    providers.hash(alg, &[key_bits(cert.spki).ok()?])
}

fn key_bits(spki: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::only(SEQUENCE, spki)?;
    reader.read(SEQUENCE)?;
    reader.read_bit_string()
}

/// A time as seconds since 1970; 0 if it is before.
fn to_unix(time: Seconds) -> u64 {
    u64::try_from(time).unwrap_or(0)
}
