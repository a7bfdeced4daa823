//! Builds and runs the programs of verify/bare, for processors without an operating system, and the tasks
//! `no-std` and `pi`.
//!
//! The toolchain of the project has no `core` for these processors, and rustup's extra targets would be
//! another download. Debian's `rust-web-src` package contains the sources of `core` and `alloc`. Cargo
//! builds them together with the program (`-Zbuild-std`), and the toolchain's own linker links it.

use crate::shell::{self, Failure, Result};
use crate::{cargo, packages};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processor, and the QEMU board to run its images on.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Name in tables.
    pub(crate) name: &'static str,
    /// Rust target triple.
    pub(crate) triple: &'static str,
    /// QEMU program and options; empty if images are not run.
    qemu: &'static [&'static str],
}

impl Target {
    /// Whether QEMU can run images for this target.
    pub(crate) const fn runs(&self) -> bool {
        !self.qemu.is_empty()
    }
}

/// ARM Cortex-M4.
pub(crate) const THUMB: Target =
    Target { name: "Thumb", triple: "thumbv7em-none-eabi", qemu: &["qemu-system-arm", "-M", "mps2-an386"] };
/// ARM1176, the processor of the first Raspberry Pi.
pub(crate) const ARMV6: Target =
    Target { name: "ARMv6", triple: "armv6-none-eabi", qemu: &["qemu-system-arm", "-M", "raspi1ap"] };
/// ARM Cortex-A72.
pub(crate) const AARCH64: Target = Target {
    name: "AArch64",
    triple: "aarch64-unknown-none",
    qemu: &["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-nic", "none"],
};
/// PC, the target of `apps/firmware`.
pub(crate) const X86_64: Target = Target { name: "x86-64", triple: "x86_64-unknown-none", qemu: &[] };

/// All targets.
pub(crate) const TARGETS: [Target; 4] = [THUMB, ARMV6, AARCH64, X86_64];

/// Portable implementations of ciphers and hashes: these processors lack the instructions of the other
/// ones.
const SOFT: &str = "--cfg aes_backend=\"soft\" --cfg sha1_backend=\"soft\" --cfg sha2_backend=\"soft\" \
     --cfg curve25519_dalek_backend=\"serial\" -Clink-arg=--icf=all";
/// Smallest variants of the portable implementations.
const SMALL: &str = " --cfg aes_backend_soft=\"compact\" --cfg sha2_backend_soft=\"compact\"";
/// Build profile of images that are optimized for speed.
pub(crate) const FAST: &str = "pi";
const RUSTC: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/core/src/lib.rs";

/// Reason why images cannot be built on this machine; none if they can.
pub(crate) fn unavailable() -> Option<String> {
    let absent = packages::absent(&[packages::BARE]);
    if !absent.is_empty() {
        return Some(format!("missing: {}", absent.join(" ")));
    }
    let version = shell::output(shell::command(RUSTC).arg("--version")).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).into_owned();
    if !is_new_enough(&version) || !Path::new(SOURCES).exists() {
        return Some(format!(
            "{RUSTC} is {}; version {} or later is required",
            version.trim(),
            env!("CARGO_PKG_RUST_VERSION")
        ));
    }
    linker().err().map(|failure| failure.to_string())
}

/// Whether a line such as `rustc 1.96.0 (...)` names at least the Rust version of the workspace.
fn is_new_enough(version: &str) -> bool {
    let minor = |text: &str| text.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let have = version.split_whitespace().nth(1).and_then(minor);
    have.zip(minor(env!("CARGO_PKG_RUST_VERSION"))).is_some_and(|(have, wanted)| have >= wanted)
}

/// Path of the linker: rust-lld of the toolchain, or ld.lld.
pub(crate) fn linker() -> Result<PathBuf> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(String::from_utf8_lossy(&sysroot).trim()).join("lib/rustlib");
    let hosts = fs::read_dir(libraries)?.filter_map(|entry| Some(entry.ok()?.path()));
    let found = hosts.map(|host| host.join("bin/rust-lld")).find(|lld| lld.exists());
    let found = found.or_else(|| Some(PathBuf::from("/usr/bin/ld.lld")).filter(|lld| lld.exists()));
    found.ok_or_else(|| {
        Failure::new("found neither rust-lld in the toolchain nor /usr/bin/ld.lld; install Debian's lld")
    })
}

/// Directory of the images of a profile.
pub(crate) fn directory(target: Target, profile: &str) -> Result<PathBuf> {
    Ok(cargo::target_directory()?.join("bare").join(target.triple).join(profile))
}

/// Builds packages of the workspace for a target.
pub(crate) fn build(target: Target, profile: &str, arguments: &[&str]) -> Result {
    run_cargo("build", target, profile, arguments)
}

/// Runs the cargo command `build` or `rustc`.
pub(crate) fn run_cargo(what: &str, target: Target, profile: &str, arguments: &[&str]) -> Result {
    let linker = linker()?;
    let flags = [SOFT, if profile == FAST { "" } else { SMALL }].concat();
    let variable = |what| format!("CARGO_TARGET_{}_{what}", target.triple.replace('-', "_").to_uppercase());
    let mut command = shell::command(shell::cargo());
    command.args([what, "--locked", "-Zbuild-std=core,alloc"]);
    command.arg("-Zbuild-std-features=optimize_for_size,compiler-builtins-mem");
    command.args(["--profile", profile, "--target", target.triple]).args(arguments);
    command.arg("--target-dir").arg(cargo::target_directory()?.join("bare"));
    // Stable cargo and rustc build `core` only with the variable that the compiler's own build uses.
    command.env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
    command.env(variable("LINKER"), linker).env(variable("RUSTFLAGS"), flags);
    shell::run(&mut command)
}

