//! Self-contained HTML page: no script, no other file, no network access.
//!
//! The page shows the machine and its disturbances first, then each part with figures, tables and findings.
//! All samples are in collapsed sections.

use crate::report::{Agreement, Figure, Finding, Part, Record, Samples, Skipped, Table, svg};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// Renders the page of these records.
pub fn render(records: &[Record]) -> String {
    let names: Vec<&str> = records.iter().map(|record| record.experiment.as_str()).collect();
    let title = format!("Casemate lab: {}", names.join(", "));
    let contents = if records.len() > 1 { contents(records) } else { String::new() };
    let sections: String = records.iter().map(section).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         {}<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n{}{contents}{sections}</main>\n</body>\n</html>\n",
        element("title", &title),
        element("h1", &title),
    )
}

fn contents(records: &[Record]) -> String {
    let links = records.iter().map(|record| {
        let name = text(&record.experiment);
        format!("<a href=\"#{name}\">{name}</a>: {}", text(&record.paper.title))
    });
    list(links)
}

fn section(record: &Record) -> String {
    let paper = &record.paper;
    let name = text(&record.experiment);
    let source = format!("{}, “{}”, {}, {}", paper.authors, paper.title, paper.venue, paper.year);
    let parts: String = record.parts.iter().map(part).collect();
    format!(
        "<section id=\"{name}\">\n<h2>{name}</h2>\n<p class=\"paper\">{}</p>\n{}{}{}{}{}{parts}</section>\n",
        text(&source),
        element("p", &record.summary),
        noise(record),
        facts(record),
        limits(record),
        skipped(record.skipped()),
    )
}

/// Reports whether the machine was quiet, with the spread of the samples.
fn noise(record: &Record) -> String {
    let reasons = record.noise();
    let spread = record.spread().map(|spread| {
        let percent = spread * 100.0;
        format!(
            "The interquartile range of repeated samples is {percent:.0} % of their median (median \
             of all quantities)."
        )
    });
    if reasons.is_empty() {
        let quiet = format!("No disturbance of the measurement was detected.{}", spread.unwrap_or_default());
        return format!("<p class=\"quiet\">{}</p>\n", text(&quiet));
    }
    let reasons = reasons.iter().map(|reason| text(reason));
    format!(
        "<div class=\"noisy\"><strong>A noisy machine.</strong> Take the numbers with care:{}</div>\n",
        list(reasons)
    )
}

fn facts(record: &Record) -> String {
    let versions: Vec<String> =
        record.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let activity = &record.activity;
    let form = if record.quick { "short form" } else { "full form" };
    let load = format!("{:.2} before, {:.2} after", activity.load_before, activity.load_after);
    let begun = format!("{}, {:.0} s, {form}", record.started, record.seconds);
    let facts = [
        ("Machine", record.machine.line()),
        ("Load", load),
        ("Versions", versions.join(", ")),
        ("Begun", begun),
    ];
    let rows: String = facts.iter().fold(String::new(), |mut rows, (name, value)| {
        let _ = writeln!(rows, "<dt>{name}</dt><dd>{}</dd>", text(value));
        rows
    });
    format!("<dl>\n{rows}</dl>\n")
}

/// Reports what this form cannot determine, and how many claims are undecided.
fn limits(record: &Record) -> String {
    let undecided = record.findings().filter(|finding| finding.agreement == Agreement::Unknown).count();
    let undecided = match undecided {
        0 => None,
        1 => Some("One claim is undecided: its rounds are too few or too noisy.".to_owned()),
        more => Some(format!("{more} claims are undecided: their rounds are too few or too noisy.")),
    };
    let lines: Vec<String> = record.limits.iter().chain(&undecided).map(|line| text(line)).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("<div class=\"left-out\"><strong>What this run cannot determine:</strong>{}</div>\n", list(lines))
}

