//! Draws figures as SVG, using plotters.
//!
//! Values of the paper are grey with dashed lines and hollow points. Values of this machine have colours that
//! colour-blind readers can distinguish. The legend is above the plot, where it covers no value.

mod axis_range;
mod layout;
mod shapes;

use crate::report::figure::{Figure, Origin, Scale, Shape};
use axis_range::AxisRange;
use layout::{Layout, MARGIN, TICK_LEN, X_LABEL_AREA};
use plotters::coord::Shift;
use plotters::prelude::*;
use shapes::Chart;
use shapes::Legend;

pub(crate) use axis_range::number;

/// Size of a figure in pixels, without the legend.
const SIZE: (u32, u32) = (760, 400);
/// Font and line height in pixels; letters are 13 pixels high. Legible on a telephone, where figures scroll
/// sideways instead of shrinking.
const FONT: (&str, i32) = ("sans-serif", 16);
/// Colour-blind safe palette of Okabe and Ito, without yellow, which is too bright on white.
const OUR_COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const PAPER_COLORS: [RGBColor; 3] = [RGBColor(90, 90, 90), RGBColor(140, 140, 140), RGBColor(180, 180, 180)];

/// Drawing style of a series.
#[derive(Clone, Copy)]
struct Style {
    color: RGBColor,
    origin: Origin,
    shape: Shape,
}

