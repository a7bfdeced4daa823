use super::*;
use crate::record::tests::record;
use crate::{Agreement, Axis, Figure, Finding, LeftOut, Part, Point, Samples, Series, Shape, Table};
use casemate_scratch::Scratch;

fn full_part() -> Part {
    Part {
        title: "Table 1".into(),
        text: "As it was.".into(),
        figures: vec![Figure {
            title: "Rates".into(),
            caption: "Higher is better.".into(),
            x: Axis::names("row", ["none", "all"]),
            y: Axis::log("Mb/s"),
            series: vec![
                Series::paper("paper", Shape::Line, [Point::at(0.0, 315.0), Point::at(1.0, f64::NAN)]),
                Series::ours("ours", Shape::Bars, [Point::between(0.0, 1.0 / 3.0, 0.1, 0.7)]),
            ],
        }],
        tables: vec![Table { title: "T".into(), columns: vec!["a".into()], rows: vec![vec!["1".into()]] }],
        findings: vec![Finding {
            what: "order".into(),
            paper: "this".into(),
            ours: "that".into(),
            agreement: Agreement::NotMeasured,
            why: "no root".into(),
        }],
        samples: vec![Samples::repeated("rate", "Mb/s", vec![1.0, 2.5e-7, 3.0])],
        left_out: vec![LeftOut { what: "kernel".into(), why: "no QEMU".into(), failed: false }],
    }
}

#[test]
fn what_is_written_is_read() {
    let scratch = Scratch::new("round");
    let record = record(full_part());
    let path = write(&record, scratch.path()).unwrap();
    assert_eq!(path.file_name().unwrap(), "streams.json");
    assert_eq!(read_all(scratch.path()).unwrap(), [record]);
    let page = write_page(scratch.path()).unwrap();
    assert!(fs::read_to_string(page).unwrap().contains("On &lt;wires&gt;"));
    // Nothing half written stays behind.
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
}

#[test]
fn a_broken_file_is_named_with_its_line_and_what_was_expected() {
    let scratch = Scratch::new("broken");
    let path = write(&record(full_part()), scratch.path()).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let told = |text: &str| {
        fs::write(&path, text).unwrap();
        read(&path).unwrap_err().to_string()
    };
    let line = 1 + whole.lines().position(|line| line.contains("\"quick\"")).unwrap();
    let error = told(&whole.replace("\"quick\": true", "\"quick\": \"yes\""));
    assert!(error.contains(&format!("streams.json:{line}: ")), "{error}");
    assert!(error.contains("expected a boolean"), "{error}");
    assert!(error.contains("a result as `casemate lab run` writes it was expected"), "{error}");
    assert!(told(&whole[..whole.len() / 2]).contains("EOF"));
    assert!(told(&whole.replace("\"quick\"", "\"slow\"")).contains("unknown field `slow`, expected one of"));
}

#[test]
fn a_directory_without_records_says_so() {
    let scratch = Scratch::new("empty");
    let error = read_all(scratch.path()).unwrap_err().to_string();
    assert!(error.contains("no file *.json"), "{error}");
    let gone = scratch.file("gone");
    assert!(read_all(&gone).unwrap_err().to_string().contains("gone"));
}
