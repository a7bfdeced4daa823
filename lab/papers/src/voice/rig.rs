//! A gateway whose engine is the bottleneck, and a flood of packets for it.
//!
//! It has a CPU for itself. The other gateway and all instruments share another one; so that they keep up, the kernel counts and drops what
//! comes over the link before the other gateway sees it.

use crate::Context;
use casemate_stage::arena::{Arena, BEHIND};
use casemate_stage::gateway::Gateway;
use casemate_stage::negotiated::Tunnel;
use casemate_stage::{Background, Error, Result, run, sys};
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Packets that the kernel is given at once, and how long between.
const TRAIN: usize = 8;
const TICK: Duration = Duration::from_micros(500);
/// How much may be made up for when somebody held the sender up.
const LATE: Duration = Duration::from_millis(5);
/// Before the count begins: queues are full then.
const LEAD: Duration = Duration::from_millis(150);
/// Behind the calls of [`traffic`](super::traffic), before everything else.
const PRIORITY: i32 = 10;
/// Where the flood ends.
const PORT: u16 = 9_002;
/// When nothing has arrived for so long, queues are empty; they are within so long.
const STILL: Duration = Duration::from_millis(100);
const SETTLING: Duration = Duration::from_secs(10);
const NFT_LIMIT: Duration = Duration::from_secs(5);

/// What a flood came to, in packets a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// Those sent.
    pub(super) offered: f64,
    /// Those that came over the link.
    pub(super) through: f64,
}

/// Who works where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpus {
    /// Of the engine that is measured.
    own: usize,
    /// Of all others.
    others: usize,
}

impl Cpus {
    /// The first two that this thread may use. A [`Rig`] keeps the thread on one of them.
    pub(super) fn of_this_thread() -> Result<Self> {
        let cpus = sys::allowed_cpus().map_err(Error::in_front("CPU affinity"))?;
        let &[others, own, ..] = cpus.as_slice() else {
            return Err(Error::new("no second processor: the engine that is measured needs one for itself"));
        };
        Ok(Self { own, others })
    }

    fn stay(cpu: usize) -> Result<()> {
        sys::stay_on(&[cpu]).map_err(Error::in_front("CPU affinity"))
    }
}

/// Two ends at work.
pub(super) struct Rig {
    pub(super) arena: Arena,
    _gateways: Vec<Background>,
}

impl Rig {
    /// With a suite as in `esp_proposals`, or in clear. What is longer than `drop_above` bytes on the link goes no further.
    pub(super) fn build(
        context: &Context,
        cpus: Cpus,
        suite: Option<&str>,
        scheduler: &str,
        drop_above: usize,
    ) -> Result<Self> {
        let Cpus { own, others } = cpus;
        let arena = Arena::new()?;
        let mut gateways = Vec::new();
        let directory = context.scratch.join("rig");
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        for (end, (cpu, netns)) in [own, others].into_iter().zip(&arena.ends).enumerate() {
            let Some(suite) = suite else {
                arena.route_over_link(end)?;
                // Packets are counted, so none may be several in one.
                netns.ip("link set wire gso_max_segs 1\n")?;
                continue;
            };
            let gateway = Gateway::in_directory(context.program.parent().unwrap_or(Path::new(".")))?;
            Cpus::stay(cpu)?;
            gateways.push(Tunnel { suite, child: "", scheduler }.start(&gateway, &arena, end, &directory)?);
        }
        // The flood is this thread's child, and must not be where the engine is.
        Cpus::stay(others)?;
        arena.wait_until_connected()?;
        let protocol = if suite.is_some() { "ip protocol esp".into() } else { format!("udp dport {PORT}") };
        let end_of_flood = format!(
            "table netdev lab {{ chain in {{ type filter hook ingress device \"wire\" priority 0; {protocol} \
             meta length > {drop_above} drop; }}; }}"
        );
        let [_, receiver] = &arena.ends;
        let output = run(receiver, NFT_LIMIT, "nft", &[&end_of_flood])?;
        if output.status != 0 {
            return Err(Error::new(format!("nft: {}", output.stdout.trim_end())));
        }
        Ok(Self { arena, _gateways: gateways })
    }

    /// Sends so many packets a second, as many of each length, while something is done; what was seen of them, and what that gave.
    pub(super) fn flood<T>(
        &self,
        lengths: &[usize],
        rate: u64,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<(Flow, T)> {
        let sockets =
            self.arena.inside(0, || lengths.iter().map(|len| open(*len)).collect::<io::Result<Vec<_>>>())?;
        let (offered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&sockets, rate, &offered, &is_over));
            std::thread::sleep(LEAD);
            let count = || Ok::<_, Error>((offered.load(Ordering::Relaxed), self.arena.arrived(1)?));
            let (begin, before) = (Instant::now(), count());
            let done = act();
            let (took, after) = (begin.elapsed().as_secs_f64(), count());
            is_over.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            sent.map_err(Error::in_front("flood"))?;
            let (before, after) = (before?, after?);
            let per_second = |count: u64| count as f64 / took;
            Ok((
                Flow { offered: per_second(after.0 - before.0), through: per_second(after.1 - before.1) },
                done?,
            ))
        })
    }

    /// The same for so long.
    pub(super) fn flow(&self, lengths: &[usize], rate: u64, time: Duration) -> Result<Flow> {
        let wait = || {
            std::thread::sleep(time);
            Ok(())
        };
        self.flood(lengths, rate, wait).map(|(flow, ())| flow)
    }

    /// Waits until nothing comes over the link any more of what was sent before.
    pub(super) fn settle(&self) -> Result<()> {
        let (begin, mut before) = (Instant::now(), self.arena.arrived(1)?);
        while begin.elapsed() < SETTLING {
            std::thread::sleep(STILL);
            match self.arena.arrived(1)? {
                now if now == before => return Ok(()),
                now => before = now,
            }
        }
        Err(Error::new("packets arrive without end"))
    }
}

/// A socket for packets of this length, and their payload.
fn open(len: usize) -> io::Result<(UdpSocket, usize)> {
    let payload = len.saturating_sub(HEADERS);
    let socket = UdpSocket::bind((BEHIND[0], 0))?;
    socket.connect((BEHIND[1], PORT))?;
    socket.set_nonblocking(true)?;
    sys::cut_into(&socket, payload as u16)?;
    Ok((socket, payload))
}

fn send(
    sockets: &[(UdpSocket, usize)],
    rate: u64,
    offered: &AtomicU64,
    is_over: &AtomicBool,
) -> io::Result<()> {
    sys::run_before_others(PRIORITY)?;
    let zeros = vec![0; 1500 * TRAIN];
    let packets_in = |time: Duration| time.as_nanos() as u64 * rate / 1_000_000_000;
    let most = packets_in(LATE).max(1);
    let (mut begin, mut sent, mut turn) = (Instant::now(), 0, sockets.iter().cycle());
    while !is_over.load(Ordering::Relaxed) {
        let due = packets_in(begin.elapsed());
        if due - sent > most {
            (begin, sent) = (Instant::now(), 0);
            continue;
        }
        while sent < due {
            let count = (due - sent).min(TRAIN as u64);
            if let Some((socket, payload)) = turn.next() {
                // What finds no room is lost.
                let _ = socket.send(zeros.get(..payload * count as usize).unwrap_or_default());
            }
            sent += count;
            offered.fetch_add(count, Ordering::Relaxed);
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}
