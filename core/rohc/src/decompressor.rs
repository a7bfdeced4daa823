//! Decompressor: restores the headers of the packets of one channel.
//!
//! The channel is an SA, so each packet has a sequence number, and packets arrive complete or not at all. The
//! decompressor uses both. It decompresses a packet with the state after the newest packet *before* it, so
//! that late packets are safe, and it counts the packets that are missing. The compressor of this crate makes
//! headers that decompress correctly as long as no more than [`MAX_MISSING`] headers of their flow before
//! them are missing; after more, only an IR header helps. So the CRCs, some of only 3 bits, never decide
//! alone whether a packet is right.
//!
//! [`MAX_MISSING`]: crate::MAX_MISSING

mod context;
mod received;

use crate::channel::{ChannelParams, Framed, unframe};
use crate::co::{CO_COMMON, CO_REPAIR, CoHeader, Format, read_co};
use crate::crc::{crc8, crc8_of};
use crate::cursor::{Bits, HeaderBytes, Reader};
use crate::feedback::{Feedback, Kind, MAX_FEEDBACK, MAX_FEEDBACK_ELEMENTS};
use crate::state::{Control, CsrcTable, State};
use crate::{Fault, Profile, chain};
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use context::{Context, Flow};
use received::{ReceiveOrder, ReceivedPackets};

/// First byte of an IR header; the last bit belongs to the profile.
const IR: u8 = 0b1111_1101;
const IR_UNCOMPRESSED: u8 = 0b1111_1100;

/// Decompressor of one channel.
#[derive(Debug)]
pub struct Decompressor {
    params: ChannelParams,
    /// By CID. A context is allocated when its first IR header arrives.
    contexts: Vec<Option<Box<Context>>>,
    received: ReceivedPackets,
    /// Headers of the last packet.
    headers: HeaderBytes,
    /// The newest feedback about each context.
    feedback: ArrayVec<Feedback, MAX_FEEDBACK_ELEMENTS>,
}

/// A packet that was decompressed: `headers`, then the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored<'d, 'p> {
    /// The headers. Of a packet that was sent without compression, at most its first byte.
    pub headers: &'d [u8],
    /// The rest of the packet.
    pub payload: &'p [u8],
    /// Context and profile.
    pub cid: u16,
    /// Profile of the context.
    pub profile: Profile,
}

impl Decompressor {
    /// Makes the decompressor of a channel.
    pub fn new(params: ChannelParams) -> Self {
        let contexts =
            core::iter::repeat_with(|| None).take(usize::from(params.max_cid).saturating_add(1)).collect();
        Self {
            params,
            contexts,
            received: ReceivedPackets::new(),
            headers: HeaderBytes::new(),
            feedback: ArrayVec::new(),
        }
    }

    /// Decompresses the packet with this sequence number of the SA. Returns `None` if it contains only
    /// feedback. `on_feedback` gets the data of feedback elements, for the compressor of the opposite
    /// direction.
    pub fn decompress<'d, 'p>(
        &'d mut self,
        packet: &'p [u8],
        sequence: u64,
        on_feedback: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Restored<'d, 'p>>, Fault> {
        let order = self.received.note(sequence);
        let Some(framed) = unframe(&self.params, packet, on_feedback)? else { return Ok(None) };
        let cid = framed.cid;
        let done = match framed.first {
            IR | IR_UNCOMPRESSED => self.on_ir(framed, sequence),
            _ => self.on_compressed(framed, sequence),
        };
        // The changes of the context in a late packet, or in one that is not decompressed, are not applied.
        if done.is_err() || order == ReceiveOrder::Late {
            self.context_mut(cid).into_iter().for_each(Context::note_unapplied);
        }
        match done {
            Ok((profile, payload)) => Ok(Some(Restored { headers: &self.headers, payload, cid, profile })),
            Err(fault) => {
                self.request_repair(cid, fault);
                Err(fault)
            }
        }
    }

    /// Notes the arrival of a packet of the SA that was not compressed. It counts as missing otherwise.
    pub fn note_uncompressed(&mut self, sequence: u64) {
        self.received.note(sequence);
    }

    /// Number of contexts in use.
    pub fn contexts(&self) -> usize {
        self.contexts.iter().flatten().count()
    }

    /// Asks the compressor for a new IR header of a context, because another check has shown that the packet
    /// which it restored last is wrong.
    pub fn request_refresh(&mut self, cid: u16) {
        self.request_repair(cid, Fault::NoContext);
    }

    /// Takes a feedback element for the compressor of the peer. There may be one for each context of the
    /// packets since the last calls, but no more than [`MAX_FEEDBACK_ELEMENTS`].
    pub fn take_feedback(&mut self) -> Option<ArrayVec<u8, MAX_FEEDBACK>> {
        self.feedback.pop()?.write(&self.params).ok()
    }

    fn on_ir<'p>(&mut self, framed: Framed<'p>, sequence: u64) -> Result<(Profile, &'p [u8]), Fault> {
        let Framed { header, first, cid, rest: mut reader } = framed;
        let profile =
            Profile::from_octet(reader.u8()?).filter(|profile| self.params.profiles.contains(*profile));
        let profile = profile.ok_or(Fault::Profile)?;
        let before_crc = consumed(header, reader.0);
        let crc = reader.u8()?;
        if profile == Profile::Uncompressed {
            if first != IR_UNCOMPRESSED {
                return Err(Fault::Reserved);
            }
            if crc != crc8_of(before_crc) {
                return Err(Fault::Crc);
            }
            self.headers.clear();
            self.update(cid, sequence, None);
            return Ok((profile, reader.0));
        }
        if first != IR {
            return Err(Fault::Reserved);
        }
        let chains = reader.0;
        let headers = chain::read_static(profile, &mut reader)?;
        let csrc_table = self.context(cid).map_or(CsrcTable::default(), Context::csrc_table);
        let mut state = State { headers, control: Control::INITIAL, csrc_table };
        chain::read_dynamic(&mut reader, &mut state)?;
        if crc != crc8(before_crc, consumed(chains, reader.0)) {
            return Err(Fault::Crc);
        }
        state.headers.write(reader.0.len(), &mut self.headers)?;
        self.acknowledge(cid, state.control.msn);
        self.update(cid, sequence, Some(state));
        Ok((profile, reader.0))
    }

