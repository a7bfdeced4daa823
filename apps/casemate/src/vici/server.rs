//! The event loop's side of vici: clients, their registrations for events, and commands in progress.
//!
//! A change of the configuration is built by the thread `configuration` and applied by the event loop.
//! While changes cost little, the response to the command that loads a section is sent when the section
//! has taken effect. When they cost more ([`PROMPT`]), as with thousands of connections, the response is
//! sent at once and changes are collected. All other commands wait until every change before them has taken
//! effect.

use super::commands::{self, Outcome, RunningCommand};
use super::counters::EventCounters;
use super::events::{self, Event};
use super::loaded::{Loaded, LoadedEnvironment};
use super::message::{MessageWriter, Section};
use super::names::Names;
use super::packet::{ClientPacket, ServerPacket};
use super::queries::Program;
use super::sas::SaView;
use super::service::{ViciChannel, ViciClient, ViciInput, ViciOutput};
use super::session::SessionId;
use crate::config_source::FileConfig;
use crate::keyring::{self, Keyring};
use crate::log::Log;
use crate::log::rate_limit::LogCategory;
use crate::swanctl::Environment;
use crate::wakeup::Waker;
use casemate_crypto::Provider;
use casemate_ike::IkeSaId;
use casemate_ike::config::Pool;
use casemate_linux::EndpointHandle;
use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// If a change took longer than this to take effect, the following changes are collected.
const PROMPT: Duration = Duration::from_millis(20);
/// Time after the last change in which collected changes take effect, at least.
const COLLECT: Duration = Duration::from_millis(50);
/// How many times longer than it takes to apply changes they are collected.
const COLLECT_FACTOR: u32 = 5;
/// Maximum number of events that wait for the event loop's next turn. Further ones are dropped.
const MAX_EVENTS: usize = 65_536;

/// What commands and events need of the instance.
pub(crate) struct ViciContext<'a, 'h> {
    /// The endpoint.
    pub(crate) handle: &'a EndpointHandle<'h>,
    /// Keys of the current configuration.
    pub(crate) keyring: &'a Keyring,
    /// The log.
    pub(crate) log: &'a mut Log,
}

/// What the controller has to do.
#[derive(Debug)]
pub(crate) enum ViciRequest {
    /// Read the file again, and respond to this client.
    ReloadFile(SessionId),
    /// Build and apply what clients have loaded.
    Apply,
}

/// The result of building and applying a change.
pub(crate) type ChangeResult = Result<(), String>;

/// A client, and the names of the events that it is registered for.
struct Client {
    handle: ViciClient,
    events: BTreeSet<&'static str>,
}

/// A client that waits.
enum Waiting {
    /// For a change to take effect; then for this response.
    Change(u64, Vec<u8>),
    /// For this change to take effect; then this command runs.
    Command(u64, String, Section),
    /// For host names to be resolved; then this command runs.
    Names(String, Section),
    /// For the file to be read.
    Reload,
}

/// Changes of the configuration, numbered in their order.
#[derive(Default)]
struct Changes {
    /// Number of the last change.
    last: u64,
    /// Number of the last change that has taken effect.
    applied: u64,
    /// Number of the last change that is being applied, and the time since which it is.
    applying: Option<(u64, Instant)>,
    /// Time of the last change.
    changed_at: Option<Instant>,
    /// How long the last change took to take effect.
    cost: Duration,
}

