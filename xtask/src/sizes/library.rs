//! The C library for lwIP: what of it stays in an image that calls the functions of some of its headers.
//!
//! The linker gets these functions as the only ones that are called, and drops what they do not need: that is what the library
//! adds to a program in C. The program, lwIP and the files of `adapters/lwip/c` are not there, and nothing is run.

use crate::bare::{self, Target};
use crate::failure::{Failure, Result};
use crate::shell;
use std::fs;
use std::path::PathBuf;

const BUILD: [&str; 5] = ["--package", "casemate-lwip", "--lib", "--crate-type", "staticlib"];
const HEADERS: &str = "adapters/lwip/include";
/// What the application has, and the library calls.
const OF_THE_APPLICATION: &str = "casemate_panic";

/// Builds the library for a target.
pub(crate) fn build(target: Target, profile: &str) -> Result {
    bare::cargo("rustc", target, profile, &BUILD)
}

/// Links it under this name, with every function of these headers called.
pub(crate) fn link(target: Target, profile: &str, name: &str, headers: &[&str]) -> Result<PathBuf> {
    let directory = bare::directory(target, profile)?;
    let image = directory.join(name);
    let mut command = shell::command(bare::linker()?);
    command.args(["-flavor", "gnu", "--gc-sections", "--icf=all", "--entry=0", "--defsym"]);
    command.arg(format!("{OF_THE_APPLICATION}=0"));
    for header in headers {
        let text = fs::read_to_string(shell::root().join(HEADERS).join(header))?;
        let called = functions(&text);
        if called.is_empty() {
            return Err(Failure::new(format!("{header} declares no function")));
        }
        command.args(called.iter().map(|function| format!("--undefined={function}")));
    }
    shell::run(command.arg("-o").arg(&image).arg(directory.join("libcasemate_lwip.a")))?;
    Ok(image)
}

/// The functions that a header declares, but for the application's own.
fn functions(header: &str) -> Vec<&str> {
    let declarations =
        header.lines().filter(|line| line.ends_with(';') && line.starts_with(char::is_alphabetic));
    let named = declarations.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        before.rsplit([' ', '*']).next()
    });
    named.filter(|name| name.starts_with("casemate_") && *name != OF_THE_APPLICATION).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_header() {
        let header = "/* casemate_x(); */\n\
                      typedef void (*casemate_fn)(void *context);\n\
                      struct casemate_host;\n\
                      const char *casemate_strerror(int32_t code);\n\
                      size_t casemate_memory_free(void);\n\
                      void casemate_panic(const char *file, uint32_t line);\n";
        assert_eq!(functions(header), ["casemate_strerror", "casemate_memory_free"]);
    }
}
