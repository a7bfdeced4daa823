//! Coalesces packets into one large packet for the kernel (GRO), if no receiver can tell the difference.
//!
//! The rules are those by which Linux coalesces packets from a network card: same flow, same headers,
//! consecutive TCP sequence numbers, and only the last packet may be shorter than the first. Checksums are
//! verified before, because a new one replaces them.

use super::layout::{ACK, FLAGS_OFFSET, Layout, PSH, SEQUENCE_OFFSET, Transport};
use super::{GsoInfo, GsoType, PartialChecksum, VNET_HEADER_LEN, VnetHeader};
use crate::BATCH;
use crate::buffers::MAX_PACKET;
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, v4, v6};
use std::iter::successors;
use std::ops::Range;

/// Entries of the table of flows.
const FLOW_SLOTS: usize = 256;
/// Entries that are searched for a flow. A flow that finds none is not coalesced.
const MAX_PROBES: usize = 8;
/// Longest headers: those of IPv6, some extension headers, and TCP with all options.
const MAX_HEADERS: usize = 40 + 64 + 60;

/// Packets to coalesce.
pub(crate) type PacketList<'p> = ArrayVec<&'p [u8], BATCH>;

/// Index of a packet in a list, or of a run.
type Index = u8;
const _: () = assert!(BATCH <= Index::MAX as usize && FLOW_SLOTS >= 2 * BATCH);

/// What stands in front of the payloads of a coalesced packet.
pub(crate) struct GroHeaders {
    /// The header for the kernel.
    pub(crate) vnet: [u8; VNET_HEADER_LEN],
    /// The headers of the packet.
    pub(crate) packet: ArrayVec<u8, MAX_HEADERS>,
}

/// A single packet, or consecutive packets of one flow, that go to the kernel at once.
#[derive(Debug)]
pub(crate) struct GroBatch<'c, 'p> {
    list: &'c PacketList<'p>,
    links: &'c Links,
    run: Run,
}

/// For each packet in a list, the next packet of its run.
type Links = [Index; BATCH];

/// Packets of one flow, linked in their order.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: Index,
    last: Index,
    count: u16,
    /// State of the flow, if packets may be appended to the first.
    flow: Option<FlowState>,
    /// Length as one packet.
    len: usize,
}

/// What the packets of a batch have in common.
#[derive(Debug, Clone, Copy)]
struct FlowState {
    layout: Layout,
    /// Payload of each packet but the last, in bytes.
    size: usize,
    /// TCP sequence number of the next packet; 0 for UDP.
    next_sequence: u32,
    /// The last packet was shorter, or has PSH set.
    is_closed: bool,
}

/// Coalesces the packets of a list and calls `out` with each batch. The packets of a flow keep their order,
/// and those that are neither TCP nor UDP their place. UDP is coalesced only with `coalesce_udp`.
pub(crate) fn coalesce<'p>(
    list: &PacketList<'p>,
    coalesce_udp: bool,
    mut out: impl FnMut(&GroBatch<'_, 'p>),
) {
    let mut coalescer =
        Coalescer { list, coalesce_udp, runs: ArrayVec::new(), links: [0; BATCH], slots: [None; FLOW_SLOTS] };
    for (index, packet) in (0..=Index::MAX).zip(list) {
        coalescer.push(index, packet, &mut out);
    }
    coalescer.finish(&mut out);
}

struct Coalescer<'c, 'p> {
    list: &'c PacketList<'p>,
    coalesce_udp: bool,
    /// In the order of their first packets.
    runs: ArrayVec<Run, BATCH>,
    links: Links,
    /// The latest run of each flow, in the first free slot from the hash of the flow on.
    slots: [Option<Index>; FLOW_SLOTS],
}

