//! Interoperability: Casemate against a Linux kernel under QEMU (verify/interop).

use crate::failure::Result;
use crate::{metadata, shell};

pub(crate) const ABOUT: &str = "Run the kernel matrix: Casemate against a Linux kernel (verify/interop)
Builds Casemate and the matrix, boots Debian's cloud kernel under QEMU and talks to it through every suite, mode and IP
version. FILTER picks cases by parts of their names, all of which must match: `cargo xtask interop esp tunnel v6`.
Options: --list names the cases, --show prints their `ip xfrm` lines, --peer kernel puts a second kernel in Casemate's
place and so checks the matrix itself. The Debian packages it needs are installed by `cargo xtask test`.";

/// Builds and runs the matrix.
pub(crate) fn run(arguments: &[String]) -> Result {
    let mut build = vec!["build", "--package", "casemate-interop", "--bins"];
    // A kernel against a kernel needs no Casemate, and shows whether the fault is ours when Casemate fails.
    if !arguments.windows(2).any(|pair| pair == ["--peer", "kernel"]) {
        build.extend(["--package", "casemate-app"]);
    }
    shell::run_cargo(&build)?;
    shell::run(shell::command(metadata::target_directory()?.join("debug/kernel-matrix")).args(arguments))
}

/// Whether the guest's kernel is there already, so that apt-get is not needed for it.
pub(crate) fn has_kernel() -> bool {
    metadata::target_directory().is_ok_and(|target| target.join("interop/kernel").exists())
}

/// Why the matrix cannot run here, if so.
pub(crate) fn unavailable() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("the guest is an x86-64 Linux");
    }
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return Some("/dev/net/tun cannot be opened");
    }
    let root = shell::succeeds(shell::command("unshare").args(["--net", "true"]));
    let user =
        shell::succeeds(shell::command("unshare").args(["--user", "--map-root-user", "--net", "true"]));
    (!root && !user)
        .then_some("network namespaces cannot be made, neither as root nor through a user namespace")
}
