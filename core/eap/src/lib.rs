//! Extensible Authentication Protocol (RFC 3748) for IKEv2 (RFC 7296 section 2.16).
//!
//! [`Peer`] proves an identity to the other side, as the initiator of an IKE SA does. An [`Authenticator`] asks
//! for the proof: [`LocalAuthenticator`] verifies it here, and other implementations pass the packets on to a
//! server. Both take one packet at a time and return the next one, or the result.
//!
//! IKE delivers EAP packets authenticated, in order and once. A packet that does not fit the state of the
//! conversation is therefore a fault and ends it; RFC 3748 section 2.1 discards such packets instead, because
//! its links lose and repeat them. Retransmission belongs to IKE as well.
//!
//! No I/O, no clock, no random generator of its own. `no_std` with alloc.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod authenticator;
mod context;
mod fault;
mod local_authenticator;
mod method;
mod packet;
mod peer;

pub use authenticator::{Authenticator, AuthenticatorStep};
pub use context::{Authenticated, EapContext, EapCredentials, NoCredentials};
pub use fault::EapFault;
pub use local_authenticator::LocalAuthenticator;
pub use method::{Method, NtHash};
pub use packet::EapPacket;
pub use peer::{Peer, PeerStep};

/// Maximum number of packets of each side in one conversation. A TLS handshake with long certificate chains
/// has about fifty.
pub const MAX_PACKETS: u32 = 100;
