//! `casemate run --config`: keys negotiated with IKEv2, and the policies that `--dry-run` shows.

use super::RunArgs;
use super::cell_store::{CellWatch, JoinedCell};
use super::host_names::HostNames;
use super::key_log::KeyLog;
use super::name_servers::NameServersUse;
use super::plan::{InitialPolicies, PlanParts};
use super::sa_store::OpenedStore;
use super::start::{LIMITS, ModeState, Prepared, Start};
use super::{cell_store, description};
use crate::config_source::{ConfigSource, LoadedConfig};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::log::wording;
use crate::output;
use crate::sequence_numbers::SequenceStore;
use crate::status::InstanceIdentity;
use crate::swanctl::TUN_MTU;
use casemate::{Context, Endpoint, HostAddrs, Lookup, Notice, PolicyChange, Routes};
use casemate_cell::{RECEIVED_BLOCK, SENT_BLOCK};
use casemate_crypto::Providers;
use casemate_datapath::{Config as DatapathConfig, Datapath, Unmatched};
use casemate_eap::Method;
use casemate_ike::IkeSettings;
use casemate_ike::config::{AddrPattern, Connection, LocalMethod, RemoteMethod};
use casemate_linux::ike::IKE_PORT;
use casemate_linux::process::SystemRng;
use casemate_linux::setup::ConfiguredTraffic;
use casemate_linux::{EngineParts, FormerState, Scheduling};
use casemate_sa::Instant;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// The MTU of most links.
const LINK_MTU: usize = 1_500;

/// The configuration of a run with IKE.
pub(super) struct IkeConfig {
    source: ConfigSource,
    loaded: LoadedConfig,
}

impl IkeConfig {
    /// Reads all files. Without a path, uses a default path, or with vici no file.
    pub(super) fn load(args: &RunArgs) -> Result<Self, Failure> {
        let source = match args.vici {
            Some(_) => ConfigSource::for_vici(args.config.as_ref()),
            None => ConfigSource::new(args.config.as_ref())?,
        };
        let loaded = source.load()?;
        if let Some(cell) = &loaded.cell {
            check_cell(args)?;
            if args.dry_run {
                cell_store::check(cell, &loaded.tokens)?;
            }
        }
        Ok(Self { source, loaded })
    }

    /// The use of name servers of tunnels. Clients of vici may load connections that get some.
    pub(super) fn name_servers(&self, args: &RunArgs) -> NameServersUse {
        let requests = self.loaded.connections.iter().any(|connection| !connection.vips.is_empty());
        NameServersUse::new(self.loaded.name_servers, requests || args.vici.is_some())
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.loaded.warnings.clone()
    }

    /// Claims the instance and makes an endpoint without policies, which gets its configuration when the
    /// engine exists.
    pub(super) fn prepare(self, start: &mut Start<'_>) -> Result<Prepared, Failure> {
        let Self { source, loaded } = self;
        let args = start.args;
        let instance = start.claim(loaded.scheduling.as_ref())?;
        let mut former_protected = match &instance.resources {
            Some(resources) => resources.journal.former_protected_traffic().map_err(Failure::failed)?,
            None => Vec::new(),
        };
        if loaded.cell.is_some() && !args.dry_run {
            former_protected.extend(ConfiguredTraffic::of(&loaded.connections, &loaded.pools).selectors());
        }
        // A running instance gets its policies from the endpoint, after the plan.
        let policies = match args.dry_run {
            true => initial_policies(&loaded, start)?,
            false => InitialPolicies::default(),
        };
        let mut own = start.netlink.addresses().map_err(Failure::failed)?;
        let cell_addresses: Vec<_> = loaded.cell.iter().flat_map(|cell| &cell.addresses).collect();
        own.extend(cell_addresses.iter().map(|address| address.address));
        foreign_addrs(&loaded.connections, &own).iter().for_each(|warning| start.log.warn(warning));
        if args.aka_numbers.is_none()
            && loaded.connections.iter().any(|connection| needs_sequence_numbers(connection))
        {
            start.log.warn(NO_SEQUENCE_NUMBERS);
        }
        let sequence_numbers = sequence_numbers(args)?;
        let (mut endpoint, key_log) = endpoint_with_key_log(start)?;
        let store = OpenedStore::open(args, &loaded.tokens, source.providers(), &mut start.rng)?;
        let cell = match (&loaded.cell, &instance.resources) {
            (Some(cell), Some(resources)) => {
                let directory = resources.instance.lasting_directory();
                let (tokens, providers) = (&loaded.tokens, source.providers());
                Some(cell_store::join(cell, &directory, tokens, providers, &mut start.rng)?)
            }
            _ => None,
        };
        if store.is_some() || cell.is_some() {
            endpoint.keep_records(SENT_BLOCK, RECEIVED_BLOCK);
        }
        Ok(Prepared {
            instance,
            endpoint,
            summary: output::counted(loaded.connections.len(), "connection", "connections"),
            notes: format!(
                "{}{}{}{}",
                description::tunnels(&loaded.tunnels),
                loaded.cell.as_ref().map(description::cell).unwrap_or_default(),
                description::blocked_traffic(&policies, &loaded.tunnels),
                description::connections(&loaded.connections, &loaded.tunnels)
            ),
            plan: PlanParts {
                tun_mtu: TUN_MTU,
                policies,
                encap_ports: vec![IKE_PORT, IkeSettings::SERVER.natt_port],
                cell_addresses: cell_addresses.iter().map(|address| address.to_virtual()).collect(),
                peers: Vec::new(),
                former_protected,
            },
            identity: InstanceIdentity::of_config(args, source.path().or(args.vici.as_deref()))
                .with_cell(loaded.cell.as_ref()),
            state: ModeState::Ike(Box::new(IkeState {
                source,
                loaded,
                key_log,
                sequence_numbers,
                store,
                cell,
            })),
        })
    }
}

