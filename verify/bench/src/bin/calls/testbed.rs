//! Two gateways on two CPUs. One of them is the bottleneck.
//!
//! The measured gateway has a CPU of its own; the other gateway and all tools share the other CPU. Bulk
//! traffic would load the other gateway as much as the measured one, so it never receives it: when the
//! first gateway is measured, the kernel counts and drops protected bulk packets at the end of the link;
//! when the second gateway is measured, the protected bulk packets are a recording, which it accepts
//! because replay protection is off.

use crate::bulk::{self, Control, Recorder, Source};
use crate::voice::{self, CallStats};
use casemate_interop::{Background, Error, Result, run};
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::packet_rate::{CountingSink, PORT};
use casemate_testbed::sys;
use casemate_testbed::veth_pair::VethPair;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time from the start of the bulk traffic until the calls begin, to fill the queues.
const LEAD_TIME: Duration = Duration::from_millis(300);
/// Queues are empty when no packet arrived for `STILL`. They drain within `SETTLING`.
const STILL: Duration = Duration::from_millis(100);
const SETTLING: Duration = Duration::from_secs(20);
const RECORDED: usize = 256;
const RECORDING_RATE: u64 = 1_000;
/// Drops protected bulk packets at the end of the link. The hook runs before the packet sockets through
/// which the gateways receive.
const DROP_BULK: &str = "table netdev calls { chain in { type filter hook ingress device \"wire\" priority 0; \
                           ip protocol esp meta length > 1000 drop; }; }";

/// Gateway that is the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    /// The gateway that protects the bulk traffic.
    Outbound,
    /// The gateway that opens the bulk traffic.
    Inbound,
}

impl Bottleneck {
    pub(crate) const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }

    /// End of the measured gateway.
    const fn end(self) -> usize {
        match self {
            Self::Outbound => 0,
            Self::Inbound => 1,
        }
    }
}

/// Result of one load.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Bulk packets per second: sent and received.
    pub(crate) offered: f64,
    pub(crate) bulk: f64,
    /// Calls in the direction of the bulk traffic, and against it.
    pub(crate) calls: [CallStats; 2],
}

/// Running gateways.
pub(crate) struct CallTestbed {
    veth: VethPair,
    bottleneck: Bottleneck,
    /// Recorded bulk packets; empty if not needed.
    recording: Vec<Vec<u8>>,
    sink: CountingSink,
    _gateways: Vec<Background>,
}

impl CallTestbed {
    /// Starts the gateways. `cpus`: the CPU of the measured gateway, and the CPU of everything else,
    /// including this thread.
    pub(crate) fn build(
        gateway: &Gateway,
        tunnel: &IkeTunnel<'_>,
        bottleneck: Bottleneck,
        [own, others]: [usize; 2],
        directory: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
        let veth = VethPair::new()?;
        let affinity = || Error::context::<io::Error>("CPU affinity");
        let start = |end: usize| {
            sys::pin_to_cpus(&[if end == bottleneck.end() { own } else { others }]).map_err(affinity())?;
            let gateway = tunnel.start(gateway, &veth, end, directory);
            sys::pin_to_cpus(&[others]).map_err(affinity())?;
            gateway
        };
        let gateways = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
        veth.wait_until_connected()?;
        let (sink, recorder) = veth.run_in(1, || Ok((CountingSink::bind(PORT)?, Recorder::open()?)))?;
        let mut testbed = Self { veth, bottleneck, recording: Vec::new(), sink, _gateways: gateways };
        match bottleneck {
            Bottleneck::Outbound => {
                let output = run(&testbed.veth.ends[1], Duration::from_secs(5), "nft", &[DROP_BULK])?;
                if output.status != 0 {
                    return Err(Error::new(format!("nft: {}", output.stdout)));
                }
            }
            Bottleneck::Inbound => {
                testbed.recording = with_bulk_traffic(&testbed.veth, &Source::Clear, RECORDING_RATE, |_| {
                    recorder.record(RECORDED).map_err(Error::context("recording of protected bulk"))
                })?;
            }
        }
        Ok(testbed)
    }

    /// Measures the calls for `seconds` beside `rate` bulk packets per second.
    pub(crate) fn run(&mut self, rate: u64, seconds: Duration) -> Result<Outcome> {
        let source = match self.bottleneck {
            Bottleneck::Outbound => Source::Clear,
            Bottleneck::Inbound => Source::Recorded(&self.recording),
        };
        let (bottleneck, veth, sink) = (self.bottleneck, &self.veth, &mut self.sink);
        let mut count = || match bottleneck {
            Bottleneck::Outbound => veth.received_packets(1),
            Bottleneck::Inbound => sink.received().map_err(Error::context("sink")),
        };
        wait_until_drained(&mut count)?;
        with_bulk_traffic(veth, &source, rate, |control| {
            std::thread::sleep(LEAD_TIME);
            let offered = || control.offered.load(Ordering::Relaxed);
            let (begin, before) = (Instant::now(), (offered(), count()?));
            let watch = std::thread::scope(|scope| {
                let calls = scope.spawn(|| voice::run_calls(veth, seconds));
                std::thread::sleep(seconds);
                let seen = (begin.elapsed(), offered(), count());
                (seen, calls.join().unwrap_or_else(|_| Err(Error::new("the calls panicked"))))
            });
            let ((elapsed, offered, after), calls) = watch;
            let calls = calls?;
            // The count on the link includes the calls.
            let with_bulk = if bottleneck == Bottleneck::Outbound { calls[0].arrived() } else { 0 };
            let bulk = (after? - before.1).saturating_sub(with_bulk);
            let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
            Ok(Outcome { offered: per_second(offered - before.0), bulk: per_second(bulk), calls })
        })
    }
}

/// Waits until no more packets of the previous load arrive.
fn wait_until_drained(count: &mut impl FnMut() -> Result<u64>) -> Result<()> {
    let mut before = count()?;
    for _ in 0..SETTLING.as_millis() / STILL.as_millis() {
        std::thread::sleep(STILL);
        match count()? {
            now if now == before => return Ok(()),
            now => before = now,
        }
    }
    Err(Error::new("packets of the previous load keep arriving"))
}

/// Runs `act` while bulk traffic flows from the first end.
fn with_bulk_traffic<T>(
    veth: &VethPair,
    source: &Source<'_>,
    rate: u64,
    act: impl FnOnce(&Control) -> Result<T>,
) -> Result<T> {
    let (control, pid) = (Control::default(), veth.ends[0].pid());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| bulk::send(pid, source, rate, &control));
        let done = act(&control);
        control.is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
        sent.map_err(Error::context("bulk"))?;
        done
    })
}
