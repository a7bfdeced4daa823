//! Changes that can be undone, and their lines in a journal.

use super::Journal;
use super::contents::UNDONE;
use crate::dns::{DnsHandle, DnsTarget};
use crate::netfilter::Netfilter;
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::route::{self, RoutingNumbers, Rule};
use crate::setup::mark_routes;
use crate::{Error, leak_guard};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A change that can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Remove a rule.
    Rule(Rule),
    /// Remove the routes of a table that lead into a TUN interface, or past the table.
    Routes {
        /// The table.
        table: u32,
        /// Name of the TUN interface.
        tun: String,
    },
    /// Remove the rules that lead into the table of a mark, and its routes.
    MarkTable {
        /// The table.
        table: u32,
    },
    /// Restore a kernel parameter.
    Sysctl {
        /// Path below /proc/sys/.
        name: String,
        /// Former value.
        value: String,
    },
    /// Remove the packet filter of a TUN interface.
    Guard {
        /// Name of the TUN interface.
        tun: String,
    },
    /// Remove the interface of a route-based tunnel, if it still has this index.
    Tunnel {
        /// Name of the interface.
        name: String,
        /// Index of the interface, which the kernel gives to no other one as long as the namespace exists.
        index: u32,
    },
    /// Restore the name servers of this host.
    NameServers(DnsTarget),
}

impl Undo {
    /// Whether both undo the same change. For a kernel parameter the oldest value counts.
    pub(super) fn is_same_change(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl { name, .. }, Self::Sysctl { name: other, .. }) => name == other,
            _ => self == other,
        }
    }

    pub(super) fn run(&self, netlink: &mut Netlink, nft: &Nft, dns: &DnsHandle) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => {
                let failed = |error| Error::new(format!("removal of `{rule}`"), error);
                rule.remove(netlink).or_else(ignore_missing).map_err(failed)
            }
            Self::Routes { table, tun } => {
                // The routes into an interface are removed with it.
                let index = netlink.index_of(tun)?;
                route::clear(*table, index, &HashSet::new(), netlink)
            }
            Self::MarkTable { table } => mark_routes::clear(*table, netlink),
            Self::Sysctl { name, value } => std::fs::write(sysctl_path(name), value)
                .or_else(ignore_missing)
                .map_err(|error| Error::new(format!("/proc/sys/{name}"), error)),
            // Another program may have renamed it: the index identifies it.
            Self::Tunnel { name, index }
                if netlink.index_of(name)? != Some(*index) && !is_renamed_tun(*index, netlink)? =>
            {
                Ok(())
            }
            Self::Tunnel { name, index } => {
                let failed = |error| Error::new(format!("removal of interface {name}"), error);
                netlink.remove_link(*index).or_else(ignore_missing).map_err(failed)
            }
            Self::NameServers(target) => target.restore(dns).map(drop),
            Self::Guard { tun } if !has_guard(tun)? => Ok(()),
            Self::Guard { tun } => nft.run(&format!("delete table inet {}\n", leak_guard::table_name(tun))),
        }
    }
}

/// Whether there is a TUN interface with this index.
fn is_renamed_tun(index: u32, netlink: &mut Netlink) -> Result<bool, Error> {
    match netlink.is_tun(index) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        is_tun => is_tun,
    }
}

/// The file of a kernel parameter.
pub(crate) fn sysctl_path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(Rule { v4, numbers: RoutingNumbers { mark, table, priority } }) => {
                write!(f, "rule {} {mark} {table} {priority}", if *v4 { 4 } else { 6 })
            }
            Self::Routes { table, tun } => write!(f, "routes {table} {tun}"),
            Self::MarkTable { table } => write!(f, "mark-table {table}"),
            Self::Sysctl { name, value } => write!(f, "sysctl {name} {value}"),
            Self::Guard { tun } => write!(f, "guard {tun}"),
            Self::Tunnel { name, index } => write!(f, "tunnel {name} {index}"),
            Self::NameServers(DnsTarget { method, tun }) => write!(f, "name-servers {method} {tun}"),
        }
    }
}

/// The line is not a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseUndoError;

impl FromStr for Undo {
    type Err = ParseUndoError;

    /// Accepts only what [`Display`](fmt::Display) writes.
    fn from_str(line: &str) -> Result<Self, ParseUndoError> {
        let undo = Self::parse(line)?;
        if undo.to_string() == line { Ok(undo) } else { Err(ParseUndoError) }
    }
}

