//! Figures as SVG, by plotters.
//!
//! What the paper measured is grey, its lines are dashed and its points are open; what this machine measured has colours that differ
//! for the colour-blind too. The legend stands above the figure, where it hides nothing.

mod layout;
mod legend;
mod place;
mod shapes;

use crate::figure::{Figure, Origin, Scale, Shape};
use layout::{BELOW, Layout, MARGIN, TICK};
use legend::Legend;
use place::Place;
use plotters::coord::Shift;
use plotters::prelude::*;
use shapes::Chart;

pub(crate) use place::number;

/// Size of a figure in pixels, the legend not counted.
const SIZE: (u32, u32) = (760, 400);
/// Legible on a telephone too, where figures are scrolled sideways rather than made smaller. The size is of a line: letters have 13 pixels.
const FONT: (&str, i32) = ("sans-serif", 16);
/// Okabe and Ito's colours for everybody's eyes, without yellow, which is too bright on white.
const OURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const PAPERS: [RGBColor; 3] = [RGBColor(90, 90, 90), RGBColor(140, 140, 140), RGBColor(180, 180, 180)];

/// How a series looks.
#[derive(Clone, Copy)]
struct Look {
    color: RGBColor,
    origin: Origin,
    shape: Shape,
}

/// What plotters says when it cannot draw.
type Failed = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a figure; an element `svg`. The error says why plotters could not.
pub fn draw(figure: &Figure) -> Result<String, String> {
    let looks = looks(figure);
    let legend = Legend::of(figure, &looks, SIZE.0);
    let mut text = String::new();
    {
        let size = (SIZE.0, SIZE.1 + legend.height());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw_on(&root, figure, &looks, &legend).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn draw_on(root: &Area<'_>, figure: &Figure, looks: &[Look], legend: &Legend) -> Result<(), Failed> {
    root.fill(&WHITE)?;
    let (top, plot) = root.split_vertically(legend.height());
    legend.draw(&top)?;
    let x = Place::of(figure, |point| point.x, &figure.x);
    let layout = Layout::new(figure, x, place_of_values(figure));
    let mut chart = ChartBuilder::on(&plot)
        .margin(MARGIN)
        .margin_right(layout.right)
        .x_label_area_size(BELOW)
        .y_label_area_size(layout.beside)
        .build_cartesian_2d(layout.x.clone(), layout.y.clone())?;
    draw_axes(&mut chart, figure, layout.labels)?;
    shapes::draw(&mut chart, figure, looks)?;
    root.present()
}

/// The spread belongs to the values.
fn place_of_values(figure: &Figure) -> Place {
    let with_spread = Figure {
        series: figure
            .series
            .iter()
            .map(|series| {
                let ends = series.points.iter().filter_map(|point| point.spread.map(|ends| (point.x, ends)));
                let ends = ends.flat_map(|(x, ends)| ends.map(|y| crate::Point::at(x, y)));
                let points = series.points.iter().copied().chain(ends).collect();
                crate::Series { points, ..series.clone() }
            })
            .collect(),
        ..figure.clone()
    };
    Place::of(&with_spread, |point| point.y, &figure.y)
}

fn draw_axes(chart: &mut Chart<'_, '_>, figure: &Figure, labels: (usize, usize)) -> Result<(), Failed> {
    let across = |value: &f64| layout::label(&figure.x, *value);
    let upwards = |value: &f64| layout::label(&figure.y, *value);
    let mut mesh = chart.configure_mesh();
    if matches!(figure.x.scale, Scale::Names(_)) {
        mesh.disable_x_mesh();
    }
    mesh.x_labels(labels.0)
        .y_labels(labels.1)
        .set_all_tick_mark_size(TICK)
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

/// One look for each series; the n-th of the paper and the n-th of ours have the n-th colour.
fn looks(figure: &Figure) -> Vec<Look> {
    let (mut ours, mut papers) = (OURS.iter().cycle(), PAPERS.iter().cycle());
    let look = |series: &crate::Series| {
        let color = match series.origin {
            Origin::Ours => ours.next(),
            Origin::Paper => papers.next(),
        };
        Look { color: color.copied().unwrap_or(BLACK), origin: series.origin, shape: series.shape }
    };
    figure.series.iter().map(look).collect()
}

#[cfg(test)]
mod tests;