fn skipped<'a>(all: impl Iterator<Item = &'a Skipped>) -> String {
    let lines: Vec<String> = all.map(|out| format!("{}: {}", text(&out.what), text(&out.why))).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("<div class=\"left-out\"><strong>Skipped:</strong>{}</div>\n", list(lines))
}

/// A part of which everything was skipped is only in the list above the parts.
fn part(part: &Part) -> String {
    if part.figures.is_empty() && part.tables.is_empty() && part.findings.is_empty() {
        return String::new();
    }
    let (figures, tables): (String, String) =
        (part.figures.iter().map(figure).collect(), part.tables.iter().map(table).collect());
    format!(
        "<article>\n{}{}<div class=\"beside\">\n{figures}{tables}</div>\n{}{}</article>\n",
        element("h3", &part.title),
        element("p", &part.text),
        findings(&part.findings),
        samples(&part.samples),
    )
}

fn figure(figure: &Figure) -> String {
    let drawing = svg::draw(figure)
        .unwrap_or_else(|why| element("p", &format!("The figure could not be drawn: {why}")));
    format!(
        "<figure>\n<div class=\"drawing\" role=\"img\" aria-label=\"{0}\">\n{drawing}\n</div>\n\
         <figcaption><strong>{0}</strong> {1}{2}</figcaption>\n</figure>\n",
        text(&figure.title),
        text(&figure.caption),
        text(&svg::notes(figure)),
    )
}

fn table(table: &Table) -> String {
    let row = |cells: &Vec<String>| {
        format!("<tr>{}</tr>\n", cells.iter().map(|text| cell(text)).collect::<String>())
    };
    let head: String = table.columns.iter().map(|name| format!("<th>{}</th>", text(name))).collect();
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"table\"><table>\n<caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n",
        text(&table.title),
    )
}

fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let rows: String = findings.iter().fold(String::new(), |mut rows, finding| {
        let Finding { what, paper, ours, agreement, why } = finding;
        let name = agreement.to_string();
        let class = name.replace(' ', "-");
        let [what, paper, ours, why] = [what, paper, ours, why].map(|part| text(part));
        let _ = writeln!(
            rows,
            "<tr><td>{what}</td><td>{paper}</td><td>{ours}</td>\
             <td><span class=\"{class}\">{name}</span></td><td>{why}</td></tr>"
        );
        rows
    });
    format!(
        "<div class=\"table\"><table class=\"findings\">\n\
         <caption>Comparison with the paper</caption>\n<thead><tr><th>What</th>\
         <th>Paper</th><th>Here</th><th></th><th>Why</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn samples(all: &[Samples]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let rows: String = all.iter().fold(String::new(), |mut rows, samples| {
        let values: Vec<String> = samples.values.iter().map(|value| svg::number(*value)).collect();
        let (name, unit) = (text(&samples.name), text(&samples.unit));
        let _ = writeln!(rows, "<tr><td>{name}</td><td>{unit}</td><td>{}</td></tr>", values.join(" "));
        rows
    });
    format!(
        "<details><summary>All samples</summary>\n\
         <div class=\"table\"><table>\n<tbody>\n{rows}</tbody>\n</table></div></details>\n"
    )
}

/// Escapes text for an element or for an attribute in double quotes.
fn text(plain: &str) -> String {
    plain.chars().fold(String::with_capacity(plain.len()), |mut escaped, character| {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
        escaped
    })
}

/// Element with escaped text.
fn element(name: &str, plain: &str) -> String {
    format!("<{name}>{}</{name}>\n", text(plain))
}

