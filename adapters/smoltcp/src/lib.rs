//! IPsec inside [smoltcp](https://docs.rs/smoltcp), below its IP layer.
//!
//! [`Guarded`] wraps a [`Device`](smoltcp::phy::Device) and is one itself: where an application gave its interface a device,
//! it gives it the guarded one. Packets are protected whole and cut afterwards, put together first and opened afterwards.
//!
//! ```text
//!  application -- sockets -- Interface -- Guarded ------------------------------ Device -- wire
//!                                           |  out: protect, cut
//!                                           |  in:  put together, open, check policy
//!                                        Endpoint  <--  IkeSockets, over UDP sockets of the same interface
//! ```
//!
//! The interface is told of an MTU as large as the largest packet that fits the buffers, so that smoltcp never cuts what has
//! to be protected; TCP's segments are kept short by their MSS. What is cut here is put together by any host. smoltcp itself
//! cannot put IPv6 fragments together; below it, this crate does.
//!
//! Routes are smoltcp's: a protected packet leaves with the link-layer addresses that the packet inside had. Let routes to
//! networks behind a tunnel lead to the same neighbour as the tunnel's other end.
//!
//! ARP passes. Neighbour discovery, multicast membership, DHCP and IKE pass where
//! [`housekeeping`](casemate::housekeeping) says so; everything else is policy's business. Other kinds of frames are dropped.
//!
//! `no_std`, with `alloc`. Memory is taken when a `Guarded` is made, and by IKE.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod frame;
mod guarded;
mod ike;
mod queue;
mod road;
mod time;

pub use guarded::{Guarded, Incoming, Outgoing};
pub use ike::{IkeSockets, Keys};
pub use road::Setup;
pub use time::{from_smoltcp, to_smoltcp};
