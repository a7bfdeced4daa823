//! The keys `updown` and `hostaccess` of a child: the script that runs when its Child SA comes up and goes down.

use super::schema::Keys;
use super::value::{Parsed, truth};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Length of the longest command.
const MAX_COMMAND: usize = 1_024;

/// The script of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdownScript {
    /// Command of the shell.
    pub command: Arc<str>,
    /// `hostaccess`: whether the script gets the variable `PLUTO_HOST_ACCESS`.
    pub host_access: bool,
}

/// The scripts of a connection, by the names of its children.
pub type UpdownScripts = BTreeMap<String, UpdownScript>;

/// Reads the keys. strongSwan's own script, which configures the firewall for the kernel's IPsec, is not run.
pub(super) fn read(keys: &Keys<'_>, has_sas: bool) -> Option<UpdownScript> {
    let host_access = keys.get("hostaccess", truth).unwrap_or(false);
    let command = keys.get("updown", command)?;
    if is_strongswans(&command) {
        keys.warn("updown", "this script opens the firewall for the IPsec of the kernel; it is not run");
        return None;
    }
    if !has_sas {
        keys.warn("updown", "this traffic has no Child SA that comes up or goes down, so no script is run");
        return None;
    }
    Some(UpdownScript { command, host_access })
}

fn command(text: &str) -> Parsed<Arc<str>> {
    if text.len() > MAX_COMMAND || text.contains(char::is_control) {
        return Err(format!("a command of at most {MAX_COMMAND} bytes in one line was expected"));
    }
    Ok(text.into())
}

fn is_strongswans(command: &str) -> bool {
    let script = command.split(' ').next().unwrap_or_default();
    script.ends_with("/ipsec/_updown") || script.ends_with("/strongswan/_updown")
}
