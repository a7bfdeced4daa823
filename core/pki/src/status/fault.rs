//! Reasons why a CRL or an OCSP response says nothing about a certificate.

use crate::CertFault;
use casemate_crypto::SignatureError;
use casemate_crypto::der::Malformed;
use core::fmt;

/// Reason why a CRL or an OCSP response is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusFault {
    /// Not the expected structure in DER, or an unknown version, type or critical extension.
    Malformed,
    /// Longer than is accepted.
    TooLarge,
    /// The certificate or that of its issuer cannot be used.
    Issuer(CertFault),
    /// A CRL of another issuer, for other certificates, or of another kind: indirect, or a delta CRL in place
    /// of a complete one or the reverse.
    OtherScope,
    /// The key of the issuer must not sign CRLs.
    KeyUsage,
    /// The signature is invalid.
    Signature(SignatureError),
    /// The responder has refused to answer, with this OCSPResponseStatus (RFC 6960 section 4.2.1).
    Refused(u8),
    /// The response is for other certificates.
    OtherCertificate,
    /// The responder does not know the certificate.
    UnknownToResponder,
    /// Another nonce than that of the request: perhaps a response that was recorded before.
    Nonce,
    /// The signer is neither the issuer of the certificate nor a responder that the issuer has authorized
    /// (RFC 6960 section 4.2.2.2).
    Signer,
    /// thisUpdate or producedAt is in the future.
    NotYetValid,
    /// nextUpdate has passed, or is missing and the answer is old.
    Stale,
    /// No provider has the hash algorithm.
    Hash,
}

impl fmt::Display for StatusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a CRL or OCSP response in DER",
            Self::TooLarge => "too long",
            Self::Issuer(fault) => return fault.fmt(f),
            Self::OtherScope => "a CRL of another issuer, for other certificates, or of another kind",
            Self::KeyUsage => "the key usage of the issuer does not allow to sign CRLs",
            Self::Signature(error) => return write!(f, "signature: {error}"),
            Self::Refused(1) => "the responder answers: malformed request",
            Self::Refused(2) => "the responder answers: internal error",
            Self::Refused(3) => "the responder answers: try later",
            Self::Refused(5) => "the responder answers: signature required",
            Self::Refused(6) => "the responder answers: unauthorized",
            Self::Refused(_) => "the responder answers with an unknown error",
            Self::OtherCertificate => "the response is for another certificate",
            Self::UnknownToResponder => "the responder does not know the certificate",
            Self::Nonce => "the response has another nonce than the request",
            Self::Signer => "the signer is not authorized by the issuer of the certificate",
            Self::NotYetValid => "it is not valid yet",
            Self::Stale => "it has expired",
            Self::Hash => "the hash algorithm is not supported",
        })
    }
}

impl core::error::Error for StatusFault {}

impl From<Malformed> for StatusFault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}
