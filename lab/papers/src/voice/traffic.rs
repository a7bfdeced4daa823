//! Packets sent on a schedule from the first end of a veth pair to the second, and their delays.

use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Error, Netns, Result, sys};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
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
/// Length of the number of a run and of the timestamp in a packet: the scheduled time in nanoseconds.
const RUN_LEN: usize = 4;
const STAMP_LEN: usize = RUN_LEN + 8;

/// Number of the next run. Packets of an earlier run may still arrive during a later one.
static NEXT_RUN: AtomicU32 = AtomicU32::new(0);

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

/// A sender and a receiver with their addresses.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) netns: [&'a Netns; 2],
    pub(super) addrs: [&'a str; 2],
}

impl<'a> From<&'a VethPair> for Ends<'a> {
    fn from(veth: &'a VethPair) -> Self {
        Self { netns: veth.ends.each_ref(), addrs: INNER_ADDRS }
    }
}

/// Sends packets of `len` bytes at these times. Packets before `after` fill the queues and are not counted.
pub(super) fn send<'a>(
    ends: impl Into<Ends<'a>>,
    due: &[Duration],
    len: usize,
    after: Duration,
) -> Result<Arrivals> {
    let Ends { netns: [near, far], addrs: [own, other] } = ends.into();
    let failed = || Error::context("sockets of the calls");
    let receiver = far.run_in(|| UdpSocket::bind((other, PORT)))?.map_err(failed())?;
    let sender = near.run_in(|| {
        let socket = UdpSocket::bind((own, 0))?;
        SockRef::from(&socket).set_tos_v4(EF)?;
        socket.connect((other, PORT))?;
        Ok::<_, io::Error>(socket)
    })?;
    let sender = sender.map_err(failed())?;
    let epoch = Instant::now() + POLL;
    let end = epoch + due.last().copied().unwrap_or_default();
    let run = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
    let delays = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(&receiver, run, due.len(), [epoch, end], after));
        let sent = scope.spawn(move || transmit(&sender, run, epoch, due, len)).join();
        let received = receiver.join();
        sent.unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
        received.unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))
    });
    let delays = delays.map_err(Error::context("packets on a schedule"))?;
    Ok(Arrivals { sent: due.iter().filter(|due| **due >= after).count(), delays })
}

fn transmit(socket: &UdpSocket, run: u32, epoch: Instant, due: &[Duration], len: usize) -> io::Result<()> {
    sys::set_fifo_priority(SENDER_PRIORITY)?;
    let mut packet = vec![0; len.saturating_sub(HEADERS).max(STAMP_LEN)];
    for moment in due {
        std::thread::sleep((epoch + *moment).saturating_duration_since(Instant::now()));
        if let Some(start) = packet.first_chunk_mut() {
            *start = stamp(run, *moment);
        }
        // Packets without space in the queue are lost.
        let _ = socket.send(&packet);
    }
    Ok(())
}

/// The start of a packet: the run, and the scheduled time.
fn stamp(run: u32, due: Duration) -> [u8; STAMP_LEN] {
    let mut stamp = [0; STAMP_LEN];
    let (first, last) = stamp.split_at_mut(RUN_LEN);
    first.copy_from_slice(&run.to_be_bytes());
    last.copy_from_slice(&(due.as_nanos() as u64).to_be_bytes());
    stamp
}

/// Scheduled time of a packet of this run; `None` for a packet of another run.
fn read_stamp(packet: &[u8], run: u32) -> Option<Duration> {
    let (first, rest) = packet.split_first_chunk::<RUN_LEN>()?;
    let due = Duration::from_nanos(u64::from_be_bytes(*rest.first_chunk()?));
    (u32::from_be_bytes(*first) == run).then_some(due)
}

/// Receives the packets of a run that begins and ends at these times, until all `count` have arrived or no
/// more do.
fn receive(
    socket: &UdpSocket,
    run: u32,
    count: usize,
    [epoch, end]: [Instant; 2],
    after: Duration,
) -> io::Result<Vec<f64>> {
    sys::set_fifo_priority(RECEIVER_PRIORITY)?;
    socket.set_read_timeout(Some(POLL))?;
    let (mut delays, mut packet, mut last, mut missing) = (Vec::new(), [0; 2048], end, count);
    while missing > 0 && last.elapsed() < IDLE_TIMEOUT {
        match socket.recv(&mut packet) {
            Ok(len) => {
                let now = Instant::now();
                let Some(due) = read_stamp(packet.get(..len).unwrap_or_default(), run) else { continue };
                (last, missing) = (last.max(now), missing - 1);
                let delay = now.saturating_duration_since(epoch + due);
                delays.extend((due >= after).then_some(delay.as_secs_f64() * 1000.0));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(delays)
}

/// Mean delay in seconds of the packets of a schedule from `after` on, if each takes `service` seconds of a
/// line with an endless queue (Lindley's recursion).
pub(super) fn expected_delay(due: &[Duration], service: f64, after: Duration) -> Option<f64> {
    let (mut free, mut sum, mut count) = (0.0_f64, 0.0, 0.0);
    for moment in due {
        let arrival = moment.as_secs_f64();
        free = free.max(arrival) + service;
        if *moment >= after {
            sum += free - arrival;
            count += 1.0;
        }
    }
    (count > 0.0).then(|| sum / count)
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

    #[test]
    fn packets_of_another_run_do_not_count() {
        let due = Duration::from_micros(1_234);
        let packet = stamp(7, due);
        assert_eq!(read_stamp(&packet, 7), Some(due));
        assert_eq!(read_stamp(&packet, 8), None);
        assert_eq!(read_stamp(&packet[..STAMP_LEN - 1], 7), None);
    }

    #[test]
    fn expected_delays_are_those_of_a_line() {
        let due = [0, 1, 10].map(Duration::from_secs);
        // The second packet waits a second for the first, the third does not wait.
        assert_eq!(expected_delay(&due, 2.0, Duration::ZERO), Some((2.0 + 3.0 + 2.0) / 3.0));
        assert_eq!(expected_delay(&due, 2.0, Duration::from_secs(1)), Some(2.5));
        assert_eq!(expected_delay(&due, 2.0, Duration::from_secs(11)), None);
    }
}
