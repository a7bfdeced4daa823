//! The two file formats: pcap, one file header and then records (draft-ietf-opsawg-pcap), and pcapng,
//! blocks in sections with packets of several interfaces (draft-ietf-opsawg-pcapng).

use super::input::{Input, Order};
use super::{CaptureError, Meta};
use casemate_wire::invariant::OrBroken;
use std::io::Read;

const HEADER: &str = "file header";
const RECORD: &str = "packet";

pub(super) struct Pcap {
    order: Order,
    nanos_per_unit: u64,
    link: u16,
}

impl Pcap {
    /// Reads the rest of the file header; `None` if `magic` is not that of pcap.
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
        // The upper half gives the length of a frame check sequence.
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
            [0, 4, 8, 12].map(|at| self.order.u32_at(&header, at).or_broken("a field of the header", 0));
        input.take(packet, captured as usize, start, RECORD)?;
        let nanos = u64::from(seconds)
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(fraction).saturating_mul(self.nanos_per_unit));
        Ok(Some(Meta { nanos, link: self.link, wire_len: wire_len as usize }))
    }
}

/// Block type of a section header; the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_TS_RESOLUTION: u16 = 9;
const OPTION_TS_OFFSET: u16 = 14;

const BLOCK: &str = "block";
const MAX_INTERFACES: usize = 4_096;

pub(super) struct PcapNg {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u16,
    snap_len: u32,
    resolution: Resolution,
    offset_seconds: i64,
}

/// Unit of timestamps.
#[derive(Debug, Clone, Copy)]
enum Resolution {
    /// Units of 10^-n seconds.
    Decimal(u8),
    /// Units of 2^-n seconds.
    Binary(u8),
}

impl PcapNg {
    /// Reads the first section header, after its type.
    pub(super) fn open<R: Read>(input: &mut Input<R>) -> Result<Self, CaptureError> {
        let mut reader = Self { order: Order::Little, interfaces: Vec::new() };
        reader.take_section(input, 0)?;
        Ok(reader)
    }

