//! Reasons for rejecting a certificate.

use casemate_crypto::der::Malformed;
use casemate_crypto::{AlgorithmIdentifierError, KeyKind, KeyParseError, SignatureAlg, SignatureError};
use core::fmt;

/// Reason why a certificate, or a path from it to a root, is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertFault {
    /// Not an X.509 version 3 certificate in DER, or an extension is malformed or occurs twice.
    Malformed,
    /// Not a CRL in DER.
    MalformedCrl,
    /// Larger or more numerous than [`StoreLimits`](crate::StoreLimits) allow.
    TooLarge,
    /// No certificate was given.
    Empty,
    /// An unknown critical extension (RFC 5280 section 4.2).
    CriticalExtension,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate has expired.
    Expired,
    /// The key cannot be used.
    Key(KeyParseError),
    /// The signature algorithm cannot be used.
    Algorithm(AlgorithmIdentifierError),
    /// A key on the path is shorter than [`AlgorithmPolicy`](crate::AlgorithmPolicy) requires, or of a kind
    /// that the policy does not accept (`min_bits` is `None`).
    KeyNotAllowed {
        /// Kind of the key.
        kind: KeyKind,
        /// Length of the key, in bits.
        bits: u32,
        /// Minimum length for this kind, in bits.
        min_bits: Option<u32>,
    },
    /// [`AlgorithmPolicy`](crate::AlgorithmPolicy) does not accept the signature algorithm of a certificate
    /// on the path.
    SignatureNotAllowed(SignatureAlg),
    /// The issuer's signature is invalid.
    Signature(SignatureError),
    /// No issuer is known, or no path leads to a trusted root.
    UnknownIssuer,
    /// The issuer is not a CA (RFC 5280 section 4.2.1.9).
    NotCa,
    /// The issuer's key must not sign certificates, or the peer's key must not sign (RFC 5280 section
    /// 4.2.1.3).
    KeyUsage,
    /// The extended key usage does not include IKE (RFC 4945 section 5.1.3.12).
    ExtendedKeyUsage,
    /// More CAs below an issuer than its path length constraint allows.
    PathLength,
    /// More CAs between the certificate and a root than [`VerifyOptions`](crate::VerifyOptions) allow.
    Depth,
    /// A name that the name constraints of an issuer do not allow (RFC 5280 section 4.2.1.10).
    NameConstraint,
    /// A required policy is not valid for the path (RFC 5280 section 6.1).
    Policy,
    /// The certificate is revoked.
    Revoked,
    /// No valid CRL covers the certificate, and one is required.
    RevocationUnknown,
    /// The search was given up: too many signatures or names.
    WorkLimit,
}

impl fmt::Display for CertFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed certificate, expected X.509 version 3 in DER",
            Self::MalformedCrl => "malformed CRL, expected X.509 in DER",
            Self::TooLarge => "a certificate or CRL is too large, or there are too many",
            Self::Empty => "no certificate was given",
            Self::CriticalExtension => "the certificate has an unknown critical extension",
            Self::NotYetValid => "the certificate is not valid yet",
            Self::Expired => "the certificate has expired",
            Self::Key(error) => return write!(f, "key of the certificate: {error}"),
            Self::Algorithm(error) => return write!(f, "signature of the certificate: {error}"),
            Self::Signature(error) => return write!(f, "signature of the certificate: {error}"),
            Self::KeyNotAllowed { kind, bits, min_bits: Some(min_bits) } => {
                return write!(
                    f,
                    "a key in the certificate chain is {kind} with {bits} bits: \
                     the connection requires at least {min_bits}"
                );
            }
            Self::KeyNotAllowed { kind, bits, min_bits: None } => {
                return write!(
                    f,
                    "a key in the certificate chain is {kind} with {bits} bits: \
                     the connection requires another kind"
                );
            }
            Self::SignatureNotAllowed(alg) => {
                return write!(
                    f,
                    "a certificate in the chain is signed with {alg}: \
                     the connection requires another algorithm"
                );
            }
            Self::UnknownIssuer => "no path to a trusted root",
            Self::NotCa => "the issuer is not a CA",
            Self::KeyUsage => "the key usage does not allow this use of the key",
            Self::ExtendedKeyUsage => "the extended key usage does not allow IKE",
            Self::PathLength => "more intermediate CAs than an issuer allows (path length)",
            Self::Depth => "the certification path is too long",
            Self::NameConstraint => "a name is outside of the name constraints of an issuer",
            Self::Policy => "a required certificate policy is not valid for the path",
            Self::Revoked => "the certificate is revoked",
            Self::RevocationUnknown => "no valid CRL covers the certificate",
            Self::WorkLimit => "the search for a certification path took too many steps",
        })
    }
}

impl core::error::Error for CertFault {}

impl From<Malformed> for CertFault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<KeyParseError> for CertFault {
    fn from(error: KeyParseError) -> Self {
        Self::Key(error)
    }
}
