//! The tasks `interop` and `firmware`: Casemate against a Linux kernel under QEMU and against strongSwan
//! (verify/interop), and the bootable image of apps/firmware under QEMU.

use crate::cargo::{BUILT, Programs};
use crate::jobs::Job;
use crate::packages::{GUEST, NETWORK, Package, STRONGSWAN, TUNNELS, absent, is_root};
use crate::shell::{self, Failure, Result};
use crate::{cargo, lwip, packages, scenarios};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ABOUT: &str = "Run the kernel matrix or the strongSwan matrix (verify/interop)
Builds Casemate and the matrix. The kernel matrix boots Debian's cloud kernel under QEMU and exchanges
packets with it, for every suite, mode and IP version. FILTER selects cases by parts of their names, all of
which must match: `cargo xtask interop esp tunnel v6`. Options: --list lists the cases, --show prints their
`ip xfrm` commands, --peer smoltcp replaces the gateway by a device with smoltcp behind Casemate, --peer
lwip or lwip-below by a device with lwIP (adapters/lwip/example, Casemate inside IP or below it), --peer
kernel by a second kernel, which tests the matrix itself.
--strongswan, as the first option, runs Casemate's IKEv2 against Debian's strongSwan in network namespaces:
`cargo xtask interop --strongswan rekey child`. In the cases `kernel/...`, strongSwan runs in a guest and
uses ESP and AH of the kernel. Options of this matrix: --esp libipsec|kernel for cases without or with a
guest, --list, --only PATTERN, --jobs N, --keep DIR to keep the files of all cases, --json, --left
smoltcp|lwip|firmware for a device in place of Casemate, and --left strongswan for a second strongSwan.
--debian RELEASE, before these, takes the charon of another release of Debian, which is unpacked in
target/interop/debian. With strongSwan 6 and ML-KEM, such as that of forky, the cases `post-quantum/...` run:
`cargo xtask interop --strongswan --debian forky post-quantum`.
--eap, as the first option, runs the EAP methods of both roles against eapol_test and hostapd, with RADIUS on
the loopback interface: `cargo xtask interop --eap peap`. Option: --list.
--built, before all other options, skips the build: `cargo build --workspace --all-targets` has built the
programs. `cargo xtask test` installs the Debian packages that both matrices need.";

/// Options that replace Casemate by another implementation. They show whether a failure is Casemate's
/// fault.
const WITHOUT_CASEMATE: [[&str; 2]; 2] = [["--peer", "kernel"], ["--left", "strongswan"]];

/// When a matrix runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Beside compilers with the lowest priority: the cases mostly wait.
    BesideBuilds,
    /// In one of the lanes, when no compiler runs: a guest that shares a processor with a compiler sometimes
    /// loses packets without counting them.
    Lane(Lane),
}

/// Lane of the tests with guests. A lane runs one case at a time: guests that share a processor slow each
/// other down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// strongSwan in a guest: the longest matrix.
    StrongSwanKernel,
    /// Kernels in guests, against Casemate and devices.
    Kernel,
    /// Devices against strongSwan, and the firmware.
    Devices,
}

impl Lane {
    /// All lanes.
    pub(crate) const ALL: [Self; 3] = [Self::StrongSwanKernel, Self::Kernel, Self::Devices];
}

/// Matrix, or part of a matrix, that `cargo xtask test` runs.
pub(crate) struct Matrix {
    /// Name in the summary.
    pub(crate) stage: &'static str,
    arguments: &'static [&'static str],
    packages: &'static [&'static [Package]],
    needs_root: bool,
    pub(crate) schedule: Schedule,
}

