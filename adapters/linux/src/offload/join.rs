//! Joins packets into what the kernel takes in one piece, where nobody can tell the difference afterwards.
//!
//! The rules are those by which Linux joins what a network card brings: same flow, same headers, TCP's numbers in a row, nothing
//! but the last shorter than the first. A checksum is verified before, because behind it stands a new one.

use super::header::{HEADER_LEN, Kind, Segments, Unfinished, VnetHeader};
use super::segment::{ACK, FLAGS_AT, Layout, PSH, SEQUENCE_AT, Upper};
use crate::BATCH;
use crate::buffers::MAX_PACKET;
use arrayvec::ArrayVec;
use casemate_wire::ip::{IpVersion, v4, v6};
use std::iter::once;
use std::ops::Range;

/// How many flows of a batch may grow side by side.
const FLOWS: usize = 8;
/// The headers of IPv6, some extension headers, and TCP with all options.
const MAX_HEAD: usize = 40 + 64 + 60;

/// What goes to the kernel at once: a packet, or packets of one flow in a row.
// There is one for every packet that begins something, so that it should be small.
#[derive(Debug)]
pub(crate) struct Run<'p> {
    batch: &'p Batch<'p>,
    /// Which of the batch, the first one beside the others: there always is one.
    first: &'p [u8],
    others: ArrayVec<u8, BATCH>,
    /// Of the first one, if more may follow.
    shape: Option<Shape>,
    /// Length as one packet.
    len: usize,
}

/// What is joined.
pub(crate) type Batch<'p> = ArrayVec<&'p [u8], BATCH>;

// The places in a batch are bytes.
const _: () = assert!(BATCH <= 1 << u8::BITS);

/// What the packets of a run have in common.
#[derive(Debug, Clone, Copy)]
struct Shape {
    layout: Layout,
    /// Payload of all but the last.
    size: usize,
    /// Of the next segment of TCP.
    next_sequence: u32,
    /// A short one, or one that is to be handed to the application at once, was the last.
    is_closed: bool,
}

/// The headers of a run, as the kernel wants them.
pub(crate) type Head = ArrayVec<u8, MAX_HEAD>;

/// Joins the packets of a batch; `out` gets them, or what they make together. Packets of a flow stay in order. UDP is joined only if
/// `joins_udp`.
pub(crate) fn join<'p>(batch: &'p Batch<'p>, joins_udp: bool, mut out: impl FnMut(&Run<'p>)) {
    let mut joiner = Joiner { batch, joins_udp, runs: ArrayVec::new() };
    for (place, packet) in (0..=u8::MAX).zip(batch) {
        joiner.push(place, packet, &mut out);
    }
    joiner.finish(out);
}

/// Runs that grow.
struct Joiner<'p> {
    batch: &'p Batch<'p>,
    joins_udp: bool,
    runs: ArrayVec<Run<'p>, FLOWS>,
}

impl<'p> Joiner<'p> {
    /// Takes the next packet; `out` gets what will not grow any more.
    fn push(&mut self, place: u8, packet: &'p [u8], mut out: impl FnMut(&Run<'p>)) {
        let Some(layout) = Layout::of(packet) else {
            self.finish(&mut out);
            return out(&Run::begin(self.batch, packet, None));
        };
        let is_joined = self.joins_udp || layout.upper == Upper::Tcp;
        let shape = if is_joined { Shape::of(packet, layout) } else { None };
        let same_flow = self.runs.iter().position(|run| run.is_of_flow(packet, layout));
        if let Some(index) = same_flow {
            let taken = self.runs.get_mut(index).is_some_and(|open| open.take(place, packet, shape));
            let is_full = self.runs.get(index).is_some_and(Run::is_full);
            if !taken || is_full {
                self.runs.pop_at(index).iter().for_each(&mut out);
            }
            if taken {
                return;
            }
        }
        let run = Run::begin(self.batch, packet, shape);
        if run.is_full() {
            return out(&run);
        }
        if self.runs.is_full() {
            self.runs.pop_at(0).iter().for_each(&mut out);
        }
        self.runs.push(run);
    }

    /// Ends all runs.
    fn finish(&mut self, out: impl FnMut(&Run<'p>)) {
        self.runs.iter().for_each(out);
        self.runs.clear();
    }
}

impl<'p> Run<'p> {
    /// A packet, which others may follow if it has a shape.
    fn begin(batch: &'p Batch<'p>, first: &'p [u8], shape: Option<Shape>) -> Self {
        Self { batch, first, others: ArrayVec::new(), shape, len: first.len() }
    }

    /// How many packets it has.
    pub(crate) fn count(&self) -> usize {
        self.others.len().saturating_add(1)
    }

