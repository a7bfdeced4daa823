//! Draws lines, points and bars, and the legend above a figure. The legend takes as many lines as it needs.

use super::axis_range::AxisRange;
use super::layout::{LINE_HEIGHT, MIN_Y_LABEL_AREA};
use super::outliers::clipped;
use super::text::{text_width, wrap};
use super::{Area, DrawError, FONT, Style};
use crate::report::figure::{Figure, Origin, Point, Series, Shape};
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<AxisRange, AxisRange>>;

/// Share of the distance between two names that the bars of one name take.
const BAR_GROUP_WIDTH: f64 = 0.8;
const RADIUS: i32 = 4;

/// Draws all series. Bars come first, then curves, so that they cover nothing.
pub(super) fn draw(chart: &mut Chart<'_, '_>, figure: &Figure, looks: &[Style]) -> Result<(), DrawError> {
    let all = || figure.series.iter().zip(looks);
    let bars: Vec<_> = all().filter(|(series, _)| series.shape == Shape::Bars).collect();
    for (place, (series, look)) in bars.iter().enumerate() {
        draw_bars(chart, series, look, place, bars.len())?;
    }
    for (series, look) in all().filter(|(series, _)| series.shape == Shape::Curve) {
        draw_line(chart, series, look)?;
    }
    for (series, look) in all() {
        match series.shape {
            Shape::Bars | Shape::Curve => {}
            Shape::Points => draw_points(chart, series, look)?,
            Shape::Line => {
                draw_line(chart, series, look)?;
                draw_points(chart, series, look)?;
            }
        }
    }
    Ok(())
}

/// Points that the axes can show.
fn visible_points(chart: &Chart<'_, '_>, series: &Series) -> Vec<Point> {
    let (x, y) = (chart.as_coord_spec().x_spec(), chart.as_coord_spec().y_spec());
    series.points.iter().filter(|point| x.shows(point.x) && y.shows(point.y)).copied().collect()
}

