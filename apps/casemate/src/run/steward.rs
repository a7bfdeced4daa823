//! Looks after the running engine: obeys clients, writes down what happens, reads the configuration again.

use super::budget::Kind;
use super::config::{Loaded, Source};
use super::control::{Control, Reply};
use super::loading::Loading;
use super::logbook::Logbook;
use super::tables::Tables;
use super::{lines, waiting::Waiting};
use crate::command::{self, Wanted};
use crate::control::{Request, outcome};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::output;
use crate::status::{Identity, Snapshot};
use casemate::Notice;
use casemate_datapath::SaStatus;
use casemate_ike::Event;
use casemate_linux::{Attendant, Error, Home, HomeLock, Scheduling, Trouble};
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
    /// Where the configuration comes from; manual keys have none.
    source: Option<Arc<Source>>,
    /// Its keys.
    keyring: Arc<Keyring>,
    /// As it was when the instance started.
    scheduling: Option<Scheduling>,
    /// The configuration while it is read again, and the clients that wait for it.
    loading: Option<(Loading, Vec<Reply>)>,
    /// Clients that came meanwhile, for whom it is read once more.
    next: Option<Vec<Reply>>,
}

impl Steward {
    pub(super) fn new(control: Control, identity: Identity, log: Logbook) -> Self {
        Self {
            control,
            identity,
            log,
            waiting: Waiting::default(),
            done: Vec::new(),
            tables: None,
            source: None,
            keyring: Arc::new(Keyring::empty()),
            scheduling: None,
            loading: None,
            next: None,
        }
    }

    /// Gives up the privileges that are not needed any more, and says that the instance is ready.
    pub(super) fn is_ready(&mut self, summary: &str) -> Result<(), Failure> {
        super::confine(&mut self.log)?;
        self.check_source();
        // In the order in which it was said, where both go to one file.
        self.log.flush();
        output::show(&format!("{summary}\nready")).map_err(Failure::failed)
    }

    /// With a configuration that can be read again.
    pub(super) fn with_source(
        self,
        source: Source,
        tables: Option<Tables>,
        scheduling: Option<Scheduling>,
    ) -> Self {
        Self { source: Some(Arc::new(source)), tables, scheduling, ..self }
    }

    /// Puts what the configuration says now in the place of what it said.
    pub(super) fn apply(&mut self, loaded: Loaded, home: &mut Home) -> Result<(), String> {
        self.keyring = Arc::new(loaded.keyring);
        home.set_credentials(self.keyring.clone());
        let (connections, pools) = (loaded.connections, loaded.pools);
        home.with(|endpoint, means| endpoint.configure(connections, &pools, means))
            .map_err(|error| error.to_string())
    }

    /// Says what is odd in a configuration that was read again.
    fn warn(&mut self, loaded: &Loaded) {
        loaded.warnings.iter().for_each(|warning| self.log.note(Kind::Own, &format!("warning: {warning}")));
        if loaded.scheduling != self.scheduling {
            // The queues of the TUN interface are made with it.
            self.log.note(
                Kind::Own,
                "warning: scheduler: what has changed there takes effect when the instance is started anew",
            );
        }
    }

    /// Warns if the configuration cannot be read again without the privileges that were given up.
    fn check_source(&mut self) {
        let Some(source) = &self.source else { return };
        if let Err(failure) = source.check() {
            let what = "warning: a reload will fail, because files of other users cannot be read any more:";
            self.log.note(Kind::Own, &format!("{what} {}", failure.reason()));
        }
    }

