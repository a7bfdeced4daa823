//! Security Association payload (RFC 7296 section 3.3): proposals, their transforms, and the attributes of
//! transforms.
//!
//! `parse` validates the whole payload once, so the iterators cannot fail. The IKE engine selects a proposal,
//! and decides whether the first number must be 1.

use super::{AttributeType, Fault, ProtocolId, TransformType};

/// Maximum number of attributes of a transform. Only one attribute is defined.
pub const MAX_ATTRIBUTES: usize = 16;

const ATTRIBUTE_HEADER_LEN: usize = 4;
/// The AF bit: the value replaces the length.
pub(super) const FIXED_FORMAT: u16 = 0x8000;
const PROPOSAL_HEADER_LEN: usize = 8;
const TRANSFORM_HEADER_LEN: usize = 8;
pub(super) const LAST: u8 = 0;
pub(super) const MORE_PROPOSALS: u8 = 2;
pub(super) const MORE_TRANSFORMS: u8 = 3;

/// The proposals of an SA payload: at least one, with consecutive numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sa<'a> {
    body: &'a [u8],
}

/// A proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal<'a> {
    /// Number of the proposal.
    pub number: u8,
    /// Protocol of the SA.
    pub protocol: ProtocolId,
    /// SPI of the sender: empty or 8 bytes for IKE, 4 bytes for AH and ESP.
    pub spi: &'a [u8],
    transforms: &'a [u8],
}

/// A transform: an algorithm, and its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transform<'a> {
    /// Type of the algorithm.
    pub kind: TransformType,
    /// Transform id of the algorithm, as in [`EncrId`](super::EncrId).
    pub id: u16,
    attributes: &'a [u8],
}

impl<'a> Sa<'a> {
    /// Parses the body of an SA payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (mut rest, mut at) = (body, 0usize);
        let mut before: Option<u8> = None;
        while !rest.is_empty() {
            let (proposal, marker, remaining) = Proposal::split(rest, at)?;
            check_marker(marker, MORE_PROPOSALS, remaining).map_err(|expected| Fault::ProposalMarker {
                at,
                found: marker,
                expected,
            })?;
            // RFC 7296 section 3.3.1: the previous number plus one. No proposal can follow number 255.
            let expected = before.map_or(Some(proposal.number), |number| number.checked_add(1));
            if expected != Some(proposal.number) {
                let expected = expected.unwrap_or(0);
                return Err(Fault::ProposalNumber { at, found: proposal.number, expected });
            }
            before = Some(proposal.number);
            (rest, at) = (remaining, body.len().saturating_sub(remaining.len()));
        }
        before.map(|_| Self { body }).ok_or(Fault::NoProposal {})
    }

    /// Proposals in order of preference.
    pub fn proposals(&self) -> Proposals<'a> {
        Proposals(self.body)
    }
}

/// Checks that a "last" marker matches whether there are `remaining` bytes. Otherwise returns the expected
/// marker.
fn check_marker(marker: u8, more: u8, remaining: &[u8]) -> Result<(), u8> {
    let expected = if remaining.is_empty() { LAST } else { more };
    if marker == expected { Ok(()) } else { Err(expected) }
}

impl<'a> Proposal<'a> {
    /// Parses and validates the proposal at the start of `bytes`. Returns it with its marker and the
    /// remaining bytes.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, u8, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[marker, _, hi, lo, number, protocol, spi_size, count] =
            bytes.first_chunk::<PROPOSAL_HEADER_LEN>().ok_or(Fault::ProposalTruncated { at, len })?;
        let claimed = u16::from_be_bytes([hi, lo]);
        let wrong = Fault::ProposalLength { at, claimed, len };
        let (proposal, remaining) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let inside = proposal.get(PROPOSAL_HEADER_LEN..).ok_or(wrong)?;
        let protocol = ProtocolId(protocol);
        check_spi_size(protocol, spi_size, at)?;
        let (spi, transforms) = inside.split_at_checked(spi_size.into()).ok_or(wrong)?;
        let transforms_at = at.saturating_add(PROPOSAL_HEADER_LEN).saturating_add(spi.len());
        let found = check_transforms(transforms, transforms_at)?;
        if found == 0 || found != usize::from(count) {
            return Err(Fault::TransformCount { at, claimed: count, found });
        }
        Ok((Self { number, protocol, spi, transforms }, marker, remaining))
    }

    /// Transforms of the proposal.
    pub fn transforms(&self) -> Transforms<'a> {
        Transforms(self.transforms)
    }
}

