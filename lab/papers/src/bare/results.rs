//! Costs against packet length, as in the paper, each with a fitted line.

use super::benchmark::{
    Benchmark, CIPHER, DIRECTIONS, MAC, OPERATIONS, Operation, Suite, direction_name, sizes,
};
use casemate_datapath::Direction;
use casemate_measure::harness::{Schedule, Series as Measured};
use casemate_measure::report::{
    Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape, Table,
};
use casemate_measure::stats::LinearFit;
use casemate_measure::stats::Spread;
use casemate_sa::Mode;

/// Minimum coefficient of determination of a line that counts as straight.
const STRAIGHT: f64 = 0.98;
/// Relative differences below this count as equal.
const SAME: f64 = 0.02;
/// Payload in bytes above which transport mode was more expensive than tunnel mode in the paper, inbound.
const CROSSING: usize = 640;

const TUNNEL: Operation = Operation::Esp(Suite::Paper, Mode::Tunnel);
const TRANSPORT: Operation = Operation::Esp(Suite::Paper, Mode::Transport);

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
        tables: vec![costs.table()],
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

    fn linear(&self) -> Option<Finding> {
        let pairs = [TUNNEL, TRANSPORT]
            .into_iter()
            .flat_map(|operation| DIRECTIONS.map(|direction| (operation, direction)));
        let lines = pairs
            .map(|(operation, direction)| self.line(operation, direction))
            .collect::<Option<Vec<_>>>()?;
        let least = lines.iter().fold(1.0_f64, |least, line| least.min(line.r_squared));
        Some(finding(
            "the cost is a linear function of the size",
            "approximately linear, in both modes and both directions",
            format!("R² of {least:.4} or more"),
            least >= STRAIGHT,
            "Cipher and MAC work block by block; all other costs are independent of the size. The sizes \
                 differ by more than the blocks of 16 bytes.",
        ))
    }

    fn inbound(&self) -> Option<Finding> {
        let ratio = |size| {
            Some(
                self.median(TUNNEL, Direction::Inbound, size)?
                    / self.median(TUNNEL, Direction::Outbound, size)?,
            )
        };
        let more = (Spread::of(sizes().filter_map(ratio))?.median - 1.0) * 100.0;
        let ours = if more < 0.0 {
            format!("{:.0} % less than outbound", -more)
        } else {
            format!("{more:.0} % more than outbound")
        };
        Some(finding(
            "inbound against outbound (tunnel mode, median of all sizes)",
            "6 % more, for replay protection and verification",
            ours,
            (2.0..=12.0).contains(&more),
            "AES-CBC decrypts blocks in parallel but encrypts them sequentially (RFC 3602). With AES \
                 instructions, this saves inbound far more than replay protection and verification cost. \
                 In the software of 2009, encryption and decryption cost the same.",
        ))
    }

    fn mac(&self) -> Option<Finding> {
        let of = |operation, direction| self.median(operation, direction, 1024);
        let mac = of(Operation::Mac, Direction::Inbound)?;
        let (decrypt, encrypt) =
            (of(Operation::Cipher, Direction::Inbound)?, of(Operation::Cipher, Direction::Outbound)?);
        Some(finding(
            "the MAC costs more than decryption",
            "so at all sizes",
            format!(
                "{mac:.0} ns for the MAC, {decrypt:.0} for decryption, {encrypt:.0} for encryption, \
                 at 1,024 bytes"
            ),
            mac > decrypt,
            "SHA-1 is sequential; decryption in CBC mode is parallel.",
        ))
    }

    fn overhead_is_constant(&self) -> Option<Finding> {
        let rests = |direction| sizes().filter_map(move |size| self.overhead(direction, size));
        let spread = Spread::of(rests(Direction::Inbound))?;
        let whole = self.median(TUNNEL, Direction::Inbound, 1024)?;
        Some(finding(
            "the cost besides MAC and decryption does not depend on the size (inbound)",
            "it does not vary significantly",
            format!("{} ns over all sizes", spread.text(0)),
            spread.max - spread.min < 0.2 * whole,
            "Look-up, replay window, headers and policy do not touch the payload. Agrees if the cost \
                 varies by less than a fifth of the total cost of the largest packet.",
        ))
    }

    fn tunnel(&self) -> Option<Finding> {
        let small = 256;
        let of = |operation, direction| self.median(operation, direction, small);
        let outbound = of(TUNNEL, Direction::Outbound)? - of(TRANSPORT, Direction::Outbound)?;
        let inbound = of(TUNNEL, Direction::Inbound)? - of(TRANSPORT, Direction::Inbound)?;
        Some(finding(
            "tunnel mode costs more than transport mode (256 bytes)",
            "slightly more, in both directions",
            format!("{outbound:+.0} ns outbound, {inbound:+.0} ns inbound"),
            outbound > 0.0 && inbound > 0.0,
            "Tunnel mode protects 20 bytes more and writes another header. Transport mode moves the \
                 existing header and recomputes its checksum.",
        ))
    }

    /// The paper's unexplained observation. The cost per byte decides about it, so both suites are checked.
    fn crossing(&self, suite: Suite) -> Option<Finding> {
        let of = |mode, size| self.median(Operation::Esp(suite, mode), Direction::Inbound, size);
        let difference = |size| Some(of(Mode::Transport, size)? / of(Mode::Tunnel, size)? - 1.0);
        let spread = Spread::of(sizes().filter(|size| *size > CROSSING).filter_map(difference))?;
        Some(finding(
            &format!(
                "inbound, transport mode is more expensive than tunnel mode above 640 bytes ({})",
                suite.name()
            ),
            "it is, and the authors could not explain it",
            format!("{:+.1} % (median of sizes)", spread.median * 100.0),
            spread.median > SAME,
            "Transport mode moves the existing header and recomputes its checksum, at a constant cost. \
                 Tunnel mode passes 20 more bytes through cipher and MAC. Which mode is more expensive \
                 depends on the cost per byte, not on the size of the packet.",
        ))
    }

    fn samples(&self) -> Vec<Samples> {
        let pairs = self.benchmarks.iter().zip(self.series);
        pairs
            .map(|(benchmark, series)| Samples::repeated(benchmark.name(), "ns", series.samples().to_vec()))
            .collect()
    }
}

pub(super) fn finding(what: &str, paper: &str, ours: String, agrees: bool, why: &str) -> Finding {
    Finding {
        what: what.into(),
        paper: paper.into(),
        ours,
        agreement: Agreement::of(agrees),
        why: why.into(),
    }
}
