//! The decompressor of an inbound SA.

use super::{
    CoupledFeedback, FeedbackElements, ReceivedFeedback, RestoredHeader, RohcMac, RohcStatus, replace_front,
};
use crate::{DropReason, SaId};
use alloc::boxed::Box;
use casemate_crypto::{KeyError, Providers, Tag};
use casemate_rohc::{Decompressor, Fault, Restored, is_only_feedback};
use casemate_sa::RohcParams;
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::{NoRoom, Packet};

/// Header compression of an inbound SA.
trait RestoreHeaders: Send {
    /// Notes a packet without a compressed header.
    fn note_uncompressed(&mut self, sequence: u64);

    /// Restores the packet with this sequence number. Returns `false` if it contained only feedback.
    fn restore(&mut self, packet: &mut Packet<'_>, sequence: u64) -> Result<bool, DropReason>;

    /// Takes the feedback elements that packets contained, and those that they caused.
    fn take_feedback(&mut self) -> (ReceivedFeedback, FeedbackElements);

    /// Takes what was done with the last packet that had a header.
    fn take_restored_header(&mut self) -> Option<Result<RestoredHeader, Fault>>;

    fn status(&self) -> RohcStatus;
}

/// The decompressor of an SA, and the outbound SA of its pair.
pub(crate) struct InboundRohc {
    channel: Box<dyn RestoreHeaders>,
    outbound: Option<SaId>,
    /// Whether packets may have left feedback.
    may_have_feedback: bool,
}

impl InboundRohc {
    pub(super) fn new(params: &RohcParams, providers: &Providers<'_>) -> Result<Self, KeyError> {
        let channel = Channel {
            decompressor: Decompressor::new(params.channel),
            mac: RohcMac::new(params, providers)?,
            received: ReceivedFeedback::new(),
            last: None,
            status: RohcStatus::default(),
        };
        Ok(Self { channel: Box::new(channel), outbound: None, may_have_feedback: false })
    }

    pub(super) fn couple(&mut self, outbound: SaId) {
        self.outbound = Some(outbound);
    }

    /// Restores the packet, if its header is compressed. Returns the next header of ESP for the packet as it
    /// was, or `None` if it contained only feedback.
    pub(crate) fn receive(
        &mut self,
        packet: &mut Packet<'_>,
        next_header: u8,
        sequence: u64,
    ) -> Result<Option<u8>, DropReason> {
        if next_header != proto::ROHC {
            self.channel.note_uncompressed(sequence);
            return Ok(Some(next_header));
        }
        self.may_have_feedback = true;
        if !self.channel.restore(packet, sequence)? {
            return Ok(None);
        }
        match version(packet.data()).map_err(|_| DropReason::InnerMalformed)? {
            IpVersion::V4 => Ok(Some(proto::IPIP)),
            IpVersion::V6 => Ok(Some(proto::IPV6)),
        }
    }

    /// Takes the feedback of the packets so far; `None` if there is none, or no SA to send it with.
    #[inline]
    pub(crate) fn take_feedback(&mut self) -> Option<CoupledFeedback> {
        if !core::mem::take(&mut self.may_have_feedback) {
            return None;
        }
        let (received, to_send) = self.channel.take_feedback();
        let outbound = self.outbound.filter(|_| !to_send.is_empty() || !received.is_empty())?;
        Some(CoupledFeedback { outbound, received, to_send })
    }

    pub(super) fn take_restored_header(&mut self) -> Option<Result<RestoredHeader, Fault>> {
        self.channel.take_restored_header()
    }

