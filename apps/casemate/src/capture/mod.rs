//! Capture files: pcap and pcapng of either byte order, read as a stream (draft-ietf-opsawg-pcap,
//! draft-ietf-opsawg-pcapng).
//!
//! `casemate inspect` reports the byte offset of an error, which no existing crate provides. Blocks other
//! than packets are skipped. Memory is bounded by the longest block, [`MAX_BLOCK`].

mod format;
mod input;
mod link;
#[cfg(test)]
mod tests;
mod writer;

use format::{Pcap, PcapNg};
use input::Input;
pub use link::{NotIp, ip_packet};
use std::fmt;
use std::io::{self, Read};
pub use writer::CaptureWriter;

/// Maximum length of a block or packet, in bytes.
pub const MAX_BLOCK: usize = 1 << 24;

/// Reads the packets of a capture.
pub struct CaptureReader<R> {
    input: Input<R>,
    format: Format,
    packet: Vec<u8>,
    count: u64,
}

/// One captured packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'r> {
    /// Frame number from 1, as in Wireshark.
    pub number: u64,
    /// Time of capture, in nanoseconds since 1970.
    pub nanos: u64,
    /// Link type (LINKTYPE numbers of tcpdump.org).
    pub link: u16,
    /// The captured bytes.
    pub data: &'r [u8],
    /// Length on the wire, in bytes.
    pub wire_len: usize,
}

enum Format {
    Pcap(Pcap),
    PcapNg(PcapNg),
}

/// Metadata of a packet from its block or record.
#[derive(Debug, Clone, Copy)]
struct Meta {
    nanos: u64,
    link: u16,
    wire_len: usize,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the start of a capture and detects its format.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(source);
        let mut magic = [0; 4];
        input.fill_magic(&mut magic)?;
        let format = match Pcap::open(magic, &mut input)? {
            Some(pcap) => Format::Pcap(pcap),
            None if magic == format::SECTION_HEADER => Format::PcapNg(PcapNg::open(&mut input)?),
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

/// Why a capture cannot be read, or not any further.
#[derive(Debug)]
pub enum CaptureError {
    /// Reading the file failed.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// The file is not a capture; these are its first bytes.
    Alien([u8; 4]),
    /// The file ends inside a structure.
    Truncated {
        /// Offset of its first byte.
        offset: u64,
        /// Name of the structure.
        what: &'static str,
    },
    /// A structure violates the format.
    Malformed {
        /// Offset of its first byte.
        offset: u64,
        /// The violated rule.
        rule: &'static str,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("the file is empty: a pcap or pcapng capture was expected"),
            Self::Alien([a, b, c, d]) => write!(
                f,
                "the file begins with {a:02x} {b:02x} {c:02x} {d:02x}: a pcap or pcapng capture was \
                 expected, which begins with d4 c3 b2 a1, a1 b2 c3 d4, 4d 3c b2 a1, a1 b2 3c 4d or 0a 0d \
                 0d 0a"
            ),
            Self::Truncated { offset, what } => {
                write!(f, "the capture is truncated: it ends inside the {what} that begins at byte {offset}")
            }
            Self::Malformed { offset, rule } => {
                write!(f, "the capture is malformed at byte {offset}: {rule}")
            }
        }
    }
}

impl std::error::Error for CaptureError {}

impl From<io::Error> for CaptureError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
