//! Two gateways of which one is to be the bottleneck, on two CPUs.
//!
//! That one has a CPU for itself; the other one and all instruments share the other CPU. Bulk would keep the other gateway as
//! busy as the one that is measured, so it never sees it: when the first one is measured, the kernel counts and drops protected
//! bulk at the end of the link; when the second one is, protected bulk is a recording, which it takes because replays are not
//! checked.

use crate::bulk::{self, Control, Recorder, Source};
use crate::voice::{self, Leg};
use casemate_interop::{Background, Error, Result, run};
use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::negotiated::Tunnel;
use casemate_stage::paced::{PORT, Sink};
use casemate_stage::sys;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// From the start of bulk until the calls begin: queues are full then.
const LEAD: Duration = Duration::from_millis(300);
/// When nothing has arrived for so long, queues are empty; they are within so long.
const STILL: Duration = Duration::from_millis(100);
const SETTLING: Duration = Duration::from_secs(20);
const RECORDED: usize = 256;
const RECORDING_RATE: u64 = 1_000;
/// Protected bulk ends behind the link. The hook is before packet sockets, through which gateways receive.
const END_OF_BULK: &str = "table netdev calls { chain in { type filter hook ingress device \"wire\" priority 0; \
                           ip protocol esp meta length > 1000 drop; }; }";

/// Which gateway is the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The one that protects bulk.
    Outbound,
    /// The one that opens it.
    Inbound,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Outbound, Self::Inbound];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }

    /// The end of the gateway that is measured.
    const fn end(self) -> usize {
        match self {
            Self::Outbound => 0,
            Self::Inbound => 1,
        }
    }
}

/// What one load came to.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Packets of bulk a second: those sent, and those that arrived.
    pub(crate) offered: f64,
    pub(crate) bulk: f64,
    /// The calls along with bulk, and against it.
    pub(crate) legs: [Leg; 2],
}

/// Gateways at work.
pub(crate) struct Stage {
    arena: Arena,
    way: Way,
    /// Protected bulk, where it is needed.
    recording: Vec<Vec<u8>>,
    sink: Sink,
    _gateways: Vec<Background>,
}

impl Stage {
    /// `cpus`: that of the gateway which is measured, and that of everything else, where this thread is.
    pub(crate) fn build(
        gateway: &Gateway,
        tunnel: &Tunnel<'_>,
        way: Way,
        [own, others]: [usize; 2],
        directory: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
        let arena = Arena::new()?;
        let affinity = || Error::in_front::<io::Error>("CPU affinity");
        let start = |end: usize| {
            sys::stay_on(&[if end == way.end() { own } else { others }]).map_err(affinity())?;
            let gateway = tunnel.start(gateway, &arena, end, directory);
            sys::stay_on(&[others]).map_err(affinity())?;
            gateway
        };
        let gateways = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
        arena.wait_until_connected()?;
        let (sink, recorder) = arena.inside(1, || Ok((Sink::bind(PORT)?, Recorder::open()?)))?;
        let mut stage = Self { arena, way, recording: Vec::new(), sink, _gateways: gateways };
        match way {
            Way::Outbound => {
                let output = run(&stage.arena.ends[1], Duration::from_secs(5), "nft", &[END_OF_BULK])?;
                if output.status != 0 {
                    return Err(Error::new(format!("nft: {}", output.stdout)));
                }
            }
            Way::Inbound => {
                stage.recording = beside(&stage.arena, &Source::Clear, RECORDING_RATE, |_| {
                    recorder.record(RECORDED).map_err(Error::in_front("recording of protected bulk"))
                })?;
            }
        }
        Ok(stage)
    }

    /// Lets the calls go on for so long beside so many packets of bulk a second.
    pub(crate) fn run(&mut self, rate: u64, seconds: Duration) -> Result<Outcome> {
        let source = match self.way {
            Way::Outbound => Source::Clear,
            Way::Inbound => Source::Recorded(&self.recording),
        };
        let (way, arena, sink) = (self.way, &self.arena, &mut self.sink);
        let mut count = || match way {
            Way::Outbound => arena.arrived(1),
            Way::Inbound => sink.look().map_err(Error::in_front("sink")),
        };
        settle(&mut count)?;
        beside(arena, &source, rate, |control| {
            std::thread::sleep(LEAD);
            let offered = || control.offered.load(Ordering::Relaxed);
            let (begin, before) = (Instant::now(), (offered(), count()?));
            let watch = std::thread::scope(|scope| {
                let calls = scope.spawn(|| voice::speak(arena, seconds));
                std::thread::sleep(seconds);
                let seen = (begin.elapsed(), offered(), count());
                (seen, calls.join().unwrap_or_else(|_| Err(Error::new("the calls panicked"))))
            });
            let ((took, offered, after), legs) = watch;
            let legs = legs?;
            // On the link, the calls are counted along.
            let along = if way == Way::Outbound { legs[0].arrived() } else { 0 };
            let bulk = (after? - before.1).saturating_sub(along);
            let per_second = |count: u64| count as f64 / took.as_secs_f64();
            Ok(Outcome { offered: per_second(offered - before.0), bulk: per_second(bulk), legs })
        })
    }
}

/// Waits until nothing arrives any more of what was sent before.
fn settle(count: &mut impl FnMut() -> Result<u64>) -> Result<()> {
    let mut before = count()?;
    for _ in 0..SETTLING.as_millis() / STILL.as_millis() {
        std::thread::sleep(STILL);
        match count()? {
            now if now == before => return Ok(()),
            now => before = now,
        }
    }
    Err(Error::new("packets arrive without end"))
}

/// Does something while bulk flows from the first end.
fn beside<T>(
    arena: &Arena,
    source: &Source<'_>,
    rate: u64,
    act: impl FnOnce(&Control) -> Result<T>,
) -> Result<T> {
    let (control, pid) = (Control::default(), arena.ends[0].pid());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| bulk::send(pid, source, rate, &control));
        let done = act(&control);
        control.is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        sent.map_err(Error::in_front("bulk"))?;
        done
    })
}
