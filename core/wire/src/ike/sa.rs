//! Security Association payload (RFC 7296 section 3.3): proposals, their transforms, the transforms' attributes.
//!
//! `parse` walks the whole payload once; the iterators then only hand out what was found to be right. Which proposal is
//! taken, and whether a first number of 1 belongs there, is for whoever negotiates.

mod attribute;
pub(super) mod emit;

use super::{Fault, ProtocolId, TransformType};

pub use attribute::{Attribute, AttributeValue, Attributes, MAX_ATTRIBUTES};
pub use emit::{ProposalRepr, TransformRepr};

const PROPOSAL_HEADER_LEN: usize = 8;
const TRANSFORM_HEADER_LEN: usize = 8;
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

/// The proposals of an SA payload: at least one, numbered in steps of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sa<'a> {
    body: &'a [u8],
}

/// One proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal<'a> {
    /// Its number.
    pub number: u8,
    /// The protocol of the SA.
    pub protocol: ProtocolId,
    /// The sender's SPI: none or 8 bytes for IKE, 4 bytes for AH and ESP.
    pub spi: &'a [u8],
    transforms: &'a [u8],
}

/// One transform: an algorithm, with attributes if it needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transform<'a> {
    /// What kind of algorithm.
    pub kind: TransformType,
    /// Its number among those of its type, as in [`EncrId`](super::EncrId).
    pub id: u16,
    attributes: &'a [u8],
}

impl<'a> Sa<'a> {
    /// The SA payload with this `body`.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (mut rest, mut at) = (body, 0usize);
        let mut before: Option<u8> = None;
        while !rest.is_empty() {
            let (proposal, marker, behind) = Proposal::split(rest, at)?;
            check_marker(marker, MORE_PROPOSALS, behind).map_err(|expected| Fault::ProposalMarker {
                at,
                found: marker,
                expected,
            })?;
            // RFC 7296 section 3.3.1: one more than the one before. There is none after 255.
            let expected = before.map_or(Some(proposal.number), |number| number.checked_add(1));
            if expected != Some(proposal.number) {
                let expected = expected.unwrap_or(0);
                return Err(Fault::ProposalNumber { at, found: proposal.number, expected });
            }
            before = Some(proposal.number);
            (rest, at) = (behind, body.len().saturating_sub(behind.len()));
        }
        before.map(|_| Self { body }).ok_or(Fault::NoProposal {})
    }

    /// The proposals, in the order of preference.
    pub fn proposals(&self) -> Proposals<'a> {
        Proposals(self.body)
    }
}

/// Whether a marker tells truly if something is `behind`; otherwise the marker that would.
fn check_marker(marker: u8, more: u8, behind: &[u8]) -> Result<(), u8> {
    let expected = if behind.is_empty() { LAST } else { more };
    if marker == expected { Ok(()) } else { Err(expected) }
}

impl<'a> Proposal<'a> {
    /// The proposal at the start of `bytes`, checked with all that is in it, its marker, and what is behind it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, u8, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[marker, _, hi, lo, number, protocol, spi_size, count] =
            bytes.first_chunk::<PROPOSAL_HEADER_LEN>().ok_or(Fault::ProposalTruncated { at, len })?;
        let claimed = u16::from_be_bytes([hi, lo]);
        let wrong = Fault::ProposalLength { at, claimed, len };
        let (proposal, behind) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let inside = proposal.get(PROPOSAL_HEADER_LEN..).ok_or(wrong)?;
        let protocol = ProtocolId(protocol);
        check_spi_size(protocol, spi_size, at)?;
        let (spi, transforms) = inside.split_at_checked(spi_size.into()).ok_or(wrong)?;
        let transforms_at = at.saturating_add(PROPOSAL_HEADER_LEN).saturating_add(spi.len());
        let found = check_transforms(transforms, transforms_at)?;
        if found == 0 || found != usize::from(count) {
            return Err(Fault::TransformCount { at, claimed: count, found });
        }
        Ok((Self { number, protocol, spi, transforms }, marker, behind))
    }

    /// The transforms.
    pub fn transforms(&self) -> Transforms<'a> {
        Transforms(self.transforms)
    }
}

// RFC 7296 section 3.3.1. IKE has none in its first exchange. An unknown protocol may have any.
fn check_spi_size(protocol: ProtocolId, claimed: u8, at: usize) -> Result<(), Fault> {
    let is_right = match protocol {
        ProtocolId::IKE => matches!(claimed, 0 | 8),
        ProtocolId::AH | ProtocolId::ESP => claimed == 4,
        _ => true,
    };
    if is_right { Ok(()) } else { Err(Fault::ProposalSpiSize { at, protocol, claimed }) }
}

/// The number of transforms that make up `transforms`.
fn check_transforms(transforms: &[u8], start: usize) -> Result<usize, Fault> {
    let (mut rest, mut at, mut found) = (transforms, start, 0usize);
    while !rest.is_empty() {
        let (_, marker, behind) = Transform::split(rest, at)?;
        check_marker(marker, MORE_TRANSFORMS, behind).map_err(|expected| Fault::TransformMarker {
            at,
            found: marker,
            expected,
        })?;
        found = found.saturating_add(1);
        at = at.saturating_add(rest.len().saturating_sub(behind.len()));
        rest = behind;
    }
    Ok(found)
}

impl<'a> Transform<'a> {
    /// The transform at the start of `bytes`, checked with its attributes, its marker, and what is behind it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, u8, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[marker, _, hi, lo, kind, _, id_hi, id_lo] =
            bytes.first_chunk::<TRANSFORM_HEADER_LEN>().ok_or(Fault::TransformTruncated { at, len })?;
        let claimed = u16::from_be_bytes([hi, lo]);
        let wrong = Fault::TransformLength { at, claimed, len };
        let (transform, behind) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let attributes = transform.get(TRANSFORM_HEADER_LEN..).ok_or(wrong)?;
        attribute::check(attributes, at.saturating_add(TRANSFORM_HEADER_LEN))?;
        let id = u16::from_be_bytes([id_hi, id_lo]);
        Ok((Self { kind: TransformType(kind), id, attributes }, marker, behind))
    }

    /// The attributes: no two of one type.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.attributes)
    }

    /// The Key Length attribute in bits, if there is one. 0 and other lengths that no cipher has are possible.
    pub fn key_length(&self) -> Option<u16> {
        self.attributes().find_map(|attribute| attribute.key_length())
    }

    /// Whether it has an attribute that is unknown here: then the transform is unacceptable (RFC 7296 section 3.3.6).
    pub fn has_unknown_attribute(&self) -> bool {
        self.attributes().any(|attribute| attribute.key_length().is_none())
    }

    /// The name of the algorithm, if it has one here.
    pub const fn name(&self) -> Option<&'static str> {
        self.kind.id_name(self.id)
    }
}

/// The proposals of an SA payload.
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

/// The transforms of a proposal.
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

#[cfg(test)]
mod tests;
