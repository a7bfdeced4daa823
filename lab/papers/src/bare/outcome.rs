//! Costs against size, as the paper draws them, with a straight line through each.

use super::subject::{CIPHER, DIRECTIONS, MAC, OPERATIONS, Operation, Subject, Suite, sizes, way};
use casemate_datapath::Direction;
use casemate_measure::fit::Line;
use casemate_measure::harness::{Effort, Series as Measured};
use casemate_measure::spread::Spread;
use casemate_report::{Agreement, Axis, Figure, Finding, Part, Point, Samples, Series, Shape, Table};
use casemate_sa::Mode;

/// A line is called straight from here on.
const STRAIGHT: f64 = 0.98;
/// Costs closer than this are called the same.
const SAME: f64 = 0.02;
/// From this payload on, in bytes, transport mode was dearer than tunnel mode in the paper, inbound.
const CROSSING: usize = 640;

const TUNNEL: Operation = Operation::Esp(Suite::Paper, Mode::Tunnel);
const TRANSPORT: Operation = Operation::Esp(Suite::Paper, Mode::Transport);

/// The costs of all subjects, in nanoseconds a packet.
struct Costs<'a> {
    subjects: &'a [Subject],
    series: &'a [Measured],
}

/// The part that is reported.
pub(super) fn parts(subjects: &[Subject], series: &[Measured], effort: Effort) -> Vec<Part> {
    let costs = Costs { subjects, series };
    let text = format!(
        "{CIPHER} with {MAC}, the paper's suite, and AES-128-GCM with a 16-byte ICV; ICMP echo requests of 64 to 1,024 bytes of payload; one packet in a \
         call; AWS-LC's algorithms. {} rounds in which all costs took turns of {:.1} ms; medians, and lines over the middle half of the samples. \
         The paper counted ticks of a processor of 2.4 GHz (it prints MHz) and shows them in figures without numbers, so that shapes are compared and not heights.",
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
        let subject = Subject { operation, direction, size };
        let mut pairs = self.subjects.iter().zip(self.series);
        let (_, series) = pairs.find(|(other, _)| **other == subject)?;
        Spread::of_middle_half(series.samples().iter().copied())
    }

    fn median(&self, operation: Operation, direction: Direction, size: usize) -> Option<f64> {
        self.spread(operation, direction, size).map(|spread| spread.median)
    }

    fn line(&self, operation: Operation, direction: Direction) -> Option<Line> {
        let point = |size| Some((size as f64, self.median(operation, direction, size)?));
        Line::through(&sizes().filter_map(point).collect::<Vec<_>>())
    }

    fn figure(&self, number: usize, direction: Direction) -> Figure {
        let series = OPERATIONS.map(|operation| {
            let point = |size| {
                let Spread { median, least, most } = self.spread(operation, direction, size)?;
                Some(Point::between(size as f64, median, least, most))
            };
            Series::ours(operation.name(), Shape::Line, sizes().filter_map(point))
        });
        Figure {
            title: format!("As figure {number}: processing time of ESP, {}", way(direction)),
            caption: "The whole of ESP above, the MAC and the cipher of the paper's suite alone below."
                .into(),
            x: Axis::linear("payload of the packet in bytes"),
            y: Axis::linear("nanoseconds a packet"),
            series: series.into(),
        }
    }

    /// The lines, and what is left beside cipher and MAC.
    fn table(&self) -> Table {
        let pairs =
            OPERATIONS.into_iter().flat_map(|operation| DIRECTIONS.map(|direction| (operation, direction)));
        let rows = pairs.filter_map(|(operation, direction)| {
            let Line { fixed, slope, r_squared } = self.line(operation, direction)?;
            let name = format!("{}, {}", operation.name(), way(direction));
            let last = self.median(operation, direction, 1024)?;
            let rest = (operation == TUNNEL).then(|| self.rest(direction, 1024)).flatten();
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
            "Neither MAC nor cipher, at 1,024 bytes, ns",
        ];
        Table {
            title: "Straight lines through the medians".into(),
            columns: columns.map(Into::into).into(),
            rows: rows.collect(),
        }
    }

    /// Look-up, replay protection, padding, headers and policy.
    fn rest(&self, direction: Direction, size: usize) -> Option<f64> {
        let of = |operation| self.median(operation, direction, size);
        Some(of(TUNNEL)? - of(Operation::Mac)? - of(Operation::Cipher)?)
    }

    fn findings(&self) -> Vec<Finding> {
        let all = [
            self.linear(),
            self.inbound(),
            self.mac(),
            self.rest_is_constant(),
            self.tunnel(),
            self.crossing(Suite::Paper),
            self.crossing(Suite::Today),
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
            "cost against size is a straight line",
            "approximately linear, in both modes and both directions",
            format!("R² of {least:.4} or more"),
            least >= STRAIGHT,
            "Cipher and MAC work block by block; everything else does not depend on size. Steps of 16 bytes are below those of the sizes.",
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
            "inbound beside outbound (tunnel mode, median of all sizes)",
            "6 % more, for replay protection and verification",
            ours,
            (2.0..=12.0).contains(&more),
            "AES-CBC decrypts blocks side by side and encrypts them one after the other (RFC 3602): with AES instructions, opening is cheaper by far \
             more than replay protection and verification cost. In software of 2009 both directions of the cipher cost the same.",
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
                "{mac:.0} ns for the MAC, {decrypt:.0} for decryption, {encrypt:.0} for encryption, at 1,024 bytes"
            ),
            mac > decrypt,
            "SHA-1 is a chain and cannot work side by side; decryption of CBC can.",
        ))
    }

    fn rest_is_constant(&self) -> Option<Finding> {
        let rests = |direction| sizes().filter_map(move |size| self.rest(direction, size));
        let spread = Spread::of(rests(Direction::Inbound))?;
        let whole = self.median(TUNNEL, Direction::Inbound, 1024)?;
        Some(finding(
            "what is neither MAC nor decryption does not depend on size (inbound)",
            "it does not vary significantly",
            format!("{} ns over all sizes", spread.text(0)),
            spread.most - spread.least < 0.2 * whole,
            "Look-up, replay window, headers and policy do not touch the payload. Said to agree if it varies by less than a fifth of the whole cost \
             of the largest packet.",
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
            "A tunnel protects 20 bytes more and writes another header; transport mode moves the header it has, and makes its checksum anew.",
        ))
    }

    /// The paper's riddle. What a byte costs decides it, so that it is asked of both suites.
    fn crossing(&self, suite: Suite) -> Option<Finding> {
        let of = |mode, size| self.median(Operation::Esp(suite, mode), Direction::Inbound, size);
        let difference = |size| Some(of(Mode::Transport, size)? / of(Mode::Tunnel, size)? - 1.0);
        let spread = Spread::of(sizes().filter(|size| *size > CROSSING).filter_map(difference))?;
        Some(finding(
            &format!("inbound, transport mode is dearer than tunnel mode above 640 bytes ({})", suite.name()),
            "it is, and the authors could not say why",
            format!("{:+.1} % (median of sizes)", spread.median * 100.0),
            spread.median > SAME,
            "Transport mode moves the header that it keeps and makes its checksum anew, at a cost that no size changes; a tunnel's 20 bytes more go \
             through cipher and MAC. Which mode is dearer depends on what a byte costs, and not on the size of the packet.",
        ))
    }

    fn samples(&self) -> Vec<Samples> {
        let pairs = self.subjects.iter().zip(self.series);
        pairs
            .map(|(subject, series)| Samples::repeated(subject.name(), "ns", series.samples().to_vec()))
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
