//! X.509 certificates for IKE (RFC 7296 section 3.6, RFC 4945, RFC 5280): certification paths, revocation,
//! and names.
//!
//! A [`TrustStore`] holds the trusted roots. [`TrustStore::verify`] takes the certificates of a peer in the
//! order of its CERT payloads and returns a [`VerifiedCert`], whose names are compared with the peer's
//! identity by [`VerifiedCert::has_name`]. [`LocalCert`] is our own certificate with its private key.
//!
//! Nothing is fetched here. With the Cargo feature `status`, [`StatusUris`] reads URIs from a certificate,
//! which a caller may follow once a peer has proved that it has the certificate's key (CVE-2022-40617), and
//! [`StatusVerifier`] verifies CRLs and OCSP responses (RFC 6960) that arrive. Work is bounded: sizes,
//! numbers, path length, verified signatures and compared names. No I/O, no clock, no random generator.
//! `no_std` with alloc.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod algorithm_policy;
mod certificate;
mod constraints;
mod crl;
mod dn;
mod dn_text;
mod extension;
mod fault;
mod general_name;
mod local_cert;
mod path;
pub mod pem;
#[cfg(feature = "policies")]
mod policy;
#[cfg(feature = "status")]
mod status;
mod store;
mod time;

pub use algorithm_policy::{AlgorithmPolicy, KeyPolicy, SignatureAlgs};
pub use dn::{DnPattern, canonical_dn, dn_parts, same_dn};
pub use dn_text::{DnText, dn_text_parts, dn_to_text, is_der_sequence};
pub use fault::CertFault;
pub use general_name::PeerName;
pub use local_cert::{LocalCert, LocalCertFault};
pub use path::{VerifiedCert, is_authority, is_self_issued, issuer, subject, validity};
#[cfg(feature = "policies")]
pub use policy::PolicyOid;
#[cfg(feature = "status")]
pub use status::{
    CertStatus, IssuedCert, MAX_OCSP_LEN, MAX_URI_LEN, MAX_URIS, NONCE_LEN, OcspNonce, StatusAnswer,
    StatusFault, StatusUris, StatusVerifier, delta_crl_uris, is_base_of_delta, is_listed,
};
pub use store::{Revocation, StoreLimits, TrustStore, VerifyOptions};