fn draw_bars(
    chart: &mut Chart<'_, '_>,
    series: &Series,
    look: &Style,
    place: usize,
    count: usize,
) -> Result<(), DrawError> {
    let floor = chart.as_coord_spec().y_spec().baseline();
    let (width, points) = (BAR_GROUP_WIDTH / count as f64, visible_points(chart, series));
    let left = |x: f64| x - BAR_GROUP_WIDTH / 2.0 + place as f64 * width;
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

fn draw_points(chart: &mut Chart<'_, '_>, series: &Series, look: &Style) -> Result<(), DrawError> {
    let points = visible_points(chart, series);
    draw_spread(chart, &points, look.color)?;
    let style = match look.origin {
        Origin::Ours => look.color.filled(),
        Origin::Paper => look.color.stroke_width(2),
    };
    chart.draw_series(points.iter().map(|point| Circle::new((point.x, point.y), RADIUS, style)))?;
    Ok(())
}

fn draw_line(chart: &mut Chart<'_, '_>, series: &Series, look: &Style) -> Result<(), DrawError> {
    let points: Vec<(f64, f64)> =
        visible_points(chart, series).iter().map(|point| (point.x, point.y)).collect();
    let style = look.color.stroke_width(2);
    match look.origin {
        Origin::Ours => chart.draw_series(LineSeries::new(points, style))?,
        Origin::Paper => chart.draw_series(DashedLineSeries::new(points, 7, 5, style))?,
    };
    Ok(())
}

/// Draws a line from the minimum to the maximum sample, with an arrow at an end that is outside the axis.
fn draw_spread(chart: &mut Chart<'_, '_>, points: &[Point], color: RGBColor) -> Result<(), DrawError> {
    let y = chart.as_coord_spec().y_spec().clone();
    let (floor, ceiling) = (y.range().start, y.range().end);
    let whiskers = || points.iter().filter(|point| point.spread.is_some_and(|[_, most]| y.shows(most)));
    chart.draw_series(whiskers().filter_map(|point| {
        let [least, most] = point.spread?.map(|end| end.clamp(floor, ceiling));
        Some(PathElement::new([(point.x, least), (point.x, most)], color.stroke_width(1)))
    }))?;
    let arrows = whiskers().flat_map(|point| {
        let ends = [(floor, -ARROW_LEN), (ceiling, ARROW_LEN)].into_iter().zip(clipped(*point, &y));
        let ends = ends.filter(|(_, is_clipped)| *is_clipped).map(|(end, _)| end);
        ends.map(|(end, length)| (point.x, end, length))
    });
    chart.draw_series(arrows.map(|(x, y, length)| {
        let tip = vec![(0, 0), (-ARROW_WIDTH, length), (ARROW_WIDTH, length)];
        EmptyElement::at((x, y)) + Polygon::new(tip, color.filled())
    }))?;
    Ok(())
}

/// Size of an arrow at a clipped whisker, in pixels.
const ARROW_LEN: i32 = 9;
const ARROW_WIDTH: i32 = 4;

const LEFT: i32 = MIN_Y_LABEL_AREA as i32;
/// Width of the symbol in front of a name.
const SYMBOL_WIDTH: i32 = 30;
const GAP: i32 = 22;
/// Maximum number of lines of a name.
const MAX_LINES: usize = 3;

/// Names and their positions.
pub(super) struct Legend {
    entries: Vec<Entry>,
    lines: i32,
}

struct Entry {
    /// Lines of the name.
    name: Vec<String>,
    look: Style,
    position: (i32, i32),
}

impl Legend {
    /// Lays out the legend of a figure of this width. A name that is longer than a line has lines of its own.
    pub(super) fn of(figure: &Figure, looks: &[Style], width: u32) -> Self {
        let width = i32::try_from(width).unwrap_or(i32::MAX);
        let longest = f64::from(width - LEFT - SYMBOL_WIDTH);
        let (mut entries, mut x, mut line) = (Vec::new(), LEFT, 0);
        for (series, look) in figure.series.iter().zip(looks) {
            let name = wrap(&series.name, longest, MAX_LINES);
            let longest = name.iter().map(|line| text_width(line)).fold(0.0, f64::max);
            let length = SYMBOL_WIDTH + longest.ceil() as i32;
            if x > LEFT && (x + length > width || name.len() > 1) {
                (x, line) = (LEFT, line + 1);
            }
            let lines = i32::try_from(name.len()).unwrap_or(i32::MAX);
            let position = (x, line * LINE_HEIGHT + LINE_HEIGHT / 2 + 4);
            entries.push(Entry { name, look: *look, position });
            (x, line) = if lines > 1 { (width, line + lines - 1) } else { (x + length + GAP, line) };
        }
        Self { entries, lines: line + 1 }
    }

    /// Height in pixels.
    pub(super) fn height(&self) -> u32 {
        u32::try_from(self.lines * LINE_HEIGHT + 6).unwrap_or_default()
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), DrawError> {
        for Entry { name, look, position: (x, y) } in &self.entries {
            draw_symbol(area, look, (*x, *y))?;
            for (place, line) in (0..).zip(name) {
                let position = (x + SYMBOL_WIDTH, y - 7 + place * LINE_HEIGHT);
                area.draw(&Text::new(line.as_str(), position, FONT.into_font()))?;
            }
        }
        Ok(())
    }
}

fn draw_symbol(area: &Area<'_>, look: &Style, (x, y): (i32, i32)) -> Result<(), DrawError> {
    let line = look.color.stroke_width(2);
    let filled = if look.origin == Origin::Ours { look.color.filled() } else { line };
    match (look.shape, look.origin) {
        (Shape::Bars, _) => return area.draw(&Rectangle::new([(x + 4, y - 6), (x + 22, y + 6)], filled)),
        (Shape::Line | Shape::Curve, Origin::Ours) => {
            area.draw(&PathElement::new([(x, y), (x + 24, y)], line))?;
        }
        (Shape::Line | Shape::Curve, Origin::Paper) => {
            for from in [x, x + 9, x + 18] {
                area.draw(&PathElement::new([(from, y), (from + 6, y)], line))?;
            }
        }
        (Shape::Points, _) => {}
    }
    if look.shape == Shape::Curve {
        return Ok(());
    }
    area.draw(&Circle::new((x + 12, y), 4, filled))
}
