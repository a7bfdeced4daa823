//! Building the programs, and reading what they are and what they report.

use super::{Image, Profile, library};
use crate::bare::{self, Target};
use crate::failure::{Failure, Result};
use crate::shell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const PROFILE: &str = "tiny";
const LIMIT: Duration = Duration::from_secs(120);

/// One program on one processor. All numbers are bytes.
pub(crate) struct Footprint {
    pub(crate) target: Target,
    pub(crate) program: &'static str,
    pub(crate) text: usize,
    pub(crate) rodata: usize,
    /// Variables, without stack and heap.
    pub(crate) data: usize,
    /// What the program reported when it ran, by name; empty where it did not run.
    pub(crate) reports: BTreeMap<String, usize>,
}

impl Footprint {
    /// What stands in flash: code and constants.
    pub(crate) fn code(&self) -> usize {
        self.text.saturating_add(self.rodata)
    }

    /// Heap of one more pair of SAs, room in the tables included.
    pub(crate) fn pair(&self) -> usize {
        self.report("heap-three-pairs").div_ceil(3)
    }

    /// Heap of one more IKE SA.
    pub(crate) fn ike_sa(&self) -> usize {
        self.report("heap-second-ike-sa")
    }

    /// A number of the program's; nothing counts as too much, so that a report that is missing fails the check.
    pub(crate) fn report(&self, name: &str) -> usize {
        self.reports.get(name).copied().unwrap_or(usize::MAX)
    }
}

/// Builds and measures these rows for each of the targets.
pub(crate) fn all(targets: &[Target], profiles: &[&Profile]) -> Result<Vec<Footprint>> {
    let mut measured = Vec::new();
    for target in targets {
        let programs = profiles.iter().filter(|profile| matches!(profile.image, Image::Program));
        let mut arguments =
            vec!["--package", "casemate-bare", "--no-default-features", "--features", "image"];
        arguments.extend(programs.flat_map(|profile| ["--bin", profile.program]));
        bare::build(*target, PROFILE, &arguments)?;
        if profiles.iter().any(|profile| matches!(profile.image, Image::Library(_))) {
            library::build(*target, PROFILE)?;
        }
        for profile in profiles {
            measured.push(one(*target, profile)?);
        }
    }
    Ok(measured)
}

fn one(target: Target, profile: &Profile) -> Result<Footprint> {
    let program = profile.program;
    let (image, runs) = match profile.image {
        Image::Program => (bare::directory(target, PROFILE)?.join(program), target.runs()),
        Image::Library(headers) => (library::link(target, PROFILE, program, headers)?, false),
    };
    let sections = sections(&image)?;
    let sum = |names: &[&str]| names.iter().filter_map(|name| sections.get(*name)).sum();
    let reports = match runs {
        true => reports(&bare::boot(target, &image, LIMIT)?)?,
        false => BTreeMap::new(),
    };
    let (text, rodata) = (sum(&[".text"]), sum(&[".rodata", ".ARM.exidx"]));
    Ok(Footprint { target, program, text, rodata, data: sum(&[".data", ".bss"]), reports })
}

/// Sizes of an image's sections, by name.
fn sections(image: &Path) -> Result<BTreeMap<String, usize>> {
    let printed = shell::output(shell::command("size").arg("-A").arg(image))?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    Ok(printed.lines().filter_map(name_and_number).collect())
}

fn name_and_number(line: &str) -> Option<(String, usize)> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    Some((name.into(), words.next()?.parse().ok()?))
}

fn reports(printed: &str) -> Result<BTreeMap<String, usize>> {
    let lines = printed.lines().map(|line| {
        name_and_number(line)
            .ok_or_else(|| Failure::new(format!("`{line}`: a name and a number were expected")))
    });
    lines.collect()
}
