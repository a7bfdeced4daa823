//! Notify payload (RFC 7296 section 3.10).

use super::{Fault, HashAlgorithm, NotifyType, PayloadType, ProtocolId, WriteError, Writer};

/// An error, a status, or a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// The protocol of the SA that `spi` names; [`ProtocolId::NONE`] if `spi` is empty.
    pub protocol: ProtocolId,
    /// What it says.
    pub kind: NotifyType,
    /// The SPI of the SA that it is about: 4 bytes for AH and ESP, none otherwise.
    pub spi: &'a [u8],
    /// Its data, as long as its type wants it if that is known.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// A notification that names no SA.
    pub const fn new(kind: NotifyType, data: &'a [u8]) -> Self {
        Self { protocol: ProtocolId::NONE, kind, spi: &[], data }
    }

    /// The Notify payload with this `body`.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let truncated = Fault::BodyTruncated { payload: PayloadType::NOTIFY, len: body.len(), least: 4 };
        let (&[protocol, spi_size, hi, lo], rest) = body.split_first_chunk().ok_or(truncated)?;
        let kind = NotifyType(u16::from_be_bytes([hi, lo]));
        let found = ProtocolId(protocol);
        let wrong = Fault::NotifySpi { notify: kind, protocol: found, claimed: spi_size };
        let (spi, data) = rest.split_at_checked(spi_size.into()).ok_or(wrong)?;
        if !is_spi_right(kind, found, spi.len()) {
            return Err(wrong);
        }
        if !is_data_right(kind, data.len()) {
            return Err(Fault::NotifyData { notify: kind, len: data.len() });
        }
        // RFC 7296 section 3.10: ignored if the SPI is empty.
        let protocol = if spi.is_empty() { ProtocolId::NONE } else { found };
        Ok(Self { protocol, kind, spi, data })
    }

    /// The algorithms of a notification SIGNATURE_HASH_ALGORITHMS (RFC 7427 section 4); none of another.
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

// RFC 7296 section 3.10: none for the IKE SA, that of a Child SA where one is named. An unknown protocol may have any.
fn is_spi_right(kind: NotifyType, protocol: ProtocolId, len: usize) -> bool {
    match (len, protocol) {
        // Section 1.3.3: it says which SA is to be replaced.
        (0, _) => kind != NotifyType::REKEY_SA,
        (_, ProtocolId::AH | ProtocolId::ESP) => len == 4,
        (_, ProtocolId::IKE | ProtocolId::NONE) => false,
        _ => !kind.names_child_sa(),
    }
}

/// Whether `len` bytes of data are right for this type.
fn is_data_right(kind: NotifyType, len: usize) -> bool {
    match kind {
        // RFC 7296 section 2.5: the type of the payload.
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD => len == 1,
        // Section 2.3: the Message ID.
        NotifyType::INVALID_MESSAGE_ID | NotifyType::SET_WINDOW_SIZE => len == 4,
        // Section 1.3: the group that is wanted.
        NotifyType::INVALID_KE_PAYLOAD => len == 2,
        // Section 2.22: CPI and transform.
        NotifyType::IPCOMP_SUPPORTED => len == 3,
        // Section 2.23: a SHA-1 hash.
        NotifyType::NAT_DETECTION_SOURCE_IP | NotifyType::NAT_DETECTION_DESTINATION_IP => len == 20,
        // Section 2.6.
        NotifyType::COOKIE => (1..=64).contains(&len),
        // RFC 7427 section 4: numbers of 16 bits.
        NotifyType::SIGNATURE_HASH_ALGORITHMS => len.is_multiple_of(2),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