impl<'c, 'p> Coalescer<'c, 'p> {
    /// Adds the next packet.
    fn push(&mut self, index: Index, packet: &'p [u8], out: &mut impl FnMut(&GroBatch<'_, 'p>)) {
        let Some(layout) = Layout::of(packet) else {
            self.finish(out);
            return self.emit(Run::new(index, packet, None), out);
        };
        let is_eligible = self.coalesce_udp || layout.transport == Transport::Tcp;
        let flow = if is_eligible { FlowState::of(packet, layout) } else { None };
        let slot = self.find_slot(packet, layout);
        if let Some(run) = slot.and_then(|slot| self.run_in(slot))
            && self.append(run, index, packet, flow)
        {
            return;
        }
        let run = self.runs.len() as Index;
        self.runs.push(Run::new(index, packet, flow));
        if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = Some(run);
        }
    }

    /// The slot of this flow, or the one that it may take; `None` if too many other flows have this hash.
    fn find_slot(&self, packet: &[u8], layout: Layout) -> Option<usize> {
        let first = flow_hash(packet, layout);
        let mut slots = (0..MAX_PROBES).map(|probe| first.wrapping_add(probe) % FLOW_SLOTS);
        slots.find(|slot| self.run_in(*slot).is_none_or(|run| self.is_of_flow(run, packet, layout)))
    }

    fn run_in(&self, slot: usize) -> Option<Index> {
        self.slots.get(slot).copied().flatten()
    }

    fn is_of_flow(&self, run: Index, packet: &[u8], layout: Layout) -> bool {
        let Some(Run { first, flow: Some(flow), .. }) = self.runs.get(usize::from(run)) else { return false };
        let Some(first) = self.list.get(usize::from(*first)) else { return false };
        flow.layout.version == layout.version
            && flow.layout.transport == layout.transport
            && first.get(addresses(layout.version)) == packet.get(addresses(layout.version))
            && first.get(ports(flow.layout)) == packet.get(ports(layout))
    }

    /// Appends the packet with this index, whose flow state is `next`, if it continues the run. Returns
    /// whether it does.
    fn append(&mut self, run: Index, index: Index, packet: &[u8], next: Option<FlowState>) -> bool {
        let (Some(run), Some(next)) = (self.runs.get_mut(usize::from(run)), next) else { return false };
        let (Some(flow), Some(first)) = (run.flow, self.list.get(usize::from(run.first))) else {
            return false;
        };
        let len = run.len.saturating_add(next.size);
        let continues = !flow.is_closed
            && next.size <= flow.size
            && len <= MAX_PACKET
            && next.layout.transport_offset == flow.layout.transport_offset
            && next.layout.payload_offset == flow.layout.payload_offset
            && next.sequence() == flow.next_sequence
            && same_ip_header(first, packet, flow.layout, run.count)
            && (flow.layout.transport == Transport::Udp || same_tcp_header(first, packet, flow.layout));
        if let Some(link) = self.links.get_mut(usize::from(run.last)).filter(|_| continues) {
            *link = index;
            let is_closed = next.is_closed || next.size < flow.size;
            let flow = Some(FlowState { next_sequence: next.next_sequence, is_closed, ..flow });
            *run = Run { last: index, count: run.count.saturating_add(1), flow, len, ..*run };
        }
        continues
    }

    /// Ends all runs.
    fn finish(&mut self, out: &mut impl FnMut(&GroBatch<'_, 'p>)) {
        if self.runs.is_empty() {
            return;
        }
        self.runs.iter().for_each(|run| self.emit(*run, out));
        self.runs.clear();
        self.slots.fill(None);
    }

    fn emit(&self, run: Run, out: &mut impl FnMut(&GroBatch<'_, 'p>)) {
        out(&GroBatch { list: self.list, links: &self.links, run });
    }
}

impl Run {
    /// A run of one packet. Others may be appended if it has a flow.
    fn new(index: Index, packet: &[u8], flow: Option<FlowState>) -> Self {
        Self { first: index, last: index, count: 1, flow, len: packet.len() }
    }
}

impl<'p> GroBatch<'_, 'p> {
    /// Number of packets.
    pub(crate) fn count(&self) -> usize {
        self.run.count.into()
    }

    /// The packets.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &'p [u8]> {
        let next = |index: &Index| self.links.get(usize::from(*index)).copied();
        let indices = successors(Some(self.run.first), next).take(self.count());
        let packet = |index| self.list.get(usize::from(index)).or_report("the list has this packet");
        indices.filter_map(packet).copied()
    }

    fn packet(&self, index: Index) -> Option<&'p [u8]> {
        self.list.get(usize::from(index)).copied()
    }

    /// What stands in front of the payloads of a coalesced packet. Returns `None` for a single packet, which
    /// is written unchanged.
    pub(crate) fn headers(&self) -> Option<GroHeaders> {
        if self.run.count < 2 {
            return None;
        }
        let (flow, first, last) = (self.run.flow?, self.packet(self.run.first)?, self.packet(self.run.last)?);
        let Layout { transport, transport_offset, payload_offset, version, .. } = flow.layout;
        let mut headers = ArrayVec::new();
        headers.try_extend_from_slice(first.get(..payload_offset)?).ok()?;
        let kind = match (transport, version) {
            (Transport::Tcp, IpVersion::V4) => GsoType::TcpV4,
            (Transport::Tcp, IpVersion::V6) => GsoType::TcpV6,
            (Transport::Udp, _) => GsoType::Udp,
        };
        if transport == Transport::Tcp {
            let flags = transport_offset.checked_add(FLAGS_OFFSET)?;
            *headers.get_mut(flags)? |= last.get(flags)? & PSH;
        }
        flow.layout.finish_gso_headers(&mut headers, self.run.len)?;
        let size = u16::try_from(flow.size).ok()?;
        let gso = GsoInfo { kind, size, header_len: payload_offset as u16 };
        let (start, offset) = (transport_offset as u16, flow.layout.checksum_offset() as u16);
        let checksum = PartialChecksum { start, offset };
        let header = VnetHeader { checksum: Some(checksum), gso: Some(gso) };
        Some(GroHeaders { vnet: header.emit(), packet: headers })
    }

    /// The payloads behind the headers.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &'p [u8]> {
        let offset = self.run.flow.map_or(0, |flow| flow.layout.payload_offset);
        self.packets()
            .map(move |packet| packet.get(offset..).or_broken_default("a packet contains its headers"))
    }
}

