//! A network stack as a server: sockets of [smoltcp](https://docs.rs/smoltcp) for applications that live elsewhere.
//!
//! ```text
//!  application A -- rings --+
//!                           Server -- sockets -- Interface -- device (of adapters/smoltcp: with IPsec) -- wire
//!  application B -- rings --+
//! ```
//!
//! One [`Server`] has a session for each application, over any [`Transport`](casemate_rings::Transport). It does no I/O and
//! has no clock: the program around it polls the interface, calls [`Server::serve`], and sleeps until something happens. What
//! the interface's device does below is its own affair; with `casemate_smoltcp::Guarded` everything is protected.
//!
//! **What an application can do to others: nothing.** Its sockets are in a table of its own, and a [handle](casemate_rings::Handle)
//! is an index into that table. What it may have is [limited](Limits): sockets, buffers, calls that wait. Its calls are served
//! in turns, so many at a time, and never awaited. When it breaks the rules of its rings or [ends](Server::end), its sockets are
//! aborted and its ports are free again. Keys are nowhere near: this crate knows none.
//!
//! **What it may do** is said by its [`Grant`]: ports below 1024 need one.
//!
//! `no_std`, with `alloc`. Memory is taken for sockets, as they are opened; if there is none, the call is refused.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod application;
mod limits;
mod open;
mod ports;
mod server;
mod table;
mod traffic;
mod world;

pub use limits::{Grant, Limits};
pub use server::{Counters, Notice, Server, SessionId, TooManyApplications};
