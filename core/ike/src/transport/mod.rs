//! Messages of an IKE SA: encryption, fragments, message IDs and retransmission.
//!
//! `secure_channel` joins the parts: `encrypted` protects one payload, `message_cipher` messages, `fragment`
//! reassembles, `window` assigns message IDs, retransmits requests and stores responses, and `payloads` sorts
//! the payloads of a message.

mod encrypted;
mod fragment;
mod message_cipher;
mod payloads;
mod secure_channel;
mod window;

pub use encrypted::{SealError, SkError, SkKey, SkSuite};
pub(crate) use fragment::{Reassembled, Reassembly, ReceivedFragment};
#[cfg(feature = "records")]
pub(crate) use message_cipher::MAX_OWNERS;
pub(crate) use message_cipher::{Build, BuildError, MessageCipher, MessageKind, header, write_plain};
pub(crate) use payloads::{Content, ReceivedId, required, unsupported_critical};
pub(crate) use secure_channel::{FragmentSupport, Received, SecureChannel, parse_payloads};
pub(crate) use window::{AnsweredRequest, MessageIdClass, NoResponse, Window};
