use super::*;
use crate::{Axis, Figure, Point, Series};

fn figure(x: Axis, y: Axis, series: Vec<Series>) -> Figure {
    Figure { title: "A <title>".into(), caption: "c".into(), x, y, series }
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Every shape, of the paper and ours.
fn every_kind() -> Vec<Series> {
    let shapes = [("line", Shape::Line), ("points", Shape::Points), ("bars", Shape::Bars)];
    let points =
        |height: f64| [Point::at(0.0, height), Point::between(1.0, 2.0 * height, height, 3.0 * height)];
    shapes
        .iter()
        .enumerate()
        .flat_map(|(place, (name, shape))| {
            let height = 10.0 + place as f64;
            [
                Series::ours(format!("our {name} <&>"), *shape, points(height)),
                Series::paper(format!("paper's {name}"), *shape, points(height + 5.0)),
            ]
        })
        .collect()
}

#[test]
fn every_kind_of_series_is_drawn_on_every_axis() {
    let names = || Axis::names("row", ["none", "all"]);
    for y in [Axis::linear("Mb/s"), Axis::log("Mb/s")] {
        let text = draw(&figure(names(), y, every_kind())).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for name in ["our line &lt;&amp;&gt;", "bars", "none", "all", "row", "Mb/s"] {
            assert!(text.contains(name), "no {name} in {text}");
        }
        // Two lines and two times two points, each with its sign in the legend.
        assert_eq!(count(&text, "<circle"), 2 * 2 * 2 + 4, "{text}");
        // Ours filled and the paper's open: two bars and a sign each; and the white ground.
        assert_eq!(count(&text, "<rect"), 2 * 3 + 1, "{text}");
        assert!(text.contains("#0072B2") && text.contains("#5A5A5A"), "{text}");
    }
}

#[test]
fn a_figure_without_points_has_axes() {
    for x in [Axis::linear("bytes"), Axis::log("bytes"), Axis::names("row", Vec::<String>::new())] {
        let text = draw(&figure(x, Axis::linear("Mb/s"), Vec::new())).unwrap();
        assert!(text.contains("Mb/s"), "{text}");
    }
}

#[test]
fn what_is_not_above_zero_is_not_on_a_logarithmic_axis() {
    let points = [Point::at(1.0, 0.0), Point::at(2.0, -3.0), Point::at(3.0, 4.0)];
    let series = vec![Series::ours("s", Shape::Points, points)];
    let text = draw(&figure(Axis::linear("x"), Axis::log("y"), series)).unwrap();
    assert_eq!(count(&text, "<circle"), 1 + 1, "{text}");
}

#[test]
fn a_long_legend_takes_more_lines() {
    let series = |count: usize| {
        (0..count).map(|n| Series::ours(format!("a series of a long name {n}"), Shape::Line, []))
    };
    let height = |count| {
        let figure = figure(Axis::linear("x"), Axis::linear("y"), series(count).collect());
        Legend::of(&figure, &looks(&figure), SIZE.0).height()
    };
    assert!(height(6) > height(2));
}
