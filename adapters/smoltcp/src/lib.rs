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
//! Over any device a packet is copied once on its way in and once on its way out. A driver whose rings are at hand spares both: it
//! exchanges buffers with the guard ([`Exchange`]). An application sees no difference.
//!
//! `no_std`, with `alloc`. Memory is taken when a `Guarded` is made, and by IKE: four buffers of the longest packet, three of the
//! device's, two reassemblers, and the tables of [`Limits`](casemate_sa::Limits).
//!
//! # Example
//!
//! A host that protects everything between itself and its peer, in transport mode, with keys from IKE and a pre-shared key.
//!
//! ```
//! # struct Random; // A device has a real one.
//! # impl casemate_crypto::Rng for Random {
//! #     fn public(&mut self, out: &mut [u8]) { out.fill(7) }
//! #     fn secret(&mut self, out: &mut [u8]) { out.fill(9) }
//! # }
//! # let (rng, seed) = (Random, 1);
//! # let device = smoltcp::phy::Loopback::new(smoltcp::phy::Medium::Ip);
//! use casemate::{Datapath, Endpoint, housekeeping};
//! use casemate_crypto::SecretBytes;
//! use casemate_datapath::Config;
//! use casemate_ike::config::{AddrPattern, Child, ChildMode, Connection, IdPattern, Identity, Start};
//! use casemate_ike::{Settings, SharedKeys};
//! use casemate_sa::{AddrRange, Limits};
//! use casemate_smoltcp::{Guarded, IkeSockets, Keys, Setup};
//! use smoltcp::iface::{Interface, SocketSet};
//! use smoltcp::time::Instant;
//! use std::sync::Arc;
//!
//! // The data path, in the memory of a small device. What no policy names is dropped.
//! let limits = Limits { policies: 32, ..Limits::DEVICE };
//! let mut datapath = Datapath::new(Config { limits, ..Config::server(seed) });
//! housekeeping(&mut datapath)?;
//! let endpoint = Endpoint::new(datapath, Settings::DEVICE);
//!
//! // The device, guarded, in the place of the device.
//! let mut device = Guarded::new(device, Setup { endpoint, rng: Box::new(rng), limits });
//! let config = smoltcp::iface::Config::new(smoltcp::wire::HardwareAddress::Ip);
//! let mut interface = Interface::new(config, &mut device, Instant::ZERO);
//! interface.update_ip_addrs(|addrs| addrs.push("192.0.2.1/24".parse().unwrap()).unwrap());
//!
//! // IKE, with one peer.
//! let name = |name: &str| Identity::Fqdn(name.into());
//! let peer = AddrRange::single("192.0.2.2".parse()?);
//! let mut connection = Connection::with_shared_key("peer", name("device"), name("peer"));
//! connection.remote_addrs = vec![AddrPattern::Range(peer)];
//! let start = Start { on_traffic: true, at_once: false };
//! connection.children = vec![Arc::new(Child { mode: ChildMode::Transport, start, ..Child::new("all") })];
//! let secret = SecretBytes::new(b"only for an example");
//! let keys = Keys {
//!     providers: vec![&casemate_rustcrypto::RUSTCRYPTO],
//!     credentials: Box::new(SharedKeys::new().with(IdPattern::Exactly(name("peer")), secret)),
//!     unix_time_at_origin: 0,
//! };
//! let mut sockets = SocketSet::new(vec![]);
//! let mut ike = IkeSockets::new(&mut device, &mut sockets, keys);
//! ike.with(Instant::ZERO, &interface, &mut device, |endpoint, means| {
//!     endpoint.configure(vec![Arc::new(connection)], &[], means)
//! })?;
//!
//! // The loop.
//! let now = Instant::from_millis(10);
//! interface.poll(now, &mut device, &mut sockets);
//! ike.serve(now, &interface, &mut device, &mut sockets, |notice| println!("{notice:?}"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::arithmetic_side_effects)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod exchange;
mod frame;
mod guarded;
mod ike;
mod outlet;
mod queue;
mod road;
mod time;

pub use exchange::{Exchange, Full};
pub use guarded::{Guarded, Incoming, Outgoing};
pub use ike::{IkeSockets, Keys};
pub use road::Setup;
pub use time::{from_smoltcp, to_smoltcp};
