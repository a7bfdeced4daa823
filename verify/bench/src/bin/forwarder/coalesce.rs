//! Coalesces packets from the wire into super-packets. Only packets with correct checksums are coalesced,
//! because the kernel does not verify the checksums of super-packets.

use crate::ipv4::{self, Layout, Upper};
use crate::tun::Sink;
use crate::tun::{Header, Kind, VIRTIO_LEN};
use std::io;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Pending packet, or several coalesced packets of one flow.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    /// Space for the virtio header, followed by the packet.
    bytes: Vec<u8>,
    /// Conditions for the next packet; none if no packet may be appended.
    pending: Option<Pending>,
}

/// Conditions for the next packet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    layout: Layout,
    /// Payload length of each packet except the last.
    size: usize,
    /// Next TCP sequence number.
    next: u32,
    is_coalesced: bool,
}

impl Coalescer {
    /// Adds a packet. If it cannot be appended, writes the pending packet first.
    pub(crate) fn push(&mut self, packet: &[u8], tun: &impl Sink) -> io::Result<()> {
        let layout = coalescible(packet);
        if let (Some(layout), Some(pending)) = (layout, self.pending)
            && self.fits(packet, layout, pending)
        {
            self.append(packet, layout, pending);
            return Ok(());
        }
        self.flush(tun)?;
        self.bytes.extend_from_slice(&Header::PLAIN.bytes(0));
        self.bytes.extend_from_slice(packet);
        self.pending = layout.filter(|layout| !has_psh(packet, *layout)).map(|layout| {
            let size = packet.len() - layout.headers;
            Pending { layout, size, next: next(packet, layout), is_coalesced: false }
        });
        Ok(())
    }

    /// Writes the pending packet.
    pub(crate) fn flush(&mut self, tun: &impl Sink) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        if let Some(pending) = self.pending.take().filter(|pending| pending.is_coalesced) {
            self.close(pending);
        }
        let written = tun.write(&self.bytes);
        self.bytes.clear();
        written
    }

    fn fits(&self, packet: &[u8], layout: Layout, pending: Pending) -> bool {
        let first = &self.bytes[VIRTIO_LEN..];
        let payload = packet.len() - layout.headers;
        layout == pending.layout
            && payload <= pending.size
            && first.len() + payload <= ipv4::MAX_PACKET
            && has_same_flow_headers(first, packet, layout)
            && (layout.upper == Upper::Udp || sequence(packet, layout) == pending.next)
    }

    fn append(&mut self, packet: &[u8], layout: Layout, pending: Pending) {
        self.bytes.extend_from_slice(&packet[layout.headers..]);
        let (size, has_psh) = (packet.len() - layout.headers, has_psh(packet, layout));
        let pending = Pending { next: next(packet, layout), is_coalesced: true, ..pending };
        if has_psh {
            self.bytes[VIRTIO_LEN + layout.ip + 13] |= PSH;
        }
        self.pending = Some(pending);
        if has_psh || size < pending.size {
            // No packet may follow a shorter one.
            self.close(pending);
            self.pending = None;
        }
    }

    /// Completes a super-packet: lengths, and a partial checksum that the kernel completes if necessary.
    fn close(&mut self, pending: Pending) {
        let Pending { layout, size, .. } = pending;
        let (header, packet) = self.bytes.split_at_mut(VIRTIO_LEN);
        let len = packet.len();
        layout.write_ip_header(packet, len);
        if layout.upper == Upper::Udp {
            ipv4::put_word(
                packet,
                layout.ip + 4,
                u16::try_from(len - layout.ip).expect("the length fits in 16 bits"),
            );
        }
        let at = layout.upper.checksum_at();
        let pseudo = ipv4::fold(layout.pseudo(packet));
        ipv4::put_checksum(packet, layout.ip + at, pseudo);
        let kind = match layout.upper {
            Upper::Tcp => Kind::Tcp(size),
            Upper::Udp => Kind::Udp(size),
        };
        header.copy_from_slice(&Header { kind, checksum: Some((layout.ip, at)) }.bytes(layout.headers));
    }
}

/// Layout of a packet that may be coalesced: no IPv4 options, a payload, and no TCP flags except ACK and
/// PSH.
fn coalescible(packet: &[u8]) -> Option<Layout> {
    let layout = Layout::of(packet)?;
    let is_plain = layout.ip == ipv4::HEADER && layout.headers < packet.len();
    let flags_fit = layout.upper == Upper::Udp || packet[layout.ip + 13] & !PSH == ACK;
    (is_plain && flags_fit && layout.is_intact(packet)).then_some(layout)
}

/// Whether the packet has the TCP flag PSH.
fn has_psh(packet: &[u8], layout: Layout) -> bool {
    layout.upper == Upper::Tcp && packet[layout.ip + 13] & PSH != 0
}

/// Whether two packets have equal headers, except for fields that differ between consecutive packets.
fn has_same_flow_headers(first: &[u8], packet: &[u8], layout: Layout) -> bool {
    let same = |from: usize, to: usize| first[from..to] == packet[from..to];
    // Without length, identification and checksum.
    let same_ip = same(0, 2) && same(6, 10) && same(12, 20);
    let upper = layout.ip;
    same_ip
        && match layout.upper {
            // Ports; acknowledgement number and data offset; window; urgent pointer and options.
            Upper::Tcp => {
                same(upper, upper + 4)
                    && same(upper + 8, upper + 13)
                    && same(upper + 14, upper + 16)
                    && same(upper + 18, layout.headers)
            }
            Upper::Udp => same(upper, upper + 4),
        }
}

