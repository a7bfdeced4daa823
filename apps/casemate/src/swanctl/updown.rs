//! The keys `updown` and `hostaccess` of a child: the script that runs when its Child SA comes up and goes
//! down.

use super::schema::Keys;
use super::value::{Parsed, truth};
use casemate_ike::config::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
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

/// The scripts of a configuration, by connection and child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptTable(BTreeMap<String, UpdownScripts>);

impl ScriptTable {
    /// The scripts of these connections, in the same order.
    pub(crate) fn new(connections: &[Arc<Connection>], scripts: Vec<UpdownScripts>) -> Self {
        let of_all = connections.iter().zip(scripts).filter(|(_, scripts)| !scripts.is_empty());
        Self(of_all.map(|(connection, scripts)| (connection.name.clone(), scripts)).collect())
    }

    /// The script of a child.
    pub(crate) fn get(&self, connection: &str, child: &str) -> Option<&UpdownScript> {
        self.0.get(connection)?.get(child)
    }

    /// Every command once.
    pub(crate) fn commands(&self) -> Vec<Arc<str>> {
        let commands = self.0.values().flat_map(BTreeMap::values).map(|script| script.command.clone());
        commands.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The full name of the first key `updown` whose command is not among the known ones.
    pub(crate) fn first_unknown(&self, is_known: impl Fn(&str) -> bool) -> Option<String> {
        let keys = self.0.iter().flat_map(|(name, scripts)| scripts.iter().map(move |one| (name, one)));
        let mut unknown = keys.filter(|(_, (_, script))| !is_known(&script.command));
        unknown.next().map(|(name, (child, _))| format!("connections.{name}.children.{child}.updown"))
    }
}

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
    if let Some(why) = script_fault(&command) {
        keys.warn("updown", &why);
    }
    Some(UpdownScript { command, host_access })
}

/// Why the script of a command cannot be run now. `None` if it can, or if the command does not begin with the
/// whole path of a file.
fn script_fault(command: &str) -> Option<String> {
    let script = command.split(' ').next().filter(|word| word.starts_with('/'))?;
    // What the shell changes is no path.
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@%:,".contains(&byte) || !byte.is_ascii();
    if !script.bytes().all(is_plain) {
        return None;
    }
    match std::fs::metadata(script) {
        Err(error) => Some(format!("{script}: {error}: a script that can be run was expected")),
        Ok(found) if !found.is_file() || found.permissions().mode() & 0o111 == 0 => {
            Some(format!("{script} is not executable: `chmod +x {script}` was expected"))
        }
        Ok(_) => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::TempDir;
    use std::fs::{self, Permissions};

    #[test]
    fn a_script_that_cannot_be_run_is_noticed() {
        let scratch = TempDir::new("updown").unwrap();
        let path = scratch.file("script");
        fs::write(&path, "#!/bin/sh").unwrap();
        let command = format!("{} argument", path.display());
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(script_fault(&command).unwrap().contains("is not executable: `chmod +x /"));
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(script_fault(&command), None);
        assert!(script_fault("/nowhere/script").unwrap().starts_with("/nowhere/script: "));
        for other in ["echo $PLUTO_VERB", "/nowhere/$NAME", "'/nowhere/script'"] {
            assert_eq!(script_fault(other), None, "{other}");
        }
    }
}
