//! What has to be undone, written down before it is done.
//!
//! Each change is noted in a file before it is made. An orderly end undoes everything ([`Journal::close`]). A
//! process that is killed cannot, and one that ends with an error must not: the guard stays, so that what was
//! protected does not leave in clear. The next start of the same instance takes the journal over, with
//! everything in it ([`Journal::open`]), and `casemate cleanup` undoes what is in it ([`clean_up`]). A living
//! process holds a lock on its file. The file lies where a reboot removes it, together with everything it is
//! about.

use crate::instance::Instance;
use crate::netfilter::Netfilter;
use crate::netlink::Netlink;
use crate::private::{self, Others};
use crate::promises::{self, Promise, Promises};
use crate::route::{self, Numbers, Rule};
use crate::{Error, guard, nft};
use std::collections::HashSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
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
    /// Of a kernel parameter the oldest value counts.
    fn undoes_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sysctl { name, .. }, Self::Sysctl { name: other, .. }) => name == other,
            _ => self == other,
        }
    }

    fn run(&self, netlink: &mut Netlink) -> Result<(), Error> {
        match self {
            Self::Rule(rule) => {
                let failed = |error| Error::new(format!("removal of `{rule}`"), error);
                rule.remove(netlink).or_else(gone).map_err(failed)
            }
            Self::Routes { table, tun } => {
                // Where the interface is gone, so are the routes into it.
                let index = match netlink.link(tun) {
                    Ok(link) => Some(link.index),
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
                    Err(error) => return Err(error),
                };
                route::clear(*table, index, &HashSet::new(), netlink)
            }
            Self::Sysctl { name, value } => std::fs::write(sysctl_path(name), value)
                .or_else(gone)
                .map_err(|error| Error::new(format!("/proc/sys/{name}"), error)),
            Self::Guard { tun } if !has_guard(tun)? => Ok(()),
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

/// The journal of this process. Dropped without [`close`](Self::close) it leaves everything as it is, if the
/// guard was put up; before that it undoes everything in it.
#[derive(Debug)]
pub struct Journal {
    instance: Instance,
    file: File,
    entries: Vec<Undo>,
    adopted: bool,
    promises: Option<Promises>,
    /// Those of a former run, whose guard may still stand.
    former: Vec<Promise>,
    /// Undone, or tried to be.
    closed: bool,
    #[cfg(test)]
    abandoned: bool,
}

impl Journal {
    /// Opens the journal of this instance, and takes over what a former run left in it. Journals of other
    /// instances are theirs.
    pub fn open(instance: &Instance) -> Result<Self, Error> {
        let path = instance.journal();
        let Some(mut file) = lock(&path)? else {
            let reason = "another instance with this TUN interface is running in this network namespace";
            return Err(Error::other(path.display().to_string(), reason));
        };
        let entries = read(&mut file, &path)?;
        // The others are in the file already; an unfinished line would spoil the next one.
        let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        let text = format!("{FIRST_LINE}\n{lines}");
        let put_right = |file: &mut File| {
            if file.metadata()?.len() != text.len() as u64 {
                file.set_len(0)?;
                file.write_all(text.as_bytes())?;
            }
            Ok(())
        };
        put_right(&mut file).map_err(|error| at(&path, error))?;
        Ok(Self {
            instance: instance.clone(),
            file,
            adopted: !entries.is_empty(),
            entries,
            promises: None,
            former: Vec::new(),
            closed: false,
            #[cfg(test)]
            abandoned: false,
        })
    }

    /// What a former run of this instance promised, as long as its guard stands. An error if it is unknown
    /// whether it stands.
    pub fn former_promises(&self) -> Result<Vec<Promise>, Error> {
        if !self.adopted || !has_guard(self.instance.tun())? {
            return Ok(Vec::new());
        }
        promises::former(&self.instance)
    }

    /// Writes these promises down, beside those of a former run: its guard may stay if that of this run cannot
    /// be put up.
    pub(crate) fn promise(&mut self, promises: impl Iterator<Item = Promise>) -> Result<(), Error> {
        self.former = if self.adopted { promises::former(&self.instance)? } else { Vec::new() };
        let all = promises.chain(self.former.iter().copied());
        self.promises = Some(Promises::start(&self.instance, all)?);
        Ok(())
    }

    /// Drops the promises of a former run: the guard of this run is in the place of its guard.
    pub(crate) fn drop_former(&mut self) -> Result<(), Error> {
        let Some(promises) = &mut self.promises else { return Ok(()) };
        std::mem::take(&mut self.former).iter().for_each(|promise| promises.remove(promise));
        promises.write()
    }

    /// The promises, once there are any.
    pub(crate) fn promises(&mut self) -> Option<&mut Promises> {
        self.promises.as_mut()
    }

    /// What a former run changed and did not undo.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Whether the packet filter stands, or may stand, and stays after an error.
    pub fn has_guard(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }))
    }

    /// Every change in it, the oldest first.
    pub(crate) fn entries(&self) -> &[Undo] {
        &self.entries
    }

    /// Notes a change that is about to be made. What is to be undone already is not noted again.
    pub fn note(&mut self, undo: Undo) -> Result<(), Error> {
        if self.entries.iter().any(|entry| entry.undoes_the_same(&undo)) {
            return Ok(());
        }
        let line = format!("{undo}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| at(&self.instance.journal(), error))?;
        self.entries.push(undo);
        Ok(())
    }

    /// Undoes everything: the orderly end. An error if something could not be undone.
    pub fn close(mut self) -> Result<(), Error> {
        self.undo()
    }

    /// Undoes everything and removes the file. If something cannot be undone, the file stays, for the next start
    /// or `casemate cleanup`: to undo the rest once more does no harm.
    pub(crate) fn undo(&mut self) -> Result<(), Error> {
        self.closed = true;
        let errors = undo_all(&mut self.entries, &mut Netlink::open()?);
        if !errors.is_empty() {
            let what = format!("not undone, and noted in {}", self.instance.journal().display());
            return Err(Error::other(what, errors.join("; ")));
        }
        if let Some(promises) = self.promises.take() {
            promises.close();
        }
        match std::fs::remove_file(self.instance.journal()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(at(&self.instance.journal(), error))
            }
            _ => Ok(()),
        }
    }

    /// Leaves everything as a crash does.
    #[cfg(test)]
    pub(crate) fn abandon(mut self) {
        self.abandoned = true;
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.abandoned {
            return;
        }
        if !self.closed && !self.has_guard() {
            // What cannot be undone stays in the file.
            let _ = self.undo();
        }
    }
}

