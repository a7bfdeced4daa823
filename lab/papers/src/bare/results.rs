//! Costs against packet length, as in the paper, each with a fitted line.

mod table_2;

use super::benchmark::{
    Benchmark, CIPHER, DIRECTIONS, MAC, OPERATIONS, Operation, Suite, direction_name, sizes,
};
use casemate_datapath::Direction;
use casemate_measure::harness::{Schedule, Series as Measured};
use casemate_measure::report::{
    Axis, Bound, Claim, Figure, Finding, Part, Point, Samples, Series, Shape, Table,
};
use casemate_measure::stats::{LEAST_ROUNDS, LinearFit, Spread};
use casemate_sa::Mode;

/// Minimum coefficient of determination of a line that counts as straight.
const STRAIGHT: f64 = 0.98;
/// Relative differences below this count as equal.
const SAME: f64 = 0.02;
/// Payload in bytes above which transport mode was more expensive than tunnel mode in the paper, inbound.
const CROSSING: usize = 640;

const TUNNEL: Operation = Operation::Esp(Suite::Paper, Mode::Tunnel);
const TRANSPORT: Operation = Operation::Esp(Suite::Paper, Mode::Transport);

/// An operation on packets of one size in one direction.
#[derive(Clone, Copy)]
struct Timed {
    operation: Operation,
    direction: Direction,
    size: usize,
}

/// Costs of all benchmarks in nanoseconds per packet.
struct Costs<'a> {
    benchmarks: &'a [Benchmark],
    series: &'a [Measured],
}

/// Returns the part for the report.
pub(super) fn parts(benchmarks: &[Benchmark], series: &[Measured], effort: Schedule) -> Vec<Part> {
    let costs = Costs { benchmarks, series };
    let text = format!(
        "{CIPHER} with {MAC}, the paper's suite, and AES-128-GCM with a 16-byte ICV; ICMP echo requests \
             with 64 to 1,024 bytes of payload; one packet per call; provider AWS-LC. {} rounds with \
             turns of {:.1} ms; medians, and lines over the middle half of the samples. The paper counted \
             ticks of a 2.4 GHz processor (it prints MHz) and its figures have no numbers, so only shapes \
             can be compared.",
        effort.rounds,
        effort.turn.as_secs_f64() * 1e3,
    );
    let figures = (6..).zip(DIRECTIONS).map(|(number, direction)| costs.figure(number, direction));
    vec![Part {
        title: "Internal ESP timing".into(),
        text,
        figures: figures.collect(),
        tables: vec![costs.table(), table_2::table(&costs)],
        findings: costs.findings(),
        samples: costs.samples(),
        ..Part::default()
    }]
}

