//! The start of a run, which is the same in each [`RunMode`]: claim the instance, prepare the endpoint, plan
//! the changes to the system, apply them, and run the engine.

use super::RunArgs;
use super::controller::RunController;
use super::ike::{IkeConfig, IkeState};
use super::manual::{ManualKeys, ManualState};
use super::name_servers::{ClaimedNameServers, NameServersUse};
use super::plan::PlanParts;
use crate::control::{self, Channels, ControlServer, Listeners};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::log::{Log, LogOptions, Sink};
use crate::metrics::MetricsAddress;
use crate::output;
use crate::status::InstanceIdentity;
use casemate::Endpoint;
use casemate_linux::crash_secret;
use casemate_linux::instance::Instance;
use casemate_linux::journal::{Journal, Leftovers};
use casemate_linux::netlink::Netlink;
use casemate_linux::nft::Nft;
use casemate_linux::process::{Clock, RunEnd, Signals, SystemRng};
use casemate_linux::route::RoutingNumbers;
use casemate_linux::service_manager::ServiceManager;
use casemate_linux::setup::{Plan, SystemState};
use casemate_linux::tun::Tun;
use casemate_linux::{Engine, EngineParts, Performance, Scheduling, sandbox, unix_socket};
use casemate_sa::Limits;
use std::sync::{Arc, Mutex};

/// Limits of the endpoint and of the engine.
pub(super) const LIMITS: Limits = Limits::SERVER;

/// What an ended run leaves in the system, which is final when its journal has been dropped.
pub(super) type SharedLeftovers = Option<Arc<Mutex<Leftovers>>>;

/// Where SAs and policies come from. The configuration has been read and validated.
pub(super) enum RunMode {
    /// SAs and policies of an xfrm file.
    Manual(ManualKeys),
    /// SAs negotiated with IKE, as configured in swanctl.conf.
    Ike(Box<IkeConfig>),
}

impl RunMode {
    /// Reads and validates the configuration that the arguments name.
    pub(super) fn load(args: &RunArgs) -> Result<Self, Failure> {
        match &args.xfrm {
            Some(path) => ManualKeys::load(path).map(Self::Manual),
            None => Ok(Self::Ike(Box::new(IkeConfig::load(args)?))),
        }
    }

    /// The use of name servers of tunnels.
    fn name_servers(&self, args: &RunArgs) -> NameServersUse {
        match self {
            Self::Manual(_) => NameServersUse::default(),
            Self::Ike(config) => config.name_servers(args),
        }
    }

    fn warnings(&self) -> Vec<String> {
        match self {
            Self::Manual(keys) => keys.warnings(),
            Self::Ike(config) => config.warnings(),
        }
    }

    /// Claims the instance and prepares the endpoint.
    fn prepare(self, start: &mut Start<'_>) -> Result<Prepared, Failure> {
        match self {
            Self::Manual(keys) => keys.prepare(start),
            Self::Ike(config) => config.prepare(start),
        }
    }
}

/// What the steps of a start share.
pub(super) struct Start<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) netlink: Netlink,
    pub(super) clock: Clock,
    pub(super) rng: SystemRng,
    pub(super) log: Log,
    manager: ServiceManager,
    name_servers: NameServersUse,
    leftovers: &'a mut SharedLeftovers,
}

/// What a mode prepares before the system changes.
pub(super) struct Prepared {
    pub(super) instance: ClaimedInstance,
    pub(super) endpoint: Endpoint,
    pub(super) plan: PlanParts,
    pub(super) state: ModeState,
    pub(super) identity: InstanceIdentity,
    /// What the instance protects, for the line that reports that it is ready.
    pub(super) summary: String,
    /// Lines that follow the plan in a dry run.
    pub(super) notes: String,
}

/// What a mode hands over to the engine and the controller.
pub(super) enum ModeState {
    Manual(ManualState),
    Ike(Box<IkeState>),
}

impl ModeState {
    /// The scheduler of outbound packets, if one is configured.
    fn scheduling(&self) -> Option<&Scheduling> {
        match self {
            Self::Manual(_) => None,
            Self::Ike(state) => state.scheduling(),
        }
    }
}

/// Starts an instance and runs it until a signal or an error. A dry run only prints the plan.
pub(super) fn start(mode: RunMode, args: &RunArgs, leftovers: &mut SharedLeftovers) -> Result<(), Failure> {
    // Before any thread is started, so that signals reach only the engine's event loop. A dry run has none:
    // a signal ends the process.
    let signals = (!args.dry_run).then(Signals::block).transpose().map_err(Failure::failed)?;
    let mut log = open_log(&args.log)?;
    mode.warnings().iter().for_each(|warning| log.warn(warning));
    if !args.dry_run {
        check_privileges()?;
    }
    let mut start = Start::new(args, log, leftovers, mode.name_servers(args))?;
    let mut prepared = mode.prepare(&mut start)?;
    let scheduling = prepared.state.scheduling();
    let numbers = prepared.instance.numbers;
    let plan = prepared.plan.plan(args, numbers, scheduling, &mut start.netlink)?;
    let (Some(resources), Some(signals)) = (prepared.instance.resources.take(), signals) else {
        return output::print(&format!("{plan}{}", prepared.notes));
    };
    run_instance(prepared, plan, resources, start, signals)
}

