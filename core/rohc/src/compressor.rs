//! Compressor: replaces the headers of the packets of one channel.
//!
//! Each header decompresses correctly with the state after any of the last [`WINDOW`] headers of its context.
//! A decompressor that misses fewer headers therefore never restores a wrong packet; how it counts them is in
//! [`missing`](crate::missing). Fields that follow the
//! sequence number get as many bits as that takes; other changes are repeated in [`WINDOW`] headers, or until
//! the decompressor acknowledges one of them.

mod flow;
mod former;
mod need;
mod observe;
mod select;
mod table;

use crate::Profile;
use crate::channel::{ChannelParams, cid_bytes};
use crate::co::{CO_REPAIR, Format, write_co};
use crate::crc::{crc7, crc8};
use crate::cursor::{HeaderBytes, Packed, Write};
use crate::feedback::{Feedback, Kind};
use crate::headers::{Headers, Transport};
use crate::missing::MAX_MISSING;
use crate::recent::Recent;
use crate::state::{SequenceFields, State};
use crate::{Fault, chain};
use core::time::Duration;
use need::Spacing;
use select::Choice;
use table::FlowTable;

/// Headers of a context, any of which may be the last one that the decompressor knows.
pub(crate) const WINDOW: usize = MAX_MISSING as usize + 1;

/// What compressed headers are relative to.
type Window = Recent<SequenceFields, WINDOW>;

/// Least bytes of a compressed header.
const MIN_HEADER: usize = 1;

/// First byte of an IR header of RFC 5225.
const IR: u8 = 0b1111_1101;

/// Compressor of one channel.
#[derive(Debug)]
pub struct Compressor {
    params: ChannelParams,
    flows: FlowTable,
    /// Packets so far.
    packets: u64,
    spacing: Spacing,
    /// Bytes that come behind each compressed packet.
    trailer_len: usize,
    /// Start of the sequence numbers of the next context.
    next_msn: u16,
    /// Headers of the last packet.
    headers: Headers,
    /// Compressed header of the last packet.
    header: HeaderBytes,
}

/// A packet that was compressed: `header`, then the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed<'c, 'p> {
    /// The compressed header.
    pub header: &'c [u8],
    /// The rest of the packet.
    pub payload: &'p [u8],
    /// Context of the packet.
    pub cid: u16,
    /// Profile of the context.
    pub profile: Profile,
}

impl Compressor {
    /// Makes the compressor of a channel with the parameters of the decompressor. It uses the CIDs up to
    /// `max_cid`, if the decompressor has them all. `random` is where the sequence numbers of contexts start
    /// (RFC 5225 section 6.3.1), and part of the hashes of flows.
    pub fn new(params: ChannelParams, max_cid: u16, random: u16) -> Self {
        Self {
            params,
            flows: FlowTable::new(params.max_cid.min(max_cid), random),
            packets: 0,
            spacing: Spacing::new(),
            trailer_len: 0,
            next_msn: random,
            headers: Headers::new(),
            header: HeaderBytes::new(),
        }
    }

    /// States that this number of bytes comes behind each compressed packet, but not behind others. Flows
    /// whose headers are no longer than that are not compressed.
    #[must_use]
    pub fn with_trailer(self, trailer_len: usize) -> Self {
        Self { trailer_len, ..self }
    }

    /// Compresses an IP packet. Returns `None` if it should be sent as it is: its headers cannot be
    /// compressed, all contexts are in use, or it would be longer than `max_len` bytes, as it can be with an
    /// IR header. `now` is the time since any moment.
    ///
    /// Packets must be sent in the order of these calls, those that are not compressed among them.
    pub fn compress<'c, 'p>(
        &'c mut self,
        packet: &'p [u8],
        max_len: usize,
        now: Duration,
    ) -> Option<Compressed<'c, 'p>> {
        self.packets = self.packets.saturating_add(1);
        let (known, payload) = self.read(packet)?;
        // The parser accepts only headers that the decompressor restores exactly, so the CRC covers them.
        let original = packet.get(..packet.len().saturating_sub(payload.len()))?;
        if original.len() <= self.trailer_len.saturating_add(MIN_HEADER) {
            return None;
        }
        let cid = known.or_else(|| self.begin())?;
        let Self { params, flows, packets, spacing, headers, header, .. } = self;
        let profile = headers.profile();
        if flows.get_mut(cid)?.is_rejected() {
            // The context is not in use, so that another flow gets it.
            return None;
        }
        let flow = flows.touch(cid, *packets)?;
        let need = spacing.need(flow.distance(*packets), *packets);
        let mut choice = flow.next(headers, need, now);
        header.clear();
        if write(choice, flow.state(), cid, params, original, header).is_err() {
            // The packet itself fits, so its IR header does.
            header.clear();
            choice = Choice::Ir;
            write(choice, flow.state(), cid, params, original, header).ok()?;
        }
        if header.len().saturating_add(payload.len()) > max_len {
            // The context keeps the update until a header with it was sent.
            return None;
        }
        flow.sent(choice, *packets, now);
        Some(Compressed { header, payload, cid, profile })
    }

