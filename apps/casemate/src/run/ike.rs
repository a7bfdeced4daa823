//! `casemate run --config`: keys negotiated with IKEv2, and the policies that `--dry-run` shows.

use super::controller::RunController;
use super::key_log::KeyLog;
use super::{InstanceSetup, OwnedResources, RunArgs, SharedLeftovers, finish, open_log};
use crate::config_source::{ConfigSource, LoadedConfig};
use crate::control::ControlServer;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::status::Identity;
use casemate::{Context, Endpoint, Notice, PolicyChange, Routes};
use casemate_crypto::Providers;
use casemate_datapath::spd::{Action, Policy, PolicyId};
use casemate_datapath::{Config as DatapathConfig, Datapath, Direction, Unmatched};
use casemate_ike::IkeSettings;
use casemate_ike::config::Connection;
use casemate_linux::clock::Clock;
use casemate_linux::ike::IKE_PORT;
use casemate_linux::netlink::Netlink;
use casemate_linux::rng::SystemRng;
use casemate_linux::setup::{Plan, PlanInput, SystemState};
use casemate_linux::signal::Signals;
use casemate_linux::{Engine, EngineParts};
use casemate_sa::{Instant, Limits};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// The MTU of most links, and that of the TUN interface, which leaves room for the largest overhead of
/// IPsec: headers of IPv6 and UDP, an IV, padding and an ICV of 32 bytes.
const LINK_MTU: usize = 1_500;
const TUN_MTU: usize = 1_400;

