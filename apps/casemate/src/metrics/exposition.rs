//! The text of a page: OpenMetrics 1.0, or the text format 0.0.4 of Prometheus, which older programs expect.
//!
//! A page is made piece by piece, so that the memory for a client does not depend on the number of tunnels.

use super::Snapshot;
use super::families::{FAMILIES, Family, Kind, Rows};
use std::fmt::{Display, Write};
use std::sync::Arc;

/// Length in bytes from which a piece is complete. It is longer by at most one row.
const PIECE: usize = 64 << 10;

/// The format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Text,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A page of which a part has been written.
pub(super) struct Exposition {
    snapshot: Arc<Snapshot>,
    format: Format,
    /// Index of the next family.
    family: usize,
    /// Index of its next row.
    row: usize,
    /// Whether the head of the family has been written.
    has_head: bool,
    is_complete: bool,
}

impl Exposition {
    /// The page of these values.
    pub(super) const fn new(snapshot: Arc<Snapshot>, format: Format) -> Self {
        Self { snapshot, format, family: 0, row: 0, has_head: false, is_complete: false }
    }

    /// The next piece; `None` after the last one.
    pub(super) fn next_piece(&mut self) -> Option<String> {
        if self.is_complete {
            return None;
        }
        let mut text = String::with_capacity(PIECE.saturating_add(PIECE / 8));
        while text.len() < PIECE {
            let Some(family) = FAMILIES.get(self.family) else {
                self.is_complete = true;
                if self.format == Format::OpenMetrics {
                    text.push_str("# EOF\n");
                }
                break;
            };
            if !self.write_row(family, &mut text) {
                (self.family, self.row, self.has_head) = (self.family.saturating_add(1), 0, false);
            }
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// Writes the next row of a family. Returns false if there is none.
    fn write_row(&mut self, family: &'static Family, text: &mut String) -> bool {
        let Self { snapshot, format, row, has_head, .. } = self;
        let mut samples = Samples { family, format: *format, has_head, text };
        match family.rows {
            Rows::Once(write) if *row == 0 => write(snapshot, &mut samples),
            Rows::Once(_) => return false,
            Rows::Connections(write) => match snapshot.connections.get(*row) {
                Some(connection) => write(connection, &mut samples),
                None => return false,
            },
            Rows::Children(write) => match snapshot.children.get(*row) {
                Some(child) => write(child, &mut samples),
                None => return false,
            },
        }
        *row = row.saturating_add(1);
        true
    }
}

/// Writes the samples of a family, with its head before the first one.
pub(super) struct Samples<'t> {
    family: &'static Family,
    format: Format,
    has_head: &'t mut bool,
    text: &'t mut String,
}

impl Samples<'_> {
    /// Writes a sample with the values of the labels of the family.
    pub(super) fn write(&mut self, labels: &[&str], value: impl Display) {
        if !*self.has_head {
            *self.has_head = true;
            self.write_head();
        }
        let Self { family, text, .. } = self;
        text.push_str(family.name);
        text.push_str(family.kind.suffix());
        let mut separator = '{';
        for (name, label) in family.labels.iter().zip(labels) {
            text.push(separator);
            text.push_str(name);
            text.push_str("=\"");
            push_label(text, label);
            text.push('"');
            separator = ',';
        }
        text.push_str(if family.labels.is_empty() { " " } else { "} " });
        // Writing to a string does not fail.
        let _ = writeln!(text, "{value}");
    }

    fn write_head(&mut self) {
        let Self { family, format, text, .. } = self;
        let (suffix, kind) = match format {
            Format::OpenMetrics => ("", family.kind.name()),
            Format::Text => (family.kind.suffix(), family.kind.text_name()),
        };
        let name = family.name;
        let _ = writeln!(text, "# HELP {name}{suffix} {}\n# TYPE {name}{suffix} {kind}", family.help);
        if *format == Format::OpenMetrics
            && let Some(unit) = family.unit()
        {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
    }
}

impl Kind {
    /// The suffix of the name of its samples.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }

    /// Name of the type in OpenMetrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }

    /// Name of the type in the text format of Prometheus, which has no `info`.
    const fn text_name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge | Self::Info => "gauge",
        }
    }
}

/// Appends the value of a label. Both formats escape the same three characters.
fn push_label(text: &mut String, value: &str) {
    if !value.contains(['\\', '"', '\n']) {
        return text.push_str(value);
    }
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConnectionRow;
    use super::*;
    use casemate::ChildCounters;
    use casemate_datapath::SaCounters;

    fn snapshot(children: usize) -> Arc<Snapshot> {
        let name = |number: usize| -> Arc<str> { format!("c{number}\\\"\n").into() };
        let row = |number| ConnectionRow {
            name: name(number),
            counters: Default::default(),
            ike_sas: Default::default(),
        };
        let counters = SaCounters { packets: 1, bytes: 2, ..SaCounters::default() };
        let child = |number| ChildCounters {
            number: number as u64,
            connection: name(number),
            child: "net".into(),
            child_sas: 1,
            inbound: counters,
            outbound: counters,
        };
        Arc::new(Snapshot {
            connections: (0..children).map(row).collect(),
            children: (0..children).map(child).collect(),
            ..Snapshot::default()
        })
    }

    fn page(children: usize, format: Format) -> String {
        let mut exposition = Exposition::new(snapshot(children), format);
        std::iter::from_fn(|| exposition.next_piece()).collect()
    }

    #[test]
    fn pieces_are_short_and_every_row_is_written_once() {
        let mut exposition = Exposition::new(snapshot(10_000), Format::OpenMetrics);
        let pieces: Vec<String> = std::iter::from_fn(|| exposition.next_piece()).collect();
        assert!(pieces.len() > 50);
        assert!(pieces.iter().all(|piece| piece.len() < PIECE + 4_096 && !piece.is_empty()));
        let whole = pieces.concat();
        let samples: Vec<&str> = whole.lines().filter(|line| !line.starts_with('#')).collect();
        let mut names: Vec<&str> = samples.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "a series occurs twice");
        assert_eq!(samples.iter().filter(|line| line.starts_with("casemate_child_sas{")).count(), 10_000);
        assert!(whole.ends_with("\n# EOF\n"));
    }

    #[test]
    fn the_formats_differ_in_names_of_families_and_in_the_end() {
        let (open_metrics, text) = (page(1, Format::OpenMetrics), page(1, Format::Text));
        for line in [
            "# TYPE casemate_child_bytes counter",
            "# UNIT casemate_child_bytes bytes",
            "# TYPE casemate_build info",
            "# EOF",
        ] {
            assert!(open_metrics.lines().any(|one| one == line), "{line}: {open_metrics}");
        }
        for line in ["# TYPE casemate_child_bytes_total counter", "# TYPE casemate_build_info gauge"] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        let sample =
            "casemate_child_bytes_total{connection=\"c0\\\\\\\"\\n\",child=\"net\",direction=\"in\"} 2";
        assert!([open_metrics, text].iter().all(|page| page.lines().any(|one| one == sample)));
    }
}
