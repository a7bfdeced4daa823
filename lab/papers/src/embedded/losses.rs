//! Throughput on a link that loses packets: the paper's explanation of its low throughput excludes
//! retransmissions because only 2 % of its packets were sent again.

use super::flow::Flow;
use super::protection::Suite;
use super::sweep::{Grid, Quantity, Sweep};
use super::testbed::{Case, StackKind, Testbed};
use crate::Context;
use casemate_measure::report::{Axis, Bound, Claim, Figure, Finding, Part, Point, Series, Shape, Table};
use casemate_measure::stats::{LEAST_ROUNDS, Spread};
use casemate_testbed::Result;

/// The paper's rate of retransmissions in percent.
const LOST: u8 = 2;
const STACKS: [StackKind; 2] = [StackKind::Lossy(0), StackKind::Lossy(LOST)];
const SUITES: [Suite; 2] = [Suite::Plain, Suite::AhMd5];
const FLOWS: [Flow; 2] = [Flow::DeviceSends, Flow::HostSends];
/// Length of a message in bytes.
const SIZE: usize = 16_384;
/// A main reason for a low throughput takes at least this share of it.
const MAIN: f64 = 0.5;

/// Runs the step in the full form.
pub(super) fn run(context: &Context) -> Result<Vec<Part>> {
    if context.quick {
        return Ok(Vec::new());
    }
    let testbed = Testbed::new(context, None)?;
    Ok(vec![part(&grid(LEAST_ROUNDS).measure(context, &testbed))])
}

fn grid(rounds: usize) -> Grid {
    let cases = SUITES.into_iter().flat_map(|suite| STACKS.map(|stack| Case { stack, suite }));
    Grid { cases: cases.collect(), flows: FLOWS.into(), sizes: vec![SIZE], rounds }
}

fn part(sweep: &Sweep) -> Part {
    Part {
        title: "Lost packets".into(),
        text: format!("{TEXT} {}", sweep.effort()),
        figures: vec![figure(sweep)],
        tables: vec![table(sweep)],
        findings: FLOWS.into_iter().filter_map(|flow| finding(sweep, flow)).collect(),
        samples: sweep.samples(),
        skipped: sweep.skipped.clone(),
    }
}

const TEXT: &str = "The paper found that 2 % of its packets were retransmissions, and excluded them as the \
     main reason of its low throughput. Here the device with smoltcp loses 2 % of the frames that it sends \
     and 2 % of those that it receives, at random and between IPsec and the link. The same device that \
     loses none is the base. As a sender, smoltcp has no congestion control here, ignores selective \
     acknowledgements, and repeats a segment after three duplicate acknowledgements or after its timer, at \
     least one second.";

/// Throughput with losses relative to the throughput without.
fn ratio(sweep: &Sweep, suite: Suite, flow: Flow) -> Option<Spread> {
    let [without, with] = STACKS.map(|stack| Case { stack, suite });
    sweep.ratio([with, without], flow, SIZE, Quantity::Performance)
}

fn figure(sweep: &Sweep) -> Figure {
    let series = FLOWS.into_iter().map(|flow| {
        let points = SUITES.into_iter().zip(0_u8..).filter_map(|(suite, x)| {
            let Spread { median, min, max, .. } = ratio(sweep, suite, flow)?;
            Some(Point::with_range(f64::from(x), median, min, max))
        });
        Series::ours(flow.to_string(), Shape::Bars, points)
    });
    Figure {
        title: format!("Lost packets: throughput that {LOST} % leave"),
        caption: "1 is the same row without losses. The paper has no such figure.".into(),
        x: Axis::names("protection", SUITES.map(|suite| suite.to_string())),
        y: Axis::linear("throughput, ratio to no losses"),
        series: series.collect(),
    }
}

