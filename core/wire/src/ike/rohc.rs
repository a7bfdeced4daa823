//! Data of the notification ROHC_SUPPORTED (RFC 5857 section 3.1): parameters of a decompressor.

use super::RohcAttributeType;

/// Attribute format bit: the value has two bytes and no length field.
const FIXED_FORMAT: u16 = 0x8000;
/// Largest MAX_CID (RFC 5857 section 3.1.2).
const MAX_CID: u16 = 16_383;

/// Parameters of the sender's decompressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RohcSupported<'a> {
    /// Largest context identifier, at most 16,383.
    pub max_cid: u16,
    /// Number of bytes of the ROHC ICV that the sender expects; `None` for that of the algorithm.
    pub icv_len: Option<u16>,
    /// Largest packet that the sender reassembles from segments; 0 if it reassembles none.
    pub mrru: u16,
    data: &'a [u8],
}

impl<'a> RohcSupported<'a> {
    /// Parses the notification data. Returns `None` if an attribute is truncated, missing or there twice, or
    /// if its value is not allowed. Unknown attributes are skipped.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let (mut max_cid, mut icv_len, mut mrru) = (None, None, None);
        let (mut has_profile, mut has_integrity) = (false, false);
        let mut rest = data;
        while !rest.is_empty() {
            let attribute;
            (attribute, rest) = RohcAttribute::split(rest)?;
            let Some(RohcAttribute { kind, value }) = attribute else { continue };
            let once = match kind {
                RohcAttributeType::MAX_CID => &mut max_cid,
                RohcAttributeType::ROHC_ICV_LEN => &mut icv_len,
                RohcAttributeType::MRRU => &mut mrru,
                RohcAttributeType::ROHC_PROFILE => {
                    has_profile = true;
                    continue;
                }
                RohcAttributeType::ROHC_INTEG => {
                    has_integrity = true;
                    continue;
                }
                _ => continue,
            };
            if once.replace(value).is_some() {
                return None;
            }
        }
        let max_cid = max_cid.filter(|max_cid| *max_cid <= MAX_CID && has_profile && has_integrity)?;
        Some(Self { max_cid, icv_len, mrru: mrru.unwrap_or(0), data })
    }

    /// Numbers of the profiles that the sender decompresses.
    pub fn profiles(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.values(RohcAttributeType::ROHC_PROFILE)
    }

    /// Integrity algorithms for restored packets, as transform IDs; 0 is none.
    pub fn integrity(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.values(RohcAttributeType::ROHC_INTEG)
    }

    fn values(&self, kind: RohcAttributeType) -> impl Iterator<Item = u16> + use<'a> {
        let mut rest = self.data;
        let attributes = core::iter::from_fn(move || {
            let (attribute, behind) = RohcAttribute::split(rest)?;
            rest = behind;
            Some(attribute)
        });
        attributes.flatten().filter(move |attribute| attribute.kind == kind).map(|attribute| attribute.value)
    }
}

/// An attribute with a value of two bytes. All known attributes are such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RohcAttribute {
    /// Type of the attribute.
    pub kind: RohcAttributeType,
    /// Value of the attribute.
    pub value: u16,
}

impl RohcAttribute {
    /// The attribute on the wire.
    pub const fn to_bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = ((self.kind.0 | FIXED_FORMAT).to_be_bytes(), self.value.to_be_bytes());
        [a, b, c, d]
    }

    /// Splits off the first attribute; `None` in the pair for one with a longer value. Returns `None` if the
    /// data ends inside of it.
    fn split(data: &[u8]) -> Option<(Option<Self>, &[u8])> {
        let (&[a, b, c, d], rest) = data.split_first_chunk()?;
        let (kind, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if kind & FIXED_FORMAT == 0 {
            return Some((None, rest.get(usize::from(second)..)?));
        }
        Some((Some(Self { kind: RohcAttributeType(kind & !FIXED_FORMAT), value: second }), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn data(attributes: &[(RohcAttributeType, u16)]) -> Vec<u8> {
        attributes.iter().flat_map(|&(kind, value)| RohcAttribute { kind, value }.to_bytes()).collect()
    }

    const MANDATORY: [(RohcAttributeType, u16); 4] = [
        (RohcAttributeType::MAX_CID, 15),
        (RohcAttributeType::ROHC_PROFILE, 0x0101),
        (RohcAttributeType::ROHC_PROFILE, 0x0102),
        (RohcAttributeType::ROHC_INTEG, 0),
    ];

    #[test]
    fn attributes_are_read_in_any_order_and_unknown_ones_are_skipped() {
        let mut bytes = data(&MANDATORY);
        assert_eq!(bytes.first_chunk(), Some(&[0x80, 1, 0, 15]));
        // An unknown attribute with a length, and one without.
        bytes.splice(0..0, [0, 9, 0, 3, 1, 2, 3, 0x80, 77, 1, 1]);
        bytes.extend(data(&[(RohcAttributeType::ROHC_INTEG, 12), (RohcAttributeType::ROHC_ICV_LEN, 4)]));
        let rohc = RohcSupported::parse(&bytes).unwrap();
        assert_eq!((rohc.max_cid, rohc.icv_len, rohc.mrru), (15, Some(4), 0));
        assert_eq!(rohc.profiles().collect::<Vec<_>>(), [0x0101, 0x0102]);
        assert_eq!(rohc.integrity().collect::<Vec<_>>(), [0, 12]);
    }

    #[test]
    fn incomplete_or_contradicting_data_is_refused() {
        let bytes = data(&MANDATORY);
        for len in 0..bytes.len() {
            assert_eq!(RohcSupported::parse(&bytes[..len]), None, "{len} bytes");
        }
        for twice in [RohcAttributeType::MAX_CID, RohcAttributeType::ROHC_ICV_LEN, RohcAttributeType::MRRU] {
            let more = data(&[(twice, 1), (twice, 1)]);
            assert_eq!(RohcSupported::parse(&[&bytes[..], &more].concat()), None, "{twice}");
        }
        let too_large = data(&[(RohcAttributeType::MAX_CID, 16_384), MANDATORY[1], MANDATORY[3]]);
        assert_eq!(RohcSupported::parse(&too_large), None);
        let ends_early = [&bytes[..], &[0, 9, 0, 4, 1, 2, 3]].concat();
        assert_eq!(RohcSupported::parse(&ends_early), None);
    }
}
