//! Looks after the running engine: obeys clients, writes down what happens, reads the configuration again.

use super::budget::Kind;
use super::config::Source;
use super::control::{Control, Reply};
use super::logbook::Logbook;
use super::tables::Tables;
use super::{lines, waiting::Waiting};
use crate::command::{self, Wanted};
use crate::control::{Request, outcome};
use crate::keyring::Keyring;
use crate::status::{Identity, Snapshot};
use casemate::{Endpoint, Notice};
use casemate_ike::Event;
use casemate_linux::{Attendant, Home, Scheduling};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The attendant of `casemate run`.
pub(super) struct Steward {
    control: Control,
    identity: Identity,
    log: Logbook,
    waiting: Waiting,
    /// Answers that may go when the system follows what was done.
    done: Vec<(Reply, String)>,
    tables: Option<Tables>,
    /// Where the configuration comes from, and its keys; manual keys have none.
    source: Option<(Source, Arc<Keyring>)>,
    /// As it was when the instance started.
    scheduling: Option<Scheduling>,
}

impl Steward {
    pub(super) fn new(control: Control, identity: Identity) -> Self {
        Self {
            control,
            identity,
            log: Logbook::new(),
            waiting: Waiting::default(),
            done: Vec::new(),
            tables: None,
            source: None,
            scheduling: None,
        }
    }

    /// With a configuration that can be read again.
    pub(super) fn with_source(
        self,
        source: Source,
        keyring: Arc<Keyring>,
        tables: Option<Tables>,
        scheduling: Option<Scheduling>,
    ) -> Self {
        Self { source: Some((source, keyring)), tables, scheduling, ..self }
    }

    /// Puts what the configuration says now in the place of what it said.
    pub(super) fn apply(&mut self, home: &mut Home) -> Result<(), String> {
        let Some((source, keyring)) = &mut self.source else {
            return Err("manual keys are not read again: stop the instance and start it anew".into());
        };
        let loaded = source.load().map_err(|failure| failure.to_string())?;
        loaded.warnings.iter().for_each(|warning| self.log.note(Kind::Own, &format!("warning: {warning}")));
        if loaded.scheduling != self.scheduling {
            // The queues of the TUN interface are made with it.
            self.log.note(
                Kind::Own,
                "warning: scheduler: what has changed there takes effect when the instance is started anew",
            );
        }
        let fresh = Arc::new(loaded.keyring);
        *keyring = fresh.clone();
        home.set_credentials(fresh);
        let (connections, pools) = (loaded.connections, loaded.pools);
        home.with(|endpoint, means| endpoint.configure(connections, &pools, means))
            .map_err(|error| error.to_string())
    }

    /// Warns if the configuration cannot be read again without the privileges that were given up.
    pub(super) fn check_source(&mut self) {
        let Some((source, _)) = &self.source else { return };
        if let Err(failure) = source.load() {
            let what = "warning: a reload will fail, because files of other users cannot be read any more:";
            self.log.note(Kind::Own, &format!("{what} {failure}"));
        }
    }

    fn obey(&mut self, request: Request, reply: Reply, home: &mut Home) {
        let done = match request {
            Request::Status => {
                let snapshot = Snapshot::take(home, &self.identity);
                let _ = reply.send(snapshot.to_json().to_string());
                return;
            }
            Request::Log(follow) => return self.log.tell(reply, follow),
            Request::Reload => {
                let done = outcome(&self.reload_now(home));
                return self.done.push((reply, done));
            }
            Request::Initiate(name, ike) => {
                match home.with(|endpoint, means| Wanted::initiate(&name, ike, endpoint, means)) {
                    Ok(wanted) => return self.waiting.wait(wanted, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Terminate(name) => {
                match home.with(|endpoint, means| Wanted::terminate(&name, endpoint, means)) {
                    Ok(wanted) => return self.waiting.wait(wanted, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Rekey(name, ike) => {
                home.with(|endpoint, means| command::rekey(&name, ike, endpoint, means))
            }
        };
        let _ = reply.send(outcome(&done));
    }

    fn reload_now(&mut self, home: &mut Home) -> Result<(), String> {
        let done = self.apply(home);
        match &done {
            Ok(()) => self.log.note(Kind::Own, "the configuration was read again"),
            Err(error) => error.lines().for_each(|line| self.log.note(Kind::Own, &format!("reload: {line}"))),
        }
        done
    }

    fn save_keys(&mut self, event: &Event) {
        let Some(tables) = &mut self.tables else { return };
        let saved = match event {
            Event::Keys(keys) => tables.add_ike(keys),
            Event::ChildUp(up) => tables.add_child(up),
            _ => Ok(()),
        };
        if let Err(error) = saved {
            self.log.note(Kind::Own, &format!("{}: {error}", tables.directory().display()));
        }
    }
}

impl Attendant for Steward {
    fn wake(&self) -> BorrowedFd<'_> {
        self.control.wake()
    }

    fn attend(&mut self, home: &mut Home) {
        for (request, reply) in self.control.requests() {
            self.obey(request, reply, home);
        }
    }

    fn reload(&mut self, home: &mut Home) -> bool {
        // A configuration that is wrong changes nothing, and the log says why.
        self.source.is_some() && (self.reload_now(home).is_ok() || self.source.is_some())
    }

    fn settled(&mut self) {
        for (reply, done) in self.done.drain(..) {
            // A client that has gone is not told.
            let _ = reply.send(done);
        }
        self.log.report();
    }

    fn notice(&mut self, endpoint: &Endpoint, notice: &Notice) {
        if let Notice::Ike(event) = notice {
            self.save_keys(event);
            self.waiting.hear(event);
        }
        if let Some((_, keyring)) = &self.source {
            keyring.take_refusals().iter().for_each(|line| self.log.note(Kind::Certificate, line));
        }
        if let Some((kind, line)) = lines::of(endpoint, notice) {
            self.log.note(kind, &line);
        }
    }

    fn trouble(&mut self, what: String) {
        self.log.note(Kind::Own, &what);
    }

    fn sending_failed(&mut self, what: String) {
        self.log.note(Kind::Sending, &what);
    }
}
