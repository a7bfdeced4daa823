//! The task `scenarios`: strongSwan's test scenarios (verify/interop), whose configurations come from
//! Debian's source package of strongSwan.

use crate::cargo::{self, Programs};
use crate::packages::{self, NETWORK, STRONGSWAN};
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str = "Run strongSwan's test scenarios with Casemate in each role
Builds Casemate and the program strongswan-scenarios (verify/interop), fetches Debian's source package of
strongSwan, and runs each scenario in network namespaces: with charon on all hosts, then with Casemate on
each host in turn. FILTER selects scenarios by parts of their names, all of which must match: `cargo xtask
scenarios ikev2/ net2net`. All scenarios take about half an hour.
Options: --source DIR for an unpacked source tree of strongSwan 5.9 instead of the package, --accept only
counts the configurations that Casemate accepts, --jobs N, --json, --list, --resume leaves out scenarios that
have a result, --without-reference leaves out the run with charon on all hosts, --table prints all results.
--built, before all other options, skips the build. Results are in target/interop/scenarios/results.json, and
the files of failed runs in target/interop/scenarios/failed. verify/interop/README.md describes the scenarios.";

/// Options that need no source tree.
const WITHOUT_SOURCE: [&str; 3] = ["--source", "--list", "--table"];

/// Builds and runs the scenarios.
pub(crate) fn run(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::parse(arguments);
    let needs_source = |argument: &String| !WITHOUT_SOURCE.iter().any(|option| argument.starts_with(option));
    let mut options = Vec::new();
    if arguments.iter().all(needs_source) {
        packages::install_groups(&[NETWORK, STRONGSWAN])?;
        let tree = source_tree(&cargo::target_directory()?.join("interop/scenarios/source"))?;
        options.extend(["--source".into(), tree.into_os_string()]);
    }
    let directory = programs.directory(&["casemate-interop", "casemate-app"])?;
    let mut command = shell::command(directory.join("strongswan-scenarios"));
    shell::run_unshown(command.args(options).args(arguments))
}

/// Returns the source tree of strongSwan in `directory`, after downloading Debian's source package if it is
/// not there.
fn source_tree(directory: &Path) -> Result<PathBuf> {
    if let Some(tree) = unpacked(directory) {
        return Ok(tree);
    }
    println!("Downloading Debian's source package of strongSwan");
    let parts = directory.join("parts");
    for folder in ["parts", "lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(directory.join(folder))?;
    }
    fs::write(parts.join("source.list"), source_lines(&read_all("/etc/apt/sources.list", "list")))?;
    fs::write(parts.join("source.sources"), source_sections(&read_all("", "sources")))?;
    apt(directory, &["update"])?;
    apt(directory, &["source", "--download-only", "--tar-only", "strongswan"])?;
    let is_archive = |name: &str| name.contains(".orig.tar") && !name.ends_with(".asc");
    let archive = names(directory).into_iter().find(|name| is_archive(name));
    let archive = archive.ok_or_else(|| Failure::new("apt-get source has not downloaded strongSwan"))?;
    shell::run(shell::command("tar").arg("--extract").arg("--file").arg(&archive).current_dir(directory))?;
    unpacked(directory).ok_or_else(|| Failure::new(format!("{archive} contains no directory `testing`")))
}

fn unpacked(directory: &Path) -> Option<PathBuf> {
    names(directory).into_iter().map(|name| directory.join(name)).find(|tree| tree.join("testing").is_dir())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Runs apt-get with package lists of its own, which contain source packages only.
fn apt(directory: &Path, arguments: &[&str]) -> Result {
    let mut command = shell::command("apt-get");
    for (option, value) in [
        ("Dir::Etc::sourcelist", PathBuf::from("/dev/null")),
        ("Dir::Etc::sourceparts", directory.join("parts")),
        ("Dir::State::lists", directory.join("lists")),
        ("Dir::Cache", directory.join("cache")),
        ("APT::Sandbox::User", "root".into()),
    ] {
        command.arg("-o").arg(format!("{option}={}", value.display()));
    }
    shell::run(command.arg("-q").args(arguments).current_dir(directory))
}

/// Contents of a file of the machine's package sources, and of all files in `sources.list.d` with this
/// extension.
fn read_all(file: &str, extension: &str) -> String {
    let directory = Path::new("/etc/apt/sources.list.d");
    let suffix = format!(".{extension}");
    let others = names(directory).into_iter().filter(|name| name.ends_with(&suffix));
    let files = std::iter::once(PathBuf::from(file)).chain(others.map(|name| directory.join(name)));
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    texts.join("\n\n")
}

/// Lines of sources.list(5) for the source packages of binary packages.
fn source_lines(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("deb "));
    lines.map(|rest| format!("deb-src {rest}\n")).collect()
}

/// The same for sections in the format deb822.
fn source_sections(text: &str) -> String {
    let lines = text.lines().map(|line| if line.starts_with("Types:") { "Types: deb-src" } else { line });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_become_those_of_source_packages() {
        let lines = "# deb x\ndeb [signed-by=/k] http://a stable main\ndeb-src http://a stable main\n";
        assert_eq!(source_lines(lines), "deb-src [signed-by=/k] http://a stable main\n");
        let sections = "Types: deb\nURIs: http://a\n\nTypes: deb deb-src\nURIs: http://b";
        assert_eq!(
            source_sections(sections),
            "Types: deb-src\nURIs: http://a\n\nTypes: deb-src\nURIs: http://b\n"
        );
    }
}
