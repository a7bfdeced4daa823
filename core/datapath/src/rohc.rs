//! Header compression of ESP in tunnel mode with ROHC (RFC 5856, RFC 5858).
//!
//! `outbound` compresses a packet after its sequence number is reserved, `decapsulation` restores it after
//! the commit to the replay window, so both see the packets of an SA in the order of their sequence numbers,
//! as far as the network allows.
//!
//! An SA refers to its compressor or decompressor through a trait. The linker drops both from an image that
//! never calls [`Datapath::enable_rohc`].

mod inbound;
mod outbound;

pub(crate) use inbound::InboundRohc;
pub(crate) use outbound::{CompressHeaders, OutboundRohc};

use crate::classify::SaChain;
use crate::datapath::Datapath;
use crate::framing::Content;
use crate::sealing::OutboundPacket;
use crate::tunnel::InnerHeader;
use crate::{AddSaError, DropReason, Outbound, SaId};
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use casemate_crypto::{JobStatus, KeyError, MacJob, MacKey, Providers, Rng, Tag};
use casemate_rohc::{Fault, MAX_FEEDBACK, MAX_FEEDBACK_ELEMENTS, Profile};
use casemate_sa::{Instant, Mode, Protocol, RohcIntegrity, RohcParams, SaParams};
use casemate_wire::ip::IpVersion;
use casemate_wire::packet::{NoRoom, Packet};
use core::slice;

/// What the header compression of one SA has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RohcStatus {
    /// Contexts in use.
    pub contexts: usize,
    /// Packets with a compressed header.
    pub packets: u64,
    /// Bytes of the headers of these packets before compression.
    pub header_bytes: u64,
    /// Bytes of their compressed headers, with feedback and ROHC ICV.
    pub compressed_bytes: u64,
    /// Inbound only: packets that were not restored.
    pub failures: u64,
}

/// The compressed header of a packet that was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredHeader {
    /// Context of the packet.
    pub cid: u16,
    /// Profile of the context.
    pub profile: Profile,
    /// Length in bytes, with the CID, and with feedback in front.
    pub len: usize,
}

/// Makes the compressors and decompressors of SAs.
pub(crate) trait HeaderCompression: Sync {
    fn outbound(
        &self,
        params: &SaParams,
        providers: &Providers<'_>,
    ) -> Result<Option<Box<dyn CompressHeaders>>, KeyError>;

    fn inbound(
        &self,
        params: &SaParams,
        providers: &Providers<'_>,
    ) -> Result<Option<Box<InboundRohc>>, KeyError>;
}

/// The implementation with `casemate_rohc`.
struct Rohc;

impl HeaderCompression for Rohc {
    fn outbound(
        &self,
        params: &SaParams,
        providers: &Providers<'_>,
    ) -> Result<Option<Box<dyn CompressHeaders>>, KeyError> {
        let Some(rohc) = &params.rohc else { return Ok(None) };
        // An SPI is random, and the first sequence number of a context should be.
        let first = (params.spi.get() & 0xffff) as u16;
        Ok(Some(Box::new(OutboundRohc::new(rohc, first, providers)?)))
    }

    fn inbound(
        &self,
        params: &SaParams,
        providers: &Providers<'_>,
    ) -> Result<Option<Box<InboundRohc>>, KeyError> {
        let Some(rohc) = &params.rohc else { return Ok(None) };
        Ok(Some(Box::new(InboundRohc::new(rohc, providers)?)))
    }
}

impl Datapath {
    /// Allows SAs with header compression ([`SaParams::rohc`]). Without a call, such an SA is not added.
    pub fn enable_rohc(&mut self) {
        self.rohc = Some(&Rohc);
        // Packets must not allocate.
        self.feedback_due.reserve(self.limits.sas);
    }

    /// Whether SAs with header compression are allowed.
    pub const fn has_rohc(&self) -> bool {
        self.rohc.is_some()
    }