/// Applies the plan and runs the engine.
fn run_instance(
    prepared: Prepared,
    plan: Plan,
    resources: InstanceResources,
    start: Start<'_>,
    signals: Signals,
) -> Result<(), Failure> {
    let Start { args, netlink, clock, rng, log, manager, .. } = start;
    let Prepared { instance, endpoint, plan: PlanParts { tun_mtu, .. }, state, identity, summary, .. } =
        prepared;
    let numbers = instance.numbers;
    let files = resources.instance.clone();
    let SystemParts { system, tun, control, channels } = apply(plan, resources, netlink, args)?;
    let mut parts = EngineParts {
        endpoint,
        clock,
        rng,
        providers: Vec::new(),
        credentials: Arc::new(Keyring::empty()),
        ike_enabled: false,
        limits: LIMITS,
        keeps_former_traffic: args.vici.is_some(),
        tun,
        scheduling: None,
        performance: Performance::default(),
        system,
        mark: numbers.mark,
        manual_sas: Vec::new(),
        dummy_traffic: None,
        counters: None,
        keeper: None,
        addresses: None,
        forwarding: None,
        signals,
        threads: args.threads(),
    };
    let (ike, (former, cell)) = match state {
        ModeState::Manual(state) => (None, state.add_to(&mut parts).map(|()| (None, None))?),
        ModeState::Ike(mut state) => {
            let continued = state.add_to(&mut parts);
            (Some(state), continued)
        }
    };
    let providers = parts.providers.clone();
    let mut engine = Engine::new(parts).map_err(Failure::failed)?;
    let mut controller = RunController::new(control, identity.with_mark(numbers.mark), log, manager);
    if let (Some(channel), Some(address)) = (channels.metrics, &args.metrics) {
        controller.serve_metrics(channel, address);
    }
    if let (Some(channel), Some(path)) = (channels.vici, &args.vici) {
        controller.serve_vici(channel, path, args.threads().get(), &providers);
    }
    controller.continue_from(former);
    let is_node = controller.follow_cell(cell);
    if let Some(ike) = ike {
        controller.start_updown(&ike, &args.tun)?;
        controller.configure(*ike, &mut engine)?;
        controller.load_crash_secret(&files, engine.endpoint_context());
    }
    controller.report_ready(&format!(
        "casemate: {summary}; interface {} with MTU {tun_mtu}; mark and table {}",
        args.tun, numbers.table
    ))?;
    let result = engine.run(&mut controller).map_err(|error| controller.explained(&error));
    controller.report_end(engine.endpoint_context());
    let hands_over = is_node || args.store.is_some() && matches!(result, Ok(RunEnd::Restart));
    finish(engine, result, is_node)?;
    // Peers have tokens for the IKE SAs that go on.
    (!hands_over).then(|| crash_secret::remove(&files));
    Ok(())
}

/// What the engine and the controller need of the system.
struct SystemParts {
    system: SystemState,
    tun: Tun,
    control: ControlServer,
    channels: Channels,
}

/// Applies the plan, the guard first, and opens the control socket and those for other clients.
fn apply(
    plan: Plan,
    mut resources: InstanceResources,
    mut netlink: Netlink,
    args: &RunArgs,
) -> Result<SystemParts, Failure> {
    plan.apply(&mut resources.journal, &resources.tun, &mut netlink).map_err(Failure::failed)?;
    let vici = args.vici.as_deref().map(|path| unix_socket::listen_alone(path, "--vici"));
    let listeners = Listeners {
        vici: vici.transpose().map_err(Failure::failed)?,
        metrics: args.metrics.as_ref().map(MetricsAddress::listen).transpose().map_err(Failure::failed)?,
    };
    let opened = ControlServer::open(&resources.instance, listeners);
    let (control, channels) = opened.map_err(Failure::failed)?;
    let InstanceResources { journal, tun, name_servers, .. } = resources;
    let mut system = SystemState::new(plan, &tun, journal, netlink).map_err(Failure::failed)?;
    name_servers.hand_over(&mut system);
    Ok(SystemParts { system, tun, control, channels })
}