impl Costs<'_> {
    fn spread(&self, operation: Operation, direction: Direction, size: usize) -> Option<Spread> {
        let benchmark = Benchmark { operation, direction, size };
        let mut pairs = self.benchmarks.iter().zip(self.series);
        let (_, series) = pairs.find(|(other, _)| **other == benchmark)?;
        Spread::interquartile(series.samples().iter().copied())
    }

    fn median(&self, operation: Operation, direction: Direction, size: usize) -> Option<f64> {
        self.spread(operation, direction, size).map(|spread| spread.median)
    }

    fn line(&self, operation: Operation, direction: Direction) -> Option<LinearFit> {
        let point = |size| Some((size as f64, self.median(operation, direction, size)?));
        LinearFit::fit(&sizes().filter_map(point).collect::<Vec<_>>())
    }

    fn figure(&self, number: usize, direction: Direction) -> Figure {
        let series = OPERATIONS.map(|operation| {
            let point = |size| {
                let Spread { median, min: least, max: most, .. } = self.spread(operation, direction, size)?;
                Some(Point::with_range(size as f64, median, least, most))
            };
            Series::ours(operation.name(), Shape::Line, sizes().filter_map(point))
        });
        Figure {
            title: format!("As figure {number}: processing time of ESP, {}", direction_name(direction)),
            caption: "Upper lines: ESP in total. Lower lines: MAC and cipher of the paper's suite.".into(),
            x: Axis::linear("payload of the packet in bytes"),
            y: Axis::linear("nanoseconds a packet"),
            series: series.into(),
        }
    }

    /// Table of the fitted lines, with the cost besides cipher and MAC.
    fn table(&self) -> Table {
        let pairs =
            OPERATIONS.into_iter().flat_map(|operation| DIRECTIONS.map(|direction| (operation, direction)));
        let rows = pairs.filter_map(|(operation, direction)| {
            let LinearFit { intercept: fixed, slope, r_squared } = self.line(operation, direction)?;
            let name = format!("{}, {}", operation.name(), direction_name(direction));
            let last = self.median(operation, direction, 1024)?;
            let rest = (operation == TUNNEL).then(|| self.overhead(direction, 1024)).flatten();
            let rest = rest.map_or_else(|| "-".into(), |rest| format!("{rest:.0}"));
            Some(vec![
                name,
                format!("{fixed:.0}"),
                format!("{slope:.3}"),
                format!("{r_squared:.4}"),
                format!("{last:.0}"),
                rest,
            ])
        });
        let columns = [
            "Operation",
            "At no payload, ns",
            "For each byte, ns",
            "R²",
            "At 1,024 bytes, ns",
            "Besides MAC and cipher, at 1,024 bytes, ns",
        ];
        Table {
            title: "Lines fitted to the medians".into(),
            columns: columns.map(Into::into).into(),
            rows: rows.collect(),
        }
    }

    /// Cost of look-up, replay protection, padding, headers and policy.
    fn overhead(&self, direction: Direction, size: usize) -> Option<f64> {
        let of = |operation| self.median(operation, direction, size);
        Some(of(TUNNEL)? - of(Operation::Mac)? - of(Operation::Cipher)?)
    }

    fn findings(&self) -> Vec<Finding> {
        let all = [
            self.linear(),
            self.inbound(),
            self.mac(),
            self.overhead_is_constant(),
            self.tunnel(),
            self.crossing(Suite::Paper),
            self.crossing(Suite::Modern),
        ];
        all.into_iter().flatten().collect()
    }

    /// Median of a block of consecutive rounds. [`LEAST_ROUNDS`] blocks share the rounds, so that a few
    /// disturbed rounds do not decide about a claim.
    fn block(&self, operation: Operation, direction: Direction, size: usize, block: usize) -> Option<f64> {
        let benchmark = Benchmark { operation, direction, size };
        let mut pairs = self.benchmarks.iter().zip(self.series);
        let samples = pairs.find(|(other, _)| **other == benchmark)?.1.samples();
        let place = |block: usize| samples.len() * block / LEAST_ROUNDS;
        let samples = samples.get(place(block)..place(block + 1))?;
        Some(Spread::of(samples.iter().copied())?.median)
    }

    /// Spread of a value of every block.
    fn blocks(of_block: impl Fn(usize) -> Option<f64>) -> Option<Spread> {
        Spread::of((0..LEAST_ROUNDS).map(of_block).collect::<Option<Vec<f64>>>()?)
    }

    /// Ratio of two costs in every block.
    fn ratio(&self, own: Timed, base: Timed) -> Option<Spread> {
        let cost = |timed: Timed, block| self.block(timed.operation, timed.direction, timed.size, block);
        Self::blocks(|block| Some(cost(own, block)? / cost(base, block)?))
    }

    /// Ratio of two operations in every block: the median over sizes.
    fn ratio_over_sizes(&self, [own, base]: [(Operation, Direction); 2], from: usize) -> Option<Spread> {
        let cost = |(operation, direction): (Operation, Direction), size, block| {
            self.block(operation, direction, size, block)
        };
        let ratio = |size, block| Some(cost(own, size, block)? / cost(base, size, block)?);
        Self::blocks(|block| {
            let ratios = sizes().filter(|size| *size > from).filter_map(|size| ratio(size, block));
            Some(Spread::of(ratios)?.median)
        })
    }

    fn linear(&self) -> Option<Finding> {
        let pairs = [TUNNEL, TRANSPORT]
            .into_iter()
            .flat_map(|operation| DIRECTIONS.map(|direction| (operation, direction)));
        let straightness = |(operation, direction): (Operation, Direction)| {
            Self::blocks(|block| {
                let point = |size| Some((size as f64, self.block(operation, direction, size, block)?));
                Some(LinearFit::fit(&sizes().filter_map(point).collect::<Vec<_>>())?.r_squared)
            })
        };
        let all = pairs.map(straightness).collect::<Option<Vec<Spread>>>()?;
        let least = all.iter().fold(1.0_f64, |least, fit| least.min(fit.median));
        Some(LINEAR.judge(format!("R² of {least:.4} or more"), &all))
    }

    fn inbound(&self) -> Option<Finding> {
        let pair = DIRECTIONS.map(|direction| (TUNNEL, direction));
        let ratio = self.ratio_over_sizes(pair, 0)?;
        Some(INBOUND.judge(percent_more(ratio, "than outbound"), &[ratio]))
    }

    fn mac(&self) -> Option<Finding> {
        let ratio = |size| {
            let timed = |operation| Timed { operation, direction: Direction::Inbound, size };
            self.ratio(timed(Operation::Mac), timed(Operation::Cipher))
        };
        let ratios = [64, 512, 1024].map(ratio).into_iter().collect::<Option<Vec<Spread>>>()?;
        let of = |operation, direction| self.median(operation, direction, 1024);
        let mac = of(Operation::Mac, Direction::Inbound)?;
        let (decrypt, encrypt) =
            (of(Operation::Cipher, Direction::Inbound)?, of(Operation::Cipher, Direction::Outbound)?);
        let texts: Vec<String> = ratios.iter().map(|ratio| ratio.text(2)).collect();
        let ours = format!(
            "{} times as much at 64, 512 and 1,024 bytes; {mac:.0} ns for the MAC, {decrypt:.0} for \
             decryption, {encrypt:.0} for encryption at 1,024 bytes",
            texts.join(", ")
        );
        Some(MAC_DEARER.judge(ours, &ratios))
    }

    fn overhead_is_constant(&self) -> Option<Finding> {
        let share = |block| {
            let of = |operation, size| self.block(operation, Direction::Inbound, size, block);
            let rest =
                |size| Some(of(TUNNEL, size)? - of(Operation::Mac, size)? - of(Operation::Cipher, size)?);
            let rests = Spread::of(sizes().filter_map(rest))?;
            Some((rests.max - rests.min) / of(TUNNEL, 1024)?)
        };
        let share = Self::blocks(share)?;
        let rests = sizes().filter_map(|size| self.overhead(Direction::Inbound, size));
        let ours = format!(
            "{} ns over all sizes; it varies by {} of the total of the largest packet",
            Spread::of(rests)?.text(0),
            share.text(2)
        );
        Some(CONSTANT.judge(ours, &[share]))
    }

    fn tunnel(&self) -> Option<Finding> {
        let size = 256;
        let ratio = |direction| {
            let timed = |operation| Timed { operation, direction, size };
            self.ratio(timed(TUNNEL), timed(TRANSPORT))
        };
        let [inbound, outbound] = DIRECTIONS.map(ratio);
        let (inbound, outbound) = (inbound?, outbound?);
        let ours = format!(
            "tunnel mode takes {} times as long outbound, {} inbound",
            outbound.text(3),
            inbound.text(3)
        );
        Some(TUNNEL_DEARER.judge(ours, &[outbound, inbound]))
    }

    /// The paper's unexplained observation. The cost per byte decides about it, so both suites are checked.
    fn crossing(&self, suite: Suite) -> Option<Finding> {
        let pair =
            [Mode::Transport, Mode::Tunnel].map(|mode| (Operation::Esp(suite, mode), Direction::Inbound));
        let ratio = self.ratio_over_sizes(pair, CROSSING)?;
        let claim = Claim {
            what: &format!(
                "inbound, transport mode is more expensive than tunnel mode above 640 bytes ({})",
                suite.name()
            ),
            ..CROSSES
        };
        Some(claim.judge(percent_more(ratio, "than tunnel mode (median of sizes)"), &[ratio]))
    }

    fn samples(&self) -> Vec<Samples> {
        let pairs = self.benchmarks.iter().zip(self.series);
        pairs
            .map(|(benchmark, series)| Samples::repeated(benchmark.name(), "ns", series.samples().to_vec()))
            .collect()
    }
}

