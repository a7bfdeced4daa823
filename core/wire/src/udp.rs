//! UDP (RFC 768): a view of a datagram, the header that UDP encapsulation emits, and what a datagram on a NAT
//! traversal port contains (RFC 3948 section 2).

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    Malformed,
    checksum::{Sum, pseudo_v4, pseudo_v6},
    esp,
    ip::proto,
};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 8;
/// UDP port for ESP and IKE through NAT.
pub const NATT_PORT: u16 = 4500;
/// Payload of a NAT keepalive (RFC 3948 section 2.3).
pub const KEEPALIVE: u8 = 0xff;
/// Marker before an IKE message. It is in the place of the SPI of an ESP packet, which is never 0 (RFC 3948
/// section 2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A UDP datagram in the bytes of `T`. Bytes after its length do not belong to the datagram.
#[derive(Debug, Clone, Copy)]
pub struct Udp<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Udp<T> {
    /// Parses the datagram at the start of `bytes`.
    #[inline]
    pub fn parse(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        let &[_, _, _, _, hi, lo, _, _] =
            b.first_chunk::<HEADER_LEN>().ok_or(Malformed::new("UDP header", "must have 8 bytes"))?;
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        if len < HEADER_LEN {
            return Err(Malformed::new("UDP length", "must cover the header"));
        }
        if len > b.len() {
            return Err(Malformed::new("UDP length", "must not exceed the bytes at hand"));
        }
        Ok(Self { bytes })
    }

    // `parse` has checked that the bytes exist; the zeros are never returned.
    #[inline]
    fn fixed(&self) -> &[u8; HEADER_LEN] {
        self.bytes.as_ref().first_chunk().unwrap_or(&[0; HEADER_LEN])
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[0], h[1]])
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[2], h[3]])
    }

    /// Length of header and payload, in bytes.
    #[inline]
    pub fn len(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[4], h[5]])
    }

    /// Whether the payload is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.payload().is_empty()
    }

    /// Checksum field; 0 means that there is no checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        let h = self.fixed();
        u16::from_be_bytes([h[6], h[7]])
    }

    /// Header and payload, up to the length field.
    #[inline]
    pub fn datagram(&self) -> &[u8] {
        self.bytes.as_ref().get(..self.len().into()).unwrap_or_default()
    }

    /// Payload, up to the length field.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.datagram().get(HEADER_LEN..).unwrap_or_default()
    }

    /// Whether the checksum is valid over IPv4, where it is optional.
    #[inline]
    pub fn verify_checksum_v4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> bool {
        self.checksum() == 0 || self.sum(pseudo_v4(src, dst, proto::UDP, self.len())).is_valid()
    }

    /// Whether the checksum is valid over IPv6, where it is mandatory (RFC 8200 section 8.1).
    #[inline]
    pub fn verify_checksum_v6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        self.checksum() != 0 && self.sum(pseudo_v6(src, dst, proto::UDP, self.len().into())).is_valid()
    }

    #[inline]
    fn sum(&self, pseudo: Sum) -> Sum {
        pseudo.add_bytes(self.datagram())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        if let Some(h) = self.bytes.as_mut().first_chunk_mut::<HEADER_LEN>() {
            [h[6], h[7]] = checksum.to_be_bytes();
        }
    }

    /// Computes and sets the checksum over IPv4.
    #[inline]
    pub fn fill_checksum_v4(&mut self, src: Ipv4Addr, dst: Ipv4Addr) {
        self.fill(pseudo_v4(src, dst, proto::UDP, self.len()));
    }

    /// Computes and sets the checksum over IPv6.
    #[inline]
    pub fn fill_checksum_v6(&mut self, src: Ipv6Addr, dst: Ipv6Addr) {
        self.fill(pseudo_v6(src, dst, proto::UDP, self.len().into()));
    }

    fn fill(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        // RFC 768: a computed checksum of 0 is sent as 0xffff, because 0 means that there is no checksum.
        let checksum = match self.sum(pseudo).finish() {
            0 => 0xffff,
            checksum => checksum,
        };
        self.set_checksum(checksum);
    }
}

/// UDP header without the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of the payload, at most 65,527 bytes.
    pub payload_len: u16,
}

impl UdpHeader {
    /// Parses the header of the datagram in `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let udp = Udp::parse(bytes)?;
        Ok(Self {
            src_port: udp.src_port(),
            dst_port: udp.dst_port(),
            payload_len: udp.len().saturating_sub(HEADER_LEN as u16),
        })
    }

    /// Writes the header without a checksum, as UDP encapsulation over IPv4 requires (RFC 3948 section 2.1).
    /// In other cases, call `fill_checksum_v4` or `fill_checksum_v6` afterwards.
    #[inline]
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) -> Result<(), Malformed> {
        let len = self
            .payload_len
            .checked_add(HEADER_LEN as u16)
            .ok_or(Malformed::new("UDP length", "must be at most 65,535"))?;
        let ([s0, s1], [d0, d1]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        let [l0, l1] = len.to_be_bytes();
        *out = [s0, s1, d0, d1, l0, l1, 0, 0];
        Ok(())
    }
}

