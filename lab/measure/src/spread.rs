//! The middle of several samples, with the least and the greatest.

use serde_json::{Value, json};

/// Of the samples of all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Spread {
    /// `None` without a sample. The median of an even number of samples is the mean of the two in the middle.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let median = f64::midpoint(at((samples.len() - 1) / 2), at(samples.len() / 2));
        Some(Self { median, least, most })
    }

    /// The same with the quartiles as the least and the greatest: what lies far out, because something else had the processor, is not
    /// told.
    pub fn of_middle_half(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let quarter = samples.len() / 4;
        let middle = samples.get(quarter..samples.len() - quarter)?;
        Self::of(middle.iter().copied())
    }

    /// The median, with the others in parentheses.
    pub fn text(self, digits: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }

    /// All three.
    pub fn json(self) -> Value {
        json!({ "median": self.median, "least": self.least, "most": self.most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_samples() {
        let spread = |median, least, most| Some(Spread { median, least, most });
        assert_eq!(Spread::of([3.0, 1.0, 10.0]), spread(3.0, 1.0, 10.0));
        assert_eq!(Spread::of([4.0, 1.0, 10.0, 2.0]), spread(3.0, 1.0, 10.0));
        assert_eq!(Spread::of([]), None);
        let samples = [900.0, 1.0, 5.0, 4.0, 6.0, 7.0, 0.5, 8.0];
        assert_eq!(Spread::of_middle_half(samples), spread(5.5, 4.0, 7.0));
        assert_eq!(Spread::of_middle_half([]), None);
    }
}
