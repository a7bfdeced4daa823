//! Compressor: replaces the headers of the packets of one channel.
//!
//! Each header decompresses correctly with the state after any of the last [`WINDOW`] headers of its context.
//! A decompressor that misses fewer packets therefore never restores a wrong packet. Fields that follow the
//! sequence number get as many bits as that takes; other changes are repeated in [`WINDOW`] headers, or until
//! the decompressor acknowledges one of them.

mod flow;
mod observe;
mod select;

use crate::Profile;
use crate::channel::{ChannelParams, cid_bytes};
use crate::co::{CO_REPAIR, write_co};
use crate::crc::{crc7, crc8};
use crate::cursor::{HeaderBytes, Packed, Write};
use crate::feedback::Feedback;
use crate::headers::Headers;
use crate::state::State;
use crate::{Fault, MAX_MISSING, chain};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flow::Flow;
use select::Choice;

/// Headers of a context, any of which may be the last one that the decompressor knows.
pub(crate) const WINDOW: usize = MAX_MISSING as usize + 1;

/// First byte of an IR header of RFC 5225.
const IR: u8 = 0b1111_1101;

/// Packets of other flows after which a flow may lose its context to a new one. Without it, more flows than
/// contexts would send nothing but IR headers.
const MIN_IDLE: u64 = 256;

/// Compressor of one channel.
#[derive(Debug)]
pub struct Compressor {
    params: ChannelParams,
    /// By CID.
    flows: Vec<Option<Box<Flow>>>,
    /// CID of the last packet.
    last: u16,
    /// Packets so far.
    packets: u64,
    /// Start of the sequence numbers of the next context.
    next_msn: u16,
    /// Header of the last packet.
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
    /// (RFC 5225 section 6.3.1).
    pub fn new(params: ChannelParams, max_cid: u16, random: u16) -> Self {
        let contexts = usize::from(params.max_cid.min(max_cid)).saturating_add(1);
        let flows = core::iter::repeat_with(|| None).take(contexts).collect();
        Self { params, flows, last: 0, packets: 0, next_msn: random, header: HeaderBytes::new() }
    }

    /// Compresses an IP packet. Returns `None` if it should be sent as it is: its headers cannot be
    /// compressed, all contexts are in use, or it would grow by more than `max_growth` bytes, as it can with
    /// an IR header.
    ///
    /// Packets must be sent in the order of these calls.
    pub fn compress<'c, 'p>(&'c mut self, packet: &'p [u8], max_growth: usize) -> Option<Compressed<'c, 'p>> {
        self.packets = self.packets.saturating_add(1);
        let (headers, payload) = self.parse(packet)?;
        let cid = self.find(&headers).or_else(|| self.begin(headers.clone()))?;
        self.last = cid;
        let profile = headers.profile();
        let Self { params, flows, packets, header, .. } = self;
        let flow = flows.get_mut(usize::from(cid))?.as_deref_mut()?;
        if flow.is_rejected() {
            return None;
        }
        let choice = flow.next(headers, *packets);
        header.clear();
        if write(choice, flow.state(), cid, params, payload.len(), header).is_err() {
            // The packet itself fits, so its IR header does.
            header.clear();
            write(Choice::Ir, flow.state(), cid, params, payload.len(), header).ok()?;
        }
        if header.len().saturating_add(payload.len()) > packet.len().saturating_add(max_growth) {
            // The context keeps the update until a header with it was sent.
            return None;
        }
        flow.sent();
        Some(Compressed { header, payload, cid, profile })
    }

    /// Number of contexts in use.
    pub fn contexts(&self) -> usize {
        self.flows.iter().flatten().count()
    }

    /// Handles the data of a feedback element of the decompressor. An invalid one is an error and changes
    /// nothing.
    pub fn on_feedback(&mut self, data: &[u8]) -> Result<(), Fault> {
        let feedback = Feedback::parse(&self.params, data)?;
        if let Some(Some(flow)) = self.flows.get_mut(usize::from(feedback.cid)) {
            flow.on_feedback(&feedback);
        }
        Ok(())
    }

    /// Parses the headers. UDP counts as RTP once its flow has looked like RTP for some packets; its context
    /// then becomes that of the RTP flow.
    fn parse<'p>(&mut self, packet: &'p [u8]) -> Option<(Headers, &'p [u8])> {
        let with_rtp = self.params.profiles.contains(Profile::Rtp);
        let (headers, payload) =
            Headers::parse(packet, |udp, rtp| with_rtp && observe::may_be_rtp(udp, rtp))?;
        if headers.profile() == Profile::Rtp && self.find(&headers).is_none() {
            let (plain, whole_payload) = Headers::parse(packet, |_, _| false)?;
            let known = self.find(&plain);
            let flow = known.and_then(|cid| self.flows.get_mut(usize::from(cid))?.as_deref_mut());
            let Some(flow) = flow.and_then(|flow| flow.is_rtp(&headers).then_some(flow)) else {
                return self.supports(&plain).then_some((plain, whole_payload));
            };
            *flow = Flow::new(headers.clone(), 0);
        }
        self.supports(&headers).then_some((headers, payload))
    }

    fn supports(&self, headers: &Headers) -> bool {
        self.params.profiles.contains(headers.profile())
    }

    /// The context of a flow.
    fn find(&self, headers: &Headers) -> Option<u16> {
        let position =
            self.flows.iter().position(|flow| flow.as_ref().is_some_and(|flow| flow.matches(headers)));
        position.and_then(|cid| u16::try_from(cid).ok())
    }

    /// Starts a context for a new flow: a free one, or that of the flow which is idle for the longest time.
    fn begin(&mut self, headers: Headers) -> Option<u16> {
        let last_used = |flow: &Option<Box<Flow>>| flow.as_ref().map(|flow| flow.last_used());
        let (cid, slot) = self.flows.iter_mut().enumerate().min_by_key(|(_, flow)| last_used(flow))?;
        if last_used(slot).is_some_and(|used| self.packets.saturating_sub(used) < MIN_IDLE) {
            return None;
        }
        let flow = Flow::new(headers, self.next_msn);
        self.next_msn = self.next_msn.wrapping_mul(25_173).wrapping_add(13_849);
        match slot {
            Some(former) => **former = flow,
            None => *slot = Some(Box::new(flow)),
        }
        u16::try_from(cid).ok()
    }
}

/// Writes a header for the state.
fn write(
    choice: Choice,
    state: &State,
    cid: u16,
    params: &ChannelParams,
    payload_len: usize,
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
        Choice::Repair => {
            let mut headers = HeaderBytes::new();
            state.headers.write(payload_len, &mut headers)?;
            out.put(&[CO_REPAIR])?;
            out.put(&large)?;
            let crcs = Packed::default().with(0, 1).with(crc7(&headers).into(), 7);
            crcs.with(0, 5).with(state.control_crc(true).into(), 3).write(out)?;
            chain::write_dynamic(state, out)?;
        }
        Choice::Co(format) => {
            let mut headers = HeaderBytes::new();
            state.headers.write(payload_len, &mut headers)?;
            write_co(format, format.crc(&headers), &large, state, out)?;
            let has_outer_fields = format.has_outer_fields();
            chain::write_irregular(state, has_outer_fields, out)?;
        }
    }
    Ok(())
}
