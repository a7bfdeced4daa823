//! EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2-02), which carries MS-CHAPv2 (RFC 2759).
//!
//! ```text
//!  authenticator                                     peer
//!  challenge            ->
//!                       <-   challenge of the peer, NT response
//!  success: S=...       ->                                          or failure: E=691
//!                       <-   success                                or failure
//! ```
//!
//! The authenticator offers no second attempt and no change of the password; the peer accepts neither. Each
//! new IKE SA is a new attempt. MD4 and three DES keys of 56, 56 and 16 bits protect the password, so an
//! observer of the conversation can compute the hash of the password.
//!
//! This module has the formats of the packets behind the EAP type (section 2 of the draft).

mod crypto;
mod peer;
mod server;

use crate::EapFault;
use crate::packet::{TypeData, type_data};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use crypto::{AUTHENTICATOR_RESPONSE_LEN, CHALLENGE_LEN, NT_RESPONSE_LEN};

pub use crypto::NtHash;
pub(super) use peer::MsChapV2Peer;
pub(super) use server::MsChapV2Server;

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpCode(u8);

impl OpCode {
    const CHALLENGE: Self = Self(1);
    const RESPONSE: Self = Self(2);
    const SUCCESS: Self = Self(3);
    const FAILURE: Self = Self(4);
}

/// Length of the value of a response: both challenges, reserved bytes, the NT response and flags.
const RESPONSE_LEN: u8 = 49;
/// Longest name in bytes (RFC 2759 section 4).
const MAX_NAME: usize = 256;

/// A packet with all header fields.
struct Packet<'a> {
    op: OpCode,
    /// MS-CHAPv2-ID, which a response copies from the challenge.
    id: u8,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Splits the header from the body.
    fn parse(data: &'a [u8]) -> Result<Self, EapFault> {
        let (&[op, id, hi, lo], body) = data.split_first_chunk().ok_or(EapFault::Malformed)?;
        // MS-Length counts from the operation code on.
        if usize::from(u16::from_be_bytes([hi, lo])) != data.len() {
            return Err(EapFault::Malformed);
        }
        Ok(Self { op: OpCode(op), id, body })
    }

    /// Returns a packet whose body consists of `parts`. Fails if it is longer than its length field can say.
    fn write(op: OpCode, id: u8, parts: &[&[u8]]) -> Result<TypeData, EapFault> {
        const HEADER_LEN: usize = 4;
        let len = parts.iter().fold(HEADER_LEN, |len, part| len.saturating_add(part.len()));
        let [hi, lo] = u16::try_from(len).map_err(|_| EapFault::Malformed)?.to_be_bytes();
        let header = [op.0, id, hi, lo];
        let all: Vec<&[u8]> = [&header[..]].into_iter().chain(parts.iter().copied()).collect();
        Ok(type_data(&all))
    }
}

/// Returns the type data of a success or failure response, which has no other field.
fn acknowledgement(op: OpCode) -> TypeData {
    type_data(&[&[op.0]])
}

/// Returns the operation code of a success or failure response.
fn parse_acknowledgement(data: &[u8]) -> Result<OpCode, EapFault> {
    match data {
        [op] => Ok(OpCode(*op)),
        _ => Err(EapFault::Malformed),
    }
}

/// Body of a challenge.
struct Challenge<'a> {
    value: &'a [u8; CHALLENGE_LEN],
}

impl<'a> Challenge<'a> {
    const LEN: u8 = CHALLENGE_LEN as u8;

    /// The name of the authenticator behind the value is ignored: IKE has authenticated it before.
    fn parse(body: &'a [u8]) -> Result<Self, EapFault> {
        let (&len, rest) = body.split_first().ok_or(EapFault::Malformed)?;
        let (value, name) = rest.split_first_chunk().ok_or(EapFault::Malformed)?;
        if len != Self::LEN || name.len() > MAX_NAME {
            return Err(EapFault::Malformed);
        }
        Ok(Self { value })
    }

