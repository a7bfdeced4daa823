//! A machine that `casemate` runs on, and what the program advises there.

use casemate_advise::rank::Spot;
use casemate_advise::rules::{Filter, Keying};
use casemate_advise::suites;
use casemate_crypto::EspSuite;
use casemate_stage::{Error, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A machine.
pub(crate) struct Machine {
    pub(crate) name: String,
    /// What runs `casemate` there.
    pub(crate) program: PathBuf,
}

impl Machine {
    /// This one.
    pub(crate) fn own(programs: &Path) -> Self {
        Self { name: "this machine".into(), program: programs.join("casemate") }
    }

    /// The answer of `casemate advise` there, with these arguments besides.
    pub(crate) fn advice(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.program);
        let output = command.args(["advise", "--json"]).args(arguments).output();
        let output = output.map_err(Error::in_front(self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::new(format!("{}: casemate advise: {said}", self.name)));
        }
        serde_json::from_slice(&output.stdout).map_err(Error::in_front(&self.name))
    }
}

/// The ranking of an answer. Of what was measured there the medians are kept.
pub(crate) fn ranking(answer: &Value) -> Result<Vec<Spot>> {
    let wrong = || Error::new("the answer of casemate advise has no ranking");
    let places = answer["ranking"].as_array().filter(|places| !places.is_empty()).ok_or_else(wrong)?;
    places.iter().map(|place| spot(place).ok_or_else(wrong)).collect()
}

fn spot(place: &Value) -> Option<Spot> {
    let suite = named(place["suite"].as_str()?)?;
    let admitted = Filter::new(None, false).ok()?.esp(suite, Keying::Negotiated).ok()?;
    let median = place["number"]["median"].as_f64()?;
    let (cpu, bytes) = (place["cpu_ns_per_byte"].as_f64()?, place["air_bytes_per_byte"].as_f64()?);
    Some(Spot { suite, admitted, scores: vec![median], median, cpu, bytes })
}

fn named(name: &str) -> Option<EspSuite> {
    suites::all().into_iter().find(|suite| suite.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_ranking_is_read_as_it_is_written() {
        let place = |suite: &str| json!({ "suite": suite, "number": { "median": 2.5 }, "cpu_ns_per_byte": 3.0, "air_bytes_per_byte": 1.1 });
        let answer = json!({ "ranking": [place("ENCR_CHACHA20_POLY1305"), place("ENCR_AES_GCM_16-128")] });
        let spots = ranking(&answer).unwrap();
        assert_eq!(spots[1].suite.to_string(), "ENCR_AES_GCM_16-128");
        assert!((spots[0].median - 2.5).abs() < f64::EPSILON);
        assert!(ranking(&json!({ "ranking": [] })).is_err());
        assert!(ranking(&json!({ "ranking": [place("ENCR_DES-64")] })).is_err());
    }
}
