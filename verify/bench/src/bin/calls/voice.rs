//! Calls in both directions: 50 calls, each with 50 packets per second of 200 bytes, IPv4 header included,
//! that look like RTP (RFC 3550) with G.711 and are marked EF (RFC 3246).
//!
//! Sender and receiver of a direction are threads of this process with a higher priority than all other
//! threads on their CPU. A packet contains its sending time.

use casemate_interop::{Error, Result};
use casemate_testbed::sys;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CALLS: usize = 50;
/// Time between two packets of all calls: each call sends one packet in 20 ms.
const INTERVAL: Duration = Duration::from_micros(20_000 / CALLS as u64);
/// UDP payload: 200 bytes minus the headers of IPv4 and UDP.
const PAYLOAD: usize = 200 - 28;
/// Expedited forwarding (DSCP 46), as a TOS byte.
const EF: u32 = 46 << 2;
const PORT: u16 = 5_004;
/// Length of the RTP header. The sending time follows it.
const RTP: usize = 12;
/// A packet is lost if it does not arrive within this time after the last one was sent.
const DRAIN_TIME: Duration = Duration::from_millis(700);
const POLL: Duration = Duration::from_millis(50);
/// Priorities: the receiver takes its time stamp before any other thread runs.
const RECEIVER: i32 = 30;
const SENDER: i32 = 20;

/// Calls of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallStats {
    pub(crate) sent: u64,
    /// Delays in milliseconds, sorted.
    delays: Vec<f64>,
}

impl CallStats {
    /// Share of packets that did not arrive.
    pub(crate) fn lost(&self) -> f64 {
        1.0 - self.delays.len() as f64 / self.sent.max(1) as f64
    }

    /// Packets that arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.delays.len() as u64
    }

    /// Delay in milliseconds that this share of the packets does not exceed; infinite if none arrived.
    pub(crate) fn delay(&self, share: f64) -> f64 {
        let rank = (self.delays.len() as f64 * share).ceil() as usize;
        self.delays.get(rank.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }
}

/// Runs all calls for `seconds`: from the first end to the second, and back.
pub(crate) fn run_calls(veth: &VethPair, seconds: Duration) -> Result<[CallStats; 2]> {
    let (epoch, is_over) = (Instant::now(), AtomicBool::new(false));
    let receiver_socket = |end: usize| veth.run_in(end, || UdpSocket::bind((INNER_ADDRS[end], PORT)));
    let receivers = [receiver_socket(1)?, receiver_socket(0)?];
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let receivers = receivers.map(|socket| scope.spawn(move || receive(&socket, epoch, is_over)));
        let senders = [0, 1].map(|from| {
            let pid = veth.ends[from].pid();
            scope.spawn(move || send(pid, from, epoch, seconds))
        });
        let sent = senders
            .map(|sender| sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked"))));
        std::thread::sleep(DRAIN_TIME);
        is_over.store(true, Ordering::Relaxed);
        let received = receivers.map(|receiver_socket| {
            receiver_socket.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))
        });
        let calls = sent
            .into_iter()
            .zip(received)
            .map(|(sent, received)| Ok(CallStats { sent: sent?, delays: received? }));
        let calls: Vec<CallStats> = calls.collect::<io::Result<_>>().map_err(Error::context("calls"))?;
        calls.try_into().map_err(|_| Error::new("expected two directions"))
    })
}

fn send(pid: u32, from: usize, epoch: Instant, seconds: Duration) -> io::Result<u64> {
    sys::enter_netns_of(pid)?;
    sys::set_fifo_priority(SENDER)?;
    let call = |_| {
        let socket = UdpSocket::bind((INNER_ADDRS[from], 0))?;
        SockRef::from(&socket).set_tos_v4(EF)?;
        socket.connect((INNER_ADDRS[1 - from], PORT))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let calls: Vec<UdpSocket> = (0..CALLS).map(call).collect::<io::Result<_>>()?;
    let (begin, mut sent) = (Instant::now(), 0_u32);
    while begin.elapsed() < seconds {
        let call = sent as usize % CALLS;
        let packet = packet(call, sent / CALLS as u32, epoch.elapsed());
        // Packets are lost if the queue is full.
        let _ = calls[call].send(&packet);
        sent += 1;
        std::thread::sleep((INTERVAL * sent).saturating_sub(begin.elapsed()));
    }
    Ok(sent.into())
}

/// Packet `n` of a call: RTP header with 160 samples of G.711 per packet, followed by the sending time.
fn packet(call: usize, n: u32, now: Duration) -> [u8; PAYLOAD] {
    let mut packet = [0; PAYLOAD];
    packet[0] = 2 << 6;
    packet[2..4].copy_from_slice(&(n as u16).to_be_bytes());
    packet[4..8].copy_from_slice(&(n * 160).to_be_bytes());
    packet[8..12].copy_from_slice(&(call as u32).to_be_bytes());
    packet[RTP..RTP + 8].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
    packet
}

/// Delays of the received packets in milliseconds, sorted.
fn receive(socket: &UdpSocket, epoch: Instant, is_over: &AtomicBool) -> io::Result<Vec<f64>> {
    sys::set_fifo_priority(RECEIVER)?;
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
    fn delays_and_losses_are_computed() {
        let sent = packet(7, 3, Duration::from_millis(40));
        assert_eq!((sent[0], &sent[2..4], sent[11]), (0x80, &[0, 3][..], 7));
        assert_eq!(since(&sent, Duration::from_millis(42)), 2.0);
        let stats = CallStats { sent: 200, delays: (1..=100).map(f64::from).collect() };
        assert_eq!(
            (stats.lost(), stats.delay(0.5), stats.delay(0.99), stats.delay(1.0)),
            (0.5, 50.0, 99.0, 100.0)
        );
        assert!(CallStats::default().delay(0.5).is_infinite());
    }
}
