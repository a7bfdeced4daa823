//! Protocol between an application and a network stack server over shared memory.
//!
//! ```text
//!  application                      shared memory                       server
//!    ClientChannel -- requests -->  [ request ring  ]  --> ServerChannel  sockets, IPsec, keys
//!                  <- responses --  [ response ring ]  <--
//!                            Transport::notify
//! ```
//!
//! The server answers each [`Request`] once, with a [`Response`] or an [`Error`] that carries the
//! request's [`RequestId`]. A request with `wait` is answered when its condition is met; until then the
//! server processes other requests. The server sends nothing that was not requested, so an application
//! that does not read its ring only delays itself.
//!
//! **Neither end trusts the memory.** The memory consists of words
//! ([`AtomicU64`](core::sync::atomic::AtomicU64)) that may change at any time. Each word is read once
//! into a private copy, and the copy is validated. No reference into the memory is created. The start of
//! a ring and the end's own position are never read from the memory. An impossible ring position or
//! message length is a [`Violation`] and terminates the session. A message with a valid frame and invalid
//! content gets the response [`Error::Malformed`].
//!
//! A [`Transport`] connects the protocol to the operating system: it provides the memory and a
//! notification to the other end. The Linux implementation is in `socketd/client`; on a microkernel it
//! would be a dataspace and a signal. The operating system must detect and report the end of the other
//! process.
//!
//! The crate is `no_std`, has no unsafe code and no dependencies. It requires 64-bit atomics.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod channel;
mod codec;
mod memory;
mod message;
mod ring;

pub use channel::{
    ClientChannel, LocalTransport, ReceivedRequest, ReceivedResponse, ServerChannel, Transport,
};
pub use memory::{RingSizes, WORD};
pub use message::{Error, Readiness, Request, RequestId, Response, SocketId};
pub use ring::{PushError, Violation};

/// Version of the messages and of the memory layout. An end that uses another version is rejected.
pub const VERSION: u16 = 1;
