//! Emulated machines for `cargo xtask bench advise`: `casemate-lab` under QEMU's user-mode emulators. It runs
//! all commands of `casemate`, and QEMU would not emulate a program that `casemate` starts.
//!
//! The x86-64 processor without AES instructions runs the program of this machine. For ARM, Debian's
//! rustc-web builds the program with the standard library for arm64, which is unpacked below
//! `target/emulated` and not installed. Each machine has a directory with a script `casemate` that starts
//! the program in the emulator.

use crate::packages::{self, Package};
use crate::shell::{self, Failure, Result};
use crate::{cargo, lwip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ARM: &str = "aarch64-unknown-linux-gnu";
const RUSTC: &str = "/usr/bin/rustc";
/// Debian package of the standard library for other processors.
const LIBRARY: &str = "libstd-rust-web-dev";

/// Prepares a machine, given the program of this machine and a directory for files. Returns the command
/// that runs the program in the emulator.
type Prepare = fn(&Path, &Path) -> Result<String>;

/// Packages for both machines.
const EMULATORS: &[Package] = &[Package::new("qemu-user", "qemu-x86_64")];
/// Packages to build for ARM. The library has to have the version of the compiler.
const CROSS: &[Package] = &[
    Package::new("rustc-web", RUSTC),
    Package::new("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    Package::new("g++-aarch64-linux-gnu", "aarch64-linux-gnu-g++"),
];

/// Available machines, as arguments of the benchmark's option `--machine`. Prints the reason why a machine
/// is not available. `native` is the program of this machine. With `fetch`, installs missing packages.
pub(super) fn machines(native: &Path, fetch: bool) -> Result<Vec<String>> {
    if fetch {
        packages::install_groups(&[EMULATORS, CROSS])?;
    }
    let all: [(&str, Prepare); 2] =
        [("x86-64 without AES instructions", without_aes), ("ARM Cortex-A72", cortex_a72)];
    let directory = cargo::target_directory()?.join("emulated");
    let mut found = Vec::new();
    for (name, prepare) in all {
        let machine = directory.join(name.replace(' ', "-"));
        fs::create_dir_all(&machine)?;
        match prepare(native, &directory).and_then(|command| write_script(&machine, &command)) {
            Ok(program) => found.push(format!("{name}={}", program.display())),
            Err(failure) => println!("skipped: {name}: {failure}"),
        }
    }
    Ok(found)
}

/// x86-64 processor with neither AES instructions nor the carry-less multiplication for GCM.
fn without_aes(native: &Path, _: &Path) -> Result<String> {
    require(&[EMULATORS])?;
    Ok(format!("qemu-x86_64 -cpu Westmere,-aes,-pclmulqdq '{}'", native.display()))
}

/// ARM processor with AES instructions, as QEMU models it. The same processor in a Raspberry Pi 4 lacks them.
fn cortex_a72(_: &Path, directory: &Path) -> Result<String> {
    require(&[EMULATORS, CROSS])?;
    let program = build_variable(&standard_library(directory)?, &directory.join("build"))?;
    Ok(format!("qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu '{}'", program.display()))
}

fn require(groups: &[&[Package]]) -> Result {
    match packages::absent(groups)[..] {
        [] => Ok(()),
        ref absent => {
            Err(Failure::new(format!("missing packages: {}; --fetch installs them", absent.join(" "))))
        }
    }
}

/// Writes a script `casemate` that runs the command.
fn write_script(directory: &Path, command: &str) -> Result<PathBuf> {
    let file = directory.join("casemate");
    fs::write(&file, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    Ok(file)
}

/// Sysroot of rustc-web for ARM. Downloads and unpacks it if it is missing.
fn standard_library(directory: &Path) -> Result<PathBuf> {
    let version =
        shell::output(shell::command("dpkg-query").args(["--show", "--showformat=${Version}", "rustc-web"]))?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let sysroot = directory.join(format!("sysroot-{version}"));
    if sysroot.exists() {
        return Ok(sysroot);
    }
    let work = directory.join("fetch");
    for part in ["lists/partial", "cache/archives/partial", "unpacked"] {
        fs::create_dir_all(work.join(part))?;
    }
    let apt = || -> Result<_> {
        let mut command = lwip::apt(&work)?;
        command.args([
            "-o",
            "APT::Architectures::=arm64",
            "-o",
            "Dir::Etc::sourceparts=/etc/apt/sources.list.d",
        ]);
        Ok(command)
    };
    shell::run(apt()?.arg("update"))?;
    shell::run(apt()?.args(["download", &format!("{LIBRARY}:arm64={version}")]))?;
    let archive = fs::read_dir(&work)?.flatten().map(|entry| entry.path());
    let archive =
        archive.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive =
        archive.ok_or_else(|| Failure::new(format!("apt-get downloaded no archive of {LIBRARY}")))?;
    shell::run(shell::command("dpkg-deb").arg("--extract").arg(archive).arg(work.join("unpacked")))?;
    fs::rename(work.join("unpacked/usr"), &sysroot)?;
    fs::remove_dir_all(&work)?;
    Ok(sysroot)
}

fn build_variable(sysroot: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = shell::command(shell::cargo());
    command.args([
        "build",
        "--profile",
        super::DIST,
        "--locked",
        "--package",
        "casemate-lab-app",
        "--bin",
        "casemate-lab",
        "--target",
        ARM,
    ]);
    command.arg("--target-dir").arg(target);
    command.env("RUSTC", RUSTC).env_remove("RUSTUP_TOOLCHAIN");
    let variable = |name: &str| format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}");
    command.env(variable("LINKER"), "aarch64-linux-gnu-gcc");
    command.env(variable("RUSTFLAGS"), format!("--sysroot={}", sysroot.display()));
    shell::run(&mut command)?;
    Ok(target.join(ARM).join(super::DIST).join("casemate-lab"))
}
