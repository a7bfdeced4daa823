//! The task `package`: Debian packages, the root file system of a container image, and an SBOM.
//!
//! `tree` makes the files as they are installed, `deb` and `container` pack them, `parts` lists the crates in
//! the program, and `check` examines the results. Everything comes from `packaging/`, the documentation and
//! the program; two runs on one commit with the same tools give the same bytes.

mod check;
mod container;
mod deb;
mod parts;
mod tree;

use crate::cargo;
use crate::packages;
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use tree::Tree;

pub(crate) const ABOUT: &str = "Build the Debian packages, the root of a container image, and an SBOM
The results are in target/packages: casemate_VERSION_ARCH.deb, casemate-dbgsym_VERSION_ARCH.deb,
casemate-rootfs.tar with its Containerfile, and casemate.cdx.json. Builds the program with the profile `dist`;
--binary FILE takes a program that exists. The maintainer is that of DEBFULLNAME and DEBEMAIL.
With --check, also installs Debian packages for the checks and runs lintian, systemd-analyze, the service under
systemd in a new Debian root, and the demo in a container without root. With --check-unit, examines the unit only.";

/// Options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    binary: Option<PathBuf>,
    check: Checks,
}

/// Checks to run on the results.
#[derive(Debug, Default, PartialEq, Eq)]
enum Checks {
    #[default]
    None,
    /// Those that need no other packages and no new root.
    Unit,
    All,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--binary" => {
                    let path =
                        arguments.next().ok_or_else(|| Failure::new("--binary: a file was expected"))?;
                    options.binary = Some(path.into());
                }
                "--check" => options.check = Checks::All,
                "--check-unit" => options.check = Checks::Unit,
                other => {
                    let expected = "--binary FILE, --check or --check-unit was expected";
                    return Err(Failure::new(format!("{other}: {expected}")));
                }
            }
        }
        Ok(options)
    }
}

/// What the packages are called, and when they were made.
pub(super) struct Release {
    /// Version of the Debian package.
    version: String,
    /// Debian's name of the processor.
    architecture: String,
    maintainer: String,
    /// Time of the commit, in seconds since 1970: that of all files.
    timestamp: String,
}

impl Release {
    fn of_checkout() -> Result<Self> {
        let git = |arguments: &[&str]| text(shell::command("git").args(arguments));
        let upstream = workspace_version()?;
        let is_released = git(&["tag", "--points-at", "HEAD"])
            .is_ok_and(|tags| tags.lines().any(|tag| tag == format!("v{upstream}")));
        // A version with a tilde is older than the release, so that an upgrade replaces it.
        let version = match git(&["log", "-1", "--abbrev=8", "--date=format:%Y%m%d", "--format=%cd.%h"]) {
            Ok(commit) if !is_released => format!("{upstream}~git{commit}-1"),
            _ => format!("{upstream}-1"),
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let timestamp =
            variable("SOURCE_DATE_EPOCH").map_or_else(|| git(&["log", "-1", "--format=%ct"]), Ok)?;
        let name = variable("DEBFULLNAME").unwrap_or_else(|| "The Casemate authors".into());
        let address = variable("DEBEMAIL").unwrap_or_else(|| "casemate@packages.example".into());
        let architecture = text(shell::command("dpkg").arg("--print-architecture"))?;
        Ok(Self { version, architecture, maintainer: format!("{name} <{address}>"), timestamp })
    }
}

/// Runs the task.
pub(crate) fn run(arguments: &[String]) -> Result {
    let options = Options::parse(arguments)?;
    if options.check == Checks::All {
        if !packages::is_root() {
            return Err(Failure::new(
                "--check: root is needed for a Debian root with systemd; --check-unit needs none",
            ));
        }
        packages::install_for_packaging()?;
    }
    let release = Release::of_checkout()?;
    let directory = cargo::target_directory()?.join("packages");
    renew(&directory)?;
    let built = match options.binary {
        Some(path) => path,
        None => build()?,
    };
    let parts = parts::of_program()?;
    fs::write(directory.join(parts::SBOM), parts::sbom(&parts, &release)?)?;
    let tree = Tree::make(&directory, &built, &parts, &release)?;
    let package = deb::pack(&directory, &tree, &release)?;
    let image = container::pack(&directory, &tree, &release)?;
    report(&directory)?;
    match options.check {
        Checks::None => Ok(()),
        Checks::Unit => check::unit(&tree),
        Checks::All => check::all(&tree, &package, &image),
    }
}

/// Packs the program of the development profile, and examines the unit.
pub(crate) fn run_with_debug_program() -> Result {
    let program = cargo::target_directory()?.join("debug/casemate").display().to_string();
    run(&["--binary".into(), program, "--check-unit".into()])
}

/// Reason why this machine cannot pack; none if it can.
pub(crate) fn unavailable() -> Option<String> {
    let absent = packages::absent(&[packages::NETWORK, packages::PACKING]);
    (!absent.is_empty()).then(|| format!("needs Debian's {}", absent.join(", ")))
}

/// Builds the program. Its build ID connects it with its debug symbols.
fn build() -> Result<PathBuf> {
    let arguments =
        ["rustc", "--locked", "--profile", "dist", "--package", "casemate-app", "--bin", "casemate"];
    let link = ["--", "-C", "link-arg=-Wl,--build-id=sha1"];
    shell::run_cargo(&[&arguments[..], &link].concat())?;
    Ok(cargo::target_directory()?.join("dist/casemate"))
}

fn workspace_version() -> Result<String> {
    let members = cargo::members()?;
    let program = members.into_iter().find(|package| package.name == "casemate-app");
    program.map(|package| package.version).ok_or_else(|| Failure::new("casemate-app is not in the workspace"))
}

/// Empties a directory, or creates it.
fn renew(directory: &Path) -> Result {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    Ok(fs::create_dir_all(directory)?)
}

/// Prints the results with their sizes.
fn report(directory: &Path) -> Result {
    let mut files: Vec<_> = fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files.iter().filter(|file| file.path().is_file()) {
        println!("{:>10} bytes  {}", file.metadata()?.len(), file.path().display());
    }
    Ok(())
}

/// The standard output of a command, without its line end.
pub(super) fn text(command: &mut std::process::Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&shell::output(command)?).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let parse =
            |words: &[&str]| Options::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), Options::default());
        let options = parse(&["--binary", "a/b", "--check"]).unwrap();
        assert_eq!(options, Options { binary: Some("a/b".into()), check: Checks::All });
        assert!(parse(&["--binary"]).is_err());
        assert!(parse(&["surplus"]).is_err());
    }
}
