//! Draws figures as SVG, using plotters.
//!
//! Values of the paper are grey with dashed lines and hollow points. Values of this machine have colours that
//! colour-blind readers can distinguish. The legend is above the plot, where it covers no value.

mod axes;
mod axis_range;
mod bar_table;
mod layout;
mod outliers;
mod shapes;
mod text;

use crate::report::figure::{Figure, Origin, Shape};
use layout::{Layout, MARGIN};
use plotters::coord::Shift;
use plotters::prelude::*;
use shapes::Legend;

pub(crate) use axis_range::number;
pub use bar_table::draw_bar_table;

/// Width of a figure in pixels.
const WIDTH: u32 = 760;
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
    let figure = &*outliers::spread_out(figure);
    let (looks, layout) = (styles(figure), Layout::new(figure));
    let legend = Legend::of(figure, &looks, WIDTH);
    let mut text = String::new();
    {
        let size = (WIDTH, layout.height() + legend.height());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw_on(&root, figure, &looks, &legend, &layout).map_err(|error| error.to_string())?;
    }
    Ok(text)
}

/// Sentences about the drawing that belong into the caption, each with a space before it: which whiskers are
/// clipped, and whether an axis is logarithmic because of outliers.
pub(crate) fn notes(figure: &Figure) -> String {
    outliers::notes(figure)
}

fn draw_on(
    root: &Area<'_>,
    figure: &Figure,
    looks: &[Style],
    legend: &Legend,
    layout: &Layout,
) -> Result<(), DrawError> {
    root.fill(&WHITE)?;
    let (top, plot) = root.split_vertically(legend.height());
    legend.draw(&top)?;
    let mut chart = ChartBuilder::on(&plot)
        .margin(MARGIN)
        .margin_right(layout.right_margin)
        .x_label_area_size(layout.x_label_area())
        .y_label_area_size(layout.y_label_area)
        .build_cartesian_2d(layout.x.clone(), layout.y.clone())?;
    axes::draw(&mut chart, figure, layout)?;
    shapes::draw(&mut chart, figure, looks)?;
    axes::draw_texts(root, &chart, layout)?;
    root.present()
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
    use crate::report::figure::Scale;
    use crate::report::{Axis, Figure, Point, Series};
    use casemate_test_support::TestRng;

    fn figure(x: Axis, y: Axis, series: Vec<Series>) -> Figure {
        Figure { title: "A <title>".into(), caption: "c".into(), x, y, series }
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    /// Every shape, of the paper and of this machine.
    fn every_kind() -> Vec<Series> {
        let shapes = [
            ("line", Shape::Line),
            ("curve", Shape::Curve),
            ("points", Shape::Points),
            ("bars", Shape::Bars),
        ];
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
            // Curves have none.
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
            Legend::of(&figure, &styles(&figure), WIDTH).height()
        };
        assert!(height(6) > height(2));
    }

    /// A text with its left, top, right and bottom edge in DejaVu Sans.
    #[derive(Debug)]
    pub(super) struct PlacedText {
        pub(super) text: String,
        pub(super) area: [f64; 4],
    }

    /// All texts of a drawing.
    pub(super) fn placed_texts(svg: &str) -> Vec<PlacedText> {
        let texts = svg.split("<text ").skip(1).map(|element| {
            let (attributes, rest) = element.split_once('>').unwrap();
            let text = rest.split_once("</text>").unwrap().0.trim();
            let attribute = |name: &str| {
                let (_, value) = attributes.split_once(&format!(" {name}=\"")).unwrap_or(("", "\""));
                value.split_once('"').unwrap().0
            };
            let attributes = format!(" {attributes}");
            let x = attributes.split(" x=\"").nth(1).unwrap().split('"').next().unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), attribute("y").parse().unwrap());
            let width = text::tests::dejavu_width(&text.replace("&amp;", "&"));
            let left = match attribute("text-anchor") {
                "middle" => -width / 2.0,
                "end" => -width,
                _ => 0.0,
            };
            let top = match attribute("dy") {
                "0.76em" => 0.0,
                "0.5ex" => -text::EM / 2.0,
                _ => -text::EM,
            };
            let (right, bottom) = (left + width, top + text::EM);
            let area = match attribute("transform").is_empty() {
                true => [x + left, y + top, x + right, y + bottom],
                // Rotated by 270 degrees: the beginning is below, the top is left.
                false => [x + top, y - right, x + bottom, y - left],
            };
            PlacedText { text: text.into(), area }
        });
        texts.collect()
    }

    /// One to `most` words of up to 14 letters.
    fn words(rng: &mut TestRng, most: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzMW%0123456789,()&";
        let word = |rng: &mut TestRng| -> String {
            (0..=rng.below(14)).map(|_| char::from(LETTERS[rng.below(LETTERS.len())])).collect()
        };
        (0..=rng.below(most)).map(|_| word(rng)).collect::<Vec<_>>().join(" ")
    }

    fn random_axis(rng: &mut TestRng, may_have_names: bool) -> Axis {
        let label = words(rng, 14);
        match rng.below(if may_have_names { 3 } else { 2 }) {
            0 => Axis::linear(label),
            1 => Axis::log(label),
            _ => Axis::names(label, (0..=rng.below(11)).map(|_| words(rng, 4)).collect::<Vec<_>>()),
        }
    }

    fn random_figure(rng: &mut TestRng) -> Figure {
        let value = |rng: &mut TestRng| {
            let digits = rng.below(100_000) as f64 / 10_000.0;
            let sign = if rng.below(5) == 0 { -1.0 } else { 1.0 };
            sign * digits * 10f64.powi(rng.below(18) as i32 - 6)
        };
        let (x, y) = (random_axis(rng, true), random_axis(rng, false));
        let series = (0..=rng.below(6)).map(|_| {
            let points = (0..rng.below(9)).map(|place| {
                let across = if matches!(x.scale, Scale::Names(_)) { place as f64 } else { value(rng) };
                let (one, other) = (value(rng), value(rng));
                Point::with_range(across, value(rng), one.min(other), one.max(other))
            });
            let points: Vec<Point> = points.collect();
            Series::ours(
                words(rng, 12),
                [Shape::Line, Shape::Curve, Shape::Points, Shape::Bars][rng.below(4)],
                points,
            )
        });
        let series: Vec<Series> = series.collect();
        figure(x, y, series)
    }

    #[test]
    fn texts_stay_inside_the_figure_whatever_the_numbers_and_names() {
        let mut rng = TestRng::new(72);
        for _ in 0..2_000 {
            let figure = random_figure(&mut rng);
            let svg = draw(&figure).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{figure:?}: {svg}");
            let (_, size) = svg.split_once("viewBox=\"0 0 ").unwrap();
            let size: Vec<f64> =
                size.split('"').next().unwrap().split(' ').map(|edge| edge.parse().unwrap()).collect();
            for PlacedText { text, area: [left, top, right, bottom] } in placed_texts(&svg) {
                let inside = left >= 0.0 && top >= 0.0 && right <= size[0] && bottom <= size[1];
                assert!(inside, "{text}: {left} {top} {right} {bottom} of {size:?}: {figure:#?}");
            }
        }
    }
}
