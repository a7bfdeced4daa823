//! Median, minimum and maximum of samples.

use serde_json::{Value, json};

/// Spread of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Where the median of further samples would be; `None` for fewer than [`LEAST_ROUNDS`] samples.
    pub interval: Option<Interval>,
}

/// The least number of samples with an interval.
pub const LEAST_ROUNDS: usize = 5;

/// Range that contains the median of the measured quantity with this confidence or more: that of the extremes
/// of five samples, 1 - 2 / 2^5.
const CONFIDENCE: f64 = 0.937_5;

/// Range of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval between two of the sorted samples, equally far from the ends: the narrowest one with the
    /// confidence. It assumes nothing about the distribution, and outliers do not widen it.
    fn of(sorted: &[f64]) -> Option<Self> {
        let count = sorted.len();
        // The probability that the median is outside is twice that of fewer than `place` heads in `count`
        // throws.
        let mut outside = 2.0 * 0.5_f64.powi(i32::try_from(count).ok()?);
        let mut term = outside;
        let mut place = None;
        for next in 1..=count {
            if 1.0 - outside < CONFIDENCE {
                break;
            }
            place = Some(next - 1);
            term *= (count + 1 - next) as f64 / next as f64;
            outside += term;
        }
        let place = place?;
        Some(Self { low: *sorted.get(place)?, high: *sorted.get(count - 1 - place)? })
    }
}

impl Spread {
    /// Computes the spread; `None` without samples. The median of an even number of samples is the mean of
    /// the middle two.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let median = f64::midpoint(at((samples.len() - 1) / 2), at(samples.len() / 2));
        Some(Self { median, min: least, max: most, interval: Interval::of(&samples) })
    }

    /// Computes the spread of the quotients of pairs, one for each round.
    pub fn of_ratios(
        own: impl IntoIterator<Item = f64>,
        base: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        Self::of(own.into_iter().zip(base).map(|(own, base)| own / base))
    }

    /// Computes the spread of the middle half: the quartiles are minimum and maximum. This removes outliers
    /// that other programs have caused.
    pub fn interquartile(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let quarter = samples.len() / 4;
        let middle = samples.get(quarter..samples.len() - quarter)?;
        Self::of(middle.iter().copied())
    }

    /// Formats the median, and the range in parentheses.
    pub fn text(self, digits: usize) -> String {
        let Self { median, min: least, max: most, .. } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }

    /// Returns the three fields as a JSON object.
    pub fn json(self) -> Value {
        json!({ "median": self.median, "least": self.min, "most": self.max })
    }
}

/// The line `y = intercept + slope * x`, fitted by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearFit {
    /// Value of `y` at `x = 0`.
    pub intercept: f64,
    /// Change of `y` per unit of `x`.
    pub slope: f64,
    /// Coefficient of determination: share of the variance of `y` that the line explains, at most 1.
    pub r_squared: f64,
}

impl LinearFit {
    /// Fits a line through `points`. Returns `None` for fewer than two different `x`, or for a value that is
    /// not finite.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if xx.is_nan() || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        // Points on a horizontal line have no variance to explain.
        let r_squared = if yy > 0.0 { slope * xy / yy } else { 1.0 };
        let line = Self { intercept: mean_y - slope * mean_x, slope, r_squared };
        (line.intercept.is_finite() && slope.is_finite()).then_some(line)
    }

    /// Value of the line at `x`.
    pub fn value_at(self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Returns the three fields as a JSON object with the keys `median`, `least` and `most`.
    pub fn json(self) -> Value {
        json!({ "fixed": self.intercept, "slope": self.slope, "r_squared": self.r_squared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_unsorted_samples() {
        let spread = |median, least, most| Some(Spread { median, min: least, max: most, interval: None });
        assert_eq!(Spread::of([3.0, 1.0, 10.0]), spread(3.0, 1.0, 10.0));
        assert_eq!(Spread::of([4.0, 1.0, 10.0, 2.0]), spread(3.0, 1.0, 10.0));
        assert_eq!(Spread::of([]), None);
        let samples = [900.0, 1.0, 5.0, 4.0, 6.0, 7.0, 0.5, 8.0];
        assert_eq!(Spread::interquartile(samples), spread(5.5, 4.0, 7.0));
        assert_eq!(Spread::interquartile([]), None);
    }

    /// Ranks from a table of confidence intervals for the median (sign test): n = 5 to 7 have the extremes,
    /// n = 9 and 10 the second, n = 20 the sixth, with at least 93.75 %.
    #[test]
    fn interval_of_the_median() {
        let ranks = |count: usize| {
            let samples: Vec<f64> = (1..=count).map(|n| n as f64).collect();
            Spread::of(samples).unwrap().interval.map(|ends| (ends.low, ends.high))
        };
        assert_eq!(ranks(4), None);
        assert_eq!(ranks(5), Some((1.0, 5.0)));
        assert_eq!(ranks(7), Some((1.0, 7.0)));
        assert_eq!(ranks(9), Some((2.0, 8.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
    }

    #[test]
    fn fits_points_on_a_line() {
        let line = LinearFit::fit(&[64.0, 576.0, 1420.0].map(|x| (x, 200.0 + 0.5 * x))).unwrap();
        assert!((line.intercept - 200.0).abs() < 1e-9 && (line.slope - 0.5).abs() < 1e-12);
        assert!((line.r_squared - 1.0).abs() < 1e-12 && (line.value_at(1000.0) - 700.0).abs() < 1e-9);
        let level = LinearFit::fit(&[(1.0, 7.0), (2.0, 7.0)]).unwrap();
        assert_eq!((level.intercept, level.slope, level.r_squared), (7.0, 0.0, 1.0));
    }

    /// F. J. Anscombe, "Graphs in Statistical Analysis", The American Statistician 27 (1973): the first set,
    /// with the line y = 3 + 0.5 x and r^2 = 0.67.
    #[test]
    fn fits_anscombes_first_data_set() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let line = LinearFit::fit(&points).unwrap();
        assert!((line.intercept - 3.0).abs() < 0.005 && (line.slope - 0.5).abs() < 0.0005, "{line:?}");
        assert!((line.r_squared - 0.67).abs() < 0.005, "{line:?}");
    }

    #[test]
    fn no_fit_without_two_distinct_x_values() {
        assert_eq!(LinearFit::fit(&[]), None);
        assert_eq!(LinearFit::fit(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(LinearFit::fit(&[(1.0, 1.0), (2.0, f64::NAN)]), None);
    }
}
