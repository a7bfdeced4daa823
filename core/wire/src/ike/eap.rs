//! Extensible Authentication Protocol payload (RFC 7296 section 3.16, RFC 3748 section 4).

use super::{EapCode, Fault, PayloadType, WriteError, Writer};
use core::fmt;

const HEADER_LEN: usize = 4;

/// An EAP message. Method-specific data is not parsed, and never printed: it may contain a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Eap<'a> {
    /// Type of the message.
    pub code: EapCode,
    /// Matches responses to requests.
    pub identifier: u8,
    /// Type and type data: not empty in requests and responses, empty in success and failure.
    pub data: &'a [u8],
}

impl<'a> Eap<'a> {
    /// Parses the body of an EAP payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let len = body.len();
        let truncated = Fault::BodyTruncated { payload: PayloadType::EAP, len, min: HEADER_LEN };
        let (&[code, identifier, hi, lo], data) = body.split_first_chunk::<HEADER_LEN>().ok_or(truncated)?;
        let (code, claimed) = (EapCode(code), u16::from_be_bytes([hi, lo]));
        // RFC 7296 section 3.16: the payload length minus four.
        if usize::from(claimed) != len {
            return Err(Fault::EapLength { claimed, len });
        }
        let is_valid = match code {
            EapCode::REQUEST | EapCode::RESPONSE => !data.is_empty(),
            EapCode::SUCCESS | EapCode::FAILURE => data.is_empty(),
            _ => true,
        };
        if is_valid { Ok(Self { code, identifier, data }) } else { Err(Fault::EapCodeLength { code, len }) }
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.code.0)?;
        out.u8(self.identifier)?;
        out.count_u16(self.data.len().saturating_add(HEADER_LEN))?;
        out.bytes(self.data)
    }
}

impl fmt::Debug for Eap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, identifier, data } = self;
        write!(f, "Eap({code:?}, {identifier}, {} bytes)", data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cve_2025_62291_inconsistent_lengths() {
        let mut body = [1, 7, 0, 0, 26, 1];
        for len in 0..=body.len() {
            for claimed in 0..=u16::MAX {
                body[2..4].copy_from_slice(&claimed.to_be_bytes());
                let expected = match len {
                    0..4 => Err(Fault::BodyTruncated { payload: PayloadType::EAP, len, min: 4 }),
                    _ if usize::from(claimed) != len => Err(Fault::EapLength { claimed, len }),
                    4 => Err(Fault::EapCodeLength { code: EapCode::REQUEST, len }),
                    _ => Ok(Eap { code: EapCode::REQUEST, identifier: 7, data: &body[4..len] }),
                };
                assert_eq!(Eap::parse(&body[..len]), expected);
            }
        }
    }

    #[test]
    fn success_and_failure_are_empty() {
        for code in [EapCode::SUCCESS, EapCode::FAILURE] {
            assert_eq!(Eap::parse(&[code.0, 1, 0, 4]), Ok(Eap { code, identifier: 1, data: &[] }));
            assert_eq!(Eap::parse(&[code.0, 1, 0, 5, 1]), Err(Fault::EapCodeLength { code, len: 5 }));
        }
        assert!(Eap::parse(&[5, 1, 0, 4]).is_ok() && Eap::parse(&[5, 1, 0, 5, 0]).is_ok());
    }
}
