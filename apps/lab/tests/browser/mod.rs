//! Checks a result page in a browser: every figure is present and its texts are legible.
//!
//! The page has no script. The check adds one to a copy of the page; the script measures the figures and
//! writes the result into the page, and Chromium dumps it.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program; the Debian package has the same name.
const BROWSER: &str = "chromium";
/// Window widths: a screen, and the minimum of Chromium.
const WIDTHS: [u32; 2] = [1_000, 500];
/// Minimum font size in CSS pixels.
const MIN_FONT_SIZE: f64 = 9.0;
/// Tolerance for overlapping or protruding text boxes, which are as high as the highest letter of the
/// font and rounded.
const TOLERANCE: f64 = 1.5;
/// Timeout in seconds, and number of attempts. A page usually takes a few seconds; occasionally a browser
/// hangs at start. A browser that fails every time counts as missing.
const SECONDS: &str = "40";
const TRIES: u32 = 3;

/// Measures all figures of a page. Boxes are left, top, right and bottom, in CSS pixels of the window.
const SCRIPT: &str = r#"<script>
const box = element => {
  const { left, top, right, bottom } = element.getBoundingClientRect();
  return [left, top, right, bottom];
};
const text = (element, scale) => ({
  text: element.textContent.trim(),
  fontSize: parseFloat(getComputedStyle(element).fontSize) * scale,
  box: box(element),
});
const figure = element => {
  const svg = element.querySelector("svg");
  const scale = svg ? svg.getScreenCTM().a : 1;
  return {
    title: element.querySelector("figcaption strong").textContent,
    box: svg ? box(svg) : null,
    shapes: svg ? svg.querySelectorAll("path, polyline, line, rect, circle").length : 0,
    texts: svg ? [...svg.querySelectorAll("text")].map(element => text(element, scale)) : [],
  };
};
const seen = JSON.stringify({
  window: innerWidth,
  page: document.documentElement.scrollWidth,
  figures: [...document.querySelectorAll("figure")].map(figure),
});
const report = document.createElement("pre");
report.id = "seen";
report.textContent = encodeURIComponent(seen);
document.body.append(report);
</script>
"#;

/// Checks that a page has this number of figures and that all are legible, in a wide and in a narrow
/// window. Without a browser, the check is noted as skipped.
pub(crate) fn demand_legible(page: &Path, figures: usize) {
    for width in WIDTHS {
        match look(page, width) {
            Ok(seen) => {
                assert_eq!(seen["figures"].as_array().unwrap().len(), figures, "{}", page.display());
                let faults = faults(&seen);
                assert!(faults.is_empty(), "in a window of {width} pixels:\n{}", faults.join("\n"));
            }
            Err(why) => {
                casemate_test_support::skip(why);
                return;
            }
        }
    }
}

/// The measurements in a window of this width. The error says that there is no working browser.
pub(crate) fn look(page: &Path, width: u32) -> Result<Value, String> {
    let copy = page.with_extension("copy.html");
    let html = fs::read_to_string(page).unwrap();
    fs::write(&copy, html.replace("</body>", &format!("{SCRIPT}</body>"))).unwrap();
    let open = |attempt| {
        // Each attempt has its own profile, because a browser that is still ending locks its profile.
        let profile = page.with_extension(format!("profile-{width}-{attempt}"));
        open(&copy, &profile, width)
    };
    let mut ended = String::new();
    for attempt in 0..TRIES {
        let output = open(attempt)?;
        let dom = String::from_utf8_lossy(&output.stdout);
        let seen = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        if let Some((seen, _)) = seen {
            let seen: Value = serde_json::from_str(&decoded(seen)).unwrap();
            assert_eq!(seen["window"], width, "{BROWSER} makes windows of another width");
            return Ok(seen);
        }
        ended = output.status.to_string();
    }
    Err(format!("{BROWSER} showed nothing in {TRIES} tries ({ended}): figures are not checked"))
}

