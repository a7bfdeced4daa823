//! Linux as a home of the data path: TUN, raw, packet and UDP sockets, routes, and the files that outlive a run.
//!
//! Thin translations; every protocol decision is the data path's. [`Engine`] joins the pieces: packets that the host sends
//! come out of [`tun::Tun`], leave through [`raw`], arrive through [`receive`] or [`udp`] and go back into [`tun::Tun`]. [`setup`]
//! leads the host's traffic there and takes everything back afterwards. Linux only.

pub mod buffers;
pub mod clock;
pub mod confine;
pub mod counters;
pub mod engine;
mod error;
#[cfg(test)]
mod eventually;
mod filter;
mod guard;
pub mod ike;
pub mod instance;
pub mod journal;
pub mod local;
mod namespace;
mod netfilter;
pub mod netlink;
pub mod netns;
pub mod nft;
mod offload;
pub mod private;
pub mod promises;
mod rank;
pub mod raw;
pub mod receive;
pub mod rng;
pub mod route;
pub mod setup;
pub mod signal;
mod steer;
mod sys;
pub mod tap;
mod train;
pub mod tun;
pub mod udp;

pub use engine::{Attendant, DummyTraffic, Engine, Home, HomeLock, Parts, Scheduling, Trouble};
pub use error::Error;

/// The most packets that are under way at once: three super-packets of TCP, so that the trains cut from them are full.
pub const BATCH: usize = 128;
