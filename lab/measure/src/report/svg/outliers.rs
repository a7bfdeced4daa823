//! Keeps outliers from flattening a figure: whiskers that are much longer than the values are clipped and
//! marked, and an axis on which nearly all values would lie at the bottom becomes logarithmic.

use super::axis_range::AxisRange;
use crate::report::figure::{Figure, Point, Scale};
use plotters::coord::ranged1d::Ranged;
use std::borrow::Cow;

/// The axis is logarithmic if this share of the values lies below this share of the highest one.
const FLAT_SHARE: f64 = 0.75;
const FLAT_HEIGHT: f64 = 0.1;
/// Fewer values are never flat.
const LEAST_POINTS: usize = 4;

/// Returns the figure as it is drawn: with a logarithmic vertical axis if a linear one would be flat.
pub(super) fn spread_out(figure: &Figure) -> Cow<'_, Figure> {
    if !is_flat(figure) {
        return Cow::Borrowed(figure);
    }
    let mut figure = figure.clone();
    figure.y.scale = Scale::Log;
    Cow::Owned(figure)
}

/// Sentences about the drawing that belong into the caption, each with a space before it.
pub(super) fn notes(figure: &Figure) -> String {
    let drawn = spread_out(figure);
    let y = AxisRange::vertical(&drawn);
    let is_clipped = points(figure).any(|point| clipped(*point, &y) != [false, false]);
    let flat = if is_flat(figure) { " The vertical axis is logarithmic because of outliers." } else { "" };
    let arrows = if is_clipped { " An arrow marks a whisker that ends outside the figure." } else { "" };
    format!("{flat}{arrows}")
}

/// Whether the lower and the upper end of a point's whisker are outside the axis.
pub(super) fn clipped(point: Point, y: &AxisRange) -> [bool; 2] {
    let range = y.range();
    point.spread.map_or([false, false], |[least, most]| [least < range.start, most > range.end])
}

fn points(figure: &Figure) -> impl Iterator<Item = &Point> {
    figure.series.iter().flat_map(|series| &series.points)
}

fn is_flat(figure: &Figure) -> bool {
    let values: Vec<f64> = points(figure).map(|point| point.y).filter(|value| value.is_finite()).collect();
    let highest = values.iter().copied().fold(0.0, f64::max);
    let low = values.iter().filter(|value| **value < highest * FLAT_HEIGHT).count();
    figure.y.scale == Scale::Linear
        && values.len() >= LEAST_POINTS
        && values.iter().all(|value| *value > 0.0)
        && low as f64 >= values.len() as f64 * FLAT_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Series, Shape};

    fn figure(points: Vec<Point>) -> Figure {
        let series = vec![Series::ours("s", Shape::Line, points)];
        Figure { title: "t".into(), caption: "c".into(), x: Axis::linear("x"), y: Axis::linear("y"), series }
    }

    fn values(all: &[f64]) -> Figure {
        figure((0..).zip(all).map(|(x, y)| Point::at(f64::from(x), *y)).collect())
    }

    #[test]
    fn an_outlier_makes_the_axis_logarithmic() {
        let scale = |all: &[f64]| spread_out(&values(all)).y.scale.clone();
        assert_eq!(scale(&[1.0, 1.2, 1.1, 40.0]), Scale::Log);
        assert_eq!(scale(&[1.0, 2.0, 3.0, 4.0]), Scale::Linear);
        assert_eq!(scale(&[1.0, 1.2, 40.0]), Scale::Linear, "too few values");
        assert_eq!(scale(&[0.0, 1.2, 1.1, 40.0]), Scale::Linear, "zero has no logarithm");
        assert!(notes(&values(&[1.0, 1.2, 1.1, 40.0])).contains("logarithmic"));
        assert_eq!(notes(&values(&[1.0, 2.0])), "");
    }

    #[test]
    fn a_long_whisker_is_clipped_and_marked() {
        let outlier = figure(vec![Point::with_range(1.0, 10.0, 9.0, 900.0), Point::at(2.0, 12.0)]);
        let y = AxisRange::vertical(&outlier);
        assert!(y.range().end < 24.0, "{y:?}");
        assert_eq!(clipped(outlier.series[0].points[0], &y), [false, true]);
        assert!(notes(&outlier).contains("An arrow marks"));
        let drawing = crate::report::svg::draw(&outlier).unwrap();
        assert_eq!(drawing.matches("<polygon").count(), 1, "{drawing}");
        let short = figure(vec![Point::with_range(1.0, 10.0, 9.0, 11.0), Point::at(2.0, 12.0)]);
        assert_eq!(notes(&short), "");
        assert!(!crate::report::svg::draw(&short).unwrap().contains("<polygon"));
    }
}
