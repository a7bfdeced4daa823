//! Encoder for proposals.

use super::sa::{FIXED_FORMAT, LAST, MORE_PROPOSALS, MORE_TRANSFORMS};
use super::{
    Attribute, AttributeValue, EncrId, IntegId, KeMethod, PrfId, ProtocolId, SequenceNumbers, TransformType,
    WriteError, Writer,
};

/// A proposal to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalRepr<'a> {
    /// Number of the proposal: 1 for the first proposal of an offer, or the number of the accepted proposal
    /// in a response.
    pub number: u8,
    /// Protocol of the SA.
    pub protocol: ProtocolId,
    /// Local SPI.
    pub spi: &'a [u8],
    /// Transforms: 1 to 255.
    pub transforms: &'a [TransformRepr<'a>],
}

/// A transform to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransformRepr<'a> {
    /// Type of the algorithm.
    pub kind: TransformType,
    /// Transform id of the algorithm.
    pub id: u16,
    /// Attributes of the transform.
    pub attributes: &'a [Attribute<'a>],
}

impl<'a> TransformRepr<'a> {
    /// Creates an encryption transform. Ciphers with variable key length need a Key Length attribute.
    pub const fn encr(id: EncrId, attributes: &'a [Attribute<'a>]) -> Self {
        Self { kind: TransformType::ENCR, id: id.0, attributes }
    }

    /// Creates a pseudorandom function transform.
    pub const fn prf(id: PrfId) -> Self {
        Self { kind: TransformType::PRF, id: id.0, attributes: &[] }
    }

    /// Creates an integrity transform.
    pub const fn integ(id: IntegId) -> Self {
        Self { kind: TransformType::INTEG, id: id.0, attributes: &[] }
    }

    /// Creates a key exchange transform.
    pub const fn ke(id: KeMethod) -> Self {
        Self { kind: TransformType::KE, id: id.0, attributes: &[] }
    }

    /// Creates a sequence number transform: extended or not.
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
        if self.kind.0 & FIXED_FORMAT != 0 {
            return Err(WriteError::TooLong);
        }
        match self.value {
            AttributeValue::Fixed(value) => {
                out.u16(self.kind.0 | FIXED_FORMAT)?;
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
pub(super) fn emit_proposals(proposals: &[ProposalRepr<'_>], out: &mut Writer<'_>) -> Result<(), WriteError> {
    each(proposals, |proposal, is_last| proposal.emit(is_last, out))
}

/// Calls `emit` for each item, with a flag for the last item.
fn each<T>(items: &[T], mut emit: impl FnMut(&T, bool) -> Result<(), WriteError>) -> Result<(), WriteError> {
    let Some((last, others)) = items.split_last() else { return Ok(()) };
    others.iter().try_for_each(|item| emit(item, false))?;
    emit(last, true)
}
