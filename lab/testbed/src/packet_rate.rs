//! Packet rate of a tunnel: as many packets as it forwards almost without loss.
//!
//! The sender is a thread of this process. The receiver is a socket whose filter drops every packet, so that
//! the kernel counts packets and no time is spent on reading. The sender reads the counter directly, not
//! through the tunnel, and keeps at most 400 packets in flight. A slow tunnel is therefore not flooded, and
//! the sender sleeps while it waits.

use crate::Meter;
use crate::sys;
use crate::veth_pair::VethPair;
use crate::{Error, Result};
use socket2::{Domain, SockFilter, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of packets in flight: the queue of a TUN interface takes as many without a drop.
const WINDOW: u64 = 400;
/// Sleep time of the sender while the window is full.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Packets in flight count as lost if none of them arrives for this time.
const LOSS_TIMEOUT: Duration = Duration::from_millis(20);
/// Time before the measurement starts.
const WARM_UP: Duration = Duration::from_millis(300);
/// UDP port of the receiver, at any address of the second end.
pub const PORT: u16 = 9_000;

/// Result of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct PacketRate {
    /// Packets received per second.
    pub packets_per_second: f64,
    /// CPU time of the tunnel's processes per received packet, in microseconds.
    pub cpu_us: f64,
    /// Share of the packets that were lost, from 0 to 1.
    pub loss: f64,
}

/// State that the sender and the measuring thread share.
#[derive(Default)]
struct Shared {
    received: AtomicU64,
    lost: AtomicU64,
    stop: AtomicBool,
}

/// Sends packets for this time. `open` runs in the namespace of the first end and returns a function that
/// sends the next packet.
pub fn measure<S: FnMut()>(
    veth: &VethPair,
    meter: &Meter<'_>,
    seconds: Duration,
    open: impl FnOnce() -> io::Result<S> + Send,
) -> Result<PacketRate> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send([veth.ends[0].pid(), veth.ends[1].pid()], &shared, open));
        let outcome = observe(&shared, meter, seconds);
        shared.stop.store(true, Ordering::Relaxed);
        sender
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
            .map_err(Error::context("sender"))?;
        outcome
    })
}

fn observe(shared: &Shared, meter: &Meter<'_>, seconds: Duration) -> Result<PacketRate> {
    let counts = || (shared.received.load(Ordering::Relaxed), shared.lost.load(Ordering::Relaxed));
    std::thread::sleep(WARM_UP);
    let (begin, cpu, (received, lost)) = (Instant::now(), meter.cpu_time()?, counts());
    std::thread::sleep(seconds);
    let (took, cpu, now) = (begin.elapsed(), meter.cpu_time()?.saturating_sub(cpu), counts());
    let (received, lost) = ((now.0 - received) as f64, (now.1 - lost) as f64);
    if received == 0.0 {
        return Err(Error::new("no packet arrives"));
    }
    Ok(PacketRate {
        packets_per_second: received / took.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / received,
        loss: lost / (received + lost),
    })
}

fn send<S: FnMut()>(
    [sender, receiver]: [u32; 2],
    shared: &Shared,
    open: impl FnOnce() -> io::Result<S>,
) -> io::Result<()> {
    sys::enter_netns_of(receiver)?;
    let mut sink = CountingSink::bind(PORT)?;
    sys::enter_netns_of(sender)?;
    let (mut send_next, mut sent) = (open()?, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        let free = wait_for_window(sent, &mut sink, shared)?;
        // If a queue is full, the packet is not sent. It does not arrive and counts as lost.
        (0..free).for_each(|_| send_next());
        sent += free;
    }
    Ok(())
}

/// Waits for space in the window and returns the number of packets to send. Packets in flight for too long
/// count as lost.
fn wait_for_window(sent: u64, sink: &mut CountingSink, shared: &Shared) -> io::Result<u64> {
    let (mut arrived, mut since) = (sink.received, Instant::now());
    while !shared.stop.load(Ordering::Relaxed) {
        sink.received()?;
        shared.received.store(sink.received, Ordering::Relaxed);
        let on_the_way = sent.saturating_sub(sink.received + shared.lost.load(Ordering::Relaxed));
        if on_the_way < WINDOW {
            return Ok(WINDOW - on_the_way);
        }
        if sink.received != arrived {
            (arrived, since) = (sink.received, Instant::now());
        } else if since.elapsed() > LOSS_TIMEOUT {
            shared.lost.fetch_add(on_the_way, Ordering::Relaxed);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(0)
}

/// A UDP socket that drops and counts the packets that arrive.
pub struct CountingSink {
    socket: Socket,
    received: u64,
}

impl CountingSink {
    /// Binds the socket to any address in the namespace of this thread.
    pub fn bind(port: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        // `ret #0` truncates the packet to zero bytes, which drops it.
        let code = (libc::BPF_RET | libc::BPF_K) as u16;
        socket.attach_filter(&[SockFilter::new(code, 0, 0, 0)])?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
        Ok(Self { socket, received: 0 })
    }

    /// Returns the number of packets received so far. The kernel's counter has 32 bits.
    pub fn received(&mut self) -> io::Result<u64> {
        let new = sys::socket_drops(&self.socket)?.wrapping_sub(self.received as u32);
        self.received += u64::from(new);
        Ok(self.received)
    }
}