impl FlowState {
    /// State after the first packet of a batch. Returns `None` if no packet can be appended to it.
    fn of(packet: &[u8], layout: Layout) -> Option<Self> {
        let size = layout.end.checked_sub(layout.payload_offset).filter(|size| *size > 0)?;
        // Bytes behind the packet or the datagram would become payload.
        if layout.end != packet.len()
            || !layout.fills_ip_packet(packet)
            || layout.payload_offset > MAX_HEADERS
        {
            return None;
        }
        let (mut next_sequence, mut is_closed) = (0, false);
        if layout.transport == Transport::Tcp {
            let tcp = packet.get(layout.transport_offset..)?;
            let flags = *tcp.get(FLAGS_OFFSET)?;
            if flags & !PSH != ACK {
                return None;
            }
            is_closed = flags & PSH != 0;
            let sequence = u32::from_be_bytes(*tcp.get(SEQUENCE_OFFSET..)?.first_chunk()?);
            next_sequence = sequence.wrapping_add(u32::try_from(size).ok()?);
        }
        layout.has_valid_checksum(packet).then_some(Self { layout, size, next_sequence, is_closed })
    }

    /// TCP sequence number of the packet itself; 0 for UDP.
    fn sequence(&self) -> u32 {
        match self.layout.transport {
            Transport::Tcp => self.next_sequence.wrapping_sub(self.size as u32),
            Transport::Udp => 0,
        }
    }
}

/// Position of the addresses in the IP header.
const fn addresses(version: IpVersion) -> Range<usize> {
    match version {
        IpVersion::V4 => 12..v4::HEADER_LEN,
        IpVersion::V6 => 8..v6::HEADER_LEN,
    }
}

/// Hash of addresses and ports, below [`FLOW_SLOTS`].
fn flow_hash(packet: &[u8], layout: Layout) -> usize {
    let parts = [addresses(layout.version), ports(layout)].map(|part| packet.get(part).unwrap_or_default());
    let words = parts.into_iter().flat_map(|part| part.as_chunks().0);
    let mix = |hash: u32, word: &[u8; 4]| {
        (hash.rotate_left(5) ^ u32::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b9)
    };
    (words.fold(0, mix) >> 24) as usize
}

/// Position of the ports.
fn ports(layout: Layout) -> Range<usize> {
    layout.transport_offset..layout.transport_offset.saturating_add(4)
}

/// Whether the IP headers, with options and extension headers, differ only in fields that a receiver does not
/// use. `count` is the number of packets since the first.
fn same_ip_header(first: &[u8], packet: &[u8], layout: Layout, count: u16) -> bool {
    let options = addresses(layout.version).end..layout.transport_offset;
    if first.get(options.clone()) != packet.get(options) {
        return false;
    }
    match layout.version {
        IpVersion::V4 => {
            let ident = |packet: &[u8]| {
                packet.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |ident| u16::from_be_bytes(*ident))
            };
            let has_df = first.get(6).is_some_and(|flags| flags & 0x40 != 0);
            first.get(..2) == packet.get(..2)
                && first.get(6..10) == packet.get(6..10)
                // RFC 6864 section 4.1: with DF the identification has no meaning.
                && (has_df || ident(packet) == ident(first).wrapping_add(count))
        }
        IpVersion::V6 => first.get(..4) == packet.get(..4) && first.get(6..8) == packet.get(6..8),
    }
}

/// Whether the TCP headers differ only in sequence number, PSH and checksum.
fn same_tcp_header(first: &[u8], packet: &[u8], layout: Layout) -> bool {
    let tcp = layout.transport_offset;
    // Acknowledgement number and data offset; window; urgent pointer and options.
    [(8, 13), (14, 16), (18, layout.payload_offset.saturating_sub(tcp))].into_iter().all(|(from, to)| {
        let part = tcp.saturating_add(from)..tcp.saturating_add(to);
        first.get(part.clone()) == packet.get(part)
    })
}
