//! Notify payload (RFC 7296 section 3.10).

use super::{Fault, HashAlgorithm, NotifyType, PayloadType, ProtocolId, WriteError, Writer};

/// A notification: an error, a status, or a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// Protocol of the SA with SPI `spi`; [`ProtocolId::NONE`] if `spi` is empty.
    pub protocol: ProtocolId,
    /// Notify message type.
    pub kind: NotifyType,
    /// SPI of the affected SA: 4 bytes for AH and ESP, otherwise empty.
    pub spi: &'a [u8],
    /// Notification data, of the length that the type requires if the type is known.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// Creates a notification that does not refer to an SA.
    pub const fn new(kind: NotifyType, data: &'a [u8]) -> Self {
        Self { protocol: ProtocolId::NONE, kind, spi: &[], data }
    }

    /// Parses the body of a Notify payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let truncated = Fault::BodyTruncated { payload: PayloadType::NOTIFY, len: body.len(), min: 4 };
        let (&[protocol, spi_size, hi, lo], rest) = body.split_first_chunk().ok_or(truncated)?;
        let kind = NotifyType(u16::from_be_bytes([hi, lo]));
        let found = ProtocolId(protocol);
        let wrong = Fault::NotifySpi { notify: kind, protocol: found, claimed: spi_size };
        let (spi, data) = rest.split_at_checked(spi_size.into()).ok_or(wrong)?;
        if !is_spi_valid(kind, found, spi.len()) {
            return Err(wrong);
        }
        if !is_data_valid(kind, data.len()) {
            return Err(Fault::NotifyData { notify: kind, len: data.len() });
        }
        // RFC 7296 section 3.10: the protocol is ignored if the SPI is empty.
        let protocol = if spi.is_empty() { ProtocolId::NONE } else { found };
        Ok(Self { protocol, kind, spi, data })
    }

    /// Hash algorithms of a SIGNATURE_HASH_ALGORITHMS notification (RFC 7427 section 4); empty for other
    /// types.
    pub fn hash_algorithms(&self) -> impl Iterator<Item = HashAlgorithm> + use<'a> {
        let is_one = self.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS;
        let list = if is_one { self.data.as_chunks().0 } else { &[] };
        list.iter().map(|number| HashAlgorithm(u16::from_be_bytes(*number)))
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.protocol.0)?;
        out.count_u8(self.spi.len())?;
        out.u16(self.kind.0)?;
        out.bytes(self.spi)?;
        out.bytes(self.data)
    }
}

// RFC 7296 section 3.10: no SPI for the IKE SA, and the SPI of the Child SA if the type refers to one.
// Unknown protocols may have SPIs of any size.
fn is_spi_valid(kind: NotifyType, protocol: ProtocolId, len: usize) -> bool {
    match (len, protocol) {
        // RFC 7296 section 1.3.3: the SPI identifies the SA to rekey.
        (0, _) => kind != NotifyType::REKEY_SA,
        (_, ProtocolId::AH | ProtocolId::ESP) => len == 4,
        (_, ProtocolId::IKE | ProtocolId::NONE) => false,
        _ => !kind.names_child_sa(),
    }
}

