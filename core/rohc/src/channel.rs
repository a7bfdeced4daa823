//! Parameters of a channel, and the framing of its packets: padding, feedback and CIDs (RFC 5795 section
//! 5.2).

use crate::cursor::Reader;
use crate::{Fault, ProfileSet};
use arrayvec::ArrayVec;

/// Largest MAX_CID: that of large CIDs (RFC 5795 section 5.1.2).
pub const MAX_CID: u16 = 16_383;

const PADDING: u8 = 0b1110_0000;
const ADD_CID: u8 = 0b1110_0000;
/// The first five bits of feedback.
const FEEDBACK: u8 = 0b1111_0000;

/// Parameters that both sides of a channel share. Segmentation is never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelParams {
    /// Largest context identifier. Above 15, CIDs are large (RFC 5857 section 2.1.2).
    pub max_cid: u16,
    /// The profiles that the decompressor supports.
    pub profiles: ProfileSet,
}

impl ChannelParams {
    /// Whether CIDs are in one or two bytes behind the first byte of a header, rather than in a byte in front
    /// of it.
    pub const fn has_large_cids(&self) -> bool {
        self.max_cid > 15
    }
}

/// What a packet contains in front of its header.
pub(crate) struct Framed<'p> {
    /// Behind padding and feedback, from an Add-CID byte on. The CRC of IR headers begins here.
    pub(crate) header: &'p [u8],
    /// First byte of the header: its type.
    pub(crate) first: u8,
    pub(crate) cid: u16,
    /// Behind the first byte and the CID.
    pub(crate) rest: Reader<'p>,
}

/// Takes padding and feedback off the front of a packet. Returns `None` if nothing is behind them.
pub(crate) fn unframe<'p>(
    params: &ChannelParams,
    packet: &'p [u8],
    on_feedback: &mut dyn FnMut(&[u8]),
) -> Result<Option<Framed<'p>>, Fault> {
    let mut reader = Reader(packet);
    loop {
        match reader.0.first() {
            None => return Ok(None),
            Some(&PADDING) => reader.0 = reader.0.get(1..).unwrap_or_default(),
            Some(byte) if byte & 0b1111_1000 == FEEDBACK => on_feedback(read_feedback(&mut reader)?),
            Some(_) => break,
        }
    }
    let header = reader.0;
    let mut first = reader.u8()?;
    let cid = match params.has_large_cids() {
        true => read_large_cid(&mut reader)?,
        false if first & 0b1111_0000 == ADD_CID => {
            let cid = first & 0b0000_1111;
            first = reader.u8()?;
            cid.into()
        }
        false => 0,
    };
    if cid > params.max_cid {
        return Err(Fault::Cid);
    }
    Ok(Some(Framed { header, first, cid, rest: reader }))
}

/// Whether a packet contains nothing but padding and feedback elements (RFC 5795 section 5.2.4).
pub fn is_only_feedback(packet: &[u8]) -> bool {
    let mut reader = Reader(packet);
    loop {
        match reader.0.first() {
            None => return true,
            Some(&PADDING) => reader.0 = reader.0.get(1..).unwrap_or_default(),
            Some(byte) if byte & 0b1111_1000 == FEEDBACK && read_feedback(&mut reader).is_ok() => {}
            Some(_) => return false,
        }
    }
}

/// Reads a feedback element and returns its data.
fn read_feedback<'p>(reader: &mut Reader<'p>) -> Result<&'p [u8], Fault> {
    let len = match reader.u8()? & 0b111 {
        0 => reader.u8()?,
        len => len,
    };
    reader.bytes(len.into())
}

/// Reads a large CID: 7 bits in one byte, or 14 bits in two.
pub(crate) fn read_large_cid(reader: &mut Reader<'_>) -> Result<u16, Fault> {
    match reader.u8()? {
        short @ 0..0b1000_0000 => Ok(short.into()),
        high @ 0b1000_0000..0b1100_0000 => Ok(u16::from(high & 0x3f) << 8 | u16::from(reader.u8()?)),
        _ => Err(Fault::Cid),
    }
}

/// Bytes that carry a CID: in front of the header, and behind its first byte. One of the two is empty.
pub(crate) fn cid_bytes(params: &ChannelParams, cid: u16) -> (ArrayVec<u8, 1>, ArrayVec<u8, 2>) {
    let (mut small, mut large) = (ArrayVec::new(), ArrayVec::new());
    let [high, low] = cid.to_be_bytes();
    match (params.has_large_cids(), cid) {
        (true, 0..=127) => large.push(low),
        (true, _) => large.extend([0b1000_0000 | high, low]),
        (false, 0) => {}
        (false, _) => small.push(ADD_CID | low),
    }
    (small, large)
}

/// Wraps feedback data of at most 255 bytes.
pub(crate) fn wrap_feedback<const N: usize>(data: &[u8], out: &mut ArrayVec<u8, N>) -> Result<(), Fault> {
    let len = u8::try_from(data.len()).map_err(|_| Fault::TooLong)?;
    let header: &[u8] = match len {
        1..=7 => &[FEEDBACK | len],
        _ => &[FEEDBACK, len],
    };
    out.try_extend_from_slice(header)
        .and_then(|()| out.try_extend_from_slice(data))
        .map_err(|_| Fault::TooLong)
}
