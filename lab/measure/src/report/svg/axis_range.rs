//! Range of an axis, and the values of its labels.

use crate::report::figure::{Axis, Figure, Scale};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// Margin beyond the extreme values of the vertical axis, and of the horizontal one, as a share of the axis.
const MARGIN: f64 = 0.06;
const EDGE: f64 = 0.03;
/// Least length of a horizontal axis, as a share of its largest value: its labels have three digits.
const NARROWEST: f64 = 0.1;
/// How far whiskers extend a vertical axis: as a share of the values' range, and as a factor.
const WHISKER_ROOM: f64 = 0.5;
const WHISKER_FACTOR: f64 = 3.0;
/// Smallest and largest magnitude that an axis shows; measurements stay within it. Zero is shown, too, except
/// on a logarithmic axis.
const MAGNITUDES: Range<f64> = 1e-30..1e30;
/// Steps between labels, times a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// Range of an axis of any scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AxisRange {
    /// Linear range.
    Linear(Range<f64>),
    /// Logarithmic range of positive values.
    Log(Range<f64>),
    /// Number of categories.
    Names(usize),
}

impl AxisRange {
    /// Range of the horizontal axis. It begins where the values begin.
    pub(super) fn horizontal(figure: &Figure) -> Self {
        let values = figure.series.iter().flat_map(|series| &series.points).map(|point| point.x);
        match (&figure.x.scale, ends(values, &figure.x)) {
            (Scale::Names(names), _) => Self::Names(names.len().max(1)),
            (Scale::Log, ends) => {
                let (least, most) = ends.unwrap_or((1.0, 10.0));
                let times = most / least;
                let room = times.powf(EDGE).max(((1.0 + NARROWEST) / times).sqrt());
                Self::Log(least / room..most * room)
            }
            (Scale::Linear, ends) => {
                let (least, most) = ends.unwrap_or((0.0, 1.0));
                let (span, largest) = (most - least, most.abs().max(least.abs()));
                let narrow = if largest > 0.0 { largest * NARROWEST } else { 2.0 };
                let room = (span * EDGE).max((narrow - span) / 2.0);
                let start = if least < 0.0 { least - room } else { (least - room).max(0.0) };
                Self::Linear(start..most + room)
            }
        }
    }

    /// Range of the vertical axis. It covers all values, and their whiskers as far as these do not flatten
    /// them: a linear axis reaches at most half as far again as the values, a logarithmic one three times as
    /// far.
    pub(super) fn vertical(figure: &Figure) -> Self {
        let points = || figure.series.iter().flat_map(|series| &series.points);
        let values = ends(points().map(|point| point.y), &figure.y);
        let is_log = figure.y.scale == Scale::Log;
        let (least, most) = values.unwrap_or(if is_log { (1.0, 10.0) } else { (0.0, 1.0) });
        let room = (most.max(0.0) - least.min(0.0)) * WHISKER_ROOM;
        let (low, high) = match is_log {
            true => (least / WHISKER_FACTOR, most * WHISKER_FACTOR),
            false => (least.min(0.0) - room, most.max(0.0) + room),
        };
        let whiskers = points().filter_map(|point| point.spread).flatten();
        let whiskers = whiskers.filter(|end| is_shown(*end, is_log)).map(|end| end.clamp(low, high));
        let (least, most) =
            whiskers.fold((least, most), |(least, most), end| (least.min(end), most.max(end)));
        if is_log { Self::log((least, most)) } else { Self::linear((least, most)) }
    }

    fn linear((least, most): (f64, f64)) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        let room = if most > least { (most - least) * MARGIN } else { 1.0 };
        Self::Linear(if least < 0.0 { least - room } else { 0.0 }..most + room)
    }

    /// Range between two powers of ten that leaves a bar of the smallest value visible.
    fn log((least, most): (f64, f64)) -> Self {
        let (from, to) = ((least * 0.8).log10().floor(), most.log10().ceil());
        Self::Log(10f64.powf(from)..10f64.powf(to.max(from + 1.0)))
    }

    /// Whether the axis can show a value.
    pub(super) fn shows(&self, value: f64) -> bool {
        is_shown(value, matches!(self, Self::Log(_)))
    }

    /// Returns the labelled values in ascending order: at most `most`, which is at least two. Categories are
    /// always labelled.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        match self {
            Self::Linear(range) => even_steps(range, most.max(2)),
            Self::Log(range) => log_steps(range, most.max(2)),
            Self::Names(count) => (0..*count).map(|place| place as f64).collect(),
        }
    }

    /// Value at which bars begin.
    pub(super) fn baseline(&self) -> f64 {
        match self {
            Self::Log(range) => range.start,
            Self::Linear(_) | Self::Names(_) => 0.0,
        }
    }
}

impl Ranged for AxisRange {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        let share = match self {
            Self::Log(_) => (value.max(f64::MIN_POSITIVE) / start).ln() / (end / start).ln(),
            Self::Linear(_) | Self::Names(_) => (value - start) / (end - start),
        };
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.max_num_points() {
            0 => Vec::new(),
            most => self.ticks(most),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(range) | Self::Log(range) => range.clone(),
            Self::Names(count) => -0.5..*count as f64 - 0.5,
        }
    }
}

