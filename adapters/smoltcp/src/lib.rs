//! IPsec for [smoltcp](https://docs.rs/smoltcp), below its IP layer.
//!
//! [`IpsecDevice`] wraps a [`Device`](smoltcp::phy::Device) and implements the same trait. The
//! application passes it to the interface in place of the device. Outgoing packets are protected whole
//! and fragmented afterwards. Incoming fragments are reassembled before the packet is decrypted.
//!
//! ```text
//!  application -- sockets -- Interface -- IpsecDevice ------------------------------ Device -- wire
//!                                           |  out: protect, fragment
//!                                           |  in:  reassemble, decrypt, check policy
//!                                        Endpoint  <--  IkeSockets, over UDP sockets of the same interface
//! ```
//!
//! The device reports an MTU of the largest packet that fits the buffers, so smoltcp never fragments a
//! packet before it is protected. The MSS keeps TCP segments short. Any host can reassemble the fragments
//! made here. smoltcp itself cannot reassemble IPv6 fragments; this crate does that.
//!
//! smoltcp does the routing. A protected packet is sent with the link-layer addresses of the inner
//! packet. Therefore a route to a network behind a tunnel must use the same neighbour as the tunnel's
//! remote endpoint.
//!
//! Feedback of header compression (RFC 5856) is sent when a packet causes it, to the neighbour from which the
//! packet came.
//!
//! ARP frames pass. Neighbour discovery, multicast membership, DHCP and IKE pass if
//! [`bypass_control_plane`](casemate::bypass_control_plane) has added its policies. The policies decide
//! about all other packets. Frames of other protocols are dropped.
//!
//! With a plain smoltcp device a packet is copied once per direction. A driver that can exchange the
//! buffers of its rings avoids both copies ([`BufferDevice`]). The interface for applications is the
//! same.
//!
//! The crate is `no_std` with `alloc`. Memory is allocated when an `IpsecDevice` is created, and by IKE:
//! four buffers for the longest packet, three of the device, two reassemblers, and the tables with the
//! sizes of [`Limits`](casemate_sa::Limits).
//!
//! # Example
//!
//! A host that protects all traffic with its peer in transport mode, with keys from IKE and a pre-shared key.
//!
//! ```
//! # struct Random; // A device has a real one.
//! # impl casemate_crypto::Rng for Random {
//! #     fn public(&mut self, out: &mut [u8]) { out.fill(7) }
//! #     fn secret(&mut self, out: &mut [u8]) { out.fill(9) }
//! # }
//! # let (rng, seed) = (Random, 1);
//! # let device = smoltcp::phy::Loopback::new(smoltcp::phy::Medium::Ip);
//! use casemate::{Datapath, Endpoint, bypass_control_plane};
//! use casemate_crypto::SecretBytes;
//! use casemate_datapath::Config;
//! use casemate_ike::config::{AddrPattern, ChildConfig, ChildMode, Connection};
//! use casemate_ike::config::{IdPattern, Identity, StartAction};
//! use casemate_ike::{IkeSettings, SharedKeys};
//! use casemate_sa::{AddrRange, Limits};
//! use casemate_smoltcp::{IkeConfig, IkeSockets, IpsecConfig, IpsecDevice};
//! use smoltcp::iface::{Interface, SocketSet};
//! use smoltcp::time::Instant;
//! use std::sync::Arc;
//!
//! // The data path with the limits of a small device. Packets that match no policy are dropped.
//! let limits = Limits { policies: 32, ..Limits::DEVICE };
//! let mut datapath = Datapath::new(Config { limits, ..Config::server(seed) });
//! bypass_control_plane(&mut datapath)?;
//! let endpoint = Endpoint::new(datapath, IkeSettings::DEVICE);
//!
//! // The device with IPsec takes the place of the plain device.
//! let mut device = IpsecDevice::new(device, IpsecConfig { endpoint, rng: Box::new(rng), limits });
//! let config = smoltcp::iface::Config::new(smoltcp::wire::HardwareAddress::Ip);
//! let mut interface = Interface::new(config, &mut device, Instant::ZERO);
//! interface.update_ip_addrs(|addrs| addrs.push("192.0.2.1/24".parse().unwrap()).unwrap());
//!
//! // IKE, with one peer.
//! let name = |name: &str| Identity::Fqdn(name.into());
//! let peer = AddrRange::single("192.0.2.2".parse()?);
//! let mut connection = Connection::with_shared_key("peer", name("device"), name("peer"));
//! connection.remote_addrs = vec![AddrPattern::Range(peer)];
//! let start_action = StartAction { on_traffic: true, at_once: false };
//! let child = ChildConfig { mode: ChildMode::Transport, start_action, ..ChildConfig::new("all") };
//! connection.children = vec![Arc::new(child)];
//! let secret = SecretBytes::new(b"only for an example");
//! let config = IkeConfig {
//!     providers: vec![&casemate_rustcrypto::RUSTCRYPTO],
//!     credentials: Box::new(SharedKeys::new().with(IdPattern::Exact(name("peer")), secret)),
//!     unix_time_at_origin: 0,
//! };
//! let mut sockets = SocketSet::new(vec![]);
//! let mut ike = IkeSockets::new(&mut device, &mut sockets, config);
//! ike.with_endpoint(Instant::ZERO, &interface, &mut device, |endpoint, context| {
//!     endpoint.configure(vec![Arc::new(connection)], &[], context)
//! })?;
//!
//! // The main loop.
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

mod device;
mod ike;
mod path;
mod transmit;

use casemate_sa::Instant;
pub use device::{BufferDevice, DeviceFull, IpsecDevice, IpsecRxToken, IpsecTxToken};
pub use ike::{IkeConfig, IkeSockets};
pub use path::IpsecConfig;

/// Converts smoltcp's time. Negative times become 0.
pub fn from_smoltcp(time: smoltcp::time::Instant) -> Instant {
    Instant::from_micros(u64::try_from(time.total_micros()).unwrap_or(0))
}

/// Converts a time to smoltcp's type.
pub fn to_smoltcp(time: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
