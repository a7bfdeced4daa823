//! Super-packets, cut into the packets that go over the wire, each a datagram; and how these are sent.

use crate::ipv4::{self, Layout, Upper};
use crate::udp::{self, Udp};
use crate::virtio::{Header, Kind};
use std::io;

/// Flags of TCP that only the last packet of several keeps: FIN and PSH.
const ONLY_LAST: u8 = 0x09;
/// The flag that only the first one keeps: CWR.
const ONLY_FIRST: u8 = 0x80;

/// Packets that wait to be sent, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Cutter {
    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes what was read from the TUN interface.
    pub(crate) fn push(&mut self, super_packet: &[u8]) {
        let (header, packet) = Header::split(super_packet);
        match (header.kind, Layout::of(packet)) {
            (Kind::Tcp(size) | Kind::Udp(size), Some(layout)) => self.cut(packet, layout, size),
            _ => self.complete(packet, header),
        }
    }

    /// Several packets with `size` bytes each.
    fn cut(&mut self, packet: &[u8], layout: Layout, size: usize) {
        let (headers, payload) = packet.split_at(layout.headers);
        let pieces = payload.chunks(size);
        let last = pieces.len().saturating_sub(1);
        for (number, piece) in pieces.enumerate() {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(headers);
            self.bytes.extend_from_slice(piece);
            let packet = &mut self.bytes[begin..];
            let identification = ipv4::word(packet, 4).unwrap_or_default();
            ipv4::put(packet, 4, identification.wrapping_add(number as u16));
            layout.finish_ip(packet, headers.len() + piece.len());
            if layout.upper == Upper::Tcp {
                step_tcp(&mut packet[layout.ip..], number * size, (number == 0, number == last));
            }
            layout.finish_upper(packet);
            self.lengths.push(headers.len() + piece.len());
        }
    }

    /// One packet, whose checksum may have to be completed.
    fn complete(&mut self, packet: &[u8], header: Header) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.lengths.push(packet.len());
        let Some((start, offset)) = header.checksum else { return };
        let covered = &mut self.bytes[begin + start..];
        let checksum = ipv4::not_zero(ipv4::complement(ipv4::add(0, covered)));
        ipv4::put_checksum(covered, offset, checksum);
    }

    /// Sends all. Packets of one length, and a shorter one behind them, go in one call.
    pub(crate) fn send(&mut self, udp: &Udp) -> io::Result<()> {
        let (mut bytes, mut lengths) = (self.bytes.as_slice(), self.lengths.as_slice());
        while let Some(&size) = lengths.first() {
            let count = run(lengths);
            let (these, others) = lengths.split_at(count);
            let (datagrams, rest) = bytes.split_at(these.iter().sum());
            udp.send(datagrams, size)?;
            (bytes, lengths) = (rest, others);
        }
        self.bytes.clear();
        self.lengths.clear();
        Ok(())
    }
}

/// How many of the first packets go in one call.
fn run(lengths: &[usize]) -> usize {
    let size = lengths[0];
    let most = (udp::MOST_BYTES / size).clamp(1, udp::MOST_DATAGRAMS);
    let equal = lengths.iter().take(most).take_while(|len| **len == size).count();
    let shorter = lengths.get(equal).is_some_and(|len| *len < size);
    equal + usize::from(equal < most && shorter)
}

/// Sequence number and flags of one of several TCP packets.
fn step_tcp(tcp: &mut [u8], offset: usize, (is_first, is_last): (bool, bool)) {
    let sequence = tcp[4..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).unwrap_or_default();
    tcp[4..8].copy_from_slice(&sequence.wrapping_add(offset as u32).to_be_bytes());
    if !is_last {
        tcp[13] &= !ONLY_LAST;
    }
    if !is_first {
        tcp[13] &= !ONLY_FIRST;
    }
}

#[cfg(test)]
impl Cutter {
    /// The packets that wait.
    pub(crate) fn packets(&self) -> Vec<Vec<u8>> {
        let mut rest = self.bytes.as_slice();
        let mut take = |len: &usize| rest.split_off(..*len).unwrap().to_vec();
        self.lengths.iter().map(&mut take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_of_equal_lengths_and_a_shorter_end() {
        assert_eq!(run(&[100, 100, 40, 100]), 3);
        assert_eq!(run(&[100, 100, 101]), 2);
        assert_eq!(run(&[100]), 1);
        assert_eq!(run(&[1400; 100]), 46);
        assert_eq!(run(&[64; 100]), udp::MOST_DATAGRAMS);
    }
}
