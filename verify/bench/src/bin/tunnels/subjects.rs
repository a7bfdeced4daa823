//! Measured subjects: tunnels, and references to compare them with.

mod ipsec;
mod wireguard;

use crate::Options;
use casemate_interop::{Background, Error, Result};
use casemate_testbed::gateway::START_TIMEOUT;
use casemate_testbed::veth_pair::{LINK_ADDRS, VethPair};
use std::path::{Path, PathBuf};

/// Connection between the two ends of a testbed.
pub(crate) trait Subject {
    /// Name in tables.
    fn name(&self) -> String;

    /// Starts the subject at both ends, with files in `directory`. Returns its processes; dropping them
    /// ends it.
    fn start(&self, arena: &VethPair, directory: &Path) -> Result<Vec<Background>>;
}

/// Subject, or its name and the reason why it is not available.
type Candidate = std::result::Result<Box<dyn Subject>, (String, Error)>;

/// Available subjects that the filters select, and the selected ones that are not available, with the
/// reason.
pub(crate) fn available(options: &Options, directory: &Path) -> (Vec<Box<dyn Subject>>, Vec<String>) {
    let candidates: Vec<Candidate> = ipsec::casemate_subjects(&options.common.programs)
        .into_iter()
        .chain(wireguard::all(&options.peers))
        .chain([
            ipsec::find_strongswan(directory),
            find_forwarder(&options.common.programs),
            Ok(Box::new(Link)),
        ])
        .collect();
    let (mut subjects, mut skipped) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match candidate {
            Ok(subject) if options.selects(&subject.name()) => subjects.push(subject),
            Err((name, error)) if options.selects(&name) => skipped.push(format!("{name}: {error}")),
            _ => {}
        }
    }
    (subjects, skipped)
}

/// Checks that a program exists.
fn program(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() { Ok(path) } else { Err(Error::new(format!("{} does not exist", path.display()))) }
}

const FORWARDER: &str = "forwarder";
const FORWARDER_INTERFACE: &str = "forwarder0";
const FORWARDER_PORT: u16 = 4_500;

struct Forwarder(PathBuf);

fn find_forwarder(programs: &Path) -> Candidate {
    match program(programs.join(FORWARDER)) {
        Ok(program) => Ok(Box::new(Forwarder(program))),
        Err(error) => Err((FORWARDER.into(), error)),
    }
}

impl Subject for Forwarder {
    fn name(&self) -> String {
        FORWARDER.into()
    }

    fn start(&self, arena: &VethPair, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let mut command = arena.ends[end].command(&self.0);
            command.arg(FORWARDER_INTERFACE).args(
                [LINK_ADDRS[end], LINK_ADDRS[1 - end]].map(|address| format!("{address}:{FORWARDER_PORT}")),
            );
            let mut process = Background::start(FORWARDER, command, &directory.join(format!("{end}")))?;
            process.wait_until(START_TIMEOUT, |said| said.contains("ready"))?;
            arena.route_via_interface(end, FORWARDER_INTERFACE)?;
            Ok(process)
        };
        [0, 1].into_iter().map(start).collect()
    }
}

struct Link;

impl Subject for Link {
    fn name(&self) -> String {
        "link".into()
    }

    fn start(&self, arena: &VethPair, _: &Path) -> Result<Vec<Background>> {
        [0, 1].into_iter().try_for_each(|end| arena.route_via_link(end))?;
        Ok(Vec::new())
    }
}
