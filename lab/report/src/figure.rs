//! A figure as numbers.

use serde::{Deserialize, Serialize};

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it shows; the paper's number of the figure, if it has one.
    pub title: String,
    /// What to look at.
    pub caption: String,
    /// Across.
    pub x: Axis,
    /// Upwards. It has no names.
    pub y: Axis,
    /// What is drawn. Bars stand beside each other in this order.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// Where a value lies on it.
    pub scale: Scale,
}

/// Where a value lies on an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// From zero on, evenly, if no value is below zero.
    Linear,
    /// By its logarithm. Values that are not above zero are not shown.
    Log,
    /// The value is the place of one of these names, counted from zero. Short names stay legible.
    Names(Vec<String>),
}

/// Values that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Who measured it.
    pub origin: Origin,
    /// How it is drawn.
    pub shape: Shape,
    /// The values.
    pub points: Vec<Point>,
}

/// Who measured something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The paper: drawn in grey, lines dashed.
    Paper,
    /// This machine: drawn in colours.
    Ours,
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Joined by a line.
    Line,
    /// Each by itself.
    Points,
    /// As bars.
    Bars,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The least and the greatest sample, where there were several.
    pub spread: Option<[f64; 2]>,
}

impl Axis {
    /// Even.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// Logarithmic.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    /// Of names.
    pub fn names<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Self {
        Self { label: label.into(), scale: Scale::Names(names.into_iter().map(Into::into).collect()) }
    }
}

impl Series {
    /// Of this machine. Values that are no numbers are left out.
    pub fn ours(name: impl Into<String>, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self::new(name.into(), Origin::Ours, shape, points)
    }

    /// Of the paper.
    pub fn paper(name: impl Into<String>, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self::new(name.into(), Origin::Paper, shape, points)
    }

    fn new(name: String, origin: Origin, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self { name, origin, shape, points: points.into_iter().filter(Point::is_finite).collect() }
    }
}

impl Point {
    /// One value.
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// A median, with the least and the greatest sample.
    pub const fn between(x: f64, y: f64, least: f64, most: f64) -> Self {
        Self { x, y, spread: Some([least, most]) }
    }

    fn is_finite(&self) -> bool {
        [self.x, self.y].into_iter().chain(self.spread.into_iter().flatten()).all(f64::is_finite)
    }
}