// RFC 7296 section 3.3.1. In the first exchange, proposals for IKE have no SPI. Unknown protocols may have
// SPIs of any size.
fn check_spi_size(protocol: ProtocolId, claimed: u8, at: usize) -> Result<(), Fault> {
    let is_valid = match protocol {
        ProtocolId::IKE => matches!(claimed, 0 | 8),
        ProtocolId::AH | ProtocolId::ESP => claimed == 4,
        _ => true,
    };
    if is_valid { Ok(()) } else { Err(Fault::ProposalSpiSize { at, protocol, claimed }) }
}

/// Validates `transforms` and returns their number.
fn check_transforms(transforms: &[u8], start: usize) -> Result<usize, Fault> {
    let (mut rest, mut at, mut found) = (transforms, start, 0usize);
    while !rest.is_empty() {
        let (_, marker, remaining) = Transform::split(rest, at)?;
        check_marker(marker, MORE_TRANSFORMS, remaining).map_err(|expected| Fault::TransformMarker {
            at,
            found: marker,
            expected,
        })?;
        found = found.saturating_add(1);
        at = at.saturating_add(rest.len().saturating_sub(remaining.len()));
        rest = remaining;
    }
    Ok(found)
}

impl<'a> Transform<'a> {
    /// Parses and validates the transform at the start of `bytes`. Returns it with its marker and the
    /// remaining bytes.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, u8, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[marker, _, hi, lo, kind, _, id_hi, id_lo] =
            bytes.first_chunk::<TRANSFORM_HEADER_LEN>().ok_or(Fault::TransformTruncated { at, len })?;
        let claimed = u16::from_be_bytes([hi, lo]);
        let wrong = Fault::TransformLength { at, claimed, len };
        let (transform, remaining) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let attributes = transform.get(TRANSFORM_HEADER_LEN..).ok_or(wrong)?;
        check_attributes(attributes, at.saturating_add(TRANSFORM_HEADER_LEN))?;
        let id = u16::from_be_bytes([id_hi, id_lo]);
        Ok((Self { kind: TransformType(kind), id, attributes }, marker, remaining))
    }

    /// Attributes of the transform, each of a different type.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.attributes)
    }

    /// Key Length attribute in bits, if present. It may be 0, or another length that no cipher supports.
    pub fn key_length(&self) -> Option<u16> {
        self.attributes().find_map(|attribute| attribute.key_length())
    }

    /// Whether the transform has an attribute of unknown type, which makes it unacceptable (RFC 7296 section
    /// 3.3.6).
    pub fn has_unknown_attribute(&self) -> bool {
        self.attributes().any(|attribute| attribute.key_length().is_none())
    }

    /// Name of the algorithm, if it has one in this module.
    pub const fn name(&self) -> Option<&'static str> {
        self.kind.id_name(self.id)
    }
}

/// Iterator over the proposals of an SA payload.
#[derive(Debug, Clone)]
pub struct Proposals<'a>(&'a [u8]);

impl<'a> Iterator for Proposals<'a> {
    type Item = Proposal<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (proposal, _, rest) = Proposal::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(proposal)
    }
}

/// Iterator over the transforms of a proposal.
#[derive(Debug, Clone)]
pub struct Transforms<'a>(&'a [u8]);

impl<'a> Iterator for Transforms<'a> {
    type Item = Transform<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (transform, _, rest) = Transform::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(transform)
    }
}

/// A transform attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Attribute type, below 32768.
    pub kind: AttributeType,
    /// Attribute value.
    pub value: AttributeValue<'a>,
}

/// Value of an attribute, in the format in which it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeValue<'a> {
    /// Two bytes (format: type, value).
    Fixed(u16),
    /// Any number of bytes (format: type, length, value).
    Variable(&'a [u8]),
}

impl<'a> Attribute<'a> {
    /// Creates a Key Length attribute of `bits`.
    pub const fn from_key_length(bits: u16) -> Self {
        Self { kind: AttributeType::KEY_LENGTH, value: AttributeValue::Fixed(bits) }
    }

    /// Key length in bits, if this is a Key Length attribute.
    pub const fn key_length(&self) -> Option<u16> {
        match (self.kind, self.value) {
            (AttributeType::KEY_LENGTH, AttributeValue::Fixed(bits)) => Some(bits),
            _ => None,
        }
    }

