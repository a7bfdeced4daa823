//! Sends packets: by GSO, to their next hop, or through the raw socket.

use super::gso::{GsoBatch, GsoSender};
use super::outbound::set_outer_ident;
use super::shared::Shared;
use crate::link_sender::{LinkSender, Outgoing, SentPackets};
use crate::netlink::Netlink;
use crate::raw_socket::{AddressedPacket, RawSender, is_full};
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate::path::{FragmentPlan, OutboundAction};
use casemate_datapath::fragment::routers_may_fragment;
use casemate_datapath::trace::Transmission;
use casemate_datapath::{DropReason, HEAD_ROOM, Outbound, SaId, Sealed};
use casemate_sa::{Instant, SpdId};
use casemate_wire::invariant::{self, OrBroken};
use casemate_wire::ip::destination;
use casemate_wire::packet::Packet;
use std::io;
use std::sync::Arc;

/// Buffer for fragments, in bytes: room for a batch of fragments on most links, and for a few where the MTU
/// is huge.
const FRAGMENT_BUFFER: usize = 256 << 10;

/// Sends packets, in fragments if the verdict says so.
pub(super) struct Transmitter {
    sender: Arc<RawSender>,
    /// `None` if it is switched off.
    links: Option<LinkSender>,
    gso: GsoSender,
    /// Empty while it is in use.
    fragment_buffer: Box<[u8]>,
    netlink: Netlink,
    mark: u32,
}

impl Transmitter {
    pub(super) fn new(
        sender: Arc<RawSender>,
        links: Option<LinkSender>,
        mark: u32,
        ports: &[UdpPort],
    ) -> Result<Self, Error> {
        let fragment_buffer = vec![0; FRAGMENT_BUFFER].into_boxed_slice();
        let (gso, netlink) = (GsoSender::new(ports)?, Netlink::open()?);
        Ok(Self { sender, links, gso, fragment_buffer, netlink, mark })
    }

    /// Reads changes of the network configuration, even if no packet is sent.
    pub(super) fn read_changes(&mut self) {
        self.links.iter_mut().for_each(LinkSender::read_changes);
    }

    /// Sends a datagram that was reassembled from fragments.
    pub(super) fn send_reassembled(
        &mut self,
        spd: SpdId,
        datagram: &mut Packet<'_>,
        action: OutboundAction,
        shared: &Shared,
        now: Instant,
    ) {
        match action {
            OutboundAction::Send { sa, plan } => {
                if sa.is_some() {
                    shared.reports.add_sealed(1);
                    set_outer_ident(datagram, shared);
                }
                match plan {
                    Some(plan) => self.send_fragmented(datagram.data(), plan, sa, shared, now),
                    None => self.send_one(datagram.data(), sa, shared, now),
                }
            }
            OutboundAction::Reply => shared.deliver(spd, datagram.data(), now),
            OutboundAction::Dropped(DropReason::CounterNotReserved) => shared.reports.report_missing_number(),
            // The data path has counted it.
            OutboundAction::Dropped(_) => {}
        }
    }

    /// Applies a verdict of an SPD other than to send the packet in one piece. ICMP errors go back by the
    /// interface that the packet entered.
    pub(super) fn apply_verdict(
        &mut self,
        spd: SpdId,
        packet: &mut Packet<'_>,
        verdict: Outbound,
        shared: &Shared,
        now: Instant,
    ) {
        match verdict {
            Outbound::Send(Sealed { sa, fragment_to: Some(mtu), .. }) => {
                let plan = FragmentPlan { mtu: mtu.into(), ident: shared.idents.next() };
                self.send_fragmented(packet.data(), plan, Some(sa), shared, now);
            }
            Outbound::Send(Sealed { sa, .. }) => self.send_one(packet.data(), Some(sa), shared, now),
            Outbound::Bypass => self.send_one(packet.data(), None, shared, now),
            Outbound::Reply(_) => shared.deliver(spd, packet.data(), now),
            Outbound::Drop(DropReason::CounterNotReserved) => shared.reports.report_missing_number(),
            Outbound::Hold => shared.hold(spd, packet.data(), now),
            // The data path has counted the packet. A whole datagram is never reassembled again.
            Outbound::Drop(_) | Outbound::Reassemble => {}
        }
    }

