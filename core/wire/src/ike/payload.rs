//! The generic payload header and the chain of payloads (RFC 7296 section 3.2).

use super::{ExchangeType, Fault, HEADER_LEN, Header, PayloadType};
use crate::invariant::OrBroken;

/// Length of the generic payload header, in bytes.
pub const PAYLOAD_HEADER_LEN: usize = 4;

/// Maximum number of payloads in a message or a plaintext.
///
/// Legitimate messages have less than 40. The limit bounds the cost of parsing a message.
pub const MAX_PAYLOADS: usize = 128;

/// Critical bit.
pub(super) const CRITICAL: u8 = 0x80;

/// A payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Payload type.
    pub kind: PayloadType,
    /// Whether a receiver that does not know the type must reject the message (RFC 7296 section 2.5).
    pub critical: bool,
    /// Next payload field. For an encrypted payload, the type of the first payload inside.
    pub next: PayloadType,
    /// Data after the generic payload header.
    pub body: &'a [u8],
    /// Offset of the generic payload header in the message or plaintext.
    pub at: usize,
}

/// Iterator over the payloads of a message or of a decrypted payload. It ends after the first error.
///
/// Each payload takes at least four bytes, so the iterator always terminates.
#[derive(Debug, Clone)]
pub struct Payloads<'a> {
    next: PayloadType,
    rest: &'a [u8],
    at: usize,
    left: usize,
    location: Location,
    is_done: bool,
}

/// Location of a payload chain. It determines whether the chain may end with an encrypted payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    /// IKE_SA_INIT or IKE_SESSION_RESUME, where there are no keys yet (RFC 7296 section 1.2, RFC 5723 section
    /// 4.3.2).
    Init,
    /// Any other message.
    Message,
    /// The plaintext of an encrypted payload.
    Inner,
}

impl<'a> Payloads<'a> {
    /// Iterates over the payloads after the `header` of `message`.
    pub(super) fn of_message(header: &Header, message: &'a [u8]) -> Self {
        let rest = message.get(HEADER_LEN..).or_broken_default("a message contains its header");
        let location = match header.exchange {
            ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME => Location::Init,
            _ => Location::Message,
        };
        Self { next: header.next_payload, rest, at: HEADER_LEN, left: MAX_PAYLOADS, location, is_done: false }
    }

    /// Iterates over the payloads in a decrypted `plaintext` without padding; `first` is the type of the
    /// first payload.
    pub fn from_plaintext(first: PayloadType, plaintext: &'a [u8]) -> Self {
        Self {
            next: first,
            rest: plaintext,
            at: 0,
            left: MAX_PAYLOADS,
            location: Location::Inner,
            is_done: false,
        }
    }

