//! What is cut and joined again is what it was.

use super::*;
use crate::cut::Cutter;
use std::cell::RefCell;

/// Keeps what is written.
#[derive(Default)]
struct Kept(RefCell<Vec<Vec<u8>>>);

impl Sink for Kept {
    fn write(&self, super_packet: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().push(super_packet.to_vec());
        Ok(())
    }
}

/// A super-packet as the kernel hands it over.
fn super_packet(upper: Upper, size: usize, payload: usize) -> Vec<u8> {
    let number = if upper == Upper::Tcp { 6 } else { 17 };
    let mut packet = vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, number, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    packet.extend([0x30, 0x39, 0, 80]);
    match upper {
        // Sequence number close to its end, acknowledgement, eight words with options, ACK and PSH, window.
        Upper::Tcp => packet.extend([
            0xff, 0xff, 0xff, 0, 1, 2, 3, 4, 0x80, 0x18, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7,
            8,
        ]),
        Upper::Udp => packet.extend([0; 4]),
    }
    packet.extend((0..payload).map(|n| (n * 7 + n / 256) as u8));
    let len = packet.len();
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    let layout = Layout::of(&packet).unwrap();
    let mut bytes = vec![0; virtio::LEN];
    bytes.extend(packet);
    let mut joiner = Joiner { bytes, open: None };
    joiner.close(Open { layout, size, next: 0, is_several: true });
    joiner.bytes
}

fn cut(super_packet: &[u8]) -> Vec<Vec<u8>> {
    let mut cutter = Cutter::default();
    cutter.push(super_packet);
    cutter.packets()
}

fn join(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (kept, mut joiner) = (Kept::default(), Joiner::default());
    packets.iter().for_each(|packet| joiner.push(packet, &kept).unwrap());
    joiner.flush(&kept).unwrap();
    kept.0.into_inner()
}

#[test]
fn what_is_cut_is_joined_to_the_same() {
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
fn only_the_last_packet_is_pushed() {
    let packets = cut(&super_packet(Upper::Tcp, 100, 250));
    let flags: Vec<u8> = packets.iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [0x10, 0x10, 0x18]);
    let ids: Vec<u8> = packets.iter().map(|packet| packet[5]).collect();
    assert_eq!(ids, [9, 10, 11]);
}

#[test]
fn a_checksum_that_the_kernel_left_open_is_completed() {
    let mut packet = super_packet(Upper::Udp, 50, 50);
    let header = Header { kind: Kind::Single, checksum: Some((20, 6)) };
    packet[..virtio::LEN].copy_from_slice(&header.bytes(28));
    let packets = cut(&packet);
    assert!(Layout::of(&packets[0]).unwrap().is_intact(&packets[0]));
    assert_eq!(join(&packets), [[&Header::PLAIN.bytes(0)[..], &packets[0]].concat()]);
}

#[test]
fn what_does_not_belong_together_stays_apart() {
    let packets = cut(&super_packet(Upper::Tcp, 100, 400));
    let with = |change: fn(&mut Vec<u8>)| {
        let mut changed = packets.clone();
        change(&mut changed[1]);
        let layout = Layout::of(&changed[1]).unwrap();
        layout.finish_upper(&mut changed[1]);
        join(&changed).len()
    };
    assert_eq!(with(|_| {}), 1);
    // Another address, port, acknowledgement, flag, option; a gap; and behind each the rest goes on alone.
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
    assert_eq!((joined.len(), &joined[1][virtio::LEN..]), (3, &corrupt[1][..]));
}