    /// Sends the queued packets: by GSO as many as possible, the others individually.
    pub(super) fn flush(&mut self, queue: &mut ArrayVec<Outgoing<'_>, BATCH>, shared: &Shared, now: Instant) {
        let mut rest = queue.as_slice();
        let max = self.gso.max_segments();
        while !rest.is_empty() {
            let gso_batch =
                |from: usize| GsoBatch::of(rest.get(from..)?.iter().map_while(packet_if_protected), max);
            let next = (0..rest.len()).find_map(|from| Some((from, gso_batch(from)?)));
            let (alone, batch) = next.map_or((rest.len(), None), |(from, batch)| (from, Some(batch)));
            let (individual, others) = rest.split_at_checked(alone).or_broken(IN_QUEUE, (rest, &[]));
            self.send_individually(individual, shared, now);
            let count = batch.as_ref().map_or(0, GsoBatch::len);
            let (batched, others) = others.split_at_checked(count).or_broken(IN_QUEUE, (others, &[]));
            match batch {
                // Sending the packets one by one shows which one the kernel refuses.
                Some(batch) if !self.send_gso(&batch, now) => self.send_individually(batched, shared, now),
                _ => shared.trace_sent(now, bytes_of(batched), Transmission::UdpSocket),
            }
            rest = others;
        }
        queue.clear();
    }

    /// Sends a GSO batch, unless packets to its destination use a socket of their own now. Returns whether it
    /// was sent.
    fn send_gso(&mut self, batch: &GsoBatch<'_>, now: Instant) -> bool {
        if self.sender.is_isolated(now, batch.destination()) {
            return false;
        }
        let sent = self.gso.send(batch);
        if sent.as_ref().is_err_and(is_full) {
            self.sender.isolate_peers(now);
        }
        sent.is_ok()
    }

