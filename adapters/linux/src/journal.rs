//! What has to be undone, written down before it is done.
//!
//! Each change is noted in a file before it is made. An orderly end undoes everything ([`Journal::close`]). A
//! process that is killed cannot, and one that ends with an error must not: the guard stays, so that what was
//! protected does not leave in clear. Only where the guard has never protected anything does an error undo
//! everything, too; [`Remains`] says which of both it was. The next start of the same instance takes the
//! journal over, with everything in it ([`Journal::open`]), and `casemate cleanup` undoes what is in it
//! ([`clean_up`]). A living process holds a lock on its file. The file lies where a reboot removes it,
//! together with everything it is about. It says which network namespace it is about, too: the next namespace
//! may have the same number.

mod contents;

use crate::instance::Instance;
use crate::namespace::Namespace;
use crate::netfilter::Netfilter;
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::private::{self, Others};
use crate::promises::{self, Promise, Promises};
use crate::route::{self, Numbers, Rule};
use crate::tun::Tun;
use crate::{Error, guard};
use contents::{Contents, FIRST_LINE, UNDONE, read};
use std::collections::HashSet;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

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

    fn run(&self, netlink: &mut Netlink, nft: &Nft) -> Result<(), Error> {
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
            Self::Guard { tun } => nft.run(&format!("delete table inet {}\n", guard::table_name(tun))),
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

/// What is left in the system of a run whose journal was dropped.
#[derive(Debug, Clone, Default)]
pub enum Remains {
    /// Nothing of this run, or it goes on.
    #[default]
    Nothing,
    /// Everything: what the guard protects stays blocked.
    Guard,
    /// The guard should be left and does not stand, for this reason: what was protected leaves in clear.
    NoGuard(String),
    /// What could not be undone, for this reason.
    NotUndone(String),
}

/// The journal of this process. Dropped without [`close`](Self::close) it leaves everything as it is, if the
/// guard was put up and has ever protected anything, or is that of a former run; otherwise it undoes
/// everything in it.
#[derive(Debug)]
pub struct Journal {
    instance: Instance,
    file: File,
    nft: Nft,
    entries: Vec<Undo>,
    adopted: bool,
    promises: Option<Promises>,
    /// Those of a former run, whose guard may still stand.
    former: Vec<Promise>,
    /// Undone, or tried to be.
    closed: bool,
    remains: Arc<Mutex<Remains>>,
    /// Why the guard does not stand that should be left.
    lack: Option<String>,
    #[cfg(test)]
    pub(crate) abandoned: bool,
}

impl Journal {
    /// Opens the journal of this instance, and takes over what a former run left in it. Journals of other
    /// instances are theirs. What a journal says of a network namespace that has ended is dropped: there is
    /// nothing left of it. The guard is put up and removed through `nft`.
    pub fn open(instance: &Instance, nft: Nft) -> Result<Self, Error> {
        let path = instance.journal();
        let Some(mut file) = lock(&path)? else {
            let reason = "another instance with this TUN interface is running in this network namespace";
            return Err(Error::other(path.display().to_string(), reason));
        };
        let contents = read(&mut file, &path)?;
        let here = Namespace::present();
        let is_ours = is_of(&contents, here.as_ref(), instance)?;
        let entries = if is_ours { contents.entries } else { Vec::new() };
        let put_right = |file: &mut File| {
            // An unfinished line would spoil the next one.
            file.set_len(if is_ours { contents.len } else { 0 })?;
            let first = if is_ours { String::new() } else { format!("{FIRST_LINE}\n") };
            let namespace = here.filter(|_| !is_ours || contents.namespace.is_none());
            let namespace = namespace.map_or(String::new(), |namespace| format!("{namespace}\n"));
            file.write_all((first + &namespace).as_bytes())
        };
        put_right(&mut file).map_err(|error| at(&path, error))?;
        Ok(Self {
            instance: instance.clone(),
            file,
            nft,
            adopted: !entries.is_empty(),
            entries,
            promises: None,
            former: Vec::new(),
            closed: false,
            remains: Arc::default(),
            lack: None,
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

    /// Says what is left of the run, once this journal is gone.
    pub fn remains(&self) -> Arc<Mutex<Remains>> {
        self.remains.clone()
    }

    /// Whether the packet filter stays after an error: it stands, or may stand, and keeps or kept traffic off
    /// the wire in clear, or a former run has left it.
    pub(crate) fn stays(&self) -> bool {
        self.notes_guard() && (self.adopted || self.promises.as_ref().is_some_and(Promises::is_used))
    }

    /// Whether the packet filter is to be removed at an orderly end.
    pub(crate) fn notes_guard(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }))
    }

    /// Whether the packet filter of a former run stands that this journal does not know: the one of that run
    /// is gone, or in another directory. What it protects is unknown, so it stays until there is one in its
    /// place.
    pub(crate) fn finds_guard(&self) -> Result<bool, Error> {
        Ok(!self.notes_guard() && has_guard(self.instance.tun())?)
    }

    /// Notes the packet filter that stands now.
    pub(crate) fn note_guard(&mut self) -> Result<(), Error> {
        self.note(Undo::Guard { tun: self.instance.tun().into() })
    }

    /// The guard that should be left does not stand.
    pub(crate) fn lacks_guard(&mut self, reason: String) {
        self.lack = Some(reason);
    }

    /// What is left where the guard stays.
    fn left(&self) -> Remains {
        match (&self.lack, has_guard(self.instance.tun())) {
            (Some(reason), _) => Remains::NoGuard(reason.clone()),
            (None, Ok(true)) => Remains::Guard,
            (None, Ok(false)) => Remains::NoGuard("another program has removed it".into()),
            (None, Err(error)) => Remains::NoGuard(error.to_string()),
        }
    }

    fn set_remains(&self, remains: Remains) {
        *self.remains.lock().unwrap_or_else(PoisonError::into_inner) = remains;
    }

    /// The way of scripts to `nft`.
    pub(crate) const fn nft(&self) -> &Nft {
        &self.nft
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
        self.write_line(&undo)?;
        self.entries.push(undo);
        Ok(())
    }

    /// Whether another instance with files in the same directory has made this change in the present
    /// namespace.
    pub(crate) fn is_noted_elsewhere(&self, undo: &Undo) -> bool {
        let here = Namespace::present();
        let notes = |path: PathBuf| {
            let contents = File::open(&path).map_err(|error| at(&path, error));
            let contents = contents.and_then(|mut file| read(&mut file, &path)).unwrap_or_default();
            let is_here = contents.namespace.is_none() || contents.namespace == here;
            is_here && contents.entries.contains(undo)
        };
        self.instance.other_journals().into_iter().any(notes)
    }

    /// Leaves rules and routes of a table to the instance that has claimed its number since.
    pub(crate) fn give_up(&mut self, table: u32) -> Result<(), Error> {
        let is_of_table = |entry: &mut Undo| match entry {
            Undo::Rule(rule) => rule.numbers.table == table,
            Undo::Routes { table: noted, .. } => *noted == table,
            Undo::Sysctl { .. } | Undo::Guard { .. } => false,
        };
        let given_up: Vec<Undo> = self.entries.extract_if(.., is_of_table).collect();
        given_up.iter().try_for_each(|undo| self.write_line(&format_args!("{UNDONE}{undo}")))
    }

    fn write_line(&mut self, line: &dyn fmt::Display) -> Result<(), Error> {
        let line = format!("{line}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| at(&self.instance.journal(), error))
    }

    /// Undoes everything: the orderly end. An error if something could not be undone.
    pub fn close(mut self) -> Result<(), Error> {
        self.undo()
    }

    /// Undoes everything and removes the file. If something cannot be undone, the file stays, for the next start
    /// or `casemate cleanup`; what is undone is struck out.
    pub(crate) fn undo(&mut self) -> Result<(), Error> {
        self.closed = true;
        let done = self.undo_all();
        self.set_remains(match &done {
            // One that was not noted is that of a former run.
            Ok(()) if has_guard(self.instance.tun()).unwrap_or(false) => Remains::Guard,
            Ok(()) => Remains::Nothing,
            Err(error) => Remains::NotUndone(error.to_string()),
        });
        done
    }

    fn undo_all(&mut self) -> Result<(), Error> {
        let errors = self.undo_each(&mut Netlink::open()?);
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

    /// Undoes the newest change first. One that fails does not stand in the way of others; only such stay. Returns
    /// why they failed.
    fn undo_each(&mut self, netlink: &mut Netlink) -> Vec<String> {
        let mut errors = Vec::new();
        let mut failed: Vec<Undo> = Vec::new();
        while let Some(undo) = self.entries.pop() {
            if let Err(error) = undo.run(netlink, &self.nft) {
                errors.push(error.to_string());
                failed.push(undo);
            } else if let Err(error) = self.write_line(&format_args!("{UNDONE}{undo}")) {
                errors.push(error.to_string());
            }
        }
        self.entries.extend(failed.into_iter().rev());
        errors
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
        if self.closed {
            return;
        }
        if self.stays() {
            self.set_remains(self.left());
        } else {
            // What cannot be undone stays in the file, and is reported by `remains`.
            let _ = self.undo();
        }
    }
}

/// Undoes what a dead instance left behind, its guard too; returns what that was. An error if it lives, or if
/// something cannot be undone.
pub fn clean_up(instance: &Instance) -> Result<Vec<String>, Error> {
    // An instance that keeps its files elsewhere may have this interface.
    let _tun = Tun::create(instance.tun(), &mut Netlink::open()?)?;
    let mut journal = Journal::open(instance, Nft::direct())?;
    if journal.finds_guard()? {
        journal.note_guard()?;
    }
    let done = journal.entries.iter().map(ToString::to_string).collect();
    journal.undo()?;
    let _ = std::fs::remove_file(instance.promises());
    Ok(done)
}

/// Whether a journal is about the present network namespace. Where it does not say so itself, or this kernel
/// does not, the guard that it names shows it.
fn is_of(contents: &Contents, here: Option<&Namespace>, instance: &Instance) -> Result<bool, Error> {
    match (&contents.namespace, here) {
        (Some(there), Some(here)) => Ok(there == here),
        _ => {
            let names_guard = contents.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }));
            Ok(names_guard && has_guard(instance.tun())?)
        }
    }
}

/// Whether the kernel has the packet filter of a TUN interface.
fn has_guard(tun: &str) -> Result<bool, Error> {
    let table = guard::table_name(tun);
    let has_table = Netfilter::open().and_then(|mut netfilter| netfilter.has_table(&table));
    has_table.map_err(|error| Error::new(format!("nftables table {table}, perhaps of a former run"), error))
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

fn at(path: &Path, error: std::io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests;
