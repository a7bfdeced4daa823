//! `casemate run --config`: keys negotiated with IKEv2.

use super::control::Control;
use super::dry::AtStart;
use super::steward::Steward;
use super::tables::Tables;
use super::{LeftOver, Own, Place, exposed, finish};
use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::providers;
use crate::status::Identity;
use crate::swanctl::{Config, FilesAlone, Host, LoadError, ThisHost};
use casemate::Endpoint;
use casemate_crypto::Provider;
use casemate_datapath::spd::{Policy, PolicyId};
use casemate_datapath::{Config as DatapathConfig, Datapath, Unmatched};
use casemate_ike::Settings;
use casemate_ike::config::{Connection, Pool};
use casemate_linux::clock::Clock;
use casemate_linux::ike::IKE_PORT;
use casemate_linux::netlink::Netlink;
use casemate_linux::rng::SystemRng;
use casemate_linux::setup::{Live, Plan, Wanted};
use casemate_linux::signal::Signals;
use casemate_linux::{Engine, Parts, Scheduling};
use casemate_sa::Limits;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the configuration is, unless another place is named.
const DEFAULTS: [&str; 2] = ["/etc/casemate/swanctl.conf", "/etc/swanctl/swanctl.conf"];

/// What most links take, and what IPsec adds at most: headers of IPv6 and UDP, an IV, padding and an ICV of 32 bytes.
const LINK_MTU: usize = 1_500;
const TUN_MTU: usize = 1_400;

/// Where the configuration comes from.
pub(crate) struct Source {
    path: PathBuf,
    providers: Vec<&'static dyn Provider>,
}

/// A configuration with all its files.
pub(crate) struct Loaded {
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) keyring: Keyring,
    pub(crate) scheduling: Option<Scheduling>,
    pub(crate) warnings: Vec<String>,
}

impl Source {
    /// The file that is named, or the first of the usual ones that is there.
    pub(crate) fn new(named: Option<&PathBuf>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.clone(),
            None => DEFAULTS.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
                let [first, second] = DEFAULTS;
                Failure::bad_input(format!(
                    "neither {first} nor {second} is there; --config FILE or --xfrm FILE was expected"
                ))
            })?,
        };
        Ok(Self { path, providers: providers::all() })
    }

    /// Whose algorithms are used, the preferred ones first.
    pub(crate) fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }

    /// Reads the file and everything that it names, and looks hosts up, which may take long. Either all of it is right, or
    /// everything that is wrong is told.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        self.load_on(&ThisHost)
    }

    /// Whether everything can be read. No host is looked up.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.load_on(&FilesAlone).map(drop)
    }

    fn load_on(&self, host: &dyn Host) -> Result<Loaded, Failure> {
        let config = Config::load_on(&self.path, host).map_err(|error| match error {
            LoadError::Read(..) => Failure::failed(error),
            LoadError::Wrong(..) => Failure::bad_input(error),
        })?;
        let keyring = Keyring::load(&config, &self.providers).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::bad_input(lines.join("\n"))
        })?;
        let with_keys = config.secret_files.iter().chain(&config.folders.private_keys);
        let exposed = with_keys.filter_map(|path| exposed::warning(path));
        Ok(Loaded {
            warnings: config.warnings.iter().map(ToString::to_string).chain(exposed).collect(),
            connections: config.connections.into_iter().map(Arc::new).collect(),
            pools: config.pools,
            keyring,
            scheduling: config.scheduling,
        })
    }
}

/// Runs the command.
pub(super) fn run(args: &RunArgs, remains: &mut LeftOver) -> Result<(), Failure> {
    let source = Source::new(args.config.as_ref())?;
    // Everything is read, and hosts are looked up, before anything is changed.
    let loaded = source.load()?;
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut log = super::logbook()?;
    loaded.warnings.iter().for_each(|warning| log.warn(warning));
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let mut place = Place::take(args, loaded.scheduling.as_ref(), &mut netlink, remains, &mut log)?;
    let numbers = place.numbers;
    let held = match &mut place.own {
        Some(Own { journal, .. }) => journal.former_promises().map_err(Failure::failed)?,
        None => Vec::new(),
    };
    let natt_port = Settings::SERVER.natt_port;
    // An instance that runs has its policies from the endpoint, after the plan.
    let at_start = if args.dry_run { AtStart::of(&loaded)? } else { AtStart::default() };
    let [outbound, inbound] = [&at_start.outbound, &at_start.inbound].map(|policies| by_reference(policies));
    let wanted = Wanted {
        tun: &args.tun,
        tun_mtu: TUN_MTU,
        numbers,
        outbound: &outbound,
        inbound: &inbound,
        encap_ports: &[IKE_PORT, natt_port],
        peers: &[],
        held: &held,
        classifier: loaded.scheduling.as_ref().map(|scheduling| &scheduling.classifier),
    };
    let plan = Plan::new(&wanted, &mut netlink).map_err(Failure::failed)?;
    let Some(Own { instance, journal, tun }) = &mut place.own else {
        print!("{plan}{}{}", at_start.held(), summary(&loaded.connections));
        return Ok(());
    };
    let tables = args.save_keys.as_deref().map(Tables::open).transpose().map_err(Failure::failed)?;
    let clock = Clock::start();
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let limits = Limits::SERVER;
    let unmatched = Unmatched::PassClear;
    let datapath =
        Datapath::new(DatapathConfig { limits, seed: rng.secret_u64(), unmatched, link_mtu: LINK_MTU });
    let mut endpoint = Endpoint::new(datapath, Settings::SERVER);
    endpoint.tell_keys(tables.is_some());
    plan.apply(journal, tun, &mut netlink).map_err(Failure::failed)?;
    let control = Control::open(instance).map_err(Failure::failed)?;
    let Some(Own { journal, tun, .. }) = place.own.take() else { return Ok(()) };
    let live = Live::new(plan, &tun, journal, netlink).map_err(Failure::failed)?;
    let identity = Identity::of_config(args, &source.path, HashMap::new());
    let parts = Parts {
        endpoint,
        clock,
        rng,
        providers: source.providers.clone(),
        credentials: Arc::new(Keyring::empty()),
        speaks_ike: true,
        limits,
        tun,
        scheduling: loaded.scheduling.clone(),
        live,
        mark: numbers.mark,
        sas: Vec::new(),
        dummies: None,
        ledger: None,
        signals,
        threads: args.threads(),
    };
    let mut engine = Engine::new(parts).map_err(Failure::failed)?;
    let summary = format!(
        "casemate: {} connections; interface {} with MTU {TUN_MTU}; mark and table {}",
        loaded.connections.len(),
        args.tun,
        numbers.table
    );
    let steward = Steward::new(control, identity, log);
    let mut steward = steward.with_source(source, tables, loaded.scheduling.clone());
    steward.apply(loaded, engine.home()).map_err(Failure::failed)?;
    engine.settle(&mut steward).map_err(Failure::failed)?;
    steward.is_ready(&summary)?;
    let ended = engine.run(&mut steward);
    finish(engine, ended)
}

fn by_reference(policies: &[(PolicyId, Policy)]) -> Vec<(PolicyId, &Policy)> {
    policies.iter().map(|(id, policy)| (*id, policy)).collect()
}

/// What `--dry-run` says of connections.
fn summary(connections: &[Arc<Connection>]) -> String {
    let mut text = String::new();
    for connection in connections {
        let children: Vec<&str> = connection.children.iter().map(|child| &*child.name).collect();
        let children = if children.is_empty() { "none".into() } else { children.join(", ") };
        text.push_str(&format!("# connection {}: children {children}\n", connection.name));
    }
    text
}
