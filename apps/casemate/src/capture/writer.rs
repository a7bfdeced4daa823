//! Writes pcapng: one section, one interface with raw IP packets, times in nanoseconds.

use std::io::{self, Write};

const LINK_RAW: u16 = 101;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_TS_RESOLUTION: u16 = 9;

/// Writes a capture in little-endian order.
pub struct CaptureWriter<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the start of a capture.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new() };
        writer.put_u32(BYTE_ORDER);
        writer.put_u16(1);
        writer.put_u16(0);
        // Section length: unknown.
        writer.put(&u64::MAX.to_le_bytes());
        writer.put_option(OPTION_APPLICATION, concat!("casemate ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.put_u32(0);
        writer.end_block(SECTION)?;
        writer.put_u16(LINK_RAW);
        writer.put_u16(0);
        // No limit on a packet's length.
        writer.put_u32(0);
        writer.put_option(OPTION_TS_RESOLUTION, &[9]);
        writer.put_u32(0);
        writer.end_block(INTERFACE)?;
        Ok(writer)
    }

    /// Writes one IP packet with its time of capture, in nanoseconds since 1970, and a comment.
    pub fn packet(&mut self, nanos: u64, packet: &[u8], comment: &str) -> io::Result<()> {
        let len = u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.put_u32(0);
        self.put_u32((nanos >> 32) as u32);
        self.put_u32((nanos & 0xFFFF_FFFF) as u32);
        self.put_u32(len);
        self.put_u32(len);
        self.put(packet);
        self.pad();
        self.put_option(OPTION_COMMENT, comment.as_bytes());
        self.put_u32(0);
        self.end_block(ENHANCED_PACKET)
    }

    /// Flushes the capture.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Pads the block to a multiple of 4 bytes.
    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Adds an option; a value that is too long for the length field is left out.
    fn put_option(&mut self, code: u16, value: &[u8]) {
        let Ok(len) = u16::try_from(value.len()) else { return };
        self.put_u16(code);
        self.put_u16(len);
        self.put(value);
        self.pad();
    }

    fn end_block(&mut self, kind: u32) -> io::Result<()> {
        let len =
            u32::try_from(self.block.len().saturating_add(12)).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&len.to_le_bytes())?;
        self.block.clear();
        Ok(())
    }
}
