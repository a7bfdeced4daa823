//! The configurations of the nodes of a plan: always such that both sides can agree.

use crate::plan::{Plan, Shape, Style};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    AddrPattern, Child, ChildAlgorithms, ChildMode, ChildProposal, Childless, Connection, EspCombined,
    Fragmentation, IdPattern, Identity, IkeEncryption, IkeProposal, Lifespan, LocalAuth, LocalMethod,
    OnClose, Pool, RemoteAuth, RemoteMethod, SendCert, Sequence, Start, Unique,
};
use casemate_ike::{Retransmission, Settings, TrafficTemplate};
use casemate_sa::{AddrRange, Limits, OuterHeader, PortRange};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Name of the pool of virtual addresses.
const POOL: &str = "pool";

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

/// Where a node is in the world. A client behind a NAT has another address there.
pub(crate) fn outer(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + node as u8)
}

/// The address of a node behind its NAT.
pub(crate) fn private(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, node as u8, 2)
}

/// A host that node `node` protects, within the network of its child `child`.
pub(crate) fn host(node: usize, child: usize, which: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + node as u8, child as u8, which)
}

/// The virtual addresses that a gateway gives.
pub(crate) fn pool() -> Pool {
    let addrs = AddrRange::prefix(IpAddr::from([10, 200, 0, 0]), 28).unwrap();
    Pool { name: POOL.into(), addrs, dns: vec![], subnets: vec![] }
}

/// Name of a node.
pub(crate) fn name(node: usize) -> String {
    format!("node{node}")
}

/// The engine's settings.
pub(crate) fn settings(style: &Style) -> Settings {
    Settings {
        ike_sas: 64,
        half_open: 32,
        cookie_threshold: style.cookies_from,
        children: 16,
        message_bytes: 8_192,
        fragment_bytes: style.fragment_bytes,
        retransmission: Retransmission {
            first: Duration::from_secs(1),
            factor: 2,
            longest: Duration::from_secs(8),
            tries: 4,
        },
        ..Settings::SERVER
    }
}

/// The connections of a node. `variant` numbers configurations that all fit those of the peers.
pub(crate) fn connections(plan: &Plan, node: usize, variant: u32) -> Vec<Arc<Connection>> {
    let peers: Vec<usize> = match (plan.shape, node) {
        (Shape::Sites, node) => vec![1 - node],
        (Shape::Clients(clients), 0) => (1..=clients).collect(),
        (Shape::Clients(_), _) => vec![0],
    };
    peers.into_iter().map(|peer| Arc::new(connection(plan, (node, peer), variant))).collect()
}

fn connection(plan: &Plan, (own, peer): (usize, usize), variant: u32) -> Connection {
    let style = &plan.style;
    let single = |addr: Ipv4Addr| vec![AddrPattern::Range(AddrRange::single(addr.into()))];
    let is_gateway = plan.shape != Shape::Sites && own == 0;
    let own_addr = if style.nat && own > 0 { private(own) } else { outer(own) };
    // A gateway does not know where its clients are.
    let remote_addrs = if is_gateway { vec![AddrPattern::Any] } else { single(outer(peer)) };
    let vips = if style.virtual_addrs && own > 0 { vec![Ipv4Addr::UNSPECIFIED.into()] } else { vec![] };
    Connection {
        name: format!("to{peer}"),
        local_addrs: single(own_addr),
        remote_addrs,
        local_port: 500,
        remote_port: 500,
        proposals: vec![ike_proposal(style, own)],
        local: LocalAuth { id: Some(Identity::Fqdn(name(own))), method: LocalMethod::SharedKey },
        remote: RemoteAuth {
            id: IdPattern::Exactly(Identity::Fqdn(name(peer))),
            method: RemoteMethod::SharedKey,
        },
        children: (0..style.children).map(|at| Arc::new(child(plan, (own, peer), at, variant))).collect(),
        shunts: vec![],
        vips,
        pools: if style.virtual_addrs && is_gateway { vec![POOL.into()] } else { vec![] },
        force_encap: false,
        // Whoever forgot nothing must notice that the peer did.
        dpd_delay: Some(Duration::from_secs(10 + u64::from(variant % 3))),
        fragmentation: Fragmentation::Yes,
        childless: Childless::Allow,
        keying_tries: 0,
        unique: Unique::No,
        lifespan: lifespan(style.ike_life, variant),
        reauth: None,
        send_cert: SendCert::IfAsked,
        send_certreq: true,
    }
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
    let gcm = AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 };
    let encryption = if style.separate {
        let cbc = CipherAlg::AesCbc(AesBits::B128);
        IkeEncryption::Separate(vec![cbc], vec![MacAlg::standard(MacKind::HmacSha256)])
    } else {
        IkeEncryption::Combined(vec![gcm])
    };
    IkeProposal { encryption, prfs: vec![PrfAlg::HmacSha256], kex: methods(style, own) }
}

fn child_proposal(style: &Style, own: usize) -> ChildProposal {
    let gcm = EspCombined::Aead(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    let algorithms = if style.separate {
        let cbc = CipherAlg::AesCbc(AesBits::B128);
        ChildAlgorithms::EspSeparate(vec![cbc], vec![MacAlg::standard(MacKind::HmacSha256)])
    } else {
        ChildAlgorithms::EspCombined(vec![gcm])
    };
    let kex = if style.pfs { methods(style, own) } else { vec![] };
    let sequence = if style.extended { Sequence::PreferExtended } else { Sequence::PreferPlain };
    ChildProposal { algorithms, kex, sequence }
}

fn child(plan: &Plan, (own, peer): (usize, usize), at: usize, variant: u32) -> Child {
    let style = &plan.style;
    let begins = match plan.shape {
        Shape::Sites => true,
        Shape::Clients(_) => own > 0,
    };
    // Only one of two sites begins at once; both may begin when a packet comes.
    let at_once = begins && !style.traps && (own > 0 || variant % 2 == 1);
    let again = match (begins, style.traps) {
        (false, _) => OnClose::Clear,
        (true, true) => OnClose::Trap,
        (true, false) => OnClose::Restart,
    };
    let (local_ts, remote_ts) = (traffic(plan, own, own, at), traffic(plan, own, peer, at));
    Child {
        name: format!("net{at}"),
        proposals: vec![child_proposal(style, own)],
        local_ts: vec![local_ts],
        remote_ts: vec![remote_ts],
        mode: ChildMode::Tunnel,
        lifespan: lifespan(style.child_life, variant),
        rekey_bytes: None,
        rekey_packets: style.rekey_packets,
        life_bytes: None,
        life_packets: None,
        start: Start { at_once, on_traffic: begins && style.traps },
        on_close: again,
        on_dead_peer: again,
        reqid: None,
        replay_window: 64,
        tfc_pad_to: 0,
        outer: OuterHeader::default(),
        priority: None,
        policies: true,
    }
}

/// What node `of` protects, as node `says` has it in its configuration.
fn traffic(plan: &Plan, says: usize, of: usize, child: usize) -> TrafficTemplate {
    if plan.style.virtual_addrs && of > 0 {
        return TrafficTemplate::DYNAMIC;
    }
    // The wider one stays within the network of this child.
    let len = if plan.style.narrowed && says > 0 { 24 } else { 25 };
    let range = AddrRange::prefix(host(of, child, 0).into(), len).unwrap();
    TrafficTemplate { addrs: Some(range), proto: None, ports: PortRange::ANY }
}
