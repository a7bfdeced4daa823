//! Cryptographic interfaces: algorithm identifiers, suites, key types, and the traits that providers
//! implement.
//!
//! This crate implements no algorithm. The caller passes providers as a value ([`Providers`]); there is no
//! process-wide state, and no Cargo feature changes the set of algorithms. `no_std`; memory is allocated only
//! when a key is set up, never for a packet.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod algorithm;
mod algorithm_identifier;
mod composite;
pub mod der;
mod exchange;
mod hash;
mod job;
mod kex;
mod modp;
mod prf;
mod private_key;
mod provider;
mod public_key;
mod secret;
mod signature;
mod suite;

pub use algorithm::{AeadAlg, AesBits, CipherAlg, ImplicitIvAlg, InvalidAlgorithm, MacAlg, MacKind};
pub use algorithm_identifier::AlgorithmIdentifierError;
pub use composite::EncryptThenMac;
pub use exchange::{KexError, KexResponse, KexSecret};
pub use hash::{Digest, HashAlg};
pub use job::{AeadJob, EtmJob, JobStatus, MAX_TAG, MacJob, Tag, tags_equal};
pub use kex::KexMethod;
pub use prf::{PrfAlg, PrfError, PrfKey, PrfOutput, prf_plus};
pub use private_key::{PrivateKey, RsaNumbers, RsaPrivateKey};
pub use provider::{
    AeadKey, AeadRange, CipherKey, EtmKey, KeyError, MacKey, PasswordAlgorithms, Provider, Providers,
};
pub use public_key::{Curve, KeyKind, KeyLimits, KeyParseError, MAX_RSA_BITS, PublicKey, PublicParts};
pub use secret::{Rng, Salt, SecretBytes};
pub use signature::{
    IDENTITY_HASH, SignatureAlg, SignatureError, SigningKey, ecdsa_from_fixed, ecdsa_to_fixed,
};
pub use suite::{AhSuite, EspSuite};
