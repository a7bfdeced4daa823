//! What is measured: tunnels, and what stands beside them for comparison.

mod casemate;
mod forwarder;
mod link;
mod strongswan;
mod wireguard;

use crate::options::Options;
use casemate_interop::{Background, Error, Result};
use casemate_stage::arena::Arena;
use std::path::{Path, PathBuf};

/// Something that carries packets from one end of an arena to the other.
pub(crate) trait Subject {
    /// Its name in tables.
    fn name(&self) -> String;

    /// Starts it at both ends, with files in `directory`, and returns its processes; dropping these ends it.
    fn start(&self, arena: &Arena, directory: &Path) -> Result<Vec<Background>>;
}

/// A subject, or its name and why it is not there.
type Found = std::result::Result<Box<dyn Subject>, (String, Error)>;

/// What is there and selected; and what is selected and left out, with the reason.
pub(crate) fn present(options: &Options, directory: &Path) -> (Vec<Box<dyn Subject>>, Vec<String>) {
    let found: Vec<Found> = casemate::all(&options.common.programs)
        .into_iter()
        .chain(wireguard::all(&options.peers))
        .chain([
            strongswan::find(directory),
            forwarder::find(&options.common.programs),
            Ok(Box::new(link::Link)),
        ])
        .collect();
    let (mut subjects, mut left_out) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Ok(subject) if options.selects(&subject.name()) => subjects.push(subject),
            Err((name, error)) if options.selects(&name) => left_out.push(format!("{name}: {error}")),
            _ => {}
        }
    }
    (subjects, left_out)
}

/// A program that has to be there.
fn program(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() { Ok(path) } else { Err(Error::new(format!("{} is not there", path.display()))) }
}
