use super::*;
use crate::{Point, Series, Shape};

/// Widths of DejaVu Sans 2.37 in em, as its table `hmtx` has them.
fn dejavu(character: char) -> f64 {
    match character {
        '0'..='9' => 0.636,
        '.' => 0.3179,
        '-' => 0.361,
        'e' => 0.615,
        other => panic!("{other:?} is in no label of a number"),
    }
}

fn dejavu_width(text: &str) -> f64 {
    text.chars().map(dejavu).sum::<f64>() * EM
}

/// Values that a measurement can produce: tiny, huge, negative, equal, far apart, none, and no numbers.
pub(super) fn ranges() -> Vec<Vec<f64>> {
    let mut ranges: Vec<Vec<f64>> = Vec::new();
    for power in -5..=12 {
        for digits in [1.0, 1.06, 2.37, 4.999, 9.99] {
            let value = digits * 10f64.powi(power);
            ranges.extend([vec![value], vec![-value], vec![value; 3], vec![-value, value], vec![1.0, value]]);
            ranges.push(vec![1e-5, value]);
            ranges.push(vec![value, 1e12]);
        }
    }
    ranges.extend([
        vec![],
        vec![0.0],
        vec![f64::NAN],
        vec![f64::INFINITY, 3.0],
        vec![f64::MAX, f64::MIN, 1.0],
    ]);
    ranges.extend([vec![f64::MIN_POSITIVE, 1.0], vec![1e-29, 1e29], vec![-1e29, 1e-29], vec![-0.0]]);
    ranges
}

fn figure(scale: Scale, values: &[f64]) -> Figure {
    let axis = || Axis { label: "quantity".into(), scale: scale.clone() };
    let points = values.iter().map(|value| Point::between(*value, *value, value * 0.9, value * 1.1));
    // Not by `Series::ours`, which leaves out what is not a number already.
    let series = Series { points: points.collect(), ..Series::ours("s", Shape::Line, []) };
    Figure { title: "t".into(), caption: "c".into(), x: axis(), y: axis(), series: vec![series] }
}

/// A text of a drawing: left, top, right and bottom with DejaVu Sans.
#[derive(Debug)]
struct Placed {
    text: String,
    area: [f64; 4],
}

/// The labels of the axes in a drawing: the texts that are numbers.
fn labels(svg: &str) -> Vec<Placed> {
    let texts = svg.split("<text ").skip(1).filter_map(|element| {
        let (attributes, rest) = element.split_once('>')?;
        let text = rest.split_once("</text>")?.0.trim();
        text.parse::<f64>().ok()?;
        let attribute = |name: &str| {
            let value = attributes.split_once(&format!("{name}=\""))?.1.split_once('"')?.0;
            Some(value.to_owned())
        };
        let [x, y] = ["x", "y"].map(|name| attribute(name).unwrap().parse::<f64>().unwrap());
        let width = dejavu_width(text);
        let left = match attribute("text-anchor").as_deref() {
            Some("middle") => x - width / 2.0,
            Some("end") => x - width,
            _ => x,
        };
        // Plotters moves the base line below `y` by at most an em, depending on the anchor.
        Some(Placed { text: text.into(), area: [left, y - EM, left + width, y + EM] })
    });
    texts.collect()
}

#[test]
fn labels_of_any_numbers_lie_inside_the_figure_and_apart() {
    for values in ranges() {
        for scale in [Scale::Linear, Scale::Log] {
            let figure = figure(scale, &values);
            let svg = super::super::draw(&figure).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}: {svg}");
            let all = labels(&svg);
            assert!((4..=2 * MOST_LABELS).contains(&all.len()), "{values:?}: {all:?}");
            for Placed { text, area: [left, _, right, _] } in &all {
                let inside = *left >= 0.0 && *right <= f64::from(SIZE.0);
                assert!(inside, "{values:?}: {text} from {left} to {right}");
            }
            let bottom = |placed: &Placed| placed.area[3];
            let lowest = all.iter().map(bottom).fold(0.0, f64::max);
            let (across, upwards): (Vec<_>, Vec<_>) = all.iter().partition(|placed| bottom(placed) == lowest);
            assert!(across.len() >= 2 && upwards.len() >= 2, "{values:?}: {all:?}");
            for pair in across.windows(2) {
                assert!(pair[0].area[2] < pair[1].area[0], "{values:?}: {pair:?}");
            }
            // Text that is turned: the description of the axis has an em at the left edge.
            assert!(
                upwards.iter().all(|placed| placed.area[0] > f64::from(MARGIN) + EM),
                "{values:?}: {upwards:?}"
            );
            let texts = |all: &[&Placed]| all.iter().map(|placed| placed.text.clone()).collect::<Vec<_>>();
            for mut texts in [texts(&across), texts(&upwards)] {
                let count = texts.len();
                texts.sort();
                texts.dedup();
                assert_eq!(texts.len(), count, "{values:?}: two labels are equal: {texts:?}");
            }
        }
    }
}

#[test]
fn an_estimated_width_is_never_too_small_for_numbers() {
    for value in ranges().concat() {
        let text = place::axis_number(value);
        if value.is_finite() {
            assert!(text_width(&text) >= dejavu_width(&text), "{text}");
            assert!(text.len() <= 10, "{text}");
        }
    }
}
