//! The machine without an operating system: building its image, and trying it under QEMU (apps/firmware).

use crate::failure::{Failure, Result};
use crate::{interop, metadata, packages, shell};
use std::path::{Path, PathBuf};

pub(crate) const ABOUT: &str = "Build the bootable image of apps/firmware; with --run, try it under QEMU
The image is an ELF file that QEMU's `-kernel` boots on the machines pc, q35 and microvm, built with the stable toolchain of the
host. With --run it is booted in a network namespace with `casemate run` as its peer, with manual keys and IKEv2, in both modes and
both roles: the page is fetched through IPsec, and the wire is searched for clear text. FILTER picks cases by parts of their
names, all of which must match: `cargo xtask firmware --run microvm`. What it prints and how to boot the image by hand is in
docs/manual/firmware.md.";

/// What the image is built with, for clippy too: a panic must not unwind where there is no operating system.
const TARGET: [&str; 8] = [
    "--package",
    "casemate-firmware",
    "--features",
    "image",
    "--bin",
    "casemate-firmware",
    "--profile",
    "firmware",
];

/// Builds the image, and tries it if it is told to.
pub(crate) fn run(arguments: &[String]) -> Result {
    let image = build()?;
    match arguments.split_first() {
        None => Ok(()),
        Some((first, filter)) if first == "--run" => try_out(&image, filter),
        Some((first, _)) => Err(Failure::new(format!("`{first}`: nothing or --run was expected"))),
    }
}

/// Clippy for what is in the image only.
pub(crate) fn clippy() -> Result {
    let arguments = [&["clippy"], &TARGET[..], &["--locked", "--", "--deny", "warnings"]].concat();
    shell::run_cargo(&arguments)
}

/// Why the image cannot be tried here, if so.
pub(crate) fn unavailable() -> Option<&'static str> {
    interop::unavailable().or_else(|| (!packages::has_qemu()).then_some("qemu-system-x86_64 is missing"))
}

fn build() -> Result<PathBuf> {
    shell::run_cargo(&[&["build"], &TARGET[..], &["--locked"]].concat())?;
    let image = metadata::target_directory()?.join("firmware/casemate-firmware");
    println!("{}", image.display());
    Ok(image)
}

fn try_out(image: &Path, filter: &[String]) -> Result {
    shell::run_cargo(&[
        "build",
        "--package",
        "casemate-interop",
        "--bins",
        "--package",
        "casemate-app",
        "--locked",
    ])?;
    let target = metadata::target_directory()?;
    let programs = target.join("debug");
    let mut command = shell::command(programs.join("firmware-matrix"));
    command.arg("--image").arg(image).arg("--casemate").arg(programs.join("casemate"));
    command.arg("--probe").arg(programs.join("probe"));
    shell::run(command.arg("--directory").arg(target.join("interop/firmware")).args(filter))
}
