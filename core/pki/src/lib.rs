//! X.509 certificates for IKE (RFC 7296 section 3.6, RFC 4945, RFC 5280): who may sign for whom, and who a certificate names.
//!
//! A [`TrustStore`] holds what the administrator trusts. [`TrustStore::verify`] takes the certificates of a peer as CERT payloads
//! bring them and answers with a [`VerifiedCert`], whose names are then compared with the peer's identity
//! ([`VerifiedCert::is_named`]). [`LocalCert`] is our own certificate with its key.
//!
//! Nothing is ever fetched: URIs in certificates are never followed (CVE-2022-40617). Work is bounded: sizes, numbers, depth of a path,
//! signatures tried and names compared. No I/O, no clock, no randomness. `no_std` with alloc.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod certificate;
mod constraints;
mod crl;
mod demands;
mod dn;
mod extension;
mod fault;
mod general_name;
mod identity;
mod local;
mod path;
pub mod pem;
mod revocation;
mod store;
mod time;

pub use demands::{Demands, KeyKinds, Schemes};
pub use dn::{DnPattern, canonical_dn, dn_parts, same_dn};
pub use fault::CertFault;
pub use identity::PeerName;
pub use local::{LocalCert, LocalFault};
pub use path::{VerifiedCert, is_self_issued, subject};
pub use revocation::Revocation;
pub use store::{Options, StoreLimits, TrustStore};
