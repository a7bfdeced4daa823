//! The use of name servers of tunnels, from the start of a run on. They are restored from a former run before
//! names are looked up, and the process that changes them starts before the privileges are dropped.

use super::DNS_RUNNER;
use crate::failure::Failure;
use crate::log::Log;
use casemate_linux::dns::{self, DnsHandle, DnsMode};
use casemate_linux::journal::Journal;
use casemate_linux::setup::SystemState;

/// What is configured.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameServersUse {
    mode: DnsMode,
    /// Whether a tunnel may have name servers.
    may_have_some: bool,
}

impl Default for NameServersUse {
    /// None are used.
    fn default() -> Self {
        Self { mode: DnsMode::Off, may_have_some: false }
    }
}

impl NameServersUse {
    /// Uses them in this way, if a tunnel may have some.
    pub(super) const fn new(mode: DnsMode, may_have_some: bool) -> Self {
        Self { mode, may_have_some }
    }

    /// Restores name servers that a former run has changed, and starts the process that changes them in this
    /// run, if there is a need for it. Warnings go to the log.
    pub(super) fn claim(self, journal: &mut Journal, log: &mut Log) -> Result<ClaimedNameServers, Failure> {
        let Self { mode, may_have_some } = self;
        let handle = (may_have_some && mode != DnsMode::Off)
            .then(|| DnsHandle::runner(DNS_RUNNER))
            .transpose()
            .map_err(Failure::failed)?;
        let mut warnings = journal.restore_name_servers();
        if let Some(handle) = &handle {
            journal.use_name_servers(handle.clone());
            // A journal is lost with a reboot, the file is not.
            match dns::restore_former() {
                Ok(warning) => warnings.extend(warning),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        warnings.iter().for_each(|warning| log.warn(warning));
        Ok(ClaimedNameServers { mode, handle })
    }
}

/// The process that changes name servers, if there is one.
pub(super) struct ClaimedNameServers {
    mode: DnsMode,
    handle: Option<DnsHandle>,
}

impl ClaimedNameServers {
    /// Hands the process over to the state of the system.
    pub(super) fn hand_over(self, system: &mut SystemState) {
        system.use_name_servers(self.mode, self.handle);
    }
}