/// Undoes what a dead instance left behind, its guard too; returns what that was. An error if it lives, or if
/// something cannot be undone.
pub fn clean_up(instance: &Instance) -> Result<Vec<String>, Error> {
    let mut journal = Journal::open(instance)?;
    let done = journal.entries.iter().map(ToString::to_string).collect();
    journal.undo()?;
    let _ = std::fs::remove_file(instance.promises());
    Ok(done)
}

/// The tables that instances of this namespace have, dead ones too.
pub(crate) fn claimed_tables(instance: &Instance) -> Result<Vec<u32>, Error> {
    let mut tables = Vec::new();
    for path in instance.all_journals()? {
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            file => file.map_err(|error| at(&path, error))?,
        };
        let entries = read(&mut file, &path)?;
        tables.extend(entries.iter().filter_map(|entry| match entry {
            Undo::Routes { table, .. } => Some(*table),
            _ => None,
        }));
    }
    Ok(tables)
}

/// Waits until nobody else chooses numbers; the lock is held as long as the file is open.
pub(crate) fn lock_numbers(instance: &Instance) -> Result<File, Error> {
    let path = instance.numbers_lock()?;
    let open =
        || private::open(&path, File::options().write(true).create(true).truncate(false), Others::None);
    let locked = open().and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| at(&path, error))
}

/// Whether the kernel has the packet filter of a TUN interface.
fn has_guard(tun: &str) -> Result<bool, Error> {
    let table = guard::table_name(tun);
    let has_table = Netfilter::open().and_then(|mut netfilter| netfilter.has_table(&table));
    has_table.map_err(|error| Error::new(format!("nftables table {table}, perhaps of a former run"), error))
}

