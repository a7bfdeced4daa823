//! RADIUS client of a gateway whose peers authenticate themselves by EAP: it passes EAP packets on to an AAA
//! server (RFC 2865, RFC 3579), reports sessions (RFC 2866, RFC 2869), and ends them at the server's request
//! (RFC 5176).
//!
//! [`Client`] takes requests, datagrams and the time, and gives datagrams and answers. RADIUS proves packets
//! with MD5 alone. Therefore each Access-Request and each response to one must contain a
//! Message-Authenticator, which RFC 2865 does not demand (CVE-2024-3596); responses without it are discarded.
//!
//! No I/O, no clock, no random generator of its own. `no_std` with alloc. Times are durations since an origin
//! of the caller's choice.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod access;
mod accounting;
mod attribute;
mod client;
mod disconnect;
mod packet;
mod proof;
mod server;
mod writer;

pub use access::{AccessRequest, AccessResponse, TerminationAction, Verdict};
pub use accounting::{AccountingRequest, AccountingStatus, TerminateCause, Usage};
pub use client::{Answer, Client, Event, MAX_SERVERS, RequestId, SOURCE_PORTS, Silence, Transmit};
pub use disconnect::{DisconnectRequest, Dynamic, ErrorCause};
pub use packet::{Attribute, Code, MAX_PACKET, Packet, RadiusFault};
pub use proof::Algorithms;
pub use server::{Retransmission, Server, ServerId, Service};
