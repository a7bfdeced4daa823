//! A network stack server: [smoltcp](https://docs.rs/smoltcp) sockets for applications in other processes.
//!
//! ```text
//!  application A -- rings --+
//!                           Server -- sockets -- Interface -- device (adapters/smoltcp, with IPsec) -- wire
//!  application B -- rings --+
//! ```
//!
//! The [`Server`] has one session per application, over any
//! [`Transport`](casemate_socketd_protocol::Transport). The server does no I/O and has no clock: its
//! owner polls the interface, calls [`Server::serve`], and sleeps until the next event. With the device
//! `casemate_smoltcp::IpsecDevice`, all traffic is subject to IPsec policy.
//!
//! **Isolation.** An application cannot affect the others. Its sockets are in a table of its own, and a
//! [socket ID](casemate_socketd_protocol::SocketId) is an index into that table. [`Limits`] bound its
//! sockets, its buffers and its waiting requests. In each round the server processes a bounded number of
//! requests per application and never waits for an application. If an application violates the ring
//! protocol or [ends](Server::end_session), its sockets are aborted and its ports are released. This
//! crate has no access to keys.
//!
//! **Permissions.** A port below 1024 needs a [`PortGrant`].
//!
//! The crate is `no_std` with `alloc`. Memory is allocated when a socket is opened; if the allocation
//! fails, the request is refused.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod server;
mod session;
mod sockets;
mod transfer;

pub use server::{Counters, Limits, Notice, PortGrant, Server, SessionId, TooManyApplications};
