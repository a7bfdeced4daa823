//! Journal of changes to the system, written before each change is made.
//!
//! An orderly end undoes everything ([`Journal::close`]). A process that is killed cannot undo its changes,
//! and one that ends with an error must not: the guard stays, so that protected traffic does not leave in
//! clear. Only if the guard has never protected anything does an error undo everything, too; [`Leftovers`]
//! tells which of the two happened. The next start of the same instance takes the journal over, with
//! everything in it ([`Journal::open`]), and `casemate cleanup` undoes what is in it ([`clean_up`]). A live
//! process holds a lock on its file. A reboot removes the file, together with everything that it lists. The
//! file also names the network namespace, because the next namespace may have the same number.

mod undo;

use crate::Error;
use crate::instance::{Instance, NetnsId};
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::private_file::{self, OthersAccess};
use crate::protected_traffic::{self, ProtectedSelector, ProtectedTrafficFile};
use crate::tun::Tun;
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use undo::{Contents, FIRST_LINE, TORN, UNDONE, has_guard, read};

pub use undo::{ParseUndoError, Undo};
pub(crate) use undo::{ignore_missing, sysctl_path};

/// What a run leaves in the system, once its journal is dropped.
#[derive(Debug, Clone, Default)]
pub enum Leftovers {
    /// Nothing of this run; or the run is not over.
    #[default]
    Nothing,
    /// Everything: the traffic that the guard protects stays blocked.
    GuardStands,
    /// The guard should stay but is not installed, for this reason: protected traffic leaves in clear.
    GuardMissing(String),
    /// Changes that could not be undone, with the reason.
    UndoFailed(String),
}

/// The journal of this process. If it is dropped without [`close`](Self::close), it leaves everything in
/// place if the guard was installed and has ever protected anything, or is the guard of a former run;
/// otherwise it undoes everything in it.
#[derive(Debug)]
pub struct Journal {
    instance: Instance,
    file: File,
    /// The last write failed, so the last line may be incomplete.
    is_torn: bool,
    nft: Nft,
    entries: Vec<Undo>,
    recovered: bool,
    protected_traffic: Option<ProtectedTrafficFile>,
    /// Protected traffic of a former run, whose guard may still be installed.
    former_traffic: Vec<ProtectedSelector>,
    /// The changes were undone, or the attempt failed.
    closed: bool,
    leftovers: Arc<Mutex<Leftovers>>,
    /// Why the guard is not installed although it should stay.
    guard_missing: Option<String>,
    #[cfg(test)]
    pub(crate) abandoned: bool,
}

impl Journal {
    /// Opens the journal of this instance, and takes over what a former run left in it. Does not touch
    /// journals of other instances. Drops entries about a network namespace that has ended: nothing is left
    /// of it. `nft` installs and removes the guard.
    pub fn open(instance: &Instance, nft: Nft) -> Result<Self, Error> {
        let path = instance.journal();
        let Some(mut file) = lock(&path)? else {
            let reason = "another instance with this TUN interface is running in this network namespace";
            return Err(Error::other(path.display().to_string(), reason));
        };
        let contents = read(&mut file, &path)?;
        let here = NetnsId::present()?;
        let is_ours = is_of_namespace(&contents, here.as_ref(), instance)?;
        let entries = if is_ours { contents.entries } else { Vec::new() };
        let put_right = |file: &mut File| {
            // An incomplete line would corrupt the next one.
            file.set_len(if is_ours { contents.len } else { 0 })?;
            let first = if is_ours { String::new() } else { format!("{FIRST_LINE}\n") };
            let namespace = here.filter(|_| !is_ours || contents.namespace.is_none());
            let namespace = namespace.map_or(String::new(), |namespace| format!("{namespace}\n"));
            file.write_all((first + &namespace).as_bytes())
        };
        put_right(&mut file).map_err(|error| file_error(&path, error))?;
        Ok(Self {
            instance: instance.clone(),
            file,
            is_torn: false,
            nft,
            recovered: !entries.is_empty(),
            entries,
            protected_traffic: None,
            former_traffic: Vec::new(),
            closed: false,
            leftovers: Arc::default(),
            guard_missing: None,
            #[cfg(test)]
            abandoned: false,
        })
    }

    /// Protected traffic of a former run of this instance, as long as its guard is installed. An error if
    /// that is unknown.
    pub fn former_protected_traffic(&self) -> Result<Vec<ProtectedSelector>, Error> {
        if !self.recovered || !has_guard(self.instance.tun())? {
            return Ok(Vec::new());
        }
        protected_traffic::former(&self.instance)
    }

