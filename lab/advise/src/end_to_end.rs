//! End-to-end measurement: packets through a tunnel between two gateways (`casemate run`) in network
//! namespaces.
//!
//! It includes what the quick measurement omits: system calls, copies, queues and wake-ups.

use crate::goal::{Goal, Mix};
use crate::rank::{RankedSuite, ScoredSuite, leaders, rank};
use crate::settings::Settings;
use crate::suites::{family, proposal_keyword};
use casemate_crypto::EspSuite;
use casemate_measure::stats::Spread;
use casemate_testbed::Meter;
use casemate_testbed::TempDir;
use casemate_testbed::gateway::Gateway;
use casemate_testbed::gateway::IkeTunnel;
use casemate_testbed::veth_pair::VethPair;
use casemate_testbed::{Background, Error, Result, is_root, packet_rate};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

pub(crate) mod traffic;

/// Number of suites that are compared.
const MAX_CONTENDERS: usize = 3;

/// Extent of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndToEndPlan {
    /// Number of rounds. Every contender is measured once per round.
    pub rounds: usize,
    /// Duration of each kind of traffic in a round.
    pub traffic: Duration,
}

impl EndToEndPlan {
    /// About two minutes in total.
    pub const USUAL: Self = Self { rounds: 5, traffic: Duration::from_secs(2) };
}

/// Result of one measurement of a suite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Received packets of the mix per second.
    pub packets_per_second: f64,
    /// CPU time of both gateways per received packet, in microseconds.
    pub cpu_us: f64,
    /// Median round-trip time of a small packet without other traffic, in microseconds.
    pub round_trip_us: f64,
    /// Throughput of one TCP stream in Gbit/s.
    pub stream_gbit_per_second: f64,
}

/// A compared suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// ESP suite.
    pub suite: EspSuite,
    /// Samples, one per round.
    pub samples: Vec<Sample>,
}

/// Result of the end-to-end measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct EndToEnd {
    /// Compared suites, in the order of the quick ranking.
    pub contenders: Vec<Contender>,
    /// Ranking by the goal.
    pub places: Vec<RankedSuite>,
    /// Whether the first suite of the quick ranking is first or tied here, too.
    pub agrees: bool,
}

/// Input of the end-to-end measurement.
#[derive(Debug, Clone, Copy)]
pub struct EndToEndRequest<'q> {
    /// Quick ranking.
    pub ranking: &'q [RankedSuite],
    /// Goal of the user.
    pub goal: Goal,
    /// Packets of the user.
    pub mix: &'q Mix,
    /// Recommended settings besides the suite.
    pub settings: &'q Settings,
}

/// Selects the best suite of the ranking and the best suites of other families.
pub fn contenders(places: &[RankedSuite]) -> Vec<ScoredSuite> {
    let mut chosen: Vec<ScoredSuite> = Vec::new();
    for RankedSuite { scored, .. } in places {
        if chosen.iter().all(|other| family(other.suite) != family(scored.suite)) {
            chosen.push(scored.clone());
        }
    }
    chosen.truncate(MAX_CONTENDERS);
    chosen
}

/// Measures the best suites of the ranking in turns. `programs` is the directory of the program `casemate`.
/// `report_progress` receives a progress message before each measurement.
///
/// # Errors
/// Fails without root, for a goal that is pure arithmetic, and for any error in the namespaces.
pub fn measure(
    question: &EndToEndRequest<'_>,
    programs: &Path,
    length: EndToEndPlan,
    mut report_progress: impl FnMut(&str),
) -> Result<EndToEnd> {
    let goal = question.goal;
    if goal.is_exact() {
        return Err(Error::new(format!("{}: this goal is computed and needs no measurement", goal.word())));
    }
    if !is_root() {
        return Err(Error::new("gateways in network namespaces require root"));
    }
    let (scored, gateway, scratch) =
        (contenders(question.ranking), Gateway::in_directory(programs)?, TempDir::new("advise")?);
    let mut all: Vec<Contender> =
        scored.iter().map(|scored| Contender { suite: scored.suite, samples: Vec::new() }).collect();
    for round in 0..length.rounds {
        for contender in &mut all {
            report_progress(&format!("round {} of {}: {}", round + 1, length.rounds, contender.suite));
            let directory = scratch.path().join(format!("{round}-{}", proposal_keyword(contender.suite)));
            contender.samples.push(measure_once(
                contender.suite,
                question,
                &gateway,
                length.traffic,
                &directory,
            )?);
        }
        // Each round begins with a different suite.
        let first = usize::from(!all.is_empty());
        all.rotate_left(first);
    }
    Ok(EndToEnd::rank(all, &scored, goal))
}

