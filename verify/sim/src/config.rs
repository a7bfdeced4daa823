//! Configurations of the nodes of a plan: connections with their Child SAs and shunts. The two ends of a
//! connection can always agree.

use crate::addresses::{self, HostKind, POOL};
use crate::plan::{Layout, Plan, Protection, Setup, Topology, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    AdditionalKexes, AddrPattern, ChildAlgorithms, ChildConfig, ChildMode, ChildProposal, CloseAction,
    Connection, EsnPolicy, EspCombined, IdPattern, Identity, IkeEncryption, IkeProposal, Lifespan, LocalAuth,
    LocalMethod, RemoteAuth, RemoteMethod, RohcConfig, Shunt, StartAction,
};
use casemate_ike::{IkeSettings, Retransmission, TrafficSelectorTemplate};
use casemate_sa::{AddrRange, DscpSet, Limits, OuterHeader, PortRange};
use casemate_wire::ip::proto;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Table sizes of a node. They are small: nodes are cheap, and a leak reaches a limit soon.
pub(crate) const LIMITS: Limits = Limits {
    sas: 512,
    policies: 256,
    flows: 256,
    audit_events: 64,
    replay_window: 1_024,
    reassemblies: 1,
    reassembly_bytes: 2_048,
};

/// Selects the configuration of a node. The variants of two peers are compatible, except for missing
/// children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Varies the settings of IKE SAs.
    pub(crate) ike: u32,
    /// Varies the settings of Child SAs.
    pub(crate) child: u32,
    /// Omits the last child of each connection.
    pub(crate) without_last: bool,
}

impl Variant {
    /// Variant of every node at the start of a run.
    pub(crate) const FIRST: Self = Self { ike: 1, child: 1, without_last: false };
}

/// Name of a node.
pub(crate) fn name(node: usize) -> String {
    format!("node{node}")
}

/// Settings of the IKE engine.
pub(crate) fn settings(setup: &Setup) -> IkeSettings {
    IkeSettings {
        max_ike_sas: setup.max_ike_sas,
        max_ike_sas_per_peer: setup.max_ike_sas_per_peer,
        max_half_open: setup.max_half_open,
        cookie_threshold: setup.cookie_threshold,
        max_children: 16,
        max_message_bytes: 8_192,
        max_fragment_bytes: setup.fragment_bytes,
        retransmission: Retransmission {
            initial_timeout: Duration::from_secs(1),
            growth_permille: 2_000,
            max_timeout: Duration::from_secs(8),
            jitter_percent: 0,
            tries: setup.tries,
        },
        ..IkeSettings::SERVER
    }
}

/// The connections of a node.
pub(crate) fn connections(plan: &Plan, node: usize, variant: Variant) -> Vec<Arc<Connection>> {
    let peers: Vec<usize> = match (plan.topology, node) {
        (Topology::Sites, node) => vec![1 - node],
        (Topology::Clients(clients), 0) => (1..=clients).collect(),
        (Topology::Clients(_), _) => vec![0],
    };
    peers.into_iter().map(|peer| Arc::new(connection(plan, Ends { own: node, peer }, variant))).collect()
}

/// Nodes at the ends of a connection.
#[derive(Clone, Copy)]
struct Ends {
    /// Node whose configuration contains the connection.
    own: usize,
    peer: usize,
}

fn connection(plan: &Plan, ends: Ends, variant: Variant) -> Connection {
    let Ends { own, peer } = ends;
    let setup = &plan.setup;
    let single = |addr: IpAddr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let is_gateway = plan.topology != Topology::Sites && own == 0;
    // The gateway does not know the addresses of its clients.
    let remote_addrs =
        if is_gateway { vec![AddrPattern::Any] } else { single(addresses::outer(setup, peer)) };
    let leases = setup.virtual_addrs != VirtualAddrs::No;
    let any = if setup.inner_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let children = setup.children - usize::from(variant.without_last);
    let local = LocalAuth { id: Some(Identity::Fqdn(name(own))), method: local_method(setup) };
    let remote =
        RemoteAuth { id: IdPattern::Exact(Identity::Fqdn(name(peer))), method: remote_method(setup) };
    Connection {
        local_addrs: single(addresses::own(setup, own)),
        remote_addrs,
        proposals: vec![ike_proposal(setup, own)],
        children: (0..children).map(|index| Arc::new(child(plan, ends, index, variant))).collect(),
        shunts: if setup.shunts { shunts(setup, ends) } else { vec![] },
        vips: if leases && own > 0 { vec![any] } else { vec![] },
        pools: if leases && is_gateway { vec![POOL.into()] } else { vec![] },
        // A node that kept its state has to detect that its peer lost its own.
        dpd_delay: setup.liveness.then(|| Duration::from_secs(10 + u64::from(variant.ike % 3))),
        childless: setup.childless.of(own),
        keying_tries: 0,
        unique: setup.unique,
        lifespan: lifespan(setup.ike_life, variant.ike),
        reauth: setup.reauth_of(own),
        ppk: setup.post_quantum.ppk_policy(own),
        resumption: setup.tickets,
        ..Connection::new(&format!("to{peer}"), local, remote)
    }
}

fn local_method(setup: &Setup) -> LocalMethod {
    if setup.certificates { LocalMethod::Certificate(vec![]) } else { LocalMethod::SharedKey }
}

fn remote_method(setup: &Setup) -> RemoteMethod {
    if setup.certificates { RemoteMethod::Certificate("peers".into()) } else { RemoteMethod::SharedKey }
}

fn lifespan(rekey: Duration, variant: u32) -> Lifespan {
    let rekey = rekey + Duration::from_secs(u64::from(variant % 5));
    Lifespan { rekey: Some(rekey), jitter: rekey / 5, hard: Some(rekey * 3) }
}

