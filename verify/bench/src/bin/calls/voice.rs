//! Calls, both ways: 50 of them, each with 50 packets a second of 200 bytes, IPv4 header included, that look like RTP (RFC 3550)
//! with G.711 in it and are marked EF (RFC 3246).
//!
//! Sender and receiver of a direction are threads of this process that run before all others on their CPU; a packet carries
//! the time at which it was sent.

use casemate_interop::{Error, Result};
use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::sys;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CALLS: usize = 50;
/// From one packet to the next, of any call: each call sends one in 20 ms.
const INTERVAL: Duration = Duration::from_micros(20_000 / CALLS as u64);
/// Of UDP: 200 bytes without the headers of IPv4 and UDP.
const PAYLOAD: usize = 200 - 28;
/// Expedited forwarding, in the place of DSCP in the byte of IPv4.
const EF: u32 = 46 << 2;
const PORT: u16 = 5_004;
/// Of RTP; behind it is when the packet was sent.
const RTP: usize = 12;
/// What is not there so long after the last was sent is lost.
const LAST_ORDERS: Duration = Duration::from_millis(700);
const POLL: Duration = Duration::from_millis(50);
/// A receiver looks at the clock before anybody else does anything.
const RECEIVER: i32 = 30;
const SENDER: i32 = 20;

/// The calls of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leg {
    pub(crate) sent: u64,
    /// Milliseconds on the way, in order.
    delays: Vec<f64>,
}

impl Leg {
    /// What did not arrive, of 1.
    pub(crate) fn lost(&self) -> f64 {
        1.0 - self.delays.len() as f64 / self.sent.max(1) as f64
    }

    /// Packets that arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.delays.len() as u64
    }

    /// Milliseconds that this share of the packets, of 1, took at most; infinite if none arrived.
    pub(crate) fn delay(&self, share: f64) -> f64 {
        let rank = (self.delays.len() as f64 * share).ceil() as usize;
        self.delays.get(rank.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }
}

/// Lets all calls go on for so long: from the first end to the second, and back.
pub(crate) fn speak(arena: &Arena, seconds: Duration) -> Result<[Leg; 2]> {
    let (epoch, is_over) = (Instant::now(), AtomicBool::new(false));
    let ear = |end: usize| arena.inside(end, || UdpSocket::bind((BEHIND[end], PORT)));
    let ears = [ear(1)?, ear(0)?];
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let ears = ears.map(|socket| scope.spawn(move || hear(&socket, epoch, is_over)));
        let mouths = [0, 1].map(|from| {
            let pid = arena.ends[from].pid();
            scope.spawn(move || say(pid, from, epoch, seconds))
        });
        let sent = mouths.map(|mouth| mouth.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        std::thread::sleep(LAST_ORDERS);
        is_over.store(true, Ordering::Relaxed);
        let heard = ears.map(|ear| ear.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        let legs = sent.into_iter().zip(heard).map(|(sent, heard)| Ok(Leg { sent: sent?, delays: heard? }));
        let legs: Vec<Leg> = legs.collect::<io::Result<_>>().map_err(Error::in_front("calls"))?;
        legs.try_into().map_err(|_| Error::new("there are two directions"))
    })
}

fn say(pid: u32, from: usize, epoch: Instant, seconds: Duration) -> io::Result<u64> {
    sys::enter_network_of(pid)?;
    sys::run_before_others(SENDER)?;
    let call = |_| {
        let socket = UdpSocket::bind((BEHIND[from], 0))?;
        SockRef::from(&socket).set_tos_v4(EF)?;
        socket.connect((BEHIND[1 - from], PORT))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let calls: Vec<UdpSocket> = (0..CALLS).map(call).collect::<io::Result<_>>()?;
    let (begin, mut sent) = (Instant::now(), 0_u32);
    while begin.elapsed() < seconds {
        let call = sent as usize % CALLS;
        let packet = packet(call, sent / CALLS as u32, epoch.elapsed());
        // What finds no room is lost.
        let _ = calls[call].send(&packet);
        sent += 1;
        std::thread::sleep((INTERVAL * sent).saturating_sub(begin.elapsed()));
    }
    Ok(sent.into())
}

/// The n-th packet of a call: RTP's header with 160 samples of G.711 in each packet, then when it is sent.
fn packet(call: usize, n: u32, now: Duration) -> [u8; PAYLOAD] {
    let mut packet = [0; PAYLOAD];
    packet[0] = 2 << 6;
    packet[2..4].copy_from_slice(&(n as u16).to_be_bytes());
    packet[4..8].copy_from_slice(&(n * 160).to_be_bytes());
    packet[8..12].copy_from_slice(&(call as u32).to_be_bytes());
    packet[RTP..RTP + 8].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
    packet
}

/// Milliseconds on the way, in order.
fn hear(socket: &UdpSocket, epoch: Instant, is_over: &AtomicBool) -> io::Result<Vec<f64>> {
    sys::run_before_others(RECEIVER)?;
    socket.set_read_timeout(Some(POLL))?;
    let (mut delays, mut packet) = (Vec::new(), [0; PAYLOAD + 1]);
    while !is_over.load(Ordering::Relaxed) {
        match socket.recv(&mut packet) {
            Ok(PAYLOAD) => delays.push(since(&packet, epoch.elapsed())),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    delays.sort_by(f64::total_cmp);
    Ok(delays)
}

/// Milliseconds since a packet was sent.
fn since(packet: &[u8], now: Duration) -> f64 {
    let sent = packet[RTP..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(sent)).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_and_losses_are_told() {
        let sent = packet(7, 3, Duration::from_millis(40));
        assert_eq!((sent[0], &sent[2..4], sent[11]), (0x80, &[0, 3][..], 7));
        assert_eq!(since(&sent, Duration::from_millis(42)), 2.0);
        let leg = Leg { sent: 200, delays: (1..=100).map(f64::from).collect() };
        assert_eq!((leg.lost(), leg.delay(0.5), leg.delay(0.99), leg.delay(1.0)), (0.5, 50.0, 99.0, 100.0));
        assert!(Leg::default().delay(0.5).is_infinite());
    }
}