fn sequence(packet: &[u8], layout: Layout) -> u32 {
    let bytes = packet[layout.ip + 4..].first_chunk().expect("a TCP header has at least 20 bytes");
    u32::from_be_bytes(*bytes)
}

/// Sequence number after a TCP segment.
fn next(packet: &[u8], layout: Layout) -> u32 {
    let payload = packet.len() - layout.headers;
    sequence(packet, layout).wrapping_add(payload as u32)
}

/// Round trips: segmented packets are coalesced into the original super-packet.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segmenter;
    use std::cell::RefCell;

    /// Collects the written packets.
    #[derive(Default)]
    struct Written(RefCell<Vec<Vec<u8>>>);

    impl Sink for Written {
        fn write(&self, super_packet: &[u8]) -> io::Result<()> {
            self.0.borrow_mut().push(super_packet.to_vec());
            Ok(())
        }
    }

    /// Super-packet as the kernel delivers it.
    fn super_packet(upper: Upper, size: usize, payload: usize) -> Vec<u8> {
        let number = if upper == Upper::Tcp { 6 } else { 17 };
        let mut packet = vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, number, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        packet.extend([0x30, 0x39, 0, 80]);
        match upper {
            // Sequence number near its wrap, acknowledgement number, eight words with options, ACK and PSH,
            // window.
            Upper::Tcp => packet.extend([
                0xff, 0xff, 0xff, 0, 1, 2, 3, 4, 0x80, 0x18, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6,
                7, 8,
            ]),
            Upper::Udp => packet.extend([0; 4]),
        }
        packet.extend((0..payload).map(|n| (n * 7 + n / 256) as u8));
        let len = packet.len();
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let layout = Layout::of(&packet).unwrap();
        let mut bytes = vec![0; VIRTIO_LEN];
        bytes.extend(packet);
        let mut coalescer = Coalescer { bytes, pending: None };
        coalescer.close(Pending { layout, size, next: 0, is_coalesced: true });
        coalescer.bytes
    }

    fn cut(super_packet: &[u8]) -> Vec<Vec<u8>> {
        let mut segmenter = Segmenter::default();
        segmenter.push(super_packet);
        segmenter.packets()
    }

    fn join(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (written, mut coalescer) = (Written::default(), Coalescer::default());
        packets.iter().for_each(|packet| coalescer.push(packet, &written).unwrap());
        coalescer.flush(&written).unwrap();
        written.0.into_inner()
    }

    #[test]
    fn segmented_packets_are_coalesced_to_the_original() {
        for (upper, size, payload, count) in
            [(Upper::Tcp, 1_368, 60_000, 44), (Upper::Tcp, 100, 200, 2), (Upper::Udp, 36, 1_000, 28)]
        {
            let whole = super_packet(upper, size, payload);
            let packets = cut(&whole);
            assert_eq!(packets.len(), count);
            for packet in &packets {
                let layout = Layout::of(packet).unwrap();
                assert!(layout.is_intact(packet));
                assert_eq!(ipv4::complement(ipv4::add(0, &packet[..20])), [0, 0]);
            }
            assert_eq!(join(&packets), [whole]);
        }
    }

    #[test]
    fn only_the_last_segment_has_psh() {
        let packets = cut(&super_packet(Upper::Tcp, 100, 250));
        let flags: Vec<u8> = packets.iter().map(|packet| packet[33]).collect();
        assert_eq!(flags, [0x10, 0x10, 0x18]);
        let ids: Vec<u8> = packets.iter().map(|packet| packet[5]).collect();
        assert_eq!(ids, [9, 10, 11]);
    }

    #[test]
    fn partial_checksum_is_completed() {
        let mut packet = super_packet(Upper::Udp, 50, 50);
        let header = Header { kind: Kind::Single, checksum: Some((20, 6)) };
        packet[..VIRTIO_LEN].copy_from_slice(&header.bytes(28));
        let packets = cut(&packet);
        assert!(Layout::of(&packets[0]).unwrap().is_intact(&packets[0]));
        assert_eq!(join(&packets), [[&Header::PLAIN.bytes(0)[..], &packets[0]].concat()]);
    }

    #[test]
    fn different_packets_are_not_coalesced() {
        let packets = cut(&super_packet(Upper::Tcp, 100, 400));
        let with = |change: fn(&mut Vec<u8>)| {
            let mut changed = packets.clone();
            change(&mut changed[1]);
            let layout = Layout::of(&changed[1]).unwrap();
            layout.write_upper_checksum(&mut changed[1]);
            join(&changed).len()
        };
        assert_eq!(with(|_| {}), 1);
        // Each changes one field: address, port, acknowledgement number, flag, option, sequence number. The
        // packets after the changed one form a super-packet of their own.
        for change in [
            |packet: &mut Vec<u8>| packet[15] ^= 1,
            |packet: &mut Vec<u8>| packet[21] ^= 1,
            |packet: &mut Vec<u8>| packet[31] ^= 1,
            |packet: &mut Vec<u8>| packet[33] |= 2,
            |packet: &mut Vec<u8>| packet[51] ^= 1,
            |packet: &mut Vec<u8>| packet[27] ^= 1,
        ] {
            assert_eq!(with(change), 3);
        }
        let mut corrupt = packets.clone();
        corrupt[1][60] ^= 1;
        let joined = join(&corrupt);
        assert_eq!((joined.len(), &joined[1][VIRTIO_LEN..]), (3, &corrupt[1][..]));
    }
}
