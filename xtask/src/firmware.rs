//! The machine without an operating system: building its image, and trying it under QEMU (apps/firmware).

use crate::failure::{Failure, Result};
use crate::programs::Programs;
use crate::{interop, metadata, packages, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ABOUT: &str = "Build the bootable image of apps/firmware; with --run, try it under QEMU
The image is an ELF file that QEMU's `-kernel` boots on the machines pc, q35 and microvm, built with the stable toolchain of the
host. With --run it is booted in a network namespace with `casemate run` as its peer, with manual keys and IKEv2, in both modes and
both roles: the page is fetched through IPsec, and the wire is searched for clear text. FILTER picks cases by parts of their
names, all of which must match: `cargo xtask firmware --run microvm`. --built, as the first option, builds the
image alone and takes the other programs as they are. What it prints and how to boot the image by hand is in
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

/// Which of their implementations the ciphers' crates take (docs/decisions/0029-chacha20-on-qemu.md).
const CIPHERS: [&str; 4] = ["--cfg", "chacha20_backend=\"soft\"", "--cfg", "poly1305_backend=\"soft\""];

/// What stands between the flags in cargo's environment.
const SEPARATOR: &str = "\u{1f}";

/// Builds the image, and tries it if it is told to.
pub(crate) fn run(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::of(arguments);
    let image = build()?;
    match arguments.split_first() {
        None => Ok(()),
        Some((first, filter)) if first == "--run" => try_out(&image, programs, filter),
        Some((first, _)) => Err(Failure::new(format!("`{first}`: nothing or --run was expected"))),
    }
}

/// Clippy for what is in the image only.
pub(crate) fn clippy() -> Result {
    let arguments = [&["clippy"], &TARGET[..], &["--locked", "--", "--deny", "warnings"]].concat();
    shell::run(cargo().args(arguments))
}

/// Why the image cannot be tried here, if so.
pub(crate) fn unavailable() -> Option<&'static str> {
    interop::unavailable().or_else(|| (!packages::has_qemu()).then_some("qemu-system-x86_64 is missing"))
}

/// The cargo that builds the image: with the flags that it has anyway, and those of the ciphers.
fn cargo() -> Command {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_else(|_| {
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        flags.split_whitespace().collect::<Vec<_>>().join(SEPARATOR)
    });
    let flags = flags.split(SEPARATOR).filter(|flag| !flag.is_empty()).chain(CIPHERS);
    let mut command = shell::command(shell::cargo());
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join(SEPARATOR));
    command
}

fn build() -> Result<PathBuf> {
    shell::run(cargo().args([&["build"], &TARGET[..], &["--locked"]].concat()))?;
    let image = metadata::target_directory()?.join("firmware/casemate-firmware");
    println!("{}", image.display());
    Ok(image)
}

fn try_out(image: &Path, programs: Programs, filter: &[String]) -> Result {
    let programs = programs.of_packages(&["casemate-interop", "casemate-app"])?;
    let mut command = shell::command(programs.join("firmware-matrix"));
    command.arg("--image").arg(image).arg("--casemate").arg(programs.join("casemate"));
    command.arg("--probe").arg(programs.join("probe"));
    shell::run(
        command.arg("--directory").arg(metadata::target_directory()?.join("interop/firmware")).args(filter),
    )
}
