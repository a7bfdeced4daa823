//! Small packets of many flows: how many arrive in a second.
//!
//! iperf3 is too slow for this; sender and receiver are threads of this process, one in each namespace. The packets of the
//! flows take turns, so that no two that follow each other are of one flow or of one length. The sender knows how many
//! have arrived, past the tunnel, and keeps at most [`WINDOW`] on the way: a tunnel that is slow is not flooded, and
//! the sender sleeps meanwhile.

use super::Meter;
use crate::arena::{Arena, BEHIND};
use crate::sys::{self, Sieve};
use casemate_interop::{Error, Result};
use std::io;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Lengths of the packets, IPv4 header included; each is one flow.
const LENGTHS: RangeInclusive<usize> = 64..=256;
/// From one of them to the next.
const STEP: usize = 4;
/// Of IPv4 and UDP.
const HEADERS: usize = 28;
/// Packets on the way at most: as many as the queue of a TUN interface takes without dropping one.
const WINDOW: u64 = 400;
/// As few are on the way when the sender goes on.
const LOW: u64 = WINDOW / 2;
/// What has not arrived for so long is lost.
const LOST: Duration = Duration::from_millis(20);
/// Before the count begins.
const WARM_UP: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_millis(50);
const PORT: u16 = 9_000;

/// What the packets came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) packets_per_second: f64,
    /// CPU time of the tunnel's processes for one of them, in microseconds.
    pub(crate) cpu_us: f64,
    /// What did not arrive, of 1.
    pub(crate) lost: f64,
}

/// What the threads tell each other.
#[derive(Default)]
struct Shared {
    received: AtomicU64,
    lost: AtomicU64,
    /// When so many have arrived, the sender waits for being woken up.
    wanted: AtomicU64,
    is_over: AtomicBool,
}

pub(crate) fn measure(arena: &Arena, meter: &Meter<'_>, seconds: Duration) -> Result<Outcome> {
    let shared = &Shared::default();
    let [sender, receiver] = [&arena.ends[0], &arena.ends[1]].map(casemate_interop::Netns::pid);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || send(sender, shared));
        let woken = sender.thread().clone();
        let receiver = scope.spawn(move || receive(receiver, &woken, shared));
        let outcome = observe(shared, meter, seconds);
        shared.is_over.store(true, Ordering::Relaxed);
        for (name, thread) in [("sender", sender), ("receiver", receiver)] {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
                .map_err(Error::in_front(name))?;
        }
        outcome
    })
}

fn observe(shared: &Shared, meter: &Meter<'_>, seconds: Duration) -> Result<Outcome> {
    let counts = || (shared.received.load(Ordering::Relaxed), shared.lost.load(Ordering::Relaxed));
    std::thread::sleep(WARM_UP);
    let (begin, cpu, (received, lost)) = (Instant::now(), meter.cpu()?, counts());
    std::thread::sleep(seconds);
    let (took, cpu, now) = (begin.elapsed(), meter.cpu()?.saturating_sub(cpu), counts());
    let (received, lost) = ((now.0 - received) as f64, (now.1 - lost) as f64);
    if received == 0.0 {
        return Err(Error::new("no small packet arrives"));
    }
    Ok(Outcome {
        packets_per_second: received / took.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / received,
        lost: lost / (received + lost),
    })
}

fn receive(pid: u32, sender: &Thread, shared: &Shared) -> io::Result<()> {
    sys::enter_network_of(pid)?;
    let socket = UdpSocket::bind((BEHIND[1], PORT))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut sieve = Sieve::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let count = sieve.receive(&socket)? as u64;
        let before = shared.received.fetch_add(count, Ordering::SeqCst);
        let wanted = shared.wanted.load(Ordering::SeqCst);
        if before < wanted && wanted <= before + count {
            sender.unpark();
        }
    }
    Ok(())
}

fn send(pid: u32, shared: &Shared) -> io::Result<()> {
    sys::enter_network_of(pid)?;
    let flow = |length| {
        let socket = UdpSocket::bind((BEHIND[0], 0))?;
        socket.connect((BEHIND[1], PORT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok((socket, vec![0; length - HEADERS]))
    };
    let flows: Vec<(UdpSocket, Vec<u8>)> = LENGTHS.step_by(STEP).map(flow).collect::<io::Result<_>>()?;
    let (mut sent, mut turns) = (0, flows.iter().cycle());
    while !shared.is_over.load(Ordering::Relaxed) {
        let free = wait_for_room(sent, shared);
        for (socket, bytes) in turns.by_ref().take(free as usize) {
            // A queue that is full, or nobody there yet: what is not sent does not arrive, and counts as lost.
            let _ = socket.send(bytes);
            sent += 1;
        }
    }
    Ok(())
}

/// How many packets may be sent, when there are few on the way. What is on the way for too long is given up.
fn wait_for_room(sent: u64, shared: &Shared) -> u64 {
    let Shared { received, lost, wanted, is_over } = shared;
    while !is_over.load(Ordering::Relaxed) {
        let gone = lost.load(Ordering::Relaxed);
        let on_the_way = sent.saturating_sub(received.load(Ordering::SeqCst) + gone);
        if on_the_way <= LOW {
            return WINDOW - on_the_way;
        }
        let target = sent - gone - LOW;
        wanted.store(target, Ordering::SeqCst);
        // It may have arrived in between; then nobody wakes us up.
        if received.load(Ordering::SeqCst) < target {
            std::thread::park_timeout(LOST);
            if received.load(Ordering::SeqCst) < target {
                lost.fetch_add(on_the_way, Ordering::Relaxed);
            }
        }
    }
    0
}
