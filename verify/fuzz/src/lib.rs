//! Fuzz targets: every parser, the roads through the data path, sessions of IKE, applications of the stack
//! server, and the files that the program reads.
//!
//! A [`Target`] is a function from bytes to nothing that panics when a promise is broken: not only a crash, but a value
//! that does not survive emit and parse, a drop counted twice, a packet delivered that nobody sealed. The engine (libFuzzer)
//! feeds it; `cargo test` runs the seeds and the [regressions]. Start: `cargo xtask fuzz --help`.
// A broken expectation is meant to stop the run, with its reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apps;
mod datapath;
mod ike;
mod input;
mod pki;
pub mod regressions;
mod script;
mod stack;
mod wire;

/// One function to be fuzzed.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// Longest input worth trying, in bytes.
    pub max_len: usize,
    /// The function. Panics when the subject breaks a promise.
    pub run: fn(&[u8]),
    /// Inputs to begin with: true packets and files, made by code.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that the subject compares whole, which chance would not find.
    pub words: &'static [&'static str],
}

/// Every target.
pub const TARGETS: &[Target] = &[
    wire::ipv4::TARGET,
    wire::ipv6::TARGET,
    wire::udp::TARGET,
    wire::esp::TARGET,
    wire::ah::TARGET,
    wire::icmp::TARGET,
    wire::flow::TARGET,
    wire::ike::TARGET,
    wire::ike_payload::TARGET,
    pki::keys::TARGET,
    pki::certificate::TARGET,
    pki::crl::TARGET,
    pki::pem_file::TARGET,
    datapath::inbound::TARGET,
    datapath::outbound::TARGET,
    datapath::replay::TARGET,
    datapath::reassembly::TARGET,
    datapath::fragment::TARGET,
    datapath::icmp::TARGET,
    datapath::spd::TARGET,
    ike::responder::TARGET,
    ike::session::TARGET,
    apps::xfrm::TARGET,
    apps::capture::TARGET,
    apps::ike::TARGET,
    apps::swanctl::TARGET,
    stack::TARGET,
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
