//! The IKE header (RFC 7296 section 3.1).

use core::fmt;

use super::{ExchangeType, Fault, PayloadType};

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 28;
/// Offset of the next payload field.
pub(super) const NEXT_PAYLOAD_AT: usize = 16;
/// Offset of the length field.
pub(super) const LENGTH_AT: usize = 24;

const RESPONSE: u8 = 0x20;
const VERSION: u8 = 0x10;
const INITIATOR: u8 = 0x08;

/// SPI of an IKE SA: one for the initiator, one for the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IkeSpi(
    /// The SPI as a number in network byte order.
    pub u64,
);

impl IkeSpi {
    /// SPI of the responder before the responder has chosen one.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for IkeSpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Major and minor version, four bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(
    /// The byte on the wire.
    pub u8,
);

impl Version {
    /// IKEv2: major 2, minor 0.
    pub const V2: Self = Self(0x20);

    /// The major version.
    #[inline]
    pub const fn major(self) -> u8 {
        self.0 >> 4
    }

    /// The minor version; receivers ignore it.
    #[inline]
    pub const fn minor(self) -> u8 {
        self.0 & 0x0f
    }

    /// Checks that the major version is 2 (RFC 7296 section 2.5).
    ///
    /// Messages of a higher version are answered with INVALID_MAJOR_VERSION. A lower version is a different
    /// protocol.
    #[inline]
    pub const fn check(self) -> Result<(), Fault> {
        match self.major() {
            2 => Ok(()),
            3.. => Err(Fault::HigherMajorVersion { version: self }),
            _ => Err(Fault::LowerMajorVersion { version: self }),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

/// Flags of the header. Unnamed bits are ignored on receipt and zero in sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags {
    /// The sender is the original initiator of the IKE SA.
    pub initiator: bool,
    /// The sender supports a higher major version. IKEv2 senders clear the flag, and receivers ignore it.
    pub higher_version: bool,
    /// The message is a response.
    pub response: bool,
}

/// Fields of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// SPI of the original initiator.
    pub spi_i: IkeSpi,
    /// SPI of the original responder.
    pub spi_r: IkeSpi,
    /// Type of the first payload.
    pub next_payload: PayloadType,
    /// Version of the message.
    pub version: Version,
    /// Type of the exchange.
    pub exchange: ExchangeType,
    /// Flags.
    pub flags: Flags,
    /// Number of the exchange.
    pub message_id: u32,
    /// Length of header and payloads in bytes, according to the field.
    pub length: u32,
}

impl Header {
    /// Parses the header at the start of `datagram`. [`Message::parse`] checks version and length.
    ///
    /// [`Message::parse`]: super::Message::parse
    pub fn parse(datagram: &[u8]) -> Result<Self, Fault> {
        let truncated = Fault::HeaderTruncated { len: datagram.len() };
        let (&spi_i, rest) = datagram.split_first_chunk().ok_or(truncated)?;
        let (&spi_r, rest) = rest.split_first_chunk().ok_or(truncated)?;
        let (&[next, version, exchange, flags], rest) = rest.split_first_chunk().ok_or(truncated)?;
        let (&message_id, rest) = rest.split_first_chunk().ok_or(truncated)?;
        let &length = rest.first_chunk().ok_or(truncated)?;
        Ok(Self {
            spi_i: IkeSpi(u64::from_be_bytes(spi_i)),
            spi_r: IkeSpi(u64::from_be_bytes(spi_r)),
            next_payload: PayloadType(next),
            version: Version(version),
            exchange: ExchangeType(exchange),
            flags: Flags {
                initiator: flags & INITIATOR != 0,
                higher_version: flags & VERSION != 0,
                response: flags & RESPONSE != 0,
            },
            message_id: u32::from_be_bytes(message_id),
            length: u32::from_be_bytes(length),
        })
    }

    /// Writes the header.
    pub fn emit(&self, out: &mut [u8; HEADER_LEN]) {
        let bit = |flag: bool, bit: u8| if flag { bit } else { 0 };
        let flags = bit(self.flags.initiator, INITIATOR)
            | bit(self.flags.higher_version, VERSION)
            | bit(self.flags.response, RESPONSE);
        let [i0, i1, i2, i3, i4, i5, i6, i7] = self.spi_i.0.to_be_bytes();
        let [r0, r1, r2, r3, r4, r5, r6, r7] = self.spi_r.0.to_be_bytes();
        let [m0, m1, m2, m3] = self.message_id.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let (next, version, exchange) = (self.next_payload.0, self.version.0, self.exchange.0);
        *out = [
            i0, i1, i2, i3, i4, i5, i6, i7, r0, r1, r2, r3, r4, r5, r6, r7, next, version, exchange, flags,
            m0, m1, m2, m3, l0, l1, l2, l3,
        ];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::{FaultResponse, NotifyType};
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn versions() {
        assert_eq!(Version(0x20).check(), Ok(()));
        // RFC 7296 section 2.5: the minor version is ignored.
        assert_eq!(Version(0x2f).check(), Ok(()));
        let higher = Version(0x31).check().unwrap_err();
        assert_eq!(higher.response(), FaultResponse::Notify(NotifyType::INVALID_MAJOR_VERSION));
        assert_eq!(higher.to_string(), "version 3.1 is above 2");
        assert_eq!(Version(0x10).check().unwrap_err().response(), FaultResponse::Silence);
        assert_eq!(Version(0x00).check(), Err(Fault::LowerMajorVersion { version: Version(0) }));
    }

    #[test]
    fn short_input_is_rejected() {
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&[0; HEADER_LEN][..len]), Err(Fault::HeaderTruncated { len }));
        }
    }

    #[test]
    fn unnamed_flags_are_ignored() {
        let mut bytes = [0; HEADER_LEN];
        bytes[19] = 0xc7;
        assert_eq!(Header::parse(&bytes).unwrap().flags, Flags::default());
    }

    proptest! {
        #[test]
        fn round_trip(bytes: [u8; HEADER_LEN]) {
            let header = Header::parse(&bytes).unwrap();
            let mut out = [0; HEADER_LEN];
            header.emit(&mut out);
            prop_assert_eq!(Header::parse(&out), Ok(header));
            let mut canonical = bytes;
            canonical[19] &= 0x38;
            prop_assert_eq!(out, canonical);
        }
    }
}
