//! The image that counts instructions on an emulated Raspberry Pi (verify/bare), and the experiment's test with it.

use crate::bare::{self, ARMV6, FAST};
use crate::failure::{Failure, Result};
use crate::shell;
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "Build the image that counts instructions on an emulated Raspberry Pi
`casemate lab run embedded` runs it under QEMU, where CASEMATE_PI names it (docs/manual/embedded.md). It is built for an ARM1176 without an
operating system, to be fast. With --test it is built as small as the self-test of `no-std`, of which it has most parts, and the experiment's
test is run with it: what it counts is then more.";

const IMAGE: [&str; 6] = ["--package", "casemate-bare", "--features", "image", "--bin", "pi"];
/// That of the self-test.
const SMALL: &str = "device";

/// Builds the image, and tries it if it is told to.
pub(crate) fn run(arguments: &[String]) -> Result {
    if let Some(why) = bare::unavailable() {
        return Err(Failure::new(why));
    }
    match arguments {
        [] => {
            println!("{}", build(FAST)?.display());
            Ok(())
        }
        [option] if option == "--test" => test(build(SMALL)?),
        _ => Err(Failure::new("expected nothing, or --test")),
    }
}

fn build(profile: &str) -> Result<PathBuf> {
    bare::build(ARMV6, profile, &IMAGE)?;
    Ok(bare::directory(ARMV6, profile)?.join("pi"))
}

/// Of the whole workspace, because that is built already where everything is tested.
fn test(image: PathBuf) -> Result {
    let mut command = shell::command(shell::cargo());
    command.args(["test", "--workspace", "--locked", "--test", "pi"]).env("CASEMATE_PI", image);
    shell::run(&mut command)
}