/// Runs with IKE.
pub(super) fn run(args: &RunArgs, leftovers: &mut SharedLeftovers) -> Result<(), Failure> {
    let source = ConfigSource::new(args.config.as_ref())?;
    // Reads all files and resolves all host names before anything in the system changes.
    let loaded = source.load()?;
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut log = open_log()?;
    loaded.warnings.iter().for_each(|warning| log.warn(warning));
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let mut setup =
        InstanceSetup::claim(args, loaded.scheduling.as_ref(), &mut netlink, leftovers, &mut log)?;
    let numbers = setup.numbers;
    let held = match &mut setup.owned {
        Some(OwnedResources { journal, .. }) => {
            journal.former_protected_traffic().map_err(Failure::failed)?
        }
        None => Vec::new(),
    };
    let natt_port = IkeSettings::SERVER.natt_port;
    // A running instance gets its policies from the endpoint, after the plan.
    let initial =
        if args.dry_run { InitialPolicies::from_config(&loaded)? } else { InitialPolicies::default() };
    let [outbound, inbound] = [&initial.outbound, &initial.inbound].map(|policies| by_reference(policies));
    let wanted = PlanInput {
        tun: &args.tun,
        tun_mtu: TUN_MTU,
        numbers,
        outbound: &outbound,
        inbound: &inbound,
        encap_ports: &[IKE_PORT, natt_port],
        peers: &[],
        former_protected: &held,
        classifier: loaded.scheduling.as_ref().map(|scheduling| &scheduling.classifier),
    };
    let plan = Plan::new(&wanted, &mut netlink).map_err(Failure::failed)?;
    let Some(OwnedResources { instance, journal, tun }) = &mut setup.owned else {
        print!("{plan}{}{}", initial.description(), summary(&loaded.connections));
        return Ok(());
    };
    let key_log = args.save_keys.as_deref().map(KeyLog::open).transpose().map_err(Failure::failed)?;
    let clock = Clock::start();
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let limits = Limits::SERVER;
    let unmatched = Unmatched::PassClear;
    let datapath =
        Datapath::new(DatapathConfig { limits, seed: rng.secret_u64(), unmatched, link_mtu: LINK_MTU });
    let mut endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
    endpoint.report_keys(key_log.is_some());
    plan.apply(journal, tun, &mut netlink).map_err(Failure::failed)?;
    let control = ControlServer::open(instance).map_err(Failure::failed)?;
    let Some(OwnedResources { journal, tun, .. }) = setup.owned.take() else { return Ok(()) };
    let live = SystemState::new(plan, &tun, journal, netlink).map_err(Failure::failed)?;
    let identity = Identity::of_config(args, source.path(), HashMap::new());
    let parts = EngineParts {
        endpoint,
        clock,
        rng,
        providers: source.providers().to_vec(),
        credentials: Arc::new(Keyring::empty()),
        ike_enabled: true,
        limits,
        tun,
        scheduling: loaded.scheduling.clone(),
        system: live,
        mark: numbers.mark,
        manual_sas: Vec::new(),
        dummy_traffic: None,
        counters: None,
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
    let controller = RunController::new(control, identity, log);
    let mut controller = controller.with_source(source, key_log, loaded.scheduling.clone());
    controller.apply(loaded, engine.endpoint_context()).map_err(Failure::failed)?;
    engine.reconcile(&mut controller).map_err(Failure::failed)?;
    controller.report_ready(&summary)?;
    let result = engine.run(&mut controller);
    finish(engine, result)
}

fn by_reference(policies: &[(PolicyId, Policy)]) -> Vec<(PolicyId, &Policy)> {
    policies.iter().map(|(id, policy)| (*id, policy)).collect()
}

/// The summary of connections for `--dry-run`.
fn summary(connections: &[Arc<Connection>]) -> String {
    let mut text = String::new();
    for connection in connections {
        let children: Vec<&str> = connection.children.iter().map(|child| &*child.name).collect();
        let children = if children.is_empty() { "none".into() } else { children.join(", ") };
        text.push_str(&format!("# connection {}: children {children}\n", connection.name));
    }
    text
}

/// The policies at start, in both directions.
#[derive(Default)]
pub(super) struct InitialPolicies {
    pub(super) outbound: Vec<(PolicyId, Policy)>,
    pub(super) inbound: Vec<(PolicyId, Policy)>,
}

impl InitialPolicies {
    /// Returns the policies that these connections install at start.
    pub(super) fn from_config(loaded: &LoadedConfig) -> Result<Self, Failure> {
        let mut endpoint = Endpoint::new(Datapath::new(DatapathConfig::server(0)), IkeSettings::SERVER);
        let (mut rng, credentials) = (SystemRng::new().map_err(Failure::failed)?, Keyring::empty());
        let mut context = Context {
            now: Instant::ZERO,
            unix_time: 0,
            rng: &mut rng,
            providers: &Providers(&[]),
            credentials: &credentials,
            routes: &PresentRoutes,
        };
        let connections = loaded.connections.iter().map(without_start).collect();
        endpoint.configure(connections, &loaded.pools, &mut context).map_err(Failure::failed)?;
        let mut policies = Self::default();
        while let Some(notice) = endpoint.next_notice() {
            let Notice::Policy(PolicyChange::Added { direction, id, policy }) = notice else { continue };
            match direction {
                Direction::Outbound => policies.outbound.push((id, policy)),
                Direction::Inbound => policies.inbound.push((id, policy)),
            }
        }
        Ok(policies)
    }

    /// The traffic that is blocked until an SA exists, one comment line for each selector.
    pub(super) fn description(&self) -> String {
        let held = self.outbound.iter().filter(|(_, policy)| matches!(policy.action, Action::Protect(_)));
        held.map(|(_, policy)| format!("# blocked until an SA is up: {}\n", policy.selector)).collect()
    }
}

/// A copy of the connection without `start` actions.
fn without_start(connection: &Arc<Connection>) -> Arc<Connection> {
    let mut connection = Connection::clone(connection);
    for child in &mut connection.children {
        Arc::make_mut(child).start_action.at_once = false;
    }
    Arc::new(connection)
}

/// The current routes of the host. Looking them up requires no privilege, unlike for a running instance.
struct PresentRoutes;

impl Routes for PresentRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        // A connected UDP socket sends nothing; the kernel only looks up the route.
        socket.connect((remote, casemate_linux::ike::IKE_PORT)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}