/// Error of plotters.
type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a figure and returns an element `svg`. The error is the message of plotters.
pub fn draw(figure: &Figure) -> Result<String, String> {
    let looks = styles(figure);
    let legend = Legend::of(figure, &looks, SIZE.0);
    let mut text = String::new();
    {
        let size = (SIZE.0, SIZE.1 + legend.height());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw_on(&root, figure, &looks, &legend).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn draw_on(root: &Area<'_>, figure: &Figure, looks: &[Style], legend: &Legend) -> Result<(), DrawError> {
    root.fill(&WHITE)?;
    let (top, plot) = root.split_vertically(legend.height());
    legend.draw(&top)?;
    let x = AxisRange::covering(figure, |point| point.x, &figure.x);
    let layout = Layout::new(figure, x, value_range(figure));
    let mut chart = ChartBuilder::on(&plot)
        .margin(MARGIN)
        .margin_right(layout.right_margin)
        .x_label_area_size(X_LABEL_AREA)
        .y_label_area_size(layout.y_label_area)
        .build_cartesian_2d(layout.x.clone(), layout.y.clone())?;
    draw_axes(&mut chart, figure, &layout)?;
    shapes::draw(&mut chart, figure, looks)?;
    root.present()
}

/// Range of the vertical axis. It covers minima and maxima, too.
fn value_range(figure: &Figure) -> AxisRange {
    let with_spread = Figure {
        series: figure
            .series
            .iter()
            .map(|series| {
                let ends = series.points.iter().filter_map(|point| point.spread.map(|ends| (point.x, ends)));
                let ends = ends.flat_map(|(x, ends)| ends.map(|y| crate::report::Point::at(x, y)));
                let points = series.points.iter().copied().chain(ends).collect();
                crate::report::Series { points, ..series.clone() }
            })
            .collect(),
        ..figure.clone()
    };
    AxisRange::covering(&with_spread, |point| point.y, &figure.y)
}

fn draw_axes(chart: &mut Chart<'_, '_>, figure: &Figure, layout: &Layout) -> Result<(), DrawError> {
    let across = |value: &f64| layout::label(&figure.x, *value);
    let upwards = |value: &f64| layout::label(&figure.y, *value);
    let mut mesh = chart.configure_mesh();
    if matches!(figure.x.scale, Scale::Names(_)) {
        mesh.disable_x_mesh();
    }
    mesh.x_labels(layout.x_labels)
        .y_labels(layout.y_labels)
        .set_all_tick_mark_size(TICK_LEN)
        .max_light_lines(0)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(120, 120, 120))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .x_desc(figure.x.label.as_str())
        .y_desc(figure.y.label.as_str())
        .x_label_formatter(&across)
        .y_label_formatter(&upwards)
        .draw()
}

/// Returns one style per series. The n-th series of the paper and the n-th of this machine have the n-th
/// colour of their palette.
fn styles(figure: &Figure) -> Vec<Style> {
    let (mut ours, mut papers) = (OUR_COLORS.iter().cycle(), PAPER_COLORS.iter().cycle());
    let look = |series: &crate::report::Series| {
        let color = match series.origin {
            Origin::Ours => ours.next(),
            Origin::Paper => papers.next(),
        };
        Style { color: color.copied().unwrap_or(BLACK), origin: series.origin, shape: series.shape }
    };
    figure.series.iter().map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Figure, Point, Series};

    fn figure(x: Axis, y: Axis, series: Vec<Series>) -> Figure {
        Figure { title: "A <title>".into(), caption: "c".into(), x, y, series }
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    /// Every shape, of the paper and of this machine.
    fn every_kind() -> Vec<Series> {
        let shapes = [("line", Shape::Line), ("points", Shape::Points), ("bars", Shape::Bars)];
        let points = |height: f64| {
            [Point::at(0.0, height), Point::with_range(1.0, 2.0 * height, height, 3.0 * height)]
        };
        shapes
            .iter()
            .enumerate()
            .flat_map(|(place, (name, shape))| {
                let height = 10.0 + place as f64;
                [
                    Series::ours(format!("our {name} <&>"), *shape, points(height)),
                    Series::paper(format!("paper's {name}"), *shape, points(height + 5.0)),
                ]
            })
            .collect()
    }

    #[test]
    fn every_kind_of_series_is_drawn_on_every_axis() {
        let names = || Axis::names("row", ["none", "all"]);
        for y in [Axis::linear("Mb/s"), Axis::log("Mb/s")] {
            let text = draw(&figure(names(), y, every_kind())).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
            for name in ["our line &lt;&amp;&gt;", "bars", "none", "all", "row", "Mb/s"] {
                assert!(text.contains(name), "no {name} in {text}");
            }
            // Two lines and two series of points with two points each, and one legend symbol per series.
            assert_eq!(count(&text, "<circle"), 2 * 2 * 2 + 4, "{text}");
            // Bars of this machine are filled and those of the paper hollow: two bars and one legend symbol
            // each, plus the white background.
            assert_eq!(count(&text, "<rect"), 2 * 3 + 1, "{text}");
            assert!(text.contains("#0072B2") && text.contains("#5A5A5A"), "{text}");
        }
    }

    #[test]
    fn a_figure_without_points_has_axes() {
        for x in [Axis::linear("bytes"), Axis::log("bytes"), Axis::names("row", Vec::<String>::new())] {
            let text = draw(&figure(x, Axis::linear("Mb/s"), Vec::new())).unwrap();
            assert!(text.contains("Mb/s"), "{text}");
        }
    }

    #[test]
    fn a_logarithmic_axis_omits_values_that_are_not_positive() {
        let points = [Point::at(1.0, 0.0), Point::at(2.0, -3.0), Point::at(3.0, 4.0)];
        let series = vec![Series::ours("s", Shape::Points, points)];
        let text = draw(&figure(Axis::linear("x"), Axis::log("y"), series)).unwrap();
        assert_eq!(count(&text, "<circle"), 1 + 1, "{text}");
    }

    #[test]
    fn a_long_legend_takes_more_lines() {
        let series = |count: usize| {
            (0..count).map(|n| Series::ours(format!("a series of a long name {n}"), Shape::Line, []))
        };
        let height = |count| {
            let figure = figure(Axis::linear("x"), Axis::linear("y"), series(count).collect());
            Legend::of(&figure, &styles(&figure), SIZE.0).height()
        };
        assert!(height(6) > height(2));
    }
}