/// List of items that are already markup.
fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// Table cell. Numbers are right-aligned.
fn cell(plain: &str) -> String {
    let is_number =
        plain.starts_with(|first: char| first.is_ascii_digit() || first == '-' && plain.len() > 1);
    let class = if is_number && plain.len() <= 24 { " class=\"number\"" } else { "" };
    format!("<td{class}>{}</td>", text(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::tests::record;
    use crate::report::{Axis, Point, Series, Shape};

    fn part() -> Part {
        let finding = |agreement| Finding {
            what: "order & ratio".into(),
            paper: "a < b".into(),
            ours: "a > b".into(),
            agreement,
            why: "<script>alert(1)</script>".into(),
        };
        Part {
            title: "Table \"1\"".into(),
            text: "As <it> was.".into(),
            figures: vec![Figure {
                title: "Rates & \"ratios\"".into(),
                caption: "<b>".into(),
                x: Axis::linear("bytes <x>"),
                y: Axis::linear("Mb/s"),
                series: vec![Series::ours("o<urs", Shape::Line, [Point::at(1.0, 2.0), Point::at(2.0, 3.0)])],
            }],
            tables: vec![Table {
                title: "<T>".into(),
                columns: vec!["<c>".into()],
                rows: vec![vec!["<r>".into()]],
            }],
            findings: [Agreement::Agrees, Agreement::Differs, Agreement::Unknown, Agreement::NotMeasured]
                .map(finding)
                .into(),
            samples: vec![Samples::repeated("<rate>", "Mb/s", vec![1.0, 2.0, 40.0])],
            skipped: vec![Skipped { what: "kernel <x>".into(), why: "no root".into(), failed: true }],
        }
    }

    #[test]
    fn page_is_complete_and_escaped() {
        let page = render(&[record(part())]);
        for raw in ["<script", "<it>", "<b>", "<T>", "<c>", "<r>", "<rate>", "<x>", "o<urs", "On <wires>"] {
            assert!(!page.contains(raw), "{raw} in {page}");
        }
        for there in [
            "<svg",
            "Table &quot;1&quot;",
            "class=\"agrees\"",
            "class=\"differs\"",
            "class=\"unknown\"",
            "class=\"not-measured\"",
            "kernel &lt;x&gt;: no root",
            "1 2 40",
            "casemate 0.1.0",
            "1997",
        ] {
            assert!(page.contains(there), "no {there} in {page}");
        }
        // The page loads nothing and runs no script.
        assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("onload"), "{page}");
    }

    #[test]
    fn a_part_without_results_has_no_heading() {
        let (figures, tables) = (Vec::new(), Vec::new());
        let empty = Part { figures, tables, findings: Vec::new(), samples: Vec::new(), ..part() };
        let page = render(&[record(empty)]);
        assert!(!page.contains("<h3>") && page.contains("kernel &lt;x&gt;: no root"), "{page}");
    }

    #[test]
    fn page_reports_a_noisy_machine() {
        let noisy = render(&[record(part())]);
        assert!(noisy.contains("A noisy machine"), "{noisy}");
        assert!(noisy.contains("is 1950 % of their median"), "{noisy}");
        let quiet = render(&[record(Part { samples: Vec::new(), ..part() })]);
        assert!(!quiet.contains("A noisy machine"), "{quiet}");
    }

    #[test]
    fn page_reports_what_the_run_cannot_determine() {
        let limited = Record { limits: vec!["No rekeying <yet>.".into()], ..record(part()) };
        let page = render(&[limited]);
        let expected = "<li>No rekeying &lt;yet&gt;.</li>\n<li>One claim is undecided";
        assert!(page.contains(expected), "{page}");
        let decided = render(&[record(Part { findings: Vec::new(), ..part() })]);
        assert!(!decided.contains("cannot determine"), "{decided}");
    }

    #[test]
    fn several_records_have_a_table_of_contents() {
        let other = Record { experiment: "voice".into(), ..record(part()) };
        let page = render(&[record(part()), other]);
        assert!(page.contains("<a href=\"#voice\">") && page.contains("<section id=\"voice\">"), "{page}");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(text("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(element("p", "1 < 2"), "<p>1 &lt; 2</p>\n");
        assert_eq!(cell("12.5 (3)"), "<td class=\"number\">12.5 (3)</td>");
        assert_eq!(cell("<b>"), "<td>&lt;b&gt;</td>");
    }
}
