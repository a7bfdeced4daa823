//! Other machines for `cargo xtask bench advise`: this program under QEMU's emulators of programs.
//!
//! An x86-64 processor without AES instructions runs the program as it is. For ARM it is built with Debian's rustc-web and the standard
//! library of that package for arm64, which is unpacked below `target/emulated` and not installed. Each machine has a directory with a
//! script `casemate` in it, so that whoever starts `casemate` there starts it in the emulator.

use crate::failure::{Failure, Result};
use crate::packages::{self, Package};
use crate::{lwip, metadata, shell};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ARM: &str = "aarch64-unknown-linux-gnu";
const RUSTC: &str = "/usr/bin/rustc";
/// Of which Debian has the standard library for other processors.
const LIBRARY: &str = "libstd-rust-web-dev";

/// Makes ready what is needed, given this machine's program and a place for files, and answers the command that runs the program there.
type Prepare = fn(&Path, &Path) -> Result<String>;

/// What both need.
const EMULATORS: &[Package] = &[Package::new("qemu-user", "qemu-x86_64")];
/// What building for ARM needs. The library has to be of the compiler's version.
const CROSS: &[Package] = &[
    Package::new("rustc-web", RUSTC),
    Package::new("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    Package::new("g++-aarch64-linux-gnu", "aarch64-linux-gnu-g++"),
];

/// The machines that can be had here, as `--machine` of the benchmark wants them. Why another cannot is said. `own` is this machine's
/// program; with `fetch` what is missing is installed.
pub(super) fn machines(own: &Path, fetch: bool) -> Result<Vec<String>> {
    if fetch {
        packages::install_groups(&[EMULATORS, CROSS])?;
    }
    let all: [(&str, Prepare); 2] =
        [("x86-64 without AES instructions", without_aes), ("ARM Cortex-A72", cortex_a72)];
    let place = metadata::target_directory()?.join("emulated");
    let mut found = Vec::new();
    for (name, prepare) in all {
        let directory = place.join(name.replace(' ', "-"));
        fs::create_dir_all(&directory)?;
        match prepare(own, &place).and_then(|command| script(&directory, &command)) {
            Ok(program) => found.push(format!("{name}={}", program.display())),
            Err(failure) => println!("left out: {name}: {failure}"),
        }
    }
    Ok(found)
}

/// Nor the multiplication for GCM.
fn without_aes(own: &Path, _: &Path) -> Result<String> {
    demand(&[EMULATORS])?;
    Ok(format!("qemu-x86_64 -cpu Westmere,-aes,-pclmulqdq '{}'", own.display()))
}

/// With AES instructions: QEMU's model has them. The same processor in a Raspberry Pi 4 has not.
fn cortex_a72(_: &Path, place: &Path) -> Result<String> {
    demand(&[EMULATORS, CROSS])?;
    let program = build_for_arm(&standard_library(place)?, &place.join("build"))?;
    Ok(format!("qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu '{}'", program.display()))
}

fn demand(groups: &[&[Package]]) -> Result {
    match packages::absent(groups)[..] {
        [] => Ok(()),
        ref absent => Err(Failure::new(format!("not installed: {} (--fetch)", absent.join(" ")))),
    }
}

/// A script that runs `casemate` there.
fn script(directory: &Path, command: &str) -> Result<PathBuf> {
    let file = directory.join("casemate");
    fs::write(&file, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

/// A directory that is a sysroot of rustc-web for ARM.
fn standard_library(place: &Path) -> Result<PathBuf> {
    let version =
        shell::output(shell::command("dpkg-query").args(["--show", "--showformat=${Version}", "rustc-web"]))?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let sysroot = place.join(format!("sysroot-{version}"));
    if sysroot.exists() {
        return Ok(sysroot);
    }
    let work = place.join("fetch");
    for part in ["lists/partial", "cache/archives/partial", "unpacked"] {
        fs::create_dir_all(work.join(part))?;
    }
    let apt = || {
        let mut command = lwip::apt(&work);
        command.args([
            "-o",
            "APT::Architectures::=arm64",
            "-o",
            "Dir::Etc::sourceparts=/etc/apt/sources.list.d",
        ]);
        command
    };
    shell::run(apt().arg("update"))?;
    shell::run(apt().args(["download", &format!("{LIBRARY}:arm64={version}")]))?;
    let archive = fs::read_dir(&work)?.flatten().map(|entry| entry.path());
    let archive =
        archive.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.ok_or_else(|| Failure::new(format!("apt-get brought no {LIBRARY}")))?;
    shell::run(shell::command("dpkg-deb").arg("--extract").arg(archive).arg(work.join("unpacked")))?;
    fs::rename(work.join("unpacked/usr"), &sysroot)?;
    fs::remove_dir_all(&work)?;
    Ok(sysroot)
}

fn build_for_arm(sysroot: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = shell::command(shell::cargo());
    command.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "casemate-app",
        "--bin",
        "casemate",
        "--target",
        ARM,
    ]);
    command.arg("--target-dir").arg(target);
    command.env("RUSTC", RUSTC).env_remove("RUSTUP_TOOLCHAIN");
    let for_arm = |what: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{what}");
    command.env(for_arm("LINKER"), "aarch64-linux-gnu-gcc");
    command.env(for_arm("RUSTFLAGS"), format!("--sysroot={}", sysroot.display()));
    shell::run(&mut command)?;
    Ok(target.join(ARM).join("release/casemate"))
}
