//! The two SAs of a Child SA (RFC 7296 section 2.17).

use super::{Agreed, ChildSa, Stage};
use crate::config::{Child, Connection};
use crate::keymat::{self, Nonces};
use crate::nat::Nat;
use crate::negotiate::ChildTransform;
use crate::sa::{Cx, Head};
use crate::{ChildId, ChildUp, Event, IkeSaId, Path, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::{PrfAlg, SecretBytes};
use casemate_sa::{Bounds, Lifetime, SaParams, Spi, Transform, UdpEncap};
use core::net::SocketAddr;

/// What the keys are made of.
pub(crate) struct KeySource<'a> {
    pub(crate) prf: PrfAlg,
    /// SK_d of the IKE SA.
    pub(crate) d: &'a SecretBytes,
    pub(crate) nonces: Nonces<'a>,
    pub(crate) shared: Option<&'a SecretBytes>,
    /// Our role in the exchange that makes the Child SA.
    pub(crate) role: Role,
}

/// Where a Child SA belongs.
pub(crate) struct Place<'a> {
    pub(crate) ike: IkeSaId,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) path: Path,
    pub(crate) encapsulate: bool,
}

impl<'a> Place<'a> {
    pub(crate) const fn new(head: &'a Head, nat: Nat) -> Self {
        Self { ike: head.id, connection: &head.connection, path: head.path, encapsulate: nat.any() }
    }
}

/// Makes the SAs, tells of them, and answers the Child SA. `active` says whether the outbound one is used at once.
pub(crate) fn install(
    (config, agreed): (&Arc<Child>, Agreed),
    source: &KeySource<'_>,
    place: &Place<'_>,
    (replaces, active): (Option<ChildId>, bool),
    cx: &mut Cx<'_, '_>,
) -> Result<ChildSa, StateFault> {
    let (encr, integ) = agreed.suite.key_lens();
    let each = encr.saturating_add(integ);
    let keymat = keymat::child(
        (source.prf, source.d),
        source.shared,
        source.nonces,
        each.saturating_mul(2),
        cx.env.providers,
    );
    let keymat = keymat.map_err(|_| StateFault::Provider)?;
    let (first, second) = keymat.expose().split_at_checked(each).ok_or(StateFault::Provider)?;
    // RFC 7296 section 2.17: first the SA from the initiator to the responder.
    let (outbound, inbound) = match source.role {
        Role::Initiator => (first, second),
        Role::Responder => (second, first),
    };
    let transform = |key: &[u8]| transform(agreed.suite.transform, key, encr);
    let keyed = transform(outbound).zip(transform(inbound));
    let (outbound, inbound) = keyed.ok_or(StateFault::Provider)?;
    let Path { local, remote } = place.path;
    let encap = place.encapsulate;
    let outbound = params((agreed.spi_out, outbound), (local, remote), config, &agreed, encap);
    let outbound = SaParams { dscp: config.dscp, ..outbound };
    let inbound = params((agreed.spi_in, inbound), (remote, local), config, &agreed, encap);
    let inbound = SaParams { original_addrs: agreed.original, ..inbound };
    let id = cx.shared.next_child_id();
    cx.shared.owners.insert(id, place.ike);
    let now = cx.env.now;
    cx.event(Event::ChildUp(Box::new(ChildUp {
        id,
        ike: place.ike,
        connection: place.connection.clone(),
        child: config.clone(),
        suite: agreed.suite,
        inbound,
        outbound,
        local: agreed.local.clone(),
        remote: agreed.remote.clone(),
        replaces,
        active,
    })));
    let (rekey_at, expires_at) = cx.lifespan(&config.lifespan, now);
    let config = config.clone();
    let (stage, since) = (Stage::Live, now);
    let (failures, attempts) = (0, 0);
    Ok(ChildSa {
        id,
        config,
        agreed,
        stage,
        active,
        replaces,
        rekey_at,
        expires_at,
        since,
        failures,
        attempts,
    })
}

fn transform(what: ChildTransform, key: &[u8], encr: usize) -> Option<Transform> {
    let (encr, integ) = key.split_at_checked(encr)?;
    let (encr, integ) = (SecretBytes::new(encr), SecretBytes::new(integ));
    Some(match what {
        ChildTransform::Esp(suite) => Transform::Esp { suite, encr, integ },
        ChildTransform::Ah(suite) => Transform::Ah { suite, integ },
    })
}

fn params(
    (spi, transform): (Spi, Transform),
    (src, dst): (SocketAddr, SocketAddr),
    child: &Child,
    agreed: &Agreed,
    encapsulate: bool,
) -> SaParams {
    let bounds = |bytes, packets| Bounds { bytes, packets, ..Bounds::NONE };
    let encap = UdpEncap { src_port: src.port(), dst_port: dst.port() };
    SaParams {
        encap: encapsulate.then_some(encap),
        esn: agreed.suite.esn,
        replay_window: child.replay_window,
        lifetime: Lifetime {
            soft: bounds(child.rekey_bytes, child.rekey_packets),
            hard: bounds(child.life_bytes, child.life_packets),
        },
        tfc_pad_to: child.tfc_pad_to,
        outer: child.outer,
        ..SaParams::new(spi, (src.ip(), dst.ip()), agreed.mode, transform)
    }
}
