//! Layout of the axes: number of labels, lines of texts and width of the margins, such that every text is
//! inside the figure and no labels overlap.

use super::axis_range::{self, AxisRange};
use super::text::{EM, text_width, wrap};
use super::{FONT, WIDTH};
use crate::report::figure::{Axis, Figure, Scale};
use plotters::coord::ranged1d::Ranged;

/// Pixels between the edge of the figure and the plot at the top and bottom, and the minimum at the right.
pub(super) const MARGIN: u32 = 8;
const MIN_RIGHT_MARGIN: f64 = 18.0;
/// Minimum of pixels for the labels and the description of an axis, next to the plot.
pub(super) const MIN_Y_LABEL_AREA: u32 = 76;
/// Length of a tick mark in pixels. Plotters puts a label two tick lengths away from its axis.
pub(super) const TICK_LEN: i32 = 5;
/// Minimum distance of two labels on one axis, in pixels.
pub(super) const GAP: f64 = 4.0;
/// Pixels from one line of a text to the next.
pub(super) const LINE_HEIGHT: i32 = FONT.1 + 3;
/// Height of the plot in pixels.
const PLOT_HEIGHT: u32 = 332;
/// Maximum number of labels on a numeric axis.
const MAX_LABELS: usize = 11;
/// Maximum number of lines of a description, and of the name of a category.
const MAX_LINES: usize = 3;

/// Axes of a figure and the space around the plot.
pub(super) struct Layout {
    pub(super) x: AxisRange,
    pub(super) y: AxisRange,
    /// Maximum number of labels of the horizontal axis. Names of categories are not among them.
    pub(super) x_labels: usize,
    /// Maximum number of labels of the vertical axis.
    pub(super) y_labels: usize,
    /// Pixels to the right of the plot.
    pub(super) right_margin: u32,
    /// Pixels between the left margin and the plot.
    pub(super) y_label_area: u32,
    /// Lines of the name of each category; none on a numeric axis.
    pub(super) names: Vec<Vec<String>>,
    /// Lines of the description of the horizontal axis.
    pub(super) x_description: Vec<String>,
    /// Lines of the description of the vertical axis.
    pub(super) y_description: Vec<String>,
}

impl Layout {
    /// Computes the layout of a figure.
    pub(super) fn new(figure: &Figure) -> Self {
        let (x, y) = (AxisRange::horizontal(figure), AxisRange::vertical(figure));
        let height = f64::from(PLOT_HEIGHT);
        let y_labels = fitting_labels(&y, &figure.y, height, |_| EM);
        let y_description = wrap(&figure.y.label, height, MAX_LINES);
        let description = (y_description.len().max(1) as i32 * LINE_HEIGHT) as f64;
        let y_label_area =
            description + GAP + widest_label(&y, &figure.y, y_labels) + f64::from(2 * TICK_LEN);
        let y_label_area = (y_label_area.ceil() as u32).max(MIN_Y_LABEL_AREA);
        // The last label is centred below its tick mark, which may be at the edge of the plot.
        let half = widest_label(&x, &figure.x, MAX_LABELS) / 2.0 + GAP;
        let right = match figure.x.scale {
            Scale::Names(_) => MIN_RIGHT_MARGIN,
            Scale::Linear | Scale::Log => half.max(MIN_RIGHT_MARGIN),
        };
        let width = f64::from(WIDTH - MARGIN - y_label_area) - right;
        let names = match &figure.x.scale {
            Scale::Names(names) => {
                let share = width / names.len().max(1) as f64 - GAP;
                names.iter().map(|name| wrap(name, share, MAX_LINES)).collect()
            }
            Scale::Linear | Scale::Log => Vec::new(),
        };
        let x_labels = fitting_labels(&x, &figure.x, width, text_width);
        let x_description = wrap(&figure.x.label, width, MAX_LINES);
        let right_margin = right.ceil() as u32;
        Self { x, y, x_labels, y_labels, right_margin, y_label_area, names, x_description, y_description }
    }

    /// Number of lines of the labels of the horizontal axis.
    pub(super) fn tick_lines(&self) -> i32 {
        let lines = self.names.iter().map(Vec::len).max().unwrap_or(1).max(1);
        i32::try_from(lines).unwrap_or(i32::MAX)
    }

    /// Pixels for the labels and the description below the plot.
    pub(super) fn x_label_area(&self) -> u32 {
        let lines = self.tick_lines() as u32 + self.x_description.len() as u32;
        2 * TICK_LEN as u32 + GAP as u32 + lines * LINE_HEIGHT as u32
    }

    /// Height of the figure in pixels, without the legend.
    pub(super) fn height(&self) -> u32 {
        PLOT_HEIGHT + 2 * MARGIN + self.x_label_area()
    }
}

/// Label of a value.
pub(super) fn label(axis: &Axis, value: f64) -> String {
    match &axis.scale {
        Scale::Names(_) => String::new(),
        Scale::Linear | Scale::Log => axis_range::axis_number(value),
    }
}

/// Largest number of labels that do not overlap on an axis of `length` pixels, at least two. `size` returns
/// the extent of a label along the axis. Categories have no such labels.
fn fitting_labels(place: &AxisRange, axis: &Axis, length: f64, size: impl Fn(&str) -> f64) -> usize {
    if let AxisRange::Names(_) = place {
        return 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::tests::{PlacedText, placed_texts};
    use crate::report::svg::text::tests::dejavu_width;
    use crate::report::{Point, Series, Shape};

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

    /// Axis labels of a drawing: all texts that are numbers.
    fn labels(svg: &str) -> Vec<PlacedText> {
        let mut all = placed_texts(svg);
        all.retain(|placed| placed.text.parse::<f64>().is_ok());
        all
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
                for PlacedText { text, area: [left, _, right, _] } in &all {
                    let inside = *left >= 0.0 && *right <= f64::from(WIDTH);
                    assert!(inside, "{values:?}: {text} from {left} to {right}");
                }
                let bottom = |placed: &PlacedText| placed.area[3];
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
                    |all: &[&PlacedText]| all.iter().map(|placed| placed.text.clone()).collect::<Vec<_>>();
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
