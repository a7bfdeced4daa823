//! The yardstick: a tunnel without a cipher (`src/bin/forwarder`).

use super::{Found, Subject, program};
use casemate_interop::{Background, Result};
use casemate_stage::arena::{Arena, WIRE};
use casemate_stage::gateway::START_LIMIT;
use std::path::{Path, PathBuf};

const NAME: &str = "forwarder";
const INTERFACE: &str = "forwarder0";
const PORT: u16 = 4_500;

struct Forwarder(PathBuf);

pub(super) fn find(programs: &Path) -> Found {
    match program(programs.join(NAME)) {
        Ok(program) => Ok(Box::new(Forwarder(program))),
        Err(error) => Err((NAME.into(), error)),
    }
}

impl Subject for Forwarder {
    fn name(&self) -> String {
        NAME.into()
    }

    fn start(&self, arena: &Arena, directory: &Path) -> Result<Vec<Background>> {
        let start = |end: usize| {
            let mut command = arena.ends[end].command(&self.0);
            command
                .arg(INTERFACE)
                .args([WIRE[end], WIRE[1 - end]].map(|address| format!("{address}:{PORT}")));
            let mut process = Background::start(NAME, command, &directory.join(format!("{end}")))?;
            process.wait_until(START_LIMIT, |said| said.contains("ready"))?;
            arena.route_into(end, INTERFACE)?;
            Ok(process)
        };
        [0, 1].into_iter().map(start).collect()
    }
}