/// Key exchange methods. If guesses are to be wrong, the second side accepts only some of them.
fn methods(setup: &Setup, own: usize) -> Vec<KexMethod> {
    match (setup.wrong_kex_guess, own) {
        (false, _) => vec![KexMethod::X25519],
        (true, 0) => vec![KexMethod::EcpP256],
        (true, _) => vec![KexMethod::X25519, KexMethod::EcpP256],
    }
}

fn ike_proposal(setup: &Setup, own: usize) -> IkeProposal {
    let encryption = if setup.protection == Protection::Combined {
        IkeEncryption::Combined(vec![AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }])
    } else {
        let cbc = CipherAlg::AesCbc(AesBits::B128);
        IkeEncryption::Separate(vec![cbc], vec![MacAlg::standard(MacKind::HmacSha256)])
    };
    IkeProposal {
        encryption,
        prfs: vec![PrfAlg::HmacSha256],
        kex: methods(setup, own),
        additional: setup.post_quantum.kexes(setup.post_quantum.ike, own),
    }
}

/// Child number `index` of a connection.
fn child(plan: &Plan, ends: Ends, index: usize, variant: Variant) -> ChildConfig {
    let Ends { own, peer } = ends;
    let setup = &plan.setup;
    let begins = match plan.topology {
        Topology::Sites => true,
        Topology::Clients(_) => own > 0,
    };
    // Only one of two sites initiates at once. With traps, either may initiate when a packet arrives.
    let at_once = begins && !setup.traps && (own > 0 || variant.ike % 2 == 1);
    let again = match (begins, setup.traps) {
        (false, _) => CloseAction::Clear,
        (true, true) => CloseAction::Trap,
        (true, false) => CloseAction::Restart,
    };
    let again = setup.on_close.unwrap_or(again);
    let can_compress = setup.rohc && setup.layout != Layout::Ports && setup.protection != Protection::Ah;
    ChildConfig {
        name: format!("net{index}"),
        proposals: vec![proposal(setup, own)],
        local_ts: vec![traffic(setup, own, own, index)],
        remote_ts: vec![traffic(setup, own, peer, index)],
        mode: if setup.layout == Layout::Ports { ChildMode::Transport } else { ChildMode::Tunnel },
        lifespan: lifespan(setup.child_life, variant.child),
        rekey_bytes: None,
        rekey_packets: setup.rekey_packets,
        life_bytes: None,
        life_packets: None,
        start_action: StartAction { at_once, on_traffic: begins && setup.traps },
        close_action: again,
        dpd_action: again,
        reqid: None,
        replay_window: 64,
        dscp: DscpSet::NONE,
        tfc_pad_to: 0,
        outer: OuterHeader::default(),
        priority: None,
        policies: true,
        rohc: can_compress.then(RohcConfig::default),
        // Fields of features that other members of the workspace turn on.
        ..ChildConfig::new("")
    }
}

fn proposal(setup: &Setup, own: usize) -> ChildProposal {
    let mac = || vec![MacAlg::standard(MacKind::HmacSha256)];
    let algorithms = match setup.protection {
        Protection::Combined => {
            let gcm = EspCombined::Aead(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
            ChildAlgorithms::EspCombined(vec![gcm])
        }
        Protection::Separate => ChildAlgorithms::EspSeparate(vec![CipherAlg::AesCbc(AesBits::B128)], mac()),
        Protection::Ah => ChildAlgorithms::Ah(mac()),
    };
    let (kex, additional) = if setup.pfs {
        (methods(setup, own), setup.post_quantum.kexes(setup.post_quantum.child, own))
    } else {
        (vec![], AdditionalKexes::new())
    };
    let sequence = if setup.esn { EsnPolicy::Preferred } else { EsnPolicy::Allowed };
    ChildProposal { algorithms, kex, additional, esn: sequence }
}

/// Traffic selector for the networks of node `of`, in the configuration of node `says`.
fn traffic(setup: &Setup, says: usize, of: usize, child: usize) -> TrafficSelectorTemplate {
    match setup.layout {
        Layout::Ports => {
            // The wider selector contains no port of another child.
            let port = addresses::port(child);
            let wide = setup.narrowed && says > 0 && child == 0;
            let ports = PortRange::new(if wide { 1_990 } else { port }, port).unwrap();
            TrafficSelectorTemplate { addrs: None, proto: Some(proto::UDP), ports }
        }
        Layout::Networks | Layout::Nested if setup.virtual_addrs != VirtualAddrs::No && of > 0 => {
            TrafficSelectorTemplate::DYNAMIC
        }
        layout => {
            // The wider selector stays within the network of this child.
            let wider = u8::from(setup.narrowed && says > 0);
            let bits = if layout == Layout::Nested && child == 0 { 10 } else { 7 };
            let range = addresses::range(addresses::host(setup, of, child, 0), bits + wider);
            TrafficSelectorTemplate { addrs: Some(range), proto: None, ports: PortRange::ANY }
        }
    }
}

/// Shunts within the traffic of the first child: one passes traffic in clear, one drops it.
fn shunts(setup: &Setup, ends: Ends) -> Vec<Shunt> {
    let template = |node, kind: HostKind| {
        let addrs = AddrRange::single(addresses::host(setup, node, 0, kind as u8));
        vec![TrafficSelectorTemplate { addrs: Some(addrs), proto: None, ports: PortRange::ANY }]
    };
    let shunt = |name: &str, passes, kind| Shunt {
        name: name.into(),
        passes,
        local_ts: template(ends.own, kind),
        remote_ts: template(ends.peer, kind),
        priority: None,
    };
    vec![shunt("clear", true, HostKind::Clear), shunt("barred", false, HostKind::Blocked)]
}
