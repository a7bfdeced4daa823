//! Kernel modules of the guest, in load order.

use crate::{Error, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Modules that every guest loads, besides their dependencies. Built-in modules are skipped.
const BASE_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "xfrm_user",
    "esp4",
    "esp6",
    "ah4",
    "ah6",
    "drbg",
    "authenc",
    "authencesn",
    "echainiv",
    "seqiv",
    "ecb",
    "ctr",
    "gcm",
    "ccm",
    "cmac",
    "xcbc",
    "crypto_null",
    "des_generic",
    "sha512_generic",
    "chacha_generic",
    "poly1305_generic",
    "chacha20poly1305",
    "ghash_generic",
];

/// A kernel module.
pub(super) struct Module {
    /// File name.
    pub(super) name: String,
    /// Uncompressed content.
    pub(super) content: Vec<u8>,
}

/// Returns the modules of every guest and `more`, for the kernel `version` below `root`, each after its
/// dependencies.
pub(super) fn in_load_order(root: &Path, version: &str, more: &[String]) -> Result<Vec<Module>> {
    // An installed kernel has modules.dep; a package that was only unpacked does not.
    if !root.join("lib/modules").join(version).join("modules.dep").exists() {
        run(Command::new("/sbin/depmod").arg("-b").arg(root).arg(version))?;
    }
    let mut paths: Vec<String> = Vec::new();
    for name in BASE_MODULES.iter().copied().chain(more.iter().map(String::as_str)) {
        let mut command = Command::new("/sbin/modprobe");
        command.args(["--show-depends", "-S", version, "-d"]).arg(root).arg(name);
        // A newer kernel may have the module built in or renamed. If it is missing, the test cases that need
        // it fail and name it.
        for line in run(&mut command).unwrap_or_default().lines() {
            let path = line.strip_prefix("insmod ").map(|path| path.trim().to_owned());
            paths.extend(path.filter(|path| !paths.contains(path)));
        }
    }
    paths.iter().map(|path| read_module(Path::new(path))).collect()
}

fn read_module(path: &Path) -> Result<Module> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let content = match path.extension().and_then(|extension| extension.to_str()) {
        // Modules are compressed since Debian 13.
        Some("xz") => run_bytes(Command::new("xz").args(["--decompress", "--stdout"]).arg(path))?,
        _ => fs::read(path).map_err(Error::context(path.display()))?,
    };
    Ok(Module { name: format!("{}.ko", name.trim_end_matches(".ko")), content })
}

fn run(command: &mut Command) -> Result<String> {
    run_bytes(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command that must succeed and returns its standard output.
pub(super) fn run_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(Error::context(format!("{command:?}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}
