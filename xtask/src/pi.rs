//! The image that counts instructions on an emulated Raspberry Pi (verify/bare), and the experiment's test with it.

use crate::bare::{self, ARMV6};
use crate::failure::{Failure, Result};
use crate::shell;
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "Build the image that counts instructions on an emulated Raspberry Pi
`casemate lab run embedded` runs it under QEMU, where CASEMATE_PI names it (docs/manual/embedded.md). It is built for an ARM1176 without an
operating system, as `no-std` builds the self-test. With --test the experiment's test of it is run.";

const IMAGE: [&str; 6] = ["--package", "casemate-bare", "--features", "image", "--bin", "pi"];
const PROFILE: &str = "device";

/// Builds the image, and tries it if it is told to.
pub(crate) fn run(arguments: &[String]) -> Result {
    let tries = match arguments {
        [] => false,
        [option] if option == "--test" => true,
        _ => return Err(Failure::new("expected nothing, or --test")),
    };
    if let Some(why) = bare::unavailable() {
        return Err(Failure::new(why));
    }
    let image = build()?;
    if !tries {
        return Ok(());
    }
    let mut command = shell::command(shell::cargo());
    command.args(["test", "--locked", "--package", "casemate-lab", "--test", "pi"]).env("CASEMATE_PI", image);
    shell::run(&mut command)
}

fn build() -> Result<PathBuf> {
    bare::build(ARMV6, PROFILE, &IMAGE)?;
    let image = bare::directory(ARMV6, PROFILE)?.join("pi");
    println!("{}", image.display());
    Ok(image)
}
