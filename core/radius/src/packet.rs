//! Packets as they are received (RFC 2865 section 3), and why they are discarded.

use crate::attribute::{MICROSOFT, VENDOR_SPECIFIC};
use alloc::vec::Vec;
use core::fmt;

/// Length of the header: code, identifier, length and authenticator.
pub(crate) const HEADER_LEN: usize = 20;
/// Maximum length of a packet (RFC 2865 section 3).
pub const MAX_PACKET: usize = 4_096;

/// Code of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// Access-Request.
    pub const ACCESS_REQUEST: Self = Self(1);
    /// Access-Accept.
    pub const ACCESS_ACCEPT: Self = Self(2);
    /// Access-Reject.
    pub const ACCESS_REJECT: Self = Self(3);
    /// Accounting-Request.
    pub const ACCOUNTING_REQUEST: Self = Self(4);
    /// Accounting-Response.
    pub const ACCOUNTING_RESPONSE: Self = Self(5);
    /// Access-Challenge.
    pub const ACCESS_CHALLENGE: Self = Self(11);
    /// Disconnect-Request (RFC 5176).
    pub const DISCONNECT_REQUEST: Self = Self(40);
    /// Disconnect-ACK (RFC 5176).
    pub const DISCONNECT_ACK: Self = Self(41);
    /// Disconnect-NAK (RFC 5176).
    pub const DISCONNECT_NAK: Self = Self(42);
    /// CoA-Request (RFC 5176).
    pub const COA_REQUEST: Self = Self(43);
    /// CoA-NAK (RFC 5176).
    pub const COA_NAK: Self = Self(45);
}

/// Why a packet was discarded, or a request cannot be sent. No variant contains bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RadiusFault {
    /// The length of the packet or of an attribute is wrong.
    Malformed,
    /// The packet answers no outstanding request of this server, or its code is not one of an answer.
    Unexpected,
    /// The response to an Access-Request has no Message-Authenticator, or more than one.
    NoMessageAuthenticator,
    /// A Message-Authenticator or a Response Authenticator is wrong: probably another secret.
    WrongAuthenticator,
    /// A key of the server cannot be decrypted: probably another secret.
    WrongKey,
    /// The packet does not fit into 4,096 bytes.
    TooLong,
    /// As many requests are outstanding as the server may have.
    Full,
}

impl RadiusFault {
    /// Words for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "the packet is malformed",
            Self::Unexpected => "the packet answers no request",
            Self::NoMessageAuthenticator => "the packet has no Message-Authenticator",
            Self::WrongAuthenticator => {
                "an authenticator is wrong: both sides probably have different secrets"
            }
            Self::WrongKey => "a key cannot be decrypted",
            Self::TooLong => "the packet would be too long",
            Self::Full => "too many requests await an answer",
        }
    }
}

impl fmt::Display for RadiusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for RadiusFault {}

/// A packet whose lengths are valid. Its authenticators are not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'p> {
    /// Code.
    pub code: Code,
    /// Matches responses to requests.
    pub identifier: u8,
    /// Request Authenticator or Response Authenticator.
    pub authenticator: [u8; 16],
    /// The whole packet, without bytes behind its length.
    pub(crate) bytes: &'p [u8],
    attributes: &'p [u8],
}

/// An attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'p> {
    /// Type.
    pub kind: u8,
    /// Value, at most 253 bytes.
    pub value: &'p [u8],
}

impl<'p> Packet<'p> {
    /// Parses a datagram. Bytes behind the length of the packet are padding (RFC 2865 section 3).
    pub fn parse(datagram: &'p [u8]) -> Result<Self, RadiusFault> {
        let (&[code, identifier, hi, lo], rest) =
            datagram.split_first_chunk().ok_or(RadiusFault::Malformed)?;
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        if !(HEADER_LEN..=MAX_PACKET).contains(&len) {
            return Err(RadiusFault::Malformed);
        }
        let bytes = datagram.get(..len).ok_or(RadiusFault::Malformed)?;
        let (authenticator, _) = rest.split_first_chunk().ok_or(RadiusFault::Malformed)?;
        let attributes = bytes.get(HEADER_LEN..).ok_or(RadiusFault::Malformed)?;
        let packet = Self { code: Code(code), identifier, authenticator: *authenticator, bytes, attributes };
        // Each attribute takes part of the length, so that what the iterator gives has the same sum.
        let sum = packet.attributes().map(|attribute| attribute.value.len().saturating_add(2));
        if sum.fold(0_usize, usize::saturating_add) == attributes.len() {
            Ok(packet)
        } else {
            Err(RadiusFault::Malformed)
        }
    }

