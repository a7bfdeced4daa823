//! The layout of the axes: how many labels each axis has, and how wide the margins are, so that every label
//! lies inside the figure and no two labels of an axis overlap.
//!
//! An SVG without a script cannot measure text before a browser shows it. Widths are therefore estimated per
//! character, from the widest of the usual fonts (DejaVu Sans, Verdana), and labels of narrower fonts have
//! room to spare.

use super::place::{self, Place};
use super::{FONT, SIZE};
use crate::figure::{Axis, Figure, Scale};
use plotters::coord::ranged1d::Ranged;

/// Pixels between the edge of the figure and the plot at the top and the bottom, and the least at the right.
pub(super) const MARGIN: u32 = 8;
const LEAST_RIGHT: f64 = 18.0;
/// Pixels for the labels and the description of an axis: below the plot, and the least beside it.
pub(super) const BELOW: u32 = 52;
pub(super) const LEAST_BESIDE: u32 = 76;
/// Length of a tick mark in pixels. Plotters puts a label two such lengths away from its axis.
pub(super) const TICK: i32 = 5;
/// Pixels that two labels of one axis are apart at least.
const GAP: f64 = 4.0;
/// Labels of an axis of numbers at most.
const MOST_LABELS: usize = 11;
/// The height of an em in pixels: plotters' size is that of a line of 1.24 em.
const EM: f64 = FONT.1 as f64 / 1.24;

/// The axes of a figure with their places.
pub(super) struct Layout {
    pub(super) x: Place,
    pub(super) y: Place,
    /// Labels along the axes at most.
    pub(super) labels: (usize, usize),
    /// Pixels at the right of the plot.
    pub(super) right: u32,
    /// Pixels between the left margin and the plot.
    pub(super) beside: u32,
}

impl Layout {
    /// The layout of the axes `x` and `y` of a figure.
    pub(super) fn new(figure: &Figure, x: Place, y: Place) -> Self {
        let height = f64::from(SIZE.1 - 2 * MARGIN - BELOW);
        let across = |text: &str| text_width(text);
        let y_labels = fitting_labels(&y, &figure.y, height, |_| EM);
        let widest = widest_label(&y, &figure.y, y_labels);
        let description = EM * 1.5;
        let beside = description + GAP + widest + f64::from(2 * TICK);
        let beside = (beside.ceil() as u32).max(LEAST_BESIDE);
        // The label at the right end is centred below its tick mark, which may be at the edge of the plot.
        let half = widest_label(&x, &figure.x, MOST_LABELS) / 2.0 + GAP;
        let right = match figure.x.scale {
            Scale::Names(_) => LEAST_RIGHT,
            Scale::Linear | Scale::Log => half.max(LEAST_RIGHT),
        };
        let width = f64::from(SIZE.0) - f64::from(MARGIN + beside) - right;
        let x_labels = fitting_labels(&x, &figure.x, width, across);
        Self { x, y, labels: (x_labels, y_labels), right: right.ceil() as u32, beside }
    }
}

/// The label of a value of an axis.
pub(super) fn label(axis: &Axis, value: f64) -> String {
    match &axis.scale {
        Scale::Names(names) => names.get(value.round() as usize).cloned().unwrap_or_default(),
        Scale::Linear | Scale::Log => place::axis_number(value),
    }
}

/// The largest number of labels that do not overlap on an axis of `length` pixels, at least two. `size`
/// returns the size of a label along the axis. All names are shown.
fn fitting_labels(place: &Place, axis: &Axis, length: f64, size: impl Fn(&str) -> f64) -> usize {
    if let Place::Names(count) = place {
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
    (2..=MOST_LABELS).rev().find(fits).unwrap_or(2)
}

/// The width in pixels of the widest of at most `count` labels.
fn widest_label(place: &Place, axis: &Axis, count: usize) -> f64 {
    let labels = (2..=count.max(2)).flat_map(|count| place.ticks(count));
    labels.map(|value| text_width(&label(axis, value))).fold(0.0, f64::max)
}

/// The width in pixels of a text in [`FONT`], as an upper bound for the usual fonts.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(em_width).sum::<f64>() * EM
}

/// The width of a character of DejaVu Sans in em, rounded up by its kind.
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
mod tests;
