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
use std::iter::once;
use std::ops::Range;

/// Flows of a batch that are coalesced at the same time, at most.
const MAX_FLOWS: usize = 8;
/// Longest headers: those of IPv6, some extension headers, and TCP with all options.
const MAX_HEADERS: usize = 40 + 64 + 60;

/// Packets to coalesce.
pub(crate) type PacketList<'p> = ArrayVec<&'p [u8], BATCH>;

// An index into a list is one byte.
const _: () = assert!(BATCH <= 1 << u8::BITS);

/// What stands in front of the payloads of a coalesced packet.
pub(crate) struct GroHeaders {
    /// The header for the kernel.
    pub(crate) vnet: [u8; VNET_HEADER_LEN],
    /// The headers of the packet.
    pub(crate) packet: ArrayVec<u8, MAX_HEADERS>,
}

/// A single packet, or consecutive packets of one flow, that go to the kernel at once.
// There is one for every packet that begins a batch, so it should be small.
#[derive(Debug)]
pub(crate) struct GroBatch<'p> {
    list: &'p PacketList<'p>,
    first: &'p [u8],
    /// Indices of the other packets in the list.
    others: ArrayVec<u8, BATCH>,
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

/// Coalesces the packets of a list and calls `out` with each batch. The packets of a flow keep their order.
/// UDP is coalesced only with `coalesce_udp`.
pub(crate) fn coalesce<'p>(list: &'p PacketList<'p>, coalesce_udp: bool, mut out: impl FnMut(&GroBatch<'p>)) {
    let mut coalescer = Coalescer { list, coalesce_udp, open: ArrayVec::new() };
    for (index, packet) in (0..=u8::MAX).zip(list) {
        coalescer.push(index, packet, &mut out);
    }
    coalescer.finish(out);
}

struct Coalescer<'p> {
    list: &'p PacketList<'p>,
    coalesce_udp: bool,
    /// Batches to which packets can be appended, the oldest first.
    open: ArrayVec<GroBatch<'p>, MAX_FLOWS>,
}

impl<'p> Coalescer<'p> {
    /// Adds the next packet. Calls `out` with batches to which nothing can be appended any more.
    fn push(&mut self, index: u8, packet: &'p [u8], mut out: impl FnMut(&GroBatch<'p>)) {
        let Some(layout) = Layout::of(packet) else {
            self.finish(&mut out);
            return out(&GroBatch::new(self.list, packet, None));
        };
        let is_eligible = self.coalesce_udp || layout.transport == Transport::Tcp;
        let flow = if is_eligible { FlowState::of(packet, layout) } else { None };
        let same_flow = self.open.iter().position(|batch| batch.is_of_flow(packet, layout));
        if let Some(position) = same_flow {
            let is_appended =
                self.open.get_mut(position).is_some_and(|batch| batch.append(index, packet, flow));
            let is_closed = self.open.get(position).is_some_and(GroBatch::is_closed);
            if !is_appended || is_closed {
                self.open.pop_at(position).iter().for_each(&mut out);
            }
            if is_appended {
                return;
            }
        }
        let batch = GroBatch::new(self.list, packet, flow);
        if batch.is_closed() {
            return out(&batch);
        }
        if self.open.is_full() {
            self.open.pop_at(0).iter().for_each(&mut out);
        }
        self.open.push(batch);
    }

    /// Ends all batches.
    fn finish(&mut self, out: impl FnMut(&GroBatch<'p>)) {
        self.open.iter().for_each(out);
        self.open.clear();
    }
}

impl<'p> GroBatch<'p> {
    /// A batch of one packet. Others may be appended if it has a flow.
    fn new(list: &'p PacketList<'p>, first: &'p [u8], flow: Option<FlowState>) -> Self {
        Self { list, first, others: ArrayVec::new(), flow, len: first.len() }
    }

    /// Number of packets.
    pub(crate) fn count(&self) -> usize {
        self.others.len().saturating_add(1)
    }

    /// The packets.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &'p [u8]> {
        let packet = |index: &u8| self.list.get(usize::from(*index)).or_report("the list has this packet");
        let others = self.others.iter().filter_map(packet);
        once(self.first).chain(others.copied())
    }

    /// Whether nothing can be appended.
    fn is_closed(&self) -> bool {
        self.flow.is_none_or(|flow| flow.is_closed)
    }

    fn is_of_flow(&self, packet: &[u8], layout: Layout) -> bool {
        let Some(flow) = self.flow else { return false };
        flow.layout.version == layout.version
            && flow.layout.transport == layout.transport
            && self.first.get(addresses(layout.version)) == packet.get(addresses(layout.version))
            && self.first.get(ports(flow.layout)) == packet.get(ports(layout))
    }

    /// Appends the packet with this index, whose flow state is `next`, if it continues this batch. Returns
    /// whether it does.
    fn append(&mut self, index: u8, packet: &'p [u8], next: Option<FlowState>) -> bool {
        let (Some(flow), Some(next), first) = (self.flow, next, self.first) else { return false };
        let len = self.len.saturating_add(next.size);
        let count = self.count() as u16;
        let continues = !flow.is_closed
            && next.size <= flow.size
            && len <= MAX_PACKET
            && next.layout.transport_offset == flow.layout.transport_offset
            && next.layout.payload_offset == flow.layout.payload_offset
            && next.sequence() == flow.next_sequence
            && same_ip_header(first, packet, flow.layout, count)
            && (flow.layout.transport == Transport::Udp || same_tcp_header(first, packet, flow.layout));
        if continues && self.others.try_push(index).is_ok() {
            let is_closed = next.is_closed || next.size < flow.size;
            self.flow = Some(FlowState { next_sequence: next.next_sequence, is_closed, ..flow });
            self.len = len;
            return true;
        }
        false
    }

    /// What stands in front of the payloads of a coalesced packet. Returns `None` for a single packet, which
    /// is written unchanged.
    pub(crate) fn headers(&self) -> Option<GroHeaders> {
        let (flow, first, last) = (self.flow?, self.first, self.list.get(usize::from(*self.others.last()?))?);
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
        flow.layout.finish_gso_headers(&mut headers, self.len)?;
        let size = u16::try_from(flow.size).ok()?;
        let gso = GsoInfo { kind, size, header_len: payload_offset as u16 };
        let (start, offset) = (transport_offset as u16, flow.layout.checksum_offset() as u16);
        let checksum = PartialChecksum { start, offset };
        let header = VnetHeader { checksum: Some(checksum), gso: Some(gso) };
        Some(GroHeaders { vnet: header.emit(), packet: headers })
    }

    /// The payloads behind the headers.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &'p [u8]> {
        let offset = self.flow.map_or(0, |flow| flow.layout.payload_offset);
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