/// A ratio in words, such as `6.1 % more than outbound (5.0 % to 7.2 %)`.
fn percent_more(ratio: Spread, than: &str) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let word = if ratio.median < 1.0 { "less" } else { "more" };
    let (least, most) = (percent(ratio.min), percent(ratio.max));
    format!("{:.1} % {word} {than} ({least:+.1} % to {most:+.1} %)", percent(ratio.median).abs())
}

const LINEAR: Claim<'static> = Claim {
    what: "the cost is a linear function of the size",
    paper: "approximately linear, in both modes and both directions",
    holds: Bound::Above(STRAIGHT),
    agrees: "Cipher and MAC work block by block; all other costs are independent of the size. The sizes \
             differ by more than the blocks of 16 bytes.",
    differs: "The medians are not on a line: something besides cipher and MAC depends on the size.",
};
const INBOUND: Claim<'static> = Claim {
    what: "inbound against outbound (tunnel mode, median of all sizes)",
    paper: "6 % more, for replay protection and verification",
    holds: Bound::Within(1.02, 1.12),
    agrees: "Encryption and decryption cost about the same on this processor, so replay protection and \
             verification show.",
    differs: "AES-CBC decrypts blocks in parallel but encrypts them sequentially (RFC 3602). With AES \
              instructions, this saves inbound far more than replay protection and verification cost. \
              In the software of 2009, encryption and decryption cost the same.",
};
const MAC_DEARER: Claim<'static> = Claim {
    what: "the MAC costs more than decryption",
    paper: "so at all sizes",
    holds: Bound::Above(1.0),
    agrees: "SHA-1 is sequential; decryption in CBC mode is parallel.",
    differs: "With instructions for SHA-1, or without those for AES, decryption costs more.",
};
const CONSTANT: Claim<'static> = Claim {
    what: "the cost besides MAC and decryption does not depend on the size (inbound)",
    paper: "it does not vary significantly",
    holds: Bound::Below(0.2),
    agrees: "Look-up, replay window, headers and policy do not touch the payload. Agrees if the cost \
             varies by less than a fifth of the total cost of the largest packet.",
    differs: "The costs are differences of separate measurements. They vary by more than a fifth of the total \
              cost of the largest packet.",
};
const TUNNEL_DEARER: Claim<'static> = Claim {
    what: "tunnel mode costs more than transport mode (256 bytes)",
    paper: "slightly more, in both directions",
    holds: Bound::Above(1.0),
    agrees: "Tunnel mode protects 20 bytes more and writes another header.",
    differs: "Transport mode moves the existing header and recomputes its checksum, which costs more than the \
              20 bytes that tunnel mode protects in addition.",
};
const CROSSES: Claim<'static> = Claim {
    what: "",
    paper: "it is, and the authors could not explain it",
    holds: Bound::Above(1.0 + SAME),
    agrees: "Transport mode moves the existing header and recomputes its checksum, at a constant cost, which \
             outweighs the 20 bytes that tunnel mode passes through cipher and MAC in addition.",
    differs: "Tunnel mode passes 20 more bytes through cipher and MAC. Which mode is more expensive depends on \
              the cost per byte, not on the size of the packet.",
};