fn measure_once(
    suite: EspSuite,
    question: &EndToEndRequest<'_>,
    gateway: &Gateway,
    seconds: Duration,
    directory: &Path,
) -> Result<Sample> {
    let EndToEndRequest { mix, settings, .. } = question;
    fs::create_dir_all(directory).map_err(Error::context(directory.display()))?;
    let veth = VethPair::new()?;
    let esn = if settings.esn { "-esn-noesn" } else { "" };
    let tunnel = IkeTunnel {
        suite: &format!("{}{esn}", proposal_keyword(suite)),
        connection: "",
        child: &format!("replay_window = {}", settings.replay_window),
        scheduler: "",
    };
    let start = |end| tunnel.start(gateway, &veth, end, directory);
    let processes: Vec<Background> = [0, 1].into_iter().map(start).collect::<Result<_>>()?;
    veth.wait_until_connected()?;
    let meter = Meter::new(&processes);
    // The round trip is measured first, while the machine is idle.
    let round_trip_us = traffic::round_trip(&veth)?;
    let sizes = mix.expanded();
    let paced = packet_rate::measure(&veth, &meter, seconds, || traffic::sender(&sizes))?;
    let stream_gbit_per_second = traffic::stream(&veth, seconds)?;
    let packet_rate::PacketRate { packets_per_second, cpu_us, .. } = paced;
    Ok(Sample { packets_per_second, cpu_us, round_trip_us, stream_gbit_per_second })
}

impl EndToEnd {
    /// Ranks the suites with the rules of the quick ranking, but by these samples.
    fn rank(mut contenders: Vec<Contender>, scored: &[ScoredSuite], goal: Goal) -> Self {
        contenders.sort_by_key(|contender| scored.iter().position(|scored| scored.suite == contender.suite));
        let again = |(scored, contender): (&ScoredSuite, &Contender)| {
            let numbers = |goal| contender.samples.iter().map(move |turn| turn.score(goal));
            Some(ScoredSuite {
                scores: numbers(goal).collect(),
                score: Spread::of(numbers(goal))?.median,
                cpu: Spread::of(numbers(Goal::Cpu))?.median,
                ..scored.clone()
            })
        };
        let places = rank(scored.iter().zip(&contenders).filter_map(again).collect(), goal);
        let is_quick =
            |place: &RankedSuite| scored.first().is_some_and(|quick| quick.suite == place.scored.suite);
        let agrees = leaders(&places).any(is_quick);
        Self { contenders, places, agrees }
    }

    /// Number of rounds that all contenders have completed.
    pub fn rounds(&self) -> usize {
        self.contenders.iter().map(|contender| contender.samples.len()).min().unwrap_or_default()
    }

    /// Returns a sentence about whether both measurements agree.
    pub fn verdict(&self) -> String {
        let name = |suite: Option<EspSuite>| suite.map(|suite| suite.to_string()).unwrap_or_default();
        let first = name(self.places.first().map(|place| place.scored.suite));
        // The contenders are in the order of the quick ranking.
        let quick = name(self.contenders.first().map(|contender| contender.suite));
        match (self.agrees, self.places.first().is_some_and(|place| place.is_tied)) {
            (true, false) => format!("{first} is first end to end, too."),
            (true, true) => format!(
                "{quick} ties for first place end to end: the other costs of a packet hide the difference."
            ),
            (false, _) => format!("{first} is first end to end, unlike in the quick ranking."),
        }
    }