    /// Writes the protected traffic to its file, together with that of a former run: the former guard may
    /// stay if the guard of this run cannot be installed.
    pub(crate) fn record_protected_traffic(
        &mut self,
        traffic: impl Iterator<Item = ProtectedSelector>,
    ) -> Result<(), Error> {
        self.former_traffic =
            if self.recovered { protected_traffic::former(&self.instance)? } else { Vec::new() };
        let all = traffic.chain(self.former_traffic.iter().copied());
        self.protected_traffic = Some(ProtectedTrafficFile::start(&self.instance, all)?);
        Ok(())
    }

    /// Drops the protected traffic of a former run, because the guard of this run has replaced its guard.
    pub(crate) fn drop_former_traffic(&mut self) -> Result<(), Error> {
        let Some(traffic) = &mut self.protected_traffic else { return Ok(()) };
        std::mem::take(&mut self.former_traffic).iter().for_each(|selector| traffic.remove(selector));
        traffic.write()
    }

    /// The protected traffic, once there is any.
    pub(crate) fn protected_traffic(&mut self) -> Option<&mut ProtectedTrafficFile> {
        self.protected_traffic.as_mut()
    }

    /// Whether the journal has changes of a former run that were not undone.
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Tells what is left of the run, once this journal is dropped.
    pub fn leftovers(&self) -> Arc<Mutex<Leftovers>> {
        self.leftovers.clone()
    }

    /// Whether the packet filter stays after an error: it is, or may be, installed, and protects or protected
    /// traffic, or a former run has left it.
    pub(crate) fn leaves_guard(&self) -> bool {
        self.lists_guard()
            && (self.recovered || self.protected_traffic.as_ref().is_some_and(ProtectedTrafficFile::was_used))
    }

    /// Whether the journal lists the packet filter, so that an orderly end removes it.
    pub(crate) fn lists_guard(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }))
    }

    /// Whether a former run has left a packet filter that this journal does not list, because the journal of
    /// that run is lost or in another directory. It is unknown what the filter protects, so it stays until
    /// another one replaces it.
    pub(crate) fn finds_unlisted_guard(&self) -> Result<bool, Error> {
        Ok(!self.lists_guard() && has_guard(self.instance.tun())?)
    }

    /// Records that the packet filter is installed.
    pub(crate) fn record_guard(&mut self) -> Result<(), Error> {
        self.record(Undo::Guard { tun: self.instance.tun().into() })
    }

    /// Records that the guard is not installed although it should stay.
    pub(crate) fn set_guard_missing(&mut self, reason: String) {
        self.guard_missing = Some(reason);
    }

    /// What is left if the guard should stay.
    fn guard_leftovers(&self) -> Leftovers {
        match (&self.guard_missing, has_guard(self.instance.tun())) {
            (Some(reason), _) => Leftovers::GuardMissing(reason.clone()),
            (None, Ok(true)) => Leftovers::GuardStands,
            (None, Ok(false)) => Leftovers::GuardMissing("another program has removed it".into()),
            (None, Err(error)) => Leftovers::GuardMissing(error.to_string()),
        }
    }

    fn set_leftovers(&self, remains: Leftovers) {
        *self.leftovers.lock().unwrap_or_else(PoisonError::into_inner) = remains;
    }

    /// Runs scripts of `nft`.
    pub(crate) const fn nft(&self) -> &Nft {
        &self.nft
    }

    /// All changes in the journal, the oldest first.
    pub(crate) fn entries(&self) -> &[Undo] {
        &self.entries
    }

    /// Records a change that is about to be made, unless the journal already lists it.
    pub fn record(&mut self, undo: Undo) -> Result<(), Error> {
        if self.entries.iter().any(|entry| entry.is_same_change(&undo)) {
            return Ok(());
        }
        self.write_line(&undo)?;
        self.entries.push(undo);
        Ok(())
    }

    /// Whether another instance with files in the same directory has made this change, or may have made it,
    /// in the current namespace. An error if one of their journals cannot be read.
    pub(crate) fn is_recorded_elsewhere(&self, undo: &Undo) -> Result<bool, Error> {
        let here = NetnsId::present()?;
        for path in self.instance.other_journals()? {
            let contents = match File::open(&path) {
                // Its instance has undone everything.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => read(&mut file.map_err(|error| file_error(&path, error))?, &path)?,
            };
            let is_elsewhere = contents.namespace.is_some() && here.is_some() && contents.namespace != here;
            if let Some(line) = contents.damaged_line.filter(|_| !is_elsewhere) {
                let reason =
                    format!("line {line} is damaged; remove the file when nothing of its instance is left");
                return Err(Error::other(path.display().to_string(), reason));
            }
            if !is_elsewhere && contents.entries.contains(undo) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops rules and routes of a table from the journal, because another instance has claimed its number
    /// since.
    pub(crate) fn release_table(&mut self, table: u32) -> Result<(), Error> {
        let is_of_table = |entry: &mut Undo| match entry {
            Undo::Rule(rule) => rule.numbers.table == table,
            Undo::Routes { table: noted, .. } => *noted == table,
            Undo::Sysctl { .. } | Undo::Guard { .. } => false,
        };
        let given_up: Vec<Undo> = self.entries.extract_if(.., is_of_table).collect();
        given_up.iter().try_for_each(|undo| self.write_line(&format_args!("{UNDONE}{undo}")))
    }

    fn write_line(&mut self, line: &dyn fmt::Display) -> Result<(), Error> {
        let torn = if self.is_torn { format!("{TORN}\n") } else { String::new() };
        let line = format!("{torn}{line}\n");
        let written = self.file.write_all(line.as_bytes());
        self.is_torn = written.is_err();
        written.map_err(|error| file_error(&self.instance.journal(), error))
    }

    /// Ends an orderly run: undoes everything. An error if a change could not be undone.
    pub fn close(mut self) -> Result<(), Error> {
        self.undo()
    }

    /// Undoes everything and removes the file. If a change cannot be undone, the file stays, for the next
    /// start or `casemate cleanup`; changes that are undone are marked in it.
    pub(crate) fn undo(&mut self) -> Result<(), Error> {
        self.closed = true;
        let done = self.undo_all();
        self.set_leftovers(match (&done, &has_guard(self.instance.tun())) {
            // A guard that is not in the journal belongs to a former run.
            (Ok(()), Ok(true)) => Leftovers::GuardStands,
            (Ok(()), Ok(false)) => Leftovers::Nothing,
            (Err(error), _) | (Ok(()), Err(error)) => Leftovers::UndoFailed(error.to_string()),
        });
        done
    }

    fn undo_all(&mut self) -> Result<(), Error> {
        let errors = self.undo_each(&mut Netlink::open()?);
        if !errors.is_empty() {
            let what = format!("not undone, and still listed in {}", self.instance.journal().display());
            return Err(Error::other(what, errors.join("; ")));
        }
        if let Some(traffic) = self.protected_traffic.take() {
            traffic.close();
        }
        match std::fs::remove_file(self.instance.journal()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(file_error(&self.instance.journal(), error))
            }
            _ => Ok(()),
        }
    }

    /// Undoes the changes, the newest first. A failure does not prevent the others; only failed changes stay
    /// in the journal. Returns the reasons of the failures.
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

    /// Leaves everything in place, as a crash does.
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
        if self.leaves_guard() {
            self.set_leftovers(self.guard_leftovers());
        } else {
            // Changes that cannot be undone stay in the file, and `leftovers` reports them.
            let _ = self.undo();
        }
    }
}

