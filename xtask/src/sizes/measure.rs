//! Builds the images, and measures their sections and their reports.
//!
//! The image of the C library for lwIP consists of the functions that some of its headers declare, and of
//! the code that they need: the linker treats these functions as called and drops all others. The C
//! program, lwIP and the files of `adapters/lwip/c` are not included, and the image is not run.

use super::{Image, Profile};
use crate::bare::{self, Target};
use crate::shell::{self, Failure, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PROFILE: &str = "tiny";
const LIMIT: Duration = Duration::from_secs(120);

/// One program on one processor. All numbers are in bytes.
pub(crate) struct Footprint {
    pub(crate) target: Target,
    pub(crate) program: &'static str,
    pub(crate) text: usize,
    pub(crate) rodata: usize,
    /// Static variables, without stack and heap.
    pub(crate) data: usize,
    /// Numbers that the program reported when it ran, by name; empty if it did not run.
    pub(crate) reports: BTreeMap<String, usize>,
}

impl Footprint {
    /// Flash usage: code and constants.
    pub(crate) fn code(&self) -> usize {
        self.text.saturating_add(self.rodata)
    }

    /// Heap of an additional pair of SAs, including its share of the tables.
    pub(crate) fn pair(&self) -> usize {
        self.report("heap-three-pairs").div_ceil(3)
    }

    /// Heap of an additional IKE SA.
    pub(crate) fn ike_sa(&self) -> usize {
        self.report("heap-second-ike-sa")
    }

    /// Maximum depth of the stack.
    pub(crate) fn stack(&self) -> usize {
        self.report("stack")
    }

    /// Reported number. A missing report returns the largest number, so that the check fails.
    fn report(&self, name: &str) -> usize {
        self.reports.get(name).copied().unwrap_or(usize::MAX)
    }
}

/// Builds and measures the profiles for all targets.
pub(crate) fn all(targets: &[Target], profiles: &[&Profile]) -> Result<Vec<Footprint>> {
    let mut measured = Vec::new();
    for target in targets {
        build_programs(*target, profiles)?;
        for profile in profiles {
            measured.push(one(*target, profile)?);
        }
    }
    Ok(measured)
}

/// Builds the programs of verify/bare, those with the same features at once.
fn build_programs(target: Target, profiles: &[&Profile]) -> Result {
    let mut by_features = BTreeMap::<_, Vec<_>>::new();
    for profile in profiles {
        if let Image::Program(features) = profile.image {
            by_features.entry(features).or_default().extend(["--bin", profile.program]);
        }
    }
    for (features, programs) in by_features {
        let package = ["--package", "casemate-bare", "--no-default-features", "--features", features];
        bare::build(target, PROFILE, &[&package[..], &programs].concat())?;
    }
    Ok(())
}

fn one(target: Target, profile: &Profile) -> Result<Footprint> {
    let program = profile.program;
    let (image, runs) = match profile.image {
        Image::Program(_) => (bare::directory(target, PROFILE)?.join(program), target.runs()),
        Image::Library { headers, features } => {
            build_library(target, PROFILE, features)?;
            (link_library(target, PROFILE, program, headers)?, false)
        }
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

/// Section sizes of an image, by name.
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
            .ok_or_else(|| Failure::new(format!("unexpected output `{line}`; expected a name and a number")))
    });
    lines.collect()
}

/// Build arguments of the C library.
const LIBRARY_BUILD: [&str; 6] =
    ["--package", "casemate-lwip", "--lib", "--crate-type", "staticlib", "--features"];
const HEADERS: &str = "adapters/lwip/include";
/// Function that the application provides and the library calls.
const OF_THE_APPLICATION: &str = "casemate_panic";

/// Builds the library for a target with these features.
fn build_library(target: Target, profile: &str, features: &str) -> Result {
    bare::run_cargo("rustc", target, profile, &[&LIBRARY_BUILD[..], &[features]].concat())
}

/// Links the library into an image of this name, with every function of these headers.
fn link_library(target: Target, profile: &str, name: &str, headers: &[&str]) -> Result<PathBuf> {
    let directory = bare::directory(target, profile)?;
    let image = directory.join(name);
    let mut command = shell::command(bare::linker()?);
    command.args(["-flavor", "gnu", "--gc-sections", "--icf=all", "--entry=0", "--defsym"]);
    command.arg(format!("{OF_THE_APPLICATION}=0"));
    for header in headers {
        let text = fs::read_to_string(shell::root().join(HEADERS).join(header))?;
        let called = functions(&text);
        if called.is_empty() {
            return Err(Failure::new(format!("{header} declares no function")));
        }
        command.args(called.iter().map(|function| format!("--undefined={function}")));
    }
    shell::run(command.arg("-o").arg(&image).arg(directory.join("libcasemate_lwip.a")))?;
    Ok(image)
}

/// Functions that a header declares, except for the one that the application provides. A declaration may have
/// several lines; its name is in the first.
fn functions(header: &str) -> Vec<&str> {
    let first_lines = header.lines().filter(|line| line.starts_with(char::is_alphabetic));
    let named = first_lines.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        before.rsplit([' ', '*']).next()
    });
    named.filter(|name| name.starts_with("casemate_") && *name != OF_THE_APPLICATION).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_header_are_found() {
        let header = "/* casemate_x(); */\n\
                      typedef void (*casemate_fn)(void *context);\n\
                      struct casemate_host;\n\
                      const char *casemate_strerror(int32_t code);\n\
                      size_t casemate_memory_free(void);\n\
                      int32_t casemate_add_sa(struct casemate_host *host,\n\
                          const struct casemate_sa *sa);\n\
                      void casemate_panic(const char *file, uint32_t line);\n";
        assert_eq!(functions(header), ["casemate_strerror", "casemate_memory_free", "casemate_add_sa"]);
    }
}
