//! The same question end to end: two gateways, `casemate run`, with a tunnel between network namespaces, and packets through it.
//!
//! What is measured here has everything in it that the quick measurement leaves out: system calls, copies, queues, wake-ups.

use crate::goal::{Goal, Mix};
use crate::rank::{Place, Spot, leaders, rank};
use crate::settings::Settings;
use crate::suites::{family, spelling};
use casemate_crypto::EspSuite;
use casemate_measure::spread::Spread;
use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::meter::Meter;
use casemate_stage::negotiated::Tunnel;
use casemate_stage::scratch::Scratch;
use casemate_stage::{Background, Error, Result, is_root, paced};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

mod traffic;

/// Suites that are compared.
const CONTENDERS: usize = 3;

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Rounds; each gives every contender one turn.
    pub rounds: usize,
    /// How long each traffic of a turn flows.
    pub traffic: Duration,
}

impl Length {
    /// Some two minutes.
    pub const USUAL: Self = Self { rounds: 5, traffic: Duration::from_secs(2) };
}

/// What one turn came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Packets of the mix that arrived in a second.
    pub packets_per_second: f64,
    /// Processor time of both gateways for one of them, in microseconds.
    pub cpu_us: f64,
    /// There and back for one small packet while nothing else flows, the median, in microseconds.
    pub round_trip_us: f64,
    /// One TCP stream.
    pub stream_gbit_per_second: f64,
}

/// The turns of one suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// The suite.
    pub suite: EspSuite,
    /// One for each round.
    pub turns: Vec<Turn>,
}

/// What was found end to end.
#[derive(Debug, Clone, PartialEq)]
pub struct Thorough {
    /// Those that were compared.
    pub contenders: Vec<Contender>,
    /// Their ranking by the goal.
    pub places: Vec<Place>,
    /// Whether nothing is better here than the first of the quick ranking.
    pub agrees: bool,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'q> {
    /// The quick ranking.
    pub places: &'q [Place],
    /// What is wanted.
    pub goal: Goal,
    /// Which packets.
    pub mix: &'q Mix,
    /// What was advised besides the suite.
    pub settings: &'q Settings,
}

/// The best of the ranking, and the best of other kinds behind it.
pub fn contenders(places: &[Place]) -> Vec<Spot> {
    let mut chosen: Vec<Spot> = Vec::new();
    for Place { spot, .. } in places {
        if chosen.iter().all(|other| family(other.suite) != family(spot.suite)) {
            chosen.push(spot.clone());
        }
    }
    chosen.truncate(CONTENDERS);
    chosen
}

/// Measures the best of the ranking in turns. `programs` is the directory that `casemate` is in; `tell` hears what is done.
///
/// # Errors
/// Without root, for a goal that is arithmetic, and whatever goes wrong in the namespaces.
pub fn measure(
    question: &Question<'_>,
    programs: &Path,
    length: Length,
    mut tell: impl FnMut(&str),
) -> Result<Thorough> {
    let goal = question.goal;
    if goal.is_exact() {
        return Err(Error::new(format!("{}: a number that is arithmetic needs no measurement", goal.word())));
    }
    if !is_root() {
        return Err(Error::new("root is needed for gateways in network namespaces"));
    }
    let (spots, gateway, scratch) =
        (contenders(question.places), Gateway::in_directory(programs)?, Scratch::new("advise")?);
    let mut all: Vec<Contender> =
        spots.iter().map(|spot| Contender { suite: spot.suite, turns: Vec::new() }).collect();
    for round in 0..length.rounds {
        for contender in &mut all {
            tell(&format!("round {} of {}: {}", round + 1, length.rounds, contender.suite));
            let directory = scratch.path().join(format!("{round}-{}", spelling(contender.suite)));
            contender.turns.push(turn(contender.suite, question, &gateway, length.traffic, &directory)?);
        }
        // Each round begins with another one.
        let first = usize::from(!all.is_empty());
        all.rotate_left(first);
    }
    Ok(Thorough::of(all, &spots, goal))
}