/// Checks that no argument contradicts the section `cell`.
fn check_cell(args: &RunArgs) -> Result<(), Failure> {
    let why = if args.store.is_some() {
        "--store: the section `cell` has a store for the same SAs: one of both was expected"
    } else if args.vici.is_some() {
        "--vici: the nodes of a cell must have the same connections when they start, but clients of vici load \
         them later: a configuration without the section `cell`, or no --vici, was expected"
    } else {
        return Ok(());
    };
    Err(Failure::bad_input(why))
}

/// A warning for each connection none of whose single addresses in `local_addrs` is one of this host.
fn foreign_addrs(connections: &[Arc<Connection>], own: &[IpAddr]) -> Vec<String> {
    let warning = |connection: &Arc<Connection>| {
        let is_single =
            |pattern: &&AddrPattern| matches!(pattern, AddrPattern::Range(_)) && pattern.is_single();
        let all_single =
            connection.local_addrs.iter().filter(is_single).count() == connection.local_addrs.len();
        let is_own = |pattern: &AddrPattern| match pattern {
            AddrPattern::Range(range) => own.contains(&range.first()),
            AddrPattern::Any | AddrPattern::Host(_) => true,
        };
        let is_foreign = all_single && !connection.local_addrs.iter().any(is_own);
        is_foreign.then(|| {
            format!(
                "connection {}: local_addrs = {} is not an address of this host: it works as soon as an \
                 interface has it",
                connection.name,
                wording::addrs(&connection.local_addrs)
            )
        })
    };
    connections.iter().filter_map(warning).collect()
}

/// The warning about connections with EAP-AKA whose numbers end with the run.
const NO_SEQUENCE_NUMBERS: &str = "the sequence numbers of EAP-AKA are lost when the program ends, so a \
                                   challenge may be \
     accepted again: --aka-numbers FILE was expected";

/// Whether each EAP method of one side proves the key of a USIM.
fn needs_sequence_numbers(connection: &Connection) -> bool {
    let all = |methods: &[Method]| !methods.is_empty() && methods.iter().all(|method| method.uses_usim());
    let is_usim = matches!(&connection.local.method, LocalMethod::Eap(eap) if all(&eap.methods));
    is_usim || matches!(&connection.remote.method, RemoteMethod::Eap(eap) if all(&eap.methods))
}

/// Opens the file of `--aka-numbers`, except in a dry run.
fn sequence_numbers(args: &RunArgs) -> Result<Arc<SequenceStore>, Failure> {
    let path = args.aka_numbers.as_deref().filter(|_| !args.dry_run);
    let store = path.map_or_else(|| Ok(SequenceStore::default()), SequenceStore::open);
    store.map(Arc::new).map_err(|error| Failure::failed(format!("--aka-numbers: {error}")))
}

