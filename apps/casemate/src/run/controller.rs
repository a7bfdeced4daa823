//! The controller of a running engine: handles control requests, logs events, and reloads the configuration.

use super::ike::IkeState;
use super::key_log::KeyLog;
use crate::command::{self, PendingCommand};
use crate::config_source::{ConfigReload, ConfigSource, LoadedConfig, ReloadKind};
use crate::control::{ControlServer, PendingRequest, Reply, Request, outcome};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::log::Log;
use crate::log::format::log_line;
use crate::log::rate_limit::LogCategory;
use crate::output;
use crate::status::{InstanceIdentity, Snapshot};
use crate::swanctl::FilesRead;
use crate::vici::{Loaded, SessionId, ViciServer};
use casemate::Notice;
use casemate_datapath::SaStatus;
use casemate_ike::Event;
use casemate_linux::{
    EndpointContext, EndpointHandle, Engine, EngineHandler, Error, Performance, Scheduling, SystemProblem,
};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The engine handler of `casemate run`.
pub(super) struct RunController {
    pub(super) control: ControlServer,
    identity: InstanceIdentity,
    pub(super) log: Log,
    pending_commands: PendingCommands,
    /// Responses that are sent when the system state matches the configuration.
    responses: Vec<(Reply, String)>,
    key_log: Option<KeyLog>,
    /// Source of the configuration; `None` with manual keys.
    source: Option<Arc<ConfigSource>>,
    /// The files of the configuration at start.
    start_files: FilesRead,
    /// Keys of the current configuration.
    pub(super) keyring: Arc<Keyring>,
    /// The scheduler configuration at start, which a reload cannot change.
    scheduling: Option<Scheduling>,
    /// The ways to move packets at start, which a reload cannot change.
    performance: Performance,
    pub(super) reload: Option<PendingReload>,
    /// Clients that requested a reload during the one in progress; they get another one.
    next_reload: Option<Vec<ReloadClient>>,
    /// Clients of vici, if there is a socket for them.
    pub(super) vici: Option<ViciServer>,
}

/// A client that waits for a reload.
pub(super) enum ReloadClient {
    Control(Reply),
    Vici(SessionId),
}

impl RunController {
    pub(super) fn new(control: ControlServer, identity: InstanceIdentity, log: Log) -> Self {
        Self {
            control,
            identity,
            log,
            pending_commands: PendingCommands::default(),
            responses: Vec::new(),
            key_log: None,
            source: None,
            start_files: FilesRead::default(),
            keyring: Arc::new(Keyring::empty()),
            scheduling: None,
            performance: Performance::default(),
            reload: None,
            next_reload: None,
            vici: None,
        }
    }

    /// Drops privileges and reports that the instance is ready.
    pub(super) fn report_ready(&mut self, summary: &str) -> Result<(), Failure> {
        super::start::drop_privileges(&mut self.log)?;
        self.check_file_access();
        // Keeps the order of messages if both streams go to the same file.
        self.log.flush();
        output::show(&format!("{summary}\nready")).map_err(Failure::failed)
    }

    /// Applies the configuration of a run with IKE, and makes reloads possible. Returns when the system
    /// follows the policies.
    pub(super) fn configure(&mut self, state: IkeState, engine: &mut Engine) -> Result<(), Failure> {
        let IkeState { source, mut loaded, key_log } = state;
        self.source = Some(Arc::new(source));
        self.key_log = key_log;
        self.scheduling = loaded.scheduling.clone();
        self.performance = loaded.performance;
        self.start_files = mem::take(&mut loaded.files);
        self.apply(loaded, engine.endpoint_context()).map_err(Failure::failed)?;
        engine.reconcile(self).map_err(Failure::failed)
    }

    /// Replaces the active configuration.
    fn apply(&mut self, loaded: LoadedConfig, context: &mut EndpointContext) -> Result<(), String> {
        let before = mem::replace(&mut self.keyring, Arc::new(loaded.keyring));
        context.set_credentials(self.keyring.clone());
        let (connections, pools) = (loaded.connections, loaded.pools);
        let configured = context.with(|endpoint, context| endpoint.configure(connections, &pools, context));
        if let (Ok(()), Some(vici)) = (&configured, &mut self.vici) {
            vici.set_configuration(loaded.base, pools);
        }
        configured.map_err(|error| {
            context.set_credentials(before.clone());
            self.keyring = before;
            error.to_string()
        })
    }

