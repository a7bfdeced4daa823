//! Feedback of a decompressor to its compressor (RFC 5225 section 6.9).

use crate::Fault;
use crate::channel::{ChannelParams, cid_bytes, read_large_cid, wrap_feedback};
use crate::crc::crc8;
use crate::cursor::Reader;
use arrayvec::ArrayVec;

/// Largest feedback element that a decompressor makes: header, CID, FEEDBACK-2 and one option.
pub const MAX_FEEDBACK: usize = 8;

/// Feedback elements of a decompressor that wait: one for each of as many contexts.
pub const MAX_FEEDBACK_ELEMENTS: usize = 8;

/// What the decompressor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The packet with this MSN was decompressed.
    Ack,
    /// The dynamic part of the context is damaged.
    Nack,
    /// There is no context, or its static part is damaged.
    StaticNack,
}

/// A feedback element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Feedback {
    pub(crate) cid: u16,
    pub(crate) kind: Kind,
    /// Low bits of the MSN of a packet that was decompressed, and their number: 8 or 14.
    pub(crate) msn: Option<(u16, u32)>,
    /// The decompressor cannot handle the flow (options REJECT and CONTEXT_MEMORY).
    pub(crate) is_rejected: bool,
}

mod option {
    pub(super) const REJECT: u8 = 2;
    pub(super) const ACKNUMBER_NOT_VALID: u8 = 3;
    pub(super) const CONTEXT_MEMORY: u8 = 9;
    pub(super) const CLOCK_RESOLUTION: u8 = 10;
}

impl Feedback {
    /// Parses the data of an element. Elements that the RFC tells the compressor to discard are an error.
    pub(crate) fn parse(params: &ChannelParams, data: &[u8]) -> Result<Self, Fault> {
        let mut reader = Reader(data);
        let cid = match (params.has_large_cids(), data.first()) {
            (true, _) => read_large_cid(&mut reader)?,
            (false, Some(byte)) if byte & 0b1111_0000 == 0b1110_0000 && data.len() > 1 => {
                u16::from(reader.u8()? & 0b1111)
            }
            (false, _) => 0,
        };
        if cid > params.max_cid {
            return Err(Fault::Cid);
        }
        if let [msn] = reader.0 {
            return Ok(Self { cid, kind: Kind::Ack, msn: Some((u16::from(*msn), 8)), is_rejected: false });
        }
        let before =
            data.get(..data.len().saturating_sub(reader.0.len()).saturating_add(2)).ok_or(Fault::TooShort)?;
        let (head, crc) = (reader.u16()?, reader.u8()?);
        if crc != crc8(before, reader.0) {
            return Err(Fault::Crc);
        }
        let kind = match head >> 14 {
            0 => Kind::Ack,
            1 => Kind::Nack,
            2 => Kind::StaticNack,
            _ => return Err(Fault::Reserved),
        };
        let mut feedback = Self { cid, kind, msn: Some((head & 0x3fff, 14)), is_rejected: false };
        feedback.read_options(&mut reader)?;
        Ok(feedback)
    }

    fn read_options(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let mut seen = 0u16;
        while !reader.0.is_empty() {
            let head = reader.u8()?;
            let (kind, data) = (head >> 4, reader.bytes(usize::from(head & 0x0f))?);
            match (kind, data.len()) {
                (option::REJECT | option::CONTEXT_MEMORY, 0) => self.is_rejected = true,
                (option::ACKNUMBER_NOT_VALID, 0) => self.msn = None,
                // Timer-based timestamps are never used.
                (option::CLOCK_RESOLUTION, 1) => {}
                _ => return Err(Fault::Reserved),
            }
            if seen >> kind & 1 == 1 {
                return Err(Fault::Reserved);
            }
            seen |= 1 << kind;
        }
        Ok(())
    }

    /// Writes the element with its header.
    pub(crate) fn write(&self, params: &ChannelParams) -> Result<ArrayVec<u8, MAX_FEEDBACK>, Fault> {
        let (small, large) = cid_bytes(params, self.cid);
        let kind = match self.kind {
            Kind::Ack => 0u16,
            Kind::Nack => 1,
            Kind::StaticNack => 2,
        };
        let mut before = ArrayVec::<u8, 4>::new();
        before.extend(small.into_iter().chain(large));
        before.extend((kind << 14 | self.msn.map_or(0, |(msn, _)| msn & 0x3fff)).to_be_bytes());
        let options: &[u8] = if self.msn.is_some() { &[] } else { &[option::ACKNUMBER_NOT_VALID << 4] };
        let mut data = ArrayVec::<u8, 6>::new();
        data.extend(before.iter().copied());
        data.push(crc8(&before, options));
        data.extend(options.iter().copied());
        let mut out = ArrayVec::new();
        wrap_feedback(&data, &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProfileSet;

    #[test]
    fn elements_are_read_back() {
        for max_cid in [15, 300] {
            let params = ChannelParams { max_cid, profiles: ProfileSet::ALL };
            for cid in [0, 1, 15, 127, 128, 300].into_iter().filter(|cid| *cid <= max_cid) {
                for (kind, msn) in
                    [(Kind::Ack, Some((77, 14))), (Kind::Nack, Some((0, 14))), (Kind::StaticNack, None)]
                {
                    let feedback = Feedback { cid, kind, msn, is_rejected: false };
                    let element = feedback.write(&params).unwrap();
                    let (head, data) = element.split_first().unwrap();
                    assert_eq!(usize::from(head & 7), data.len());
                    assert_eq!(Feedback::parse(&params, data), Ok(feedback));
                    for n in 0..data.len() {
                        let mut damaged: std::vec::Vec<u8> = data.to_vec();
                        damaged[n] ^= 0x10;
                        assert_ne!(Feedback::parse(&params, &damaged), Ok(feedback), "byte {n} of {data:?}");
                    }
                }
            }
        }
    }
}
