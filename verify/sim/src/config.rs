//! The configurations of the nodes of a plan: always such that both sides can agree.

mod child;

use crate::places::{self, POOL};
use crate::plan::{Plan, Shape};
use crate::style::{Protection, Style, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    AddrPattern, Connection, Fragmentation, IdPattern, Identity, IkeEncryption, IkeProposal, Lifespan,
    LocalAuth, LocalMethod, RemoteAuth, RemoteMethod, SendCert,
};
use casemate_ike::{Retransmission, Settings};
use casemate_sa::{AddrRange, Limits};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Sizes of a node's tables: small, so that many nodes are cheap and a leak shows.
pub(crate) const LIMITS: Limits = Limits {
    sas: 512,
    policies: 256,
    flows: 256,
    audit_events: 64,
    replay_window: 1_024,
    reassemblies: 1,
    reassembly_bytes: 2_048,
};

/// Which configuration a node has. All fit those of the peers, but for children that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Numbers what is said of IKE SAs.
    pub(crate) ike: u32,
    /// Numbers what is said of Child SAs.
    pub(crate) child: u32,
    /// The last child is not there.
    pub(crate) without_last: bool,
}

impl Variant {
    /// The first one.
    pub(crate) const FIRST: Self = Self { ike: 1, child: 1, without_last: false };
}

/// Name of a node.
pub(crate) fn name(node: usize) -> String {
    format!("node{node}")
}

/// The engine's settings.
pub(crate) fn settings(style: &Style) -> Settings {
    Settings {
        ike_sas: style.most_ikes.0,
        ike_sas_per_peer: style.most_ikes.1,
        half_open: style.most_half_open,
        cookie_threshold: style.cookies_from,
        children: 16,
        message_bytes: 8_192,
        fragment_bytes: style.fragment_bytes,
        retransmission: Retransmission {
            first: Duration::from_secs(1),
            factor: 2,
            longest: Duration::from_secs(8),
            tries: style.tries,
        },
        ..Settings::SERVER
    }
}

/// The connections of a node.
pub(crate) fn connections(plan: &Plan, node: usize, variant: Variant) -> Vec<Arc<Connection>> {
    let peers: Vec<usize> = match (plan.shape, node) {
        (Shape::Sites, node) => vec![1 - node],
        (Shape::Clients(clients), 0) => (1..=clients).collect(),
        (Shape::Clients(_), _) => vec![0],
    };
    peers.into_iter().map(|peer| Arc::new(connection(plan, (node, peer), variant))).collect()
}

fn connection(plan: &Plan, (own, peer): (usize, usize), variant: Variant) -> Connection {
    let style = &plan.style;
    let single = |addr: IpAddr| vec![AddrPattern::Range(AddrRange::single(addr))];
    let is_gateway = plan.shape != Shape::Sites && own == 0;
    // A gateway does not know where its clients are.
    let remote_addrs = if is_gateway { vec![AddrPattern::Any] } else { single(places::outer(style, peer)) };
    let leases = style.virtual_addrs != VirtualAddrs::No;
    let any = if style.inner_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let children = style.children - usize::from(variant.without_last);
    Connection {
        name: format!("to{peer}"),
        local_addrs: single(places::own(style, own)),
        remote_addrs,
        local_port: 500,
        remote_port: 500,
        proposals: vec![ike_proposal(style, own)],
        local: LocalAuth { id: Some(Identity::Fqdn(name(own))), method: local_method(style) },
        remote: RemoteAuth {
            id: IdPattern::Exactly(Identity::Fqdn(name(peer))),
            method: remote_method(style),
        },
        children: (0..children).map(|at| Arc::new(child::child(plan, (own, peer), at, variant))).collect(),
        shunts: if style.shunts { child::shunts(style, (own, peer)) } else { vec![] },
        vips: if leases && own > 0 { vec![any] } else { vec![] },
        pools: if leases && is_gateway { vec![POOL.into()] } else { vec![] },
        force_encap: false,
        // Whoever forgot nothing must notice that the peer did.
        dpd_delay: style.liveness.then(|| Duration::from_secs(10 + u64::from(variant.ike % 3))),
        fragmentation: Fragmentation::Yes,
        childless: if own == 0 { style.childless.0 } else { style.childless.1 },
        keying_tries: 0,
        unique: style.unique,
        lifespan: lifespan(style.ike_life, variant.ike),
        reauth: style.reauth_of(own),
        send_cert: SendCert::IfAsked,
        send_certreq: true,
    }
}

fn local_method(style: &Style) -> LocalMethod {
    if style.certificates { LocalMethod::Certificate(vec![]) } else { LocalMethod::SharedKey }
}

fn remote_method(style: &Style) -> RemoteMethod {
    if style.certificates { RemoteMethod::Certificate("peers".into()) } else { RemoteMethod::SharedKey }
}

fn lifespan(rekey: Duration, variant: u32) -> Lifespan {
    let rekey = rekey + Duration::from_secs(u64::from(variant % 5));
    Lifespan { rekey: Some(rekey), random: rekey / 5, hard: Some(rekey * 3) }
}

/// Key exchange methods, as the second side knows them only in part if guesses are to be wrong.
fn methods(style: &Style, own: usize) -> Vec<KexMethod> {
    match (style.wrong_guess, own) {
        (false, _) => vec![KexMethod::X25519],
        (true, 0) => vec![KexMethod::EcpP256],
        (true, _) => vec![KexMethod::X25519, KexMethod::EcpP256],
    }
}

fn ike_proposal(style: &Style, own: usize) -> IkeProposal {
    let encryption = if style.protection == Protection::Combined {
        IkeEncryption::Combined(vec![AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 }])
    } else {
        let cbc = CipherAlg::AesCbc(AesBits::B128);
        IkeEncryption::Separate(vec![cbc], vec![MacAlg::standard(MacKind::HmacSha256)])
    };
    IkeProposal { encryption, prfs: vec![PrfAlg::HmacSha256], kex: methods(style, own) }
}
