//! Proposals to be sent, and how they are written.

use super::{Attribute, AttributeValue, LAST, MORE_PROPOSALS, MORE_TRANSFORMS, attribute};
use crate::ike::{
    EncrId, IntegId, KeMethod, PrfId, ProtocolId, SequenceNumbers, TransformType, WriteError, Writer,
};

/// A proposal to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalRepr<'a> {
    /// Its number: 1 for the first of an offer, that of the accepted proposal for an answer.
    pub number: u8,
    /// The protocol of the SA.
    pub protocol: ProtocolId,
    /// Our SPI.
    pub spi: &'a [u8],
    /// At least one transform, at most 255.
    pub transforms: &'a [TransformRepr<'a>],
}

/// A transform to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransformRepr<'a> {
    /// What kind of algorithm.
    pub kind: TransformType,
    /// Its number among those of its type.
    pub id: u16,
    /// Its attributes.
    pub attributes: &'a [Attribute<'a>],
}

impl<'a> TransformRepr<'a> {
    /// An encryption algorithm, with its key length as attribute if its keys have no fixed length.
    pub const fn encr(id: EncrId, attributes: &'a [Attribute<'a>]) -> Self {
        Self { kind: TransformType::ENCR, id: id.0, attributes }
    }

    /// A pseudorandom function.
    pub const fn prf(id: PrfId) -> Self {
        Self { kind: TransformType::PRF, id: id.0, attributes: &[] }
    }

    /// An integrity algorithm.
    pub const fn integ(id: IntegId) -> Self {
        Self { kind: TransformType::INTEG, id: id.0, attributes: &[] }
    }

    /// A key exchange method.
    pub const fn ke(id: KeMethod) -> Self {
        Self { kind: TransformType::KE, id: id.0, attributes: &[] }
    }

    /// Sequence numbers, extended or not.
    pub const fn esn(id: SequenceNumbers) -> Self {
        Self { kind: TransformType::ESN, id: id.0, attributes: &[] }
    }

    fn emit(&self, is_last: bool, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.substructure(if is_last { LAST } else { MORE_TRANSFORMS }, &|out| {
            out.u8(self.kind.0)?;
            out.u8(0)?;
            out.u16(self.id)?;
            self.attributes.iter().try_for_each(|attribute| attribute.emit(out))
        })
    }
}

impl ProposalRepr<'_> {
    fn emit(&self, is_last: bool, out: &mut Writer<'_>) -> Result<(), WriteError> {
        out.substructure(if is_last { LAST } else { MORE_PROPOSALS }, &|out| {
            out.u8(self.number)?;
            out.u8(self.protocol.0)?;
            out.count_u8(self.spi.len())?;
            out.count_u8(self.transforms.len())?;
            out.bytes(self.spi)?;
            each(self.transforms, |transform, is_last| transform.emit(is_last, out))
        })
    }
}

impl Attribute<'_> {
    fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.kind.0 & attribute::FIXED != 0 {
            return Err(WriteError::TooLong);
        }
        match self.value {
            AttributeValue::Fixed(value) => {
                out.u16(self.kind.0 | attribute::FIXED)?;
                out.u16(value)
            }
            AttributeValue::Variable(value) => {
                out.u16(self.kind.0)?;
                out.count_u16(value.len())?;
                out.bytes(value)
            }
        }
    }
}

/// Writes the body of an SA payload.
pub(in crate::ike) fn proposals(
    proposals: &[ProposalRepr<'_>],
    out: &mut Writer<'_>,
) -> Result<(), WriteError> {
    each(proposals, |proposal, is_last| proposal.emit(is_last, out))
}

/// Calls `emit` for each item, and says which is the last.
fn each<T>(items: &[T], mut emit: impl FnMut(&T, bool) -> Result<(), WriteError>) -> Result<(), WriteError> {
    let Some((last, others)) = items.split_last() else { return Ok(()) };
    others.iter().try_for_each(|item| emit(item, false))?;
    emit(last, true)
}
