//! The peer: `casemate run` in the namespace.

use crate::case::Case;
use casemate_interop::{Background, Error, Netns, Result, run};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);

/// A running gateway.
pub(crate) struct Gateway(Background);

impl Gateway {
    /// Starts it with the case's file; none where the case needs none.
    pub(crate) fn start(
        netns: &Netns,
        case: &Case,
        casemate: &Path,
        directory: &Path,
    ) -> Result<Option<Self>> {
        let Some((option, text)) = case.gateway_file() else { return Ok(None) };
        let file = directory.join("gateway.conf");
        fs::write(&file, text).map_err(Error::in_front(file.display()))?;
        let mut command = netns.command(casemate);
        command.args(["run", option]).arg(&file);
        let mut running = Background::start("casemate", command, &directory.join("gateway.log"))?;
        running.wait_until(LIMIT, |said| said.lines().any(|line| line.trim_end() == "ready"))?;
        Ok(Some(Self(running)))
    }

    /// Waits until there is a Child SA, beginning it if that is the gateway's part.
    pub(crate) fn establish(&mut self, netns: &Netns, case: &Case, casemate: &Path) -> Result<()> {
        if case.gateway_begins() {
            let done = run(netns, LIMIT, casemate, &["initiate", "all"])?;
            if done.status != 0 {
                return Err(Error::new(format!("casemate initiate: {}", done.stdout.trim_end())));
            }
        }
        if case.uses_ike() {
            self.0.wait_until(LIMIT, |said| said.contains("established with firmware"))?;
        }
        Ok(())
    }

    /// Ends it in good order.
    pub(crate) fn stop(self) -> Result<()> {
        let said = self.0.said();
        let status = self.0.stop(LIMIT)?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::new(format!("casemate ended with {status}: {said}")))
        }
    }
}