/// Undoes what a dead instance left behind, its guard included, and returns it as text. An error if the
/// instance is alive, or if a change cannot be undone.
pub fn clean_up(instance: &Instance) -> Result<Vec<String>, Error> {
    // An instance that keeps its files in another directory may use this interface.
    let _tun = Tun::create(instance.tun(), &mut Netlink::open()?)?;
    let mut journal = Journal::open(instance, Nft::direct())?;
    if journal.finds_unlisted_guard()? {
        journal.record_guard()?;
    }
    let done = journal.entries.iter().map(ToString::to_string).collect();
    journal.undo()?;
    let traffic = instance.protected_traffic_file();
    match std::fs::remove_file(&traffic) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(&traffic, error)),
        _ => Ok(done),
    }
}

/// Whether a journal is about the current network namespace. If the journal or the kernel does not tell, the
/// guard in the journal shows it.
fn is_of_namespace(contents: &Contents, here: Option<&NetnsId>, instance: &Instance) -> Result<bool, Error> {
    match (&contents.namespace, here) {
        (Some(there), Some(here)) => Ok(there == here),
        _ => {
            let names_guard = contents.entries.iter().any(|entry| matches!(entry, Undo::Guard { .. }));
            Ok(names_guard && has_guard(instance.tun())?)
        }
    }
}

/// Opens and locks a journal; `None` if its owner is alive.
fn lock(path: &Path) -> Result<Option<File>, Error> {
    // The owner may have removed the file before it released the lock. Then this file is not the one at the
    // path any more.
    for _ in 0..16 {
        let file = private_file::open(
            path,
            File::options().read(true).append(true).create(true),
            OthersAccess::None,
        )
        .map_err(|error| file_error(path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(file_error(path, error)),
            Ok(()) => {}
        }
        let locked = file.metadata().map_err(|error| file_error(path, error))?.ino();
        if std::fs::metadata(path).is_ok_and(|there| there.ino() == locked) {
            return Ok(Some(file));
        }
    }
    Err(Error::other(path.display().to_string(), "another process keeps removing this file"))
}

fn file_error(path: &Path, error: std::io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests;