    /// Reads blocks up to the next packet and stores its bytes in `packet`.
    pub(super) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        packet: &mut Vec<u8>,
    ) -> Result<Option<Meta>, CaptureError> {
        loop {
            let start = input.offset();
            let mut kind = [0; 4];
            if !input.fill_or_end(&mut kind, BLOCK)? {
                return Ok(None);
            }
            if kind == SECTION_HEADER {
                self.take_section(input, start)?;
                continue;
            }
            let mut len = [0; 4];
            input.fill(&mut len, start, BLOCK)?;
            self.take_body(input, packet, self.order.u32(len), 8, start)?;
            let malformed = |rule| CaptureError::Malformed { offset: start, rule };
            match self.order.u32(kind) {
                INTERFACE => self.add_interface(packet).map_err(malformed)?,
                kind @ (ENHANCED_PACKET | OBSOLETE_PACKET) => {
                    return self.enhanced(kind, packet).map(Some).map_err(malformed);
                }
                SIMPLE_PACKET => return self.simple(packet).map(Some).map_err(malformed),
                _ => {}
            }
        }
    }

    /// Reads a section header after its type. The field for the byte order follows the length.
    fn take_section<R: Read>(&mut self, input: &mut Input<R>, start: u64) -> Result<(), CaptureError> {
        let mut head = [0; 8];
        input.fill(&mut head, start, BLOCK)?;
        let [a, b, c, d, magic @ ..] = head;
        self.order = match magic {
            [0x1A, 0x2B, 0x3C, 0x4D] => Order::Big,
            [0x4D, 0x3C, 0x2B, 0x1A] => Order::Little,
            _ => {
                let rule = "a section's byte-order magic 1a 2b 3c 4d was expected";
                return Err(CaptureError::Malformed { offset: start, rule });
            }
        };
        self.interfaces.clear();
        self.take_body(input, &mut Vec::new(), self.order.u32([a, b, c, d]), 12, start)
    }

    /// Reads the rest of a block of `len` bytes, of which `read` were read before, and drops the trailing
    /// length field.
    fn take_body<R: Read>(
        &self,
        input: &mut Input<R>,
        body: &mut Vec<u8>,
        len: u32,
        read: usize,
        start: u64,
    ) -> Result<(), CaptureError> {
        let malformed = |rule| CaptureError::Malformed { offset: start, rule };
        let rest = (len as usize).checked_sub(read).filter(|rest| *rest >= 4 && len.is_multiple_of(4));
        let rest =
            rest.ok_or(malformed("a block's length of at least 12 bytes and a multiple of 4 was expected"))?;
        input.take(body, rest, start, BLOCK)?;
        if body.last_chunk().map(|end| self.order.u32(*end)) != Some(len) {
            return Err(malformed(
                "the same length at the end of the block as at its beginning was expected",
            ));
        }
        body.truncate(rest.saturating_sub(4));
        Ok(())
    }

    fn add_interface(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let (Some(link), Some(snap_len)) = (self.order.u16_at(body, 0), self.order.u32_at(body, 4)) else {
            return Err("an interface block of at least 20 bytes was expected");
        };
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err("at most 4096 interfaces were expected");
        }
        let mut interface =
            Interface { link, snap_len, resolution: Resolution::Decimal(6), offset_seconds: 0 };
        let mut rest = body.get(8..).or_broken_default("the two fields were read");
        while let Some(option) = self.take_option(&mut rest)? {
            interface.apply(&option, self.order)?;
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Takes the first option off `rest`; `None` at the end of the options.
    fn take_option<'a>(&self, rest: &mut &'a [u8]) -> Result<Option<BlockOption<'a>>, &'static str> {
        let (Some(code), Some(len)) = (self.order.u16_at(rest, 0), self.order.u16_at(rest, 2)) else {
            return Ok(None);
        };
        if code == OPTION_END {
            return Ok(None);
        }
        let len = usize::from(len);
        let value = rest.get(4..).and_then(|value| value.get(..len));
        let after = rest.get(len.next_multiple_of(4).saturating_add(4)..);
        let (value, after) = value.zip(after).ok_or("options that end with their block were expected")?;
        *rest = after;
        Ok(Some(BlockOption { code, value }))
    }

    /// Reduces the body of an enhanced (or obsolete) packet block to the packet.
    fn enhanced(&self, kind: u32, body: &mut Vec<u8>) -> Result<Meta, &'static str> {
        let field =
            |at| self.order.u32_at(body, at).ok_or("a packet block of at least 32 bytes was expected");
        let (id, high, low, captured, wire_len) = (field(0)?, field(4)?, field(8)?, field(12)?, field(16)?);
        let obsolete_id = self.order.u16_at(body, 0).or_broken_default("the first field was read");
        let id = if kind == ENHANCED_PACKET { id } else { obsolete_id.into() };
        let interface = self.interface(id)?;
        let captured = captured as usize;
        body.drain(..20);
        if captured > body.len() {
            return Err("a captured length of no more than the block's was expected");
        }
        body.truncate(captured);
        let nanos = interface.nanos(u64::from(high) << 32 | u64::from(low));
        Ok(Meta { nanos, link: interface.link, wire_len: wire_len as usize })
    }

    /// Reduces the body of a simple packet block, which has no timestamp, to the packet.
    fn simple(&self, body: &mut Vec<u8>) -> Result<Meta, &'static str> {
        let wire_len =
            self.order.u32_at(body, 0).ok_or("a packet block of at least 16 bytes was expected")?;
        let interface = self.interface(0)?;
        let captured =
            if interface.snap_len == 0 { wire_len } else { wire_len.min(interface.snap_len) } as usize;
        body.drain(..4);
        if captured > body.len() {
            return Err("a packet length of no more than the block's was expected");
        }
        body.truncate(captured);
        Ok(Meta { nanos: 0, link: interface.link, wire_len: wire_len as usize })
    }

    fn interface(&self, id: u32) -> Result<Interface, &'static str> {
        let index = usize::try_from(id).unwrap_or(usize::MAX);
        self.interfaces
            .get(index)
            .copied()
            .ok_or("an interface block was expected before the packets of its interface")
    }
}

/// An option of a block, without padding.
struct BlockOption<'a> {
    code: u16,
    value: &'a [u8],
}

impl Interface {
    /// Applies the options about timestamps; a wrong one would make every time wrong.
    fn apply(&mut self, option: &BlockOption<'_>, order: Order) -> Result<(), &'static str> {
        match (option.code, option.value) {
            (OPTION_TS_RESOLUTION, [n]) if n & 0x80 == 0 => self.resolution = Resolution::Decimal(*n),
            (OPTION_TS_RESOLUTION, [n]) => self.resolution = Resolution::Binary(n & 0x7F),
            (OPTION_TS_RESOLUTION, _) => return Err("an if_tsresol option of 1 byte was expected"),
            (OPTION_TS_OFFSET, value) => {
                let bytes = <[u8; 8]>::try_from(value);
                let bytes = bytes.map_err(|_| "an if_tsoffset option of 8 bytes was expected")?;
                self.offset_seconds = match order {
                    Order::Little => i64::from_le_bytes(bytes),
                    Order::Big => i64::from_be_bytes(bytes),
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// Converts a timestamp to nanoseconds since 1970, saturating at the limits.
    fn nanos(&self, units: u64) -> u64 {
        let units = u128::from(units);
        let nanos = match self.resolution {
            Resolution::Decimal(n) if n <= 9 => {
                units.saturating_mul(10u128.pow(u32::from(9u8.saturating_sub(n))))
            }
            Resolution::Decimal(n) => {
                10u128.checked_pow(u32::from(n.saturating_sub(9))).map_or(0, |unit| units / unit)
            }
            // At most 2^64 times 10^9, which fits into 128 bits.
            Resolution::Binary(n) => {
                units.saturating_mul(1_000_000_000).checked_shr(u32::from(n)).unwrap_or(0)
            }
        };
        let offset = i128::from(self.offset_seconds).saturating_mul(1_000_000_000);
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
    }
}
