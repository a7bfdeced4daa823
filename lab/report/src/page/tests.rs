use super::*;
use crate::record::tests::record;
use crate::{Agreement, Axis, Point, Series, Shape};

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
        findings: [Agreement::Agrees, Agreement::Differs, Agreement::NotMeasured].map(finding).into(),
        samples: vec![Samples::repeated("<rate>", "Mb/s", vec![1.0, 2.0, 40.0])],
        left_out: vec![LeftOut { what: "kernel <x>".into(), why: "no root".into(), failed: true }],
    }
}

#[test]
fn every_text_is_escaped_and_every_piece_is_there() {
    let page = render(&[record(part())]);
    for raw in ["<script", "<it>", "<b>", "<T>", "<c>", "<r>", "<rate>", "<x>", "o<urs", "On <wires>"] {
        assert!(!page.contains(raw), "{raw} in {page}");
    }
    for there in [
        "<svg",
        "Table &quot;1&quot;",
        "class=\"agrees\"",
        "class=\"differs\"",
        "class=\"not-measured\"",
        "kernel &lt;x&gt;: no root",
        "1 2 40",
        "casemate 0.1.0",
        "1997",
    ] {
        assert!(page.contains(there), "no {there} in {page}");
    }
    // Nothing is fetched from anywhere, and nothing runs.
    assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("onload"), "{page}");
}

#[test]
fn a_noisy_machine_is_said_to_be_noisy_with_the_number() {
    let noisy = render(&[record(part())]);
    assert!(noisy.contains("A noisy machine"), "{noisy}");
    assert!(noisy.contains("1950 % of their median apart"), "{noisy}");
    let quiet = render(&[record(Part { samples: Vec::new(), ..part() })]);
    assert!(!quiet.contains("A noisy machine"), "{quiet}");
}

#[test]
fn several_records_have_a_table_of_contents() {
    let other = Record { experiment: "voice".into(), ..record(part()) };
    let page = render(&[record(part()), other]);
    assert!(page.contains("<a href=\"#voice\">") && page.contains("<section id=\"voice\">"), "{page}");
}