/// Whether an axis can show a value: its magnitude is within [`MAGNITUDES`], and it is positive on a
/// logarithmic axis.
fn is_shown(value: f64, is_log: bool) -> bool {
    MAGNITUDES.contains(&value.abs()) && (!is_log || value > 0.0) || value == 0.0 && !is_log
}

/// Smallest and largest of the values that an axis can show.
fn ends(values: impl Iterator<Item = f64>, axis: &Axis) -> Option<(f64, f64)> {
    let values = values.filter(|value| is_shown(*value, axis.scale == Scale::Log));
    values.fold(None, |ends: Option<(f64, f64)>, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    })
}

/// Multiples of the smallest step of which at most `most` lie in the range.
fn even_steps(range: &Range<f64>, most: usize) -> Vec<f64> {
    let span = range.end - range.start;
    // A range of `n` steps contains at most `n + 1` multiples of the step.
    let least = span / (most - 1) as f64;
    let power = least.log10().floor() as i32;
    let candidates = (power..=power + 1).flat_map(|power| STEPS.map(|step| step * 10f64.powi(power)));
    let step = candidates.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(span);
    let multiples = (range.start / step).ceil() as i64..=(range.end / step).floor() as i64;
    multiples.map(|multiple| multiple as f64 * step).collect()
}

/// Powers of ten in a range, or every n-th of them, with their doubles and fivefolds if there is space. If the
/// range contains fewer than two of these, even steps.
fn log_steps(range: &Range<f64>, most: usize) -> Vec<f64> {
    let (from, to) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let inside = |value: &f64| (range.start * 0.999_999..=range.end * 1.000_001).contains(value);
    let values = |steps: &[f64], every: usize| -> Vec<f64> {
        let powers = (from..=to).filter(|power| power.rem_euclid(every as i32) == 0);
        powers
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(inside)
            .collect()
    };
    let fine = std::iter::once(values(&STEPS, 1));
    let mut all = fine.chain((1..=usize::try_from(to - from).unwrap_or(0).max(1)).map(|n| values(&[1.0], n)));
    let found = all.find(|values| values.len() <= most).filter(|values| values.len() >= 2);
    found.unwrap_or_else(|| even_steps(range, most))
}

/// Short form of a sample, for a table.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:.1e}").replace(".0e", "e");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Label of a value on an axis: three significant digits without trailing zeros, with an exponent below 0.001
/// and from 100,000 on. At most ten characters.
pub(super) fn axis_number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e5).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", without_zeros(digits));
    }
    let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}")).into()
}

/// Removes the trailing zeros of the decimals.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let values = [0.0, 0.1 + 0.2, 1000.0, 250_000.0, 1e6, 0.00002, 12.5];
        let texts = ["0", "0.3", "1000", "2.5e5", "1e6", "2e-5", "12.5"];
        assert_eq!(values.map(number), texts);
        assert_eq!(values.map(axis_number), texts);
        assert_eq!([0.0015, -10_000.0, -1.5e12].map(axis_number), ["0.0015", "-10000", "-1.5e12"]);
    }

    #[test]
    fn a_logarithmic_axis_spans_whole_decades() {
        let place = AxisRange::log((15.0, 315.0));
        assert_eq!(place.range(), 10.0..1000.0);
        assert_eq!(place.map(&100.0, (0, 200)), 100);
        assert_eq!(place.ticks(11), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(place.ticks(6), [10.0, 100.0, 1000.0]);
        assert_eq!(log_steps(&(1.0..1e4), 11), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(log_steps(&(1.0..1e4), 3), [1.0, 100.0, 10_000.0]);
        assert_eq!(log_steps(&(30.0..47.0), 4), [30.0, 40.0]);
    }

    /// A figure with these sizes on its horizontal axis.
    fn of_sizes(x: Axis, sizes: &[f64]) -> Figure {
        let points = sizes.iter().map(|size| crate::report::Point::at(*size, 1.0));
        let series = vec![crate::report::Series::ours("s", crate::report::Shape::Line, points)];
        Figure { title: "t".into(), caption: "c".into(), x, y: Axis::linear("y"), series }
    }

    #[test]
    fn a_horizontal_axis_begins_where_the_sizes_begin() {
        let range = |x: Axis, sizes: &[f64]| AxisRange::horizontal(&of_sizes(x, sizes)).range();
        let mtus = range(Axis::linear("MTU"), &[180.0, 600.0, 1500.0]);
        assert!(mtus.start > 130.0 && mtus.start < 180.0 && mtus.end < 1550.0, "{mtus:?}");
        let messages = range(Axis::log("bytes"), &[1.0, 256.0, 16_384.0]);
        assert!(messages.start > 0.7 && messages.start < 1.0 && messages.end < 23_000.0, "{messages:?}");
        assert_eq!(range(Axis::linear("rate"), &[0.0, 100.0]), 0.0..103.0);
    }

    #[test]
    fn a_vertical_axis_begins_at_zero() {
        let AxisRange::Linear(range) = AxisRange::linear((5.0, 10.0)) else { panic!("another axis") };
        assert_eq!(range.start, 0.0);
        assert!(range.end > 10.0);
        assert_ne!(AxisRange::linear((0.0, 0.0)), AxisRange::Linear(0.0..0.0));
    }
}
