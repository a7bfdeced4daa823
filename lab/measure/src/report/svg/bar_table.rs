//! Draws a table of bars: names of the subjects at the left, a column of horizontal bars for each measure
//! with the value beside each bar, and the caption below.

use super::layout::{LINE_HEIGHT, MARGIN};
use super::text::{text_width, wrap};
use super::{Area, DrawError, FONT, OUR_COLORS, PAPER_COLORS, WIDTH};
use crate::report::bar_table::{BarColumn, BarRole, BarTable};
use crate::stats::Spread;
use plotters::prelude::*;

/// Pixels from one row to the next, and height of a bar.
const ROW_HEIGHT: i32 = 30;
const BAR_HEIGHT: i32 = 18;
/// Half of the height of the caps at the ends of a whisker.
const CAP: i32 = 4;
/// Pixels between two columns, and between a bar and its value.
const COLUMN_GAP: i32 = 18;
const VALUE_GAP: i32 = 6;
/// Most pixels of a name, and most lines of a name, a title and the caption.
const NAME_WIDTH: f64 = 200.0;
const NAME_LINES: usize = 1;
const TITLE_LINES: usize = 2;
const CAPTION_LINES: usize = 6;
/// Stands in place of a bar.
const NOT_MEASURED: &str = "not measured";
const GREY: RGBColor = RGBColor(90, 90, 90);

/// Draws a table of bars and returns an element `svg`. The error is the message of plotters.
pub fn draw_bar_table(table: &BarTable) -> Result<String, String> {
    let layout = Layout::new(table);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, layout.height())).into_drawing_area();
        draw_on(&root, table, &layout).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

/// Positions of the texts and bars.
struct Layout {
    names: Vec<String>,
    /// Lines of the title and of the note of each column.
    titles: Vec<Vec<String>>,
    caption: Vec<String>,
    /// Left edge of the first column, and the distance from one column to the next.
    left: i32,
    step: i32,
    /// Upper edge of the first row.
    top: i32,
}

impl Layout {
    fn new(table: &BarTable) -> Self {
        let names = table.subjects.iter().map(|subject| wrap(&subject.name, NAME_WIDTH, NAME_LINES).concat());
        let names: Vec<String> = names.collect();
        let widest = names.iter().map(|name| text_width(name)).fold(0.0, f64::max).ceil() as i32;
        let left = MARGIN as i32 + widest + COLUMN_GAP / 2;
        let step = (WIDTH as i32 - MARGIN as i32 - left) / table.columns.len().max(1) as i32;
        let width = f64::from(step - COLUMN_GAP / 2);
        let titles = table.columns.iter().map(|column| {
            let note = wrap(&column.note, width, 1);
            [wrap(&column.title, width, TITLE_LINES), note].concat()
        });
        let titles: Vec<Vec<String>> = titles.collect();
        let lines = titles.iter().map(Vec::len).max().unwrap_or_default() as i32;
        let caption = wrap(&table.caption, f64::from(WIDTH - 2 * MARGIN), CAPTION_LINES);
        Self { names, titles, caption, left, step, top: MARGIN as i32 + lines * LINE_HEIGHT + VALUE_GAP }
    }

    /// Left edge of a column.
    fn column(&self, place: usize) -> i32 {
        self.left + place as i32 * self.step
    }

    /// Middle of a row.
    fn row(&self, place: usize) -> i32 {
        self.top + place as i32 * ROW_HEIGHT + ROW_HEIGHT / 2
    }

    /// Lower edge of the last row.
    fn bottom(&self) -> i32 {
        self.top + self.names.len() as i32 * ROW_HEIGHT
    }

    fn height(&self) -> u32 {
        let caption = self.caption.len() as i32 * LINE_HEIGHT;
        (self.bottom() + 2 * MARGIN as i32 + caption).unsigned_abs()
    }
}

