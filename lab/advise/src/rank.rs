//! The ranking: by the number that is wanted, where differences that the measurement does not show are ties.

use crate::goal::{Goal, UseCase};
use crate::measure::Costs;
use crate::rules::{Admitted, Status};
use crate::suites::Candidate;
use casemate_crypto::EspSuite;
use casemate_measure::spread::Spread;
use std::cmp::Ordering;

/// Smaller differences are ties even if every round shows them: another build may turn them round, and no weaker level is worth them.
const NOTHING: f64 = 0.05;
/// Whoever is behind in fewer rounds than this is not behind.
const MOST_ROUNDS: f64 = 0.75;
/// A median that is so much above another is no tie: rounds that contradict it were disturbed.
const PLAIN: f64 = 0.5;

/// A suite with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Spot {
    /// The suite.
    pub suite: EspSuite,
    /// What the rules say of it.
    pub admitted: Admitted,
    /// The number of each round; less is better.
    pub scores: Vec<f64>,
    /// The middle one.
    pub median: f64,
    /// Processor time for a byte: decides between suites whose numbers are the same.
    pub cpu: f64,
    /// Bytes on the air for a byte: decides after that.
    pub bytes: f64,
}

/// A place in the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The suite.
    pub spot: Spot,
    /// How much its number is above that of the first place; 0 is nothing, 1 is twice as much. Below 0 if a rule put it behind.
    pub behind: f64,
    /// Whether its number cannot be told from that of the best one of its group, so that a rule decided.
    pub is_tied: bool,
    /// Which group that is, counted from 0.
    pub group: usize,
}

/// Those that nothing is shown to be better than: the first, and all that tie with it.
pub fn leaders(places: &[Place]) -> impl Iterator<Item = &Place> {
    places.iter().take_while(|place| place.group == 0)
}

impl Spot {
    /// The number of a candidate, if it was measured.
    pub fn of(candidate: &Candidate, measured: &[Costs], goal: Goal, use_case: &UseCase) -> Option<Self> {
        let costs = measured.iter().find(|costs| costs.suite == candidate.suite)?;
        let median = |goal: Goal| Spread::of(goal.scores(costs, use_case)).map(|spread| spread.median);
        Some(Self {
            suite: candidate.suite,
            admitted: candidate.admitted.clone(),
            scores: goal.scores(costs, use_case),
            median: median(goal)?,
            cpu: median(Goal::Cpu)?,
            bytes: median(Goal::Bytes)?,
        })
    }

    /// Whether every peer has it, because it is a MUST.
    pub fn is_common(&self) -> bool {
        self.admitted.status == Status::Must
    }

    /// The order of numbers. What is on its way out comes after all others, however fast it is.
    pub fn before(a: &Self, b: &Self) -> Ordering {
        let key = |spot: &Self| (spot.admitted.status.is_leaving(), spot.median, spot.cpu);
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
    }

    /// Whether the measurement does not show that its number is above the other's.
    fn ties_with(&self, best: &Self) -> bool {
        let pairs: Vec<(f64, f64)> = self.scores.iter().copied().zip(best.scores.iter().copied()).collect();
        let behind = pairs.iter().filter(|(own, best)| own > best).count() as f64;
        let ratio = self.median / best.median;
        ratio < 1.0 + NOTHING || ratio < 1.0 + PLAIN && behind < MOST_ROUNDS * pairs.len() as f64
    }

    /// Ties: the stronger level first, then what costs less, then what is shorter.
    fn by_rule(a: &Self, b: &Self) -> Ordering {
        let level = b.admitted.status.cmp(&a.admitted.status);
        level.then(a.cpu.total_cmp(&b.cpu)).then(a.bytes.total_cmp(&b.bytes))
    }
}

/// Ranks them. Suites whose numbers are exact tie only if these are the same.
pub fn rank(mut spots: Vec<Spot>, goal: Goal) -> Vec<Place> {
    spots.sort_by(Spot::before);
    let ties = |spot: &Spot, best: &Spot| {
        let same_class = spot.admitted.status.is_leaving() == best.admitted.status.is_leaving();
        let same = if goal.is_exact() { spot.median <= best.median } else { spot.ties_with(best) };
        same_class && same
    };
    let mut places: Vec<Place> = Vec::new();
    let mut number = 0_usize;
    while let Some(best) = spots.first().cloned() {
        let end = spots.iter().position(|spot| !ties(spot, &best)).unwrap_or(spots.len());
        let mut group: Vec<Spot> = spots.drain(..end.max(1)).collect();
        group.sort_by(Spot::by_rule);
        let is_tied = group.len() > 1;
        places.extend(group.into_iter().map(|spot| Place { spot, behind: 0.0, is_tied, group: number }));
        number = number.wrapping_add(1);
    }
    let first = places.first().map_or(f64::NAN, |place| place.spot.median);
    for place in &mut places {
        place.behind = place.spot.median / first - 1.0;
    }
    places
}

#[cfg(test)]
mod tests;