    pub(crate) fn status(&self) -> RohcStatus {
        self.channel.status()
    }
}

/// The implementation with `casemate_rohc`.
struct Channel {
    decompressor: Decompressor,
    mac: Option<RohcMac>,
    /// Feedback that packets contained.
    received: ReceivedFeedback,
    /// The last packet that had a header.
    last: Option<Result<RestoredHeader, Fault>>,
    status: RohcStatus,
}

impl Channel {
    /// Removes the ROHC ICV from the end of the packet.
    fn take_icv(&self, packet: &mut Packet<'_>) -> Result<Option<Tag>, DropReason> {
        let Some(mac) = &self.mac else { return Ok(None) };
        let len = packet.len().checked_sub(mac.icv_len).ok_or(DropReason::RohcFailed)?;
        let icv = Tag::from_slice(packet.data().get(len..).unwrap_or_default());
        packet.set_len(len).map_err(|NoRoom| DropReason::RohcFailed)?;
        Ok(Some(icv))
    }

    fn restore_packet(&mut self, packet: &mut Packet<'_>, sequence: u64) -> Result<bool, DropReason> {
        // A packet with nothing but feedback has no ICV, because it contains no packet.
        if is_only_feedback(packet.data()) {
            self.decompress(packet, sequence)?;
            return Ok(false);
        }
        let icv = self.take_icv(packet)?;
        let cid = self.decompress(packet, sequence)?.ok_or(DropReason::RohcFailed)?;
        match (&self.mac, icv) {
            (Some(mac), Some(icv)) if !mac.icv(packet.data())?.matches(&icv) => {
                self.decompressor.request_refresh(cid);
                Err(DropReason::RohcIcvMismatch)
            }
            _ => Ok(true),
        }
    }

    /// Replaces the compressed header with the original one. Returns its context, or `None` if there is no
    /// header.
    fn decompress(&mut self, packet: &mut Packet<'_>, sequence: u64) -> Result<Option<u16>, DropReason> {
        let Self { decompressor, received, status, last, .. } = self;
        *last = None;
        let mut on_feedback = |data: &[u8]| {
            if let Ok(data) = data.try_into() {
                // Elements that do not fit are lost, like a lost packet.
                let _ = received.try_push(data);
            }
        };
        let len = packet.len();
        let restored = match decompressor.decompress(packet.data(), sequence, &mut on_feedback) {
            Ok(Some(restored)) => restored,
            Ok(None) => return Ok(None),
            Err(fault) => {
                *last = Some(Err(fault));
                return Err(DropReason::RohcFailed);
            }
        };
        let compressed_len = len.saturating_sub(restored.payload.len());
        let Restored { headers, cid, profile, .. } = restored;
        *last = Some(Ok(RestoredHeader { cid, profile, len: compressed_len }));
        replace_front(packet, compressed_len, &[headers]).map_err(|NoRoom| DropReason::NoRoom)?;
        let icv_len = self.mac.as_ref().map_or(0, |mac| mac.icv_len);
        let received_len = compressed_len.saturating_add(icv_len);
        status.packets = status.packets.saturating_add(1);
        status.header_bytes = status.header_bytes.saturating_add(headers.len() as u64);
        status.compressed_bytes = status.compressed_bytes.saturating_add(received_len as u64);
        Ok(Some(cid))
    }
}

impl RestoreHeaders for Channel {
    fn note_uncompressed(&mut self, sequence: u64) {
        self.decompressor.note_uncompressed(sequence);
    }

    fn restore(&mut self, packet: &mut Packet<'_>, sequence: u64) -> Result<bool, DropReason> {
        let outcome = self.restore_packet(packet, sequence);
        if outcome.is_err() {
            self.status.failures = self.status.failures.saturating_add(1);
        }
        outcome
    }

    fn take_feedback(&mut self) -> (ReceivedFeedback, FeedbackElements) {
        let to_send = core::iter::from_fn(|| self.decompressor.take_feedback()).collect();
        (core::mem::take(&mut self.received), to_send)
    }

    fn take_restored_header(&mut self) -> Option<Result<RestoredHeader, Fault>> {
        self.last.take()
    }

    fn status(&self) -> RohcStatus {
        RohcStatus { contexts: self.decompressor.contexts(), ..self.status }
    }
}
