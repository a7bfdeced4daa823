//! The algorithms of ESP, AH and IKE from the RustCrypto crates (X25519 from dalek): portable, `no_std`, no unsafe code of its own.
//!
//! Runs wherever Rust does; uses the AES, carry-less multiplication and SHA instructions of the processor where it finds
//! them, and constant-time code where it does not. DES, 3DES and MD5 are in `casemate-legacy`.
//!
//! Allocates when a key is set up, nothing for a packet. Keys and their schedules are wiped on drop.
//!
//! Where a mode is one long chain (CBC encryption, CMAC, XCBC), the packets of a batch go through it side by side.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cbc;
mod ccm;
mod chacha;
mod chain_mac;
mod cmac;
mod combined;
mod ctr;
mod ecp;
mod etm;
mod gcm;
mod gmac;
mod hmac;
mod lanes;
mod mac;
mod modp;
mod provider;
mod signature;
mod single;
#[cfg(test)]
mod wiped;
mod x25519;
mod xcbc;

pub use provider::{RUSTCRYPTO, RustCrypto};
pub use single::{
    AES_128_CBC, AES_128_GCM, AES_256_CBC, AES_256_GCM, CHACHA20_POLY1305, ECP_P256, HMAC_SHA1, HMAC_SHA256,
    HMAC_SHA384, HMAC_SHA512, SHA1, X25519,
};
