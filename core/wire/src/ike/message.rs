//! An IKE message: a header and payloads that fill a datagram (RFC 7296 section 3.1).

use super::{Fault, HEADER_LEN, Header, Payloads};

/// A message with major version 2 and the length of its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the message in `datagram`, which must not include the four-byte marker of port 4500.
    ///
    /// The version is checked before the length, because a higher version may have another header.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Fault> {
        let header = Header::parse(datagram)?;
        header.version.check()?;
        let (claimed, len) = (header.length, datagram.len());
        let length = usize::try_from(claimed).unwrap_or(usize::MAX);
        if length < HEADER_LEN {
            return Err(Fault::MessageLength { claimed });
        }
        if length > len {
            return Err(Fault::MessageTruncated { claimed, len });
        }
        if length < len {
            return Err(Fault::BytesBehindMessage { claimed, len });
        }
        Ok(Self { header, bytes: datagram })
    }

    /// Header of the message.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All bytes of the message.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Payloads of the message; only the last one may be encrypted.
    #[inline]
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads::of_message(&self.header, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ike::Version;

    fn with_length(length: u8, len: usize) -> Result<(), Fault> {
        let mut bytes = [0; 64];
        (bytes[17], bytes[27]) = (0x20, length);
        Message::parse(&bytes[..len]).map(|_| ())
    }

    #[test]
    fn the_length_must_equal_that_of_the_datagram() {
        assert_eq!(with_length(28, 28), Ok(()));
        assert_eq!(with_length(27, 28), Err(Fault::MessageLength { claimed: 27 }));
        assert_eq!(with_length(0, 28), Err(Fault::MessageLength { claimed: 0 }));
        assert_eq!(with_length(29, 28), Err(Fault::MessageTruncated { claimed: 29, len: 28 }));
        assert_eq!(with_length(28, 29), Err(Fault::BytesBehindMessage { claimed: 28, len: 29 }));
        assert_eq!(with_length(28, 27), Err(Fault::HeaderTruncated { len: 27 }));
    }

    #[test]
    fn a_length_of_four_gigabytes_is_rejected() {
        let mut bytes = [0xff; 64];
        bytes[17] = 0x20;
        assert_eq!(Message::parse(&bytes), Err(Fault::MessageTruncated { claimed: u32::MAX, len: 64 }));
    }

    #[test]
    fn the_version_is_checked_first() {
        let mut bytes = [0; 28];
        bytes[17] = 0x30;
        assert_eq!(Message::parse(&bytes), Err(Fault::HigherMajorVersion { version: Version(0x30) }));
    }
}
