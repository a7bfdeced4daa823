//! What has to be undone, written down before it is done.
//!
//! A process that is killed cannot clean up. So each change is first noted in a file, and whoever starts next in the same
//! network namespace undoes what a dead instance noted. A living one holds a lock on its file. The file lies where a reboot
//! removes it, together with everything it is about.

use crate::instance::Instance;
use crate::netlink::Netlink;
use crate::route::{self, Numbers, Rule};
use crate::{Error, guard, nft};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

const FIRST_LINE: &str = "casemate journal 1";
/// More than any journal needs; a longer file is not one of ours.
const MAX_LEN: u64 = 64 << 20;

/// A change that can be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Removes a rule.
    Rule(Rule),
    /// Removes the routes of a table that lead into a TUN interface or past the table.
    Routes {
        /// The table.
        table: u32,
        /// The interface.
        tun: String,
    },
    /// Sets a kernel parameter back.
    Sysctl {
        /// Its path below /proc/sys/.
        name: String,
        /// Its former value.
        value: String,
    },
    /// Removes the packet filter of a TUN interface.
    Guard {
        /// The interface.
        tun: String,
    },
}

impl Undo {
    fn run(&self, netlink: &mut Netlink) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => {
                rule.remove(netlink).map_err(|error| Error::new(format!("removal of `{rule}`"), error))
            }
            Self::Routes { table, tun } => {
                // Where the interface is gone, so are the routes into it.
                let index = netlink.link(tun).ok().map(|link| link.index);
                route::clear(*table, index, netlink)
            }
            Self::Sysctl { name, value } => std::fs::write(sysctl_path(name), value)
                .map_err(|error| Error::new(format!("/proc/sys/{name}"), error)),
            Self::Guard { tun } => nft::run(&format!("delete table inet {}\n", guard::table_name(tun))),
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
            Self::Rule(Rule { v4, numbers: Numbers { mark, table, priority } }) => {
                write!(f, "rule {} {mark} {table} {priority}", if *v4 { 4 } else { 6 })
            }
            Self::Routes { table, tun } => write!(f, "routes {table} {tun}"),
            Self::Sysctl { name, value } => write!(f, "sysctl {name} {value}"),
            Self::Guard { tun } => write!(f, "guard {tun}"),
        }
    }
}

/// A line that is no change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoUndo;

impl FromStr for Undo {
    type Err = NoUndo;

    fn from_str(line: &str) -> Result<Self, NoUndo> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<u32>().map_err(|_| NoUndo);
        match words.as_slice() {
            ["rule", version, mark, table, priority] => {
                let numbers =
                    Numbers { mark: number(mark)?, table: number(table)?, priority: number(priority)? };
                Ok(Self::Rule(Rule { v4: *version == "4", numbers }))
            }
            ["routes", table, tun] => Ok(Self::Routes { table: number(table)?, tun: (*tun).into() }),
            ["sysctl", name, value] if name.starts_with("net/") && !name.contains("..") => {
                Ok(Self::Sysctl { name: (*name).into(), value: (*value).into() })
            }
            ["guard", tun] => Ok(Self::Guard { tun: (*tun).into() }),
            _ => Err(NoUndo),
        }
    }
}

/// The journal of this process. Dropping it undoes everything in it.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    entries: Vec<Undo>,
}

impl Journal {
    /// Cleans up after dead instances, then opens the journal of this one. Answers also what was found and undone.
    pub fn open(instance: &Instance, netlink: &mut Netlink) -> Result<(Self, Vec<Undo>), Error> {
        let own = instance.journal();
        let mut undone = Vec::new();
        for path in instance.all_journals()?.into_iter().filter(|path| *path != own) {
            let Some(mut file) = lock(&path)? else { continue };
            undone.extend(undo_what_it_says(&mut file, &path, netlink)?);
            std::fs::remove_file(&path).map_err(|error| at(&path, error))?;
        }
        let Some(mut file) = lock(&own)? else {
            let reason = "another instance with this TUN interface is running in this network namespace";
            return Err(Error::other(own.display().to_string(), reason));
        };
        // It is read under the lock that is kept: its former owner may have died after the others were looked at.
        undone.extend(undo_what_it_says(&mut file, &own, netlink)?);
        file.set_len(0).map_err(|error| at(&own, error))?;
        let mut journal = Self { file, path: own, entries: Vec::new() };
        journal.write_line(FIRST_LINE)?;
        Ok((journal, undone))
    }

