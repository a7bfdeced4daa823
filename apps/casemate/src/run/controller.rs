//! The controller of a running engine: handles control requests, logs events, and reloads the configuration.

use super::cell_store::CellWatch;
use super::ike::IkeState;
use super::key_log::KeyLog;
use super::radius::RadiusState;
use super::reload::{PendingReload, ReloadClient};
use super::requests::PendingCommands;
use super::takeover::CellNodeState;
use crate::config_source::ConfigSource;
use crate::control::{ControlServer, PendingRequest, Reply};
use crate::failure::Failure;
use crate::history::History;
use crate::keyring::{Keyring, RefusedPeer, ValidityWatch};
use crate::log::Log;
use crate::log::level::Level;
use crate::log::message::{Message, Subject};
use crate::log::notice;
use crate::log::rate_limit::LogCategory;
use crate::metrics::{MetricsAddress, MetricsChannel, MetricsCollector, ScrapeContext};
use crate::output;
use crate::revocation::RevocationState;
use crate::sequence_numbers::SequenceStore;
use crate::status::InstanceIdentity;
use crate::swanctl::{CellConfig, Charon, FilesRead, unique_interface};
use crate::tokens::TokenState;
use crate::trace::RunningTrace;
use crate::updown::Updown;
use crate::vici::ViciServer;
use casemate::{Notice, NoticeSa, OwnedRecord};
use casemate_cell::KeeperRole;
use casemate_crypto::SecretBytes;
use casemate_linux::dns::{DnsMode, DnsState};
use casemate_linux::instance::Instance;
use casemate_linux::process::SystemRng;
use casemate_linux::service_manager::ServiceManager;
use casemate_linux::{
    EndpointContext, EndpointHandle, Engine, EngineHandler, Error, FormerState, Performance, Scheduling,
    SystemProblem, TunnelSpec, crash_secret,
};
use casemate_sa::SpdId;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// Status of the service, as `systemctl status` shows it.
pub(super) const READY: &str = "ready; `casemate status` shows SAs and policies";
/// Status after a reload that changed nothing.
pub(super) const RELOAD_FAILED: &str =
    "ready; the last reload failed and changed nothing: `casemate log` shows the errors";

/// The engine handler of `casemate run`.
pub(super) struct RunController {
    pub(super) control: ControlServer,
    pub(super) identity: InstanceIdentity,
    pub(super) log: Log,
    pub(super) manager: ServiceManager,
    /// What happened to each connection lately.
    pub(super) history: History,
    pub(super) pending_commands: PendingCommands,
    /// Responses that are sent when the system state matches the configuration.
    pub(super) responses: Vec<(Reply, String)>,
    pub(super) key_log: Option<KeyLog>,
    /// Source of the configuration; `None` with manual keys.
    pub(super) source: Option<Arc<ConfigSource>>,
    /// The files of the configuration at start.
    pub(super) start_files: FilesRead,
    /// Keys of the current configuration.
    pub(super) keyring: Arc<Keyring>,
    /// Reports certificates that expire.
    pub(super) validity: ValidityWatch,
    /// Secret of quick crash detection.
    crash_secret: Option<SecretBytes>,
    /// Settings of IKE of the current configuration.
    pub(super) charon: Charon,
    /// The scheduler configuration at start, which a reload cannot change.
    pub(super) scheduling: Option<Scheduling>,
    /// The ways to move packets at start, which a reload cannot change.
    pub(super) performance: Performance,
    /// How name servers are used, which a reload cannot change.
    pub(super) name_servers: DnsMode,
    /// The cell of this gateway, which a reload cannot change.
    pub(super) cell: Option<CellConfig>,
    /// Name servers of tunnels that are in use, as text.
    shown_name_servers: Option<String>,
    pub(super) reload: Option<PendingReload>,
    /// The status after a reload that the service manager has not got yet.
    pub(super) reload_status: Option<&'static str>,
    /// Clients that requested a reload during the one in progress; they get another one.
    pub(super) next_reload: Option<Vec<ReloadClient>>,
    /// Clients of vici, if there is a socket for them.
    pub(super) vici: Option<ViciServer>,
    /// The trace of packets that a client has requested.
    pub(super) trace: Option<RunningTrace>,
    /// Values for clients of metrics, if they are served.
    pub(super) metrics: Option<MetricsCollector>,
    /// AAA servers and the sessions that they have accepted.
    pub(super) radius: RadiusState,
    /// Scripts that run when Child SAs come up and go down.
    pub(super) updown: Updown,
    /// The threads that fetch the status of certificates.
    pub(super) revocation: RevocationState,
    /// Signatures of private keys on tokens.
    pub(super) tokens: TokenState,
    /// Sequence numbers of EAP-AKA.
    pub(super) sequence_numbers: Arc<SequenceStore>,
    /// IKE SAs of a former run, until the first configuration is applied.
    pub(super) former: Vec<OwnedRecord>,
    /// This node of a cell.
    pub(super) cell_node: CellNodeState,
}