fn turn(
    suite: EspSuite,
    question: &Question<'_>,
    gateway: &Gateway,
    seconds: Duration,
    directory: &Path,
) -> Result<Turn> {
    let Question { mix, settings, .. } = question;
    fs::create_dir_all(directory).map_err(Error::in_front(directory.display()))?;
    let arena = Arena::new()?;
    let esn = if settings.esn { "-esn-noesn" } else { "" };
    let tunnel = Tunnel {
        suite: &format!("{}{esn}", spelling(suite)),
        child: &format!("replay_window = {}", settings.replay_window),
        scheduler: "",
    };
    let start = |end| tunnel.start(gateway, &arena, end, directory);
    let processes: Vec<Background> = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
    arena.wait_until_connected()?;
    let meter = Meter::new(&processes);
    // Nothing has been stirred up yet.
    let round_trip_us = traffic::round_trip(&arena)?;
    let sizes = mix.one_of_each_turn();
    let paced = paced::measure(&arena, &meter, seconds, || traffic::sender(&sizes))?;
    let stream_gbit_per_second = traffic::stream(&arena, seconds)?;
    let paced::Outcome { packets_per_second, cpu_us, .. } = paced;
    Ok(Turn { packets_per_second, cpu_us, round_trip_us, stream_gbit_per_second })
}

impl Thorough {
    /// Ranks them as the quick measurement is ranked, by other numbers.
    fn of(mut contenders: Vec<Contender>, spots: &[Spot], goal: Goal) -> Self {
        contenders.sort_by_key(|contender| spots.iter().position(|spot| spot.suite == contender.suite));
        let again = |(spot, contender): (&Spot, &Contender)| {
            let numbers = |goal| contender.turns.iter().map(move |turn| turn.number(goal));
            Some(Spot {
                scores: numbers(goal).collect(),
                median: Spread::of(numbers(goal))?.median,
                cpu: Spread::of(numbers(Goal::Cpu))?.median,
                ..spot.clone()
            })
        };
        let places = rank(spots.iter().zip(&contenders).filter_map(again).collect(), goal);
        let is_quick = |place: &Place| spots.first().is_some_and(|quick| quick.suite == place.spot.suite);
        let agrees = leaders(&places).any(is_quick);
        Self { contenders, places, agrees }
    }

    /// Turns of each of them.
    pub fn turns(&self) -> usize {
        self.contenders.iter().map(|contender| contender.turns.len()).min().unwrap_or_default()
    }

    /// Whether the two measurements agree, in one sentence.
    pub fn verdict(&self) -> String {
        let name = |suite: Option<EspSuite>| suite.map(|suite| suite.to_string()).unwrap_or_default();
        let first = name(self.places.first().map(|place| place.spot.suite));
        // The contenders stand in the order of the quick ranking.
        let quick = name(self.contenders.first().map(|contender| contender.suite));
        match (self.agrees, self.places.first().is_some_and(|place| place.is_tied)) {
            (true, false) => format!("{first} is first end to end as well."),
            (true, true) => format!(
                "{quick} is first end to end as well, where it ties: what else a packet costs hides the difference."
            ),
            (false, _) => format!("End to end {first} is first, and not the first of the quick ranking."),
        }
    }

    /// Every turn.
    pub fn json(&self) -> Value {
        let turn = |turn: &Turn| {
            json!({
                "packets_per_second": turn.packets_per_second,
                "cpu_us": turn.cpu_us,
                "round_trip_us": turn.round_trip_us,
                "stream_gbit_per_second": turn.stream_gbit_per_second,
            })
        };
        let contender = |contender: &Contender| json!({ "suite": contender.suite.to_string(), "turns": contender.turns.iter().map(turn).collect::<Vec<_>>() });
        json!({
            "contenders": self.contenders.iter().map(contender).collect::<Vec<_>>(),
            "ranking": self.places.iter().map(|place| place.spot.suite.to_string()).collect::<Vec<_>>(),
            "agrees": self.agrees,
        })
    }
}

impl Turn {
    /// What a goal wants to be small.
    fn number(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput => 1e6 / self.packets_per_second,
            Goal::Latency => self.round_trip_us,
            Goal::Cpu | Goal::Battery | Goal::Bytes | Goal::Calls => self.cpu_us,
        }
    }
}

#[cfg(test)]
mod tests;