    /// Couples the two SAs of a pair with header compression: feedback about packets of `inbound` leaves with
    /// `outbound`, and feedback that arrives on `inbound` is for `outbound` (FEEDBACK_FOR, RFC 5857 section
    /// 3.2). Returns `false` if one of the two does not exist or has no header compression.
    pub fn couple_rohc(&mut self, inbound: SaId, outbound: SaId) -> bool {
        if self.sad.outbound_by_id(outbound).is_none_or(|sa| sa.rohc.is_none()) {
            return false;
        }
        let rohc = self.sad.inbound_by_id(inbound).and_then(|sa| sa.rohc.as_mut());
        rohc.map(|rohc| rohc.couple(outbound)).is_some()
    }

    /// Takes what the decompressor of an inbound SA did with the last compressed packet: the header that it
    /// restored, or why it did not. `None` if no compressed packet has arrived since the last call, or if it
    /// contained only feedback.
    pub fn take_restored_header(&mut self, inbound: SaId) -> Option<Result<RestoredHeader, Fault>> {
        self.sad.inbound_by_id(inbound)?.rohc.as_mut()?.take_restored_header()
    }

    /// Whether [`next_rohc_feedback`](Self::next_rohc_feedback) has a packet to send.
    pub fn has_rohc_feedback(&self) -> bool {
        !self.feedback_due.is_empty()
    }