    /// Logs the warnings of a reloaded configuration.
    fn warn(&mut self, loaded: &LoadedConfig) {
        loaded
            .warnings
            .iter()
            .for_each(|warning| self.log.record(LogCategory::Program, &format!("warning: {warning}")));
        if loaded.scheduling != self.scheduling {
            // The queues of the TUN interface depend on the scheduler and cannot change at run time.
            self.log.record(
                LogCategory::Program,
                "warning: scheduler: the changes take effect when the instance is restarted",
            );
        }
        if loaded.performance != self.performance {
            self.log.record(
                LogCategory::Program,
                "warning: performance: the changes take effect when the instance is restarted",
            );
        }
    }

    /// Warns if the files of the configuration cannot be read with the remaining privileges.
    fn check_file_access(&mut self) {
        let errors = mem::take(&mut self.start_files).unreadable();
        if !errors.is_empty() {
            let what =
                "warning: a reload will fail, because the instance can no longer read files of other users:";
            self.log.record(LogCategory::Program, &format!("{what} {}", errors.join("\n")));
        }
    }

    fn handle_request(&mut self, request: Request, reply: Reply, handle: &EndpointHandle<'_>) {
        let result = match request {
            Request::Status => {
                let snapshot = Snapshot::take(&handle.lock(), &self.identity);
                let _ = reply.send(snapshot.to_json().to_string());
                return;
            }
            Request::Log { follow } => return self.log.send_to(reply, follow),
            Request::Reload => return self.start_reload(vec![ReloadClient::Control(reply)]),
            Request::Initiate { name, ike } => {
                let started = handle
                    .lock()
                    .with(|endpoint, context| PendingCommand::initiate(&name, ike, endpoint, context));
                match started {
                    Ok(pending) => return self.pending_commands.wait(pending, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Terminate(name) => {
                let started = handle
                    .lock()
                    .with(|endpoint, context| PendingCommand::terminate(&name, endpoint, context));
                match started {
                    Ok(pending) => return self.pending_commands.wait(pending, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Rekey { name, ike } => {
                handle.lock().with(|endpoint, context| command::rekey(&name, ike, endpoint, context))
            }
        };
        let _ = reply.send(outcome(&result));
    }

    /// Starts a reload. A client that asks during a reload may have changed the configuration just
    /// before, so another reload follows for all such clients.
    pub(super) fn start_reload(&mut self, clients: Vec<ReloadClient>) {
        if self.source.is_none() {
            let why = "manual keys cannot be reloaded: restart the instance";
            return self.reloaded(&Err(why.into()), clients);
        }
        if self.reload.is_some() {
            return self.next_reload.get_or_insert_default().extend(clients);
        }
        let change = self.vici.as_mut().map(|vici| {
            let (_, mut loaded) = vici.begin_change();
            loaded.show_file();
            loaded
        });
        let kind = ReloadKind::Files(change.clone().unwrap_or_default());
        self.start_reading(kind, Some(clients), change);
    }

    pub(super) fn start_reading(
        &mut self,
        kind: ReloadKind,
        clients: Option<Vec<ReloadClient>>,
        change: Option<Loaded>,
    ) {
        let Some(source) = &self.source else { return };
        match self.control.waker().and_then(|waker| ConfigReload::start(source, kind, waker)) {
            Ok(reload) => self.reload = Some(PendingReload { reload, clients, change }),
            Err(error) => {
                let why = format!("the thread that reads the configuration: {error}");
                if let Some(vici) = &mut self.vici {
                    vici.cancel_change();
                }
                self.reloaded(&Err(why), clients.unwrap_or_default());
            }
        }
    }

    /// Applies the result of a reload if it is ready. A configuration with errors changes nothing.
    fn apply_reload(&mut self, handle: &EndpointHandle<'_>) {
        let Some(loaded) = self.reload.as_ref().and_then(|pending| pending.reload.result()) else { return };
        let Some(PendingReload { clients, change, .. }) = self.reload.take() else { return };
        let is_valid = loaded.is_ok();
        let result = loaded.and_then(|loaded| {
            self.warn(&loaded);
            self.apply(loaded, &mut handle.lock())
        });
        self.end_change(&result, clients.is_some(), is_valid, change, handle);
        if let Some(clients) = clients {
            self.reloaded(&result, clients);
        }
        if let Some(clients) = self.next_reload.take() {
            self.start_reload(clients);
        }
    }

    /// Logs the result of a reload and queues the responses to the clients, which are sent when the
    /// system state matches.
    fn reloaded(&mut self, result: &Result<(), String>, clients: Vec<ReloadClient>) {
        match result {
            Ok(()) => self.log.record(LogCategory::Program, "the configuration was read again"),
            Err(error) => error
                .lines()
                .for_each(|line| self.log.record(LogCategory::Program, &format!("reload: {line}"))),
        }
        for client in clients {
            match client {
                ReloadClient::Control(reply) => self.responses.push((reply, outcome(result))),
                ReloadClient::Vici(id) => {
                    if let Some(vici) = &mut self.vici {
                        vici.end_reload(id, result);
                    }
                }
            }
        }
    }

    fn log_keys(&mut self, event: &Event) {
        let Some(key_log) = &mut self.key_log else { return };
        let saved = match event {
            Event::Keys(keys) => key_log.add_ike(keys),
            Event::ChildUp(up) => key_log.add_child(up),
            _ => Ok(()),
        };
        if let Err(error) = saved {
            self.log.record(LogCategory::SavedKeys, &format!("{}: {error}", key_log.directory().display()));
        }
    }
}

impl EngineHandler for RunController {
    fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.control.wake()
    }

    fn on_wakeup(&mut self, handle: &EndpointHandle<'_>) -> Result<(), Error> {
        for PendingRequest { request, reply } in self.control.requests()? {
            self.handle_request(request, reply, handle);
        }
        self.apply_reload(handle);
        self.serve_clients(handle);
        Ok(())
    }

    fn on_reload(&mut self) {
        self.log.record(LogCategory::Program, "SIGHUP: reloading the configuration");
        self.start_reload(Vec::new());
    }

    fn on_reconciled(&mut self) {
        for (reply, result) in self.responses.drain(..) {
            // Sending fails only if the client has disconnected.
            let _ = reply.send(result);
        }
        self.log.report();
        if let Some(vici) = &mut self.vici {
            vici.send_log(&mut self.log);
            vici.on_reconciled();
        }
    }

    fn on_notice(&mut self, notice: &Notice, sa: Option<&SaStatus>) {
        if let Notice::Ike(event) = notice {
            self.log_keys(event);
            self.pending_commands.on_event(event);
        }
        if self.vici.as_mut().is_some_and(|vici| vici.on_notice(notice)) {
            self.control.wake_loop();
        }
        self.keyring.take_refusals().iter().for_each(|line| self.log.record(LogCategory::Certificate, line));
        if let Some((kind, line)) = log_line(notice, sa) {
            self.log.record(kind, &line);
        }
    }

    fn on_problem(&mut self, kind: SystemProblem, what: String) {
        self.log.record(LogCategory::System(kind), &what);
    }
}

/// A reload or a change by clients of vici in progress, with the clients that wait for the reload.
pub(super) struct PendingReload {
    reload: ConfigReload,
    /// `None` if no file is read.
    clients: Option<Vec<ReloadClient>>,
    /// What clients of vici have loaded.
    change: Option<Loaded>,
}

/// Commands in progress, with the clients that wait for them.
#[derive(Default)]
struct PendingCommands(Vec<(PendingCommand, Reply)>);

impl PendingCommands {
    /// Adds a command in progress, or responds immediately if it is complete.
    fn wait(&mut self, pending: PendingCommand, reply: Reply) {
        if pending.is_complete() {
            let _ = reply.send(outcome(&Ok(())));
        } else {
            // Removes clients that disconnected since the last event.
            self.0.retain(|(_, reply)| reply.is_open());
            self.0.push((pending, reply));
        }
    }

    /// Processes an event, and responds to the clients whose commands it completes.
    fn on_event(&mut self, event: &Event) {
        self.0.retain_mut(|(pending, reply)| match pending.on_event(event) {
            None => true,
            Some(result) => {
                let _ = reply.send(outcome(&result));
                false
            }
        });
    }
}