/// Undoes the newest change first. One that fails does not stand in the way of others; only such stay. Returns
/// why they failed.
fn undo_all(entries: &mut Vec<Undo>, netlink: &mut Netlink) -> Vec<String> {
    let mut errors = Vec::new();
    let mut failed: Vec<Undo> = Vec::new();
    for undo in entries.drain(..).rev() {
        if let Err(error) = undo.run(netlink) {
            errors.push(error.to_string());
            failed.push(undo);
        }
    }
    entries.extend(failed.into_iter().rev());
    errors
}

/// What is gone already need not be removed: the kernel takes routes away with an address or an interface, and
/// without IPv6 there is nothing of it.
pub(crate) fn gone(error: std::io::Error) -> std::io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT | libc::ENODEV | libc::EAFNOSUPPORT) => Ok(()),
        _ => Err(error),
    }
}

/// Opens and locks a journal; `None` if its owner lives.
fn lock(path: &Path) -> Result<Option<File>, Error> {
    // A file that was locked may have been removed by its owner meanwhile: then it is not the one at this path any more.
    for _ in 0..16 {
        let file = private::open(path, File::options().read(true).append(true).create(true), Others::None)
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
    fn what_was_left_is_taken_over_with_its_oldest_values() {
        let scratch = Scratch::new("journal");
        let instance = Instance::at(scratch.path(), "tun3");
        let sysctl =
            |value: &str| Undo::Sysctl { name: "net/ipv4/conf/x/rp_filter".into(), value: value.into() };
        let (guard, routes) =
            (Undo::Guard { tun: "tun3".into() }, Undo::Routes { table: 7, tun: "tun3".into() });
        let mut journal = Journal::open(&instance).unwrap();
        assert!(!journal.is_adopted());
        [&routes, &guard, &sysctl("1")].into_iter().for_each(|undo| journal.note(undo.clone()).unwrap());
        assert_eq!(claimed_tables(&instance).unwrap(), [7]);
        // An error: nothing is undone, and the file stays.
        drop(journal);
        std::fs::OpenOptions::new()
            .append(true)
            .open(instance.journal())
            .and_then(|mut file| file.write_all(b"guard unfin"))
            .unwrap();
        let mut journal = Journal::open(&instance).unwrap();
        assert!(journal.is_adopted());
        journal.note(sysctl("2")).unwrap();
        let rule = Undo::Rule(Rule { v4: true, numbers: Numbers { mark: 1, table: 7, priority: 3 } });
        journal.note(rule.clone()).unwrap();
        assert_eq!(journal.entries(), [routes.clone(), guard.clone(), sysctl("1"), rule.clone()]);
        drop(journal);
        let mut file = File::open(instance.journal()).unwrap();
        assert_eq!(read(&mut file, &instance.journal()).unwrap(), [routes, guard, sysctl("1"), rule]);
    }

    #[test]
    fn what_cannot_be_undone_stays_in_the_journal() {
        let Some(netns) = crate::netns::Netns::new().map_err(casemate_left_out::note).ok() else { return };
        let scratch = Scratch::new("journal");
        let instance = Instance::at(scratch.path(), "tun3");
        let sysctl =
            |value: &str| Undo::Sysctl { name: "net/ipv4/conf/lo/rp_filter".into(), value: value.into() };
        let noted = |undo: &Undo| {
            let mut journal = Journal::open(&instance).unwrap();
            let guard = Undo::Guard { tun: "tun3".into() };
            let rule = Undo::Rule(Rule { v4: true, numbers: Numbers { mark: 1, table: 7, priority: 3 } });
            [&guard, &rule, undo].into_iter().for_each(|undo| journal.note(undo.clone()).unwrap());
            journal
        };
        netns
            .run(|| {
                let error = noted(&sysctl("no-number")).close().unwrap_err().to_string();
                assert!(error.contains("rp_filter") && !error.contains("rule"), "{error}");
                let again = clean_up(&instance).unwrap_err().to_string();
                assert!(again.contains("rp_filter"), "{again}");
                std::fs::remove_file(instance.journal()).unwrap();
                noted(&sysctl("0")).close().unwrap();
                assert!(!instance.journal().exists(), "what is not there is done");
            })
            .unwrap();
    }

    #[test]
    fn without_a_guard_nothing_is_left() {
        let scratch = Scratch::new("journal");
        let instance = Instance::at(scratch.path(), "tun3");
        drop(Journal::open(&instance).unwrap());
        assert!(!instance.journal().exists());
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
