//! The data path of IPsec: ESP and AH (RFC 4301 section 5, RFC 4302, RFC 4303).
//!
//! IP packets go in, IP packets or drops with a reason come out. No I/O, no clock, no randomness of its own; allocates when
//! SAs and policies are added, never for a packet.
//!
//! ```text
//!  out:  packet -> classify (spd) -> size and DF (pmtu) -> reserve a number (seq) -> frame and seal (esp | ah) -> outer
//!        header (tunnel | transport, udp) -> caller sends, in fragments if told to (fragment)
//!  in:   (caller: reassembly) -> demux -> SA by SPI (sad) -> replay check -> open (esp | ah) -> replay commit
//!        -> take off headers (tunnel | transport, ecn) -> policy check (admission) -> caller delivers
//! ```
//!
//! Read `outbound` and `inbound` first: they list these steps. The door is [`Datapath`]. To seal and to open are steps of their
//! own ([`Sealing`], [`Opening`]), so that several cores can work for one SA while everything else stays in order.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod ah;
mod arrival;
mod classify;
mod datapath;
mod drop;
mod dummy;
pub mod ecn;
mod esp;
mod event;
pub mod fragment;
mod framing;
mod growth;
pub mod icmp;
mod inbound;
mod lifetime;
mod mss;
mod nat;
mod opening;
mod outbound;
mod places;
pub mod pmtu;
mod protect;
pub mod reassembly;
mod refuse;
mod replay;
mod sa_in;
mod sa_out;
mod sad;
mod sealing;
mod seq;
mod shared;
mod slab;
pub mod spd;
mod status;
mod transport;
mod tunnel;
mod verdict;

pub use admission::{Unmatched, Via};
pub use datapath::{AddSaError, Config, Datapath, HEAD_ROOM, Role, SaPath, TAIL_ROOM};
pub use drop::{DropCounters, DropReason};
pub use esp::RUN;
pub use event::{Audit, Event};
pub use lifetime::Meter;
pub use opening::Opening;
pub use sad::{Direction, SaId};
pub use sealing::Sealing;
pub use status::{SaStatus, WindowStatus};
pub use verdict::{Admitted, Consumed, Inbound, Outbound, Sealed};

/// Batches go to the cores that have time for them; the data path itself may change threads.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Datapath>();
    assert_send::<Sealing>();
    assert_send::<Opening>();
};