    /// Number of contexts in use.
    pub fn contexts(&self) -> usize {
        self.flows.len()
    }

    /// Handles the data of a feedback element of the decompressor. An invalid one is an error and changes
    /// nothing.
    pub fn on_feedback(&mut self, data: &[u8]) -> Result<(), Fault> {
        let feedback = Feedback::parse(&self.params, data)?;
        if let Some(flow) = self.flows.get_mut(feedback.cid) {
            flow.on_feedback(&feedback);
            if feedback.kind != Kind::Ack {
                self.spacing.on_loss(flow.last_distance(), self.packets);
            }
        }
        Ok(())
    }

    /// Reads the headers of a packet. Returns their context, if there is one, and the payload. UDP counts as
    /// RTP once its flow has looked like RTP for some packets; its context then becomes that of the RTP flow.
    fn read<'p>(&mut self, packet: &'p [u8]) -> Option<(Option<u16>, &'p [u8])> {
        let Self { params, flows, headers, .. } = self;
        let payload = headers.read(packet)?;
        if params.profiles.contains(Profile::Rtp)
            && observe::may_be_rtp(&headers.transport, payload)
            && let Some(rtp_payload) = headers.read_rtp(payload)
            && let Some(cid) = flows.find(headers).or_else(|| as_new_rtp(flows, headers))
        {
            return Some((Some(cid), rtp_payload));
        }
        params.profiles.contains(headers.profile()).then(|| (flows.find(headers), payload))
    }

    /// Starts a context for a new flow: a free one, or one that is idle.
    fn begin(&mut self) -> Option<u16> {
        let cid = self.flows.insert(&self.headers, self.next_msn, self.packets)?;
        self.next_msn = self.next_msn.wrapping_mul(25_173).wrapping_add(13_849);
        Some(cid)
    }
}

/// Returns the context of the UDP flow of these RTP headers, if the flow counts as RTP with this packet, and
/// makes it that of the RTP flow. Otherwise, the headers become those of UDP again.
fn as_new_rtp(flows: &mut FlowTable, headers: &mut Headers) -> Option<u16> {
    let Transport::Rtp(udp, _) = headers.transport else { return None };
    let rtp = core::mem::replace(&mut headers.transport, Transport::Udp(udp));
    let cid = flows.find(headers)?;
    let flow = flows.get_mut(cid)?;
    if !flow.is_rtp(&rtp) {
        return None;
    }
    headers.transport = rtp;
    flow.replace(headers, 0);
    Some(cid)
}

/// Writes a header for the state, and for the headers that it stands for.
fn write(
    choice: Choice,
    state: &State,
    cid: u16,
    params: &ChannelParams,
    original: &[u8],
    out: &mut HeaderBytes,
) -> Result<(), Fault> {
    let (small, large) = cid_bytes(params, cid);
    out.put(&small)?;
    match choice {
        Choice::Ir => {
            out.put(&[IR])?;
            out.put(&large)?;
            out.put(&[state.headers.profile().octet()])?;
            let crc_at = out.len();
            out.put(&[0])?;
            chain::write_static(&state.headers, out)?;
            chain::write_dynamic(state, out)?;
            let (before, rest) = out.split_at_mut_checked(crc_at).ok_or(Fault::TooLong)?;
            let (crc, after) = rest.split_first_mut().ok_or(Fault::TooLong)?;
            *crc = crc8(before, after);
        }
        Choice::Co(Format::Repair) => {
            out.put(&[CO_REPAIR])?;
            out.put(&large)?;
            let crcs = Packed::default().with(0, 1).with(crc7(original).into(), 7);
            crcs.with(0, 5).with(state.control_crc(true).into(), 3).write(out)?;
            chain::write_dynamic(state, out)?;
        }
        Choice::Co(format) => {
            write_co(format, format.crc(original), &large, state, out)?;
            let has_outer_fields = format.has_outer_fields();
            chain::write_irregular(state, has_outer_fields, out)?;
        }
    }
    Ok(())
}
