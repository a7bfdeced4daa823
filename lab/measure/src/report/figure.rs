//! Figures as data.

use serde::{Deserialize, Serialize};

/// A figure of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Title, with the number of the paper's figure if there is one.
    pub title: String,
    /// Caption: what the reader should look at.
    pub caption: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis. Its scale is never [`Scale::Names`].
    pub y: Axis,
    /// Series in drawing order. Bars of one name stand next to each other in this order.
    pub series: Vec<Series>,
}

/// An axis of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Mapping of values to positions.
    pub scale: Scale,
}

/// Mapping of values to positions on an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear. Starts at zero if no value is negative.
    Linear,
    /// Logarithmic. Values at or below zero are not drawn.
    Log,
    /// Categories. A value is the index of a name. Short names stay legible.
    Names(Vec<String>),
}

/// Values that are drawn with the same style.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Who measured the values.
    pub origin: Origin,
    /// How the values are drawn.
    pub shape: Shape,
    /// Values.
    pub points: Vec<Point>,
}

/// Who measured a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The paper. Drawn in grey, with dashed lines.
    Paper,
    /// This machine. Drawn in colour.
    Ours,
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Points joined by a line.
    Line,
    /// A line without points, for models: measured points stay visible beside it.
    Curve,
    /// Points only.
    Points,
    /// Bars.
    Bars,
}

/// One value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// Minimum and maximum sample, if there are several samples.
    pub spread: Option<[f64; 2]>,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    /// Creates an axis of categories.
    pub fn names<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Self {
        Self { label: label.into(), scale: Scale::Names(names.into_iter().map(Into::into).collect()) }
    }
}

impl Series {
    /// Creates a series of this machine. Values that are not finite are omitted.
    pub fn ours(name: impl Into<String>, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self::new(name.into(), Origin::Ours, shape, points)
    }

    /// Creates a series of the paper. Values that are not finite are omitted.
    pub fn paper(name: impl Into<String>, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self::new(name.into(), Origin::Paper, shape, points)
    }

    fn new(name: String, origin: Origin, shape: Shape, points: impl IntoIterator<Item = Point>) -> Self {
        Self { name, origin, shape, points: points.into_iter().filter(Point::is_finite).collect() }
    }
}

impl Point {
    /// Creates a point with a single value.
    pub const fn at(x: f64, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// Creates a point with a median, a minimum and a maximum.
    pub const fn with_range(x: f64, y: f64, least: f64, most: f64) -> Self {
        Self { x, y, spread: Some([least, most]) }
    }

    fn is_finite(&self) -> bool {
        [self.x, self.y].into_iter().chain(self.spread.into_iter().flatten()).all(f64::is_finite)
    }
}
