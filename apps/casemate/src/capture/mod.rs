//! Capture files: pcap and pcapng of either byte order, read as a stream (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).
//!
//! Called by `casemate inspect`, which wants to say at which byte a file is broken; no crate that reads captures tells
//! that. Blocks that are not packets are passed over. Memory is bounded by the longest block, [`MAX_BLOCK`].

mod error;
mod input;
mod link;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;
mod write;

pub use error::CaptureError;
pub use link::{NotIp, ip_packet};
pub use write::Writer;

use input::Input;
use pcap::Pcap;
use pcapng::PcapNg;
use std::io::Read;

/// Longest block or packet that is read, in bytes.
pub const MAX_BLOCK: usize = 1 << 24;

/// A capture being read.
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    packet: Vec<u8>,
    count: u64,
}

/// One captured packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'r> {
    /// Its number, counted from 1 as Wireshark does.
    pub number: u64,
    /// When it was captured: nanoseconds since 1970.
    pub nanos: u64,
    /// What it begins with (tcpdump.org's LINKTYPE numbers).
    pub link: u16,
    /// Its bytes, as many as were captured.
    pub data: &'r [u8],
    /// How long it was on the wire.
    pub wire_len: usize,
}

enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// What a block or record says of its packet.
#[derive(Debug, Clone, Copy)]
struct Meta {
    nanos: u64,
    link: u16,
    wire_len: usize,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a capture, which tells its format.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(source);
        let mut magic = [0; 4];
        input.fill_magic(&mut magic)?;
        let format = match Pcap::open(magic, &mut input)? {
            Some(pcap) => Format::Pcap(pcap),
            None if magic == pcapng::SECTION_HEADER => Format::PcapNg(PcapNg::open(&mut input)?),
            None => return Err(CaptureError::Alien(magic)),
        };
        Ok(Self { input, format, packet: Vec::new(), count: 0 })
    }

    /// The next packet; `None` at the end of the file.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let meta = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input, &mut self.packet)?,
            Format::PcapNg(pcapng) => pcapng.next(&mut self.input, &mut self.packet)?,
        };
        let Some(meta) = meta else { return Ok(None) };
        self.count = self.count.saturating_add(1);
        let Meta { nanos, link, wire_len } = meta;
        Ok(Some(Frame { number: self.count, nanos, link, data: &self.packet, wire_len }))
    }
}