fn open(page: &Path, profile: &Path, width: u32) -> Result<Output, String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS, BROWSER, "--headless", "--no-sandbox", "--disable-gpu"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--window-size={width},1000")).arg("--dump-dom");
    command.arg(format!("file://{}", page.display())).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("timeout (Debian package coreutils): {error}"))?;
    // Exit status of `timeout` if there is no such program.
    if output.status.code() == Some(127) {
        return Err(format!("no program {BROWSER} (Debian package {BROWSER}): figures are not checked"));
    }
    Ok(output)
}

/// Decodes the output of JavaScript's `encodeURIComponent`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (code, after) = after.split_at(2);
            bytes.push(u8::from_str_radix(std::str::from_utf8(code).unwrap(), 16).unwrap());
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The faults of a page, one per line.
pub(crate) fn faults(seen: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if seen["page"].as_f64() > seen["window"].as_f64() {
        faults.push(format!("the page is {} pixels wide", seen["page"]));
    }
    for figure in seen["figures"].as_array().unwrap() {
        let title = figure["title"].as_str().unwrap();
        faults.extend(of_figure(figure).into_iter().map(|fault| format!("{title}: {fault}")));
    }
    faults
}

struct Text<'s> {
    text: &'s str,
    /// Font size in CSS pixels of the window.
    font_size: f64,
    area: Area,
}

fn of_figure(figure: &Value) -> Vec<String> {
    let Some(area) = Area::of(&figure["box"]) else { return vec!["there is no drawing".into()] };
    if area.width() <= 0.0 || area.height() <= 0.0 {
        return vec![format!("it has no size: {area:?}")];
    }
    let all = figure["texts"].as_array().unwrap();
    let texts: Vec<Text<'_>> = all
        .iter()
        .map(|value| Text {
            text: value["text"].as_str().unwrap(),
            font_size: value["fontSize"].as_f64().unwrap(),
            area: Area::of(&value["box"]).unwrap(),
        })
        .collect();
    let mut faults = Vec::new();
    if texts.is_empty() || figure["shapes"] == 0 {
        faults.push("nothing is drawn".into());
    }
    for (number, Text { text, font_size, area: text_area }) in texts.iter().enumerate() {
        if *font_size < MIN_FONT_SIZE {
            faults.push(format!("{text:?} has a font size of {font_size} pixels"));
        }
        if text_area.width() <= 0.0 || text_area.height() <= 0.0 {
            faults.push(format!("{text:?} is invisible"));
        }
        if !area.contains(text_area) {
            faults.push(format!("{text:?} sticks out: {text_area:?} of {area:?}"));
        }
        let over = texts.iter().skip(number + 1).filter(|other| text_area.overlaps(&other.area));
        faults.extend(over.map(|other| format!("{text:?} lies over {:?}", other.text)));
    }
    faults
}

/// Left, top, right and bottom.
#[derive(Debug)]
struct Area([f64; 4]);

impl Area {
    fn of(value: &Value) -> Option<Self> {
        let numbers: Option<Vec<f64>> = value.as_array()?.iter().map(Value::as_f64).collect();
        Some(Self(numbers?.try_into().unwrap()))
    }

    fn width(&self) -> f64 {
        self.0[2] - self.0[0]
    }

    fn height(&self) -> f64 {
        self.0[3] - self.0[1]
    }

    fn contains(&self, other: &Self) -> bool {
        let ([left, top, right, bottom], [from, above, to, below]) = (self.0, other.0);
        from >= left - TOLERANCE
            && above >= top - TOLERANCE
            && to <= right + TOLERANCE
            && below <= bottom + TOLERANCE
    }

    fn overlaps(&self, other: &Self) -> bool {
        let ([left, top, right, bottom], [from, above, to, below]) = (self.0, other.0);
        right.min(to) - left.max(from) > TOLERANCE && bottom.min(below) - top.max(above) > TOLERANCE
    }
}
