//! Inbound stage: packets from packet sockets and UDP ports pass the data path and are delivered to the TUN
//! interface.

use super::endpoint_context::DatapathLock;
use super::reorder::Sequence;
use super::shared::{Batch, Shared};
use crate::BATCH;
use crate::ike::ike_datagram;
use crate::offload::PacketList;
use crate::packet_socket::PacketKind;
use arrayvec::ArrayVec;
use casemate::path::{FragmentPlan, InboundFragments, OpenedDatagram, OpenedFragments};
use casemate_datapath::{Admitted, DropReason, Inbound, MAX_BATCH, SecPath};
use casemate_sa::{Instant, SpdId};
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;
use std::slice;

/// First half, for any thread: finds the SAs of the packets of a batch and opens the packets.
///
/// Calls `release_rx` once the SAs are found: then the next batch may be read. Returns the place for the
/// second half, [`InboundStage::finish`].
pub(super) fn begin<'s>(
    shared: &'s Shared,
    batch: &mut Batch,
    release_rx: impl FnOnce(),
) -> Sequence<'s, InboundStage, Box<Batch>> {
    let Batch { buffers, now, opening, .. } = batch;
    buffers.with_packets(|packets| {
        let mut context = shared.lock_endpoint();
        for (packets, opening) in packets.chunks_mut(MAX_BATCH).zip(&mut *opening) {
            context.endpoint.datapath_mut().begin_inbound(*now, packets, opening);
        }
        let sequence = shared.inbound.sequence();
        drop(context);
        release_rx();
        packets.chunks_mut(MAX_BATCH).zip(opening).for_each(|(packets, opening)| opening.open(packets));
        sequence
    })
}

/// Second half, in the order of reading: applies the verdicts of the data path.
pub(super) struct InboundStage {
    /// Fragments of protected packets.
    fragments: InboundFragments,
    /// Fragments that came out of SAs.
    opened: OpenedFragments,
}

impl InboundStage {
    pub(super) fn new(fragments: InboundFragments, opened: OpenedFragments) -> Self {
        Self { fragments, opened }
    }

    /// Obtains the verdicts on the packets of a batch that [`begin`] has opened, and delivers the packets.
    pub(super) fn finish(&mut self, batch: &mut Batch, shared: &Shared) {
        let Batch { buffers, now, opening, .. } = batch;
        buffers.with_packets(|packets| {
            let mut verdicts = ArrayVec::<_, BATCH>::new();
            verdicts.extend(packets.iter().map(|_| Inbound::Drop(DropReason::MalformedHeader)));
            let mut context = shared.lock_endpoint();
            let datapath = context.endpoint.datapath_mut();
            let chunks = packets.chunks_mut(MAX_BATCH).zip(verdicts.chunks_mut(MAX_BATCH));
            for ((packets, verdicts), opening) in chunks.zip(opening) {
                datapath.finish_inbound(*now, packets, opening, verdicts);
            }
            let max_link_mtu = datapath.max_link_mtu();
            drop(context);
            self.apply_verdicts(packets, verdicts.drain(..), max_link_mtu, shared, *now);
        });
    }

    fn apply_verdicts(
        &mut self,
        packets: &[Packet<'_>],
        verdicts: impl Iterator<Item = Inbound>,
        max_link_mtu: usize,
        shared: &Shared,
        now: Instant,
    ) {
        let mut queue = DeliveryQueue::default();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            let packet = packet.data();
            match verdict {
                // A packet in clear, without an SA, has reached the host through the kernel.
                Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
                Inbound::Deliver(Admitted { spd, .. }) => {
                    let plan = self.opened.plan_fragments(packet, max_link_mtu, &mut DatapathLock(shared));
                    let Some(plan) = plan else {
                        queue.push(spd, packet, shared, now);
                        continue;
                    };
                    queue.flush(shared, now);
                    deliver_fragmented(spd, packet, plan, shared, now);
                }
                Inbound::Reassemble => {
                    queue.flush(shared, now);
                    self.reassemble(packet, shared, now);
                }
                Inbound::ReassembleOpened(path) => {
                    queue.flush(shared, now);
                    reassemble_opened(&mut self.opened, path, packet, shared, now);
                }
                Inbound::Ike(offset) => pass_to_ike(packet, offset.into(), shared, now),
                // The data path has counted the packet.
                Inbound::Drop(_) | Inbound::Consumed(_) => {}
            }
        }
        queue.flush(shared, now);
    }

