//! A gateway whose crypto engine is the bottleneck, and a flood of packets.
//!
//! The gateway has its own CPU. The other gateway and the instruments share another CPU. To relieve them, the
//! kernel counts and drops the packets on the link before the other gateway receives them.

use crate::Context;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::slow_process::SlowProcess;
use casemate_testbed::veth_pair::{INNER_ADDRS, VethPair};
use casemate_testbed::{Background, Error, Result, run, sys};
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length of the IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Packets per system call from [`FAST`] packets per second on; below that, one packet. Pause between two
/// calls.
const BURST: usize = 8;
const FAST: u64 = 10_000;
const TICK: Duration = Duration::from_micros(500);
/// Maximum delay of the sender for which it catches up.
const MAX_CATCH_UP: Duration = Duration::from_millis(5);
/// Time before a measurement starts, in which the queues fill.
const WARM_UP: Duration = Duration::from_millis(100);
/// The same for a slow engine, which protects up to 32 packets before it sends the first of them.
const SLOW_WARM_UP: Duration = Duration::from_millis(240);
/// TUN interface of a gateway.
const TUN: &str = "casemate0";
/// Real-time priority: below the calls of [`traffic`](super::traffic), above everything else.
const PRIORITY: i32 = 10;
/// Destination port of the flood.
const PORT: u16 = 9_002;
/// Time without arrivals after which the queues count as empty, and time limit for that.
const IDLE_TIME: Duration = Duration::from_millis(100);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const NFT_LIMIT: Duration = Duration::from_secs(5);

/// Result of a flood, in packets per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowRates {
    /// Sent packets.
    pub(super) offered: f64,
    /// Packets that arrived over the link.
    pub(super) delivered: f64,
}

/// Assignment of CPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpus {
    /// CPU of the measured engine.
    engine: usize,
    /// CPU of everything else.
    others: usize,
}

impl Cpus {
    /// Takes the first two CPUs that this thread may use. A [`Bottleneck`] pins the thread to one of them.
    pub(super) fn of_this_thread() -> Result<Self> {
        let cpus = sys::allowed_cpus().map_err(Error::context("CPU affinity"))?;
        let &[others, own, ..] = cpus.as_slice() else {
            return Err(Error::new("no second processor: the measured engine needs its own"));
        };
        Ok(Self { engine: own, others })
    }

    fn stay(cpu: usize) -> Result<()> {
        sys::pin_to_cpus(&[cpu]).map_err(Error::context("CPU affinity"))
    }
}

/// Both ends with running gateways.
pub(super) struct Bottleneck {
    /// Stops and continues the engine, if it is slowed down. Ends before the gateways.
    slow: Option<SlowProcess>,
    warm_up: Duration,
    pub(super) veth: VethPair,
    gateways: Vec<Background>,
}

impl Bottleneck {
    /// Builds the testbed with a suite as in `esp_proposals`, or in clear. Packets longer than `drop_above`
    /// bytes are dropped on the link.
    pub(super) fn build(
        context: &Context,
        cpus: Cpus,
        suite: Option<&str>,
        scheduler: &str,
        drop_above: usize,
    ) -> Result<Self> {
        let Cpus { engine: own, others } = cpus;
        let veth = VethPair::new()?;
        let mut gateways = Vec::new();
        let directory = context.scratch.join(format!("engine-{}", suite.unwrap_or("plain")));
        fs::create_dir_all(&directory).map_err(Error::context(directory.display()))?;
        for (end, (cpu, netns)) in [own, others].into_iter().zip(&veth.ends).enumerate() {
            let Some(suite) = suite else {
                veth.route_via_link(end)?;
                // Packets are counted, so segmentation offload must not combine them.
                netns.ip("link set wire gso_max_segs 1\n")?;
                continue;
            };
            let gateway = Gateway::in_directory(context.program.parent().unwrap_or(Path::new(".")))?;
            Cpus::stay(cpu)?;
            gateways.push(
                IkeTunnel { suite, connection: "", child: "", scheduler }
                    .start(&gateway, &veth, end, &directory)?,
            );
        }
        // The flooding thread inherits this CPU and must not run on that of the engine.
        Cpus::stay(others)?;
        veth.wait_until_connected()?;
        let protocol = if suite.is_some() { "ip protocol esp".into() } else { format!("udp dport {PORT}") };
        let end_of_flood = format!(
            "table netdev lab {{ chain in {{ type filter hook ingress device \"wire\" priority 0; {protocol} \
             meta length > {drop_above} drop; }}; }}"
        );
        let [_, receiver] = &veth.ends;
        let output = run(receiver, NFT_LIMIT, "nft", &[&end_of_flood])?;
        if output.status != 0 {
            return Err(Error::new(format!("nft: {}", output.stdout.trim_end())));
        }
        Ok(Self { slow: None, warm_up: WARM_UP, veth, gateways })
    }

