//! What a transform is: algorithm names, suites, key types and the traits that providers implement.
//!
//! Contains no algorithm. A provider is a value that is passed in ([`Providers`]); nothing here is process-wide, and no
//! Cargo feature changes what is offered. `no_std`; allocates only when a key is set up, never for a packet.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod algorithm;
mod etm;
mod job;
mod kex;
mod modp;
mod prf;
mod provider;
mod rng;
mod salt;
mod secret;
mod suite;

pub use algorithm::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind, NotAnAlgorithm};
pub use etm::EncryptThenMac;
pub use job::{AeadJob, EtmJob, MAX_TAG, MacJob, Outcome, Tag};
pub use kex::{KexError, KexMethod, KexSecret};
pub use prf::{PrfAlg, PrfError, PrfKey, PrfOutput, prf_plus};
pub use provider::{AeadKey, CipherKey, EtmKey, KeyError, MacKey, Provider, Providers};
pub use rng::Rng;
pub use salt::Salt;
pub use secret::SecretBytes;
pub use suite::{AhSuite, EspSuite};