impl RunController {
    pub(super) fn new(
        control: ControlServer,
        identity: InstanceIdentity,
        log: Log,
        manager: ServiceManager,
    ) -> Self {
        Self {
            control,
            identity,
            log,
            manager,
            history: History::default(),
            pending_commands: PendingCommands::default(),
            responses: Vec::new(),
            key_log: None,
            source: None,
            start_files: FilesRead::default(),
            keyring: Arc::new(Keyring::empty()),
            validity: ValidityWatch::default(),
            crash_secret: None,
            charon: Charon::default(),
            scheduling: None,
            performance: Performance::default(),
            name_servers: DnsMode::default(),
            cell: None,
            shown_name_servers: None,
            reload: None,
            reload_status: None,
            next_reload: None,
            vici: None,
            trace: None,
            metrics: None,
            radius: RadiusState::default(),
            updown: Updown::default(),
            revocation: RevocationState::default(),
            tokens: TokenState::default(),
            sequence_numbers: Arc::default(),
            former: Vec::new(),
            cell_node: CellNodeState::default(),
        }
    }

    /// Drops privileges and reports that the instance is ready.
    pub(super) fn report_ready(&mut self, summary: &str) -> Result<(), Failure> {
        super::start::drop_privileges(&mut self.log)?;
        self.check_file_access();
        // Keeps the order of messages if both streams go to the same file.
        self.log.flush();
        output::show(&format!("{summary}\nready")).map_err(Failure::failed)?;
        self.manager.ready(READY).map_err(|error| Failure::failed(format!("NOTIFY_SOCKET: {error}")))
    }

    /// Reports to the service manager that the run ends.
    pub(super) fn report_end(&mut self, context: &EndpointContext) {
        let sent = self.manager.stopping();
        self.check_sent(sent);
        for line in self.radius.stop(context) {
            self.log.program(Level::Warning, &line);
        }
        self.updown.stop().into_iter().for_each(|message| self.log.record(message));
    }

    /// Logs that the service manager did not get a report. This run goes on; the manager may end it.
    pub(super) fn check_sent(&mut self, sent: io::Result<()>) {
        if let Err(error) = sent {
            self.log.program(Level::Warning, &format!("NOTIFY_SOCKET: {error}"));
        }
    }

    /// Starts the process that runs the scripts of the configuration, if it has any.
    pub(super) fn start_updown(&mut self, state: &IkeState, interface: &str) -> Result<(), Failure> {
        let waker = self.control.waker().map_err(Failure::failed)?;
        self.updown = Updown::start(&state.loaded.scripts, interface, waker).map_err(Failure::failed)?;
        Ok(())
    }

    /// Applies the configuration of a run with IKE, and makes reloads possible. Returns when the system
    /// follows the policies. A node of a cell applies it when it becomes the owner.
    pub(super) fn configure(&mut self, state: IkeState, engine: &mut Engine) -> Result<(), Failure> {
        let IkeState { source, mut loaded, key_log, sequence_numbers, store: _, cell: _ } = state;
        self.sequence_numbers = sequence_numbers;
        self.source = Some(Arc::new(source));
        self.key_log = key_log;
        self.scheduling = loaded.scheduling.clone();
        self.performance = loaded.performance;
        self.name_servers = loaded.name_servers;
        self.cell = loaded.cell.clone();
        self.start_files = mem::take(&mut loaded.files);
        self.validity.note(&loaded.warnings);
        let tunnels = engine.handle().prepare_tunnels(&loaded.tunnels).map_err(Failure::failed)?;
        let context = engine.endpoint_context();
        let applied =
            if self.cell.is_some() { self.stand_by(loaded, context) } else { self.apply(loaded, context) };
        applied.map_err(Failure::failed)?;
        engine.handle().use_tunnels(tunnels).map_err(Failure::failed)?;
        engine.reconcile(self).map_err(Failure::failed)
    }

    /// Reads the secret of quick crash detection, once nothing can prevent the start any more. Without a
    /// secret, peers get no tokens, and notice a crash of this instance later.
    pub(super) fn load_crash_secret(&mut self, instance: &Instance, context: &mut EndpointContext) {
        let secret = SystemRng::new().and_then(|mut rng| crash_secret::load(instance, &mut rng));
        match secret {
            Ok(secret) => self.crash_secret = Some(secret),
            Err(error) => {
                let text = format!("peers will notice a crash of this instance later: {error}");
                self.log.program(Level::Warning, &text);
            }
        }
        self.use_crash_secret(context);
    }

    /// Gives the secret to the endpoint, if the configuration allows that.
    pub(super) fn use_crash_secret(&self, context: &mut EndpointContext) {
        let secret = self.crash_secret.clone().filter(|_| self.charon.quick_crash_detection);
        context.with(|endpoint, _| endpoint.set_crash_secret(secret));
    }

    /// Serves metrics at this address.
    pub(super) fn serve_metrics(&mut self, channel: MetricsChannel, address: &MetricsAddress) {
        let socket = match address {
            MetricsAddress::Unix(path) => Some(path.clone()),
            MetricsAddress::Loopback(_) => None,
        };
        self.metrics = Some(MetricsCollector::new(channel, socket));
    }

