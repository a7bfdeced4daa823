//! Every test of the project, with the packages that they need.

use crate::failure::Result;
use crate::stages::Stages;
use crate::{fuzz, interop, packages, shell};

pub(crate) const ABOUT: &str = "Run every test, installing the Debian packages that they need
As root, or through sudo where it asks for no password, missing packages are installed by apt-get, saying so. What
cannot run on this machine is named with the reason. Then: `cargo test --workspace`, the kernel matrix (interop) and a
smoke run of the fuzz targets.";

/// Runs the tests.
pub(crate) fn run(_: &[String]) -> Result {
    let mut stages = Stages::new();
    add_to(&mut stages);
    stages.finish()
}

/// Runs the tests as stages of a longer run.
pub(crate) fn add_to(stages: &mut Stages) {
    let packages = packages::install();
    stages.run("test: workspace", || shell::run_cargo(&["test", "--workspace", "--locked"]));
    match packages.and_then(|()| interop::unavailable().map_or(Ok(()), |why| Err(why.into()))) {
        Ok(()) => stages.run("test: kernel matrix", || interop::run(&[])),
        Err(why) => stages.left_out("test: kernel matrix", &why),
    }
    match fuzz::unavailable() {
        None => stages.run("test: fuzz smoke", || fuzz::run(&["--smoke".into()])),
        Some(why) => stages.left_out("test: fuzz smoke", why),
    }
}