fn draw_on(root: &Area<'_>, table: &BarTable, layout: &Layout) -> Result<(), DrawError> {
    root.fill(&WHITE)?;
    for (place, name) in layout.names.iter().enumerate() {
        draw_text(root, name, (MARGIN as i32, middle(layout.row(place))), BLACK)?;
    }
    for (place, (column, title)) in table.columns.iter().zip(&layout.titles).enumerate() {
        let left = layout.column(place);
        draw_lines(root, title, (left, MARGIN as i32), BLACK)?;
        draw_column(root, table, column, layout, left)?;
        let axis = [(left, layout.top), (left, layout.bottom())];
        root.draw(&PathElement::new(axis, RGBColor(120, 120, 120)))?;
    }
    draw_lines(root, &layout.caption, (MARGIN as i32, layout.bottom() + MARGIN as i32), GREY)?;
    root.present()
}

fn draw_column(
    root: &Area<'_>,
    table: &BarTable,
    column: &BarColumn,
    layout: &Layout,
    left: i32,
) -> Result<(), DrawError> {
    let texts = column.values.iter().map(|value| value.map(|spread| column.text(spread.median)));
    let texts: Vec<Option<String>> = texts.collect();
    let widest = texts.iter().flatten().map(|text| text_width(text)).fold(0.0, f64::max).ceil() as i32;
    let length = (layout.step - COLUMN_GAP - VALUE_GAP - widest).max(1);
    let pixels = |value: f64| left + (f64::from(length) * value / column.largest()).round() as i32;
    for (place, (subject, (value, text))) in
        table.subjects.iter().zip(column.values.iter().zip(&texts)).enumerate()
    {
        let y = layout.row(place);
        let (Some(spread), Some(text)) = (value, text) else {
            draw_text(root, NOT_MEASURED, (left + VALUE_GAP, middle(y)), GREY)?;
            continue;
        };
        draw_bar(root, subject.role, (left, pixels(spread.median)), y)?;
        let end = draw_whisker(root, spread, pixels, y)?.max(pixels(spread.median));
        draw_text(root, text, (end + VALUE_GAP, middle(y)), BLACK)?;
    }
    Ok(())
}

fn draw_bar(root: &Area<'_>, role: BarRole, (from, to): (i32, i32), y: i32) -> Result<(), DrawError> {
    let style = match role {
        BarRole::Own => OUR_COLORS[0].filled(),
        BarRole::Other => PAPER_COLORS[1].filled(),
        BarRole::Reference => PAPER_COLORS[1].stroke_width(2),
    };
    root.draw(&Rectangle::new([(from, y - BAR_HEIGHT / 2), (to, y + BAR_HEIGHT / 2)], style))
}

/// Draws a line from the minimum to the maximum, if they differ. Returns its right end.
fn draw_whisker(
    root: &Area<'_>,
    spread: &Spread,
    pixels: impl Fn(f64) -> i32,
    y: i32,
) -> Result<i32, DrawError> {
    let (from, to) = (pixels(spread.min), pixels(spread.max));
    if from < to {
        root.draw(&PathElement::new([(from, y), (to, y)], BLACK))?;
        for x in [from, to] {
            root.draw(&PathElement::new([(x, y - CAP), (x, y + CAP)], BLACK))?;
        }
    }
    Ok(to)
}

/// Upper edge of a line of text whose middle is `y`. The letters take the upper part of the line.
const fn middle(y: i32) -> i32 {
    y - LINE_HEIGHT / 2 + 2
}

/// Draws lines below each other, from the upper left corner on.
fn draw_lines(
    root: &Area<'_>,
    lines: &[String],
    (x, y): (i32, i32),
    color: RGBColor,
) -> Result<(), DrawError> {
    let places = (0..).map(|line| y + line * LINE_HEIGHT);
    lines.iter().zip(places).try_for_each(|(line, y)| draw_text(root, line, (x, y), color))
}

