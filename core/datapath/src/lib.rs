//! The IPsec data path: ESP and AH (RFC 4301 section 5, RFC 4302, RFC 4303).
//!
//! The data path takes IP packets and returns IP packets, or drops with a reason. It does no I/O, reads no
//! clock and has no random source of its own. It allocates when SAs and policies are added, never for a
//! packet.
//!
//! ```text
//!  out:  packet -> classify (spd) -> size and DF (pmtu) -> reserve a sequence number (seq)
//!        -> frame and seal (esp | ah) -> outer header (tunnel | transport, udp)
//!        -> the caller sends, in fragments if the verdict says so (fragment)
//!  in:   (caller: reassembly) -> demux -> SA by SPI (sad) -> replay check -> open (esp | ah)
//!        -> replay commit -> remove headers (tunnel | transport, ecn) -> policy check (admission)
//!        -> the caller delivers
//! ```
//!
//! What every packet passes is inlined on 64-bit processors only: devices need the space.
//!
//! Read `outbound` and `inbound` first: they list these steps. [`Datapath`] is the entry point. Sealing and
//! opening are separate steps ([`SealBatch`], [`OpenBatch`]), so that several cores can work for one SA while
//! all other steps stay in order.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod add_sa;
mod admission;
mod ah;
mod batch_padding;
mod classify;
mod commit;
mod datapath;
mod decapsulation;
mod demux;
mod drop;
mod dummy;
pub mod ecn;
mod encapsulation;
mod esp;
mod event;
pub mod fragment;
mod framing;
pub mod icmp;
mod inbound;
mod lifetime;
mod mss;
mod nat;
mod opening;
mod outbound;
pub mod pmtu;
mod protect;
pub mod reassembly;
mod replay;
mod rohc;
mod sa;
mod sad;
mod sealing;
mod seq;
mod size;
mod slab;
pub mod spd;
mod status;
#[cfg(feature = "trace")]
pub mod trace;
#[cfg(not(feature = "trace"))]
#[path = "trace_off.rs"]
mod trace;
mod transport;
mod tunnel;
mod verdict;
mod withheld;

pub use add_sa::{AddSaError, SaPath};
pub use admission::{SecPath, Unmatched};
pub use batch_padding::{BatchPadding, PaddingCounters};
pub use datapath::{Config, Datapath, HEAD_ROOM, Role, TAIL_ROOM};
pub use drop::{DropCounters, DropReason};
pub use esp::MAX_BATCH;
pub use event::{Audit, AuditedHeader, Event};
pub use lifetime::Meter;
pub use opening::OpenBatch;
pub use rohc::{RestoredHeader, RohcStatus};
pub use sad::{Direction, SaId};
pub use sealing::SealBatch;
pub use status::{SaCounters, SaStatus, WindowStatus};
pub use verdict::{Admitted, Consumed, Inbound, Outbound, Sealed};

/// Batches move between threads, and the data path itself may change its thread.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Datapath>();
    assert_send::<SealBatch>();
    assert_send::<OpenBatch>();
};
