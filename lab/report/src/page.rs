//! A page for a browser that needs nothing but itself: no script, no other file, no network.
//!
//! It is read from the top: what the machine was and whether it was quiet, then each part with its figures, tables and what agrees with
//! the paper. All samples are there too, folded away.

mod markup;

use crate::{Figure, Finding, LeftOut, Part, Record, Samples, Table, svg};
use markup::{cell, element, list, text};
use std::fmt::Write;

const STYLE: &str = include_str!("page/style.css");

/// The page of these records.
pub fn render(records: &[Record]) -> String {
    let names: Vec<&str> = records.iter().map(|record| record.experiment.as_str()).collect();
    let title = format!("Casemate lab: {}", names.join(", "));
    let contents = if records.len() > 1 { contents(records) } else { String::new() };
    let sections: String = records.iter().map(section).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         {}<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}{contents}{sections}</main>\n</body>\n</html>\n",
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
        "<section id=\"{name}\">\n<h2>{name}</h2>\n<p class=\"paper\">{}</p>\n{}{}{}{}{parts}</section>\n",
        text(&source),
        element("p", &record.summary),
        noise(record),
        facts(record),
        left_out(record.left_out()),
    )
}

/// Whether the machine was quiet, with the number that says so.
fn noise(record: &Record) -> String {
    let reasons = record.noise();
    let spread = record.spread().map(|spread| {
        let percent = spread * 100.0;
        format!(" The middle half of repeated samples lies {percent:.0} % of their median apart, in the middle case.")
    });
    if reasons.is_empty() {
        let quiet =
            format!("Nothing disturbed the measurement that could be seen.{}", spread.unwrap_or_default());
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
    let form = if record.quick { "the short form" } else { "the full form" };
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

fn left_out<'a>(all: impl Iterator<Item = &'a LeftOut>) -> String {
    let lines: Vec<String> = all.map(|out| format!("{}: {}", text(&out.what), text(&out.why))).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("<div class=\"left-out\"><strong>Left out here:</strong>{}</div>\n", list(lines))
}

fn part(part: &Part) -> String {
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
        .unwrap_or_else(|why| element("p", &format!("This figure could not be drawn: {why}")));
    format!(
        "<figure>\n<div class=\"drawing\" role=\"img\" aria-label=\"{0}\">\n{drawing}\n</div>\n\
         <figcaption><strong>{0}</strong> {1}</figcaption>\n</figure>\n",
        text(&figure.title),
        text(&figure.caption),
    )
}

fn table(table: &Table) -> String {
    let row = |cells: &Vec<String>| {
        format!("<tr>{}</tr>\n", cells.iter().map(|text| cell(text)).collect::<String>())
    };
    let head: String = table.columns.iter().map(|name| format!("<th>{}</th>", text(name))).collect();
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"table\"><table>\n<caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
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
        "<div class=\"table\"><table class=\"findings\">\n<caption>Beside the paper</caption>\n<thead><tr><th>What</th>\
         <th>Paper</th><th>Here</th><th></th><th>Why</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
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
        "<details><summary>All samples</summary>\n<div class=\"table\"><table>\n<tbody>\n{rows}</tbody>\n</table></div></details>\n"
    )
}

#[cfg(test)]
mod tests;
