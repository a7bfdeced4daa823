//! Choice of the smallest header that every state in the window decompresses.

use super::Window;
use crate::Profile;
use crate::co::{CommonFields, Format, TimestampField};
use crate::headers::{Ip, Transport};
use crate::lsb::{Differences, is_decodable, quarter};
use crate::missing::{MAX_MISSING, most_missing};
use crate::state::{IpIdBehavior, SequenceFields, State};

/// A header to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Ir,
    Co(Format),
}

/// How many bits of the MSN a header may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceBits {
    /// So few that the decompressor does not restore a packet of which more than [`MAX_MISSING`] before it
    /// are missing.
    Few,
    Any,
    /// Enough for [`MANY_MISSING`] missing packets.
    Many,
}

/// Missing packets that are tolerated where packets of a flow are far apart.
const MANY_MISSING: u64 = 60;

impl SequenceBits {
    const fn allow(self, bits: u32, state: &State) -> bool {
        let offset = state.control.reorder_ratio.offset(bits);
        let most = most_missing(state.headers.profile(), bits, offset);
        match self {
            Self::Few => most <= MAX_MISSING,
            Self::Any => true,
            Self::Many => most >= MANY_MISSING,
        }
    }
}

/// Formats of RTP, the smallest first.
const RTP: [Format; 7] = [
    Format::Pt0Crc3,
    Format::Pt1Timestamp,
    Format::Pt1Id,
    Format::Pt0Crc7,
    Format::Pt2Timestamp,
    Format::Pt2Id,
    Format::Pt2Both,
];
/// Formats of the other profiles, the smallest first.
const OTHERS: [Format; 4] = [Format::Pt0Crc3, Format::Pt0Crc7, Format::Pt1Id, Format::Pt2Id];

/// Bits of self-describing length, but the full length.
const LENGTHS: [u32; 4] = [7, 14, 21, 28];

/// The smallest header for a packet without changes but those that follow the sequence number.
pub(super) fn smallest(state: &State, window: &Window, bits: SequenceBits) -> Choice {
    let profile = state.headers.profile();
    let formats: &[Format] = if profile == Profile::Rtp { &RTP } else { &OTHERS };
    let fit = Fit::new(state, window);
    let suits = |format: &&Format| bits.allow(format.sequence_bits(profile), state) && fit.suits(**format);
    match formats.iter().find(suits) {
        Some(format) => Choice::Co(*format),
        None => common(CommonFields::default(), state, window, bits),
    }
}

/// co_repair, or an IR header where its whole MSN is too much.
pub(super) const fn repair(state: &State, bits: SequenceBits) -> Choice {
    let format = Format::Repair;
    if bits.allow(format.sequence_bits(state.headers.profile()), state) {
        Choice::Co(format)
    } else {
        Choice::Ir
    }
}

/// co_common with these fields, or an IR header where it cannot represent the packet.
pub(super) fn common(mut fields: CommonFields, state: &State, window: &Window, bits: SequenceBits) -> Choice {
    let fit = Fit::new(state, window);
    let has_ipv6 = state.headers.ips.iter().any(|ip| matches!(ip, Ip::V6(_)));
    let profile = state.headers.profile();
    fields.sequence_bits = match profile {
        Profile::Rtp => fit.sequence_bits(16),
        Profile::Esp => fit.sequence_bits(32),
        _ if fit.sequence(8) => 8,
        _ => return Choice::Ir,
    };
    // With RTP, the indicators of these fields are in the byte of the flags.
    fields.flags |= fields.outer || (profile == Profile::Rtp && (fields.tos || fields.ttl));
    // While the behaviour of the Identification is new, and where it is swapped, the RFC can be read in two
    // ways: what are the bits relative to?
    fields.whole_ip_id = fields.flags || !fit.has_ip_id_bits(8);
    if profile == Profile::Rtp {
        fields.timestamp = fit.timestamp_field(fields.ts_stride);
    }
    let format = Format::Common(fields);
    if has_ipv6 || !bits.allow(format.sequence_bits(profile), state) {
        return Choice::Ir;
    }
    Choice::Co(format)
}

/// Whether fields of a packet decompress with every packet of the window.
struct Fit<'s> {
    state: &'s State,
    window: &'s [SequenceFields],
    is_rtp: bool,
    is_sequential: bool,
    fields: SequenceFields,
    sequence: Differences,
    /// Of the difference between Identification and MSN; all zero if it does not follow the MSN.
    ip_id: Differences,
    infers_timestamp: bool,
}