/// Payload of a UDP datagram on port 4500 (RFC 3948 section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Natt<'a> {
    /// A NAT keepalive, which is ignored.
    Keepalive,
    /// An IKE message, without the marker.
    NonEsp(&'a [u8]),
    /// An ESP packet.
    Esp(&'a [u8]),
    /// Not a keepalive, and too short for ESP or IKE.
    TooShort,
}

impl<'a> Natt<'a> {
    /// Classifies the payload of a UDP datagram.
    #[inline]
    pub fn classify(payload: &'a [u8]) -> Self {
        match payload {
            [KEEPALIVE] => Self::Keepalive,
            [0, 0, 0, 0, message @ ..] => Self::NonEsp(message),
            esp if esp.len() >= esp::HEADER_LEN => Self::Esp(esp),
            _ => Self::TooShort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_lengths_are_rejected() {
        let field = |bytes: &[u8]| Udp::parse(bytes).unwrap_err().field;
        assert_eq!(field(&[0; 7]), "UDP header");
        assert_eq!(field(&[0, 1, 0, 2, 0, 7, 0, 0]), "UDP length");
        assert_eq!(field(&[0, 1, 0, 2, 0, 9, 0, 0]), "UDP length");
        assert!(Udp::parse([0, 1, 0, 2, 0, 8, 0, 0]).unwrap().is_empty());
        let long = UdpHeader { src_port: 1, dst_port: 2, payload_len: 65_528 };
        assert_eq!(long.emit(&mut [0; 8]).unwrap_err().field, "UDP length");
    }

    #[test]
    fn a_missing_checksum_is_valid_only_over_ipv4() {
        let udp = Udp::parse([0, 1, 0, 2, 0, 8, 0, 0]).unwrap();
        assert!(udp.verify_checksum_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST));
        assert!(!udp.verify_checksum_v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn a_computed_zero_becomes_all_ones() {
        // The words sum to 0xffff: protocol 17 + length 8 + length 8 + ports.
        let [hi, lo] = (0xffff - 17 - 8 - 8u16).to_be_bytes();
        let mut udp = Udp::parse([hi, lo, 0, 0, 0, 8, 0, 0]).unwrap();
        udp.fill_checksum_v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        assert_eq!(udp.checksum(), 0xffff);
        assert!(udp.verify_checksum_v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED));
    }

    proptest! {
        #[test]
        fn round_trip_and_checksum(
            src_port: u16,
            dst_port: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            src_v4: Ipv4Addr,
            dst_v4: Ipv4Addr,
            src_v6: Ipv6Addr,
            dst_v6: Ipv6Addr,
            flip in any::<proptest::sample::Index>(),
        ) {
            let header = UdpHeader { src_port, dst_port, payload_len: payload.len() as u16 };
            let mut bytes = std::vec![0; HEADER_LEN];
            header.emit(bytes.first_chunk_mut().unwrap()).unwrap();
            bytes.extend(&payload);
            prop_assert_eq!(UdpHeader::parse(&bytes), Ok(header));
            // Bytes after the datagram do not belong to it.
            bytes.push(0x55);
            let mut udp = Udp::parse(&mut bytes[..]).unwrap();
            prop_assert_eq!(udp.payload(), &payload[..]);
            udp.fill_checksum_v4(src_v4, dst_v4);
            prop_assert!(udp.verify_checksum_v4(src_v4, dst_v4));
            udp.fill_checksum_v6(src_v6, dst_v6);
            prop_assert!(udp.verify_checksum_v6(src_v6, dst_v6));
            // A flipped bit is detected in ports, checksum and payload.
            let at = flip.index(HEADER_LEN + payload.len() - 2);
            let at = if at < 4 { at } else { at + 2 };
            bytes[at] ^= 1;
            prop_assert!(!Udp::parse(&bytes).unwrap().verify_checksum_v6(src_v6, dst_v6));
        }

        #[test]
        fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), len in 0u8..48) {
            if bytes.len() > 5 {
                (bytes[4], bytes[5]) = (0, len);
            }
            if let Ok(udp) = Udp::parse(&bytes) {
                prop_assert_eq!(udp.payload().len() + HEADER_LEN, usize::from(udp.len()));
                let _ = udp.verify_checksum_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
            }
        }
    }

    #[test]
    fn the_four_kinds() {
        assert_eq!(Natt::classify(&[0xff]), Natt::Keepalive);
        assert_eq!(Natt::classify(&[0, 0, 0, 0, 7]), Natt::NonEsp(&[7]));
        assert_eq!(Natt::classify(&[0, 0, 0, 1, 0, 0, 0, 9]), Natt::Esp(&[0, 0, 0, 1, 0, 0, 0, 9]));
        for short in [&[][..], &[0], &[0; 3], &[0xff, 0xff], &[0, 0, 0, 1, 0, 0, 0]] {
            assert_eq!(Natt::classify(short), Natt::TooShort);
        }
    }

    proptest! {
        #[test]
        fn classifies_esp_and_ike(spi in 1u32.., message in proptest::collection::vec(any::<u8>(), 4..40)) {
            let esp = [&spi.to_be_bytes(), &message[..]].concat();
            prop_assert_eq!(Natt::classify(&esp), Natt::Esp(&esp));
            let ike = [&NON_ESP_MARKER, &message[..]].concat();
            prop_assert_eq!(Natt::classify(&ike), Natt::NonEsp(&message));
        }
    }
}