    /// Adds a fragment from the network to its packet. If the packet is complete, opens and delivers it.
    fn reassemble(&mut self, fragment: &[u8], shared: &Shared, now: Instant) {
        let Self { fragments, opened } = self;
        let pushed = fragments.push(now, fragment, &mut DatapathLock(shared));
        let Some(mut packet) = pushed.whole() else { return };
        // A fragment may hide its upper-layer protocol, so the whole packet is classified again.
        if PacketKind::of(packet.data(), &shared.protected_addrs()) != PacketKind::Protected {
            return;
        }
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let (packets, verdicts) = (slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
        let mut context = shared.lock_endpoint();
        let datapath = context.endpoint.datapath_mut();
        datapath.inbound(now, packets, verdicts);
        let max_link_mtu = datapath.max_link_mtu();
        drop(context);
        match verdict {
            Inbound::ReassembleOpened(path) => reassemble_opened(opened, path, packet.data(), shared, now),
            verdict => {
                let plan = opened.plan_fragments(packet.data(), max_link_mtu, &mut DatapathLock(shared));
                deliver_reassembled(&packet, verdict, plan, shared, now);
            }
        }
    }

    /// Drops packets whose fragments did not all arrive in time.
    pub(super) fn expire(&mut self, now: Instant, shared: &Shared) {
        self.fragments.expire(now, &mut DatapathLock(shared));
        self.opened.expire(now, &mut DatapathLock(shared));
    }
}

/// Packets to deliver by the interface of one SPD.
#[derive(Default)]
struct DeliveryQueue<'p> {
    spd: SpdId,
    packets: PacketList<'p>,
}

impl<'p> DeliveryQueue<'p> {
    /// Adds a packet. Packets for another interface are delivered before it.
    #[inline]
    fn push(&mut self, spd: SpdId, packet: &'p [u8], shared: &Shared, now: Instant) {
        if spd != self.spd {
            self.flush(shared, now);
            self.spd = spd;
        }
        self.packets.push(packet);
    }

    /// Delivers the queued packets, before any packet that arrived after them.
    #[inline]
    fn flush(&mut self, shared: &Shared, now: Instant) {
        if !self.packets.is_empty() {
            shared.deliver_batch(self.spd, &self.packets, now);
            self.packets.clear();
        }
    }
}

/// Passes the IKE message at `offset` of the packet on to the event loop.
fn pass_to_ike(packet: &[u8], offset: usize, shared: &Shared, now: Instant) {
    let reason = match ike_datagram(packet, offset) {
        None => DropReason::MalformedHeader,
        Some(datagram) => {
            if shared.reports.push_ike(datagram) {
                return;
            }
            DropReason::IkeQueueFull
        }
    };
    shared.record_drop(now, reason, packet);
}

/// Adds a fragment that came out of SAs to its datagram. If the datagram is complete, delivers it.
fn reassemble_opened(
    opened: &mut OpenedFragments,
    path: SecPath,
    fragment: &[u8],
    shared: &Shared,
    now: Instant,
) {
    let pushed = opened.push(now, path, fragment, &mut DatapathLock(shared));
    let Some(OpenedDatagram { packet, spd, plan }) = pushed.whole() else { return };
    match plan {
        Some(plan) => deliver_fragmented(spd, packet.data(), plan, shared, now),
        None => shared.deliver(spd, packet.data(), now),
    }
}

/// Delivers a packet in fragments.
#[cold]
fn deliver_fragmented(spd: SpdId, packet: &[u8], plan: FragmentPlan, shared: &Shared, now: Instant) {
    // A packet that cannot be fragmented is a fragment already. If it is too long for its link, the kernel
    // sends its source an ICMP error.
    let Ok(mut fragments) = plan.fragments(packet) else { return shared.deliver(spd, packet, now) };
    let mut fragment = vec![0; plan.mtu];
    while let Some(len) = fragments.next(&mut fragment) {
        let fragment = fragment.get(..len).or_broken_default("a fragment is inside its buffer");
        shared.deliver(spd, fragment, now);
    }
}

fn deliver_reassembled(
    packet: &Packet<'_>,
    verdict: Inbound,
    plan: Option<FragmentPlan>,
    shared: &Shared,
    now: Instant,
) {
    match verdict {
        // A packet in clear has reached the host through the kernel.
        Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
        Inbound::Deliver(Admitted { spd, .. }) => match plan {
            Some(plan) => deliver_fragmented(spd, packet.data(), plan, shared, now),
            None => shared.deliver(spd, packet.data(), now),
        },
        // IKE comes only from UDP ports, whose datagrams the kernel has reassembled.
        Inbound::Ike(_) => shared.record_drop(now, DropReason::NoSa, packet.data()),
        // The data path has counted the packet, or there is nothing to deliver. A whole packet is never
        // reassembled again.
        Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble | Inbound::ReassembleOpened(_) => {}
    }
}
