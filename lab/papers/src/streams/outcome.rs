//! What the turns came to: medians, ratios, and how they look beside the paper's.

mod findings;

use super::rows::{HOPE, REMEDIED, REMEDIES, ROWS, Row, Subject, Way, era, remedies, today};
use super::turn::{Effort, Outcome};
use casemate_measure::spread::Spread;
use casemate_report::{Axis, Figure, LeftOut, Part, Point, Samples, Series, Shape, Table};

/// Every outcome of every subject, in the order of the rounds.
pub(super) struct Measured(Vec<(Subject, Vec<Outcome>)>);

impl Measured {
    pub(super) fn new(subjects: &[Subject]) -> Self {
        Self(subjects.iter().map(|subject| (*subject, Vec::new())).collect())
    }

    pub(super) fn push(&mut self, subject: Subject, outcome: Outcome) {
        if let Some((_, outcomes)) = self.0.iter_mut().find(|(other, _)| *other == subject) {
            outcomes.push(outcome);
        }
    }

    fn of(&self, subject: Subject) -> &[Outcome] {
        self.0.iter().find(|(other, _)| *other == subject).map_or(&[], |(_, outcomes)| outcomes)
    }

    fn spread(&self, subject: Subject, quantity: fn(&Outcome) -> f64) -> Option<Spread> {
        Spread::of(self.of(subject).iter().map(quantity))
    }

    /// Rates as shares of another subject's in the same round.
    fn ratio(&self, subject: Subject, base: Subject) -> Option<Spread> {
        let pairs = self.of(subject).iter().zip(self.of(base));
        Spread::of(pairs.map(|(own, base)| own.rate / base.rate))
    }

    /// As a share of the first row.
    fn share(&self, subject: Subject) -> Option<Spread> {
        ROWS.first().and_then(|first| self.ratio(subject, era(first)))
    }

    /// Everything that is to be reported.
    pub(super) fn parts(&self, effort: Effort, left_out: Vec<LeftOut>) -> Vec<Part> {
        let turns = format!(
            "Each turn measured {:.2} s, after a third of that in which TCP found its pace; {} rounds, in which all took turns. \
             Medians, with the least and the greatest sample. Ratios are to the first row in the same round.",
            effort.turn.as_secs_f64(),
            self.0.iter().map(|(_, outcomes)| outcomes.len()).max().unwrap_or_default(),
        );
        let table = Part {
            title: "The table of ten rows".into(),
            text: format!("{TABLE_TEXT} {turns}"),
            figures: vec![self.rows_figure(), self.switches_figure()],
            tables: vec![self.rows_table()],
            findings: findings::of_rows(self),
            samples: self.samples(),
            left_out,
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
        let ours = |subject: fn(&Row) -> Option<Subject>| {
            let rows = (0..).zip(&ROWS);
            rows.filter_map(move |(place, row)| Some(point(f64::from(place), self.share(subject(row)?)?)))
        };
        Figure {
            title: "Rate of each row, as a share of the first".into(),
            caption: "The axis is logarithmic. The paper gives kb/s, and whether that is bits or bytes is not said; shares do not ask.".into(),
            x: Axis::names("row of the table", ROWS.iter().map(|row| row.short)),
            y: Axis::log("share of the rate without IPsec and STREAMS"),
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
            title: "Context switches for each segment".into(),
            caption: "In the programs of both hosts together. The paper names them as the cause and does not count them. The first row has no program.".into(),
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
            let cell = |quantity: fn(&Outcome) -> f64, digits| match row.way {
                Way::Clear => "-".into(),
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
            let points = (0..).zip(REMEDIED).filter_map(move |(place, (_, protection, suite))| {
                let subject = *remedies(protection, suite).get(remedy)?;
                Some(point(f64::from(place), self.share(subject)?))
            });
            Series::ours(name, Shape::Bars, points)
        });
        // A kernel may have no IPsec.
        let series = series.filter(|series| !series.points.is_empty());
        let first = ROWS.first().map_or(1.0, |row| row.paper);
        let [least, most] = HOPE.map(|rate| rate / first);
        let hope = Series::paper(
            "the paper's hope for one context",
            Shape::Points,
            [Point::between(0.0, f64::midpoint(least, most), least, most)],
        );
        Figure {
            title: "What the remedies come to".into(),
            caption: "As shares of the rate without IPsec and STREAMS; the axis is logarithmic. The gateway takes many segments from the kernel \
                      in one piece, which the modules do not; so does the kernel. Neither takes part in what is bypassed.".into(),
            x: Axis::names("protection and algorithms", REMEDIED.map(|(name, ..)| name)),
            y: Axis::log("share of the rate without IPsec and STREAMS"),
            series: series.chain([hope]).collect(),
        }
    }

    fn remedies_table(&self) -> Table {
        let rows = REMEDIED.iter().map(|(name, protection, suite)| {
            let subjects = remedies(*protection, *suite);
            let cells = subjects.map(|subject| {
                self.spread(subject, |o| o.rate).map_or_else(|| "-".into(), |spread| spread.text(0))
            });
            let [queues, others @ ..] = subjects;
            let gains = others.map(|subject| {
                self.ratio(subject, queues)
                    .map_or_else(|| "-".into(), |spread| format!("{:.1}", spread.median))
            });
            std::iter::once((*name).into()).chain(cells).chain(gains).collect()
        });
        let rates = REMEDIES.map(|name| format!("{name}, Mb/s"));
        let gains = REMEDIES.into_iter().skip(1).map(|name| format!("{name}, times queues"));
        let columns = std::iter::once("Protection".to_owned()).chain(rates).chain(gains);
        Table { title: "Rates with the remedies".into(), columns: columns.collect(), rows: rows.collect() }
    }

    fn samples(&self) -> Vec<Samples> {
        let of = |subject: Subject, what: &str, unit: &str, quantity: fn(&Outcome) -> f64| Samples {
            // Only rates say something of the machine's rest: switches depend on who came first.
            repeated: unit == "Mb/s",
            ..Samples::repeated(
                format!("{}: {what}", subject.name()),
                unit,
                self.of(subject).iter().map(quantity).collect(),
            )
        };
        self.0
            .iter()
            .flat_map(|(subject, _)| {
                [
                    of(*subject, "rate", "Mb/s", |o| o.rate),
                    of(*subject, "context switches", "per segment", |o| o.switches),
                    of(*subject, "CPU time", "µs per segment", |o| o.cpu),
                ]
            })
            .collect()
    }
}

fn point(x: f64, spread: Spread) -> Point {
    Point::between(x, spread.median, spread.least, spread.most)
}

const TABLE_TEXT: &str = "The paper copied a large file with rcp from one workstation to another over Ethernet. Here it is a TCP transfer \
    between two network namespaces over a virtual cable, with packets of at most 1,380 bytes in every row and no segmentation offload. \
    The first row is the kernel alone. In all others packets go through a TUN interface, four modules each way, and a UDP socket, which \
    stands for the driver. Which protection the paper's eighth row means is not certain: AH inside of tunnel-mode ESP is measured. \
    ESP has an ICV here (HMAC-MD5-96), which DES-CBC of 1997 had not.";

const REMEDIES_TEXT: &str = "The paper proposes to do everything in one context unless a driver is congested (hoping for 180 to 200 kb/s), \
    to make one driver with functional interfaces inside, and to go inside IP. One context: the same modules called as functions, one \
    program. One context until it is congested: this program's own gateway, whose one thread reads, protects and sends, and is helped \
    by others only while more packets wait than it can protect. Inside IP: the kernel's own IPsec with the same SAs, where the \
    kernel has it; no packet leaves it between TCP and the link then.";
