//! The task `scenarios`: strongSwan's test scenarios (verify/interop), whose configurations come from
//! Debian's source package of strongSwan.

use crate::cargo::{self, Programs};
use crate::debian;
use crate::packages::{self, NETWORK, STRONGSWAN};
use crate::shell::{self, Failure, Result};
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "Run strongSwan's test scenarios with Casemate in each role
Builds Casemate and the program strongswan-scenarios (verify/interop), fetches Debian's source package of
strongSwan, and runs each scenario in network namespaces: with charon on all hosts, then with Casemate on
each host in turn. FILTER selects scenarios by parts of their names, all of which must match: `cargo xtask
scenarios ikev2/ net2net`. All scenarios take about half an hour.
Options: --source DIR for an unpacked source tree of strongSwan 5.9 instead of the package, --accept only
counts the configurations that Casemate accepts, --jobs N, --json, --list, --resume leaves out scenarios that
have a result, --without-reference leaves out the run with charon on all hosts, --table prints all results.
--debian RELEASE, before these, takes the charon of another Debian release, such as trixie with strongSwan 6,
whose packages are unpacked in target/interop/debian. --built, before all others, skips the build. Results are
in target/interop/scenarios/results.json, and the files of failed runs in target/interop/scenarios/failed.
verify/interop/README.md describes the scenarios.";

const WITHOUT_SOURCE: [&str; 3] = ["--source", "--list", "--table"];

/// Builds and runs the scenarios.
pub(crate) fn run(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::parse(arguments);
    let needs_source = |argument: &String| !WITHOUT_SOURCE.iter().any(|option| argument.starts_with(option));
    let interop = cargo::target_directory()?.join("interop");
    let mut options = Vec::new();
    if arguments.iter().all(needs_source) {
        packages::install_groups(&[NETWORK, STRONGSWAN])?;
        let tree = debian::source_tree("strongswan", "testing", &interop.join("scenarios/source"))?;
        options.extend(["--source".into(), tree.into_os_string()]);
    }
    let (root, arguments) = charon_root(arguments)?;
    options.extend(root.into_iter().flat_map(|root| ["--root".into(), root.into_os_string()]));
    let directory = programs.directory(&["casemate-interop", "casemate-app"])?;
    let mut command = shell::command(directory.join("strongswan-scenarios"));
    shell::run_unshown(command.args(options).args(arguments))
}

/// Option that takes the charon of another release.
const RELEASE: &str = "--debian";
/// Packages with charon and its plugins.
const CHARON: [&str; 5] = [
    "charon-systemd",
    "libcharon-extra-plugins",
    "libcharon-extauth-plugins",
    "libstrongswan-standard-plugins",
    "libstrongswan-extra-plugins",
];

/// If the arguments begin with `--debian RELEASE`, returns a root directory with the charon of that release.
/// Also returns the other arguments.
pub(crate) fn charon_root(arguments: &[String]) -> Result<(Option<PathBuf>, &[String])> {
    let Some((RELEASE, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
        return Ok((None, arguments));
    };
    let (release, rest) =
        rest.split_first().ok_or_else(|| Failure::new(format!("{RELEASE} needs a release")))?;
    let directory = cargo::target_directory()?.join("interop/debian").join(release);
    Ok((Some(debian::root_with(&CHARON, release, &directory)?), rest))
}