/// Whether data of `len` bytes is valid for this type.
fn is_data_valid(kind: NotifyType, len: usize) -> bool {
    match kind {
        // RFC 7296 section 2.5: the payload type.
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD => len == 1,
        // Section 2.3: the Message ID.
        NotifyType::INVALID_MESSAGE_ID | NotifyType::SET_WINDOW_SIZE => len == 4,
        // Section 1.3: the requested group.
        NotifyType::INVALID_KE_PAYLOAD => len == 2,
        // Section 2.22: CPI and transform.
        NotifyType::IPCOMP_SUPPORTED => len == 3,
        // Section 2.23: a SHA-1 hash.
        NotifyType::NAT_DETECTION_SOURCE_IP | NotifyType::NAT_DETECTION_DESTINATION_IP => len == 20,
        // Section 2.6.
        NotifyType::COOKIE => (1..=64).contains(&len),
        // RFC 7427 section 4: 16-bit numbers.
        NotifyType::SIGNATURE_HASH_ALGORITHMS => len.is_multiple_of(2),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn nothing_is_read_beyond_the_payload() {
        for len in 0..4 {
            let fault = Fault::BodyTruncated { payload: PayloadType::NOTIFY, len, min: 4 };
            assert_eq!(Notify::parse(&[0; 4][..len]), Err(fault));
        }
        let notify = NotifyType::INVALID_SELECTORS;
        let fault = Fault::NotifySpi { notify, protocol: ProtocolId::ESP, claimed: 4 };
        assert_eq!(Notify::parse(&[3, 4, 0, 39, 1, 2, 3]), Err(fault));
        assert_eq!(Notify::parse(&[3, 4, 0, 39, 1, 2, 3, 4]).unwrap().spi, [1, 2, 3, 4]);
    }

    #[test]
    fn the_protocol_is_ignored_without_an_spi() {
        // RFC 7296 section 3.10: ignored if the SPI is empty.
        for protocol in 0..=255 {
            let notify = Notify::new(NotifyType::INITIAL_CONTACT, &[]);
            assert_eq!(Notify::parse(&[protocol, 0, 0x40, 0]), Ok(notify));
        }
    }

    #[test]
    fn cve_2023_38710_rekey_sa_of_every_protocol_and_spi_size() {
        for protocol in 0..=255 {
            for size in 0..=255u8 {
                let body = [&[protocol, size, 0x40, 0x09], &vec![7; size.into()][..]].concat();
                let notify = NotifyType::REKEY_SA;
                let fault = Fault::NotifySpi { notify, protocol: ProtocolId(protocol), claimed: size };
                let expected = if matches!(protocol, 2 | 3) && size == 4 { Ok(()) } else { Err(fault) };
                assert_eq!(Notify::parse(&body).map(|_| ()), expected, "{protocol} {size}");
            }
        }
    }

    #[test]
    fn other_notifications_refer_only_to_child_sas() {
        let parse = |protocol, size: u8| {
            let body = [&[protocol, size, 0xff, 0xff], &vec![7; size.into()][..]].concat();
            Notify::parse(&body).is_ok()
        };
        assert!(!parse(1, 8) && !parse(0, 4) && !parse(2, 8) && !parse(3, 3));
        assert!(parse(2, 4) && parse(3, 4) && parse(200, 9));
    }

    #[test]
    fn vpp_c3f677c_data_must_have_the_length_of_its_type() {
        let lengths: [(NotifyType, &[usize]); 6] = [
            (NotifyType::NAT_DETECTION_SOURCE_IP, &[20]),
            (NotifyType::NAT_DETECTION_DESTINATION_IP, &[20]),
            (NotifyType::INVALID_KE_PAYLOAD, &[2]),
            (NotifyType::SET_WINDOW_SIZE, &[4]),
            (NotifyType::IPCOMP_SUPPORTED, &[3]),
            (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, &[1]),
        ];
        for (notify, right) in lengths {
            let [hi, lo] = notify.0.to_be_bytes();
            for len in 0..100 {
                let body = [&[0, 0, hi, lo], &vec![1; len][..]].concat();
                let expected =
                    if right.contains(&len) { Ok(()) } else { Err(Fault::NotifyData { notify, len }) };
                assert_eq!(Notify::parse(&body).map(|_| ()), expected);
            }
        }
    }

    #[test]
    fn cookies_have_1_to_64_bytes_and_hash_algorithms_two_each() {
        for len in 0..100 {
            let cookie = [&[0, 0, 0x40, 0x06], &vec![1; len][..]].concat();
            assert_eq!(Notify::parse(&cookie).is_ok(), (1..=64).contains(&len));
            let hashes = [&[0, 0, 0x40, 0x2f], &vec![1; len][..]].concat();
            assert_eq!(Notify::parse(&hashes).is_ok(), len % 2 == 0);
        }
        let body = [0, 0, 0x40, 0x2f, 0, 2, 0, 5, 0xff, 0xff];
        let numbers = Notify::parse(&body).unwrap().hash_algorithms();
        assert!(numbers.eq([HashAlgorithm::SHA2_256, HashAlgorithm::IDENTITY, HashAlgorithm(65_535)]));
        assert_eq!(Notify::new(NotifyType::COOKIE, &[0, 2]).hash_algorithms().count(), 0);
    }
}
