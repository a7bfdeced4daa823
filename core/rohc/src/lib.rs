//! Robust header compression, version 2 (RFC 5225 on the framework of RFC 5795), for the packets of an SA
//! (RFC 5856).
//!
//! A [`Compressor`] replaces the headers of a packet with a short one, a [`Decompressor`] restores them. Both
//! serve one channel: that of one SA, whose sequence numbers the decompressor uses. A context, of at most 1
//! KiB, is allocated with the first packet of a flow; nothing else allocates. `no_std`.
//!
//! Profiles: RTP, UDP, ESP and IP, each behind up to three IP headers, and 0x0000 in the decompressor.
//! Headers that cannot be represented (options, extension headers, fragments, wrong lengths or checksums) are
//! not compressed: the packet is sent as it is, with its own Next Header in ESP (RFC 5856 section 6.1.3).
//!
//! ```
//! use casemate_rohc::{ChannelParams, Compressor, Decompressor, ProfileSet};
//! use core::time::Duration;
//!
//! let params = ChannelParams { max_cid: 15, profiles: ProfileSet::ALL };
//! let (mut compressor, mut decompressor) = (Compressor::new(params, 15, 4_711), Decompressor::new(params));
//! // An IPv4 header without payload, protocol 99.
//! let packet = [69, 0, 0, 20, 0, 7, 0, 0, 64, 99, 102, 126, 10, 0, 0, 1, 10, 0, 0, 2];
//! let compressed = compressor.compress(&packet, 40, Duration::ZERO).expect("the headers can be compressed");
//! let sent = [compressed.header, compressed.payload].concat();
//!
//! let restored = decompressor.decompress(&sent, 1, &mut |_feedback| {})?.expect("the packet has a header");
//! assert_eq!([restored.headers, restored.payload].concat(), packet);
//! // Travels to the compressor on the SA of the opposite direction.
//! let feedback = decompressor.take_feedback().expect("the first packet is acknowledged");
//! compressor.on_feedback(&feedback[1..])?;
//! # Ok::<(), casemate_rohc::Fault>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chain;
mod channel;
mod co;
mod compressor;
mod crc;
mod cursor;
mod decompressor;
mod feedback;
mod headers;
mod lsb;
mod missing;
mod profile;
mod recent;
mod state;

pub use channel::{ChannelParams, MAX_CID, is_only_feedback};
pub use compressor::{Compressed, Compressor};
pub use decompressor::{Decompressor, Restored};
pub use feedback::{MAX_FEEDBACK, MAX_FEEDBACK_ELEMENTS};
pub use missing::MAX_MISSING;
pub use profile::{Profile, ProfileSet};

use core::fmt;

/// Reason why a packet is not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The packet ends inside its header.
    TooShort,
    /// The header, or the packet that it stands for, is longer than the decompressor supports.
    TooLong,
    /// A reserved field or value is used.
    Reserved,
    /// The packet type is not part of RFC 5225, or segmentation, which is not negotiated.
    PacketType,
    /// The CID is larger than MAX_CID.
    Cid,
    /// The profile is not negotiated.
    Profile,
    /// The static chain and the profile do not fit together, or the chain has headers that are not supported.
    Chain,
    /// There is no context, or too many packets were lost since its last update. Only an IR header helps.
    NoContext,
    /// The packet is older than what the context still knows.
    Late,
    /// The CRC of the header is wrong.
    Crc,
    /// The CRC of the control fields is wrong.
    ControlCrc,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "the packet ends inside its header",
            Self::TooLong => "the header is too long",
            Self::Reserved => "a reserved field is not zero",
            Self::PacketType => "the packet type is unknown",
            Self::Cid => "the CID is larger than MAX_CID",
            Self::Profile => "the profile is not negotiated",
            Self::Chain => "the header chain is not supported",
            Self::NoContext => "there is no valid context",
            Self::Late => "the packet is older than the context",
            Self::Crc => "the CRC of the header is wrong",
            Self::ControlCrc => "the CRC of the control fields is wrong",
        })
    }
}

impl core::error::Error for Fault {}
