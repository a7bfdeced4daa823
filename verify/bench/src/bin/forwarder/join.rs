//! Packets from the wire, joined to super-packets. Only packets whose checksums are right are joined: the kernel does not
//! look at the checksums of what it gets joined.

use crate::ipv4::{self, Layout, Upper};
use crate::tun::Sink;
use crate::virtio::{self, Header, Kind};
use std::io;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// A packet, or several of one flow, on their way to the TUN interface.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// A place for the header, and the packet.
    bytes: Vec<u8>,
    /// Of the packet that more may follow.
    open: Option<Open>,
}

/// What the next packet has to fit.
#[derive(Debug, Clone, Copy)]
struct Open {
    layout: Layout,
    /// Bytes of each but the last.
    size: usize,
    /// TCP's next sequence number.
    next: u32,
    is_several: bool,
}

impl Joiner {
    /// Takes a packet; what it does not fit is written before.
    pub(crate) fn push(&mut self, packet: &[u8], tun: &impl Sink) -> io::Result<()> {
        let layout = joinable(packet);
        if let (Some(layout), Some(open)) = (layout, self.open)
            && self.fits(packet, layout, open)
        {
            self.append(packet, layout, open);
            return Ok(());
        }
        self.flush(tun)?;
        self.bytes.extend_from_slice(&Header::PLAIN.bytes(0));
        self.bytes.extend_from_slice(packet);
        self.open = layout.filter(|layout| !is_pushed(packet, *layout)).map(|layout| {
            let size = packet.len() - layout.headers;
            Open { layout, size, next: next(packet, layout), is_several: false }
        });
        Ok(())
    }

    /// Writes what there is.
    pub(crate) fn flush(&mut self, tun: &impl Sink) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        if let Some(open) = self.open.take().filter(|open| open.is_several) {
            self.close(open);
        }
        let written = tun.write(&self.bytes);
        self.bytes.clear();
        written
    }

    fn fits(&self, packet: &[u8], layout: Layout, open: Open) -> bool {
        let first = &self.bytes[virtio::LEN..];
        let payload = packet.len() - layout.headers;
        layout == open.layout
            && payload <= open.size
            && first.len() + payload <= ipv4::LARGEST
            && is_alike(first, packet, layout)
            && (layout.upper == Upper::Udp || sequence(packet, layout) == open.next)
    }

    fn append(&mut self, packet: &[u8], layout: Layout, open: Open) {
        self.bytes.extend_from_slice(&packet[layout.headers..]);
        let (size, is_pushed) = (packet.len() - layout.headers, is_pushed(packet, layout));
        let open = Open { next: next(packet, layout), is_several: true, ..open };
        if is_pushed {
            self.bytes[virtio::LEN + layout.ip + 13] |= PSH;
        }
        self.open = Some(open);
        if is_pushed || size < open.size {
            // Nothing may follow.
            self.close(open);
            self.open = None;
        }
    }

    /// Makes a super-packet of several packets: lengths, and a checksum that the kernel completes if it has to.
    fn close(&mut self, open: Open) {
        let Open { layout, size, .. } = open;
        let (header, packet) = self.bytes.split_at_mut(virtio::LEN);
        let len = packet.len();
        layout.finish_ip(packet, len);
        if layout.upper == Upper::Udp {
            ipv4::put(packet, layout.ip + 4, u16::try_from(len - layout.ip).expect("a packet's length"));
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

/// A packet that may stand among others: without IPv4 options, with a payload, and with no flag of TCP but ACK and PSH.
fn joinable(packet: &[u8]) -> Option<Layout> {
    let layout = Layout::of(packet)?;
    let is_plain = layout.ip == ipv4::HEADER && layout.headers < packet.len();
    let flags_fit = layout.upper == Upper::Udp || packet[layout.ip + 13] & !PSH == ACK;
    (is_plain && flags_fit && layout.is_intact(packet)).then_some(layout)
}

/// Whether TCP asks for what it has so far to be delivered.
fn is_pushed(packet: &[u8], layout: Layout) -> bool {
    layout.upper == Upper::Tcp && packet[layout.ip + 13] & PSH != 0
}

/// Whether two packets have the same headers but for what differs in packets that follow each other.
fn is_alike(first: &[u8], packet: &[u8], layout: Layout) -> bool {
    let same = |from: usize, to: usize| first[from..to] == packet[from..to];
    // Not the length, the identification and the checksum.
    let same_ip = same(0, 2) && same(6, 10) && same(12, 20);
    let upper = layout.ip;
    same_ip
        && match layout.upper {
            // Ports; acknowledgement and lengths; window; urgent pointer and options.
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
    let bytes = packet[layout.ip + 4..].first_chunk().expect("a TCP header is longer");
    u32::from_be_bytes(*bytes)
}

/// The sequence number behind a packet of TCP.
fn next(packet: &[u8], layout: Layout) -> u32 {
    let payload = packet.len() - layout.headers;
    sequence(packet, layout).wrapping_add(payload as u32)
}

#[cfg(test)]
mod tests;
