//! A straight line through samples: what a packet costs, and what each of its bytes costs besides.

use serde_json::{Value, json};

/// `y = fixed + slope x`, by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// At `x = 0`.
    pub fixed: f64,
    /// For each unit of `x`.
    pub slope: f64,
    /// Coefficient of determination: the share of the variance of `y` that the line explains, at most 1.
    pub r_squared: f64,
}

impl Line {
    /// Through these points; `None` if they have fewer than two different `x`, or a value that is no number.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
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
        // Points on a level line have no variance that could be left unexplained.
        let r_squared = if yy > 0.0 { slope * xy / yy } else { 1.0 };
        let line = Self { fixed: mean_y - slope * mean_x, slope, r_squared };
        (line.fixed.is_finite() && slope.is_finite()).then_some(line)
    }

    /// The value at `x`.
    pub fn at(self, x: f64) -> f64 {
        self.fixed + self.slope * x
    }

    /// All three.
    pub fn json(self) -> Value {
        json!({ "fixed": self.fixed, "slope": self.slope, "r_squared": self.r_squared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line() {
        let line = Line::through(&[64.0, 576.0, 1420.0].map(|x| (x, 200.0 + 0.5 * x))).unwrap();
        assert!((line.fixed - 200.0).abs() < 1e-9 && (line.slope - 0.5).abs() < 1e-12);
        assert!((line.r_squared - 1.0).abs() < 1e-12 && (line.at(1000.0) - 700.0).abs() < 1e-9);
        let level = Line::through(&[(1.0, 7.0), (2.0, 7.0)]).unwrap();
        assert_eq!((level.fixed, level.slope, level.r_squared), (7.0, 0.0, 1.0));
    }

    /// F. J. Anscombe, "Graphs in Statistical Analysis", The American Statistician 27 (1973): the first set, with the line
    /// y = 3 + 0.5 x and r^2 = 0.67.
    #[test]
    fn anscombe() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let line = Line::through(&points).unwrap();
        assert!((line.fixed - 3.0).abs() < 0.005 && (line.slope - 0.5).abs() < 0.0005, "{line:?}");
        assert!((line.r_squared - 0.67).abs() < 0.005, "{line:?}");
    }

    #[test]
    fn one_place_has_no_line() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (2.0, f64::NAN)]), None);
    }
}
