//! Medians and ratios of the samples, compared with the paper.

mod findings;

use super::protection::{
    Case, EXPECTED_RATES, Forwarder, REMEDIES, REMEDY_CASES, ROWS, Row, era, remedies, today,
};
use super::testbed::{Sample, Schedule};
use casemate_measure::report::{Axis, Figure, Part, Point, Samples, Series, Shape, Skipped, Table};
use casemate_measure::stats::Spread;

/// All samples of every case, in the order of the rounds.
pub(super) struct Measured(Vec<(Case, Vec<Sample>)>);

impl Measured {
    pub(super) fn new(cases: &[Case]) -> Self {
        Self(cases.iter().map(|case| (*case, Vec::new())).collect())
    }

    pub(super) fn push(&mut self, case: Case, sample: Sample) {
        if let Some((_, outcomes)) = self.0.iter_mut().find(|(other, _)| *other == case) {
            outcomes.push(sample);
        }
    }

    fn of(&self, case: Case) -> &[Sample] {
        self.0.iter().find(|(other, _)| *other == case).map_or(&[], |(_, outcomes)| outcomes)
    }

    fn spread(&self, case: Case, quantity: fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.of(case).iter().map(quantity))
    }

    /// Ratio of the rates of two cases in the same round.
    fn ratio(&self, case: Case, base: Case) -> Option<Spread> {
        self.ratio_of(case, base, |sample| sample.rate)
    }

    /// Ratio of a quantity of two cases in the same round.
    fn ratio_of(&self, case: Case, base: Case, quantity: fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of_ratios(self.of(case).iter().map(quantity), self.of(base).iter().map(quantity))
    }

    /// Rate relative to the first row.
    fn share(&self, case: Case) -> Option<Spread> {
        ROWS.first().and_then(|first| self.ratio(case, era(first)))
    }

    /// Returns the parts for the report.
    pub(super) fn parts(&self, effort: Schedule, skipped: Vec<Skipped>) -> Vec<Part> {
        let turns = format!(
            "Each measurement took {:.2} s, after a warm-up of a third of that for TCP; {} rounds with \
                 all cases in turns. Medians with minimum and maximum. Ratios are relative to the first \
                 row in the same round.",
            effort.sample_time.as_secs_f64(),
            self.0.iter().map(|(_, outcomes)| outcomes.len()).max().unwrap_or_default(),
        );
        let table = Part {
            title: "The table of ten rows".into(),
            text: format!("{TABLE_TEXT} {turns}"),
            figures: vec![self.rows_figure(), self.switches_figure()],
            tables: vec![self.rows_table()],
            findings: findings::of_rows(self),
            samples: self.samples(),
            skipped,
        };
        let remedies = Part {
            title: "The paper's remedies".into(),
            text: REMEDIES_TEXT.into(),
            figures: vec![self.remedies_figure()],
            tables: vec![self.remedies_table()],
            findings: findings::of_remedies(self),
            ..Part::default()
        };
        vec![table, remedies]
    }

    fn rows_figure(&self) -> Figure {
        let first = ROWS.first().map_or(1.0, |row| row.paper);
        let paper = (0..).zip(&ROWS).map(|(place, row)| Point::at(f64::from(place), row.paper / first));
        let ours = |case: fn(&Row) -> Option<Case>| {
            let rows = (0..).zip(&ROWS);
            rows.filter_map(move |(place, row)| Some(point(f64::from(place), self.share(case(row)?)?)))
        };
        Figure {
            title: "Rate of each row, relative to the first".into(),
            caption: "The axis is logarithmic. The paper gives kb/s without saying whether these are \
                 bits or bytes; relative rates do not depend on it."
                .into(),
            x: Axis::names("row of the table", ROWS.iter().map(|row| row.short)),
            y: Axis::log("rate relative to no IPsec and no STREAMS"),
            series: vec![
                Series::paper("1997, Solaris 2.5", Shape::Bars, paper),
                Series::ours("here, DES and MD5", Shape::Bars, ours(|row| Some(era(row)))),
                Series::ours("here, AES-GCM and SHA-2", Shape::Bars, ours(today)),
            ],
        }
    }

    fn switches_figure(&self) -> Figure {
        let rows = (0..).zip(&ROWS);
        let points = rows
            .filter_map(|(place, row)| Some(point(f64::from(place), self.spread(era(row), |o| o.switches)?)));
        Figure {
            title: "Context switches per segment".into(),
            caption: "Sum of the programs of both hosts. The paper considers them the cause but does not \
                 count them. The first row has no program."
                .into(),
            x: Axis::names("row of the table", ROWS.iter().map(|row| row.short)),
            y: Axis::linear("switches per segment"),
            series: vec![Series::ours("here, DES and MD5", Shape::Bars, points)],
        }
    }

    fn rows_table(&self) -> Table {
        let first = ROWS.first().map_or(1.0, |row| row.paper);
        let rows = ROWS.iter().map(|row| {
            let (era, today) = (era(row), today(row));
            let text = |spread: Option<Spread>, digits| {
                spread.map_or_else(|| "-".into(), |spread| spread.text(digits))
            };
            let cell = |quantity: fn(&Sample) -> f64, digits| match row.forwarder {
                Forwarder::Clear => "-".into(),
                _ => text(self.spread(era, quantity), digits),
            };
            vec![
                row.name.into(),
                format!("{}", row.paper),
                format!("{:.3}", row.paper / first),
                text(self.spread(era, |o| o.rate), 0),
                text(self.share(era), 3),
                text(today.and_then(|today| self.spread(today, |o| o.rate)), 0),
                text(today.and_then(|today| self.share(today)), 3),
                cell(|o| o.switches, 2),
                cell(|o| o.cpu, 1),
            ]
        });
        let columns = [
            "Row",
            "Paper, kb/s",
            "Paper, share",
            "DES and MD5, Mb/s",
            "share",
            "AES-GCM and SHA-2, Mb/s",
            "share",
            "Switches a segment",
            "CPU a segment, µs",
        ];
        Table { title: "Performance".into(), columns: columns.map(Into::into).into(), rows: rows.collect() }
    }

    fn remedies_figure(&self) -> Figure {
        let series = (0..).zip(REMEDIES).map(|(remedy, name): (usize, _)| {
            let points = (0..).zip(REMEDY_CASES).filter_map(move |(place, (_, protection, suite))| {
                let case = *remedies(protection, suite).get(remedy)?;
                Some(point(f64::from(place), self.share(case)?))
            });
            Series::ours(name, Shape::Bars, points)
        });
        // The kernel may not support IPsec.
        let series = series.filter(|series| !series.points.is_empty());
        let first = ROWS.first().map_or(1.0, |row| row.paper);
        let [least, most] = EXPECTED_RATES.map(|rate| rate / first);
        let hope = Series::paper(
            "the paper's expectation for one context",
            Shape::Points,
            [Point::with_range(0.0, f64::midpoint(least, most), least, most)],
        );
        Figure {
            title: "What the remedies come to".into(),
            caption: "Relative to the rate without IPsec and STREAMS; the axis is logarithmic. Gateway \
                 and kernel process many segments at once, the modules do not. Neither takes part in \
                 bypassed traffic."
                .into(),
            x: Axis::names("protection and algorithms", REMEDY_CASES.map(|(name, ..)| name)),
            y: Axis::log("rate relative to no IPsec and no STREAMS"),
            series: series.chain([hope]).collect(),
        }
    }

    fn remedies_table(&self) -> Table {
        let rows = REMEDY_CASES.iter().map(|(name, protection, suite)| {
            let cases = remedies(*protection, *suite);
            let cells = cases.map(|case| {
                self.spread(case, |o| o.rate).map_or_else(|| "-".into(), |spread| spread.text(0))
            });
            let [queues, others @ ..] = cases;
            let gains = others.map(|case| {
                self.ratio(case, queues).map_or_else(|| "-".into(), |spread| format!("{:.1}", spread.median))
            });
            std::iter::once((*name).into()).chain(cells).chain(gains).collect()
        });
        let rates = REMEDIES.map(|name| format!("{name}, Mb/s"));
        let gains = REMEDIES.into_iter().skip(1).map(|name| format!("{name}, times queues"));
        let columns = std::iter::once("Protection".to_owned()).chain(rates).chain(gains);
        Table { title: "Rates with the remedies".into(), columns: columns.collect(), rows: rows.collect() }
    }

    fn samples(&self) -> Vec<Samples> {
        let of = |case: Case, what: &str, unit: &str, quantity: fn(&Sample) -> f64| Samples {
            // Only rates characterise the machine; context switches depend on the order of events.
            repeated: unit == "Mb/s",
            ..Samples::repeated(
                format!("{}: {what}", case.name()),
                unit,
                self.of(case).iter().map(quantity).collect(),
            )
        };
        self.0
            .iter()
            .flat_map(|(case, _)| {
                [
                    of(*case, "rate", "Mb/s", |o| o.rate),
                    of(*case, "context switches", "per segment", |o| o.switches),
                    of(*case, "CPU time", "µs per segment", |o| o.cpu),
                ]
            })
            .collect()
    }
}

fn point(x: f64, spread: Spread) -> Point {
    Point::with_range(x, spread.median, spread.min, spread.max)
}

const TABLE_TEXT: &str = "The paper copied a large file with rcp between workstations over Ethernet. \
     Here it is a TCP transfer between two network namespaces over a veth pair, with packets of at most \
     1,380 bytes in every row and no segmentation offload. The first row is the kernel alone. In all \
     other rows, packets pass through a TUN interface, four modules in each direction, and a UDP socket \
     that represents the driver. The meaning of the paper's eighth row is uncertain; AH inside \
     tunnel-mode ESP is measured. ESP has an ICV here (HMAC-MD5-96), which DES-CBC of 1997 did not have.";

const REMEDIES_TEXT: &str = "The paper proposes to process packets in one context unless a driver is \
     congested (expecting 180 to 200 kb/s), to combine the modules into one driver with function calls, \
     and to implement IPsec inside IP. One context: the same modules, called as functions in one program. \
     One context until it is congested: the Casemate gateway, whose main thread reads, protects and \
     sends, and is assisted by other threads only while more packets wait than it can protect. Inside IP: \
     the kernel's own IPsec with the same SAs, if available; packets then do not leave the kernel between \
     TCP and the link.";
