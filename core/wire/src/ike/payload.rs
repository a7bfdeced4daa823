//! The generic payload header and the chain of payloads (RFC 7296 section 3.2).

use super::{ExchangeType, Fault, HEADER_LEN, Header, PayloadType};

/// Length of the generic payload header.
pub const PAYLOAD_HEADER_LEN: usize = 4;

/// The most payloads that one message, or one plaintext, may have.
///
/// An honest message has less than 40. The limit bounds what a message costs whoever reads it.
pub const MAX_PAYLOADS: usize = 128;

/// The critical bit.
pub(super) const CRITICAL: u8 = 0x80;

/// One payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Its type.
    pub kind: PayloadType,
    /// Whether a message with it must be refused by those who do not know its type (RFC 7296 section 2.5).
    pub critical: bool,
    /// Its next payload field. In an encrypted payload, the type of the first payload inside.
    pub next: PayloadType,
    /// What follows the generic payload header.
    pub body: &'a [u8],
    /// Offset of the generic payload header in the message or plaintext.
    pub at: usize,
}

/// The payloads of a message, or of what an encrypted payload held; nothing more comes after an error.
///
/// Each payload takes four bytes at least, so the chain cannot run in a circle.
#[derive(Debug, Clone)]
pub struct Payloads<'a> {
    next: PayloadType,
    rest: &'a [u8],
    at: usize,
    left: usize,
    place: Place,
    is_done: bool,
}

/// Where a chain of payloads is, which decides whether an encrypted payload may end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In IKE_SA_INIT: there are no keys yet (RFC 7296 section 1.2).
    Init,
    /// In any other message.
    Message,
    /// In an encrypted payload.
    Inner,
}

impl<'a> Payloads<'a> {
    /// The payloads behind the `header` in the whole `message`.
    pub(super) fn of_message(header: &Header, message: &'a [u8]) -> Self {
        let rest = message.get(HEADER_LEN..).unwrap_or_default();
        let place = if header.exchange == ExchangeType::IKE_SA_INIT { Place::Init } else { Place::Message };
        Self { next: header.next_payload, rest, at: HEADER_LEN, left: MAX_PAYLOADS, place, is_done: false }
    }

    /// The payloads in a decrypted `plaintext` without its padding, of which the first has the type `first`.
    pub fn of_plaintext(first: PayloadType, plaintext: &'a [u8]) -> Self {
        Self { next: first, rest: plaintext, at: 0, left: MAX_PAYLOADS, place: Place::Inner, is_done: false }
    }

    /// The next payload; `None` at the end of the chain.
    fn step(&mut self) -> Result<Option<Payload<'a>>, Fault> {
        let (at, kind, len) = (self.at, self.next, self.rest.len());
        if kind == PayloadType::NONE {
            return if len == 0 { Ok(None) } else { Err(Fault::BytesBehindPayloads { at, len }) };
        }
        self.left = self.left.checked_sub(1).ok_or(Fault::TooManyPayloads { limit: MAX_PAYLOADS })?;
        let &[next, flags, hi, lo] =
            self.rest.first_chunk().ok_or(Fault::PayloadHeaderTruncated { at, payload: kind, len })?;
        let claimed = u16::from_be_bytes([hi, lo]);
        if usize::from(claimed) < PAYLOAD_HEADER_LEN {
            return Err(Fault::PayloadLength { at, payload: kind, claimed });
        }
        let (payload, rest) = self.rest.split_at_checked(claimed.into()).ok_or(Fault::PayloadTruncated {
            at,
            payload: kind,
            claimed,
            len,
        })?;
        self.next = PayloadType(next);
        if kind.is_encrypted() {
            self.check_encrypted(kind, rest)?;
            self.next = PayloadType::NONE;
        }
        self.rest = rest;
        self.at = at.saturating_add(claimed.into());
        let body = payload.get(PAYLOAD_HEADER_LEN..).unwrap_or_default();
        Ok(Some(Payload { kind, critical: flags & CRITICAL != 0, next: PayloadType(next), body, at }))
    }

    // RFC 7296 sections 1.2 and 3.1: not in IKE_SA_INIT, the last payload, and not inside another of its kind.
    fn check_encrypted(&self, payload: PayloadType, rest: &[u8]) -> Result<(), Fault> {
        let at = self.at;
        match (self.place, rest.is_empty()) {
            (Place::Inner, _) => Err(Fault::EncryptedNested { at, payload }),
            (Place::Init, _) => Err(Fault::EncryptedInInit { at, payload }),
            (Place::Message, false) => Err(Fault::EncryptedNotLast { at, payload }),
            (Place::Message, true) => Ok(()),
        }
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<Payload<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let step = self.step().transpose();
        self.is_done = !matches!(step, Some(Ok(_)));
        step
    }
}

#[cfg(test)]
mod tests;
