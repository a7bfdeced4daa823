//! What a transform is: algorithm names, suites, key types and the traits that providers implement.
//!
//! Contains no algorithm. A provider is a value that is passed in ([`Providers`]); nothing here is process-wide, and no
//! Cargo feature changes what is offered. `no_std`; allocates only when a key is set up, never for a packet.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod algorithm;
mod algorithm_identifier;
mod by_run;
pub mod der;
mod etm;
mod hash;
mod job;
mod kex;
mod modp;
mod prf;
mod private_key;
mod provider;
mod public_key;
mod rng;
mod salt;
mod secret;
mod signature;
mod suite;

pub use algorithm::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind, NotAnAlgorithm};
pub use algorithm_identifier::IdentifierError;
pub use etm::EncryptThenMac;
pub use hash::{Digest, HashAlg};
pub use job::{AeadJob, EtmJob, MAX_TAG, MacJob, Outcome, Tag, verifies};
pub use kex::{KexError, KexMethod, KexSecret};
pub use prf::{PrfAlg, PrfError, PrfKey, PrfOutput, prf_plus};
pub use private_key::{PrivateKey, RsaNumbers, RsaPrivateKey};
pub use provider::{AeadKey, CipherKey, EtmKey, KeyError, MacKey, Provider, Providers};
pub use public_key::{Curve, KeyFault, KeyKind, KeyLimits, MAX_RSA_BITS, PublicKey, PublicParts};
pub use rng::Rng;
pub use salt::Salt;
pub use secret::SecretBytes;
pub use signature::{
    IDENTITY_HASH, SignatureAlg, SignatureError, SigningKey, ecdsa_from_fixed, ecdsa_to_fixed,
};
pub use suite::{AhSuite, EspSuite};
