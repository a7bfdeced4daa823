//! Lengths of files: a file that cannot be read in one sitting holds more than one subject.

use crate::failure::{Failure, Result};
use crate::{shell, sources};

pub(crate) const ABOUT: &str = "Check that source files stay short enough to read
Lines of every .rs file, tests not counted: more than 400 are named, more than 800 fail.";

const WARN: usize = 400;
const FAIL: usize = 800;

/// Runs the check.
pub(crate) fn run(_: &[String]) -> Result {
    let sources = sources::walk(&shell::root())?;
    let mut too_long = Vec::new();
    for source in &sources {
        let lines = source.shipped.len();
        let finding = format!("{}: {lines} lines", source.path.display());
        if lines > FAIL {
            too_long.push(finding);
        } else if lines > WARN {
            println!("warning: {finding}, aim for {WARN}");
        }
    }
    Failure::unless_empty(&too_long, &format!("files of more than {FAIL} lines; split them by subject"))?;
    println!("{} source files, none above {FAIL} lines", sources.len());
    Ok(())
}