    fn on_compressed<'p>(&mut self, framed: Framed<'p>, sequence: u64) -> Result<(Profile, &'p [u8]), Fault> {
        let Framed { first, cid, rest: mut reader, .. } = framed;
        let context = self.contexts.get_mut(usize::from(cid)).and_then(Option::as_deref_mut);
        let flow = match context.ok_or(Fault::NoContext)?.flow_mut() {
            Flow::Compressed(flow) => flow,
            Flow::Uncompressed => {
                // A whole packet, with the CID behind its first byte if CIDs are large.
                if first >> 5 == 0b111 {
                    return Err(Fault::PacketType);
                }
                self.headers.clear();
                self.headers.try_push(first).map_err(|_| Fault::TooLong)?;
                return Ok((Profile::Uncompressed, reader.0));
            }
        };
        let (reference, state) = flow.reference(sequence, &self.received)?;
        if !matches!(first, CO_COMMON | CO_REPAIR) {
            read_co(first, &mut reader, &reference.fields, state)
                .and_then(|co| reference.verify(co, reader.0, state, &mut self.headers))
                .map_err(|fault| reference.fault(fault))?;
            let (profile, fields) = (state.headers.profile(), state.sequence_fields());
            flow.note(fields, sequence, self.received.lost());
            return Ok((profile, reader.0));
        }
        let mut state = state.clone();
        let read = match first {
            CO_REPAIR => read_repair(&mut reader, &mut state),
            _ => read_co(first, &mut reader, &reference.fields, &mut state),
        };
        read.and_then(|co| reference.verify(co, reader.0, &state, &mut self.headers))
            .map_err(|fault| reference.fault(fault))?;
        let (profile, msn) = (state.headers.profile(), state.control.msn);
        if flow.update(state, sequence, self.received.lost()) {
            self.acknowledge(cid, msn);
        }
        Ok((profile, reader.0))
    }

    fn context(&self, cid: u16) -> Option<&Context> {
        self.contexts.get(usize::from(cid))?.as_deref()
    }

    fn context_mut(&mut self, cid: u16) -> Option<&mut Context> {
        self.contexts.get_mut(usize::from(cid))?.as_deref_mut()
    }

    /// Sets the state of a context from an IR header; `None` for profile 0x0000.
    fn update(&mut self, cid: u16, sequence: u64, state: Option<State>) {
        let lost = self.received.lost();
        let Some(slot) = self.contexts.get_mut(usize::from(cid)) else { return };
        match slot {
            Some(context) => context.refresh(state, sequence, lost),
            None => *slot = Some(Box::new(Context::new(state, sequence, lost))),
        }
    }

    fn acknowledge(&mut self, cid: u16, msn: u16) {
        let msn = Some((msn & 0x3fff, 14));
        self.set_feedback(Feedback { cid, kind: Kind::Ack, msn, is_rejected: false });
    }

    /// Asks the compressor to repair a context after a packet that could not be decompressed.
    fn request_repair(&mut self, cid: u16, fault: Fault) {
        let msn = self.context(cid).and_then(Context::msn).map(|msn| (msn & 0x3fff, 14));
        let (kind, msn) = match (fault, msn) {
            (Fault::Late, _) => return,
            (Fault::Crc | Fault::ControlCrc, Some(msn)) => (Kind::Nack, Some(msn)),
            _ => (Kind::StaticNack, None),
        };
        self.set_feedback(Feedback { cid, kind, msn, is_rejected: false });
    }

    /// Replaces the feedback about a context. That of more contexts than there is room for is not sent: the
    /// next packet causes it again.
    fn set_feedback(&mut self, feedback: Feedback) {
        self.feedback.retain(|other| other.cid != feedback.cid);
        let _ = self.feedback.try_push(feedback);
    }
}

/// Reads a co_repair header behind its first byte and CID.
fn read_repair(reader: &mut Reader<'_>, state: &mut State) -> Result<CoHeader, Fault> {
    let mut bits = Bits::of_u16(reader.u16()?);
    bits.reserved(1)?;
    let crc = bits.take_u8(7);
    bits.reserved(5)?;
    chain::read_dynamic(reader, state)?;
    if !state.has_control_crc(bits.take_u8(3)) {
        return Err(Fault::ControlCrc);
    }
    Ok(CoHeader { format: Format::Repair, crc })
}

/// The part of `bytes` in front of its end `rest`.
fn consumed<'b>(bytes: &'b [u8], rest: &[u8]) -> &'b [u8] {
    bytes.get(..bytes.len().saturating_sub(rest.len())).unwrap_or(bytes)
}
