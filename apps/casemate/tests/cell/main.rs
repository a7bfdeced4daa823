//! Cells: three gateways with three real etcd servers between an inner network and two peers, Casemate and
//! strongSwan. Gateways are killed, stopped, drained and cut off under traffic.
//!
//! An oracle examines every frame that any node sends to the peers: no sequence number and no IV is used
//! twice ([`oracle`]). Receivers check that no datagram arrives twice ([`traffic`]).
//! `cargo xtask cell` repeats the takeovers with 1,000 tunnels.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod bgp;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../charon/mod.rs"]
mod charon;
mod clear_text;
mod clock_steps;
mod disk;
mod etcd;
mod failover;
mod forwarded;
mod full_store;
mod gateways;
mod handover;
mod keepalived;
mod many;
mod net;
mod network;
mod oracle;
mod oracle_tests;
mod other_programs;
mod partitions;
mod repeated_kills;
mod replays;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../scrape/mod.rs"]
mod scrape;
mod steering;
mod store_faults;
mod store_file;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../swanctl/mod.rs"]
mod swanctl;
mod testbed;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;
mod traffic;
mod wire;
mod wrapping_key;
