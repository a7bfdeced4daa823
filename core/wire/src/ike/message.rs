//! One IKE message: a header and payloads that fill a datagram (RFC 7296 section 3.1).

use super::{Fault, HEADER_LEN, Header, Payloads};

/// A message whose version is 2 and whose length is that of the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    header: Header,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The message that `datagram` is, without the four zeros in front that it has on port 4500.
    ///
    /// The version is judged before the length, for a higher version may have another header.
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

    /// The header.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The whole message.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The payloads; an encrypted one is the last.
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
    fn the_length_is_that_of_the_datagram() {
        assert_eq!(with_length(28, 28), Ok(()));
        assert_eq!(with_length(27, 28), Err(Fault::MessageLength { claimed: 27 }));
        assert_eq!(with_length(0, 28), Err(Fault::MessageLength { claimed: 0 }));
        assert_eq!(with_length(29, 28), Err(Fault::MessageTruncated { claimed: 29, len: 28 }));
        assert_eq!(with_length(28, 29), Err(Fault::BytesBehindMessage { claimed: 28, len: 29 }));
        assert_eq!(with_length(28, 27), Err(Fault::HeaderTruncated { len: 27 }));
    }

    #[test]
    fn a_length_of_four_gigabytes_is_refused() {
        let mut bytes = [0xff; 64];
        bytes[17] = 0x20;
        assert_eq!(Message::parse(&bytes), Err(Fault::MessageTruncated { claimed: u32::MAX, len: 64 }));
    }

    #[test]
    fn the_version_is_judged_first() {
        let mut bytes = [0; 28];
        bytes[17] = 0x30;
        assert_eq!(Message::parse(&bytes), Err(Fault::HigherMajorVersion { version: Version(0x30) }));
    }
}
