//! The tunnels that Casemate is compared with: installed or built where that is possible, below `target/peers`. Nothing of the
//! product depends on them.

use crate::failure::Result;
use crate::{packages, shell};
use std::fs;
use std::path::Path;

/// wireguard-go's module; its newest version is measured.
const WIREGUARD_GO: &str = "golang.zx2c4.com/wireguard@latest";
/// Where Go is if it is not in PATH.
const GO: &str = "/usr/local/go/bin/go";
/// Packages of programs in Rust.
const CRATES: [&str; 2] = ["boringtun-cli", "gotatun-cli"];

/// Gets all of them, the newest versions. What cannot be had is said, and left out of the comparison.
pub(super) fn fetch(directory: &Path) -> Result {
    fs::create_dir_all(directory)?;
    let installed = packages::install_for_tunnels();
    let wireguard = wireguard_go(directory);
    let crates = CRATES.map(|name| {
        // Its lock file, so that what is measured is what its authors tested.
        let install = ["install", "--quiet", "--locked", name, "--root"];
        shell::run(shell::command(shell::cargo()).args(install).arg(directory))
    });
    for outcome in [installed, wireguard].into_iter().chain(crates) {
        if let Err(failure) = outcome {
            eprintln!("xtask: {failure}");
        }
    }
    Ok(())
}

fn wireguard_go(directory: &Path) -> Result {
    let go = if Path::new(GO).is_file() { GO } else { "go" };
    let mut command = shell::command(go);
    // The compiler that is there, and modules that can be removed.
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-modcacherw").env("GOBIN", directory.join("bin"));
    shell::run(command.args(["install", WIREGUARD_GO]))
}
