//! IKEv2 messages (RFC 7296 section 3): parsers and encoders. This module contains formats only, no protocol
//! logic.
//!
//! [`Message::parse`] parses a datagram, [`Message::payloads`] iterates over its payloads, [`Body::parse`]
//! parses a payload, and [`Writer`] writes a message. There is one file for each payload, in the order of the
//! RFC. Also: encrypted fragments (RFC 7383), digital signatures and the hash algorithms of a peer (RFC
//! 7427).
//!
//! Keys, states and decisions belong to the IKE engine: values that are unknown here are kept unchanged, and
//! the engine skips or rejects them.
//!
//! Each [`Fault`] is one way in which a message can be invalid. RESERVED fields are ignored on receipt and
//! zero in sent messages (RFC 7296 section 2.5). Views borrow from the message, and no parser allocates
//! memory.

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
mod proposal_repr;
pub mod rohc;
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
pub use error::{Fault, FaultKind, FaultResponse};
pub use header::{Flags, HEADER_LEN, Header, IkeSpi, Version};
pub use id::Id;
pub use ke::Ke;
pub use message::Message;
pub use nonce::Nonce;
pub use notify::Notify;
pub use number::*;
pub use payload::{MAX_PAYLOADS, Payload, Payloads};
pub use proposal_repr::{ProposalRepr, TransformRepr};
pub use rohc::{RohcAttribute, RohcSupported};
pub use sa::{Attribute, AttributeValue, Proposal, Sa, Transform};
pub use sk::{Encrypted, Fragment, Parts, SkLayout};
pub use ts::{Addresses, Ports, RangeSelector, Selector, Ts};
pub use vendor::Vendor;
pub use write::{EncryptedWriter, Sealable, WriteError, Writer};

#[cfg(test)]
mod tests;