    /// Sends packets with the headers that the data path wrote.
    fn send_individually(&mut self, queue: &[Outgoing<'_>], shared: &Shared, now: Instant) {
        for run in queue.chunk_by(|a, b| a.packet.dst.is_ipv4() == b.packet.dst.is_ipv4()) {
            let sent = self.send_to_links(run, now);
            if sent.is_empty() {
                self.send_raw(run, shared, now);
                continue;
            }
            let of_sent = run.iter().enumerate().filter(|(index, _)| sent.contains(*index));
            shared.trace_sent(now, of_sent.map(|(_, outgoing)| outgoing.packet.bytes), Transmission::NextHop);
            let mut rest: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
            let unsent = run.iter().enumerate().filter(|(index, _)| !sent.contains(*index));
            rest.extend(unsent.map(|(_, outgoing)| *outgoing));
            self.send_raw(&rest, shared, now);
        }
    }

    /// Sends those packets to their next hops for which this is possible.
    #[inline]
    fn send_to_links(&mut self, run: &[Outgoing<'_>], now: Instant) -> SentPackets {
        let Self { links: Some(links), sender, .. } = self else { return SentPackets::default() };
        links.send(now, run, |dst| sender.is_isolated(now, dst))
    }

    /// Sends packets of one IP version through the raw socket.
    fn send_raw(&mut self, run: &[Outgoing<'_>], shared: &Shared, now: Instant) {
        let mut packets = ArrayVec::<_, BATCH>::new();
        packets.extend(run.iter().map(|outgoing| outgoing.packet));
        let mut sent = 0usize;
        while let (Some(rest), Some(first)) = (packets.get(sent..), run.get(sent)) {
            match self.sender.send(now, rest) {
                Ok(count) => {
                    let is_progress = invariant::check(count > 0, "a send that succeeds sends a packet");
                    let bytes = rest.iter().take(count).map(|packet| packet.bytes);
                    shared.trace_sent(now, bytes, Transmission::RawSocket);
                    sent = sent.saturating_add(if is_progress { count } else { 1 });
                }
                // The link of this destination takes no more packets for now.
                Err(error) if is_full(&error) => {
                    let same = rest.iter().take_while(|packet| packet.dst == first.packet.dst);
                    sent = sent.saturating_add(same.clone().count());
                    same.for_each(|packet| shared.record_drop(now, DropReason::LinkFull, packet.bytes));
                }
                Err(error) => {
                    self.handle_send_error(*first, &error, shared, now);
                    sent = sent.saturating_add(1);
                }
            }
        }
    }

    fn send_one(&mut self, packet: &[u8], sa: Option<SaId>, shared: &Shared, now: Instant) {
        let mut queue = ArrayVec::new();
        enqueue(&mut queue, packet, sa);
        self.flush(&mut queue, shared, now);
    }

    /// Sends a packet in fragments. RFC 4303 section 3.3.4: fragmentation comes after protection.
    fn send_fragmented(
        &mut self,
        packet: &[u8],
        plan: FragmentPlan,
        sa: Option<SaId>,
        shared: &Shared,
        now: Instant,
    ) {
        let (Ok(mut fragments), Some(dst)) = (plan.fragments(packet), destination(packet)) else {
            return shared.record_drop(now, DropReason::TooBig, packet);
        };
        let mut buffer = std::mem::take(&mut self.fragment_buffer);
        // The buffer is in use if a fragment is fragmented again.
        let is_nested = buffer.is_empty();
        if is_nested {
            buffer = vec![0; plan.mtu].into_boxed_slice();
        }
        let mut is_lost = false;
        while !fragments.is_finished() && !is_lost {
            let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
            for out in buffer.chunks_exact_mut(plan.mtu.max(1)).take(BATCH) {
                let Some(len) = fragments.next(out) else { break };
                let bytes = out.get(..len).or_broken_default("a fragment is inside its buffer");
                queue.push(Outgoing { packet: AddressedPacket { bytes, dst }, sa });
            }
            is_lost = queue.is_empty();
            self.flush(&mut queue, shared, now);
        }
        if !is_nested {
            self.fragment_buffer = buffer;
        }
        if is_lost {
            return shared.record_drop(now, DropReason::TooBig, packet);
        }
        // In case that the first fragment did not show the header that the trace knows the packet by.
        shared.trace_sent(now, std::iter::once(packet), Transmission::RawSocket);
    }

    /// Handles a packet that the kernel refused to send.
    #[cold]
    fn handle_send_error(
        &mut self,
        outgoing: Outgoing<'_>,
        error: &io::Error,
        shared: &Shared,
        now: Instant,
    ) {
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            return self.handle_too_long(outgoing, shared, now);
        }
        let AddressedPacket { bytes, dst } = outgoing.packet;
        shared.record_drop(now, DropReason::SendFailed, bytes);
        let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
        let hint = if is_refused { format!("; {REFUSED}") } else { String::new() };
        shared.reports.report_error(format!("a packet to {dst} could not be sent: {error}{hint}"));
    }

    /// Handles a packet that is longer than the MTU of its link, which is smaller than assumed.
    ///
    /// The SA learns the MTU, so that sources behind us receive an ICMP error for their next packet, and this
    /// packet is sent in fragments if it may be. An IPv4 fragment is fragmented again; an IPv6 fragment is
    /// lost. A packet in clear has no SA that could learn the MTU: if it may not be fragmented, its source
    /// receives an ICMP error at once.
    fn handle_too_long(&mut self, outgoing: Outgoing<'_>, shared: &Shared, now: Instant) {
        let Outgoing { packet: AddressedPacket { bytes: packet, dst }, sa } = outgoing;
        let mtu = self.netlink.link_mtu_to(dst, self.mark).unwrap_or_else(|error| {
            shared.reports.report_error(format!("MTU of the link to {dst}: {error}"));
            None
        });
        let Some(mtu) = mtu.filter(|&mtu| mtu < packet.len()) else {
            return shared.record_drop(now, DropReason::TooBig, packet);
        };
        match sa {
            Some(sa) => {
                shared.lock_endpoint().endpoint.datapath_mut().set_path_mtu(sa, mtu, now);
            }
            None if !routers_may_fragment(packet) => {
                return self.refuse_too_long(packet, mtu, shared, now);
            }
            None => {}
        }
        let plan = FragmentPlan { mtu, ident: shared.idents.next() };
        self.send_fragmented(packet, plan, sa, shared, now);
    }

    /// Sends an ICMP error with `mtu` to the source of a packet in clear, which only the main SPD lets pass.
    fn refuse_too_long(&self, packet: &[u8], mtu: usize, shared: &Shared, now: Instant) {
        let mut storage = vec![0; HEAD_ROOM.saturating_add(packet.len())];
        storage.iter_mut().skip(HEAD_ROOM).zip(packet).for_each(|(to, from)| *to = *from);
        let packet = Packet::new(&mut storage, HEAD_ROOM, packet.len());
        let Some(mut packet) = packet.or_report("the storage has room for the packet") else { return };
        let verdict = shared.lock_endpoint().endpoint.datapath_mut().reject_too_big(now, &mut packet, mtu);
        if let Outbound::Reply(_) = verdict {
            shared.deliver(SpdId::MAIN, packet.data(), now);
        }
    }
}

/// Why the kernel refuses a packet with EPERM. The guard refuses own packets that would enter the TUN
/// interface.
pub(super) const REFUSED: &str = "the packet filter drops it, or the route leads into the TUN interface";

const IN_QUEUE: &str = "the queue contains the packets of a batch and those before it";

fn bytes_of<'p>(queue: &[Outgoing<'p>]) -> impl Iterator<Item = &'p [u8]> {
    queue.iter().map(|outgoing| outgoing.packet.bytes)
}

/// Returns the packet if an SA protects it. Packets in clear must keep the headers of their source, so GSO is
/// not for them.
fn packet_if_protected<'p>(outgoing: &Outgoing<'p>) -> Option<&'p [u8]> {
    outgoing.sa.map(|_| outgoing.packet.bytes)
}

pub(super) fn enqueue<'p>(queue: &mut ArrayVec<Outgoing<'p>, BATCH>, bytes: &'p [u8], sa: Option<SaId>) {
    if let Some(dst) = destination(bytes).or_report("the data path returns packets with valid headers") {
        queue.push(Outgoing { packet: AddressedPacket { bytes, dst }, sa });
    }
}
