//! Content of UDP datagrams on an IPsec NAT traversal port (RFC 3948 section 2).

use crate::esp;

/// UDP port for ESP and IKE through NAT.
pub const PORT: u16 = 4500;
/// Payload of a NAT keepalive (RFC 3948 section 2.3).
pub const KEEPALIVE: u8 = 0xff;
/// Marker before an IKE message. It is in the place of the SPI of an ESP packet, which is never 0 (RFC 3948
/// section 2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// Payload of a UDP datagram on port 4500.
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
