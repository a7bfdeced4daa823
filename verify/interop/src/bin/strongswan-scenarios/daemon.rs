//! Daemon of a host: charon or Casemate. `swanctl` controls both through vici.

use crate::network::Network;
use casemate_interop::{Background, Charon, Error, Listing, Netns, Result, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(8);
const DRY_RUN_LIMIT: Duration = Duration::from_secs(20);
/// Limit in seconds for `swanctl` to wait for an SA.
const SA_LIMIT: &str = "8";

/// Implementation that a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Charon,
    Casemate,
}

/// Programs of both implementations.
pub(crate) struct Programs {
    pub(crate) charon: Charon,
    /// Root directory of charon, if it is not that of this machine.
    pub(crate) root: Option<PathBuf>,
    pub(crate) casemate: PathBuf,
}

/// Running daemon.
pub(crate) struct Daemon {
    role: Role,
    directory: PathBuf,
    process: Background,
}

impl Daemon {
    /// Starts the daemon of a host and loads its configuration, which is in `directory`.
    pub(crate) fn start(
        programs: &Programs,
        network: &Network,
        host: &str,
        role: Role,
        directory: &Path,
    ) -> Result<Self> {
        let netns = network.netns(host)?;
        let root = programs.root.as_deref().filter(|_| role == Role::Charon);
        let wrapper = network.names().wrapper(host, root);
        let process = match role {
            Role::Charon => {
                let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
                let process = programs.charon.launch(netns, &wrapper, directory)?;
                // Some scenarios contain what charon does not load; their expectations decide.
                let output = programs.charon.swanctl(netns, directory, &["--load-all", "--noprompt"])?;
                let loaded = directory.join("loaded");
                fs::write(&loaded, output.stdout).map_err(Error::context(loaded.display()))?;
                process
            }
            Role::Casemate => start_casemate(&programs.casemate, netns, &wrapper, directory)?,
        };
        Ok(Self { role, directory: directory.into(), process })
    }

    /// Implementation that runs.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Initiates a Child SA and waits for the result. The expectations decide whether it had to succeed.
    pub(crate) fn initiate(
        &self,
        programs: &Programs,
        netns: &Netns,
        connection: Option<&str>,
        child: &str,
    ) -> Result<()> {
        let mut arguments = vec!["--initiate", "--child", child, "--timeout", SA_LIMIT];
        arguments.extend(connection.into_iter().flat_map(|connection| ["--ike", connection]));
        programs.charon.swanctl(netns, &self.directory, &arguments).map(drop)
    }

    /// Runs `swanctl` with these arguments. It must succeed.
    pub(crate) fn command(&self, programs: &Programs, netns: &Netns, arguments: &[String]) -> Result<()> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = programs.charon.swanctl(netns, &self.directory, &arguments)?;
        if output.status != 0 {
            return Err(Error::new(format!("status {}: {}", output.status, output.stdout.trim_end())));
        }
        Ok(())
    }

    /// Returns the SAs.
    pub(crate) fn sas(&self, programs: &Programs, netns: &Netns) -> Result<Listing> {
        let output = programs.charon.swanctl(netns, &self.directory, &["--list-sas", "--pretty"])?;
        if output.status != 0 {
            return Err(Error::new(format!("swanctl --list-sas: {}", output.stdout.trim_end())));
        }
        Ok(Listing::parse(&output.stdout))
    }

    /// Ends the daemon. Casemate must end with status 0.
    pub(crate) fn stop(self) -> Result<()> {
        let status = self.process.stop(STOP_LIMIT)?;
        if status.success() || self.role == Role::Charon {
            return Ok(());
        }
        Err(Error::new(format!("casemate ended with {status}")))
    }
}

fn start_casemate(program: &Path, netns: &Netns, wrapper: &[String], directory: &Path) -> Result<Background> {
    let (first, rest) = wrapper.split_first().ok_or_else(|| Error::new("no wrapper"))?;
    let mut command = netns.command(first);
    command.args(rest).arg(program).args(["run", "--config"]).arg(directory.join("swanctl.conf"));
    command.arg("--vici").arg(directory.join("charon.vici"));
    let mut process = Background::start("casemate", command, &directory.join("log"))?;
    process.wait_until(START_LIMIT, |output| output.lines().any(|line| line.trim_end() == "ready"))?;
    Ok(process)
}

/// Returns the reason why Casemate refuses the configuration in `directory`; `None` if it accepts it.
pub(crate) fn refusal(programs: &Programs, netns: &Netns, directory: &Path) -> Result<Option<String>> {
    let file = directory.join("swanctl.conf").display().to_string();
    let output = run(netns, DRY_RUN_LIMIT, &programs.casemate, &["run", "--dry-run", "--config", &file])?;
    if output.status == 0 {
        return Ok(None);
    }
    let directory = format!("{}/", directory.display());
    let errors = output.stdout.lines().filter(|line| line.contains(&directory) && !line.contains("warning"));
    let mut reasons: Vec<String> = errors.map(|line| reason(line, &directory)).collect();
    reasons.sort();
    reasons.dedup();
    if reasons.is_empty() {
        reasons.extend(output.stdout.lines().last().map(Into::into));
    }
    Ok(Some(reasons.join("; ")))
}

/// Returns the text of an error without the path and the line of the file. Of the names of sections and the
/// key, only the key remains, so that the same reason appears once.
fn reason(line: &str, directory: &str) -> String {
    let (_, place) = line.split_once(directory).unwrap_or(("", line));
    let place = place.replace(directory, "");
    let reason = match place.split_once(": ") {
        Some((file, reason)) if file.starts_with("swanctl.conf:") => reason,
        _ => return place,
    };
    let (path, rest) = reason.split_once(": ").unwrap_or(("", reason));
    let key = path.rsplit('.').next().unwrap_or(path);
    format!("{key}: {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_no_paths() {
        let line = "error: /tmp/x/moon/swanctl.conf:12: connections.a.children.b.mark_in: `10`: no marks";
        assert_eq!(reason(line, "/tmp/x/moon/"), "mark_in: `10`: no marks");
        assert_eq!(reason("/tmp/x/moon/x509ac: no folder", "/tmp/x/moon/"), "x509ac: no folder");
        let line = "error: /tmp/x.1/moon/swanctl.conf:1: /tmp/x.1/moon/x509ac: no folder";
        assert_eq!(reason(line, "/tmp/x.1/moon/"), "x509ac: no folder");
    }
}