    /// The packets.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &'p [u8]> {
        let others = self.others.iter().filter_map(|place| self.batch.get(usize::from(*place)));
        once(self.first).chain(others.copied())
    }

    /// Whether nothing can be added.
    fn is_full(&self) -> bool {
        self.shape.is_none_or(|shape| shape.is_closed)
    }

    fn is_of_flow(&self, packet: &[u8], layout: Layout) -> bool {
        let Some(shape) = self.shape else { return false };
        shape.layout.version == layout.version
            && shape.layout.upper == layout.upper
            && self.first.get(addresses(layout.version)) == packet.get(addresses(layout.version))
            && self.first.get(ports(shape.layout)) == packet.get(ports(layout))
    }

    /// Takes the packet at this place, which has the shape `next`, if it continues this run.
    fn take(&mut self, place: u8, packet: &'p [u8], next: Option<Shape>) -> bool {
        let (Some(shape), Some(next), first) = (self.shape, next, self.first) else { return false };
        let len = self.len.saturating_add(next.size);
        let index = self.count() as u16;
        let continues = !shape.is_closed
            && next.size <= shape.size
            && len <= MAX_PACKET
            && next.layout.upper_at == shape.layout.upper_at
            && next.layout.payload_at == shape.layout.payload_at
            && next.sequence() == shape.next_sequence
            && same_ip(first, packet, shape.layout, index)
            && (shape.layout.upper == Upper::Udp || same_tcp(first, packet, shape.layout));
        if continues && self.others.try_push(place).is_ok() {
            let is_closed = next.is_closed || next.size < shape.size;
            self.shape = Some(Shape { next_sequence: next.next_sequence, is_closed, ..shape });
            self.len = len;
            return true;
        }
        false
    }

    /// What stands in front of the payloads: the header for the kernel, and those of all packets as one. `None` for a single packet,
    /// which goes as it is.
    pub(crate) fn head(&self) -> Option<([u8; HEADER_LEN], Head)> {
        let (shape, first, last) =
            (self.shape?, self.first, self.batch.get(usize::from(*self.others.last()?))?);
        let Layout { upper, upper_at, payload_at, version, .. } = shape.layout;
        let mut head = Head::new();
        head.try_extend_from_slice(first.get(..payload_at)?).ok()?;
        let kind = match (upper, version) {
            (Upper::Tcp, IpVersion::V4) => Kind::TcpV4,
            (Upper::Tcp, IpVersion::V6) => Kind::TcpV6,
            (Upper::Udp, _) => Kind::Udp,
        };
        if upper == Upper::Tcp {
            let at = upper_at.checked_add(FLAGS_AT)?;
            *head.get_mut(at)? |= last.get(at)? & PSH;
        }
        shape.layout.settle_joined(&mut head, self.len)?;
        let size = u16::try_from(shape.size).ok()?;
        let segments = Segments { kind, size, header_len: payload_at as u16 };
        let checksum = Unfinished { start: upper_at as u16, offset: shape.layout.checksum_offset() as u16 };
        let header = VnetHeader { checksum: Some(checksum), segments: Some(segments) };
        Some((header.emit(), head))
    }

    /// The payloads behind that head.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &'p [u8]> {
        let at = self.shape.map_or(0, |shape| shape.layout.payload_at);
        self.packets().map(move |packet| packet.get(at..).unwrap_or_default())
    }
}

impl Shape {
    /// Of the first packet of a run; `None` if others cannot be joined to it.
    fn of(packet: &[u8], layout: Layout) -> Option<Self> {
        let size = layout.end.checked_sub(layout.payload_at).filter(|size| *size > 0)?;
        // Bytes behind the packet or the datagram would become payload.
        if layout.end != packet.len() || !layout.has_no_surplus(packet) || layout.payload_at > MAX_HEAD {
            return None;
        }
        let (mut next_sequence, mut is_closed) = (0, false);
        if layout.upper == Upper::Tcp {
            let tcp = packet.get(layout.upper_at..)?;
            let flags = *tcp.get(FLAGS_AT)?;
            if flags & !PSH != ACK {
                return None;
            }
            is_closed = flags & PSH != 0;
            let sequence = u32::from_be_bytes(*tcp.get(SEQUENCE_AT..)?.first_chunk()?);
            next_sequence = sequence.wrapping_add(u32::try_from(size).ok()?);
        }
        layout.is_intact(packet).then_some(Self { layout, size, next_sequence, is_closed })
    }

    /// Of its own segment. 0 for UDP.
    fn sequence(&self) -> u32 {
        match self.layout.upper {
            Upper::Tcp => self.next_sequence.wrapping_sub(self.size as u32),
            Upper::Udp => 0,
        }
    }
}

/// Where the addresses stand.
const fn addresses(version: IpVersion) -> Range<usize> {
    match version {
        IpVersion::V4 => 12..v4::HEADER_LEN,
        IpVersion::V6 => 8..v6::HEADER_LEN,
    }
}

/// Where the ports stand.
fn ports(layout: Layout) -> Range<usize> {
    layout.upper_at..layout.upper_at.saturating_add(4)
}

/// Whether the IP headers differ in nothing that a receiver sees; options and extension headers are the same. `index` is how many
/// packets went before.
fn same_ip(first: &[u8], packet: &[u8], layout: Layout, index: u16) -> bool {
    let more = addresses(layout.version).end..layout.upper_at;
    if first.get(more.clone()) != packet.get(more) {
        return false;
    }
    match layout.version {
        IpVersion::V4 => {
            let ident = |packet: &[u8]| {
                packet.get(4..).and_then(<[u8]>::first_chunk).map_or(0, |ident| u16::from_be_bytes(*ident))
            };
            let may_not_be_cut = first.get(6).is_some_and(|flags| flags & 0x40 != 0);
            first.get(..2) == packet.get(..2)
                && first.get(6..10) == packet.get(6..10)
                // RFC 6864 section 4.1: where DF is set, the identification means nothing.
                && (may_not_be_cut || ident(packet) == ident(first).wrapping_add(index))
        }
        IpVersion::V6 => first.get(..4) == packet.get(..4) && first.get(6..8) == packet.get(6..8),
    }
}

/// Whether TCP's headers differ in nothing but number, PSH and checksum.
fn same_tcp(first: &[u8], packet: &[u8], layout: Layout) -> bool {
    let at = layout.upper_at;
    // Acknowledgement and length; window; urgent pointer and options.
    [(8, 13), (14, 16), (18, layout.payload_at.saturating_sub(at))].into_iter().all(|(from, to)| {
        let part = at.saturating_add(from)..at.saturating_add(to);
        first.get(part.clone()) == packet.get(part)
    })
}
