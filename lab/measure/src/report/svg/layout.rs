//! Layout of the axes: number of labels and width of the margins, such that every label is inside the figure
//! and no labels overlap.
//!
//! An SVG without a script cannot measure text. Widths are therefore estimated per character from the widest
//! of the usual fonts (DejaVu Sans, Verdana). Labels in narrower fonts have space to spare.

use super::axis_range::{self, AxisRange};
use super::{FONT, SIZE};
use crate::report::figure::{Axis, Figure, Scale};
use plotters::coord::ranged1d::Ranged;

/// Pixels between the edge of the figure and the plot at the top and bottom, and the minimum at the right.
pub(super) const MARGIN: u32 = 8;
const MIN_RIGHT_MARGIN: f64 = 18.0;
/// Pixels for the labels and the description of an axis: below the plot, and the minimum next to it.
pub(super) const X_LABEL_AREA: u32 = 52;
pub(super) const MIN_Y_LABEL_AREA: u32 = 76;
/// Length of a tick mark in pixels. Plotters puts a label two tick lengths away from its axis.
pub(super) const TICK_LEN: i32 = 5;
/// Minimum distance of two labels on one axis, in pixels.
const GAP: f64 = 4.0;
/// Maximum number of labels on a numeric axis.
const MAX_LABELS: usize = 11;
/// Height of an em in pixels. The font size of plotters is a line height of 1.24 em.
const EM: f64 = FONT.1 as f64 / 1.24;

/// Axes of a figure and the space around the plot.
pub(super) struct Layout {
    pub(super) x: AxisRange,
    pub(super) y: AxisRange,
    /// Maximum number of labels of the horizontal axis.
    pub(super) x_labels: usize,
    /// Maximum number of labels of the vertical axis.
    pub(super) y_labels: usize,
    /// Pixels to the right of the plot.
    pub(super) right_margin: u32,
    /// Pixels between the left margin and the plot.
    pub(super) y_label_area: u32,
}

impl Layout {
    /// Computes the layout of a figure with the axes `x` and `y`.
    pub(super) fn new(figure: &Figure, x: AxisRange, y: AxisRange) -> Self {
        let height = f64::from(SIZE.1 - 2 * MARGIN - X_LABEL_AREA);
        let across = |text: &str| text_width(text);
        let y_labels = fitting_labels(&y, &figure.y, height, |_| EM);
        let widest = widest_label(&y, &figure.y, y_labels);
        let description = EM * 1.5;
        let y_label_area = description + GAP + widest + f64::from(2 * TICK_LEN);
        let y_label_area = (y_label_area.ceil() as u32).max(MIN_Y_LABEL_AREA);
        // The last label is centred below its tick mark, which may be at the edge of the plot.
        let half = widest_label(&x, &figure.x, MAX_LABELS) / 2.0 + GAP;
        let right = match figure.x.scale {
            Scale::Names(_) => MIN_RIGHT_MARGIN,
            Scale::Linear | Scale::Log => half.max(MIN_RIGHT_MARGIN),
        };
        let width = f64::from(SIZE.0) - f64::from(MARGIN + y_label_area) - right;
        let x_labels = fitting_labels(&x, &figure.x, width, across);
        Self { x, y, x_labels, y_labels, right_margin: right.ceil() as u32, y_label_area }
    }
}

/// Label of a value.
pub(super) fn label(axis: &Axis, value: f64) -> String {
    match &axis.scale {
        Scale::Names(names) => names.get(value.round() as usize).cloned().unwrap_or_default(),
        Scale::Linear | Scale::Log => axis_range::axis_number(value),
    }
}

/// Largest number of labels that do not overlap on an axis of `length` pixels, at least two. `size` returns
/// the extent of a label along the axis. Categories are always labelled.
fn fitting_labels(place: &AxisRange, axis: &Axis, length: f64, size: impl Fn(&str) -> f64) -> usize {
    if let AxisRange::Names(count) = place {
        return *count;
    }
    let pixels = (0, length as i32);
    let fits = |count: &usize| {
        let ticks = place.ticks(*count);
        let spans = ticks.iter().map(|value| {
            let half = (size(&label(axis, *value)) + GAP) / 2.0;
            let middle = f64::from(place.map(value, pixels));
            (middle - half, middle + half)
        });
        let spans: Vec<(f64, f64)> = spans.collect();
        spans.windows(2).all(|pair| matches!(pair, [(_, end), (start, _)] if end <= start))
    };
    (2..=MAX_LABELS).rev().find(fits).unwrap_or(2)
}

/// Width in pixels of the widest of at most `count` labels.
fn widest_label(place: &AxisRange, axis: &Axis, count: usize) -> f64 {
    let labels = (2..=count.max(2)).flat_map(|count| place.ticks(count));
    labels.map(|value| text_width(&label(axis, value))).fold(0.0, f64::max)
}

/// Upper bound of the width in pixels of a text in [`FONT`], for the usual fonts.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(em_width).sum::<f64>() * EM
}

