//! What an application and a server of a network stack say to each other, through memory that both can write.
//!
//! ```text
//!  application                    shared memory                       server
//!    Caller  ---- calls ---->  [ ring of calls   ]  ---->  Answerer   sockets, IPsec, keys
//!            <--- answers ---  [ ring of answers ]  <----
//!                         Transport::ring: "look at it"
//! ```
//!
//! A [`Call`] is answered once, by an [`Answer`] or an [`Error`] with the number ([`Tag`]) of the call. Calls with patience are
//! answered when there is something to say; until then others are answered. Nothing is sent that was not asked for, so an
//! application that does not read keeps nobody waiting but itself.
//!
//! **Neither side trusts the memory.** It is words ([`AtomicU64`](core::sync::atomic::AtomicU64)), which may change at any
//! moment: each is read once, into a value of our own, and checked there. No reference into the memory is made. Where a ring
//! begins and how far we are ourselves is never read from it. What cannot be true of a ring is a [`Violation`], and ends the
//! session. What is well framed and makes no sense is answered with [`Error::Malformed`].
//!
//! **The system below** is a [`Transport`]: memory, and a way to wake the other side. Linux has one in `adapters/shm`; on a
//! microkernel it is a dataspace and a signal. That the other side has ended is for the system to find out and to tell.
//!
//! `no_std`, without unsafe code, without dependencies; for processors with atomics of 64 bits.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod channel;
mod codec;
mod copy;
mod layout;
mod message;
mod ring;
mod transport;

pub use channel::{Answerer, Caller, Incoming, Outcome};
pub use layout::{Geometry, WORD};
pub use message::{Answer, Call, Error, Handle, Readiness, Tag};
pub use ring::{PutError, Violation};
pub use transport::{Local, Transport};

/// Version of the messages and of the memory's layout. A side that speaks another one is refused.
pub const VERSION: u16 = 1;