    fn write(&self, id: u8) -> Result<TypeData, EapFault> {
        /// Some peers, strongSwan among them, require a name.
        const NAME: &[u8] = b"casemate";
        Packet::write(OpCode::CHALLENGE, id, &[&[Self::LEN], self.value, NAME])
    }
}

/// Body of a response.
struct Response<'a> {
    peer_challenge: &'a [u8; CHALLENGE_LEN],
    nt_response: &'a [u8; NT_RESPONSE_LEN],
    name: &'a [u8],
}

/// Between the challenge of the peer and the NT response. Always zero.
const RESERVED_LEN: usize = 8;

impl<'a> Response<'a> {
    /// Ignores the reserved bytes and the flags, as RFC 2759 section 4 gives them no meaning.
    fn parse(body: &'a [u8]) -> Result<Self, EapFault> {
        let (&len, rest) = body.split_first().ok_or(EapFault::Malformed)?;
        let (peer_challenge, rest) = rest.split_first_chunk().ok_or(EapFault::Malformed)?;
        let (_, rest) = rest.split_first_chunk::<RESERVED_LEN>().ok_or(EapFault::Malformed)?;
        let (nt_response, rest) = rest.split_first_chunk().ok_or(EapFault::Malformed)?;
        let (_flags, name) = rest.split_first().ok_or(EapFault::Malformed)?;
        if len != RESPONSE_LEN || name.len() > MAX_NAME {
            return Err(EapFault::Malformed);
        }
        Ok(Self { peer_challenge, nt_response, name })
    }

    fn write(&self, id: u8) -> Result<TypeData, EapFault> {
        let Self { peer_challenge, nt_response, name } = *self;
        let reserved = [0; RESERVED_LEN];
        let parts: [&[u8]; 6] = [&[RESPONSE_LEN], peer_challenge, &reserved, nt_response, &[0], name];
        Packet::write(OpCode::RESPONSE, id, &parts)
    }
}

/// Upper-case hexadecimal digits, as RFC 2759 section 5 requires them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Returns a success request, which proves that the authenticator knows the password (RFC 2759 section 5).
fn write_success(
    id: u8,
    authenticator_response: &[u8; AUTHENTICATOR_RESPONSE_LEN],
) -> Result<TypeData, EapFault> {
    let message = format!("S={} M=Welcome", hex(authenticator_response));
    Packet::write(OpCode::SUCCESS, id, &[message.as_bytes()])
}

/// Returns the authenticator response of a success request. What follows is text for the user, which nothing
/// protects; it is ignored.
fn parse_success(body: &[u8]) -> Result<[u8; AUTHENTICATOR_RESPONSE_LEN], EapFault> {
    let digits = body.strip_prefix(b"S=").ok_or(EapFault::Malformed)?;
    let (pairs, _) = digits.as_chunks::<2>();
    let mut response = [0; AUTHENTICATOR_RESPONSE_LEN];
    let (pairs, _) = pairs.split_first_chunk::<AUTHENTICATOR_RESPONSE_LEN>().ok_or(EapFault::Malformed)?;
    for (byte, digits) in response.iter_mut().zip(pairs) {
        *byte = from_hex(*digits).ok_or(EapFault::Malformed)?;
    }
    Ok(response)
}

fn from_hex([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |digit| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)?.wrapping_shl(4) | digit(low)?)
}

/// Returns a failure request without a second attempt (RFC 2759 section 6). `challenge` would be that of the
/// second attempt; the field is mandatory.
fn write_failure(id: u8, challenge: &[u8; CHALLENGE_LEN]) -> Result<TypeData, EapFault> {
    let message = format!("E=691 R=0 C={} V=3 M=Authentication failed", hex(challenge));
    Packet::write(OpCode::FAILURE, id, &[message.as_bytes()])
}
