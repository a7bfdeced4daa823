//! Packs the files into Debian packages: the program, and its debug symbols.

use super::tree::{Tree, set_mode, source};
use super::{Release, renew, text};
use crate::shell::{self, Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scripts of the package, which dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes both packages. Returns the path of the one with the program.
pub(super) fn pack(directory: &Path, tree: &Tree, release: &Release) -> Result<PathBuf> {
    let work = directory.join("deb");
    renew(&work)?;
    copy(tree.root(), &work)?;
    let control = work.join("DEBIAN");
    fs::create_dir(&control)?;
    for name in SCRIPTS {
        let path = control.join(name);
        fs::write(&path, source(&format!("debian/{name}"))?)?;
        set_mode(&path, 0o755)?;
    }
    fs::write(control.join("conffiles"), "/etc/casemate/swanctl.conf\n")?;
    let libraries = libraries(directory, &tree.program())?;
    let fields = [("LIBRARIES", libraries.as_str())];
    let package = build(
        directory,
        &work,
        "casemate",
        &fill(&source("debian/control")?, &work, release, &fields)?,
        release,
    )?;
    pack_symbols(directory, tree, release)?;
    Ok(package)
}

/// Makes the package of debug symbols, as debhelper does. A program without a build ID has none.
fn pack_symbols(directory: &Path, tree: &Tree, release: &Release) -> Result {
    let Some(id) = build_id(tree.unstripped())? else {
        println!("{}: no build ID, so there is no package of debug symbols", tree.unstripped().display());
        return Ok(());
    };
    let work = directory.join("dbgsym");
    renew(&work)?;
    let (first, rest) =
        id.split_at_checked(2).ok_or_else(|| Failure::new(format!("build ID {id}: too short")))?;
    let symbols = work.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug"));
    fs::create_dir_all(symbols.parent().unwrap_or(&symbols))?;
    let mut objcopy = shell::command("objcopy");
    let keep = objcopy.args(["--only-keep-debug", "--compress-debug-sections"]).arg(tree.unstripped());
    shell::run(keep.arg(&symbols))?;
    set_mode(&symbols, 0o644)?;
    let doc = work.join("usr/share/doc");
    fs::create_dir_all(&doc)?;
    std::os::unix::fs::symlink("casemate", doc.join("casemate-dbgsym"))?;
    fs::create_dir(work.join("DEBIAN"))?;
    let control = fill(&source("debian/control-dbgsym")?, &work, release, &[("BUILD_ID", &id)])?;
    build(directory, &work, "casemate-dbgsym", &control, release).map(drop)
}

/// Packs a directory with everything but its control file and checksums.
fn build(directory: &Path, work: &Path, name: &str, control: &str, release: &Release) -> Result<PathBuf> {
    fs::write(work.join("DEBIAN/control"), control)?;
    let sums =
        "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0r md5sum";
    let sums = shell::output(shell::command("sh").args(["-c", sums]).current_dir(work))?;
    fs::write(work.join("DEBIAN/md5sums"), sums)?;
    let Release { version, architecture, timestamp, .. } = release;
    let package = directory.join(format!("{name}_{version}_{architecture}.deb"));
    let mut command = shell::command("dpkg-deb");
    // The compression that Debian's archive accepts.
    command.args(["--root-owner-group", "-Zxz", "--build"]).arg(work).arg(&package);
    shell::run(command.env("SOURCE_DATE_EPOCH", timestamp))?;
    Ok(package)
}

/// Fills in the fields of a control file.
fn fill(template: &str, work: &Path, release: &Release, more: &[(&str, &str)]) -> Result<String> {
    let size =
        text(shell::command("du").args(["--summarize", "--block-size=1024", "--apparent-size"]).arg(work))?;
    let size = size.split_whitespace().next().unwrap_or_default();
    let fields = [
        ("VERSION", release.version.as_str()),
        ("ARCHITECTURE", &release.architecture),
        ("MAINTAINER", &release.maintainer),
        ("SIZE", size),
    ];
    let filled = fields
        .iter()
        .chain(more)
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value));
    let is_name =
        |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    match filled.split('@').find(is_name) {
        Some(name) => Err(Failure::new(format!("control: nothing fills in @{name}@"))),
        None => Ok(filled),
    }
}

/// The packages whose libraries the program needs, in the notation of `Depends`.
fn libraries(directory: &Path, program: &Path) -> Result<String> {
    // dpkg-shlibdeps works in a source package, of which it reads this file only.
    let work = directory.join("shlibdeps");
    fs::create_dir_all(work.join("debian"))?;
    fs::write(work.join("debian/control"), "Source: casemate\n\nPackage: casemate\nArchitecture: any\n")?;
    let mut command = shell::command("dpkg-shlibdeps");
    let line = text(command.arg("-O").arg(program).current_dir(&work))?;
    fs::remove_dir_all(&work)?;
    line.strip_prefix("shlibs:Depends=")
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("dpkg-shlibdeps printed `{line}`")))
}

/// The build ID of a program, in hexadecimal digits.
fn build_id(program: &Path) -> Result<Option<String>> {
    let notes = text(shell::command("readelf").arg("--notes").arg(program))?;
    Ok(notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).map(str::to_owned))
}

/// Copies the content of a directory, with permissions.
pub(super) fn copy(from: &Path, to: &Path) -> Result {
    let mut command: Command = shell::command("cp");
    shell::run_unshown(command.args(["--archive", "--no-target-directory"]).arg(from).arg(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_files_are_filled_in() {
        let release = Release {
            version: "1.2~x-1".into(),
            architecture: "amd64".into(),
            maintainer: "A <a@b.example>".into(),
            timestamp: "0".into(),
        };
        let work = shell::root().join("packaging/debian");
        let control = source("debian/control").unwrap();
        let filled = fill(&control, &work, &release, &[("LIBRARIES", "libc6 (>= 2.34)")]).unwrap();
        assert!(
            filled.contains("\nVersion: 1.2~x-1\n") && filled.contains("\nDepends: libc6 (>= 2.34), "),
            "{filled}"
        );
        assert!(fill(&control, &work, &release, &[]).is_err(), "@LIBRARIES@ is left");
        let symbols = source("debian/control-dbgsym").unwrap();
        let filled = fill(&symbols, &work, &release, &[("BUILD_ID", "0a1b")]).unwrap();
        assert!(filled.contains("\nDepends: casemate (= 1.2~x-1)\n"), "{filled}");
    }
}
