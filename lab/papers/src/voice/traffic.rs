//! Packets at the moments of a schedule, from behind one end of an arena to behind the other, and how long each was under way.

use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::{Error, Result, sys};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The mark of speech: the DSCP EF, as the DS field.
const EF: u32 = 0xb8;
/// Where the packets arrive.
const PORT: u16 = 9_001;
/// The ear is woken before the mouth, and both before everything else.
const RECEIVER: i32 = 21;
const SENDER: i32 = 20;
/// How long the ear listens at a time, and after how much silence nothing more will come.
const POLL: Duration = Duration::from_millis(50);
const SILENCE: Duration = Duration::from_millis(250);
/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// What the ear needs: number and time of the packet.
const STAMP: usize = 8;

/// Numbers that look random and are the same in every run (splitmix64).
pub(super) struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// When the packets of streams are due that all have this period, begin at random, and end after some periods.
pub(super) fn streams(count: usize, period: Duration, periods: u32, random: &mut Random) -> Vec<Duration> {
    let phases: Vec<Duration> = (0..count).map(|_| period.mul_f64(random.part())).collect();
    let mut due: Vec<Duration> =
        (0..periods).flat_map(|n| phases.iter().map(move |phase| *phase + period * n)).collect();
    due.sort();
    due
}

/// What became of a schedule.
pub(super) struct Heard {
    /// Packets that were sent, from `after` on.
    pub(super) sent: usize,
    /// Milliseconds from when each of them was due until it was there, in the order of arrival.
    pub(super) delays: Vec<f64>,
}

/// Sends packets of `len` bytes at these moments. Those that are due before `after` fill the queues and are not counted.
pub(super) fn send(arena: &Arena, due: &[Duration], len: usize, after: Duration) -> Result<Heard> {
    let ear = arena.inside(1, || UdpSocket::bind((BEHIND[1], PORT)))?;
    let mouth = arena.inside(0, || {
        let socket = UdpSocket::bind((BEHIND[0], 0))?;
        SockRef::from(&socket).set_tos_v4(EF)?;
        socket.connect((BEHIND[1], PORT))?;
        Ok(socket)
    })?;
    let epoch = Instant::now() + POLL;
    let end = epoch + due.last().copied().unwrap_or_default();
    let delays = std::thread::scope(|scope| {
        let ear = scope.spawn(move || hear(&ear, epoch, end, after));
        let said = scope.spawn(move || say(&mouth, epoch, due, len)).join();
        let heard = ear.join();
        said.unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
        heard.unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))
    });
    let delays = delays.map_err(Error::in_front("packets on a schedule"))?;
    Ok(Heard { sent: due.iter().filter(|due| **due >= after).count(), delays })
}

fn say(socket: &UdpSocket, epoch: Instant, due: &[Duration], len: usize) -> io::Result<()> {
    sys::run_before_others(SENDER)?;
    let mut packet = vec![0; len.saturating_sub(HEADERS).max(STAMP)];
    for moment in due {
        std::thread::sleep((epoch + *moment).saturating_duration_since(Instant::now()));
        if let Some(stamp) = packet.first_chunk_mut() {
            *stamp = (moment.as_nanos() as u64).to_be_bytes();
        }
        // What finds no room is lost.
        let _ = socket.send(&packet);
    }
    Ok(())
}

fn hear(socket: &UdpSocket, epoch: Instant, end: Instant, after: Duration) -> io::Result<Vec<f64>> {
    sys::run_before_others(RECEIVER)?;
    socket.set_read_timeout(Some(POLL))?;
    let (mut delays, mut packet, mut last) = (Vec::new(), [0; 2048], end);
    while last.elapsed() < SILENCE {
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
    fn streams_keep_their_period() {
        let period = Duration::from_millis(100);
        let due = streams(7, period, 3, &mut Random::new(1));
        assert_eq!(due.len(), 21);
        assert!(due.is_sorted() && due[6] < period && due[7] >= period);
        for (first, second) in due.iter().zip(&due[7..]) {
            assert_eq!(*second - *first, period);
        }
        assert_ne!(streams(7, period, 1, &mut Random::new(2)), due[..7]);
    }
}