    /// Notes a change that is about to be made.
    pub fn note(&mut self, undo: Undo) -> Result<(), Error> {
        self.write_line(&undo.to_string())?;
        self.entries.push(undo);
        Ok(())
    }

    /// Leaves everything as a crash does.
    #[cfg(test)]
    pub(crate) fn abandon(mut self) {
        self.entries.clear();
        self.path = PathBuf::new();
    }

    fn write_line(&mut self, line: &str) -> Result<(), Error> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(|error| at(&self.path, error))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Ok(mut netlink) = Netlink::open() {
            undo_all(&self.entries, &mut netlink);
        }
        // If it stays, the next start undoes everything once more, which does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Undoes the newest change first. What is gone already cannot be undone, and the rest still has to be.
fn undo_all(entries: &[Undo], netlink: &mut Netlink) {
    for undo in entries.iter().rev() {
        let _ = undo.run(netlink);
    }
}

/// Undoes what a dead instance noted, and answers what that was.
fn undo_what_it_says(file: &mut File, path: &Path, netlink: &mut Netlink) -> Result<Vec<Undo>, Error> {
    let entries = read(file, path)?;
    undo_all(&entries, netlink);
    Ok(entries)
}

/// Opens and locks a journal; `None` if its owner lives.
fn lock(path: &Path) -> Result<Option<File>, Error> {
    // A file that was locked may have been removed by its owner meanwhile: then it is not the one at this path any more.
    for _ in 0..16 {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| at(path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(at(path, error)),
            Ok(()) => {}
        }
        let locked = file.metadata().map_err(|error| at(path, error))?.ino();
        if std::fs::metadata(path).is_ok_and(|there| there.ino() == locked) {
            return Ok(Some(file));
        }
    }
    Err(Error::other(path.display().to_string(), "it is removed as often as it is made"))
}

/// What the file says. A last line without an end was not finished, so its change was not made.
fn read(file: &mut File, path: &Path) -> Result<Vec<Undo>, Error> {
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).map_err(|error| at(path, error))?;
    let finished = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
    let mut lines = finished.lines();
    match lines.next() {
        None => Ok(Vec::new()),
        Some(FIRST_LINE) => Ok(lines.filter_map(|line| line.parse().ok()).collect()),
        Some(_) => {
            let reason = "not a journal of this version; remove it when nothing of its instance is left";
            Err(Error::other(path.display().to_string(), reason))
        }
    }
}

fn at(path: &Path, error: std::io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_scratch::Scratch;

    fn entries() -> Vec<Undo> {
        let numbers = Numbers { mark: 1, table: 2, priority: 3 };
        vec![
            Undo::Rule(Rule { v4: true, numbers }),
            Undo::Rule(Rule { v4: false, numbers }),
            Undo::Routes { table: 2, tun: "tun3".into() },
            Undo::Sysctl { name: "net/ipv4/conf/eth0/rp_filter".into(), value: "1".into() },
            Undo::Guard { tun: "tun3".into() },
        ]
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        for undo in entries() {
            assert_eq!(undo.to_string().parse(), Ok(undo));
        }
        for line in ["", "rule 4", "rule 4 1 2 x", "sysctl kernel/core_pattern x", "sysctl net/../kernel/x 1"]
        {
            assert_eq!(line.parse::<Undo>(), Err(NoUndo), "{line}");
        }
    }

    #[test]
    fn an_unfinished_line_does_not_count_and_alien_files_are_refused() {
        let scratch = Scratch::new("journal");
        let path = scratch.file("journal");
        let parse = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&mut File::open(&path).unwrap(), &path)
        };
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("casemate jou").unwrap(), []);
        let undo = Undo::Guard { tun: "a".into() };
        assert_eq!(parse("casemate journal 1\nguard a\nguard b").unwrap(), [undo]);
        assert!(parse("something else\n").is_err());
    }

    #[test]
    fn a_locked_journal_is_left_alone() {
        let scratch = Scratch::new("journal");
        let path = scratch.file("lock");
        let held = lock(&path).unwrap();
        assert!(held.is_some());
        assert!(lock(&path).unwrap().is_none());
        drop(held);
        crate::eventually::eventually("the lock goes", || lock(&path).unwrap());
    }
}
