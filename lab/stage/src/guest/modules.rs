//! The kernel modules of the guest, in the order to load them.

use crate::{Error, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What every guest wants; what these need comes with them, and what is built in is left out.
const WANTED: &[&str] = &[
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

/// A module, ready to be loaded.
pub(super) struct Module {
    /// File name.
    pub(super) name: String,
    /// Content, not compressed.
    pub(super) content: Vec<u8>,
}

/// Every module of the kernel `version` unpacked below `root`, and these, each after those that it needs.
pub(super) fn in_order(root: &Path, version: &str, more: &[String]) -> Result<Vec<Module>> {
    // A kernel that is installed has it; a package that was only unpacked has not.
    if !root.join("lib/modules").join(version).join("modules.dep").exists() {
        run(Command::new("/sbin/depmod").arg("-b").arg(root).arg(version))?;
    }
    let mut paths: Vec<String> = Vec::new();
    for name in WANTED.iter().copied().chain(more.iter().map(String::as_str)) {
        let mut command = Command::new("/sbin/modprobe");
        command.args(["--show-depends", "-S", version, "-d"]).arg(root).arg(name);
        // A later kernel may have it built in, or under another name; what then is missing fails its cases by name.
        for line in run(&mut command).unwrap_or_default().lines() {
            let path = line.strip_prefix("insmod ").map(|path| path.trim().to_owned());
            paths.extend(path.filter(|path| !paths.contains(path)));
        }
    }
    paths.iter().map(|path| load(Path::new(path))).collect()
}

fn load(path: &Path) -> Result<Module> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let content = match path.extension().and_then(|extension| extension.to_str()) {
        // From Debian 13 on modules are compressed.
        Some("xz") => run_bytes(Command::new("xz").args(["--decompress", "--stdout"]).arg(path))?,
        _ => fs::read(path).map_err(Error::in_front(path.display()))?,
    };
    Ok(Module { name: format!("{}.ko", name.trim_end_matches(".ko")), content })
}

fn run(command: &mut Command) -> Result<String> {
    run_bytes(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a command that has to succeed and returns what it printed.
pub(super) fn run_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().map_err(Error::in_front(format!("{command:?}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::new(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())))
}
