//! Key Exchange payload (RFC 7296 section 3.4).

use super::{Fault, KeMethod, PayloadType, WriteError, Writer};

/// A public value for the key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ke<'a> {
    /// Key exchange method, for example a Diffie-Hellman group.
    pub method: KeMethod,
    /// Public value: of the length that the method requires if it is known, and never empty.
    pub data: &'a [u8],
}

impl<'a> Ke<'a> {
    /// Parses the body of a KE payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (&[hi, lo, _, _], data) = body.split_first_chunk().ok_or(Fault::BodyTruncated {
            payload: PayloadType::KE,
            len: body.len(),
            min: 4,
        })?;
        let method = KeMethod(u16::from_be_bytes([hi, lo]));
        let len = data.len();
        // RFC 7296 section 3.4: exactly the length of the modulus.
        if method.public_len().is_some_and(|expected| expected != len) || len == 0 {
            return Err(Fault::KeLength { method, len });
        }
        Ok(Self { method, data })
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u16(self.method.0)?;
        out.u16(0)?;
        out.bytes(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cve_2023_41913_public_values_must_have_the_length_of_their_group() {
        let mut body = [0; 1_100];
        for method in KeMethod::ALL {
            let Some(expected) = method.public_len() else { continue };
            body[..2].copy_from_slice(&method.0.to_be_bytes());
            for len in 0..=1_090 {
                let parsed = Ke::parse(&body[..4 + len]);
                let wrong = Err(Fault::KeLength { method: *method, len });
                assert_eq!(parsed, if len == expected { parsed } else { wrong }, "{method}");
                assert_eq!(parsed.is_ok(), len == expected, "{method} {len}");
            }
        }
    }

    #[test]
    fn public_values_of_unknown_groups_must_not_be_empty() {
        assert_eq!(Ke::parse(&[4, 0, 0, 0, 9]), Ok(Ke { method: KeMethod(1_024), data: &[9] }));
        assert_eq!(Ke::parse(&[4, 0, 0, 0]), Err(Fault::KeLength { method: KeMethod(1_024), len: 0 }));
        for len in 0..4 {
            let fault = Fault::BodyTruncated { payload: PayloadType::KE, len, min: 4 };
            assert_eq!(Ke::parse(&[0; 4][..len]), Err(fault));
        }
    }
}
