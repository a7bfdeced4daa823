//! Result pages in a browser: illegible figures are detected. The tests of the experiments check their
//! own pages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod browser;

use casemate_measure::report::{Axis, Figure, Point, Series, Shape, svg};
use casemate_test_support::TempDir;
use std::fs;

/// The check itself must find each kind of fault.
#[test]
fn illegible_figures_are_detected() {
    let scratch = TempDir::new("page-faults").unwrap();
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
    let good = figure("good", &svg(full, &[text(10, 13, "one"), text(100, 13, "two")].concat()));
    let alone = scratch.file("good.html");
    fs::write(&alone, format!("<!DOCTYPE html><html><body>{good}</body></html>")).unwrap();
    browser::demand_legible(&alone, 1);
    let figures = [
        good,
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
        Err(why) => return casemate_test_support::skip(why),
    };
    let expected = [
        "the page is 9",
        "missing: there is no drawing",
        "flat: it has no size",
        "empty: nothing is drawn",
        "outside: \"label\" sticks out",
        "small: \"shrunk\" has a font size of 6.5 pixels",
        "over: \"label one\" lies over \"label two\"",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, begin) in faults.iter().zip(expected) {
        assert!(fault.starts_with(begin), "{fault} instead of {begin}");
    }
}

/// Axis labels fit for all measurement ranges, with the fonts of this machine.
#[test]
fn labels_of_any_numbers_are_legible() {
    let figures = ranges().into_iter().flat_map(|values| {
        let series = || {
            let points =
                values.iter().map(|value| Point::with_range(*value, *value, value * 0.9, value * 1.1));
            vec![Series::ours("measured", Shape::Line, points)]
        };
        [Axis::linear("quantity, unit"), Axis::log("quantity, unit")].map(|axis| Figure {
            title: format!("{values:?}, {:?}", axis.scale),
            caption: String::new(),
            x: axis.clone(),
            y: axis,
            series: series(),
        })
    });
    let drawn = figures.map(|figure| {
        let title = &figure.title;
        let drawing = svg::draw(&figure).unwrap();
        format!("<figure>{drawing}<figcaption><strong>{title}</strong></figcaption></figure>\n")
    });
    let drawn: Vec<String> = drawn.collect();
    let scratch = TempDir::new("page-labels").unwrap();
    let page = scratch.file("labels.html");
    fs::write(&page, format!("<!DOCTYPE html><html><body>{}</body></html>", drawn.concat())).unwrap();
    let seen = match browser::look(&page, 1_000) {
        Ok(seen) => seen,
        Err(why) => return casemate_test_support::skip(why),
    };
    assert_eq!(seen["figures"].as_array().unwrap().len(), drawn.len());
    let faults = browser::faults(&seen);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Long names of axes, categories and series fit, with the fonts of this machine.
#[test]
fn long_names_are_legible() {
    let long =
        "Throughput of WWW servers, 100 % (AES-256-GCM and HMAC-SHA2-256-128), measured in Mb/s ".repeat(2);
    let names = (1..=8).map(|count| "ESP, 3DES and MMMMMMMM ".repeat(count));
    let points = |height: f64| (0..8).map(move |place| Point::at(f64::from(place), height));
    let figure = Figure {
        title: "long names".into(),
        caption: String::new(),
        x: Axis::names(long.clone(), names),
        y: Axis::linear(long.clone()),
        series: vec![
            Series::ours(long.clone(), Shape::Bars, points(1.0)),
            Series::ours("short", Shape::Bars, points(2.0)),
            Series::ours(long, Shape::Points, points(3.0)),
        ],
    };
    let drawing = svg::draw(&figure).unwrap();
    let scratch = TempDir::new("page-names").unwrap();
    let page = scratch.file("names.html");
    let figure = format!("<figure>{drawing}<figcaption><strong>long names</strong></figcaption></figure>");
    fs::write(&page, format!("<!DOCTYPE html><html><body>{figure}</body></html>")).unwrap();
    match browser::look(&page, 1_000) {
        Ok(seen) => assert_eq!(browser::faults(&seen), Vec::<String>::new()),
        Err(why) => casemate_test_support::skip(why),
    }
}

/// Ranges of measured values: single, equal, negative, on both sides of zero, and far apart.
fn ranges() -> Vec<Vec<f64>> {
    let values = (-5..=12).map(|power| 9.6 * 10f64.powi(power));
    let ranges = values.flat_map(|value| [vec![value; 2], vec![-value, value], vec![1e-5, value]]);
    ranges.chain([vec![], vec![f64::NAN], vec![0.0], vec![1.0, 10_000.0], vec![-1e12]]).collect()
}