    /// Returns the next payload, or `None` at the end of the chain.
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
        let body = payload.get(PAYLOAD_HEADER_LEN..).or_broken_default("a payload contains its header");
        Ok(Some(Payload { kind, critical: flags & CRITICAL != 0, next: PayloadType(next), body, at }))
    }

    // RFC 7296 sections 1.2 and 3.1: not in the first exchange, only as the last payload, and not nested.
    fn check_encrypted(&self, payload: PayloadType, rest: &[u8]) -> Result<(), Fault> {
        let at = self.at;
        match (self.location, rest.is_empty()) {
            (Location::Inner, _) => Err(Fault::EncryptedNested { at, payload }),
            (Location::Init, _) => Err(Fault::EncryptedInInit { at, payload }),
            (Location::Message, false) => Err(Fault::EncryptedNotLast { at, payload }),
            (Location::Message, true) => Ok(()),
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
mod tests {
    use super::*;
    use crate::ike::Message;
    use crate::ike::tests::{fault, message};
    use std::vec;
    use std::vec::Vec;

    fn collect(first: u8, plaintext: &[u8]) -> Vec<Result<(u8, usize, usize), Fault>> {
        Payloads::from_plaintext(PayloadType(first), plaintext)
            .map(|payload| payload.map(|payload| (payload.kind.0, payload.at, payload.body.len())))
            .collect()
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let chain = [40, 0x80, 0, 4, 0, 0x7f, 0, 6, 1, 2];
        assert_eq!(collect(43, &chain), [Ok((43, 0, 0)), Ok((40, 4, 2))]);
        let critical: Vec<bool> = Payloads::from_plaintext(PayloadType(43), &chain)
            .map(|payload| payload.unwrap().critical)
            .collect();
        assert_eq!(critical, [true, false]);
        assert_eq!(collect(0, &[]), []);
    }

    #[test]
    fn a_length_below_four_is_rejected() {
        for claimed in 0..4 {
            let fault = Fault::PayloadLength { at: 0, payload: PayloadType(43), claimed };
            assert_eq!(collect(43, &[43, 0, 0, claimed as u8, 0, 0, 0, 4]), [Err(fault)]);
        }
    }

    #[test]
    fn a_length_beyond_the_message_is_rejected() {
        for claimed in 9..=u16::MAX {
            let [hi, lo] = claimed.to_be_bytes();
            let fault = Fault::PayloadTruncated { at: 0, payload: PayloadType(43), claimed, len: 8 };
            assert_eq!(collect(43, &[0, 0, hi, lo, 1, 2, 3, 4]), [Err(fault)]);
        }
    }

    #[test]
    fn an_announced_payload_must_exist() {
        for len in 0..4 {
            let fault = Fault::PayloadHeaderTruncated { at: 4, payload: PayloadType(40), len };
            let chain = [40, 0, 0, 4, 0, 0, 0, 4];
            assert_eq!(collect(43, &chain[..4 + len]), [Ok((43, 0, 0)), Err(fault)]);
        }
    }

    #[test]
    fn bytes_after_the_last_payload_are_rejected() {
        let fault = Fault::BytesBehindPayloads { at: 4, len: 1 };
        assert_eq!(collect(43, &[0, 0, 0, 4, 0]), [Ok((43, 0, 0)), Err(fault)]);
        assert_eq!(collect(0, &[9]), [Err(Fault::BytesBehindPayloads { at: 0, len: 1 })]);
    }

    #[test]
    fn a_self_referencing_chain_terminates() {
        // Each payload announces another payload of the same type.
        let mut chain = vec![0; 4 * MAX_PAYLOADS];
        chain.chunks_mut(4).for_each(|header| header.copy_from_slice(&[43, 0, 0, 4]));
        let found = collect(43, &chain);
        assert_eq!(found.len(), MAX_PAYLOADS + 1);
        assert_eq!(found.last(), Some(&Err(Fault::TooManyPayloads { limit: MAX_PAYLOADS })));
        chain.truncate(400);
        let fault = Fault::PayloadHeaderTruncated { at: 400, payload: PayloadType(43), len: 0 };
        assert_eq!(collect(43, &chain).last(), Some(&Err(fault)));
    }

    #[test]
    fn the_number_of_payloads_is_limited() {
        let payloads = vec![(43, false, &[][..]); MAX_PAYLOADS + 1];
        assert_eq!(fault(&message(&payloads[1..])), None);
        assert_eq!(fault(&message(&payloads)), Some(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
        assert_eq!(
            fault(&message(&[(200, false, &[][..]); 300])),
            Some(Fault::TooManyPayloads { limit: MAX_PAYLOADS })
        );
    }

    #[test]
    fn an_encrypted_payload_must_be_the_last() {
        for kind in [46, 53] {
            let body = [0, 1, 0, 1, 9, 9];
            let bytes = message(&[(43, false, &[]), (kind, false, &body), (43, false, &[])]);
            assert_eq!(fault(&bytes), Some(Fault::EncryptedNotLast { at: 32, payload: PayloadType(kind) }));
            let bytes = message(&[(43, false, &[]), (kind, false, &body)]);
            assert_eq!(fault(&bytes), None);
        }
    }

    #[test]
    fn an_encrypted_payload_names_the_first_inside() {
        let mut bytes = message(&[(46, false, &[1, 2, 3])]);
        bytes[28] = 35;
        let payloads: Vec<_> = Message::parse(&bytes).unwrap().payloads().collect();
        let payload = Payload {
            kind: PayloadType::SK,
            critical: false,
            next: PayloadType::ID_I,
            body: &[1, 2, 3],
            at: 28,
        };
        assert_eq!(payloads, [Ok(payload)]);
    }

    #[test]
    fn ike_sa_init_has_no_encrypted_payload() {
        for kind in [46, 53] {
            let mut bytes = message(&[(43, false, &[]), (kind, false, &[0, 1, 0, 1, 0])]);
            assert_eq!(fault(&bytes), None);
            bytes[18] = ExchangeType::IKE_SA_INIT.0;
            assert_eq!(fault(&bytes), Some(Fault::EncryptedInInit { at: 32, payload: PayloadType(kind) }));
        }
    }

    #[test]
    fn encrypted_payloads_must_not_be_nested() {
        for kind in [46, 53] {
            let nested = Fault::EncryptedNested { at: 4, payload: PayloadType(kind) };
            assert_eq!(collect(43, &[kind, 0, 0, 4, 0, 0, 0, 4]), [Ok((43, 0, 0)), Err(nested)]);
        }
    }

    #[test]
    fn vpp_98d6f29_no_message_is_read_beyond_its_length() {
        // The datagram continues after the end of the message.
        let mut bytes = message(&[(43, false, &[1, 2, 3, 4])]);
        bytes.extend([0; 20]);
        assert_eq!(fault(&bytes), Some(Fault::BytesBehindMessage { claimed: 36, len: 56 }));
        bytes.truncate(36);
        bytes[30..32].copy_from_slice(&[0, 9]);
        let truncated = Fault::PayloadTruncated { at: 28, payload: PayloadType(43), claimed: 9, len: 8 };
        assert_eq!(fault(&bytes), Some(truncated));
    }
}