/// All matrices.
pub(crate) const MATRICES: &[Matrix] = &[
    Matrix {
        stage: "test: strongSwan matrix",
        // A case takes two seconds, and a quarter of a second of processor time.
        arguments: &["--strongswan", "--esp", "libipsec", "--jobs", "4"],
        packages: &[NETWORK, STRONGSWAN, TUNNELS],
        needs_root: true,
        schedule: Schedule::BesideBuilds,
    },
    Matrix {
        stage: "test: strongSwan matrix, with a kernel",
        arguments: &["--strongswan", "--esp", "kernel", "--jobs", "1"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        schedule: Schedule::Lane(Lane::StrongSwanKernel),
    },
    Matrix {
        stage: "test: strongSwan matrix, smoltcp",
        arguments: &["--strongswan", "--left", "smoltcp", "--jobs", "1"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        schedule: Schedule::Lane(Lane::Devices),
    },
    Matrix {
        stage: "test: strongSwan matrix, lwIP",
        arguments: &["--strongswan", "--left", "lwip", "--jobs", "1"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        schedule: Schedule::Lane(Lane::Devices),
    },
    Matrix {
        stage: "test: strongSwan matrix, firmware",
        arguments: &["--strongswan", "--left", "firmware", "--jobs", "1"],
        packages: &[NETWORK, STRONGSWAN, GUEST],
        needs_root: true,
        schedule: Schedule::Lane(Lane::Devices),
    },
    Matrix {
        stage: "test: kernel matrix",
        arguments: &[],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        schedule: Schedule::Lane(Lane::Kernel),
    },
    Matrix {
        stage: "test: kernel matrix, lwIP",
        arguments: &["--peer", "lwip", "sha256"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        schedule: Schedule::Lane(Lane::Kernel),
    },
    Matrix {
        stage: "test: kernel matrix, lwIP below IP",
        arguments: &["--peer", "lwip-below", "gcm16"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        schedule: Schedule::Lane(Lane::Kernel),
    },
    Matrix {
        stage: "test: kernel matrix, smoltcp",
        arguments: &["--peer", "smoltcp"],
        packages: &[NETWORK, GUEST],
        needs_root: false,
        schedule: Schedule::Lane(Lane::Kernel),
    },
];

impl Matrix {
    /// Job that runs the matrix after a build of the whole workspace.
    pub(crate) fn job(&self) -> Job {
        Job::new(self.stage, &[&["interop", BUILT], self.arguments].concat())
    }

    /// Reason why the matrix cannot run on this machine; none if it can. `missing` is the reason why packages
    /// may be missing.
    pub(crate) fn unavailable_reason(&self, missing: Option<&str>) -> Option<String> {
        let absent = absent(self.packages);
        if let (false, Some(why)) = (absent.is_empty(), missing) {
            return Some(format!("missing packages: {}: {why}", absent.join(" ")));
        }
        if self.needs_root && !is_root() {
            return Some("needs root".into());
        }
        unavailable().map(Into::into)
    }
}

/// Builds and runs a matrix.
pub(crate) fn run(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::parse(arguments);
    let (matrix, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "--strongswan" => ("strongswan-matrix", rest),
        Some((first, rest)) if first == "--eap" => ("eap-matrix", rest),
        _ => ("kernel-matrix", arguments),
    };
    let (root, arguments) = scenarios::charon_root(arguments)?;
    let mut packages = vec!["casemate-interop"];
    let says = |option: &[&str; 2]| arguments.windows(2).any(|pair| pair == option);
    if says(&["--left", "firmware"]) {
        run_firmware(&[])?;
    } else if says(&["--peer", "smoltcp"]) || says(&["--left", "smoltcp"]) {
        // `casemate-device` is a program of casemate-interop.
    } else if arguments.iter().any(|word| word.starts_with("lwip")) {
        lwip::example(&["--memory"])?;
    } else if !WITHOUT_CASEMATE.iter().any(says) {
        packages.push("casemate-app");
    }
    let mut command = shell::command(programs.directory(&packages)?.join(matrix));
    if let Some(root) = root {
        command.arg("--root").arg(root);
    }
    shell::run(command.args(arguments))
}

/// Whether the kernel of the guest is cached, so that apt-get is not needed.
pub(crate) fn has_kernel() -> bool {
    cargo::target_directory().is_ok_and(|target| target.join("interop/kernel").exists())
}

/// Reason why no matrix can run on this machine; none if one can.
pub(crate) fn unavailable() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("guests and namespaces need x86-64 Linux");
    }
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return Some("/dev/net/tun cannot be opened");
    }
    let root = shell::succeeds(shell::command("unshare").args(["--net", "true"]));
    let user =
        shell::succeeds(shell::command("unshare").args(["--user", "--map-root-user", "--net", "true"]));
    (!root && !user)
        .then_some("network namespaces cannot be created, neither as root nor in a user namespace")
}

pub(crate) const FIRMWARE_ABOUT: &str =
    "Build the bootable image of apps/firmware; with --run, test it under QEMU
The image is an ELF file for QEMU's `-kernel` on the machines pc, q35 and microvm. The stable toolchain of
the host builds it. --run boots it in a network namespace with `casemate run` as its peer, with manual keys
and IKEv2, in both modes and both roles. The peer fetches the page through IPsec, and the test searches the
wire for clear text. FILTER selects cases by parts of their names, all of which must match: `cargo xtask
firmware --run microvm`. --built, as the first option, builds only the image and uses the other programs as
they are. docs/manual/firmware.md describes the output and how to boot the image by hand.";

/// Build arguments of the image, also for clippy. The profile aborts on panic, because nothing unwinds
/// without an operating system.
const FIRMWARE_TARGET: [&str; 8] = [
    "--package",
    "casemate-firmware",
    "--features",
    "image",
    "--bin",
    "casemate-firmware",
    "--profile",
    "firmware",
];

/// Implementations of the cipher crates (docs/decisions/0029-chacha20-on-qemu.md).
const CIPHERS: [&str; 4] = ["--cfg", "chacha20_backend=\"soft\"", "--cfg", "poly1305_backend=\"soft\""];

/// Separator of CARGO_ENCODED_RUSTFLAGS.
const SEPARATOR: &str = "\u{1f}";

/// Builds the image, and runs its tests with `--run`.
pub(crate) fn run_firmware(arguments: &[String]) -> Result {
    let (programs, arguments) = Programs::parse(arguments);
    let image = build_firmware()?;
    match arguments.split_first() {
        None => Ok(()),
        Some((first, filter)) if first == "--run" => test_firmware(&image, programs, filter),
        Some((first, _)) => {
            Err(Failure::new(format!("unknown argument `{first}`; expected --run or no argument")))
        }
    }
}

/// Runs clippy on the code that only the image contains.
pub(crate) fn clippy_firmware() -> Result {
    let arguments = [&["clippy"], &FIRMWARE_TARGET[..], &["--locked", "--", "--deny", "warnings"]].concat();
    shell::run(cargo_with_cipher_flags().args(arguments))
}

/// Reason why the image cannot be tested on this machine; none if it can.
pub(crate) fn firmware_unavailable() -> Option<&'static str> {
    unavailable().or_else(|| (!packages::has_qemu()).then_some("qemu-system-x86_64 is missing"))
}

/// Cargo command for the image: the flags of the environment, followed by those of the ciphers.
fn cargo_with_cipher_flags() -> Command {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_else(|_| {
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        flags.split_whitespace().collect::<Vec<_>>().join(SEPARATOR)
    });
    let flags = flags.split(SEPARATOR).filter(|flag| !flag.is_empty()).chain(CIPHERS);
    let mut command = shell::command(shell::cargo());
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join(SEPARATOR));
    command
}

fn build_firmware() -> Result<PathBuf> {
    shell::run(cargo_with_cipher_flags().args([&["build"], &FIRMWARE_TARGET[..], &["--locked"]].concat()))?;
    let image = cargo::target_directory()?.join("firmware/casemate-firmware");
    println!("{}", image.display());
    Ok(image)
}

fn test_firmware(image: &Path, programs: Programs, filter: &[String]) -> Result {
    let programs = programs.directory(&["casemate-interop", "casemate-app"])?;
    let mut command = shell::command(programs.join("firmware-matrix"));
    command.arg("--image").arg(image).arg("--casemate").arg(programs.join("casemate"));
    command.arg("--probe").arg(programs.join("probe"));
    shell::run(
        command.arg("--directory").arg(cargo::target_directory()?.join("interop/firmware")).args(filter),
    )
}
