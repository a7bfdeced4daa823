//! Draws the axes with their labels, and the descriptions of the axes and the names of categories in as many
//! lines as they need.

use super::layout::{self, GAP, LINE_HEIGHT, Layout, MARGIN, TICK_LEN};
use super::shapes::Chart;
use super::{Area, DrawError, FONT};
use crate::report::figure::{Figure, Scale};
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// Draws the lines and numbers of both axes.
pub(super) fn draw(chart: &mut Chart<'_, '_>, figure: &Figure, layout: &Layout) -> Result<(), DrawError> {
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
        .x_label_formatter(&across)
        .y_label_formatter(&upwards)
        .draw()
}

/// Draws the descriptions of both axes and the names of categories.
pub(super) fn draw_texts(area: &Area<'_>, chart: &Chart<'_, '_>, layout: &Layout) -> Result<(), DrawError> {
    let (across, upwards) = chart.plotting_area().get_pixel_range();
    let below = upwards.end + 2 * TICK_LEN;
    for (place, lines) in layout.names.iter().enumerate() {
        let x = layout.x.map(&(place as f64), (across.start, across.end));
        draw_lines(area, lines, x, below)?;
    }
    let below = below + layout.tick_lines() * LINE_HEIGHT + GAP as i32;
    draw_lines(area, &layout.x_description, middle(&across), below)?;
    let sideways = FONT.into_font().transform(FontTransform::Rotate270);
    let style = TextStyle::from(sideways).pos(Pos::new(HPos::Center, VPos::Top));
    let mut x = MARGIN as i32;
    for line in &layout.y_description {
        area.draw(&Text::new(line.as_str(), (x, middle(&upwards)), style.clone()))?;
        x += LINE_HEIGHT;
    }
    Ok(())
}

/// Draws centred lines below each other, from `y` on.
fn draw_lines(area: &Area<'_>, lines: &[String], x: i32, mut y: i32) -> Result<(), DrawError> {
    let style = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    for line in lines {
        area.draw(&Text::new(line.as_str(), (x, y), style.clone()))?;
        y += LINE_HEIGHT;
    }
    Ok(())
}

const fn middle(range: &Range<i32>) -> i32 {
    i32::midpoint(range.start, range.end)
}
