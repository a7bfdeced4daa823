//! Takes the times of all servers in turns.

use super::super::{micros, page};
use super::echo::Pinger;
use super::protection::{ALL, Protection};
use super::server::{Kind, Server};
use crate::Progress;
use casemate_measure::spread::Spread;
use casemate_report::LeftOut;
use casemate_stage::{Error, Result};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How long a server may take until all its addresses answer.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// How much is measured.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Payloads of echo requests, in bytes.
    pub(super) sizes: Vec<usize>,
    /// Requests of each size in a turn.
    pub(super) echoes: usize,
    /// Pages in a turn.
    pub(super) pages: usize,
    /// As many as there is time for, within these bounds.
    rounds: RangeInclusive<usize>,
}

impl Plan {
    /// The full form has the paper's sizes, and of each its hundred requests.
    pub(super) fn of(quick: bool) -> Self {
        if quick {
            Self { sizes: vec![64, 384, 704, 1_024], echoes: 10, pages: 10, rounds: 2..=5 }
        } else {
            let sizes = super::super::subject::sizes().collect();
            Self { sizes, echoes: 10, pages: 20, rounds: 3..=10 }
        }
    }

    /// For the progress.
    pub(super) fn turns(&self) -> usize {
        self.rounds.end() * super::KINDS.len() * ALL.len()
    }
}

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// An echo with so much payload.
    Echo(usize),
    /// Until TCP is connected.
    Connection,
    /// From the request to the whole page.
    Response,
}

/// The times of one quantity, in microseconds, of each round.
pub(super) struct Times {
    pub(super) kind: Kind,
    pub(super) protection: Protection,
    pub(super) quantity: Quantity,
    pub(super) rounds: Vec<Vec<f64>>,
}

/// All times.
pub(super) struct Measured {
    pub(super) plan: Plan,
    /// How many rounds were done.
    pub(super) rounds: usize,
    pub(super) times: Vec<Times>,
    pub(super) left_out: Vec<LeftOut>,
}

/// Waits until every address of a server answers echo requests and serves the page.
pub(super) fn wait_for(server: &Server) -> Result<()> {
    let begun = Instant::now();
    for protection in ALL {
        let address = address(protection)?;
        let try_once = || Pinger::new(address, 1)?.ask(64, 1).and_then(|_| page::visit(address).map(drop));
        while let Err(error) = server.client()?.inside(try_once)? {
            if begun.elapsed() > PATIENCE {
                return Err(Error::new(format!("{protection}: {error}\n{}", server.said())));
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

impl Measured {
    /// Rounds in which every server has a turn with each protection, until the deadline.
    pub(super) fn take(servers: &[Server], plan: Plan, deadline: Instant, progress: &Progress) -> Self {
        let mut turns: Vec<(&Server, Protection)> =
            servers.iter().flat_map(|server| ALL.map(|protection| (server, protection))).collect();
        let mut measured = Self { plan, rounds: 0, times: Vec::new(), left_out: Vec::new() };
        while measured.has_time(deadline) && !turns.is_empty() {
            turns.retain(|(server, protection)| {
                progress.next(&format!("{}, {protection}", server.kind.name()));
                measured.turn(server, *protection)
            });
            measured.rounds += 1;
            // Each round begins with another one, so that none always runs after the same.
            let first = usize::from(!turns.is_empty());
            turns.rotate_left(first);
        }
        measured
    }

    fn has_time(&self, deadline: Instant) -> bool {
        let (least, most) = (*self.plan.rounds.start(), *self.plan.rounds.end());
        self.rounds < least || (self.rounds < most && Instant::now() < deadline)
    }

    /// One turn; `false` if it went wrong, so that there is to be no more of it.
    fn turn(&mut self, server: &Server, protection: Protection) -> bool {
        let plan = &self.plan;
        let done = address(protection)
            .and_then(|address| server.client()?.inside(|| all(address, plan)).and_then(|done| done));
        match done {
            Ok(done) => {
                done.into_iter().for_each(|(quantity, times)| {
                    self.keep(server.kind, protection, quantity, times);
                });
                true
            }
            Err(error) => {
                let what = format!("{}, {protection}", server.kind.name());
                self.left_out.push(LeftOut { what, why: error.to_string(), failed: true });
                false
            }
        }
    }

    fn keep(&mut self, kind: Kind, protection: Protection, quantity: Quantity, times: Vec<f64>) {
        let is_it =
            |old: &&mut Times| (old.kind, old.protection, old.quantity) == (kind, protection, quantity);
        match self.times.iter_mut().find(is_it) {
            Some(old) => old.rounds.push(times),
            None => self.times.push(Times { kind, protection, quantity, rounds: vec![times] }),
        }
    }

    /// The middle of all times.
    pub(super) fn spread(&self, kind: Kind, protection: Protection, quantity: Quantity) -> Option<Spread> {
        let times = self.find(kind, protection, quantity)?;
        Spread::of_middle_half(times.rounds.iter().flatten().copied())
    }

    /// How many times as much the first takes as the second: of the rounds of all quantities, the middle half.
    pub(super) fn ratio(
        &self,
        first: (Kind, Protection),
        second: (Kind, Protection),
        quantities: &[Quantity],
    ) -> Option<Spread> {
        let of = |quantity: &Quantity| {
            let pairs = self.medians(first, *quantity).into_iter().zip(self.medians(second, *quantity));
            pairs.map(|(first, second)| first / second).collect::<Vec<_>>()
        };
        Spread::of_middle_half(quantities.iter().flat_map(of))
    }

    /// The median of each round.
    fn medians(&self, (kind, protection): (Kind, Protection), quantity: Quantity) -> Vec<f64> {
        let rounds = self.find(kind, protection, quantity).into_iter().flat_map(|times| &times.rounds);
        rounds.filter_map(|round| Some(Spread::of(round.iter().copied())?.median)).collect()
    }

    fn find(&self, kind: Kind, protection: Protection, quantity: Quantity) -> Option<&Times> {
        let is_it =
            |times: &&Times| (times.kind, times.protection, times.quantity) == (kind, protection, quantity);
        self.times.iter().find(is_it)
    }

    /// Whether a server was measured at all.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.times.iter().any(|times| times.kind == kind)
    }
}

/// Everything once, in this thread's network namespace.
fn all(address: Ipv4Addr, plan: &Plan) -> Result<Vec<(Quantity, Vec<f64>)>> {
    let mut pinger = Pinger::new(address, std::process::id() as u16)?;
    let mut done = Vec::with_capacity(plan.sizes.len() + 2);
    for size in &plan.sizes {
        let times = pinger.ask(*size, plan.echoes)?;
        done.push((Quantity::Echo(*size), times.into_iter().map(micros).collect()));
    }
    let visits = (0..plan.pages).map(|_| page::visit(address)).collect::<Result<Vec<_>>>()?;
    done.push((Quantity::Connection, visits.iter().map(|visit| micros(visit.connection)).collect()));
    done.push((Quantity::Response, visits.iter().map(|visit| micros(visit.response)).collect()));
    Ok(done)
}

fn address(protection: Protection) -> Result<Ipv4Addr> {
    let text = protection.server();
    text.parse().map_err(Error::in_front(&text))
}
