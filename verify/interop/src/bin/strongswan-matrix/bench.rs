//! Runs cases: namespaces, peers and files of its own for each, and what a failed case leaves behind.

use crate::arena::Arena;
use crate::casemate::Casemate;
use crate::cases::Case;
use crate::options::{Left, Options};
use crate::path::Path;
use crate::peer::Peer;
use crate::pki::Pki;
use crate::side::Side;
use crate::strongswan::{Programs, StrongSwan};
use casemate_interop::{Error, Result};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Of the directory of a run; its process number follows.
const PREFIX: &str = "casemate-strongswan.";
/// Lines of each log that are shown when a case fails.
const TAIL: usize = 12;

/// What all cases share.
pub(crate) struct Bench<'o> {
    options: &'o Options,
    directory: PathBuf,
    programs: Arc<Programs>,
    pki: Arc<Pki>,
}

impl<'o> Bench<'o> {
    /// Prepares a directory for this run. It is below /tmp because the path of a Unix socket has to be short.
    pub(crate) fn new(options: &'o Options) -> Result<Self> {
        let temporary = std::env::temp_dir();
        remove_stale(&temporary);
        let directory = temporary.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let programs = Programs::copy_to(&directory.join("programs"))?;
        let pki = Pki::new(directory.join("pki"))?;
        Ok(Self { options, directory, programs: Arc::new(programs), pki: Arc::new(pki) })
    }

    /// Runs one case and says how it went.
    pub(crate) fn run(&self, case: &Case) -> Result<String> {
        let directory = self.directory.join(file_name(&case.name));
        fs::create_dir_all(&directory).map_err(Error::in_front(directory.display()))?;
        let mut logs = [String::new(), String::new()];
        let outcome = self.run_in(case, &directory, &mut logs);
        let keep = match (&outcome, &self.options.keep) {
            (_, Some(keep)) => Some(keep),
            (Err(_), None) => Some(&self.options.failures),
            (Ok(_), None) => None,
        };
        let kept = keep.map(|keep| keep.join(file_name(&case.name)));
        if let Some(kept) = &kept {
            move_files(&directory, kept)?;
        }
        // What is left goes with the directory of the run.
        let _ = fs::remove_dir_all(&directory);
        outcome.map_err(|error| explain(&error, &logs, kept))
    }

    fn run_in(&self, case: &Case, directory: &std::path::Path, logs: &mut [String; 2]) -> Result<String> {
        let path = Path::new()?;
        let peers = Side::BOTH.map(|side| self.peer(side, &path, directory));
        let mut arena = Arena::new(path, case.plan.clone(), peers, self.options.probe.clone(), directory)?;
        let outcome = arena.start().and_then(|()| (case.script)(&mut arena));
        *logs = arena.logs();
        let wire = arena.stop();
        let said = outcome?;
        wire?.demand_no_clear_text(case.is_encrypted)?;
        Ok(said)
    }

    fn peer(&self, side: Side, path: &Path, directory: &std::path::Path) -> Box<dyn Peer> {
        let (netns, directory) = (path.end(side), directory.join(side.name()));
        match (side, &self.options.left) {
            (Side::Left, Left::Casemate(program)) => {
                Box::new(Casemate::new(netns, program.clone(), self.pki.clone(), directory))
            }
            _ => Box::new(StrongSwan::new(netns, self.programs.clone(), self.pki.clone(), directory)),
        }
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // A leftover directory hurts nobody.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes what runs left behind that were killed.
fn remove_stale(temporary: &std::path::Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.is_some_and(|process| !std::path::Path::new("/proc").join(process).exists()) {
            // It may be somebody else's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn file_name(case: &str) -> String {
    case.replace('/', "_")
}

/// Moves the files of a case to where they are kept, below another file system perhaps.
fn move_files(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    // Of an earlier run.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).map_err(Error::in_front(to.display()))?;
    for entry in fs::read_dir(from).map_err(Error::in_front(from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::in_front(source.display()))?;
        if kind.is_dir() {
            move_files(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(Error::in_front(source.display()))?;
        }
    }
    Ok(())
}

/// The error with the last lines of both logs, and where the rest is.
fn explain(error: &Error, logs: &[String; 2], kept: Option<PathBuf>) -> Error {
    let mut text = error.to_string();
    for (side, log) in Side::BOTH.into_iter().zip(logs) {
        // Keys, their bytes and the harness's own questions are for the files.
        let is_noise = |line: &&str| [": ", "=> ", "vici client"].iter().any(|noise| line.contains(noise));
        let lines: Vec<&str> = log.lines().filter(|line| !is_noise(line)).collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default();
        text.push_str(&format!("\n      --- {}\n      {}", side.name(), tail.join("\n      ")));
    }
    if let Some(kept) = kept {
        text.push_str(&format!("\n      --- all files: {}", kept.display()));
    }
    Error::new(text)
}
