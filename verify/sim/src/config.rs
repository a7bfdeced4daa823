//! Configurations of the nodes of a plan. The two ends of a connection can always agree.

mod child;

use crate::addresses::{self, POOL};
use crate::plan::{Plan, Topology};
use crate::setup::{Protection, Setup, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    AddrPattern, Connection, Fragmentation, IdPattern, Identity, IkeEncryption, IkeProposal, Lifespan,
    LocalAuth, LocalMethod, RemoteAuth, RemoteMethod, SendCert,
};
use casemate_ike::{IkeSettings, Retransmission};
use casemate_sa::{AddrRange, Limits};
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
        max_ike_sas: setup.max_ike_sas.0,
        max_ike_sas_per_peer: setup.max_ike_sas.1,
        max_half_open: setup.max_half_open,
        cookie_threshold: setup.cookie_threshold,
        max_children: 16,
        max_message_bytes: 8_192,
        max_fragment_bytes: setup.fragment_bytes,
        retransmission: Retransmission {
            initial_timeout: Duration::from_secs(1),
            factor: 2,
            max_timeout: Duration::from_secs(8),
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
    peers.into_iter().map(|peer| Arc::new(connection(plan, (node, peer), variant))).collect()
}

fn connection(plan: &Plan, (own, peer): (usize, usize), variant: Variant) -> Connection {
    let setup = &plan.setup;
    let single = |addr: IpAddr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let is_gateway = plan.topology != Topology::Sites && own == 0;
    // The gateway does not know the addresses of its clients.
    let remote_addrs =
        if is_gateway { vec![AddrPattern::Any] } else { single(addresses::outer(setup, peer)) };
    let leases = setup.virtual_addrs != VirtualAddrs::No;
    let any = if setup.inner_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let children = setup.children - usize::from(variant.without_last);
    Connection {
        name: format!("to{peer}"),
        local_addrs: single(addresses::own(setup, own)),
        remote_addrs,
        local_port: 500,
        remote_port: 500,
        proposals: vec![ike_proposal(setup, own)],
        local: LocalAuth { id: Some(Identity::Fqdn(name(own))), method: local_method(setup) },
        remote: RemoteAuth { id: IdPattern::Exact(Identity::Fqdn(name(peer))), method: remote_method(setup) },
        children: (0..children)
            .map(|index| Arc::new(child::child(plan, (own, peer), index, variant)))
            .collect(),
        shunts: if setup.shunts { child::shunts(setup, (own, peer)) } else { vec![] },
        vips: if leases && own > 0 { vec![any] } else { vec![] },
        pools: if leases && is_gateway { vec![POOL.into()] } else { vec![] },
        force_encap: false,
        // A node that kept its state has to detect that its peer lost its own.
        dpd_delay: setup.liveness.then(|| Duration::from_secs(10 + u64::from(variant.ike % 3))),
        fragmentation: Fragmentation::Yes,
        childless: if own == 0 { setup.childless.0 } else { setup.childless.1 },
        keying_tries: 0,
        unique: setup.unique,
        lifespan: lifespan(setup.ike_life, variant.ike),
        reauth: setup.reauth_of(own),
        send_cert: SendCert::IfAsked,
        send_certreq: true,
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
    IkeProposal { encryption, prfs: vec![PrfAlg::HmacSha256], kex: methods(setup, own) }
}
