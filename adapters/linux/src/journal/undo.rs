//! Changes that can be undone, and the file of a journal.
//!
//! The file has a first line, the network namespace, changes in the order in which they were made, and those
//! of the changes that were undone. Of a line whose write failed there may be a part, which is marked.

use super::file_error;
use crate::instance::NetnsId;
use crate::netfilter::Netfilter;
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::route::{self, RoutingNumbers, Rule};
use crate::{Error, leak_guard};
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
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
}

impl Undo {
    /// Whether both undo the same change. For a kernel parameter the oldest value counts.
    pub(super) fn is_same_change(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl { name, .. }, Self::Sysctl { name: other, .. }) => name == other,
            _ => self == other,
        }
    }

    pub(super) fn run(&self, netlink: &mut Netlink, nft: &Nft) -> Result<(), Error> {
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
            Self::Sysctl { name, value } => std::fs::write(sysctl_path(name), value)
                .or_else(ignore_missing)
                .map_err(|error| Error::new(format!("/proc/sys/{name}"), error)),
            Self::Guard { tun } if !has_guard(tun)? => Ok(()),
            Self::Guard { tun } => nft.run(&format!("delete table inet {}\n", leak_guard::table_name(tun))),
        }
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
            Self::Sysctl { name, value } => write!(f, "sysctl {name} {value}"),
            Self::Guard { tun } => write!(f, "guard {tun}"),
        }
    }
}

/// The line is not a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseUndoError;

impl FromStr for Undo {
    type Err = ParseUndoError;

    fn from_str(line: &str) -> Result<Self, ParseUndoError> {
        let words: Vec<&str> = line.split(' ').collect();
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
            ["sysctl", name, value] if name.starts_with("net/") && !name.contains("..") => {
                Ok(Self::Sysctl { name: (*name).into(), value: (*value).into() })
            }
            ["guard", tun] => Ok(Self::Guard { tun: (*tun).into() }),
            _ => Err(ParseUndoError),
        }
    }
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

pub(super) const FIRST_LINE: &str = "casemate journal 1";
/// Prefix of a change that was undone.
pub(super) const UNDONE: &str = "undone ";
/// End of a line whose write failed: its change was not made. No other line ends like this, because neither
/// an interface name nor a value has a slash.
pub(super) const TORN: &str = "/torn";
/// Longest file that is read, in bytes: more than any journal needs.
const MAX_LEN: u64 = 64 << 20;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Changes that are not undone.
    pub(super) entries: Vec<Undo>,
    /// The namespace in which they were made. Former versions do not write it.
    pub(super) namespace: Option<NetnsId>,
    /// Bytes up to the end of the last complete line.
    pub(super) len: u64,
    /// Number of the first line that is none of these.
    pub(super) damaged_line: Option<usize>,
}

impl Contents {
    fn add(&mut self, number: usize, line: &str) {
        if line.ends_with(TORN) {
            return;
        }
        if let Some(Ok(undone)) = line.strip_prefix(UNDONE).map(str::parse::<Undo>) {
            self.entries.retain(|entry| undone != *entry);
        } else if let Ok(namespace) = line.parse::<NetnsId>() {
            self.namespace = Some(namespace);
        } else if let Ok(undo) = line.parse::<Undo>() {
            self.entries.push(undo);
        } else {
            self.damaged_line = self.damaged_line.or(Some(number));
        }
    }
}

/// Reads a file. An incomplete last line is ignored: its change was not made.
pub(super) fn read(file: &mut File, path: &Path) -> Result<Contents, Error> {
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).map_err(|error| file_error(path, error))?;
    let finished = text.rfind('\n').and_then(|end| text.get(..=end)).unwrap_or_default();
    let mut lines = finished.lines();
    match lines.next() {
        None => Ok(Contents::default()),
        Some(FIRST_LINE) => {
            let mut contents = Contents { len: finished.len() as u64, ..Contents::default() };
            (2..).zip(lines).for_each(|(number, line)| contents.add(number, line));
            Ok(contents)
        }
        Some(_) => {
            let reason = "not a journal of this version; remove it when nothing of its instance is left";
            Err(Error::other(path.display().to_string(), reason))
        }
    }
}
