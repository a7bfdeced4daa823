//! Lines, points and bars.

use super::place::Place;
use super::{Failed, Look};
use crate::figure::{Figure, Origin, Point, Series, Shape};
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Place, Place>>;

/// What bars of one name fill of the room between two names.
const BARS: f64 = 0.8;
const RADIUS: i32 = 4;

/// Draws all series; bars first, so that they hide nothing.
pub(super) fn draw(chart: &mut Chart<'_, '_>, figure: &Figure, looks: &[Look]) -> Result<(), Failed> {
    let all = || figure.series.iter().zip(looks);
    let bars: Vec<_> = all().filter(|(series, _)| series.shape == Shape::Bars).collect();
    for (place, (series, look)) in bars.iter().enumerate() {
        draw_bars(chart, series, look, place, bars.len())?;
    }
    for (series, look) in all() {
        match series.shape {
            Shape::Bars => {}
            Shape::Points => draw_points(chart, series, look)?,
            Shape::Line => {
                draw_line(chart, series, look)?;
                draw_points(chart, series, look)?;
            }
        }
    }
    Ok(())
}

/// The points that can be shown on this axis.
fn shown(chart: &Chart<'_, '_>, series: &Series) -> Vec<Point> {
    let (x, y) = (chart.as_coord_spec().x_spec(), chart.as_coord_spec().y_spec());
    series.points.iter().filter(|point| x.shows(point.x) && y.shows(point.y)).copied().collect()
}

fn draw_bars(
    chart: &mut Chart<'_, '_>,
    series: &Series,
    look: &Look,
    place: usize,
    count: usize,
) -> Result<(), Failed> {
    let floor = chart.as_coord_spec().y_spec().floor();
    let (width, points) = (BARS / count as f64, shown(chart, series));
    let left = |x: f64| x - BARS / 2.0 + place as f64 * width;
    let style = match look.origin {
        Origin::Ours => look.color.filled(),
        Origin::Paper => look.color.stroke_width(2),
    };
    chart.draw_series(points.iter().map(|point| {
        let from = left(point.x);
        Rectangle::new([(from, floor), (from + width * 0.92, point.y)], style)
    }))?;
    let middles = points.iter().map(|point| Point { x: left(point.x) + width * 0.46, ..*point });
    draw_spread(chart, &middles.collect::<Vec<_>>(), BLACK)
}

fn draw_points(chart: &mut Chart<'_, '_>, series: &Series, look: &Look) -> Result<(), Failed> {
    let points = shown(chart, series);
    draw_spread(chart, &points, look.color)?;
    let style = match look.origin {
        Origin::Ours => look.color.filled(),
        Origin::Paper => look.color.stroke_width(2),
    };
    chart.draw_series(points.iter().map(|point| Circle::new((point.x, point.y), RADIUS, style)))?;
    Ok(())
}

fn draw_line(chart: &mut Chart<'_, '_>, series: &Series, look: &Look) -> Result<(), Failed> {
    let points: Vec<(f64, f64)> = shown(chart, series).iter().map(|point| (point.x, point.y)).collect();
    let style = look.color.stroke_width(2);
    match look.origin {
        Origin::Ours => chart.draw_series(LineSeries::new(points, style))?,
        Origin::Paper => chart.draw_series(DashedLineSeries::new(points, 7, 5, style))?,
    };
    Ok(())
}

/// A line from the least to the greatest sample.
fn draw_spread(chart: &mut Chart<'_, '_>, points: &[Point], color: RGBColor) -> Result<(), Failed> {
    let y = chart.as_coord_spec().y_spec().clone();
    let floor = y.range().start;
    let lines = points.iter().filter_map(|point| {
        let [least, most] = point.spread.filter(|[_, most]| y.shows(*most))?;
        Some(PathElement::new([(point.x, least.max(floor)), (point.x, most)], color.stroke_width(1)))
    });
    chart.draw_series(lines)?;
    Ok(())
}
