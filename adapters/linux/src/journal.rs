//! Journal of changes to the system, written before each change is made.
//!
//! An orderly end undoes everything ([`Journal::close`]). A process that is killed cannot undo its changes,
//! and one that ends with an error must not: the guard stays, so that protected traffic does not leave in
//! clear. Only if the guard has never protected anything does an error undo everything, too; [`Leftovers`]
//! tells which of the two happened. The next start of the same instance takes the journal over, with
//! everything in it ([`Journal::open`]), and `casemate cleanup` undoes what is in it ([`clean_up()`]). A live
//! process holds a lock on its file. A reboot removes the file, together with everything that it lists. The
//! file also names the network namespace, because the next namespace may have the same number.
//!
//! Of a damaged journal it is unknown what the instance changed. A start refuses it; `casemate cleanup`
//! undoes what is readable, quotes the damaged lines, and keeps the file.

mod clean_up;
mod contents;
mod opened;
mod undo;

use crate::Error;
use crate::dns::DnsHandle;
use crate::instance::{Instance, NetnsId};
use crate::netlink::Netlink;
use crate::nft::Nft;
use crate::protected_traffic::{self, ProtectedSelector, ProtectedTrafficFile};
use contents::{Damage, TORN, UNDONE, WHEN_TO_REMOVE, read};
use opened::OpenedFile;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use undo::has_guard;

pub use clean_up::{CleanUp, clean_up};
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

/// Advice after everything that is readable in a damaged journal was undone.
const WHAT_IS_LEFT: &str = "Everything else in this file was undone. What these lines list may be left: \
    check `ip rule`, `ip -6 rule`, `nft list tables`, and net/ipv4/conf/*/rp_filter in /proc/sys; then \
    remove this file";

/// The journal of this process. If it is dropped without [`close`](Self::close), it leaves everything in
/// place if the guard was installed and has ever protected anything, or is the guard of a former run;
/// otherwise it undoes everything in it.
#[derive(Debug)]
pub struct Journal {
    instance: Instance,
    file: File,
    /// The last write failed, so the last line may be incomplete.
    is_torn: bool,
    /// The change in the last line, and the length of the file before it; `None` if the last line is another
    /// one.
    last_change: Option<(Undo, u64)>,
    nft: Nft,
    dns: DnsHandle,
    entries: Vec<Undo>,
    /// Lines that cannot be read. What they list may be left, so the file stays.
    damage: Damage,
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
    /// of it. An error if a line is damaged. `nft` installs and removes the guard.
    pub fn open(instance: &Instance, nft: Nft) -> Result<Self, Error> {
        let file = OpenedFile::open(instance)?;
        file.refuse_damage()?;
        Self::take_over(file, nft)
    }

    /// Like [`open`](Self::open), but accepts damaged lines if the namespace of the journal is known.
    fn open_damaged(instance: &Instance, nft: Nft) -> Result<Self, Error> {
        Self::take_over(OpenedFile::open(instance)?, nft)
    }

    fn take_over(file: OpenedFile, nft: Nft) -> Result<Self, Error> {
        let (instance, file, contents) = file.start()?;
        Ok(Self {
            instance,
            file,
            is_torn: false,
            last_change: None,
            nft,
            dns: DnsHandle::direct(),
            recovered: !contents.entries.is_empty(),
            entries: contents.entries,
            damage: contents.damage,
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

    /// Whether the changes stay after an error: the packet filter is, or may be, installed, and protects or
    /// protected traffic, or a former run has left it, or routes lead traffic into route-based tunnels.
    pub(crate) fn leaves_guard(&self) -> bool {
        self.lists_guard()
            && (self.recovered
                || self.protected_traffic.as_ref().is_some_and(ProtectedTrafficFile::was_used)
                || self.entries.iter().any(|entry| matches!(entry, Undo::Tunnel { .. })))
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

    /// Name of the TUN interface.
    pub(crate) fn tun(&self) -> &str {
        self.instance.tun()
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
        let line = undo.to_string();
        if line.parse().as_ref() != Ok(&undo) {
            let reason = format!("`{}` could not be read again, so it is not made", line.escape_debug());
            return Err(Error::other(self.instance.journal().display().to_string(), reason));
        }
        let len = self.file.metadata().map(|metadata| metadata.len()).ok().filter(|_| !self.is_torn);
        self.write_line(&undo)?;
        self.last_change = len.map(|len| (undo.clone(), len));
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
            if !contents.damage.is_empty() && !is_elsewhere {
                let reason = format!("{}; {WHEN_TO_REMOVE}", contents.damage);
                return Err(Error::other(path.display().to_string(), reason));
            }
            if !is_elsewhere && contents.entries.contains(undo) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write_line(&mut self, line: &dyn fmt::Display) -> Result<(), Error> {
        let torn = if self.is_torn { format!("{TORN}\n") } else { String::new() };
        let line = format!("{torn}{line}\n");
        self.last_change = None;
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
        let path = self.instance.journal();
        let mut unmarked = Vec::new();
        let mut errors = self.undo_each(&mut Netlink::open()?, &mut unmarked);
        if !errors.is_empty() || !self.damage.is_empty() {
            // The file stays, so the next attempt may undo these changes again.
            errors.append(&mut unmarked);
        }
        if !errors.is_empty() {
            let what = format!("not undone, and still listed in {}", path.display());
            errors.extend((!self.damage.is_empty()).then(|| self.damage.to_string()));
            return Err(Error::other(what, errors.join("; ")));
        }
        if !self.damage.is_empty() {
            return Err(Error::other(path.display().to_string(), format!("{}. {WHAT_IS_LEFT}", self.damage)));
        }
        if let Some(traffic) = self.protected_traffic.take() {
            traffic.close();
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error(&path, error)),
            _ => Ok(()),
        }
    }

    /// Undoes the changes, the newest first. A failure does not prevent the others; only failed changes stay
    /// in the journal. Returns the reasons of the failures, and adds to `unmarked` why a change that was
    /// undone is not marked.
    fn undo_each(&mut self, netlink: &mut Netlink, unmarked: &mut Vec<String>) -> Vec<String> {
        let mut errors = Vec::new();
        let mut failed: Vec<Undo> = Vec::new();
        while let Some(undo) = self.entries.pop() {
            if let Err(error) = undo.run(netlink, &self.nft, &self.dns) {
                errors.push(error.to_string());
                failed.push(undo);
            } else if let Err(error) = self.write_line(&format_args!("{UNDONE}{undo}")) {
                unmarked.push(error.to_string());
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

fn file_error(path: &Path, error: std::io::Error) -> Error {
    Error::new(path.display().to_string(), error)
}

#[cfg(test)]
mod tests;
