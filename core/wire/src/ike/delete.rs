//! Delete payload (RFC 7296 section 3.11).

use super::{Fault, PayloadType, ProtocolId, WriteError, Writer};

/// SAs that the sender has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    protocol: ProtocolId,
    spi_size: u8,
    count: u16,
    spis: &'a [u8],
}

impl<'a> Delete<'a> {
    /// Deletes the IKE SA of the message.
    pub const IKE_SA: Self = Self { protocol: ProtocolId::IKE, spi_size: 0, count: 0, spis: &[] };

    /// Deletes Child SAs of one protocol, identified by the sender's inbound SPIs. Returns `None` if
    /// `protocol` is not a Child SA protocol, or if there are more than 65,535 SPIs.
    pub fn children(protocol: ProtocolId, spis: &'a [[u8; 4]]) -> Option<Self> {
        let count = u16::try_from(spis.len()).ok().filter(|_| protocol.is_child())?;
        Some(Self { protocol, spi_size: 4, count, spis: spis.as_flattened() })
    }

    /// Parses the body of a Delete payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let truncated = Fault::BodyTruncated { payload: PayloadType::DELETE, len: body.len(), min: 4 };
        let (&[protocol, spi_size, hi, lo], spis) = body.split_first_chunk().ok_or(truncated)?;
        let (protocol, count) = (ProtocolId(protocol), u16::from_be_bytes([hi, lo]));
        let is_valid = match protocol {
            ProtocolId::IKE => spi_size == 0,
            ProtocolId::AH | ProtocolId::ESP => spi_size == 4,
            _ => return Err(Fault::DeleteProtocol { protocol }),
        };
        if !is_valid {
            return Err(Fault::DeleteSpiSize { protocol, claimed: spi_size });
        }
        let expected = usize::from(spi_size).saturating_mul(count.into());
        if expected != spis.len() || (spi_size == 0 && count != 0) {
            return Err(Fault::DeleteCount { claimed: count, len: spis.len() });
        }
        Ok(Self { protocol, spi_size, count, spis })
    }

    /// Protocol of the SAs.
    #[inline]
    pub fn protocol(&self) -> ProtocolId {
        self.protocol
    }

    /// SPIs: 4 bytes each for AH and ESP, none for IKE.
    pub fn spis(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        // An SPI size of 0 implies that there are no bytes to split.
        self.spis.chunks_exact(usize::from(self.spi_size).max(1))
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.u8(self.protocol.0)?;
        out.u8(self.spi_size)?;
        out.u16(self.count)?;
        out.bytes(self.spis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn several_spis_of_one_protocol() {
        let body = [3, 4, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
        let delete = Delete::parse(&body).unwrap();
        let spis: Vec<_> = delete.spis().collect();
        assert_eq!((delete.protocol(), spis), (ProtocolId::ESP, std::vec![&body[4..8], &body[8..]]));
        assert_eq!(Delete::children(ProtocolId::ESP, &[[1, 2, 3, 4], [5, 6, 7, 8]]), Some(delete));
        assert_eq!(Delete::children(ProtocolId::IKE, &[]), None);
        assert_eq!(Delete::children(ProtocolId::AH, &[[0; 4]; 65_536]), None);
    }

    #[test]
    fn the_ike_sa_has_no_spi() {
        assert_eq!(Delete::parse(&[1, 0, 0, 0]), Ok(Delete::IKE_SA));
        assert_eq!(Delete::IKE_SA.spis().len(), 0);
        let wrong = |claimed| Err(Fault::DeleteSpiSize { protocol: ProtocolId::IKE, claimed });
        assert_eq!(Delete::parse(&[1, 8, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]), wrong(8));
        assert_eq!(Delete::parse(&[1, 0, 0, 1]), Err(Fault::DeleteCount { claimed: 1, len: 0 }));
    }

    #[test]
    fn cve_2023_38712_inconsistent_counts_and_lengths() {
        let mut body = [3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for len in 4..body.len() {
            for count in 0..=u16::MAX {
                body[2..4].copy_from_slice(&count.to_be_bytes());
                let is_valid = usize::from(count) * 4 == len - 4;
                assert_eq!(Delete::parse(&body[..len]).is_ok(), is_valid, "{count} {len}");
            }
        }
        for size in 0..=255 {
            let wrong = Fault::DeleteSpiSize { protocol: ProtocolId::AH, claimed: size };
            let expected = if size == 4 { Ok(()) } else { Err(wrong) };
            assert_eq!(Delete::parse(&[2, size, 0, 0]).map(|_| ()), expected);
        }
    }

    #[test]
    fn the_protocol_must_be_ike_ah_or_esp() {
        for protocol in 0..=255 {
            let body = [protocol, if protocol == 1 { 0 } else { 4 }, 0, 0];
            let unknown = Err(Fault::DeleteProtocol { protocol: ProtocolId(protocol) });
            let expected = if matches!(protocol, 1..=3) { Ok(()) } else { unknown };
            assert_eq!(Delete::parse(&body).map(|_| ()), expected);
        }
    }
}
