//! Identification payloads (RFC 7296 section 3.5).

use super::{Fault, IdType, PayloadType, WriteError, Writer};

/// Identity of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<'a> {
    /// Type of the identity.
    pub kind: IdType,
    /// Identity. An address has the length of an address, and a name contains no control characters. DER is
    /// not parsed.
    pub data: &'a [u8],
}

impl<'a> Id<'a> {
    /// Parses the body of a payload of type `payload`, which is IDi or IDr.
    pub fn parse(payload: PayloadType, body: &'a [u8]) -> Result<Self, Fault> {
        let (&[kind, _, _, _], data) =
            body.split_first_chunk().ok_or(Fault::BodyTruncated { payload, len: body.len(), min: 4 })?;
        let id = Self { kind: IdType(kind), data };
        id.check()?;
        Ok(id)
    }

    fn check(&self) -> Result<(), Fault> {
        let (id, len) = (self.kind, self.data.len());
        let is_valid = match id {
            IdType::IPV4_ADDR => len == 4,
            IdType::IPV6_ADDR => len == 16,
            // RFC 7619 section 2.2.
            IdType::NULL => len == 0,
            IdType::FQDN | IdType::RFC822_ADDR | IdType::DER_ASN1_DN | IdType::DER_ASN1_GN => len > 0,
            _ => true,
        };
        if !is_valid {
            return Err(Fault::IdLength { id, len });
        }
        // RFC 7296 section 3.5: names have no terminators, and domain names are ASCII.
        let is_foreign = |byte: &u8| match id {
            IdType::FQDN => byte.is_ascii_control() || !byte.is_ascii(),
            IdType::RFC822_ADDR => byte.is_ascii_control(),
            _ => false,
        };
        self.data.iter().position(is_foreign).map_or(Ok(()), |at| Err(Fault::IdText { id, at }))
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.kind.0)?;
        out.bytes(&[0; 3])?;
        out.bytes(self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn parse(kind: IdType, data: &[u8]) -> Result<(), Fault> {
        let body: Vec<u8> = [&[kind.0, 0, 0, 0], data].concat();
        Id::parse(PayloadType::ID_I, &body).map(|id| assert_eq!((id.kind, id.data), (kind, data)))
    }

    #[test]
    fn cve_2025_9242_an_identity_of_any_length() {
        let long = vec![b'a'; 65_531];
        for id in IdType::ALL.iter().copied().chain([IdType(0), IdType(255)]) {
            for len in (0..=300).chain([4_096, 16_384, 65_531]) {
                let is_valid = match id {
                    IdType::IPV4_ADDR => len == 4,
                    IdType::IPV6_ADDR => len == 16,
                    IdType::NULL => len == 0,
                    IdType::FQDN | IdType::RFC822_ADDR | IdType::DER_ASN1_DN | IdType::DER_ASN1_GN => len > 0,
                    _ => true,
                };
                let expected = if is_valid { Ok(()) } else { Err(Fault::IdLength { id, len }) };
                assert_eq!(parse(id, &long[..len]), expected, "{id} {len}");
            }
        }
    }

    #[test]
    fn names_have_no_terminators() {
        assert_eq!(parse(IdType::FQDN, b"example.com"), Ok(()));
        assert_eq!(parse(IdType::FQDN, b"example.com\0"), Err(Fault::IdText { id: IdType::FQDN, at: 11 }));
        assert_eq!(
            parse(IdType::FQDN, "\u{e4}.de".as_bytes()),
            Err(Fault::IdText { id: IdType::FQDN, at: 0 })
        );
        assert_eq!(parse(IdType::RFC822_ADDR, "j\u{f6}@example.com".as_bytes()), Ok(()));
        let fault = Fault::IdText { id: IdType::RFC822_ADDR, at: 1 };
        assert_eq!(parse(IdType::RFC822_ADDR, b"j\r@example.com"), Err(fault));
        assert_eq!(parse(IdType::KEY_ID, b"\0\r\xff"), Ok(()));
    }

    #[test]
    fn a_short_payload_is_rejected() {
        for len in 0..4 {
            let fault = Fault::BodyTruncated { payload: PayloadType::ID_R, len, min: 4 };
            assert_eq!(Id::parse(PayloadType::ID_R, &[0; 4][..len]), Err(fault));
        }
    }
}