    /// Reads the next part of the values that clients wait for. The event loop processes packets before it
    /// calls this again for the following part.
    fn collect_metrics(&mut self, handle: &EndpointHandle<'_>) {
        let Some(metrics) = &mut self.metrics else { return };
        let context = ScrapeContext {
            handle,
            lost_log_lines: self.log.lost_lines(),
            has_manual_keys: self.source.is_none(),
        };
        if metrics.step(&context) {
            self.control.wake_loop();
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
        let (lines, has_more) = self.radius.serve(handle);
        if has_more {
            self.control.wake_loop();
        }
        lines.iter().for_each(|(level, line)| self.log.program(*level, line));
        self.updown.check_runner()?;
        let messages = self.updown.serve(handle, &self.keyring);
        messages.into_iter().for_each(|message| self.log.record(message));
        for problem in self.revocation.serve(handle).into_iter().chain(self.tokens.serve(handle)) {
            let message = Message::new(Level::Warning, LogCategory::Certificate, Subject::default(), problem);
            self.log.record(message);
        }
        self.serve_clients(handle);
        self.collect_metrics(handle);
        Ok(())
    }

    fn on_reload(&mut self) {
        self.log.program(Level::Info, "SIGHUP: reloading the configuration");
        self.start_reload(Vec::new());
    }

    fn on_tick(&mut self) {
        let sent = self.manager.keep_alive();
        self.check_sent(sent);
        if let Some(problem) = self.sequence_numbers.take_problem() {
            self.log.program(Level::Error, &format!("--aka-numbers: {problem}"));
        }
        for line in self.validity.check(&self.keyring, SystemTime::now()) {
            self.log.program(Level::Warning, &line);
        }
        if let Some(problem) = self.cell_node.watch.as_mut().and_then(CellWatch::on_tick) {
            self.log.program(Level::Error, &format!("cell: {problem}"));
        }
        if self.radius.on_tick() {
            self.control.wake_loop();
        }
    }

    fn on_reconciled(&mut self) {
        // Before the client ends that the service manager waits for. A reload in progress is reported later.
        if let Some(status) = self.reload_status.take_if(|_| self.reload.is_none()) {
            let sent = self.manager.ready(status);
            self.check_sent(sent);
        }
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

    fn on_trace(&mut self, handle: &EndpointHandle<'_>) {
        let trace = self.trace.take();
        self.trace = trace.and_then(|trace| trace.proceed(handle, self.scheduling.as_ref()));
    }

    fn on_notice(&mut self, notice: &Notice, sa: Option<&NoticeSa>) {
        if let Notice::Ike(event) = notice {
            self.log_keys(event);
        }
        self.tokens.on_notice(notice);
        if let Some(metrics) = &mut self.metrics {
            metrics.on_notice(notice, sa);
        }
        let is_for_vici = self.vici.as_mut().is_some_and(|vici| vici.on_notice(notice));
        let has_script = self.updown.on_notice(notice);
        if self.radius.on_notice(notice) || is_for_vici || has_script {
            self.control.wake_loop();
        }
        let mut refusals = self.keyring.take_refusals();
        if let Some(mut message) = notice::message(notice, sa) {
            if notice::is_refused_certificate(notice) {
                message.details.extend(refusals.drain(..).map(|refused| refused.reason));
            }
            self.history.note(notice, &mut message);
            self.log.record(message);
        }
        // After the history, which has the reason of a failure.
        if let Notice::Ike(event) = notice {
            self.pending_commands.on_event(event, &self.history);
        }
        for RefusedPeer { connection, reason, .. } in refusals {
            let subject = Subject::connection(&connection);
            self.log.record(Message::new(Level::Warning, LogCategory::Certificate, subject, reason));
        }
    }

    fn own_tunnel(&self, spd: SpdId) -> Option<TunnelSpec> {
        unique_interface(spd)
    }

    fn on_name_servers(&mut self, state: &DnsState) {
        let shown = state.applied.as_ref().map(|(method, settings)| format!("{settings} ({method})"));
        if shown != self.shown_name_servers {
            self.log.program(
                Level::Info,
                &match &shown {
                    Some(shown) => format!("name servers of tunnels in use: {shown}"),
                    None => "name servers of tunnels are not in use any more".to_owned(),
                },
            );
            self.shown_name_servers = shown;
        }
    }

    fn on_takeover(&mut self, former: FormerState, endpoint: &EndpointHandle<'_>) -> Result<(), Error> {
        self.take_over(former, endpoint).map_err(|why| Error::other("the configuration", why))
    }

    fn on_cell_role(&mut self, role: KeeperRole, owner: Option<&str>) {
        self.report_role(role, owner);
    }

    fn on_drained(&mut self, drained: Result<bool, String>) {
        self.report_drained(drained);
    }

    fn on_problem(&mut self, kind: SystemProblem, mut what: String) {
        let failure = self.cell_node.watch.as_ref().filter(|_| kind == SystemProblem::Store);
        if let Some(failure) = failure.and_then(CellWatch::last_failure) {
            what = format!("{what}: {failure}");
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.on_problem(kind);
        }
        self.log.record(Message::new(Level::Warning, LogCategory::System(kind), Subject::default(), what));
    }
}