/// Makes the endpoint, and opens the files of `--save-keys`, except in a dry run.
fn endpoint_with_key_log(start: &mut Start<'_>) -> Result<(Endpoint, Option<KeyLog>), Failure> {
    let directory = start.args.save_keys.as_deref().filter(|_| !start.args.dry_run);
    let key_log = directory
        .map(KeyLog::open)
        .transpose()
        .map_err(|error| Failure::failed(format!("--save-keys: {error}")))?;
    let mut datapath = Datapath::new(DatapathConfig {
        limits: LIMITS,
        seed: start.rng.secret_u64(),
        unmatched: Unmatched::PassClear,
        link_mtu: LINK_MTU,
    });
    datapath.enable_rohc();
    let mut endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
    endpoint.report_keys(key_log.is_some());
    endpoint.explain_faults();
    endpoint.probe_path_mtu();
    Ok((endpoint, key_log))
}

/// What the engine and the controller need besides the endpoint.
pub(super) struct IkeState {
    pub(super) source: ConfigSource,
    pub(super) loaded: LoadedConfig,
    pub(super) key_log: Option<KeyLog>,
    /// Sequence numbers of EAP-AKA.
    pub(super) sequence_numbers: Arc<SequenceStore>,
    /// The store of SAs, if there is one.
    pub(super) store: Option<OpenedStore>,
    /// The cell that this node has joined, if there is one.
    pub(super) cell: Option<JoinedCell>,
}

impl IkeState {
    /// The scheduler of outbound packets, if one is configured.
    pub(super) fn scheduling(&self) -> Option<&Scheduling> {
        self.loaded.scheduling.as_ref()
    }

    /// Adds the crypto providers, the scheduler, the ways to move packets and the keeper of SAs to the parts
    /// of the engine, and turns IKE on. Returns the SAs of a former run, and what the controller follows of a
    /// cell.
    pub(super) fn add_to(&mut self, parts: &mut EngineParts) -> (Option<FormerState>, Option<CellWatch>) {
        parts.providers = self.source.providers().to_vec();
        parts.scheduling = self.scheduling().cloned();
        parts.performance = self.loaded.performance;
        parts.ike_enabled = true;
        if let Some(JoinedCell { keeper, watch, addresses, forwarding }) = self.cell.take() {
            (parts.keeper, parts.addresses, parts.forwarding) = (Some(keeper), addresses, forwarding);
            return (None, Some(watch));
        }
        let Some(OpenedStore { keeper, former }) = self.store.take() else { return (None, None) };
        parts.keeper = Some(keeper);
        (Some(former), None)
    }
}

/// Returns the policies that these connections install at start. Logs the names that have no address.
fn initial_policies(loaded: &LoadedConfig, start: &mut Start<'_>) -> Result<InitialPolicies, Failure> {
    let HostNames { addrs, problems } = HostNames::of(&loaded.connections);
    problems.iter().for_each(|problem| start.log.warn(problem));
    let mut endpoint = Endpoint::new(Datapath::new(DatapathConfig::server(0)), IkeSettings::SERVER);
    let (mut rng, credentials) = (SystemRng::new().map_err(Failure::failed)?, Keyring::empty());
    let mut context = Context {
        now: Instant::ZERO,
        unix_time: 0,
        rng: &mut rng,
        providers: &Providers(&[]),
        credentials: &credentials,
        routes: &PresentRoutes(addrs),
    };
    let connections = loaded.connections.iter().map(without_start).collect();
    endpoint.configure(connections, &loaded.pools, &mut context).map_err(Failure::failed)?;
    let mut policies = InitialPolicies::default();
    while let Some(notice) = endpoint.next_notice() {
        if let Notice::Policy(PolicyChange::Added { direction, id, policy }) = notice {
            policies.add(direction, id, policy);
        }
    }
    Ok(policies)
}

/// A copy of the connection without `start` actions.
fn without_start(connection: &Arc<Connection>) -> Arc<Connection> {
    let mut connection = Connection::clone(connection);
    for child in &mut connection.children {
        Arc::make_mut(child).start_action.at_once = false;
    }
    Arc::new(connection)
}

/// The current routes of the host, and the addresses of names. Looking the routes up requires no privilege,
/// unlike for a running instance.
struct PresentRoutes(HashMap<String, Vec<IpAddr>>);

impl Routes for PresentRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        // A connected UDP socket sends nothing; the kernel only looks up the route.
        socket.connect((remote, IKE_PORT)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    fn host_addrs(&self, name: &str, _: Lookup) -> HostAddrs {
        self.0.get(name).cloned().map_or(HostAddrs::Unknown, HostAddrs::Known)
    }
}
