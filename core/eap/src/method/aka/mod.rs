//! EAP-AKA (RFC 4187) and EAP-AKA' (RFC 9048, RFC 5448): a subscriber of a mobile network and its home
//! network prove to each other that they know the key of the USIM, and derive keys.
//!
//! ```text
//!  authenticator                                     peer
//!  identity request     ->                                          if the identity is unknown
//!                       <-   identity
//!  challenge: RAND, AUTN ->
//!                       <-   RES                                    or synchronisation failure: AUTS
//!  notification: success ->                                         if both sides want it (AT_RESULT_IND)
//!                       <-   notification
//! ```
//!
//! The functions of the USIM are those of Milenage. The peer has its permanent identity only: pseudonyms and
//! identities for fast re-authentication that a server sends are ignored, and the authenticator sends none.

mod attribute;
mod keys;
mod milenage;
mod peer;
mod sequence;
mod server;

pub use milenage::Subscriber;
pub(super) use peer::AkaPeer;
pub use sequence::{NetworkSequence, UsimSequence};
pub(super) use server::AkaServer;

use crate::{EapContext, EapFault, Method};
use alloc::vec::Vec;
use attribute::Message;
use attribute::Packet;
use casemate_crypto::{HashAlg, PrfAlg};
use casemate_wire::ike::EapCode;

/// Which of the two methods runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Aka,
    AkaPrime,
}

impl Flavour {
    const fn method(self) -> Method {
        match self {
            Self::Aka => Method::Aka,
            Self::AkaPrime => Method::AkaPrime,
        }
    }

    const fn prf(self) -> PrfAlg {
        match self {
            Self::Aka => PrfAlg::HmacSha1,
            Self::AkaPrime => PrfAlg::HmacSha256,
        }
    }

    const fn hash(self) -> HashAlg {
        match self {
            Self::Aka => HashAlg::Sha1,
            Self::AkaPrime => HashAlg::Sha256,
        }
    }
}

/// The identity (AT_IDENTITY) in the type data of a response of AKA or AKA', if the server has asked for one.
/// It then counts in place of the EAP identity (RFC 4187 section 4.1.5). `None` also for malformed messages.
pub fn aka_identity(data: &[u8]) -> Option<&[u8]> {
    let message = Message::parse(data).ok()?;
    message.identity.filter(|_| message.subtype == Subtype::IDENTITY)
}

/// Subtype of a message (RFC 4187 section 11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Subtype(u8);

impl Subtype {
    const CHALLENGE: Self = Self(1);
    const AUTHENTICATION_REJECT: Self = Self(2);
    const SYNCHRONIZATION_FAILURE: Self = Self(4);
    const IDENTITY: Self = Self(5);
    const NOTIFICATION: Self = Self(12);
    const CLIENT_ERROR: Self = Self(14);
}

/// Which identity the authenticator asks for. Each may be asked for once, in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IdRequest {
    Permanent,
    FullAuth,
    Any,
}

/// Codes of AT_NOTIFICATION (RFC 4187 section 10.19).
mod notification {
    /// The authentication has succeeded. Protected by AT_MAC.
    pub(super) const SUCCESS: u16 = 32768;
    /// A failure before the challenge was answered.
    pub(super) const GENERAL_FAILURE: u16 = 16384;
    /// Bit S: success.
    pub(super) const IS_SUCCESS: u16 = 0x8000;
    /// Bit P: the notification precedes the end of the challenge and has no AT_MAC.
    pub(super) const IS_EARLY: u16 = 0x4000;
}

/// The key derivation function of EAP-AKA' (RFC 9048 section 3.3).
const KDF_DEFAULT: u16 = 1;

/// Access network of the authenticator (TS 24.302 section 8.1.1.2): the name for networks other than those
/// of 3GPP2, WiMAX and Ethernet. It has to be non-empty (RFC 9048 section 3.1).
const NETWORK: &[u8] = b"WLAN";

/// The whole packet around type data.
fn packet_bytes(code: EapCode, identifier: u8, flavour: Flavour, data: &[u8]) -> Result<Vec<u8>, EapFault> {
    const HEADER_LEN: usize = 5;
    let len = data.len().saturating_add(HEADER_LEN);
    let [high, low] = u16::try_from(len).map_err(|_| EapFault::Malformed)?.to_be_bytes();
    Ok([&[code.0, identifier, high, low, flavour.method().id()], data].concat())
}

/// The messages about identities, which AT_CHECKCODE protects (RFC 4187 section 10.13).
#[derive(Default)]
struct IdentityMessages(Vec<Vec<u8>>);

impl IdentityMessages {
    fn add(&mut self, packet: Packet<'_>) -> Result<(), EapFault> {
        self.0.push(packet.to_bytes()?);
        Ok(())
    }

    /// The value of AT_CHECKCODE, which is empty if there was no message.
    fn checkcode(&self, flavour: Flavour, context: &EapContext<'_>) -> Result<Vec<u8>, EapFault> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let parts: Vec<&[u8]> = self.0.iter().map(Vec::as_slice).collect();
        let digest = context.providers.hash(flavour.hash(), &parts).ok_or(EapFault::Unsupported)?;
        Ok(digest.as_slice().into())
    }
}

#[cfg(test)]
mod tests;
