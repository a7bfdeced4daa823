//! IKEv2 messages (RFC 7296 section 3): bytes to values and back. Formats only; there is no IKE here.
//!
//! [`Message::parse`] reads one datagram, [`Message::payloads`] walks its payloads, [`Body::parse`] says what a payload holds,
//! and [`Writer`] makes a message. One file for each payload, in the order of the RFC. Also: encrypted fragments (RFC 7383),
//! digital signatures and the hash algorithms of a peer (RFC 7427). Keys, states and choices are for others: a value that
//! is unknown here survives unchanged, and whoever decides skips or refuses it.
//!
//! Each way in which a message can be wrong is one [`Fault`]. Fields marked RESERVED are ignored when read and zero when
//! written (RFC 7296 section 2.5). Views borrow from the message, and no parser allocates.

pub mod auth;
pub mod body;
pub mod cert;
pub mod cp;
pub mod delete;
pub mod eap;
pub mod error;
pub mod header;
pub mod id;
pub mod ke;
pub mod message;
pub mod nonce;
pub mod notify;
pub mod number;
pub mod payload;
pub mod sa;
pub mod sk;
pub mod ts;
pub mod vendor;
pub mod write;

pub use auth::{Auth, DigitalSignature};
pub use body::Body;
pub use cert::{Cert, CertReq};
pub use cp::{Cp, CpAttribute};
pub use delete::Delete;
pub use eap::Eap;
pub use error::{Answer, Fault, FaultKind};
pub use header::{Flags, HEADER_LEN, Header, IkeSpi, Version};
pub use id::Id;
pub use ke::Ke;
pub use message::Message;
pub use nonce::Nonce;
pub use notify::Notify;
pub use number::*;
pub use payload::{MAX_PAYLOADS, Payload, Payloads};
pub use sa::{Attribute, AttributeValue, Proposal, ProposalRepr, Sa, Transform, TransformRepr};
pub use sk::{Encrypted, Fragment, Layout, Parts};
pub use ts::{Addresses, Ports, RangeSelector, Selector, Ts};
pub use vendor::Vendor;
pub use write::{EncryptedWriter, Sealable, WriteError, Writer};

#[cfg(test)]
mod tests;
