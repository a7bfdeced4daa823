//! Where values lie on an axis, and the values at which it has labels.

use crate::figure::{Axis, Figure, Point, Scale};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// Room beyond the outermost values, as a share of the axis.
const MARGIN: f64 = 0.06;

/// An axis of any scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// Even.
    Linear(Range<f64>),
    /// By the logarithm, of values above zero.
    Log(Range<f64>),
    /// The names' places.
    Names(usize),
}

impl Place {
    /// Wide enough for what `value` takes from the points of a figure.
    pub(super) fn of(figure: &Figure, value: impl Fn(&Point) -> f64, axis: &Axis) -> Self {
        let values = figure.series.iter().flat_map(|series| &series.points).map(value);
        let is_log = axis.scale == Scale::Log;
        let values = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
        let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
            let (least, most) = ends.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        });
        match &axis.scale {
            Scale::Names(names) => Self::Names(names.len().max(1)),
            Scale::Log => Self::log(ends.unwrap_or((1.0, 10.0))),
            Scale::Linear => Self::linear(ends.unwrap_or((0.0, 1.0))),
        }
    }

    fn linear((least, most): (f64, f64)) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        let room = if most > least { (most - least) * MARGIN } else { 1.0 };
        Self::Linear(if least < 0.0 { least - room } else { 0.0 }..most + room)
    }

    /// From a power of ten to another; a bar of the least value is to be seen.
    fn log((least, most): (f64, f64)) -> Self {
        let (from, to) = ((least * 0.8).log10().floor(), most.log10().ceil());
        Self::Log(10f64.powf(from)..10f64.powf(to.max(from + 1.0)))
    }

    /// Where bars begin.
    pub(super) fn floor(&self) -> f64 {
        match self {
            Self::Log(range) => range.start,
            Self::Linear(_) | Self::Names(_) => 0.0,
        }
    }
}

impl Ranged for Place {
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
        match self {
            _ if hint.max_num_points() == 0 => Vec::new(),
            Self::Linear(range) => RangedCoordf64::from(range.clone()).key_points(hint),
            Self::Log(range) => decades(range),
            Self::Names(count) => (0..*count).map(|place| place as f64).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(range) | Self::Log(range) => range.clone(),
            Self::Names(count) => -0.5..*count as f64 - 0.5,
        }
    }
}

/// The powers of ten; with their double and their fivefold where there are few.
fn decades(range: &Range<f64>) -> Vec<f64> {
    let (from, to) = (range.start.log10().round() as i32, range.end.log10().round() as i32);
    let steps: &[f64] = if to - from <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let values = (from..=to).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    values.filter(|value| *value <= range.end * 1.000_001).collect()
}

/// A label, short.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:.1e}").replace(".0e", "e");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let texts = [0.0, 0.1 + 0.2, 1000.0, 250_000.0, 1e6, 0.00002, 12.5].map(number);
        assert_eq!(texts, ["0", "0.3", "1000", "2.5e5", "1e6", "2e-5", "12.5"]);
    }

    #[test]
    fn a_logarithmic_axis_has_whole_decades_and_places_values_by_their_ratio() {
        let place = Place::log((15.0, 315.0));
        assert_eq!(place.range(), 10.0..1000.0);
        assert_eq!(place.map(&100.0, (0, 200)), 100);
        assert_eq!(decades(&place.range()), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(decades(&(1.0..1e4)), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn an_even_axis_begins_at_zero() {
        let Place::Linear(range) = Place::linear((5.0, 10.0)) else { panic!("another axis") };
        assert_eq!(range.start, 0.0);
        assert!(range.end > 10.0);
        assert_ne!(Place::linear((0.0, 0.0)), Place::Linear(0.0..0.0));
    }
}