/// Width of a character of DejaVu Sans in em, rounded up by class.
fn em_width(character: char) -> f64 {
    match character {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | ';' | '-' | '/' | '(' | ')' => 0.42,
        'a'..='l' | 'n'..='v' | 'x'..='z' | '0'..='9' | 'µ' => 0.65,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'A'..='Z' => 0.79,
        _ => 0.86,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Point, Series, Shape};

    /// Widths of DejaVu Sans 2.37 in em, from its table `hmtx`.
    fn dejavu(character: char) -> f64 {
        match character {
            '0'..='9' => 0.636,
            '.' => 0.3179,
            '-' => 0.361,
            'e' => 0.615,
            other => panic!("{other:?} does not occur in numeric labels"),
        }
    }

    fn dejavu_width(text: &str) -> f64 {
        text.chars().map(dejavu).sum::<f64>() * EM
    }

    /// Values that a measurement can produce: tiny, huge, negative, equal, far apart, none, and not finite.
    pub(super) fn ranges() -> Vec<Vec<f64>> {
        let mut ranges: Vec<Vec<f64>> = Vec::new();
        for power in -5..=12 {
            for digits in [1.0, 1.06, 2.37, 4.999, 9.99] {
                let value = digits * 10f64.powi(power);
                ranges.extend([
                    vec![value],
                    vec![-value],
                    vec![value; 3],
                    vec![-value, value],
                    vec![1.0, value],
                ]);
                ranges.push(vec![1e-5, value]);
                ranges.push(vec![value, 1e12]);
            }
        }
        ranges.extend([
            vec![],
            vec![0.0],
            vec![f64::NAN],
            vec![f64::INFINITY, 3.0],
            vec![f64::MAX, f64::MIN, 1.0],
        ]);
        ranges.extend([vec![f64::MIN_POSITIVE, 1.0], vec![1e-29, 1e29], vec![-1e29, 1e-29], vec![-0.0]]);
        ranges
    }

    fn figure(scale: Scale, values: &[f64]) -> Figure {
        let axis = || Axis { label: "quantity".into(), scale: scale.clone() };
        let points = values.iter().map(|value| Point::with_range(*value, *value, value * 0.9, value * 1.1));
        // `Series::ours` would omit values that are not finite.
        let series = Series { points: points.collect(), ..Series::ours("s", Shape::Line, []) };
        Figure { title: "t".into(), caption: "c".into(), x: axis(), y: axis(), series: vec![series] }
    }

    /// Text of a drawing with its left, top, right and bottom edge in DejaVu Sans.
    #[derive(Debug)]
    struct Placed {
        text: String,
        area: [f64; 4],
    }

    /// Axis labels of a drawing: all texts that are numbers.
    fn labels(svg: &str) -> Vec<Placed> {
        let texts = svg.split("<text ").skip(1).filter_map(|element| {
            let (attributes, rest) = element.split_once('>')?;
            let text = rest.split_once("</text>")?.0.trim();
            text.parse::<f64>().ok()?;
            let attribute = |name: &str| {
                let value = attributes.split_once(&format!("{name}=\""))?.1.split_once('"')?.0;
                Some(value.to_owned())
            };
            let [x, y] = ["x", "y"].map(|name| attribute(name).unwrap().parse::<f64>().unwrap());
            let width = dejavu_width(text);
            let left = match attribute("text-anchor").as_deref() {
                Some("middle") => x - width / 2.0,
                Some("end") => x - width,
                _ => x,
            };
            // Plotters moves the base line below `y` by at most one em, depending on the anchor.
            Some(Placed { text: text.into(), area: [left, y - EM, left + width, y + EM] })
        });
        texts.collect()
    }

    #[test]
    fn labels_stay_inside_the_figure_and_do_not_overlap() {
        for values in ranges() {
            for scale in [Scale::Linear, Scale::Log] {
                let figure = figure(scale, &values);
                let svg = super::super::draw(&figure).unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}: {svg}");
                let all = labels(&svg);
                assert!((4..=2 * MAX_LABELS).contains(&all.len()), "{values:?}: {all:?}");
                for Placed { text, area: [left, _, right, _] } in &all {
                    let inside = *left >= 0.0 && *right <= f64::from(SIZE.0);
                    assert!(inside, "{values:?}: {text} from {left} to {right}");
                }
                let bottom = |placed: &Placed| placed.area[3];
                let lowest = all.iter().map(bottom).fold(0.0, f64::max);
                let (across, upwards): (Vec<_>, Vec<_>) =
                    all.iter().partition(|placed| bottom(placed) == lowest);
                assert!(across.len() >= 2 && upwards.len() >= 2, "{values:?}: {all:?}");
                for pair in across.windows(2) {
                    assert!(pair[0].area[2] < pair[1].area[0], "{values:?}: {pair:?}");
                }
                // The rotated description of the axis takes one em at the left edge.
                assert!(
                    upwards.iter().all(|placed| placed.area[0] > f64::from(MARGIN) + EM),
                    "{values:?}: {upwards:?}"
                );
                let texts =
                    |all: &[&Placed]| all.iter().map(|placed| placed.text.clone()).collect::<Vec<_>>();
                for mut texts in [texts(&across), texts(&upwards)] {
                    let count = texts.len();
                    texts.sort();
                    texts.dedup();
                    assert_eq!(texts.len(), count, "{values:?}: two labels are equal: {texts:?}");
                }
            }
        }
    }

    #[test]
    fn an_estimated_width_is_never_too_small_for_numbers() {
        for value in ranges().concat() {
            let text = axis_range::axis_number(value);
            if value.is_finite() {
                assert!(text_width(&text) >= dejavu_width(&text), "{text}");
                assert!(text.len() <= 10, "{text}");
            }
        }
    }
}