    /// Returns every sample as JSON.
    pub fn json(&self) -> Value {
        let turn = |turn: &Sample| {
            json!({
                "packets_per_second": turn.packets_per_second,
                "cpu_us": turn.cpu_us,
                "round_trip_us": turn.round_trip_us,
                "stream_gbit_per_second": turn.stream_gbit_per_second,
            })
        };
        let contender = |contender: &Contender| {
            let turns: Vec<Value> = contender.samples.iter().map(turn).collect();
            json!({ "suite": contender.suite.to_string(), "turns": turns })
        };
        json!({
            "contenders": self.contenders.iter().map(contender).collect::<Vec<_>>(),
            "ranking": self.places.iter().map(|place| place.scored.suite.to_string()).collect::<Vec<_>>(),
            "agrees": self.agrees,
        })
    }
}

impl Sample {
    /// Value to minimise for a goal.
    fn score(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput => 1e6 / self.packets_per_second,
            Goal::Latency => self.round_trip_us,
            Goal::Cpu | Goal::Battery | Goal::Bytes | Goal::Calls => self.cpu_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Filter, Keying};
    use casemate_crypto::{AeadAlg, AesBits};

    const CHACHA: EspSuite = EspSuite::Combined(AeadAlg::ChaCha20Poly1305);

    const fn gcm(icv: u8) -> EspSuite {
        EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv })
    }

    fn scored(suite: EspSuite, median: f64) -> ScoredSuite {
        let admitted = Filter::new(None, false).unwrap().esp(suite, Keying::Negotiated).unwrap();
        ScoredSuite { suite, admitted, scores: vec![median], score: median, cpu: median, bytes: 1.0 }
    }

    fn contender(suite: EspSuite, packets_per_second: [f64; 3]) -> Contender {
        let turn = |packets_per_second| Sample {
            packets_per_second,
            cpu_us: 1e6 / packets_per_second,
            round_trip_us: 100.0,
            stream_gbit_per_second: 1.0,
        };
        Contender { suite, samples: packets_per_second.map(turn).to_vec() }
    }

    #[test]
    fn contenders_are_of_different_families() {
        let scored = [scored(gcm(16), 1.0), scored(gcm(8), 1.0), scored(CHACHA, 2.0)];
        let places = rank(scored.to_vec(), Goal::Cpu);
        let chosen: Vec<EspSuite> = contenders(&places).into_iter().map(|scored| scored.suite).collect();
        assert_eq!(chosen, [gcm(16), CHACHA]);
    }

    #[test]
    fn agreement_of_quick_and_end_to_end_ranking() {
        let scored = [scored(gcm(16), 1.0), scored(CHACHA, 2.0)];
        let of = |goal, of_gcm, of_chacha| {
            // The order of measurements differs from that of the ranking.
            let contenders = vec![contender(CHACHA, of_chacha), contender(gcm(16), of_gcm)];
            EndToEnd::rank(contenders, &scored, goal)
        };
        let faster = of(Goal::Throughput, [200.0; 3], [100.0; 3]);
        assert!(faster.agrees && faster.verdict() == "ENCR_AES_GCM_16-128 is first end to end, too.");
        let slower = of(Goal::Throughput, [100.0; 3], [200.0; 3]);
        assert!(
            !slower.agrees
                && slower.verdict().starts_with(
                    "ENCR_CHACHA20_POLY1305 is first end to \
             end, unlike"
                )
        );
        let same = of(Goal::Latency, [200.0; 3], [100.0; 3]);
        assert!(same.agrees && same.verdict().contains("ties"), "{}", same.verdict());
    }

    /// If suites tie, the rule that orders them does not affect the agreement.
    #[test]
    fn a_tie_with_the_first_counts_as_agreement() {
        let scored = [scored(CHACHA, 1.0), scored(gcm(16), 2.0)];
        let of = |of_gcm| {
            let contenders = vec![contender(CHACHA, [200.0; 3]), contender(gcm(16), of_gcm)];
            EndToEnd::rank(contenders, &scored, Goal::Throughput)
        };
        let tied = of([199.0; 3]);
        assert_eq!(tied.places[0].scored.suite, gcm(16), "the stronger level");
        assert!(
            tied.agrees
                && tied.verdict().starts_with("ENCR_CHACHA20_POLY1305 ties for first place end to end")
        );
        assert!(!of([300.0; 3]).agrees);
    }
}
