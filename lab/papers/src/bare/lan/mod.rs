//! Ping and HTTP: firmware against Linux (figures 8 to 10 of the paper).

mod protection;
mod requests;
mod results;
mod server;

use super::micros;
use crate::{Context, Progress, Unavailable};
use casemate_measure::report::{Part, Skipped};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::{Error, Result};
use protection::{ALL, Protection};
use requests::Pinger;
pub(super) use requests::serve_page;
use server::{KINDS, Server, ServerKind};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    let begun = Instant::now();
    let plan = Plan::of(context.quick);
    let is_excluded = |artifact| context.artifacts.is_excluded(artifact);
    let mut kinds = KINDS.to_vec();
    kinds.retain(|kind| !kind.artifact().is_some_and(is_excluded));
    context.progress.set_total(kinds.len() + plan.turns());
    let (mut servers, mut skipped) = (Vec::new(), Vec::new());
    for kind in kinds {
        context.progress.advance(&format!("start: {}", kind.name()));
        match start(kind, context) {
            Ok(server) => servers.push(server),
            Err(out) => {
                context.progress.print_line(&format!("skipped: {}: {}", out.what, out.why));
                skipped.push(out);
            }
        }
    }
    let measured = Measurements::run(&servers, plan, begun + context.time.mul_f64(0.9), &context.progress);
    skipped.extend(measured.skipped.iter().cloned());
    Ok(vec![Part { skipped, ..results::part(&measured) }])
}

/// Starts a server and waits until all its addresses respond.
fn start(kind: ServerKind, context: &Context) -> Result<Server, Skipped> {
    let out = |why: String, failed| Skipped { what: kind.name().into(), why, failed };
    let artifact = kind.artifact().map_or(Ok(Path::new("")), |artifact| context.artifacts.path(artifact));
    let artifact = artifact.map_err(|Unavailable { why, failed }| out(why, failed))?;
    let started = kind.start(context, artifact).and_then(|server| wait_for(&server).map(|()| server));
    started.map_err(|error| out(error.to_string(), true))
}

/// Time limit until all addresses of a server respond.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Extent of the measurement.
#[derive(Debug, Clone)]
struct Plan {
    /// Payload lengths of echo requests in bytes.
    sizes: Vec<usize>,
    /// Echo requests of each size per turn.
    echoes: usize,
    /// Pages per turn.
    pages: usize,
    /// Limits of the number of rounds. The available time decides within them.
    rounds: RangeInclusive<usize>,
}

impl Plan {
    /// The full form has the sizes of the paper and its hundred requests per size.
    fn of(quick: bool) -> Self {
        if quick {
            Self { sizes: vec![64, 384, 704, 1_024], echoes: 10, pages: 10, rounds: LEAST_ROUNDS..=8 }
        } else {
            let sizes = super::benchmark::sizes().collect();
            Self { sizes, echoes: 10, pages: 20, rounds: LEAST_ROUNDS..=10 }
        }
    }

    /// Maximum number of turns, for the progress.
    fn turns(&self) -> usize {
        self.rounds.end() * KINDS.len() * ALL.len()
    }
}

/// Measured quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// Round-trip time of an echo with this payload.
    Echo(usize),
    /// Time until TCP is connected.
    Connection,
    /// Time from the request to the last byte of the page.
    Response,
}

/// A kind of server with one protection of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scenario {
    server: ServerKind,
    protection: Protection,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.server.name(), self.protection)
    }
}

/// Times of one quantity in microseconds, for each round.
struct Times {
    scenario: Scenario,
    quantity: Quantity,
    rounds: Vec<Vec<f64>>,
}

/// All measured times.
struct Measurements {
    plan: Plan,
    /// Number of completed rounds.
    rounds: usize,
    times: Vec<Times>,
    skipped: Vec<Skipped>,
}