    /// Lets the engine run for a share of the time only, with a queue of `queue` packets in front of it. In
    /// clear there is no engine.
    pub(super) fn slow_down(&mut self, share: f64, queue: usize) -> Result<()> {
        if let Some(slow) = &self.slow {
            slow.set_share(share);
        } else if let Some(engine) = self.gateways.first() {
            let [sender, _] = &self.veth.ends;
            sender.ip(&format!("link set {TUN} txqueuelen {queue}\n"))?;
            self.slow = Some(SlowProcess::start(engine.pid(), share));
            self.warm_up = SLOW_WARM_UP;
        }
        Ok(())
    }

    /// Lets the engine run all the time again.
    pub(super) fn run_freely(&mut self) {
        self.slow = None;
        self.warm_up = WARM_UP;
    }

    /// Floods with `rate` packets per second, the same number of each length, while `act` runs. Returns the
    /// rates and the result of `act`.
    pub(super) fn flood<T>(
        &self,
        lengths: &[usize],
        rate: u64,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<(FlowRates, T)> {
        let sockets =
            self.veth.run_in(0, || lengths.iter().map(|len| open(*len)).collect::<io::Result<Vec<_>>>())?;
        let (offered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&sockets, rate, &offered, &is_over));
            std::thread::sleep(self.warm_up);
            let count = || Ok::<_, Error>((offered.load(Ordering::Relaxed), self.veth.received_packets(1)?));
            let (begin, before) = (Instant::now(), count());
            let done = act();
            let (took, after) = (begin.elapsed().as_secs_f64(), count());
            is_over.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            sent.map_err(Error::context("flood"))?;
            let (before, after) = (before?, after?);
            let per_second = |count: u64| count as f64 / took;
            Ok((
                FlowRates {
                    offered: per_second(after.0 - before.0),
                    delivered: per_second(after.1 - before.1),
                },
                done?,
            ))
        })
    }

    /// Floods for this time.
    pub(super) fn flood_for(&self, lengths: &[usize], rate: u64, time: Duration) -> Result<FlowRates> {
        let wait = || {
            std::thread::sleep(time);
            Ok(())
        };
        self.flood(lengths, rate, wait).map(|(flow, ())| flow)
    }

    /// Waits until no earlier packets arrive over the link any more.
    pub(super) fn wait_until_idle(&self) -> Result<()> {
        let (begin, mut before) = (Instant::now(), self.veth.received_packets(1)?);
        while begin.elapsed() < IDLE_TIMEOUT {
            std::thread::sleep(IDLE_TIME);
            match self.veth.received_packets(1)? {
                now if now == before => return Ok(()),
                now => before = now,
            }
        }
        Err(Error::new("packets arrive without end"))
    }
}

/// Socket for packets of one length.
struct FloodSocket {
    socket: UdpSocket,
    /// UDP payload of a packet in bytes.
    payload: usize,
}

/// Opens a socket for packets of this length.
fn open(len: usize) -> io::Result<FloodSocket> {
    let payload = len.saturating_sub(HEADERS);
    let socket = UdpSocket::bind((INNER_ADDRS[0], 0))?;
    socket.connect((INNER_ADDRS[1], PORT))?;
    socket.set_nonblocking(true)?;
    sys::set_udp_segment_size(&socket, payload as u16)?;
    Ok(FloodSocket { socket, payload })
}

fn send(sockets: &[FloodSocket], rate: u64, offered: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    sys::set_fifo_priority(PRIORITY)?;
    let zeros = vec![0; 1500 * BURST];
    let packets_in = |time: Duration| time.as_nanos() as u64 * rate / 1_000_000_000;
    let most = packets_in(MAX_CATCH_UP).max(1);
    let burst = if rate < FAST { 1 } else { BURST as u64 };
    let (mut begin, mut sent, mut turn) = (Instant::now(), 0, sockets.iter().cycle());
    while !is_over.load(Ordering::Relaxed) {
        let due = packets_in(begin.elapsed());
        if due - sent > most {
            (begin, sent) = (Instant::now(), 0);
            continue;
        }
        while sent < due {
            let count = (due - sent).min(burst);
            if let Some(FloodSocket { socket, payload }) = turn.next() {
                // Packets without space in the queue are lost.
                let _ = socket.send(zeros.get(..payload * count as usize).unwrap_or_default());
            }
            sent += count;
            offered.fetch_add(count, Ordering::Relaxed);
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}
