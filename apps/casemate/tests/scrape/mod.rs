//! A client of the metrics, and programs of others that check the pages.

use casemate_test_support::{Program, skip};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The version that the test knows.
const PACKAGE: &str = "prometheus_client==0.21.1";

/// Sends a request and returns the whole response.
pub(crate) fn request(path: &Path, text: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The server may refuse a long request before it has read all of it.
    let _ = stream.write_all(text.as_bytes());
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

/// The page over a Unix socket.
pub(crate) fn get(path: &Path, accept: &str) -> String {
    body(&request(path, &get_request(accept)))
}

/// The page over TCP.
pub(crate) fn get_over_tcp(address: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(get_request(accept).as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    body(&response)
}

fn get_request(accept: &str) -> String {
    format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n")
}

/// The body of a response in chunks, which must be complete.
fn body(response: &str) -> String {
    let (head, mut rest) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nTransfer-Encoding: chunked"), "{head}");
    let mut body = String::new();
    loop {
        let (len, after) = rest.split_once("\r\n").unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        body.push_str(&after[..len]);
        rest = after[len..].strip_prefix("\r\n").unwrap();
        if len == 0 {
            assert_eq!(rest, "");
            return body;
        }
    }
}

/// The samples of a page.
pub(crate) struct Page(HashMap<String, f64>);

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        Self(samples.map(sample).collect())
    }

    /// The value of a series, which must be a whole number.
    pub(crate) fn get(&self, series: &str) -> Option<u64> {
        let value = self.number(series)?;
        assert!(value.fract() == 0.0 && value >= 0.0, "{series} {value}");
        Some(value as u64)
    }

    pub(crate) fn number(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    pub(crate) fn series(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The program promtool: installed, or where `cargo xtask test` unpacks it.
pub(crate) fn promtool() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../promtool/usr/bin/promtool");
    if unpacked.exists() { unpacked } else { "promtool".into() }
}

/// `promtool check metrics` must print nothing.
pub(crate) fn check_with_promtool(text: &str) {
    let mut command = Command::new(promtool());
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return skip(format!("promtool (Debian package prometheus): {error}")),
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.is_empty(), "{printed}");
}

/// Parses both pages and compares the numbers of their samples.
const SCRIPT: &str = r#"
import sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
def samples(families):
    return {(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples}
text = samples(parser.text_string_to_metric_families(open(sys.argv[1]).read()))
open_metrics = samples(openmetrics.text_string_to_metric_families(open(sys.argv[2]).read()))
assert text == open_metrics, text ^ open_metrics
assert any(("connection", "home") in labels for _, labels in text), text
print("all done", len(text))
"#;

/// The parser of the Prometheus project's package for Python must accept both pages.
pub(crate) fn check_with_python(scratch: &Path, text: &str, open_metrics: &str) {
    let directory = scratch.display();
    let install =
        format!("python3 -m venv {directory}/venv && {directory}/venv/bin/pip install --quiet {PACKAGE}");
    let installed = Command::new("sh").arg("-c").arg(&install).output().unwrap();
    if !installed.status.success() {
        let why = String::from_utf8_lossy(&installed.stderr).into_owned();
        return skip(format!("the Python package {PACKAGE}: {why}"));
    }
    let files = ["text", "openmetrics"].map(|name| scratch.join(name));
    fs::write(&files[0], text).unwrap();
    fs::write(&files[1], open_metrics).unwrap();
    let python = Program::new(scratch.join("venv/bin/python")).arg("-c").arg(SCRIPT).args(files);
    let output = python.output();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.contains("all done"), "{printed}");
}
