//! `casemate run` with keys from a file.

use casemate_stage::arena::Arena;
use casemate_stage::gateway::Gateway;
use casemate_stage::{Background, Error, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Starts the gateway of one end with the lines of `text`, which are for `ip xfrm`, and more arguments.
pub(crate) fn start(
    gateway: &Gateway,
    arena: &Arena,
    end: usize,
    text: &str,
    more: &[&str],
    scratch: &Path,
) -> Result<Background> {
    let counters = scratch.join(format!("counters{end}"));
    // Numbers that were used before have nothing to say to this one's keys; a file that is not there is right.
    let _ = fs::remove_file(&counters);
    let own: [OsString; 4] =
        ["--xfrm".into(), write(end, text, scratch)?.into(), "--counters".into(), counters.into()];
    gateway.run(arena, end, own.into_iter().chain(more.iter().map(Into::into)), scratch)
}

/// Writes the file of one end.
pub(crate) fn write(end: usize, text: &str, scratch: &Path) -> Result<PathBuf> {
    let file = scratch.join(format!("{end}.xfrm"));
    fs::write(&file, text).map_err(Error::in_front(file.display()))?;
    Ok(file)
}
