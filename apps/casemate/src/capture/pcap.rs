//! The older format: one file header, then records (draft-ietf-opsawg-pcap).

use super::input::{Input, Order};
use super::{CaptureError, Meta};
use std::io::Read;

const HEADER: &str = "file header";
const RECORD: &str = "packet";

pub(super) struct Pcap {
    order: Order,
    nanos_per_unit: u64,
    link: u16,
}

impl Pcap {
    /// Reads the rest of the file header, if `magic` begins one.
    pub(super) fn open<R: Read>(magic: [u8; 4], input: &mut Input<R>) -> Result<Option<Self>, CaptureError> {
        let (order, nanos_per_unit) = match magic {
            [0xA1, 0xB2, 0xC3, 0xD4] => (Order::Big, 1_000),
            [0xD4, 0xC3, 0xB2, 0xA1] => (Order::Little, 1_000),
            [0xA1, 0xB2, 0x3C, 0x4D] => (Order::Big, 1),
            [0x4D, 0x3C, 0xB2, 0xA1] => (Order::Little, 1),
            _ => return Ok(None),
        };
        let mut header = [0; 20];
        input.fill(&mut header, 0, HEADER)?;
        let [.., a, b, c, d] = header;
        // The upper half says how long a frame check sequence is.
        let link = (order.u32([a, b, c, d]) & 0xFFFF) as u16;
        Ok(Some(Self { order, nanos_per_unit, link }))
    }

    /// Reads the next packet into `packet`.
    pub(super) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        packet: &mut Vec<u8>,
    ) -> Result<Option<Meta>, CaptureError> {
        let start = input.offset();
        let mut header = [0; 16];
        if !input.fill_or_end(&mut header, RECORD)? {
            return Ok(None);
        }
        let [seconds, fraction, captured, wire_len] =
            [0, 4, 8, 12].map(|at| self.order.u32_at(&header, at).unwrap_or(0));
        input.take(packet, captured as usize, start, RECORD)?;
        let nanos = u64::from(seconds)
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(fraction).saturating_mul(self.nanos_per_unit));
        Ok(Some(Meta { nanos, link: self.link, wire_len: wire_len as usize }))
    }
}