    /// Parses the attribute at the start of `bytes`; returns it with the remaining bytes.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let truncated = Fault::AttributeTruncated { at, len: bytes.len() };
        let (&[a, b, c, d], rest) = bytes.split_first_chunk::<ATTRIBUTE_HEADER_LEN>().ok_or(truncated)?;
        let (kind, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let attribute = AttributeType(kind & !FIXED_FORMAT);
        if kind & FIXED_FORMAT != 0 {
            return Ok((Self { kind: attribute, value: AttributeValue::Fixed(second) }, rest));
        }
        // RFC 7296 section 3.3.5: fixed-length attributes must not use the variable-length format.
        if attribute == AttributeType::KEY_LENGTH {
            return Err(Fault::AttributeFormat { at, attribute });
        }
        let (value, rest) = rest.split_at_checked(second.into()).ok_or(truncated)?;
        Ok((Self { kind: attribute, value: AttributeValue::Variable(value) }, rest))
    }
}

/// Checks that `attributes` is a list of complete attributes of different types.
fn check_attributes(attributes: &[u8], start: usize) -> Result<(), Fault> {
    let mut seen = [AttributeType(0); MAX_ATTRIBUTES];
    let (mut rest, mut at, mut count) = (attributes, start, 0usize);
    while !rest.is_empty() {
        let (Attribute { kind, .. }, remaining) = Attribute::split(rest, at)?;
        // RFC 7296 section 3.3: attribute types must be unique.
        if seen.iter().take(count).any(|other| *other == kind) {
            return Err(Fault::AttributeTwice { at, attribute: kind });
        }
        *seen.get_mut(count).ok_or(Fault::TooManyAttributes { at: start, limit: MAX_ATTRIBUTES })? = kind;
        count = count.saturating_add(1);
        at = at.saturating_add(rest.len().saturating_sub(remaining.len()));
        rest = remaining;
    }
    Ok(())
}