/// Ends a run. After an error, or if another run or another node of the cell goes on, the guard stays in
/// place.
fn finish(engine: Engine, result: Result<RunEnd, String>, is_node: bool) -> Result<(), Failure> {
    let error = match result {
        Ok(RunEnd::Stop) if !is_node => return engine.close().map_err(Failure::failed),
        Ok(RunEnd::Stop | RunEnd::Restart) => return engine.close_guarded().map_err(Failure::failed),
        Err(error) => error,
    };
    let closed = engine.close_guarded();
    let second = closed.err().map_or(String::new(), |second| format!("\n{second}"));
    Err(Failure::failed(format!("{error}{second}")))
}

/// Opens the log of an instance on standard error. Its thread must start after signals are blocked.
fn open_log(options: &LogOptions) -> Result<Log, Failure> {
    let failed = |error| Failure::failed(format!("standard error: {error}"));
    let sink = Sink::standard_error(options.log_format).map_err(failed)?;
    Ok(Log::new(sink, options.log_level.clone()))
}

/// Without these privileges, the start would fail at one of its steps, with less helpful words.
fn check_privileges() -> Result<(), Failure> {
    let missing = sandbox::missing_capabilities().map_err(Failure::failed)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "this user may not move packets: {} {} missing; run it as root, or give it CAP_NET_ADMIN, \
         CAP_NET_RAW and, for IKE, CAP_NET_BIND_SERVICE (`--dry-run` needs none)",
        missing.join(" and "),
        if missing.len() == 1 { "is" } else { "are" },
    )))
}

/// Drops the privileges that are not needed after setup.
pub(super) fn drop_privileges(log: &mut Log) -> Result<(), Failure> {
    if !sandbox::protect_memory().map_err(Failure::failed)? {
        log.warn("memory cannot be locked, so keys may reach swap: CAP_SYS_RESOURCE was expected");
    }
    if !sandbox::enter().map_err(Failure::failed)? {
        log.warn("this kernel has no seccomp filter, so system calls are not limited");
    }
    Ok(())
}

/// The identity of an instance in the system and, except for a dry run, its exclusive resources.
pub(super) struct ClaimedInstance {
    pub(super) numbers: RoutingNumbers,
    pub(super) resources: Option<InstanceResources>,
}

/// Resources that belong to one instance. The journal is dropped before the TUN interface, because it undoes
/// changes that refer to the interface.
pub(super) struct InstanceResources {
    pub(super) instance: Instance,
    pub(super) journal: Journal,
    tun: Tun,
    name_servers: ClaimedNameServers,
}

impl<'a> Start<'a> {
    fn new(
        args: &'a RunArgs,
        log: Log,
        leftovers: &'a mut SharedLeftovers,
        name_servers: NameServersUse,
    ) -> Result<Self, Failure> {
        let netlink = Netlink::open().map_err(Failure::failed)?;
        let rng = SystemRng::new().map_err(Failure::failed)?;
        let manager = ServiceManager::from_environment().map_err(Failure::failed)?;
        Ok(Self { args, netlink, clock: Clock::start(), rng, log, manager, name_servers, leftovers })
    }

    /// Claims the resources, with the mark and table numbers of a previous run or free ones. The TUN
    /// interface comes first: of two instances with the same interface, the second fails before it
    /// touches anything of the first.
    pub(super) fn claim(&mut self, scheduling: Option<&Scheduling>) -> Result<ClaimedInstance, Failure> {
        let Self { args, netlink, log, .. } = self;
        if args.dry_run {
            let numbers = RoutingNumbers::free(netlink).map_err(Failure::failed)?;
            let is_this = |instance: &Instance| instance.tun() == args.tun && control::is_running(instance);
            if Instance::all().map_err(Failure::failed)?.iter().any(is_this) {
                log.warn(&format!(
                    "an instance with --tun {} is running: the mark, the table and the preferences below are \
                     free ones, and a restart uses those of the instance again",
                    args.tun
                ));
            }
            return Ok(ClaimedInstance { numbers, resources: None });
        }
        let classifier = scheduling.map(|scheduling| &scheduling.classifier);
        let mut warn = |warning: String| log.warn(&warning);
        let tun = Tun::claim(&args.tun, classifier, netlink, &mut warn).map_err(Failure::failed)?;
        // After the interface, so that a failed start creates no directory.
        let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
        let nft = Nft::runner(super::NFT_RUNNER).map_err(Failure::failed)?;
        let mut journal = Journal::open(&instance, nft).map_err(Failure::failed)?;
        *self.leftovers = Some(journal.leftovers());
        if journal.is_recovered() {
            log.info("took over the guard and the routes of a previous run");
        }
        let name_servers = self.name_servers.claim(&mut journal, log)?;
        let numbers = RoutingNumbers::claim(&instance, &mut journal, netlink).map_err(Failure::failed)?;
        Ok(ClaimedInstance {
            numbers,
            resources: Some(InstanceResources { instance, journal, tun, name_servers }),
        })
    }
}