    /// The attributes, in the order of the packet.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute<'p>> + use<'p> {
        let mut rest = self.attributes;
        core::iter::from_fn(move || {
            let (&[kind, len], behind) = rest.split_first_chunk()?;
            let (value, next) = behind.split_at_checked(usize::from(len).checked_sub(2)?)?;
            rest = next;
            Some(Attribute { kind, value })
        })
    }

    /// Values of all attributes of a type.
    pub(crate) fn all(&self, kind: u8) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        self.attributes().filter(move |attribute| attribute.kind == kind).map(|attribute| attribute.value)
    }

    /// Value of the first attribute of a type.
    pub(crate) fn first(&self, kind: u8) -> Option<&'p [u8]> {
        self.all(kind).next()
    }

    /// Number in the first attribute of a type.
    pub(crate) fn number(&self, kind: u8) -> Option<u32> {
        self.first(kind).and_then(|value| value.try_into().ok()).map(u32::from_be_bytes)
    }

    /// Concatenation of all attributes of a type, such as EAP-Message (RFC 3579 section 3.1).
    pub(crate) fn joined(&self, kind: u8) -> Vec<u8> {
        self.all(kind).flatten().copied().collect()
    }

    /// Value of the first vendor-specific attribute of Microsoft with this type. An attribute may contain
    /// several (RFC 2865 section 5.26).
    pub(crate) fn microsoft(&self, kind: u8) -> Option<&'p [u8]> {
        self.all(VENDOR_SPECIFIC).find_map(|value| {
            let (vendor, mut rest) = value.split_first_chunk()?;
            if u32::from_be_bytes(*vendor) != MICROSOFT {
                return None;
            }
            while let Some((&[inner, len], behind)) = rest.split_first_chunk() {
                let (value, next) = behind.split_at_checked(usize::from(len).checked_sub(2)?)?;
                if inner == kind {
                    return Some(value);
                }
                rest = next;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn packet(len: u16, attributes: &[u8]) -> Vec<u8> {
        let [hi, lo] = len.to_be_bytes();
        [&[2, 7, hi, lo], &[9; 16][..], attributes].concat()
    }

    #[test]
    fn cve_2026_35333_lengths_are_checked() {
        let parse = |bytes: &[u8]| Packet::parse(bytes).map(|packet| packet.attributes().count());
        assert_eq!(parse(&packet(20, &[])), Ok(0));
        assert_eq!(parse(&packet(20, &[1, 2])), Ok(0), "padding");
        assert_eq!(parse(&packet(25, &[1, 5, b'a', b'b', b'c'])), Ok(1));
        assert_eq!(parse(&packet(22, &[1, 2])), Ok(1), "an empty value");
        for (len, attributes) in [
            (19, &[][..]),
            (21, &[]),
            (21, &[1]),
            (22, &[1, 0]),
            (22, &[1, 1]),
            (22, &[1, 3]),
            (24, &[1, 3, 0, 1]),
        ] {
            assert_eq!(parse(&packet(len, attributes)), Err(RadiusFault::Malformed), "{len} {attributes:?}");
        }
        assert_eq!(parse(&packet(4_097, &vec![0; 4_077])), Err(RadiusFault::Malformed));
        assert_eq!(parse(&[]), Err(RadiusFault::Malformed));
    }

    #[test]
    fn vendor_attributes_are_found_one_by_one() {
        let value = [0, 0, 1, 55, 16, 3, 8, 17, 4, 9, 9];
        let attribute = [&[26, 13][..], &value].concat();
        let bytes = packet(33, &attribute);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.microsoft(16), Some(&[8][..]));
        assert_eq!(packet.microsoft(17), Some(&[9, 9][..]));
        assert_eq!(packet.microsoft(18), None);
        let bytes = self::packet(28, &[26, 8, 0, 0, 1, 55, 16, 0]);
        assert_eq!(Packet::parse(&bytes).unwrap().microsoft(16), None, "a length of 0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(packet) = Packet::parse(&bytes) {
                packet.attributes().for_each(|attribute| assert!(attribute.value.len() <= 253));
                packet.microsoft(16);
            }
        }
    }
}
