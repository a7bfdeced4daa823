//! Conformance suite for providers: vectors of Wycheproof, NIST CAVP and ACVP, and the RFCs, for packets and
//! for IKE.
//!
//! [`conformance`] runs all vectors on one provider, and counts which cases ran or were skipped and why.
//! [`differential()`] compares two providers on random jobs. Tests call [`Report::assert`] with the number of
//! cases of each family, so a provider cannot pass by leaving out algorithms. `data/ORIGIN.md` describes the
//! data and its origin.
//!
//! HMAC is tested with keys of all lengths (RFC 2104). `Providers`, not the provider, enforces the key length
//! of RFC 4868.
#![no_std]
#![forbid(unsafe_code)]
// A test tool: an unreadable vector file must stop the test where the error occurs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod cavp;
mod check;
mod contract;
mod differential;
mod expected;
mod kex;
mod kex_contract;
mod ml_kem;
mod prf;
mod report;
mod rfc;
mod signature;
mod signature_contract;
#[cfg(feature = "std")]
mod wycheproof;

pub use differential::differential;
pub use expected::{
    BRIEF, DIFFERENTIAL, FULL_TAGS, FULL_TAGS_DIFFERENTIAL, LEGACY, MANY_BUFFERS, MANY_BUFFERS_DIFFERENTIAL,
    MODERN, UNCOMMON,
};
pub use report::{Family, Report};

use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, MacAlg, MacKind, Provider};

/// Runs all vector families on `provider`; without the feature `std`, all except Wycheproof.
pub fn conformance(provider: &dyn Provider) -> Report {
    let mut report = Report::new(provider.name());
    #[cfg(feature = "std")]
    wycheproof::run(provider, &mut report);
    cavp::run(provider, &mut report);
    rfc::run(provider, &mut report);
    contract::run(provider, &mut report);
    prf::run(provider, &mut report);
    #[cfg(feature = "std")]
    kex::run_wycheproof(provider, &mut report);
    kex::run(provider, &mut report);
    #[cfg(feature = "std")]
    ml_kem::run_wycheproof(provider, &mut report);
    ml_kem::run(provider, &mut report);
    kex_contract::run(provider, &mut report);
    #[cfg(feature = "std")]
    signature::run_wycheproof(provider, &mut report);
    signature::run(provider, &mut report);
    signature_contract::run(provider, &mut report);
    report
}

/// Runs the subset for small processors, which needs little time and memory and no operating system: the
/// vectors of the RFCs, key exchange without ML-KEM, and the OpenSSL signatures.
pub fn brief(provider: &dyn Provider) -> Report {
    let mut report = Report::new(provider.name());
    cavp::run_brief(provider, &mut report);
    rfc::run(provider, &mut report);
    prf::run(provider, &mut report);
    kex::run(provider, &mut report);
    signature::run(provider, &mut report);
    report
}

/// All combined-mode ciphers.
pub fn aeads() -> Vec<AeadAlg> {
    let mut all = vec![AeadAlg::ChaCha20Poly1305];
    for bits in AesBits::ALL {
        for icv in [8, 12, 16] {
            all.push(AeadAlg::aes_gcm(bits, icv).unwrap());
            all.push(AeadAlg::aes_ccm(bits, icv).unwrap());
        }
    }
    all
}

/// All ciphers except NULL.
pub fn ciphers() -> Vec<CipherAlg> {
    let sized = AesBits::ALL
        .into_iter()
        .flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits), CipherAlg::CamelliaCbc(bits)]);
    sized.chain([CipherAlg::DesCbc, CipherAlg::TripleDesCbc]).collect()
}

/// All MACs with their standard tag length and, if truncation is allowed, with tags of 8 bytes, 12 bytes and
/// full length.
pub fn macs() -> Vec<MacAlg> {
    let gmac = AesBits::ALL.map(MacKind::AesGmac);
    let mut all = Vec::new();
    for kind in KINDS.into_iter().chain(gmac) {
        let lengths = [kind.standard_tag_len(), 8, 12, kind.full_tag_len()];
        for alg in lengths.into_iter().filter_map(|len| MacAlg::truncated(kind, len).ok()) {
            if !all.contains(&alg) {
                all.push(alg);
            }
        }
    }
    all
}

const KINDS: [MacKind; 7] = [
    MacKind::HmacMd5,
    MacKind::HmacSha1,
    MacKind::HmacSha256,
    MacKind::HmacSha384,
    MacKind::HmacSha512,
    MacKind::AesXcbc,
    MacKind::AesCmac,
];
