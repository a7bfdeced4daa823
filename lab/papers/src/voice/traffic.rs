//! Packets sent on a schedule from the first end of a veth pair to the second, and their delays.

use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Error, Result, sys};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// DS field of voice packets: DSCP EF.
const EF: u32 = 0xb8;
/// UDP port of the receiver.
const PORT: u16 = 9_001;
/// Real-time priorities. The receiver runs before the sender, and both before everything else.
const RECEIVER_PRIORITY: i32 = 21;
const SENDER_PRIORITY: i32 = 20;
/// Read timeout of the receiver, and the time without packets after which it ends.
const POLL: Duration = Duration::from_millis(50);
const IDLE_TIMEOUT: Duration = Duration::from_millis(250);
/// Length of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Length of the timestamp in a packet: the scheduled time in nanoseconds.
const TIMESTAMP_LEN: usize = 8;

/// Deterministic pseudorandom numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    /// Creates a generator with its own sequence for each seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Sending times of `count` periodic streams with random phases, for this many periods, sorted.
pub(super) fn schedule(count: usize, period: Duration, periods: u32, random: &mut Random) -> Vec<Duration> {
    let phases: Vec<Duration> = (0..count).map(|_| period.mul_f64(random.unit())).collect();
    let mut due: Vec<Duration> =
        (0..periods).flat_map(|n| phases.iter().map(move |phase| *phase + period * n)).collect();
    due.sort();
    due
}

/// Packets of a schedule that have arrived.
pub(super) struct Arrivals {
    /// Number of packets that were sent from `after` on.
    pub(super) sent: usize,
    /// Delay of each packet in milliseconds from its scheduled time, in the order of arrival.
    pub(super) delays: Vec<f64>,
}

/// Sends packets of `len` bytes at these times. Packets before `after` fill the queues and are not counted.
pub(super) fn send(veth: &VethPair, due: &[Duration], len: usize, after: Duration) -> Result<Arrivals> {
    let receiver = veth.run_in(1, || UdpSocket::bind((INNER_ADDRS[1], PORT)))?;
    let sender = veth.run_in(0, || {
        let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
        SockRef::from(&socket).set_tos_v4(EF)?;
        socket.connect((INNER_ADDRS[1], PORT))?;
        Ok(socket)
    })?;
    let epoch = Instant::now() + POLL;
    let end = epoch + due.last().copied().unwrap_or_default();
    let delays = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(&receiver, epoch, end, after));
        let sent = scope.spawn(move || transmit(&sender, epoch, due, len)).join();
        let received = receiver.join();
        sent.unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
        received.unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))
    });
    let delays = delays.map_err(Error::context("packets on a schedule"))?;
    Ok(Arrivals { sent: due.iter().filter(|due| **due >= after).count(), delays })
}

fn transmit(socket: &UdpSocket, epoch: Instant, due: &[Duration], len: usize) -> io::Result<()> {
    sys::set_fifo_priority(SENDER_PRIORITY)?;
    let mut packet = vec![0; len.saturating_sub(HEADERS).max(TIMESTAMP_LEN)];
    for moment in due {
        std::thread::sleep((epoch + *moment).saturating_duration_since(Instant::now()));
        if let Some(stamp) = packet.first_chunk_mut() {
            *stamp = (moment.as_nanos() as u64).to_be_bytes();
        }
        // Packets without space in the queue are lost.
        let _ = socket.send(&packet);
    }
    Ok(())
}

fn receive(socket: &UdpSocket, epoch: Instant, end: Instant, after: Duration) -> io::Result<Vec<f64>> {
    sys::set_fifo_priority(RECEIVER_PRIORITY)?;
    socket.set_read_timeout(Some(POLL))?;
    let (mut delays, mut packet, mut last) = (Vec::new(), [0; 2048], end);
    while last.elapsed() < IDLE_TIMEOUT {
        match socket.recv(&mut packet) {
            Ok(_) => {
                let now = Instant::now();
                last = last.max(now);
                let due =
                    Duration::from_nanos(packet.first_chunk().map_or(0, |stamp| u64::from_be_bytes(*stamp)));
                let delay = now.saturating_duration_since(epoch + due);
                delays.extend((due >= after).then_some(delay.as_secs_f64() * 1000.0));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduled_streams_are_periodic() {
        let period = Duration::from_millis(100);
        let due = schedule(7, period, 3, &mut Random::new(1));
        assert_eq!(due.len(), 21);
        assert!(due.is_sorted() && due[6] < period && due[7] >= period);
        for (first, second) in due.iter().zip(&due[7..]) {
            assert_eq!(*second - *first, period);
        }
        assert_ne!(schedule(7, period, 1, &mut Random::new(2)), due[..7]);
    }
}