impl Undo {
    fn parse(line: &str) -> Result<Self, ParseUndoError> {
        let words: Vec<&str> = line.split(' ').collect();
        if line.contains('\n') || words.contains(&"") {
            return Err(ParseUndoError);
        }
        let number = |word: &str| word.parse::<u32>().map_err(|_| ParseUndoError);
        match words.as_slice() {
            ["rule", version, mark, table, priority] => {
                let numbers = RoutingNumbers {
                    mark: number(mark)?,
                    table: number(table)?,
                    priority: number(priority)?,
                };
                Ok(Self::Rule(Rule { v4: *version == "4", numbers }))
            }
            ["routes", table, tun] => Ok(Self::Routes { table: number(table)?, tun: (*tun).into() }),
            ["mark-table", table] => Ok(Self::MarkTable { table: number(table)? }),
            ["sysctl", name, value] if is_network_parameter(name) => {
                Ok(Self::Sysctl { name: (*name).into(), value: (*value).into() })
            }
            ["name-servers", method, tun] => {
                let method = method.parse().map_err(|()| ParseUndoError)?;
                Ok(Self::NameServers(DnsTarget { method, tun: (*tun).into() }))
            }
            ["tunnel", name, index] => Ok(Self::Tunnel { name: (*name).into(), index: number(index)? }),
            ["guard", tun] => Ok(Self::Guard { tun: (*tun).into() }),
            _ => Err(ParseUndoError),
        }
    }
}

/// Whether this is a path below /proc/sys/net/. Interface names may contain dots: Linux forbids only the
/// names `.` and `..` (`dev_valid_name`).
fn is_network_parameter(path: &str) -> bool {
    path.starts_with("net/") && path.split('/').all(|component| !matches!(component, "" | "." | ".."))
}

/// Whether the kernel has the packet filter of a TUN interface.
pub(super) fn has_guard(tun: &str) -> Result<bool, Error> {
    let table = leak_guard::table_name(tun);
    let has_table = Netfilter::open().and_then(|mut netfilter| netfilter.has_table(&table));
    has_table.map_err(|error| Error::new(format!("nftables table {table}, perhaps of a former run"), error))
}

/// Ignores that an object to remove does not exist: the kernel removes routes with an address or an
/// interface, and without IPv6 there are none.
pub(crate) fn ignore_missing(error: std::io::Error) -> std::io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT | libc::ENODEV | libc::EAFNOSUPPORT) => Ok(()),
        _ => Err(error),
    }
}

/// Changes that leave the journal during a run: those that were undone, and those of other instances.
impl Journal {
    /// From now on, this handle changes name servers.
    pub fn use_name_servers(&mut self, dns: DnsHandle) {
        self.dns = dns;
    }

    /// Restores the name servers of this host. Returns warnings.
    pub fn restore_name_servers(&mut self) -> Vec<String> {
        let (dns, mut warnings) = (self.dns.clone(), Vec::new());
        let mut restore = |undo: &Undo| {
            let Undo::NameServers(target) = undo else { return None };
            let restored = target.restore(&dns);
            let is_done = restored.is_ok();
            warnings.extend(restored.unwrap_or_else(|error| Some(error.to_string())));
            is_done.then(|| undo.clone())
        };
        let done: Vec<Undo> = self.entries.iter().rev().filter_map(&mut restore).collect();
        let forgotten = done.iter().map(|undo| self.forget(undo));
        warnings.extend(forgotten.filter_map(Result::err).map(|error| error.to_string()));
        warnings
    }

    /// Drops a change that was undone. If it is in the last line, that line is removed, so that changes that
    /// come and go do not let the file grow. A process that ends meanwhile leaves the line or removes it.
    pub(crate) fn forget(&mut self, undone: &Undo) -> Result<(), Error> {
        self.entries.retain(|entry| entry != undone);
        if let Some((change, len)) = self.last_change.take()
            && change == *undone
            && self.file.set_len(len).is_ok()
        {
            return Ok(());
        }
        self.write_line(&format_args!("{UNDONE}{undone}"))
    }

    /// Drops rules and routes of a table from the journal, because another instance has claimed its number
    /// since.
    pub(crate) fn release_table(&mut self, table: u32) -> Result<(), Error> {
        let is_of_table = |entry: &mut Undo| match entry {
            Undo::Rule(rule) => rule.numbers.table == table,
            Undo::Routes { table: noted, .. } => *noted == table,
            Undo::MarkTable { .. }
            | Undo::Sysctl { .. }
            | Undo::Guard { .. }
            | Undo::Tunnel { .. }
            | Undo::NameServers(_) => false,
        };
        let given_up: Vec<Undo> = self.entries.extract_if(.., is_of_table).collect();
        given_up.iter().try_for_each(|undo| self.write_line(&format_args!("{UNDONE}{undo}")))
    }
}

/// The interfaces of route-based tunnels, which outlive the process.
impl Journal {
    /// Indices of the interfaces in this journal, by their names.
    pub(crate) fn tunnels(&self) -> BTreeMap<String, u32> {
        let tunnel = |entry: &Undo| match entry {
            Undo::Tunnel { name, index } => Some((name.clone(), *index)),
            _ => None,
        };
        self.entries.iter().filter_map(tunnel).collect()
    }

    /// Removes an interface that this journal lists, if it still exists.
    pub(crate) fn remove_tunnel(
        &mut self,
        name: &str,
        index: u32,
        netlink: &mut Netlink,
    ) -> Result<(), Error> {
        let undo = Undo::Tunnel { name: name.into(), index };
        undo.run(netlink, &self.nft, &self.dns)?;
        self.forget(&undo)
    }
}
