//! Packets as fast as a tunnel takes them, with hardly a loss: how many arrive in a second.
//!
//! The sender is a thread of this process. The receiver is a socket whose filter drops everything: the kernel counts what has
//! arrived there, and no time is spent on reading it. The sender looks at this count, past the tunnel, and keeps at most
//! 400 on the way: a tunnel that is slow is not flooded, and the sender sleeps meanwhile.

use crate::arena::Arena;
use crate::meter::Meter;
use crate::sys;
use crate::{Error, Result};
use socket2::{Domain, SockFilter, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets on the way at most: as many as the queue of a TUN interface takes without dropping one.
const WINDOW: u64 = 400;
/// How long the sender sleeps when so many are on the way.
const PAUSE: Duration = Duration::from_micros(200);
/// What has not arrived for so long is lost.
const LOST: Duration = Duration::from_millis(20);
/// Before the count begins.
const WARM_UP: Duration = Duration::from_millis(300);
/// Where the packets have to arrive, at any address of the second end.
pub const PORT: u16 = 9_000;

/// What the packets came to.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Those that arrived.
    pub packets_per_second: f64,
    /// CPU time of the tunnel's processes for one of them, in microseconds.
    pub cpu_us: f64,
    /// What did not arrive, of 1.
    pub lost: f64,
}

/// What the sender tells, and is told.
#[derive(Default)]
struct Shared {
    received: AtomicU64,
    lost: AtomicU64,
    is_over: AtomicBool,
}

/// Sends for so long. `open` is called inside the first end's namespace and gives what sends the next packet there.
pub fn measure<S: FnMut()>(
    arena: &Arena,
    meter: &Meter<'_>,
    seconds: Duration,
    open: impl FnOnce() -> io::Result<S> + Send,
) -> Result<Outcome> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send([arena.ends[0].pid(), arena.ends[1].pid()], &shared, open));
        let outcome = observe(&shared, meter, seconds);
        shared.is_over.store(true, Ordering::Relaxed);
        sender
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
            .map_err(Error::in_front("sender"))?;
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
        return Err(Error::new("no packet arrives"));
    }
    Ok(Outcome {
        packets_per_second: received / took.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / received,
        lost: lost / (received + lost),
    })
}

fn send<S: FnMut()>(
    [sender, receiver]: [u32; 2],
    shared: &Shared,
    open: impl FnOnce() -> io::Result<S>,
) -> io::Result<()> {
    sys::enter_network_of(receiver)?;
    let mut sink = Sink::bind(PORT)?;
    sys::enter_network_of(sender)?;
    let (mut send_next, mut sent) = (open()?, 0);
    while !shared.is_over.load(Ordering::Relaxed) {
        let free = wait_for_room(sent, &mut sink, shared)?;
        // A queue that is full: what is not sent does not arrive, and counts as lost.
        (0..free).for_each(|_| send_next());
        sent += free;
    }
    Ok(())
}

/// How many packets may be sent. What is on the way for too long is given up.
fn wait_for_room(sent: u64, sink: &mut Sink, shared: &Shared) -> io::Result<u64> {
    let (mut arrived, mut since) = (sink.arrived, Instant::now());
    while !shared.is_over.load(Ordering::Relaxed) {
        sink.look()?;
        shared.received.store(sink.arrived, Ordering::Relaxed);
        let on_the_way = sent.saturating_sub(sink.arrived + shared.lost.load(Ordering::Relaxed));
        if on_the_way < WINDOW {
            return Ok(WINDOW - on_the_way);
        }
        if sink.arrived != arrived {
            (arrived, since) = (sink.arrived, Instant::now());
        } else if since.elapsed() > LOST {
            shared.lost.fetch_add(on_the_way, Ordering::Relaxed);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(0)
}

/// A socket that drops what arrives, and how much that was.
pub struct Sink {
    socket: Socket,
    arrived: u64,
}

impl Sink {
    /// At any address of this thread's namespace.
    pub fn bind(port: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        // `ret #0`: the packet is cut to no bytes, that is, dropped.
        let code = (libc::BPF_RET | libc::BPF_K) as u16;
        socket.attach_filter(&[SockFilter::new(code, 0, 0, 0)])?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())?;
        Ok(Self { socket, arrived: 0 })
    }

    /// Reads the kernel's count, which has 32 bits, and answers how much has arrived so far.
    pub fn look(&mut self) -> io::Result<u64> {
        let new = sys::drops(&self.socket)?.wrapping_sub(self.arrived as u32);
        self.arrived += u64::from(new);
        Ok(self.arrived)
    }
}
