//! Makes the name servers of this host follow those of the tunnels.
//!
//! One request is at work at a time, in a thread of its own, because programs take time. A change is in the
//! journal before the request is sent. A request that fails is tried again later, and with other settings at
//! once.

use super::request::DnsTarget;
use super::tunnels::Tunnels;
use super::{DnsHandle, DnsMethod, DnsMode, DnsSettings, DnsState};
use crate::Error;
use crate::journal::{Journal, Undo};
use crate::sys::EventFd;
use casemate_ike::Event;
use casemate_sa::Selector;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time until a request that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Name servers of tunnels, and the state of those of this host.
pub(crate) struct NameServers {
    mode: DnsMode,
    /// Changes name servers; `None` if no connection at the start could need it.
    handle: Option<DnsHandle>,
    tun: String,
    tunnels: Tunnels,
    /// What is set, and how.
    applied: Option<Applied>,
    job: Option<Job>,
    /// Settings that could not be applied, with the reason.
    failure: Option<Failure>,
    /// What the log has said about servers that are not used.
    reported: Vec<String>,
}

#[derive(Debug, Clone)]
struct Applied {
    method: DnsMethod,
    settings: DnsSettings,
    /// The file that was written, to notice that another program replaces it.
    file: Option<FileId>,
    /// Whether another program has replaced it.
    is_lost: bool,
}

/// Identifies a file with its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    inode: u64,
    changed: (i64, i64),
}

struct Job {
    target: DnsTarget,
    /// `None` restores what was before.
    settings: Option<DnsSettings>,
    result: Receiver<Result<Option<String>, Error>>,
}

struct Failure {
    settings: DnsSettings,
    reason: String,
    at: Instant,
}

impl NameServers {
    /// Without a handle, nothing is changed, and name servers of peers are reported as unused.
    pub(crate) fn new(mode: DnsMode, handle: Option<DnsHandle>, tun: String) -> Self {
        let (applied, job, failure, reported) = (None, None, None, Vec::new());
        Self { mode, handle, tun, tunnels: Tunnels::default(), applied, job, failure, reported }
    }

