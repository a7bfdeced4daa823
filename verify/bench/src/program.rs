//! What the programs of this crate have in common: from the command line to the exit status.

use crate::options::Common;
use casemate_stage::scratch::Scratch;
use casemate_stage::{Error, Result, is_root, sys};
use std::path::Path;
use std::process::ExitCode;

/// CPUs that everything runs on.
pub const CPUS: usize = 2;

/// The command line of a program that connects namespaces.
pub trait Program: Sized {
    /// Its name.
    const NAME: &str;
    /// What `--help` prints.
    const HELP: &str;

    /// Reads the words after the program's name.
    fn parse(words: impl Iterator<Item = String>) -> Result<Self>;

    /// The options that every program has.
    fn common(&self) -> &Common;

    /// Measures, with files in this directory, which is gone afterwards. Answers whether everything is as wanted.
    fn start(&self, directory: &Path) -> Result<bool>;
}

/// Runs a program.
pub fn run<P: Program>() -> ExitCode {
    match P::parse(std::env::args().skip(1)).and_then(|program| prepare(&program)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}: {error}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

fn prepare<P: Program>(program: &P) -> Result<bool> {
    if program.common().help {
        print!("{}", P::HELP);
        return Ok(true);
    }
    if !is_root() {
        return Err(Error::new("namespaces that are connected need root"));
    }
    sys::stay_on_cpus(CPUS).map_err(Error::in_front("CPU affinity"))?;
    let scratch = Scratch::new(P::NAME)?;
    program.start(scratch.path())
}
