//! Outbound stage: packets from the TUN interface pass the data path and are sent to the network.

use super::endpoint_context::{DatapathLock, EndpointContext};
use super::ip_idents::set_ipv4_ident_if_zero;
use super::reorder::Sequence;
use super::shared::{Batch, Shared};
use super::transmitter::{Transmitter, enqueue};
use crate::BATCH;
use crate::link_sender::Outgoing;
use arrayvec::ArrayVec;
use casemate::path::OutboundPath;
use casemate_datapath::{DropReason, MAX_BATCH, Outbound, Sealed};
use casemate_sa::{Instant, SpdId};
use casemate_wire::ip::proto;
use casemate_wire::packet::Packet;
use std::iter::repeat_n;

/// First half, for any thread: reserves sequence numbers for the packets of a batch and seals the packets.
///
/// Calls `release_rx` once the numbers are reserved: then the next batch may be read. Returns the place for
/// the second half, [`OutboundStage::finish`].
pub(super) fn begin<'s>(
    shared: &'s Shared,
    batch: &mut Batch,
    release_rx: impl FnOnce(),
) -> Sequence<'s, OutboundStage, Box<Batch>> {
    let Batch { buffers, now, spd, sealing, .. } = batch;
    buffers.with_packets(|packets| {
        shared.idents.prepare(packets);
        let mut context = shared.lock_endpoint();
        let EndpointContext { endpoint, rng, .. } = &mut *context;
        for (packets, sealing) in packets.chunks_mut(MAX_BATCH).zip(&mut *sealing) {
            endpoint.datapath_mut().begin_outbound(*spd, *now, rng, packets, sealing);
        }
        let sequence = shared.outbound.sequence();
        drop(context);
        release_rx();
        packets.chunks_mut(MAX_BATCH).zip(sealing).for_each(|(packets, sealing)| sealing.seal(packets));
        sequence
    })
}

/// Second half, in the order of reading: applies the verdicts of the data path.
pub(super) struct OutboundStage {
    path: OutboundPath,
    transmitter: Transmitter,
}

impl OutboundStage {
    pub(super) const fn new(path: OutboundPath, transmitter: Transmitter) -> Self {
        Self { path, transmitter }
    }

    /// Obtains the verdicts on the packets of a batch that [`begin`] has sealed, and sends the packets.
    pub(super) fn finish(&mut self, batch: &mut Batch, shared: &Shared) {
        let Batch { buffers, now, spd, sealing, .. } = batch;
        buffers.with_packets(|packets| {
            // No more verdicts than packets: with a cold cache, writing memory costs more than computing.
            let mut verdicts = ArrayVec::<_, BATCH>::new();
            verdicts.extend(repeat_n(Outbound::Drop(DropReason::CryptoFailed), packets.len()));
            let mut context = shared.lock_endpoint();
            let datapath = context.endpoint.datapath_mut();
            let chunks = packets.chunks(MAX_BATCH).zip(verdicts.chunks_mut(MAX_BATCH));
            for ((packets, verdicts), sealing) in chunks.zip(sealing) {
                datapath.finish_outbound(*now, packets, sealing, verdicts);
            }
            drop(context);
            self.apply_verdicts(*spd, packets, &verdicts, shared, *now);
        });
    }

    /// Applies the verdicts of an SPD on a batch.
    pub(super) fn apply_verdicts(
        &mut self,
        spd: SpdId,
        packets: &mut [Packet<'_>],
        verdicts: &[Outbound],
        shared: &Shared,
        now: Instant,
    ) {
        let Self { path, transmitter } = self;
        let mut sealed = 0u64;
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            if let Outbound::Send(_) = verdict {
                sealed = sealed.saturating_add(1);
                set_outer_ident(packet, shared);
            }
        }
        shared.reports.add_sealed(sealed);
        let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            match *verdict {
                Outbound::Send(Sealed { sa, fragment_to: None, .. }) => {
                    enqueue(&mut queue, packet.data(), Some(sa));
                }
                Outbound::Bypass => enqueue(&mut queue, packet.data(), None),
                Outbound::Reassemble => {
                    transmitter.flush(&mut queue, shared, now);
                    if let Some((mut datagram, action)) =
                        path.reassemble(now, spd, packet.data(), &mut DatapathLock(shared))
                    {
                        transmitter.send_reassembled(spd, &mut datagram, action, shared, now);
                    }
                }
                other => {
                    transmitter.flush(&mut queue, shared, now);
                    transmitter.apply_verdict(spd, packet, other, shared, now);
                }
            }
        }
        transmitter.flush(&mut queue, shared, now);
    }

    /// Drops datagrams whose fragments did not all arrive in time, and reads changes of the network
    /// configuration.
    pub(super) fn expire(&mut self, now: Instant, shared: &Shared) {
        self.transmitter.read_changes();
        self.path.expire(now, &mut DatapathLock(shared));
    }
}

/// Sets the identification of the outer IPv4 header, unless it is set or covered by AH. ESP does not cover
/// it. All fragments of the packet must have the same one.
pub(super) fn set_outer_ident(packet: &mut Packet<'_>, shared: &Shared) {
    if packet.data().get(9) != Some(&proto::AH) {
        set_ipv4_ident_if_zero(packet, shared.idents.next_v4());
    }
}
