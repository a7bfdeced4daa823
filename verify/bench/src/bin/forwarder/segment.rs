//! Segmentation of super-packets into the packets on the wire, one per datagram, and their transmission.

use crate::ipv4::{self, Layout, Upper};
use crate::tun::{Header, Kind};
use crate::udp::{self, Udp};
use std::io;

/// TCP flags of the last segment only: FIN and PSH.
const ONLY_LAST: u8 = 0x09;
/// TCP flag of the first segment only: CWR.
const ONLY_FIRST: u8 = 0x80;

/// Packets to send, concatenated.
#[derive(Debug, Default)]
pub(crate) struct Segmenter {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Segmenter {
    /// Whether no packet is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes of the queued packets.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Queues a packet that was read from the TUN interface.
    pub(crate) fn push(&mut self, super_packet: &[u8]) {
        let (header, packet) = Header::split(super_packet);
        match (header.kind, Layout::of(packet)) {
            (Kind::Tcp(size) | Kind::Udp(size), Some(layout)) => self.cut(packet, layout, size),
            _ => self.complete(packet, header),
        }
    }

    /// Splits a super-packet into packets with `size` bytes of payload each.
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
            ipv4::put_word(packet, 4, identification.wrapping_add(number as u16));
            layout.write_ip_header(packet, headers.len() + piece.len());
            if layout.upper == Upper::Tcp {
                set_tcp_header(&mut packet[layout.ip..], number * size, (number == 0, number == last));
            }
            layout.write_upper_checksum(packet);
            self.lengths.push(headers.len() + piece.len());
        }
    }

    /// Queues a single packet, and completes its checksum if necessary.
    fn complete(&mut self, packet: &[u8], header: Header) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.lengths.push(packet.len());
        let Some((start, offset)) = header.checksum else { return };
        let covered = &mut self.bytes[begin + start..];
        let checksum = ipv4::nonzero(ipv4::complement(ipv4::add(0, covered)));
        ipv4::put_checksum(covered, offset, checksum);
    }

    /// Sends all packets. Packets of the same length, and a shorter one after them, go in one call.
    pub(crate) fn send(&mut self, udp: &Udp) -> io::Result<()> {
        let (mut bytes, mut lengths) = (self.bytes.as_slice(), self.lengths.as_slice());
        while let Some(&size) = lengths.first() {
            let count = call_count(lengths);
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

/// Number of packets to send in one call.
fn call_count(lengths: &[usize]) -> usize {
    let size = lengths[0];
    let most = (udp::MAX_BYTES / size).clamp(1, udp::MAX_DATAGRAMS);
    let equal = lengths.iter().take(most).take_while(|len| **len == size).count();
    let shorter = lengths.get(equal).is_some_and(|len| *len < size);
    equal + usize::from(equal < most && shorter)
}

/// Sets sequence number and flags of a TCP segment.
fn set_tcp_header(tcp: &mut [u8], offset: usize, (is_first, is_last): (bool, bool)) {
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
impl Segmenter {
    /// Queued packets.
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
    fn one_call_sends_equal_lengths_and_a_shorter_last_packet() {
        assert_eq!(call_count(&[100, 100, 40, 100]), 3);
        assert_eq!(call_count(&[100, 100, 101]), 2);
        assert_eq!(call_count(&[100]), 1);
        assert_eq!(call_count(&[1400; 100]), 46);
        assert_eq!(call_count(&[64; 100]), udp::MAX_DATAGRAMS);
    }
}
