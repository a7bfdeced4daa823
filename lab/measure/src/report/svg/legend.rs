//! Legend above a figure. It takes as many lines as it needs.

use super::layout::{MIN_Y_LABEL_AREA, text_width};
use super::{Area, DrawError, FONT, Style};
use crate::report::figure::{Figure, Origin, Shape};
use plotters::prelude::*;

const LINE_HEIGHT: i32 = 22;
const LEFT: i32 = MIN_Y_LABEL_AREA as i32;
/// Width of the symbol in front of a name.
const SYMBOL_WIDTH: i32 = 30;
const GAP: i32 = 22;

/// Names and their positions.
pub(super) struct Legend {
    entries: Vec<Entry>,
    lines: i32,
}

struct Entry {
    name: String,
    look: Style,
    position: (i32, i32),
}

impl Legend {
    /// Lays out the legend of a figure of this width.
    pub(super) fn of(figure: &Figure, looks: &[Style], width: u32) -> Self {
        let width = i32::try_from(width).unwrap_or(i32::MAX);
        let (mut entries, mut x, mut line) = (Vec::new(), LEFT, 0);
        for (series, look) in figure.series.iter().zip(looks) {
            let length = SYMBOL_WIDTH + text_width(&series.name) as i32 + GAP;
            if x > LEFT && x + length > width {
                (x, line) = (LEFT, line + 1);
            }
            entries.push(Entry {
                name: series.name.clone(),
                look: *look,
                position: (x, line * LINE_HEIGHT + LINE_HEIGHT / 2 + 4),
            });
            x += length;
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
            area.draw(&Text::new(name.as_str(), (x + SYMBOL_WIDTH, y - 7), FONT.into_font()))?;
        }
        Ok(())
    }
}

fn draw_symbol(area: &Area<'_>, look: &Style, (x, y): (i32, i32)) -> Result<(), DrawError> {
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
