//! Bars of several measures as data: one row for each subject, one column for each measure.

use crate::stats::Spread;

/// Bars of several measures, whose units may differ.
#[derive(Debug, Clone, PartialEq)]
pub struct BarTable {
    /// Rows from top to bottom.
    pub subjects: Vec<BarSubject>,
    /// Columns from left to right.
    pub columns: Vec<BarColumn>,
    /// Text below the bars.
    pub caption: String,
}

/// A row: something that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarSubject {
    /// Text at the left of the bars.
    pub name: String,
    /// Role in the comparison, which determines the colour.
    pub role: BarRole,
}

/// Role of a subject in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarRole {
    /// This project. Drawn in colour.
    Own,
    /// Another program of the same kind. Drawn in grey.
    Other,
    /// A bound that no program reaches. Drawn hollow.
    Reference,
}

/// A column: a measure, with a scale of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct BarColumn {
    /// Quantity and unit.
    pub title: String,
    /// Second line of the title, such as `more is better`.
    pub note: String,
    /// Number of decimals of the values.
    pub digits: usize,
    /// Value of each subject, in the order of the rows; `None` if it was not measured.
    pub values: Vec<Option<Spread>>,
}

impl BarColumn {
    /// Text of a value, with commas between groups of three digits.
    pub fn text(&self, value: f64) -> String {
        let text = format!("{value:.digits$}", digits = self.digits);
        let (whole, decimals) =
            text.split_once('.').map_or((text.as_str(), None), |(whole, decimals)| (whole, Some(decimals)));
        let mut grouped = String::new();
        for (place, digit) in whole.chars().enumerate() {
            let follows = whole.len() - place;
            if place > 0 && follows.is_multiple_of(3) && !grouped.ends_with('-') {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        decimals.map_or(grouped.clone(), |decimals| format!("{grouped}.{decimals}"))
    }

    /// Largest value or maximum of the column; 1 if nothing was measured.
    pub fn largest(&self) -> f64 {
        let ends = self.values.iter().flatten().map(|spread| spread.max.max(spread.median));
        let largest = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
        if largest > 0.0 { largest } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let text = |digits, value| {
            BarColumn { title: String::new(), note: String::new(), digits, values: vec![] }.text(value)
        };
        assert_eq!(
            [0.0, 12.0, 999.4, 1000.0, 241_000.0].map(|value| text(0, value)),
            ["0", "12", "999", "1,000", "241,000"]
        );
        assert_eq!([5.444, 1234.5].map(|value| text(2, value)), ["5.44", "1,234.50"]);
        assert_eq!([-123.0, -1234.0].map(|value| text(0, value)), ["-123", "-1,234"]);
    }
}