/// Waits until every address of a server answers echo requests and serves the page.
fn wait_for(server: &Server) -> Result<()> {
    let start = Instant::now();
    for protection in ALL {
        let address = address(protection)?;
        let try_once =
            || Pinger::new(address, 1)?.ping(64, 1).and_then(|_| requests::fetch_page(address).map(drop));
        while let Err(error) = server.client()?.run_in(try_once)? {
            if start.elapsed() > START_TIMEOUT {
                return Err(Error::new(format!("{protection}: {error}\n{}", server.output())));
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
    Ok(())
}

impl Measurements {
    /// Measures rounds until the deadline. In each round, every server has one turn with each protection.
    fn run(servers: &[Server], plan: Plan, deadline: Instant, progress: &Progress) -> Self {
        let mut turns: Vec<(&Server, Protection)> =
            servers.iter().flat_map(|server| ALL.map(|protection| (server, protection))).collect();
        let mut measured = Self { plan, rounds: 0, times: Vec::new(), skipped: Vec::new() };
        while measured.has_time(deadline) && !turns.is_empty() {
            turns.retain(|(server, protection)| {
                let scenario = Scenario { server: server.kind, protection: *protection };
                progress.advance(&scenario.to_string());
                measured.run_once(server, scenario)
            });
            measured.rounds += 1;
            // Each round begins with a different server, so that no server always follows the same one.
            let first = usize::from(!turns.is_empty());
            turns.rotate_left(first);
        }
        measured
    }

    fn has_time(&self, deadline: Instant) -> bool {
        let (least, most) = (*self.plan.rounds.start(), *self.plan.rounds.end());
        self.rounds < least || (self.rounds < most && Instant::now() < deadline)
    }

    /// Measures one turn. Returns false after an error, so that the combination is not measured again.
    fn run_once(&mut self, server: &Server, scenario: Scenario) -> bool {
        let plan = &self.plan;
        let done = address(scenario.protection)
            .and_then(|address| server.client()?.run_in(|| measure_all(address, plan)).and_then(|done| done));
        match done {
            Ok(done) => {
                done.into_iter().for_each(|(quantity, times)| self.record(scenario, quantity, times));
                true
            }
            Err(error) => {
                let what = scenario.to_string();
                self.skipped.push(Skipped { what, why: error.to_string(), failed: true });
                false
            }
        }
    }

    fn record(&mut self, scenario: Scenario, quantity: Quantity, times: Vec<f64>) {
        let is_it = |old: &&mut Times| (old.scenario, old.quantity) == (scenario, quantity);
        match self.times.iter_mut().find(is_it) {
            Some(old) => old.rounds.push(times),
            None => self.times.push(Times { scenario, quantity, rounds: vec![times] }),
        }
    }

    /// Spread of the middle half of all times.
    fn spread(&self, scenario: Scenario, quantity: Quantity) -> Option<Spread> {
        let times = self.find(scenario, quantity)?;
        Spread::interquartile(times.rounds.iter().flatten().copied())
    }

    /// Ratio of the first to the second time in each round: the median of all quantities.
    fn ratio(&self, first: Scenario, second: Scenario, quantities: &[Quantity]) -> Option<Spread> {
        let of = |quantity: &Quantity| {
            let pairs = self.medians(first, *quantity).into_iter().zip(self.medians(second, *quantity));
            pairs.map(|(first, second)| first / second).collect::<Vec<_>>()
        };
        let ratios: Vec<Vec<f64>> = quantities.iter().map(of).collect();
        let rounds = ratios.iter().map(Vec::len).min()?;
        let of_round = |round| Spread::of(ratios.iter().filter_map(|ratios| ratios.get(round).copied()));
        Spread::of((0..rounds).filter_map(of_round).map(|spread| spread.median))
    }

    /// Ratio of the time for the second quantity to that for the first, over all rounds.
    fn growth(&self, scenario: Scenario, first: Quantity, second: Quantity) -> Option<Spread> {
        let pairs = self.medians(scenario, second).into_iter().zip(self.medians(scenario, first));
        Spread::of(pairs.map(|(second, first)| second / first))
    }

    /// Median of each round.
    fn medians(&self, scenario: Scenario, quantity: Quantity) -> Vec<f64> {
        let rounds = self.find(scenario, quantity).into_iter().flat_map(|times| &times.rounds);
        rounds.filter_map(|round| Some(Spread::of(round.iter().copied())?.median)).collect()
    }

    fn find(&self, scenario: Scenario, quantity: Quantity) -> Option<&Times> {
        self.times.iter().find(|times| (times.scenario, times.quantity) == (scenario, quantity))
    }

    /// Whether a server was measured at all.
    fn has(&self, server: ServerKind) -> bool {
        self.times.iter().any(|times| times.scenario.server == server)
    }
}

/// Measures all quantities once, in the network namespace of this thread.
fn measure_all(address: Ipv4Addr, plan: &Plan) -> Result<Vec<(Quantity, Vec<f64>)>> {
    let mut pinger = Pinger::new(address, std::process::id() as u16)?;
    let mut done = Vec::with_capacity(plan.sizes.len() + 2);
    for size in &plan.sizes {
        let times = pinger.ping(*size, plan.echoes)?;
        done.push((Quantity::Echo(*size), times.into_iter().map(micros).collect()));
    }
    let visits = (0..plan.pages).map(|_| requests::fetch_page(address)).collect::<Result<Vec<_>>>()?;
    done.push((Quantity::Connection, visits.iter().map(|visit| micros(visit.connection)).collect()));
    done.push((Quantity::Response, visits.iter().map(|visit| micros(visit.response)).collect()));
    Ok(done)
}

fn address(protection: Protection) -> Result<Ipv4Addr> {
    let text = protection.server();
    text.parse().map_err(Error::context(&text))
}