impl<'s> Fit<'s> {
    fn new(state: &'s State, window: &'s Window) -> Self {
        let window = window.in_any_order();
        let (fields, profile) = (state.sequence_fields(), state.headers.profile());
        let (behavior, stride) = (state.innermost_ip_id(), state.control.ts_stride);
        let is_sequential = behavior.is_sequential();
        let sequence = match profile {
            Profile::Esp => Differences::of32(fields.sequence, window.iter().map(|sent| sent.sequence)),
            _ => Differences::of16(fields.msn, window.iter().map(|sent| sent.msn)),
        };
        let offset = fields.ip_id_offset(behavior);
        let ip_id = match is_sequential {
            true => Differences::of16(offset, window.iter().map(|sent| sent.ip_id_offset(behavior))),
            false => Differences::NONE,
        };
        let is_rtp = profile == Profile::Rtp;
        let is_inferred = |sent: &SequenceFields| sent.timestamp_at(fields.msn, stride) == fields.timestamp;
        let infers_timestamp = !is_rtp || window.iter().fold(true, |all, sent| all & is_inferred(sent));
        Self { state, window, is_rtp, is_sequential, fields, sequence, ip_id, infers_timestamp }
    }

    /// Whether a short format can represent the packet.
    fn suits(&self, format: Format) -> bool {
        let ids = |bits| self.has_ip_id_bits(bits);
        let sequence = self.sequence(format.sequence_bits(self.state.headers.profile()));
        let infers_ip_id = self.ip_id.are_zero();
        let follows = self.infers_timestamp && !self.has_marker();
        match format {
            Format::Pt0Crc3 | Format::Pt0Crc7 => sequence && infers_ip_id && follows,
            Format::Pt1Id => sequence && ids(4) && follows,
            Format::Pt2Id if self.is_rtp => sequence && ids(5) && follows,
            Format::Pt2Id => sequence && ids(6),
            Format::Pt1Timestamp => sequence && infers_ip_id && self.scaled_timestamp(5),
            Format::Pt2Timestamp => {
                let bits = if self.is_sequential { 5 } else { 6 };
                sequence && infers_ip_id && self.scaled_timestamp(bits)
            }
            Format::Pt2Both => sequence && ids(5) && self.scaled_timestamp(7),
            Format::Common(_) | Format::Repair => true,
        }
    }

    fn sequence(&self, bits: u32) -> bool {
        self.sequence.fit(bits, self.state.control.reorder_ratio.offset(bits))
    }

    /// Bits of self-describing length for the sequence number; `full` if fewer are not enough.
    fn sequence_bits(&self, full: u32) -> u32 {
        LENGTHS.into_iter().find(|bits| *bits < full && self.sequence(*bits)).unwrap_or(full)
    }

    /// Whether bits of the difference between Identification and MSN decode.
    fn has_ip_id_bits(&self, bits: u32) -> bool {
        self.state.innermost_ip_id() == IpIdBehavior::Sequential && self.ip_id.fit(bits, quarter(bits))
    }

    fn has_marker(&self) -> bool {
        matches!(&self.state.headers.transport, Transport::Rtp(_, rtp) if rtp.marker)
    }

    /// Whether the timestamp has the same residue as those of the window, and bits of its scaled value
    /// decode.
    fn scaled_timestamp(&self, bits: u32) -> bool {
        let (timestamp, stride) = (self.fields.timestamp, self.state.control.ts_stride);
        let Some(scaled) = timestamp.checked_div(stride) else { return false };
        let residue = timestamp.wrapping_sub(scaled.wrapping_mul(stride));
        self.window.iter().all(|sent| {
            let former = sent.timestamp.checked_div(stride).unwrap_or(0);
            sent.timestamp.wrapping_sub(former.wrapping_mul(stride)) == residue
                && is_decodable(scaled, former, bits, quarter(bits))
        })
    }

    fn timestamp_field(&self, has_stride: bool) -> TimestampField {
        let scaled = LENGTHS.into_iter().find(|bits| !has_stride && self.scaled_timestamp(*bits));
        let timestamp = self.fields.timestamp;
        let differences = Differences::of32(timestamp, self.window.iter().map(|sent| sent.timestamp));
        match scaled {
            Some(bits) => TimestampField::Scaled(bits),
            None => {
                let fits = |bits: &u32| differences.fit(*bits, quarter(*bits));
                TimestampField::Unscaled(LENGTHS.into_iter().find(fits).unwrap_or(32))
            }
        }
    }
}
