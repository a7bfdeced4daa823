//! Why a certificate is not taken.

use casemate_crypto::der::Malformed;
use casemate_crypto::{IdentifierError, KeyFault, KeyKind, SignatureAlg, SignatureError};
use core::fmt;

/// Why a certificate, or a path from it to a root, is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertFault {
    /// Not the DER of a certificate of version 3, or with an extension that is malformed or there twice.
    Malformed,
    /// Not the DER of a CRL.
    MalformedCrl,
    /// Larger than [`StoreLimits`](crate::StoreLimits) say, or more of them.
    TooLarge,
    /// No certificate was given.
    Empty,
    /// A critical extension that is not known here (RFC 5280 section 4.2).
    CriticalExtension,
    /// Not valid yet.
    NotYetValid,
    /// No longer valid.
    Expired,
    /// The key is not one that is taken here.
    Key(KeyFault),
    /// The signature algorithm is not one that is taken here.
    Algorithm(IdentifierError),
    /// A key on the path is shorter than [`Demands`](crate::Demands) say, or of a kind that they do not name (`least` is `None`).
    KeyNotWanted {
        /// The key's kind.
        kind: KeyKind,
        /// Its length, in bits.
        bits: u32,
        /// The least length that is asked of this kind, in bits.
        least: Option<u32>,
    },
    /// A certificate on the path is signed by an algorithm that [`Demands`](crate::Demands) do not name.
    SchemeNotWanted(SignatureAlg),
    /// The signature of the issuer does not hold.
    Signature(SignatureError),
    /// No issuer is known, or no path leads to a root.
    UnknownIssuer,
    /// The issuer is not a CA (RFC 5280 section 4.2.1.9).
    NotCa,
    /// The issuer's key must not sign certificates, or the peer's must not sign (RFC 5280 section 4.2.1.3).
    KeyUsage,
    /// The certificate is for other purposes than IKE (RFC 4945 section 5.1.3.12).
    ExtendedKeyUsage,
    /// More CAs below an issuer than it allows.
    PathLength,
    /// More CAs between the certificate and a root than [`Options`](crate::Options) allow.
    Depth,
    /// A name that a CA above must not certify (RFC 5280 section 4.2.1.10).
    NameConstraint,
    /// The certificate is revoked.
    Revoked,
    /// No valid CRL tells whether the certificate is revoked, and one is needed.
    RevocationUnknown,
    /// The search for a path was given up: too many signatures or names.
    Work,
}

impl fmt::Display for CertFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed certificate, expected X.509 version 3 in DER",
            Self::MalformedCrl => "malformed CRL, expected X.509 in DER",
            Self::TooLarge => "certificates or CRLs too large, or too many",
            Self::Empty => "no certificate",
            Self::CriticalExtension => "unknown critical extension",
            Self::NotYetValid => "certificate not valid yet",
            Self::Expired => "certificate expired",
            Self::Key(why) => return write!(f, "key of the certificate: {why}"),
            Self::Algorithm(why) => return write!(f, "signature of the certificate: {why}"),
            Self::Signature(why) => return write!(f, "signature of the certificate: {why}"),
            Self::KeyNotWanted { kind, bits, least: Some(least) } => {
                return write!(
                    f,
                    "a key in the chain is {kind} with {bits} bits, at least {least} were asked for"
                );
            }
            Self::KeyNotWanted { kind, bits, least: None } => {
                return write!(
                    f,
                    "a key in the chain is {kind} with {bits} bits, another kind was asked for"
                );
            }
            Self::SchemeNotWanted(alg) => {
                return write!(
                    f,
                    "a certificate in the chain is signed by {alg}, another algorithm was asked for"
                );
            }
            Self::UnknownIssuer => "no path to a trusted root",
            Self::NotCa => "the issuer is not a CA",
            Self::KeyUsage => "the key must not be used for this (key usage)",
            Self::ExtendedKeyUsage => "the certificate is for other purposes (extended key usage)",
            Self::PathLength => "more CAs than a CA above allows",
            Self::Depth => "path to the root too long",
            Self::NameConstraint => "a name that a CA above must not certify",
            Self::Revoked => "the certificate is revoked",
            Self::RevocationUnknown => "no valid CRL for the certificate",
            Self::Work => "too much work to find a path to a root",
        })
    }
}

impl core::error::Error for CertFault {}

impl From<Malformed> for CertFault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<KeyFault> for CertFault {
    fn from(why: KeyFault) -> Self {
        Self::Key(why)
    }
}