    /// Turns `packet` into the next packet with nothing but feedback of header compression (RFC 5795 section
    /// 5.2.4). Returns `None` if there is none. What `packet` contains is overwritten. Send the result like
    /// any other packet, and call this again.
    ///
    /// Adapters call this after each batch of inbound packets. Otherwise feedback leaves with the compressed
    /// packets of its SA only, and a peer whose packets cannot be restored may wait for it forever.
    pub fn next_rohc_feedback(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Option<Outbound> {
        while let Some(id) = self.feedback_due.pop_front() {
            let rohc = self.sad.outbound_by_id(id).and_then(|sa| sa.rohc.as_mut());
            if let Some(taken) = rohc.and_then(|rohc| rohc.take_feedback(packet)) {
                return Some(self.send_feedback(id, taken, now, rng, packet));
            }
        }
        None
    }

    fn send_feedback(
        &mut self,
        id: SaId,
        taken: Result<(), NoRoom>,
        now: Instant,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Outbound {
        let chain = Some(SaChain { inner: id.slot(), outer: None });
        let mut record = OutboundPacket { chain, header: FEEDBACK_HEADER, ..OutboundPacket::NEW };
        if taken.is_err() {
            record.set_drop(DropReason::NoRoom);
        }
        let mut verdict = record.verdict();
        let (packets, records) = (slice::from_mut(packet), slice::from_mut(&mut record));
        if let Some(sealer) = self.frame_run(now, rng, id.slot(), packets, records, Content::Feedback) {
            sealer.seal(packets, records);
        }
        self.write_verdicts(now, packets, records, slice::from_mut(&mut verdict));
        verdict
    }

    /// Passes on the feedback that packets of an inbound SA contained or caused.
    #[cold]
    pub(crate) fn pass_on_feedback(&mut self, now: Instant, feedback: &CoupledFeedback) {
        let Some(sa) = self.sad.outbound_by_id(feedback.outbound) else { return };
        let Some(rohc) = &mut sa.rohc else { return };
        feedback.received.iter().for_each(|data| rohc.receive_feedback(data));
        if !feedback.to_send.is_empty() && rohc.queue_feedback(&feedback.to_send, now) {
            // A caller that never asks for such packets leaves the names of SAs that no longer exist.
            if self.feedback_due.len() >= self.limits.sas {
                self.feedback_due.pop_front();
            }
            self.feedback_due.push_back(feedback.outbound);
        }
    }

    pub(crate) fn check_rohc(&self, params: &SaParams) -> Result<(), AddSaError> {
        if params.rohc.is_none() {
            return Ok(());
        }
        if params.mode != Mode::Tunnel || params.transform.protocol() != Protocol::Esp {
            return Err(AddSaError::CompressedTransport);
        }
        // The receiver of a compressed packet derives its length from that of the payload.
        if params.tfc_pad_to > 0 {
            return Err(AddSaError::CompressedPadding);
        }
        if self.has_rohc() { Ok(()) } else { Err(AddSaError::NoRohc) }
    }
}

/// What the outer header of a packet with nothing but feedback depends on.
const FEEDBACK_HEADER: InnerHeader =
    InnerHeader { version: IpVersion::V4, tos: 0, df: true, is_compressed: true };

/// Largest data of a feedback element that is read: with every option of RFC 5225.
const MAX_FEEDBACK_DATA: usize = 16;

/// Elements that are read from the packets of one batch.
const MAX_ELEMENTS: usize = 4;

/// Feedback elements of the peer, without their headers.
pub(crate) type ReceivedFeedback = ArrayVec<ArrayVec<u8, MAX_FEEDBACK_DATA>, MAX_ELEMENTS>;

/// Feedback elements of this host, with their headers.
pub(crate) type FeedbackElements = ArrayVec<ArrayVec<u8, MAX_FEEDBACK>, MAX_FEEDBACK_ELEMENTS>;

/// Feedback of an inbound SA for the outbound SA of its pair.
pub(crate) struct CoupledFeedback {
    outbound: SaId,
    /// For the compressor of this host.
    received: ReceivedFeedback,
    /// For the compressor of the peer.
    to_send: FeedbackElements,
}

/// Key of the ROHC ICV.
struct RohcMac {
    mac: Box<dyn MacKey>,
    tag_len: usize,
    icv_len: usize,
}

impl RohcMac {
    fn new(params: &RohcParams, providers: &Providers<'_>) -> Result<Option<Self>, KeyError> {
        let Some(RohcIntegrity { algorithm, key, icv_len }) = &params.integrity else { return Ok(None) };
        let (tag_len, icv_len) = (algorithm.tag_len(), usize::from(*icv_len));
        if algorithm.takes_nonce() || icv_len == 0 || icv_len > tag_len {
            return Err(KeyError::Unsupported);
        }
        Ok(Some(Self { mac: providers.mac(*algorithm, key.expose())?, tag_len, icv_len }))
    }

    /// The ICV of an uncompressed packet.
    fn icv(&self, packet: &[u8]) -> Result<Tag, DropReason> {
        let tag = Tag::zeroed(self.tag_len);
        let mut jobs = [MacJob { nonce: [0; 12], data: packet, tag, status: JobStatus::Pending }];
        self.mac.sign(&mut jobs);
        let [job] = jobs;
        if job.status != JobStatus::Done {
            return Err(DropReason::CryptoFailed);
        }
        let icv = job.tag.as_slice().get(..self.icv_len).ok_or(DropReason::CryptoFailed)?;
        Ok(Tag::from_slice(icv))
    }
}

/// Replaces the first `old` bytes of a packet with other ones.
fn replace_front(packet: &mut Packet<'_>, old: usize, new: &[&[u8]]) -> Result<(), NoRoom> {
    let len = new.iter().map(|part| part.len()).fold(0, usize::saturating_add);
    packet.shrink_front(old)?;
    if let Some(missing) = len.checked_sub(packet.head_room()).filter(|missing| *missing > 0) {
        move_back(packet, missing)?;
    }
    packet.grow_front(len)?;
    let mut rest = packet.data_mut();
    for part in new {
        let (to, behind) = rest.split_at_mut_checked(part.len()).ok_or(NoRoom)?;
        to.copy_from_slice(part);
        rest = behind;
    }
    Ok(())
}

/// Moves a packet towards the end of its buffer.
#[cold]
fn move_back(packet: &mut Packet<'_>, by: usize) -> Result<(), NoRoom> {
    let len = packet.len();
    packet.grow_back(by)?;
    packet.data_mut().copy_within(..len, by);
    packet.shrink_front(by)
}