/// The server.
pub(crate) struct ViciServer {
    channel: ViciChannel,
    path: PathBuf,
    clients: HashMap<SessionId, Client>,
    waiting: Vec<(SessionId, Waiting)>,
    running: Vec<(SessionId, RunningCommand)>,
    events: Vec<Event>,
    /// IKE SAs as they were last seen, for events about their end. Kept while a client is registered for
    /// such events.
    pub(super) seen: HashMap<IkeSaId, SaView>,
    changes: Changes,
    /// Responses that are sent when routes and packet filter match the last change; `None` if they do.
    held: Option<Vec<(SessionId, Vec<u8>)>>,
    pub(super) loaded: Loaded,
    /// What had taken effect last, to which a change that fails returns.
    in_effect: Loaded,
    /// The configuration of the file.
    pub(super) base: Arc<FileConfig>,
    /// Pools of the current configuration.
    pub(super) pools: Vec<Pool>,
    pub(super) program: Program,
    pub(super) providers: Vec<&'static dyn Provider>,
    pub(super) counters: EventCounters,
    pub(super) names: Names,
    /// Wakes the event loop.
    waker: Waker,
}

impl ViciServer {
    /// Serves the clients of the listener at `path`.
    pub(crate) fn new(
        channel: ViciChannel,
        path: PathBuf,
        threads: usize,
        providers: &[&'static dyn Provider],
        waker: Waker,
    ) -> Self {
        let names = providers.iter().map(|provider| provider.name()).collect();
        Self {
            channel,
            path,
            clients: HashMap::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            events: Vec::new(),
            seen: HashMap::new(),
            changes: Changes::default(),
            held: None,
            loaded: Loaded::default(),
            in_effect: Loaded::default(),
            base: Arc::default(),
            pools: Vec::new(),
            program: Program::new(threads, names),
            providers: providers.to_vec(),
            counters: EventCounters::default(),
            names: Names::default(),
            waker,
        }
    }

    /// What clients have loaded, and the part of the file to join it with.
    pub(crate) fn begin_change(&mut self) -> (Arc<FileConfig>, Loaded) {
        self.changes.applying = Some((self.changes.last, Instant::now()));
        (self.base.clone(), self.loaded.clone())
    }

    /// Ends a change that has no effect, because the file has errors.
    pub(crate) fn cancel_change(&mut self) {
        self.changes.applying = None;
    }

    /// Notes a configuration that is in effect.
    pub(crate) fn set_configuration(&mut self, base: Option<Arc<FileConfig>>, pools: Vec<Pool>) {
        self.base = base.unwrap_or_default();
        self.pools = pools;
    }

    /// Processes the result of the change that [`begin_change`](Self::begin_change) began with `loaded`.
    /// Responds to the clients that wait for it. Returns what the controller has to do.
    pub(crate) fn end_change(
        &mut self,
        result: &ChangeResult,
        loaded: Loaded,
        context: &mut ViciContext<'_, '_>,
    ) -> Vec<ViciRequest> {
        let Some((number, since)) = self.changes.applying.take() else { return Vec::new() };
        self.changes.cost = since.elapsed();
        match result {
            Ok(()) => {
                self.changes.applied = number;
                self.in_effect = loaded;
                self.held.get_or_insert_default();
            }
            Err(error) => {
                // Nothing of the change is in effect, so it is forgotten, and so is what followed.
                self.loaded = self.in_effect.clone();
                self.changes.applied = self.changes.last;
                context.log.record(LogCategory::Program, &format!("vici: changes were refused: {error}"));
            }
        }
        let applied = self.changes.applied;
        let mut commands = Vec::new();
        for (id, waiting) in mem::take(&mut self.waiting) {
            match (waiting, result) {
                (Waiting::Change(number, _), Err(error)) if number <= applied => {
                    self.respond(id, commands::failure(error));
                }
                (Waiting::Change(number, response), Ok(())) if number <= applied => {
                    self.respond(id, response);
                }
                (Waiting::Command(number, name, message), _) if number <= applied => {
                    commands.push((id, name, message));
                }
                (other, _) => self.waiting.push((id, other)),
            }
        }
        let mut requests = Vec::new();
        for (id, name, message) in commands {
            requests.extend(self.run(id, &name, &message, context));
        }
        requests
    }

    /// The sections of the file that were unloaded are part of the configuration again.
    pub(crate) fn show_file(&mut self) {
        self.loaded.show_file();
        self.in_effect.show_file();
    }

    /// Responds to a client that waits for the file to be read.
    pub(crate) fn end_reload(&mut self, id: SessionId, result: &ChangeResult) {
        self.waiting.retain(|(waiting, what)| *waiting != id || !matches!(what, Waiting::Reload));
        self.respond(id, commands::result(result));
    }

    /// Processes what clients have sent, and events. Returns what the controller has to do.
    pub(crate) fn serve(&mut self, context: &mut ViciContext<'_, '_>) -> Vec<ViciRequest> {
        self.send_log(context.log);
        self.send_events(context);
        let mut requests = Vec::new();
        while let Ok(input) = self.channel.inputs.try_recv() {
            match input {
                ViciInput::Opened(handle) => {
                    self.clients.insert(handle.id, Client { handle, events: BTreeSet::new() });
                }
                ViciInput::Closed(id) => self.close(id, context),
                ViciInput::Packet(id, ClientPacket::Register(name)) => {
                    self.register(id, &name, true, context)
                }
                ViciInput::Packet(id, ClientPacket::Unregister(name)) => {
                    self.register(id, &name, false, context);
                }
                ViciInput::Packet(id, ClientPacket::Command(name, message)) => {
                    requests.extend(self.command(id, name, message, context));
                }
            }
        }
        if self.names.finish() {
            self.run_with_names(context);
        }
        self.end_late_commands();
        requests.extend(self.next_change());
        requests
    }

    /// Runs the commands that waited for host names.
    fn run_with_names(&mut self, context: &mut ViciContext<'_, '_>) {
        for (id, waiting) in mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Names(name, message) => self.change(id, name, message, context),
                other => self.waiting.push((id, other)),
            }
        }
        if !self.waiting.iter().any(|(_, waiting)| matches!(waiting, Waiting::Names(..))) {
            self.names.forget();
        }
    }

    /// Whether the collected changes are to be applied now. Sets an alarm otherwise.
    fn next_change(&mut self) -> Option<ViciRequest> {
        let Changes { last, applied, applying: None, changed_at, cost } = self.changes else { return None };
        if last == applied {
            return None;
        }
        let needs_change = |waiting: &Waiting| matches!(waiting, Waiting::Change(..) | Waiting::Command(..));
        let is_awaited = self.waiting.iter().any(|(_, waiting)| needs_change(waiting));
        let wait = COLLECT.max(cost.saturating_mul(COLLECT_FACTOR));
        let due = changed_at.map(|changed| changed + wait);
        match due.filter(|due| !is_awaited && *due > Instant::now()) {
            None => Some(ViciRequest::Apply),
            Some(due) => {
                self.wake_at(due);
                None
            }
        }
    }

    /// Has the event loop call [`serve`](Self::serve) at this time.
    fn wake_at(&self, at: Instant) {
        self.channel.outputs.send(ViciOutput::Alarm(at));
    }

    fn command(
        &mut self,
        id: SessionId,
        name: String,
        message: Section,
        context: &mut ViciContext<'_, '_>,
    ) -> Option<ViciRequest> {
        if !commands::is_change(&name) {
            if self.changes.last != self.changes.applied {
                self.waiting.push((id, Waiting::Command(self.changes.last, name, message)));
                return None;
            }
            return self.run(id, &name, &message, context);
        }
        self.change(id, name, message, context);
        None
    }

    /// Runs a command that changes the configuration.
    fn change(&mut self, id: SessionId, name: String, message: Section, context: &mut ViciContext<'_, '_>) {
        match commands::change(self, &name, &message, context) {
            Err(_) if self.names.has_missing() => {
                let waker = self.waker.0.try_clone().map(Waker);
                match self.names.start(waker) {
                    Ok(()) => self.waiting.push((id, Waiting::Names(name, message))),
                    Err(error) => {
                        self.names.forget();
                        self.respond(id, commands::failure(&format!("resolving host names: {error}")));
                    }
                }
            }
            Err(error) => self.respond(id, commands::failure(&error)),
            Ok(response) => {
                self.changes.last = self.changes.last.saturating_add(1);
                self.changes.changed_at = Some(Instant::now());
                if self.changes.cost <= PROMPT {
                    self.waiting.push((id, Waiting::Change(self.changes.last, response)));
                } else {
                    self.respond(id, response);
                }
            }
        }
    }

    /// Runs a command that changes no configuration.
    fn run(
        &mut self,
        id: SessionId,
        name: &str,
        message: &Section,
        context: &mut ViciContext<'_, '_>,
    ) -> Option<ViciRequest> {
        let (mut outcome, mut events) = (Outcome::Unknown, Vec::new());
        if let Some(run) = commands::command(name) {
            outcome = run(self, message, context, &mut |event, message| events.push((event, message)));
        }
        if let Some(client) = self.clients.get(&id) {
            for (event, message) in events.into_iter().filter(|(event, _)| client.events.contains(event)) {
                client.handle.send(ServerPacket::Event(event, message));
            }
        }
        match outcome {
            Outcome::Unknown => self.send(id, ServerPacket::UnknownCommand),
            Outcome::Response(response) => self.respond(id, response),
            Outcome::Reload => {
                self.waiting.push((id, Waiting::Reload));
                return Some(ViciRequest::ReloadFile(id));
            }
            Outcome::Running(command) => match command.outcome() {
                Some(response) => self.respond(id, response),
                None => {
                    if let Some(deadline) = command.deadline {
                        self.wake_at(deadline);
                    }
                    self.running.push((id, command));
                }
            },
        }
        None
    }

    fn register(&mut self, id: SessionId, name: &str, is_on: bool, context: &ViciContext<'_, '_>) {
        let Some(name) = events::NAMES.into_iter().find(|known| *known == name) else {
            return self.send(id, ServerPacket::UnknownEvent);
        };
        if let Some(client) = self.clients.get_mut(&id) {
            if is_on {
                client.events.insert(name);
            } else {
                client.events.remove(name);
            }
        }
        self.update_seen(context);
        self.send(id, ServerPacket::Confirm);
    }

    /// Fills or clears the IKE SAs that were seen, as events need them or not.
    fn update_seen(&mut self, context: &ViciContext<'_, '_>) {
        let is_needed = events::ABOUT_SAS.iter().any(|name| self.has_listener(name));
        if !is_needed {
            self.seen.clear();
        } else if self.seen.is_empty() {
            let views = SaView::take(&context.handle.lock(), context.keyring, |_| true);
            self.seen = views.into_iter().map(|view| (view.status.id, view)).collect();
        }
    }

    fn close(&mut self, id: SessionId, context: &ViciContext<'_, '_>) {
        self.clients.remove(&id);
        self.running.retain(|(running, _)| *running != id);
        // A change takes effect without its client, too.
        self.waiting.retain(|(waiting, _)| *waiting != id);
        self.update_seen(context);
    }

    /// Whether a client is registered for this event.
    pub(super) fn has_listener(&self, name: &str) -> bool {
        self.clients.values().any(|client| client.events.contains(name))
    }

    /// Sends an event to the clients that are registered for it.
    pub(super) fn raise(&self, name: &'static str, message: &[u8]) {
        for client in self.clients.values().filter(|client| client.events.contains(name)) {
            client.handle.send_event(name, message.to_vec());
        }
    }

    fn respond(&mut self, id: SessionId, response: Vec<u8>) {
        match &mut self.held {
            Some(held) => held.push((id, response)),
            None => self.send(id, ServerPacket::Response(response)),
        }
    }

    /// Routes and packet filter match the configuration: sends the responses that waited for that.
    pub(crate) fn on_reconciled(&mut self) {
        for (id, response) in self.held.take().unwrap_or_default() {
            self.send(id, ServerPacket::Response(response));
        }
    }

    fn send(&self, id: SessionId, packet: ServerPacket) {
        if let Some(client) = self.clients.get(&id) {
            client.handle.send(packet);
        }
    }

    /// Names of the pools of the file and of those that were loaded.
    pub(super) fn pool_names(&self) -> Vec<String> {
        let of_file = self.base.config().pools.iter().filter(|pool| self.loaded.pools.shows(&pool.name));
        let loaded = self.loaded.pools.loaded.names();
        of_file.map(|pool| pool.name.as_str()).chain(loaded).map(ToOwned::to_owned).collect()
    }

    /// The first certificate of a file or of a loaded object, in DER.
    pub(super) fn certificate(&self, path: &std::path::Path) -> Option<Vec<u8>> {
        let environment = LoadedEnvironment::new(&self.loaded, self.base.contents());
        let bytes = environment.read(path).ok()?;
        keyring::certificates_of(&bytes).ok()?.into_iter().next()
    }

    /// Notes an event of the endpoint. Returns whether [`serve`](Self::serve) has to be called for it.
    pub(crate) fn on_notice(&mut self, notice: &casemate::Notice) -> bool {
        let casemate::Notice::Ike(event) = notice else { return false };
        let rekeyed = match event {
            Event::IkeRekeyed { old, .. } => self.seen.get(old).map(|view| &*view.status.connection),
            _ => None,
        };
        self.counters.count(event, rekeyed);
        let is_needed =
            !self.running.is_empty() || events::ABOUT_SAS.iter().any(|name| self.has_listener(name));
        if !is_needed || matches!(event, Event::Keys(_)) || self.events.len() >= MAX_EVENTS {
            return false;
        }
        self.events.push(event.clone());
        true
    }

    fn send_events(&mut self, context: &ViciContext<'_, '_>) {
        let mut events = mem::take(&mut self.events);
        events::sort(&mut events);
        for event in events {
            events::send(self, &event, context);
            let mut ended = Vec::new();
            self.running.retain_mut(|(id, command)| {
                command.on_event(&event);
                let outcome = command.outcome();
                ended.extend(outcome.map(|response| (*id, response)));
                ended.last().is_none_or(|(last, _)| last != id)
            });
            for (id, response) in ended {
                self.respond(id, response);
            }
        }
    }

    /// Responds to commands that took longer than their clients wait.
    fn end_late_commands(&mut self) {
        let now = Instant::now();
        let is_late = |command: &RunningCommand| command.deadline.is_some_and(|deadline| deadline <= now);
        let (late, running) =
            mem::take(&mut self.running).into_iter().partition(|(_, command)| is_late(command));
        self.running = running;
        let late: Vec<(SessionId, RunningCommand)> = late;
        for (id, command) in late {
            self.respond(id, command.timed_out());
        }
        if let Some(next) = self.running.iter().filter_map(|(_, command)| command.deadline).min() {
            self.wake_at(next);
        }
    }

    /// Sends new log lines to the clients that follow the log or have a command in progress.
    pub(crate) fn send_log(&mut self, log: &mut Log) {
        for (category, line) in log.take_observed() {
            let message = |with_thread| events::log_message(category, &line, with_thread);
            if self.has_listener("log") {
                self.raise("log", &message(true));
            }
            for (id, command) in &self.running {
                let client = self.clients.get(id).filter(|client| client.events.contains("control-log"));
                if let Some(client) = client.filter(|_| command.shows_log) {
                    client.handle.send_event("control-log", message(false));
                }
            }
        }
    }
}

impl Drop for ViciServer {
    fn drop(&mut self) {
        // The next start replaces a socket that could not be removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A response without content.
pub(super) fn empty() -> Vec<u8> {
    MessageWriter::message(|_| {})
}