    fn obey(&mut self, request: Request, reply: Reply, home: &HomeLock<'_>) {
        let done = match request {
            Request::Status => {
                let snapshot = Snapshot::take(&home.lock(), &self.identity);
                let _ = reply.send(snapshot.to_json().to_string());
                return;
            }
            Request::Log(follow) => return self.log.tell(reply, follow),
            Request::Reload => return self.load(Some(reply)),
            Request::Initiate(name, ike) => {
                let begun = home.lock().with(|endpoint, means| Wanted::initiate(&name, ike, endpoint, means));
                match begun {
                    Ok(wanted) => return self.waiting.wait(wanted, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Terminate(name) => {
                let begun = home.lock().with(|endpoint, means| Wanted::terminate(&name, endpoint, means));
                match begun {
                    Ok(wanted) => return self.waiting.wait(wanted, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Rekey(name, ike) => {
                home.lock().with(|endpoint, means| command::rekey(&name, ike, endpoint, means))
            }
        };
        let _ = reply.send(outcome(&done));
    }

    /// Begins to read the configuration again. Whoever asks while it is being read may have changed it just before: for
    /// all of these it is read once more.
    fn load(&mut self, client: Option<Reply>) {
        let Some(source) = &self.source else {
            let why = "manual keys are not read again: stop the instance and start it anew";
            return self.reloaded(Err(why.into()), client.into_iter().collect());
        };
        if self.loading.is_some() {
            return self.next.get_or_insert_default().extend(client);
        }
        match self.control.bell() {
            Ok(bell) => self.loading = Some((Loading::start(source, bell), client.into_iter().collect())),
            Err(error) => self.reloaded(Err(error.to_string()), client.into_iter().collect()),
        }
    }

    /// Applies what was read again, if it is there. A configuration that is wrong changes nothing.
    fn take_loaded(&mut self, home: &HomeLock<'_>) {
        let Some((loading, clients)) = self.loading.take() else { return };
        let Some(loaded) = loading.result() else {
            self.loading = Some((loading, clients));
            return;
        };
        let done = loaded.and_then(|loaded| {
            self.warn(&loaded);
            self.apply(loaded, &mut home.lock())
        });
        self.reloaded(done, clients);
        if let Some(clients) = self.next.take() {
            self.load(None);
            if let Some((_, waiting)) = &mut self.loading {
                waiting.extend(clients);
            }
        }
    }

    /// Tells everybody what became of it: the log now, clients when the system follows.
    fn reloaded(&mut self, done: Result<(), String>, clients: Vec<Reply>) {
        match &done {
            Ok(()) => self.log.note(Kind::Own, "the configuration was read again"),
            Err(error) => error.lines().for_each(|line| self.log.note(Kind::Own, &format!("reload: {line}"))),
        }
        self.done.extend(clients.into_iter().map(|client| (client, outcome(&done))));
    }

    fn save_keys(&mut self, event: &Event) {
        let Some(tables) = &mut self.tables else { return };
        let saved = match event {
            Event::Keys(keys) => tables.add_ike(keys),
            Event::ChildUp(up) => tables.add_child(up),
            _ => Ok(()),
        };
        if let Err(error) = saved {
            self.log.note(Kind::SavedKeys, &format!("{}: {error}", tables.directory().display()));
        }
    }
}

impl Attendant for Steward {
    fn wake(&self) -> BorrowedFd<'_> {
        self.control.wake()
    }

    fn attend(&mut self, home: &HomeLock<'_>) -> Result<(), Error> {
        for (request, reply) in self.control.requests()? {
            self.obey(request, reply, home);
        }
        self.take_loaded(home);
        Ok(())
    }

    fn reload(&mut self) {
        self.log.note(Kind::Own, "SIGHUP: the configuration is to be read again");
        self.load(None);
    }

    fn settled(&mut self) {
        for (reply, done) in self.done.drain(..) {
            // A client that has gone is not told.
            let _ = reply.send(done);
        }
        self.log.report();
    }

    fn notice(&mut self, notice: &Notice, sa: Option<&SaStatus>) {
        if let Notice::Ike(event) = notice {
            self.save_keys(event);
            self.waiting.hear(event);
        }
        self.keyring.take_refusals().iter().for_each(|line| self.log.note(Kind::Certificate, line));
        if let Some((kind, line)) = lines::of(notice, sa) {
            self.log.note(kind, &line);
        }
    }

    fn trouble(&mut self, kind: Trouble, what: String) {
        self.log.note(Kind::System(kind), &what);
    }
}