/// Iterator over the attributes of a transform.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn new(attributes: &'a [u8]) -> Self {
        Self(attributes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (attribute, rest) = Attribute::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Builds a transform from marker, type, id and attributes.
    fn transform(marker: u8, kind: u8, id: u8, attributes: &[u8]) -> Vec<u8> {
        let [hi, lo] = u16::try_from(attributes.len() + 8).unwrap().to_be_bytes();
        [&[marker, 0, hi, lo, kind, 0, 0, id], attributes].concat()
    }

    /// Builds a proposal from marker, number, protocol, SPI, claimed number of transforms, and transforms.
    fn proposal(marker: u8, number: u8, protocol: u8, spi: &[u8], count: u8, transforms: &[u8]) -> Vec<u8> {
        let [hi, lo] = u16::try_from(transforms.len() + spi.len() + 8).unwrap().to_be_bytes();
        [&[marker, 0, hi, lo, number, protocol, spi.len() as u8, count], spi, transforms].concat()
    }

    fn two() -> Vec<u8> {
        [transform(3, 1, 12, &[0x80, 14, 0, 128]), transform(0, 3, 12, &[])].concat()
    }

    #[test]
    fn iterators_return_proposals_and_transforms() {
        let body = [proposal(2, 1, 1, &[], 2, &two()), proposal(0, 2, 1, &[7; 8], 2, &two())].concat();
        let sa = Sa::parse(&body).unwrap();
        let found: Vec<_> = sa.proposals().map(|p| (p.number, p.protocol, p.spi)).collect();
        assert_eq!(found, [(1, ProtocolId::IKE, &[][..]), (2, ProtocolId::IKE, &[7; 8])]);
        let transforms: Vec<_> =
            sa.proposals().flat_map(|p| p.transforms()).map(|t| (t.kind.0, t.id, t.key_length())).collect();
        assert_eq!(transforms, [(1, 12, Some(128)), (3, 12, None), (1, 12, Some(128)), (3, 12, None)]);
    }

    #[test]
    fn proposals_and_transforms_must_not_be_missing() {
        assert_eq!(Sa::parse(&[]), Err(Fault::NoProposal {}));
        let fault = Fault::TransformCount { at: 0, claimed: 0, found: 0 };
        assert_eq!(Sa::parse(&proposal(0, 1, 1, &[], 0, &[])), Err(fault));
    }

    #[test]
    fn wrong_transform_counts_are_rejected() {
        for claimed in 0..=255 {
            let parsed = Sa::parse(&proposal(0, 1, 1, &[], claimed, &two())).map(|_| ());
            let fault = Fault::TransformCount { at: 0, claimed, found: 2 };
            assert_eq!(parsed, if claimed == 2 { Ok(()) } else { Err(fault) });
        }
        // 256 transforms exceed the range of the field.
        let mut many: Vec<u8> = (0..255).flat_map(|_| transform(3, 1, 12, &[])).collect();
        many.extend(transform(0, 1, 12, &[]));
        let fault = Fault::TransformCount { at: 0, claimed: 0, found: 256 };
        assert_eq!(Sa::parse(&proposal(0, 1, 1, &[], 0, &many)), Err(fault));
    }

    #[test]
    fn lengths_must_not_exceed_the_enclosing_structure() {
        let good = proposal(0, 1, 3, &[1; 4], 2, &two());
        for claimed in 0..=u16::MAX {
            let mut body = good.clone();
            body[2..4].copy_from_slice(&claimed.to_be_bytes());
            assert_eq!(Sa::parse(&body).is_ok(), usize::from(claimed) == good.len(), "proposal {claimed}");
            let mut body = good.clone();
            body[14..16].copy_from_slice(&claimed.to_be_bytes());
            assert_eq!(Sa::parse(&body).is_ok(), claimed == 12, "transform {claimed}");
        }
        let length = |claimed| Err(Fault::ProposalLength { at: 0, claimed, len: 8 });
        assert_eq!(Sa::parse(&[0, 0, 0, 7, 1, 1, 0, 0]), length(7));
        assert_eq!(Sa::parse(&[0, 0, 0, 9, 1, 1, 0, 0]), length(9));
        assert_eq!(Sa::parse(&[0, 0, 0, 8, 1, 1, 8, 0]), length(8));
        assert_eq!(Sa::parse(&[0, 0, 0]), Err(Fault::ProposalTruncated { at: 0, len: 3 }));
        let body = proposal(0, 1, 1, &[], 1, &[0, 0, 0, 7, 1, 0, 0, 1]);
        assert_eq!(Sa::parse(&body), Err(Fault::TransformLength { at: 8, claimed: 7, len: 8 }));
        let body = proposal(0, 1, 1, &[], 1, &[0; 5]);
        assert_eq!(Sa::parse(&body), Err(Fault::TransformTruncated { at: 8, len: 5 }));
    }

    #[test]
    fn last_markers_must_be_correct() {
        for found in 0..=255 {
            let last = Sa::parse(&proposal(found, 1, 1, &[], 2, &two())).map(|_| ());
            let fault = Fault::ProposalMarker { at: 0, found, expected: 0 };
            assert_eq!(last, if found == 0 { Ok(()) } else { Err(fault) });
            let body = [proposal(found, 1, 1, &[], 2, &two()), proposal(0, 2, 1, &[], 2, &two())].concat();
            let fault = Fault::ProposalMarker { at: 0, found, expected: 2 };
            assert_eq!(Sa::parse(&body).map(|_| ()), if found == 2 { Ok(()) } else { Err(fault) });
            let transforms = [transform(found, 1, 12, &[]), transform(0, 3, 12, &[])].concat();
            let fault = Fault::TransformMarker { at: 8, found, expected: 3 };
            let parsed = Sa::parse(&proposal(0, 1, 1, &[], 2, &transforms)).map(|_| ());
            assert_eq!(parsed, if found == 3 { Ok(()) } else { Err(fault) });
            let fault = Fault::TransformMarker { at: 8, found, expected: 0 };
            let parsed = Sa::parse(&proposal(0, 1, 1, &[], 1, &transform(found, 1, 12, &[]))).map(|_| ());
            assert_eq!(parsed, if found == 0 { Ok(()) } else { Err(fault) });
        }
    }

    #[test]
    fn proposal_numbers_must_be_consecutive() {
        for second in 0..=255 {
            let body = [proposal(2, 4, 1, &[], 2, &two()), proposal(0, second, 1, &[], 2, &two())].concat();
            let fault = Fault::ProposalNumber { at: 28, found: second, expected: 5 };
            assert_eq!(Sa::parse(&body).map(|_| ()), if second == 5 { Ok(()) } else { Err(fault) });
        }
        let body = [proposal(2, 255, 1, &[], 2, &two()), proposal(0, 0, 1, &[], 2, &two())].concat();
        assert_eq!(Sa::parse(&body), Err(Fault::ProposalNumber { at: 28, found: 0, expected: 0 }));
    }

    #[test]
    fn spi_sizes_must_match_the_protocol() {
        for protocol in 0..=255 {
            for size in 0..=255u8 {
                let body = proposal(0, 1, protocol, &vec![9; size.into()], 2, &two());
                let is_valid = match protocol {
                    1 => matches!(size, 0 | 8),
                    2 | 3 => size == 4,
                    _ => true,
                };
                let fault = Fault::ProposalSpiSize { at: 0, protocol: ProtocolId(protocol), claimed: size };
                assert_eq!(Sa::parse(&body).map(|_| ()), if is_valid { Ok(()) } else { Err(fault) });
            }
        }
    }

    #[test]
    fn attributes_of_both_formats() {
        let attributes = [0x80, 14, 1, 0, 0x80, 99, 7, 7, 0, 98, 0, 3, 1, 2, 3];
        let body = proposal(0, 1, 1, &[], 1, &transform(0, 1, 12, &attributes));
        let sa = Sa::parse(&body).unwrap();
        let transform = sa.proposals().next().unwrap().transforms().next().unwrap();
        let found: Vec<_> = transform.attributes().map(|a| (a.kind.0, a.value)).collect();
        let expected = [
            (14, AttributeValue::Fixed(256)),
            (99, AttributeValue::Fixed(0x707)),
            (98, AttributeValue::Variable(&[1, 2, 3])),
        ];
        assert_eq!(found, expected);
        assert!(transform.has_unknown_attribute());
    }

    fn with_attributes(attributes: &[u8]) -> Result<(), Fault> {
        Sa::parse(&proposal(0, 1, 1, &[], 1, &transform(0, 1, 12, attributes))).map(|_| ())
    }

    #[test]
    fn attributes_must_be_complete_and_unique() {
        assert_eq!(with_attributes(&[0x80, 14, 0]), Err(Fault::AttributeTruncated { at: 16, len: 3 }));
        assert_eq!(with_attributes(&[0, 99, 0, 2, 1]), Err(Fault::AttributeTruncated { at: 16, len: 5 }));
        assert_eq!(with_attributes(&[0, 99, 0xff, 0xff]), Err(Fault::AttributeTruncated { at: 16, len: 4 }));
        let twice = |kind| Err(Fault::AttributeTwice { at: 20, attribute: crate::ike::AttributeType(kind) });
        assert_eq!(with_attributes(&[0x80, 14, 0, 128, 0x80, 14, 1, 0]), twice(14));
        assert_eq!(with_attributes(&[0x80, 99, 0, 1, 0, 99, 0, 0]), twice(99));
        let long = Err(Fault::AttributeFormat { at: 16, attribute: crate::ike::AttributeType::KEY_LENGTH });
        assert_eq!(with_attributes(&[0, 14, 0, 2, 1, 0]), long);
        let many: Vec<u8> = (0..17).flat_map(|kind| [0x80, 100 + kind, 0, 0]).collect();
        assert_eq!(with_attributes(&many[..64]), Ok(()));
        assert_eq!(with_attributes(&many), Err(Fault::TooManyAttributes { at: 16, limit: 16 }));
    }

    #[test]
    fn cve_2024_3652_a_key_length_of_zero_is_preserved() {
        for (id, bits) in [(12, 0), (20, 0), (21, 0), (12, 1), (12, 65_535)] {
            let [hi, lo] = u16::to_be_bytes(bits);
            let body = proposal(0, 1, 3, &[9; 4], 1, &transform(0, 1, id, &[0x80, 14, hi, lo]));
            let transform =
                Sa::parse(&body).unwrap().proposals().next().unwrap().transforms().next().unwrap();
            assert_eq!(transform.key_length(), Some(bits));
        }
    }

    #[test]
    fn cve_2016_5391_a_proposal_without_some_transform_types() {
        // A complete IKE proposal with every combination of transform types replaced by unknown ones.
        for mask in 1..32u8 {
            let kinds: Vec<u8> =
                (1..=5).map(|kind| if mask & 1 << (kind - 1) != 0 { kind } else { 200 }).collect();
            let transforms: Vec<u8> = kinds
                .iter()
                .enumerate()
                .flat_map(|(i, kind)| transform(if i == 4 { 0 } else { 3 }, *kind, 1, &[]))
                .collect();
            let body = proposal(0, 1, 1, &[], 5, &transforms);
            let found: Vec<_> = Sa::parse(&body)
                .unwrap()
                .proposals()
                .next()
                .unwrap()
                .transforms()
                .map(|t| t.kind.0)
                .collect();
            assert_eq!(found, kinds);
        }
    }

    #[test]
    fn reserved_bytes_are_ignored() {
        let mut body = proposal(0, 1, 1, &[], 2, &two());
        (body[1], body[9], body[13]) = (0xff, 0xff, 0xff);
        assert!(Sa::parse(&body).is_ok());
    }
}
