//! Pages of results in a browser: what is drawn can be read, and what cannot is noticed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;
mod common;

use casemate_lab::{Order, Progress, find, run};
use casemate_report::file;
use common::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The one experiment that needs nothing. Pages of the others are looked at where these are tested.
#[test]
fn figures_of_bare_are_legible() {
    let scratch = Scratch::new("page-bare");
    let order = Order {
        quick: true,
        time: Duration::from_secs(60),
        program: env!("CARGO_BIN_EXE_casemate").into(),
        scratch: scratch.file("."),
        versions: BTreeMap::new(),
        progress: Progress::silent(),
    };
    let record = run(find("bare").unwrap(), &order);
    file::write(&record, &scratch.file(".")).unwrap();
    let page = file::write_page(&scratch.file(".")).unwrap();
    browser::demand_legible(&page, 2);
}

/// The one that looks must not be blind.
#[test]
fn what_cannot_be_read_is_noticed() {
    let scratch = Scratch::new("page-faults");
    let page = scratch.file("faults.html");
    let figure = |title: &str, svg: &str| {
        format!("<figure>{svg}<figcaption><strong>{title}</strong></figcaption></figure>\n")
    };
    let svg = |size: &str, inside: &str| {
        format!("<svg {size} viewBox=\"0 0 400 200\"><rect width=\"10\" height=\"10\"/>{inside}</svg>")
    };
    let text = |x: u32, size: u32, text: &str| {
        format!("<text x=\"{x}\" y=\"100\" font-size=\"{size}\" font-family=\"sans-serif\">{text}</text>")
    };
    let full = "width=\"400\" height=\"200\"";
    let figures = [
        figure("good", &svg(full, &[text(10, 13, "one"), text(100, 13, "two")].concat())),
        figure("missing", "<p>This figure could not be drawn</p>"),
        figure("flat", &svg("width=\"400\" height=\"0\"", &text(10, 13, "one"))),
        figure("empty", &svg(full, "")),
        figure("outside", &svg(full, &text(390, 13, "label"))),
        figure("small", &svg("width=\"200\" height=\"100\"", &text(10, 13, "shrunk"))),
        figure("over", &svg(full, &[text(10, 13, "label one"), text(40, 13, "label two")].concat())),
    ];
    let wide = "<div style=\"width: 900px\">wide</div>";
    fs::write(&page, format!("<!DOCTYPE html><html><body>{}{wide}</body></html>", figures.concat())).unwrap();
    let faults = match browser::look(&page, 500) {
        Ok(seen) => browser::faults(&seen),
        Err(why) => return casemate_left_out::note(why),
    };
    let expected = [
        "the page is 9",
        "missing: there is no drawing",
        "flat: it has no size",
        "empty: nothing is drawn",
        "outside: \"label\" sticks out",
        "small: \"shrunk\" has letters of 6.5 pixels",
        "over: \"label one\" lies over \"label two\"",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, begin) in faults.iter().zip(expected) {
        assert!(fault.starts_with(begin), "{fault} instead of {begin}");
    }
}
