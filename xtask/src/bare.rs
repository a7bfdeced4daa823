//! Building and running the programs of verify/bare, for processors without an operating system.
//!
//! The toolchain of the project has no `core` for them, and rustup's extra targets are one more download. Debian's `rustc-web`
//! brings the sources of `core` and `alloc`, which cargo builds along (`-Zbuild-std`), and the linker is the toolchain's own.

use crate::failure::{Failure, Result};
use crate::{metadata, packages, shell};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A processor, and the board that QEMU has with it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// For tables.
    pub(crate) name: &'static str,
    /// Rust's name.
    pub(crate) triple: &'static str,
    /// Program and options of QEMU; none where nothing is run.
    qemu: &'static [&'static str],
}

impl Target {
    /// Whether there is a board to run it on.
    pub(crate) const fn runs(&self) -> bool {
        !self.qemu.is_empty()
    }
}

/// An ARM Cortex-M4.
pub(crate) const THUMB: Target =
    Target { name: "Thumb", triple: "thumbv7em-none-eabi", qemu: &["qemu-system-arm", "-M", "mps2-an386"] };
/// An ARM1176, the processor of the first Raspberry Pi.
pub(crate) const ARMV6: Target =
    Target { name: "ARMv6", triple: "armv6-none-eabi", qemu: &["qemu-system-arm", "-M", "raspi1ap"] };
/// An ARM Cortex-A72.
pub(crate) const AARCH64: Target = Target {
    name: "AArch64",
    triple: "aarch64-unknown-none",
    qemu: &["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-nic", "none"],
};
/// A PC. `apps/firmware` is the program that runs there.
pub(crate) const X86_64: Target = Target { name: "x86-64", triple: "x86_64-unknown-none", qemu: &[] };

/// All of them.
pub(crate) const TARGETS: [Target; 4] = [THUMB, ARMV6, AARCH64, X86_64];

/// Ciphers and hashes without a look for instructions that these processors do not have.
const SOFT: &str = "--cfg aes_backend=\"soft\" --cfg sha1_backend=\"soft\" --cfg sha2_backend=\"soft\" \
     --cfg curve25519_dalek_backend=\"serial\" -Clink-arg=--icf=all";
/// And in their smallest form.
const SMALL: &str = " --cfg aes_backend_soft=\"compact\" --cfg sha2_backend_soft=\"compact\"";
/// The profile whose images are to be fast.
pub(crate) const FAST: &str = "pi";
const RUSTC: &str = "/usr/bin/rustc";
const SOURCES: &str = "/usr/lib/rustlib/src/rust/library/core/src/lib.rs";

/// Why nothing can be built here for processors without an operating system, if so.
pub(crate) fn unavailable() -> Option<String> {
    let absent = packages::absent(&[packages::BARE]);
    if !absent.is_empty() {
        return Some(format!("missing: {}", absent.join(" ")));
    }
    let version = shell::output(shell::command(RUSTC).arg("--version")).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).into_owned();
    if !is_new_enough(&version) || !Path::new(SOURCES).exists() {
        return Some(format!(
            "{RUSTC} is {}, {} was expected",
            version.trim(),
            env!("CARGO_PKG_RUST_VERSION")
        ));
    }
    linker().err().map(|failure| failure.to_string())
}

/// Whether `rustc 1.96.0 (...)` is what the workspace asks for.
fn is_new_enough(version: &str) -> bool {
    let minor = |text: &str| text.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let have = version.split_whitespace().nth(1).and_then(minor);
    have.zip(minor(env!("CARGO_PKG_RUST_VERSION"))).is_some_and(|(have, wanted)| have >= wanted)
}

/// The linker.
pub(crate) fn linker() -> Result<PathBuf> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(String::from_utf8_lossy(&sysroot).trim()).join("lib/rustlib");
    let hosts = fs::read_dir(libraries)?.filter_map(|entry| Some(entry.ok()?.path()));
    let found = hosts.map(|host| host.join("bin/rust-lld")).find(|lld| lld.exists());
    let found = found.or_else(|| Some(PathBuf::from("/usr/bin/ld.lld")).filter(|lld| lld.exists()));
    found.ok_or_else(|| Failure::new("neither the toolchain's rust-lld nor ld.lld is there"))
}

/// Where the images of a profile are.
pub(crate) fn directory(target: Target, profile: &str) -> Result<PathBuf> {
    Ok(metadata::target_directory()?.join("bare").join(target.triple).join(profile))
}

/// Builds packages of the workspace for a target.
pub(crate) fn build(target: Target, profile: &str, arguments: &[&str]) -> Result {
    cargo("build", target, profile, arguments)
}

/// Runs a command of cargo that builds, `build` or `rustc`.
pub(crate) fn cargo(what: &str, target: Target, profile: &str, arguments: &[&str]) -> Result {
    let linker = linker()?;
    let flags = [SOFT, if profile == FAST { "" } else { SMALL }].concat();
    let variable = |what| format!("CARGO_TARGET_{}_{what}", target.triple.replace('-', "_").to_uppercase());
    let mut command = shell::command(shell::cargo());
    command.args([what, "--locked", "-Zbuild-std=core,alloc"]);
    command.arg("-Zbuild-std-features=optimize_for_size,compiler-builtins-mem");
    command.args(["--profile", profile, "--target", target.triple]).args(arguments);
    command.arg("--target-dir").arg(metadata::target_directory()?.join("bare"));
    // To build core is not for stable cargo and rustc, unless they are told to do as the compiler's own build does.
    command.env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
    command.env(variable("LINKER"), linker).env(variable("RUSTFLAGS"), flags);
    shell::run(&mut command)
}

/// Runs an image and answers what it printed. Fails if the image says so, and after `limit`.
pub(crate) fn boot(target: Target, image: &Path, limit: Duration) -> Result<String> {
    let (program, options) = target.qemu.split_first().ok_or_else(|| Failure::new("nothing to run it on"))?;
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
    Err(Failure::new(format!("{} on {} did not pass:\n{printed}", image.display(), target.name)))
}

/// Whether the program ended well, in time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert!(is_new_enough("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"));
        assert!(!is_new_enough("rustc 1.63.0"));
        assert!(!is_new_enough(""));
    }
}