    /// An error if the name servers cannot be changed any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.handle.as_ref().map_or(Ok(()), DnsHandle::check)
    }

    /// Takes an event into account.
    pub(crate) fn note(&mut self, event: &Event) {
        self.tunnels.note(event);
    }

    /// Takes the policies into account: the selectors of outbound traffic that does not leave in clear.
    pub(crate) fn note_policies(&mut self, protected: impl Iterator<Item = Selector>) {
        self.tunnels.note_policies(protected);
    }

    /// What is in use, and what is not.
    pub(crate) fn state(&self) -> DnsState {
        let (settings, mut unused) = self.tunnels.settings();
        let applied = self.applied.as_ref().filter(|applied| !applied.is_lost);
        let is_applied = applied.is_some_and(|applied| applied.settings == settings);
        if !settings.servers.is_empty() && !is_applied {
            unused.extend(self.reason(&settings));
        }
        let applied = applied.map(|applied| (applied.method, applied.settings.clone()));
        DnsState { applied, unused }
    }

    /// Why settings are not in use; `None` if they are about to be.
    fn reason(&self, settings: &DnsSettings) -> Option<String> {
        let reason = match (&self.failure, self.mode, &self.handle) {
            (_, DnsMode::Off, _) => "the configuration says so",
            (Some(failure), ..) => &failure.reason,
            (None, _, None) => "no connection had `vips` at the start: `casemate run` must be started again",
            (None, _, Some(_)) if self.applied.as_ref().is_some_and(|applied| applied.is_lost) => {
                "another program has changed /etc/resolv.conf"
            }
            (None, _, Some(_)) => return None,
        };
        Some(format!("name servers {settings} are not used: {reason}"))
    }

    /// Sends the next request if one is due. Returns problems for the log. `done` is signalled when this
    /// should be called again.
    pub(crate) fn advance(&mut self, journal: &mut Journal, done: &Arc<EventFd>) -> Vec<String> {
        let mut problems: Vec<String> = self.finish_job(journal).into_iter().collect();
        self.check_file();
        if self.job.is_none()
            && let Some((target, settings)) = self.next_request()
            && let Err(error) = self.start(target, settings.clone(), journal, done)
        {
            self.fail(settings.unwrap_or_default(), error.to_string());
        }
        // The user knows about a choice of the configuration.
        let unused = if self.mode == DnsMode::Off { Vec::new() } else { self.state().unused };
        problems.extend(unused.iter().filter(|text| !self.reported.contains(text)).cloned());
        self.reported = unused;
        problems
    }

    /// What should be changed now: the settings, or `None` to restore what was before.
    fn next_request(&self) -> Option<(DnsTarget, Option<DnsSettings>)> {
        self.handle.as_ref()?;
        let (desired, _) = self.tunnels.settings();
        let is_desired = |settings: &DnsSettings| *settings == desired;
        let target = |method| DnsTarget { method, tun: self.tun.clone() };
        if let Some(failure) = &self.failure
            && is_desired(&failure.settings)
            && failure.at.elapsed() < RETRY_INTERVAL
        {
            return None;
        }
        match &self.applied {
            Some(applied) if desired.servers.is_empty() => Some((target(applied.method), None)),
            Some(applied) if applied.is_lost || is_desired(&applied.settings) => None,
            Some(applied) => Some((target(applied.method), Some(desired))),
            None if desired.servers.is_empty() => None,
            None => Some((target(self.mode.method()?), Some(desired))),
        }
    }

    fn start(
        &mut self,
        target: DnsTarget,
        settings: Option<DnsSettings>,
        journal: &mut Journal,
        done: &Arc<EventFd>,
    ) -> Result<(), Error> {
        let Some(handle) = self.handle.clone() else { return Ok(()) };
        if settings.is_some() {
            journal.record(Undo::NameServers(target.clone()))?;
        }
        let (sender, result) = channel();
        let is_first = self.applied.is_none();
        let (done, request) = (done.clone(), (target.clone(), settings.clone()));
        let work = move || {
            let (target, settings) = request;
            let outcome = match &settings {
                // A program may have failed in the middle of its work.
                Some(settings) => handle.set(&target, settings).map(|()| None).inspect_err(|_| {
                    if is_first {
                        let _ = handle.restore(&target);
                    }
                }),
                None => handle.restore(&target),
            };
            // The receiver is gone if the run has ended.
            let _ = sender.send(outcome);
            done.signal();
        };
        let started = thread::Builder::new().name("name servers".into()).spawn(work);
        started.map_err(|error| Error::new("thread for name servers", error))?;
        self.job = Some(Job { target, settings, result });
        Ok(())
    }

    /// Takes the result of the request, if it is complete. Returns a warning.
    fn finish_job(&mut self, journal: &mut Journal) -> Option<String> {
        let job = self.job.as_ref()?;
        let result = match job.result.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(Error::other("thread for name servers", "it panicked")),
            Ok(result) => result,
        };
        let Job { target, settings, .. } = self.job.take()?;
        match (result, settings) {
            (Err(error), settings) => {
                let is_unchanged = settings.is_some() && self.applied.is_none();
                self.fail(settings.unwrap_or_default(), error.to_string());
                let forgotten = is_unchanged.then(|| journal.forget(&Undo::NameServers(target)));
                forgotten?.err().map(|error| error.to_string())
            }
            (Ok(warning), None) => {
                (self.applied, self.failure) = (None, None);
                let forgotten = journal.forget(&Undo::NameServers(target)).err();
                warning.or(forgotten.map(|error| error.to_string()))
            }
            (Ok(_), Some(settings)) => {
                let file = (target.method == DnsMethod::File).then(FileId::present).flatten();
                self.applied = Some(Applied { method: target.method, settings, file, is_lost: false });
                self.failure = None;
                None
            }
        }
    }

    fn fail(&mut self, settings: DnsSettings, reason: String) {
        self.failure = Some(Failure { settings, reason, at: Instant::now() });
    }

    /// Notices that another program has replaced /etc/resolv.conf, which then stays as it is.
    fn check_file(&mut self) {
        if let Some(applied) = &mut self.applied
            && applied.file.is_some()
            && FileId::present() != applied.file
        {
            applied.is_lost = true;
        }
    }

    /// Ends the run: waits for the request at work and restores what was before. Returns a warning.
    pub(crate) fn end(&mut self, journal: &mut Journal) -> Option<String> {
        if let Some(job) = self.job.take() {
            // A program that hangs is killed after some seconds.
            let _ = job.result.recv();
        }
        self.handle.as_ref()?;
        let warnings = journal.restore_name_servers();
        (!warnings.is_empty()).then(|| warnings.join("; "))
    }
}

impl FileId {
    fn present() -> Option<Self> {
        let metadata = fs::symlink_metadata(super::etc().join("resolv.conf")).ok()?;
        Some(Self { inode: metadata.ino(), changed: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}
