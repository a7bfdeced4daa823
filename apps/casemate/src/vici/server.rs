//! The event loop's side of vici: clients, their registrations for events, and commands in progress.

use super::changes::{Changes, Waiting};
use super::commands::{self, Call, Outcome, RunningCommand};
use super::counters::EventCounters;
use super::events::{self, Event};
use super::loaded::{Loaded, LoadedEnvironment};
use super::message::{MessageWriter, Section};
use super::packet::{ClientPacket, ServerPacket};
use super::queries::Program;
use super::sas::SaView;
use super::service::{ViciChannel, ViciClient, ViciInput, ViciOutput};
use super::session::SessionId;
use super::{ViciContext, ViciRequest};
use crate::config_source::FileConfig;
use crate::keyring;
use crate::log::Log;
use crate::swanctl::Environment;
use casemate_crypto::Provider;
use casemate_ike::config::Pool;
use casemate_ike::{ByOrigin, IkeSaId};
use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of events that wait for the event loop's next turn. Further ones are dropped.
const MAX_EVENTS: usize = 65_536;

/// A client, and the names of the events that it is registered for.
struct Client {
    handle: ViciClient,
    events: BTreeSet<&'static str>,
}

/// The server.
pub(crate) struct ViciServer {
    channel: ViciChannel,
    path: PathBuf,
    clients: HashMap<SessionId, Client>,
    pub(super) waiting: Vec<(SessionId, Waiting)>,
    running: Vec<(SessionId, RunningCommand)>,
    events: Vec<Event>,
    /// IKE SAs as they were last seen, for events about their end. Kept while a client is registered for
    /// such events.
    pub(super) seen: HashMap<IkeSaId, SaView>,
    /// Which of them have replaced each other.
    pub(super) origins: ByOrigin<()>,
    pub(super) changes: Changes,
    /// Clients that do not know yet that changes of theirs were refused, and why.
    pub(super) discarded: HashMap<SessionId, String>,
    /// Responses that are sent when routes and packet filter match the last change; `None` if they do.
    pub(super) held: Option<Vec<(SessionId, Vec<u8>)>>,
    pub(super) loaded: Loaded,
    /// What had taken effect last, to which a change that fails returns.
    pub(super) in_effect: Loaded,
    /// The configuration of the file.
    pub(super) base: Arc<FileConfig>,
    /// Pools of the current configuration.
    pub(super) pools: Vec<Pool>,
    pub(super) program: Program,
    pub(super) providers: Vec<&'static dyn Provider>,
    pub(super) counters: EventCounters,
}

impl ViciServer {
    /// Serves the clients of the listener at `path`.
    pub(crate) fn new(
        channel: ViciChannel,
        path: PathBuf,
        threads: usize,
        providers: &[&'static dyn Provider],
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
            origins: ByOrigin::default(),
            changes: Changes::default(),
            discarded: HashMap::new(),
            held: None,
            loaded: Loaded::default(),
            in_effect: Loaded::default(),
            base: Arc::default(),
            pools: Vec::new(),
            program: Program::new(threads, names),
            providers: providers.to_vec(),
            counters: EventCounters::default(),
        }
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
        self.end_late_commands();
        requests.extend(self.next_change());
        requests
    }

    /// Has the event loop call [`serve`](Self::serve) at this time.
    pub(super) fn wake_at(&self, at: Instant) {
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

    /// Runs a command that changes no configuration.
    pub(super) fn run(
        &mut self,
        id: SessionId,
        name: &str,
        message: &Section,
        context: &mut ViciContext<'_, '_>,
    ) -> Option<ViciRequest> {
        if self.report_discarded(id) {
            return None;
        }
        let (mut outcome, mut events) = (Outcome::Unknown, Vec::new());
        if let Some(run) = commands::command(name) {
            outcome = run(Call { server: self, request: message, context, events: &mut events });
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
        let Some(name) = events::known(name) else {
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
            self.origins = ByOrigin::default();
        } else if self.seen.is_empty() {
            let views = SaView::take(&context.handle.lock(), context.keyring, |_| true);
            views.iter().for_each(|view| self.origins.insert(view.status.id, ()));
            self.seen = views.into_iter().map(|view| (view.status.id, view)).collect();
        }
    }

    fn close(&mut self, id: SessionId, context: &ViciContext<'_, '_>) {
        self.clients.remove(&id);
        self.discarded.remove(&id);
        self.changes.remove_client(id);
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

    pub(super) fn respond(&mut self, id: SessionId, response: Vec<u8>) {
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