fn table(sweep: &Sweep) -> Table {
    let rows = SUITES.into_iter().flat_map(|suite| FLOWS.map(|flow| (suite, flow))).map(|(suite, flow)| {
        let throughput = |stack| sweep.spread(Case { stack, suite }, flow, SIZE, Quantity::Performance);
        let [without, with] = STACKS.map(|stack| text(throughput(stack), 1));
        vec![suite.to_string(), flow.to_string(), without, with, text(ratio(sweep, suite, flow), 3)]
    });
    let columns = ["Protection", "Direction", "No losses, Mb/s", "2 % lost, Mb/s", "Ratio"];
    Table {
        title: format!("Lost packets: throughput with messages of {SIZE} bytes"),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn text(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".into(), |spread| spread.text(digits))
}

const NOT_THE_REASON: Claim<'static> = Claim {
    what: "2 % of retransmissions are not the main reason of a low throughput",
    paper: "the rate of retransmissions was negligible (2 %), so it cannot be the main reason",
    holds: Bound::Above(MAIN),
    agrees: "More than half of the throughput is left in every row: TCP notices a lost segment by the \
             segments behind it, and repeats it.",
    differs: "Less than half of the throughput is left in at least one row. Where TCP notices a loss by \
              its timer, it waits for a fifth of a second (Linux) or a second (smoltcp), and a packet \
              takes microseconds here. On the paper's link, a packet took longer, so the same wait cost \
              fewer packets. The rate of retransmissions alone excludes nothing: the time until a \
              retransmission also counts.",
};

fn finding(sweep: &Sweep, flow: Flow) -> Option<Finding> {
    let of = |suite| Some((suite, ratio(sweep, suite, flow)?));
    let ratios = SUITES.map(of).into_iter().collect::<Option<Vec<(Suite, Spread)>>>()?;
    let texts: Vec<String> =
        ratios.iter().map(|(suite, ratio)| format!("{suite}: {} times", ratio.text(3))).collect();
    let ratios: Vec<Spread> = ratios.into_iter().map(|(_, ratio)| ratio).collect();
    let what = format!("{}, {flow}", NOT_THE_REASON.what);
    let ours = format!("throughput with 2 % lost and without, {}", texts.join(", "));
    Some(Claim { what: &what, ..NOT_THE_REASON }.judge(ours, &ratios))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::flow::Count;
    use crate::embedded::testbed::Sample;
    use casemate_measure::report::Agreement;
    use std::time::Duration;

    /// Losses leave these shares while the device sends and while the host sends.
    fn measured(left: [f64; 2], rounds: usize) -> Part {
        part(&Sweep::with(grid(rounds), |case, flow, _| {
            let place = usize::from(flow == Flow::HostSends);
            let share = if case.stack == StackKind::Lossy(LOST) { left[place] } else { 1.0 };
            let count = Count { units: 1e8 * share, elapsed: Duration::from_secs(1), pause: Duration::ZERO };
            Sample { count, cpu: Duration::from_secs(1) }
        }))
    }

    #[test]
    fn each_direction_is_judged() {
        let verdicts = |left, rounds| {
            let findings = measured(left, rounds).findings;
            findings.iter().map(|finding| finding.agreement).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([0.9, 0.2], LEAST_ROUNDS), [Agreement::Agrees, Agreement::Differs]);
        assert_eq!(verdicts([0.9, 0.2], LEAST_ROUNDS - 1), [Agreement::Unknown; 2]);
    }

    #[test]
    fn time_is_left_for_retransmissions() {
        let (lossy, time) = (grid(LEAST_ROUNDS), Duration::from_secs(41));
        // Two cases wait for a second, in two flows and five rounds.
        let lossless = Grid {
            cases: grid(LEAST_ROUNDS)
                .cases
                .iter()
                .map(|case| Case { stack: StackKind::Library, ..*case })
                .collect(),
            ..grid(LEAST_ROUNDS)
        };
        assert_eq!(lossy.sample_time(time), lossless.sample_time(time - Duration::from_secs(20)));
    }

    #[test]
    fn losses_are_relative_to_the_same_protection() {
        let part = measured([0.9, 0.2], LEAST_ROUNDS);
        assert_eq!(part.tables[0].rows.len(), 4);
        assert_eq!(
            part.tables[0].rows[0][2..],
            ["800.0 (800.0-800.0)", "720.0 (720.0-720.0)", "0.900 (0.900-0.900)"]
        );
        let bars = |place: usize| part.figures[0].series[place].points.iter().map(|point| point.y);
        assert!(bars(0).eq([0.9; 2]) && bars(1).eq([0.2; 2]));
    }
}
