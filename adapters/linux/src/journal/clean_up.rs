//! Removal of what a dead instance left behind.

use super::{Journal, file_error};
use crate::Error;
use crate::crash_secret;
use crate::instance::Instance;
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::protected_traffic;
use crate::route::RoutingNumbers;
use crate::setup::mark_routes::is_of_mark;
use crate::tun::Tun;
use netlink_packet_route::rule::RuleAttribute;
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// What [`clean_up`] did.
#[derive(Debug)]
pub struct CleanUp {
    /// Changes that were undone, and files that were removed, as text.
    pub removed: Vec<String>,
    /// What could not be removed, or is unknown because the journal is damaged.
    pub problem: Option<Error>,
}

/// Undoes what a dead instance left behind, its guard included, and removes its files. The journal stays if a
/// change cannot be undone, or if lines of it are damaged. An error if the instance is alive; then nothing is
/// changed.
pub fn clean_up(instance: &Instance) -> Result<CleanUp, Error> {
    // An instance that keeps its files in another directory may use this interface.
    let _tun = claim_interface(instance)?;
    let mut journal = Journal::open_damaged(instance, Nft::direct())?;
    let is_lost = journal.finds_unlisted_guard()?;
    if is_lost {
        journal.record_guard()?;
    }
    let listed = journal.entries.clone();
    let mut problem = journal.undo().err();
    if is_lost && problem.is_none() {
        problem = what_may_be_left(instance)?;
    }
    let undone = listed.iter().filter(|undo| !journal.entries.contains(undo));
    let mut removed: Vec<String> = undone.map(ToString::to_string).collect();
    // While the guard stands, its protected traffic must be known.
    if journal.entries.is_empty() {
        let failed = remove_files(instance, &mut removed).err();
        problem = problem.or(failed);
    }
    Ok(CleanUp { removed, problem })
}

/// What a run whose journal is lost may have left, as an error; `None` if there is nothing like that. Another
/// instance or program may own it.
fn what_may_be_left(instance: &Instance) -> Result<Option<Error>, Error> {
    let (mut netlink, mut commands) = (Netlink::open()?, BTreeSet::new());
    for v4 in [true, false] {
        let version = if v4 { "-4" } else { "-6" };
        for rule in netlink.rules(v4)? {
            let table = rule.attributes.iter().find_map(|attribute| match attribute {
                RuleAttribute::Table(table) => Some(*table),
                _ => None,
            });
            let is_ours = |table: &u32| RoutingNumbers::of_table(*table).is_some() || is_of_mark(*table);
            let command = |table| format!("`ip {version} rule del lookup {table}`");
            commands.extend(table.filter(is_ours).map(command));
        }
    }
    for link in netlink.links()?.into_iter().filter(|link| link.name != instance.tun()) {
        if netlink.is_tun(link.index)? {
            commands.insert(format!("`ip link delete {}`", link.name));
        }
    }
    if commands.is_empty() {
        return Ok(None);
    }
    let commands = commands.into_iter().collect::<Vec<_>>().join(", ");
    let reason = format!(
        "the journal of the run that left the guard is lost. These commands remove what else it may have \
         left, unless another instance or program uses it: {commands}"
    );
    Ok(Some(Error::other(instance.journal().display().to_string(), reason)))
}

/// Creates the TUN interface, so that no instance starts with it meanwhile.
fn claim_interface(instance: &Instance) -> Result<Tun, Error> {
    let mut netlink = Netlink::open()?;
    if netlink.index_of(instance.tun())?.is_some() {
        let reason = "an instance with this TUN interface is running in this network namespace, or another \
                      program has an interface of this name: stop it first";
        return Err(Error::other(format!("TUN interface {}", instance.tun()), reason));
    }
    Tun::create(instance.tun(), &mut netlink)
}

/// Removes the files of the instance except its journal, and adds them to `removed`.
fn remove_files(instance: &Instance, removed: &mut Vec<String>) -> Result<(), Error> {
    let traffic = instance.protected_traffic_file();
    // A crash may have left the temporary file.
    let temporary = protected_traffic::temporary_file(&traffic);
    let secret = crash_secret::path_of(instance);
    for path in [instance.control_socket(), traffic, temporary, secret] {
        match std::fs::remove_file(&path) {
            Ok(()) => removed.push(format!("file {}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(&path, error)),
        }
    }
    Ok(())
}
