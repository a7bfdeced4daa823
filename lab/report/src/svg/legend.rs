//! The legend above a figure: as many lines as it needs.

use super::layout::{LEAST_BESIDE, text_width};
use super::{Area, FONT, Failed, Look};
use crate::figure::{Figure, Origin, Shape};
use plotters::prelude::*;

const LINE: i32 = 22;
const LEFT: i32 = LEAST_BESIDE as i32;
/// Of the sign in front of a name.
const SIGN: i32 = 30;
const GAP: i32 = 22;

/// Names with their places.
pub(super) struct Legend {
    entries: Vec<Entry>,
    lines: i32,
}

struct Entry {
    name: String,
    look: Look,
    at: (i32, i32),
}

impl Legend {
    /// Of a figure that is so wide.
    pub(super) fn of(figure: &Figure, looks: &[Look], width: u32) -> Self {
        let width = i32::try_from(width).unwrap_or(i32::MAX);
        let (mut entries, mut x, mut line) = (Vec::new(), LEFT, 0);
        for (series, look) in figure.series.iter().zip(looks) {
            let length = SIGN + text_width(&series.name) as i32 + GAP;
            if x > LEFT && x + length > width {
                (x, line) = (LEFT, line + 1);
            }
            entries.push(Entry {
                name: series.name.clone(),
                look: *look,
                at: (x, line * LINE + LINE / 2 + 4),
            });
            x += length;
        }
        Self { entries, lines: line + 1 }
    }

    /// In pixels.
    pub(super) fn height(&self) -> u32 {
        u32::try_from(self.lines * LINE + 6).unwrap_or_default()
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Result<(), Failed> {
        for Entry { name, look, at: (x, y) } in &self.entries {
            draw_sign(area, look, (*x, *y))?;
            area.draw(&Text::new(name.as_str(), (x + SIGN, y - 7), FONT.into_font()))?;
        }
        Ok(())
    }
}

fn draw_sign(area: &Area<'_>, look: &Look, (x, y): (i32, i32)) -> Result<(), Failed> {
    let line = look.color.stroke_width(2);
    let filled = if look.origin == Origin::Ours { look.color.filled() } else { line };
    match (look.shape, look.origin) {
        (Shape::Bars, _) => return area.draw(&Rectangle::new([(x + 4, y - 6), (x + 22, y + 6)], filled)),
        (Shape::Line, Origin::Ours) => area.draw(&PathElement::new([(x, y), (x + 24, y)], line))?,
        (Shape::Line, Origin::Paper) => {
            for from in [x, x + 9, x + 18] {
                area.draw(&PathElement::new([(from, y), (from + 6, y)], line))?;
            }
        }
        (Shape::Points, _) => {}
    }
    area.draw(&Circle::new((x + 12, y), 4, filled))
}
