//! Extensible Authentication Protocol (RFC 3748) for IKEv2 (RFC 7296 section 2.16).
//!
//! [`Peer`] proves an identity to the other side, as the initiator of an IKE SA does. An [`Authenticator`]
//! asks for the proof: [`LocalAuthenticator`] verifies it here, and other implementations pass the packets on
//! to a server. Both take one packet at a time and return the next one, or the result.
//!
//! IKE delivers EAP packets authenticated, in order and once. A packet that does not fit the state of the
//! conversation is therefore a fault and ends it; RFC 3748 section 2.1 discards such packets instead, because
//! its links lose and repeat them. Retransmission belongs to IKE as well.
//!
//! A conversation in memory, without the identity request, as the caller knows the identity:
//!
//! ```
//! use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
//! use casemate_eap::{
//!     Authenticator, AuthenticatorStep, EapContext, EapCredentials, LocalAuthenticator, Method, Peer,
//!     PeerStep,
//! };
//!
//! struct Carol(SecretBytes);
//!
//! impl EapCredentials for Carol {
//!     fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
//!         Some(&casemate_legacy::LEGACY)
//!     }
//!     fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
//!         (identity == b"carol").then_some(&self.0)
//!     }
//! }
//!
//! let context = &mut EapContext {
//!     rng: &mut casemate_test_support::TestRng::new(1), // of the operating system, in a program
//!     providers: &Providers(&[&casemate_rustcrypto::RUSTCRYPTO]),
//!     credentials: &Carol(SecretBytes::new(b"tiger")),
//! };
//! let mut peer = Peer::new(b"carol".into(), vec![Method::MsChapV2]);
//! let mut authenticator = LocalAuthenticator::new(Some(b"carol".into()), vec![Method::MsChapV2]);
//! let mut step = authenticator.start(context);
//! while let AuthenticatorStep::Request(request) = &step {
//!     let PeerStep::Respond(response) = peer.receive(&request.as_payload(), context) else { panic!() };
//!     step = authenticator.receive(&response.as_payload(), context);
//! }
//! let AuthenticatorStep::Succeeded(success, authenticated) = step else { panic!() };
//! let PeerStep::Succeeded(own) = peer.receive(&success.as_payload(), context) else { panic!() };
//! assert_eq!(own.msk, authenticated.msk);
//! ```
//!
//! No I/O, no clock, no random generator of its own. `no_std` with alloc.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod authenticator;
mod context;
mod fault;
mod method;
mod packet;
mod peer;
mod tls;

pub use authenticator::{Authenticator, AuthenticatorStep, LocalAuthenticator};
pub use context::{Authenticated, EapContext, EapCredentials, NoCredentials, SequenceNumbers};
pub use fault::EapFault;
pub use method::{Method, NetworkSequence, NtHash, Subscriber, UsimSequence, aka_identity};
pub use packet::EapPacket;
pub use peer::{Peer, PeerStep};
pub use tls::{CertificateStatus, TlsEstablished, TlsRole, TlsSession, TlsVersion};

/// Maximum number of packets of each side in one conversation. A TLS handshake with long certificate chains
/// has about fifty.
pub const MAX_PACKETS: u32 = 100;