fn draw_text(root: &Area<'_>, text: &str, position: (i32, i32), color: RGBColor) -> Result<(), DrawError> {
    root.draw(&Text::new(text, position, FONT.into_font().color(&color)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::bar_table::BarSubject;
    use crate::report::svg::tests::placed_texts;

    fn spread(median: f64, min: f64, max: f64) -> Option<Spread> {
        Some(Spread { median, min, max, interval: None })
    }

    fn table() -> BarTable {
        let subject = |name: &str, role| BarSubject { name: name.into(), role };
        let column = |title: &str, digits, values| BarColumn {
            title: title.into(),
            note: "more is better".into(),
            digits,
            values,
        };
        BarTable {
            subjects: vec![
                subject("Casemate, ESP in UDP", BarRole::Own),
                subject("other <&>", BarRole::Other),
                subject("forwarder", BarRole::Reference),
            ],
            columns: vec![
                column("TCP stream, Gbit/s", 2, vec![spread(5.44, 5.1, 5.6), spread(2.62, 2.6, 2.7), None]),
                column(
                    "small packets/s",
                    0,
                    vec![spread(241_000.0, 2.2e5, 2.5e5), None, spread(3.4e5, 3.4e5, 3.4e5)],
                ),
                column("idle round trip, µs", 0, vec![spread(228.0, 220.0, 900.0); 3]),
            ],
            caption: "Median of five rounds, with a line from the minimum to the maximum. ".repeat(3),
        }
    }

    /// Fails unless all elements are closed in order and no character is left unescaped.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for piece in svg.split('<').skip(1) {
            let (tag, text) = piece.split_once('>').unwrap();
            assert!(!text.contains('>') && tag.matches('"').count() % 2 == 0, "{piece}");
            let entities = text.split('&').skip(1);
            entities.for_each(|rest| {
                assert!(["lt;", "gt;", "amp;"].iter().any(|known| rest.starts_with(known)), "{text}")
            });
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split_whitespace().next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn all_names_values_and_the_caption_are_drawn() {
        let svg = draw_bar_table(&table()).unwrap();
        assert_well_formed(&svg);
        assert_eq!(svg, draw_bar_table(&table()).unwrap(), "the same results have the same drawing");
        let texts: Vec<String> = placed_texts(&svg).into_iter().map(|placed| placed.text).collect();
        let values = ["5.44", "2.62", "241,000", "340,000", "228", "not measured", "more is better"];
        let names = ["Casemate, ESP in UDP", "other &lt;&amp;&gt;", "forwarder", "TCP stream, Gbit/s"];
        for text in values.iter().chain(&names) {
            assert!(texts.iter().any(|drawn| drawn == text), "no {text} in {texts:?}");
        }
        assert!(texts.iter().any(|text| text.starts_with("Median of five rounds")), "{texts:?}");
        // Seven bars on a white background.
        assert_eq!(svg.matches("<rect").count(), 7 + 1, "{svg}");
        assert!(svg.contains("#FFFFFF") && svg.contains("#0072B2"), "{svg}");
    }

    #[test]
    fn texts_stay_inside_and_do_not_overlap() {
        let mut long = table();
        long.subjects[0].name = "a name that does not fit into the column of the names".into();
        long.columns[1].title = "a title that is longer than its column and takes several lines".into();
        long.columns[1].values[0] = spread(123_456_789.0, 1.0, 123_456_789.0);
        for table in [table(), long] {
            let svg = draw_bar_table(&table).unwrap();
            let height: f64 =
                svg.split(" height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            let texts = placed_texts(&svg);
            for placed in &texts {
                let [left, top, right, bottom] = placed.area;
                let is_inside = left >= 0.0 && top >= 0.0 && right <= f64::from(WIDTH) && bottom <= height;
                assert!(is_inside, "{placed:?} is not within {WIDTH} x {height}");
            }
            for (place, one) in texts.iter().enumerate() {
                for other in &texts[place + 1..] {
                    let is_apart = [0, 1].iter().any(|&axis| {
                        one.area[axis] >= other.area[axis + 2] || other.area[axis] >= one.area[axis + 2]
                    });
                    assert!(is_apart, "{one:?} overlaps {other:?}");
                }
            }
        }
    }
}
