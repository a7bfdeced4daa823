//! One conformance suite for every provider: Wycheproof, NIST CAVP and the RFCs' own vectors, for packets and for IKE.
//!
//! [`conformance`] runs them all on one provider and counts what ran, what was skipped and why; [`differential()`] compares
//! two providers on random work. A test asserts [`Report::assert`], which names the number of cases of each family, so that
//! a provider cannot pass by silently leaving something out. Data and its origin: `data/ORIGIN.md`.
//!
//! HMAC is tested with keys of every length (RFC 2104): the one length of RFC 4868 is held by `Providers`, not by a provider.
#![no_std]
#![forbid(unsafe_code)]
// A test tool: a vector file that cannot be read must stop the test, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod algorithms;
mod cavp;
mod check;
mod contract;
mod differential;
mod expected;
mod kex;
mod kex_contract;
mod prf;
mod random;
mod report;
mod rfc;
mod rsp;
mod signature;
mod signature_contract;
#[cfg(feature = "std")]
mod wycheproof;

pub use algorithms::{aeads, ciphers, macs};
pub use differential::differential;
pub use expected::{BRIEF, DIFFERENTIAL, LEGACY, MANY_BUFFERS, MANY_BUFFERS_DIFFERENTIAL, MODERN};
pub use report::{Family, Report};

use casemate_crypto::Provider;

/// Runs every vector family on `provider`; without the feature `std` all but Wycheproof's.
pub fn conformance(provider: &dyn Provider) -> Report {
    let mut report = Report::new(provider.name());
    #[cfg(feature = "std")]
    wycheproof::run(provider, &mut report);
    cavp::run(provider, &mut report);
    rfc::run(provider, &mut report);
    contract::run(provider, &mut report);
    prf::run(provider, &mut report);
    #[cfg(feature = "std")]
    wycheproof::kex::run(provider, &mut report);
    kex::run(provider, &mut report);
    kex_contract::run(provider, &mut report);
    #[cfg(feature = "std")]
    wycheproof::signature::run(provider, &mut report);
    signature::run(provider, &mut report);
    signature_contract::run(provider, &mut report);
    report
}

/// What a small processor has the time and the memory for: the vectors of the RFCs, key exchange but for the long MODP groups,
/// and OpenSSL's signatures. Needs no operating system.
pub fn brief(provider: &dyn Provider) -> Report {
    let mut report = Report::new(provider.name());
    cavp::run_brief(provider, &mut report);
    rfc::run(provider, &mut report);
    prf::run(provider, &mut report);
    kex::run(provider, &mut report);
    signature::run(provider, &mut report);
    report
}
