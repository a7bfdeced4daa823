//! The compressor of an outbound SA.

use super::{FeedbackElements, RohcMac, RohcStatus, replace_front};
use crate::DropReason;
use crate::encapsulation::Encapsulation;
use crate::sealing::OutboundPacket;
use arrayvec::ArrayVec;
use casemate_crypto::{KeyError, Providers};
use casemate_rohc::{Compressor, MAX_FEEDBACK, MAX_FEEDBACK_ELEMENTS};
use casemate_sa::{Instant, RohcParams};
use casemate_wire::packet::{NoRoom, Packet};
use core::time::Duration;

/// Bytes of feedback that wait for a packet; elements beyond them are lost.
const MAX_WAITING: usize = MAX_FEEDBACK_ELEMENTS * MAX_FEEDBACK;

/// Least time between two packets with only feedback.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(10);

/// Header compression of an outbound SA.
pub(crate) trait CompressHeaders: Send {
    /// Compresses a packet if possible. A packet that cannot be compressed, or that would be longer than
    /// `max_len` bytes without its ICV, stays as it is. Returns whether it was compressed.
    fn compress(&mut self, packet: &mut Packet<'_>, max_len: usize, now: Instant)
    -> Result<bool, DropReason>;

    /// Handles the data of a feedback element from the peer. Invalid data changes nothing.
    fn receive_feedback(&mut self, data: &[u8]);

    /// Queues feedback elements for the peer. They leave with the next compressed packet, or in a packet of
    /// their own. Returns whether such a packet is due now, and was not due before.
    fn queue_feedback(&mut self, elements: &FeedbackElements, now: Instant) -> bool;

    /// Takes the feedback that waits, as the payload of a packet of its own. Returns `None` if there is none.
    fn take_feedback(&mut self, packet: &mut Packet<'_>) -> Option<Result<(), NoRoom>>;

    fn status(&self) -> RohcStatus;
}

/// The implementation with `casemate_rohc`.
pub(crate) struct OutboundRohc {
    compressor: Compressor,
    mac: Option<RohcMac>,
    /// Feedback elements for the peer.
    waiting: ArrayVec<u8, MAX_WAITING>,
    /// Whether a packet with only feedback is due.
    is_due: bool,
    /// No packet with only feedback is due before this time.
    next_due: Instant,
    status: RohcStatus,
}

impl OutboundRohc {
    pub(super) fn new(
        params: &RohcParams,
        first_number: u16,
        providers: &Providers<'_>,
    ) -> Result<Self, KeyError> {
        let mac = RohcMac::new(params, providers)?;
        let icv_len = mac.as_ref().map_or(0, |mac| mac.icv_len);
        let compressor = Compressor::new(params.channel, params.max_cid, first_number);
        Ok(Self {
            compressor: compressor.with_trailer(icv_len),
            mac,
            waiting: ArrayVec::new(),
            is_due: false,
            next_due: Instant::ZERO,
            status: RohcStatus::default(),
        })
    }
}

impl CompressHeaders for OutboundRohc {
    fn compress(
        &mut self,
        packet: &mut Packet<'_>,
        max_len: usize,
        now: Instant,
    ) -> Result<bool, DropReason> {
        let Self { compressor, mac, waiting, status, .. } = self;
        let len = packet.len();
        let now = Duration::from_micros(now.as_micros());
        let Some(compressed) = compressor.compress(packet.data(), max_len, now) else { return Ok(false) };
        let header_len = len.saturating_sub(compressed.payload.len());
        let header = compressed.header;
        let icv = mac.as_ref().map(|mac| mac.icv(packet.data())).transpose()?;
        let compressed_len = header.len().saturating_add(compressed.payload.len());
        let has_room = waiting.len().saturating_add(compressed_len) <= max_len;
        let feedback: &[u8] = if has_room { waiting } else { &[] };
        let new_len = feedback.len().saturating_add(header.len());
        replace_front(packet, header_len, &[feedback, header]).map_err(no_room)?;
        if has_room {
            waiting.clear();
        }
        let icv = icv.as_ref().map_or(&[][..], |icv| icv.as_slice());
        let len = packet.len();
        packet.grow_back(icv.len()).map_err(no_room)?;
        for (to, from) in packet.data_mut().iter_mut().skip(len).zip(icv) {
            *to = *from;
        }
        status.packets = status.packets.saturating_add(1);
        status.header_bytes = status.header_bytes.saturating_add(header_len as u64);
        let sent = new_len.saturating_add(icv.len());
        status.compressed_bytes = status.compressed_bytes.saturating_add(sent as u64);
        Ok(true)
    }

    fn receive_feedback(&mut self, data: &[u8]) {
        // RFC 5795 section 5.2.4.1: invalid feedback is discarded.
        let _ = self.compressor.on_feedback(data);
    }

    fn queue_feedback(&mut self, elements: &FeedbackElements, now: Instant) -> bool {
        // If there is no room, the decompressor repeats what is still necessary.
        for element in elements {
            let _ = self.waiting.try_extend_from_slice(element);
        }
        if self.is_due || now < self.next_due {
            return false;
        }
        self.is_due = true;
        self.next_due = now.after(FEEDBACK_INTERVAL);
        true
    }

    fn take_feedback(&mut self, packet: &mut Packet<'_>) -> Option<Result<(), NoRoom>> {
        self.is_due = false;
        let elements = core::mem::take(&mut self.waiting);
        if elements.is_empty() {
            return None;
        }
        let room = packet.set_len(elements.len());
        for (to, from) in packet.data_mut().iter_mut().zip(elements) {
            *to = from;
        }
        Some(room)
    }

    fn status(&self) -> RohcStatus {
        RohcStatus { contexts: self.compressor.contexts(), ..self.status }
    }
}

impl OutboundPacket {
    /// Compresses the headers of the packet, unless it would then be too long for `mtu`.
    #[inline(never)]
    pub(crate) fn compress(
        &mut self,
        rohc: &mut dyn CompressHeaders,
        packet: &mut Packet<'_>,
        encapsulation: &Encapsulation,
        mtu: usize,
        now: Instant,
    ) -> Result<(), DropReason> {
        // The size with the headers of a second SA is not known here.
        let has_outer = self.chain.is_some_and(|chain| chain.outer.is_some());
        let sealed_len = packet.len().saturating_add(encapsulation.overhead.max_growth());
        let max_growth = if has_outer { 0 } else { mtu.saturating_sub(sealed_len) };
        let max_len = packet.len().saturating_add(max_growth);
        self.header.is_compressed = rohc.compress(packet, max_len, now)?;
        Ok(())
    }
}

fn no_room(NoRoom: NoRoom) -> DropReason {
    DropReason::NoRoom
}
