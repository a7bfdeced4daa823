//! The paper's claims about figures 5 and 6.

use super::{Plan, Suite, Sweep};
use casemate_measure::report::{Bound, Claim, Finding};
use casemate_measure::stats::Spread;

/// The paper's engines, from its fastest to its slowest.
const PAPERS: [Suite; 4] = [Suite::Des, Suite::TripleDes, Suite::NullSha, Suite::TripleDesSha];

/// Returns the findings about the engines that were measured.
pub(super) fn of(sweeps: &[Sweep], plan: &Plan) -> Vec<Finding> {
    let engines: Vec<&Sweep> =
        PAPERS.iter().filter_map(|suite| sweeps.iter().find(|sweep| sweep.suite == *suite)).collect();
    [levels_off(&engines), order(&engines), falls(&engines, plan), grows(&engines, plan)]
        .into_iter()
        .flatten()
        .collect()
}

const LEVELS_OFF: Claim<'static> = Claim {
    what: "the engine levels off below the highest load",
    paper: "all four; the best one, DES, slightly above 1,000 packets per second",
    holds: Bound::Below(0.9),
    agrees: "An engine that is as slow as the paper's drops what it cannot protect in time.",
    differs: "If DES is as slow as in the paper, HMAC-SHA1 is faster than it was: processors have gained more \
              for SHA-1 than for DES.",
};

fn levels_off(engines: &[&Sweep]) -> Option<Finding> {
    let share = |sweep: &&Sweep| {
        let last = sweep.loads.last()?;
        let ratio = Spread::of(last.iter().map(|flow| flow.delivered / flow.offered))?;
        Some((format!("{} {:.0}", sweep.suite.name(), sweep.overloaded()?.median), ratio))
    };
    judge(&LEVELS_OFF, engines.iter().filter_map(share))
}

const ORDER: Claim<'static> = Claim {
    what: "order of the engines",
    paper: "DES, 3DES, NULL+SHA, 3DES+SHA, from the fastest to the slowest",
    holds: Bound::Above(1.0),
    agrees: "The lighter the computation, the higher the throughput.",
    differs: "The lighter computation is still faster, but SHA-1 is now lighter than DES and 3DES: it has \
              instructions, and they have none.",
};

fn order(engines: &[&Sweep]) -> Option<Finding> {
    let ratio = |pair: &[&Sweep]| {
        let [faster, slower] = pair else { return None };
        let last = faster.loads.len().checked_sub(1)?;
        let ratio = Spread::of_ratios(faster.delivered(last), slower.delivered(last))?;
        Some((format!("{} {} times {}", faster.suite.name(), ratio.text(2), slower.suite.name()), ratio))
    };
    judge(&ORDER, engines.windows(2).filter_map(ratio))
}

/// Load in packets per second that saturates the paper's engines.
const SATURATING: u64 = 1_500;

const FALLS: Claim<'static> = Claim {
    what: "throughput falls beyond saturation",
    paper: "yes, because of the packets that the engine discards",
    holds: Bound::Below(0.9),
    agrees: "Discarding a packet costs the engine time that it lacks for others.",
    differs: "The queue in front of the engine drops excess packets, on the processor of the sender. They cost \
              the engine nothing.",
};

fn falls(engines: &[&Sweep], plan: &Plan) -> Option<Finding> {
    let [first, last] =
        [SATURATING, *plan.loads.last()?].map(|load| plan.loads.iter().position(|other| *other == load));
    let (first, last) = (first?, last?);
    let is_saturated = |sweep: &&&Sweep| {
        Spread::of(sweep.delivered(first)).is_some_and(|rate| rate.median < 0.9 * SATURATING as f64)
    };
    let ratio = |sweep: &&Sweep| {
        let ratio = Spread::of_ratios(sweep.delivered(last), sweep.delivered(first))?;
        // A slow engine may deliver nothing in a short turn.
        let ratio = Some(ratio).filter(|ratio| ratio.max.is_finite())?;
        Some((format!("{} {} times its throughput at 1,500", sweep.suite.name(), ratio.text(2)), ratio))
    };
    judge(&FALLS, engines.iter().filter(is_saturated).filter_map(ratio))
}

const GROWS: Claim<'static> = Claim {
    what: "longer packets give a higher bit rate",
    paper: "yes, significantly with DES and NULL+SHA",
    holds: Bound::Above(1.0),
    agrees: "Part of the work is done once per packet, regardless of its length.",
    differs: "The cost of a packet grows faster than its length.",
};

fn grows(engines: &[&Sweep], plan: &Plan) -> Option<Finding> {
    let place = plan.lengths.len().checked_sub(1)?;
    let (short, long) = (*plan.lengths.first()?, *plan.lengths.last()?);
    let ratio = |sweep: &&Sweep| {
        let ratio = Spread::of_ratios(sweep.mbit_per_second(place, long), sweep.mbit_per_second(0, short))?;
        Some((format!("{} {} times", sweep.suite.name(), ratio.text(1)), ratio))
    };
    judge(&GROWS, engines.iter().filter_map(ratio))
}

/// Judges a claim by ratios with their texts; `None` without ratios.
fn judge(claim: &Claim<'_>, ratios: impl Iterator<Item = (String, Spread)>) -> Option<Finding> {
    let (texts, ratios): (Vec<String>, Vec<Spread>) = ratios.unzip();
    (!ratios.is_empty()).then(|| claim.judge(texts.join(", "), &ratios))
}

#[cfg(test)]
mod tests {
    use super::super::LENGTHS;
    use super::*;
    use crate::voice::bottleneck::FlowRates;
    use casemate_measure::report::Agreement;
    use casemate_measure::stats::LEAST_ROUNDS;

    /// An engine that delivers at most `peaks` of each load.
    fn sweep(suite: Suite, plan: &Plan, peaks: [f64; 2]) -> Sweep {
        let flows = plan.loads.iter().zip(peaks).map(|(load, peak)| {
            let offered = *load as f64;
            vec![FlowRates { offered, delivered: offered.min(peak) }; LEAST_ROUNDS]
        });
        let by_length = LENGTHS.iter().map(|_| vec![peaks[1]; LEAST_ROUNDS]).collect();
        Sweep { suite, loads: flows.collect(), by_length }
    }

    fn agreements(all: &[(Suite, [f64; 2])]) -> Vec<Agreement> {
        let plan = Plan { lengths: &LENGTHS, ..Plan::of(true) };
        let sweeps: Vec<Sweep> = all.iter().map(|(suite, peaks)| sweep(*suite, &plan, *peaks)).collect();
        of(&sweeps, &plan).iter().map(|finding| finding.agreement).collect()
    }

    #[test]
    fn the_papers_engines_agree() {
        let engines = PAPERS.into_iter().zip([1_000.0, 700.0, 600.0, 400.0]);
        let engines: Vec<_> = engines.map(|(suite, peak)| (suite, [peak, peak * 0.8])).collect();
        assert_eq!(agreements(&engines), [Agreement::Agrees; 4]);
    }

    #[test]
    fn a_fast_mac_and_a_queue_in_front_differ() {
        let engines = [(Suite::Des, [1_000.0; 2]), (Suite::NullSha, [2_400.0; 2])];
        let expected = [Agreement::Differs, Agreement::Differs, Agreement::Differs, Agreement::Agrees];
        assert_eq!(agreements(&engines), expected);
    }

    #[test]
    fn nothing_is_found_about_plain_packets() {
        assert_eq!(agreements(&[(Suite::Plain, [2_500.0; 2])]), []);
    }
}