/// Runs an image and returns its output. Fails if the image reports a failure, and after `limit`.
pub(crate) fn boot(target: Target, image: &Path, limit: Duration) -> Result<String> {
    let (program, options) =
        target.qemu.split_first().ok_or_else(|| Failure::new("QEMU has no board for this target"))?;
    let log = image.with_extension("log");
    let mut command = shell::command(*program);
    command
        .args(options)
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-kernel"])
        .arg(image);
    command.args(["-semihosting-config", "enable=on,target=native"]);
    command.stdout(File::create(&log)?).stderr(Stdio::inherit());
    let passed = wait(&mut command, limit)?;
    let printed = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if passed {
        return Ok(printed);
    }
    Err(Failure::new(format!("{} failed on {}:\n{printed}", image.display(), target.name)))
}

/// Whether the program exited successfully within `limit`.
fn wait(command: &mut Command, limit: Duration) -> Result<bool> {
    let mut child: Child = command.spawn()?;
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

pub(crate) const NO_STD_ABOUT: &str = "Build core/ without std, and run its self-test on emulated boards
Builds core/, providers/rustcrypto and the adapters for smoltcp and lwIP for ARM processors without an
operating system. Debian's rustc-web builds core and alloc with them. QEMU boots the self-test of
verify/bare on a Raspberry Pi 1 (ARM1176), a Cortex-M4 and a Cortex-A72: known answers of every algorithm,
ESP and AH in both modes, fragments, replays, and IKEv2. --board NAME (ARMv6, Thumb or AArch64) selects one
of them.";

/// Our crates and the adapters for devices. They depend on everything in core/.
const NO_STD_CRATES: [&str; 15] = [
    "--package",
    "casemate-smoltcp",
    "--package",
    "casemate-lwip",
    "--package",
    "casemate-pki",
    "--package",
    "casemate-eap",
    "--package",
    "casemate-radius",
    "--package",
    "casemate-sched",
    "--package",
    "casemate-rohc",
    "--lib",
];
const SELFTEST: [&str; 6] = ["--package", "casemate-bare", "--features", "image", "--bin", "selftest"];
const SELFTEST_PROFILE: &str = "device";
/// The self-test takes about ten seconds. Slow machines under load take up to ten times as long.
const SELFTEST_LIMIT: Duration = Duration::from_secs(180);

/// Runs the task.
pub(crate) fn run_no_std(arguments: &[String]) -> Result {
    let boards = [ARMV6, THUMB, AARCH64];
    let chosen: Vec<Target> = match arguments {
        [] => boards.to_vec(),
        [option, name] if option == "--board" => {
            boards.into_iter().filter(|board| board.name.eq_ignore_ascii_case(name)).collect()
        }
        _ => Vec::new(),
    };
    if chosen.is_empty() {
        return Err(Failure::new("expected no argument, or --board with one of ARMv6, Thumb, AArch64"));
    }
    if let Some(why) = unavailable() {
        return Err(Failure::new(why));
    }
    build(ARMV6, SELFTEST_PROFILE, &NO_STD_CRATES)?;
    chosen.into_iter().try_for_each(selftest)
}

fn selftest(board: Target) -> Result {
    build(board, SELFTEST_PROFILE, &SELFTEST)?;
    let printed = boot(board, &directory(board, SELFTEST_PROFILE)?.join("selftest"), SELFTEST_LIMIT)?;
    println!("{}:\n{printed}", board.name);
    if printed.lines().last() == Some("self-test passed") {
        return Ok(());
    }
    Err(Failure::new(format!("the self-test on {} did not print `self-test passed`", board.name)))
}

pub(crate) const PI_ABOUT: &str = "Build the image that counts instructions on an emulated Raspberry Pi
The image is for an ARM1176 without an operating system, and is optimized for speed. `casemate lab run
embedded` runs this task, and then the image under QEMU (docs/manual/embedded.md). --test builds it
with the profile of the self-test of `no-std`, with which it shares most parts, and runs the test of the
experiment. With this profile it counts more instructions.";

const PI_IMAGE: [&str; 6] = ["--package", "casemate-bare", "--features", "image", "--bin", "pi"];
/// Profile of the self-test.
const PI_TEST_PROFILE: &str = "device";

/// Builds the image, and runs its test with `--test`.
pub(crate) fn run_pi(arguments: &[String]) -> Result {
    if let Some(why) = unavailable() {
        return Err(Failure::new(why));
    }
    match arguments {
        [] => {
            println!("{}", build_pi(FAST)?.display());
            Ok(())
        }
        [option] if option == "--test" => test_pi(build_pi(PI_TEST_PROFILE)?),
        _ => Err(Failure::new("expected no argument, or --test")),
    }
}

fn build_pi(profile: &str) -> Result<PathBuf> {
    build(ARMV6, profile, &PI_IMAGE)?;
    Ok(directory(ARMV6, profile)?.join("pi"))
}

/// Tests the whole workspace, because the build of all tests is then reused.
fn test_pi(image: PathBuf) -> Result {
    let mut command = shell::command(shell::cargo());
    command.args(["test", "--workspace", "--locked", "--test", "pi"]).env("CASEMATE_PI", image);
    shell::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustc_versions_are_compared() {
        assert!(is_new_enough("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"));
        assert!(!is_new_enough("rustc 1.63.0"));
        assert!(!is_new_enough(""));
    }
}
