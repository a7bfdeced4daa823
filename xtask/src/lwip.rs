//! The `lwip` task: fetches the sources of lwIP for the example and the tests of adapters/lwip into
//! `target/lwip`.

use crate::cargo;
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::Path;

pub(crate) const ABOUT: &str = "Fetch lwIP's sources and build the example of adapters/lwip
Downloads the upstream archives of Debian's source packages (2.1.3 from bookworm, 2.2.1 from trixie) with
apt and its keys, using separate package lists, and unpacks them below target/lwip. Needs no privileges and
installs nothing.
--example also builds the program adapters/lwip/example with lwIP 2.2.1 and prints its path. `casemate lab
run embedded` runs this task, unless casemate-lwip is in the directory of `casemate` or in the PATH.";

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Version of lwIP, and the Debian release that contains it.
struct Source {
    version: &'static str,
    release: &'static str,
}

const SOURCES: [Source; 2] =
    [Source { version: "2.1.3", release: "bookworm" }, Source { version: "2.2.1", release: "trixie" }];

/// Fetches missing sources. `--example` also builds the example.
pub(crate) fn run(arguments: &[String]) -> Result {
    fetch_missing()?;
    match arguments {
        [] => Ok(()),
        [option] if option == "--example" => example(&[]),
        [other, ..] => {
            Err(Failure::new(format!("unknown argument `{other}`; expected --example or no argument")))
        }
    }
}

/// Builds the example with the program that the tests use, and prints its path.
pub(crate) fn example(options: &[&str]) -> Result {
    fetch_missing()?;
    let mut arguments =
        vec!["run", "--quiet", "--package", "casemate-lwip-tests", "--bin", "lwip-example", "--"];
    arguments.extend(options);
    shell::run_cargo(&arguments)
}

fn fetch_missing() -> Result {
    let directory = cargo::target_directory()?.join("lwip");
    for source in &SOURCES {
        if !directory.join(source.version).join("src").is_dir() {
            fetch(source, &directory)?;
        }
    }
    println!("The sources of lwIP are in {}", directory.display());
    Ok(())
}

fn fetch(source: &Source, directory: &Path) -> Result {
    let work = directory.join(format!("fetch-{}", source.version));
    for part in ["lists/partial", "cache/archives/partial", "sources"] {
        fs::create_dir_all(work.join(part))?;
    }
    let Source { version, release } = source;
    let list = format!("deb-src [signed-by={KEYS}] {} {release} main\n", mirror()?);
    fs::write(work.join("sources/lwip.list"), list)?;
    shell::run(apt(&work)?.arg("update"))?;
    shell::run(apt(&work)?.args(["source", "--download-only", "--only-source", "lwip"]))?;
    let archive = archive(&work, version)?;
    let unpacked = work.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    shell::run(
        shell::command("tar")
            .arg("--extract")
            .arg("--strip-components=1")
            .args(["--file", &archive])
            .arg("-C")
            .arg(&unpacked),
    )?;
    fs::rename(&unpacked, directory.join(version))?;
    Ok(fs::remove_dir_all(&work)?)
}

/// Debian mirror of this machine.
fn mirror() -> Result<String> {
    let targets = shell::output(shell::command("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let targets = String::from_utf8_lossy(&targets);
    let found = targets.lines().map(|uri| uri.trim_end_matches('/')).find(|uri| uri.ends_with("/debian"));
    found.map(Into::into).ok_or_else(|| Failure::new("apt has no Debian mirror configured"))
}

/// apt-get with package lists of its own, so that the sources and privileges of the machine do not matter.
///
/// The hooks of an update are off: those of Debian's container images delete the archives of all packages,
/// also of packages that another apt-get installs at this moment.
pub(crate) fn apt(work: &Path) -> Result<std::process::Command> {
    let config = work.join("apt.conf");
    fs::write(&config, "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n")?;
    let mut command = shell::command("apt-get");
    command.current_dir(work).arg("-q").arg("--config-file").arg(config);
    for (option, value) in [
        ("Dir::Etc::sourcelist", "none"),
        ("Dir::Etc::sourceparts", "sources"),
        ("Dir::State::lists", "lists"),
        ("Dir::Cache", "cache"),
    ] {
        command.arg("-o").arg(format!("{option}={}", work.join(value).display()));
    }
    Ok(command)
}

/// Path of the upstream archive, without Debian's changes.
fn archive(work: &Path, version: &str) -> Result<String> {
    for entry in fs::read_dir(work)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("lwip_{version}")) && name.contains(".orig.tar.") {
            return Ok(path.display().to_string());
        }
    }
    Err(Failure::new(format!("apt-get downloaded no archive of lwip {version}")))
}
