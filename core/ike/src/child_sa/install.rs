//! Installation of the two SAs of a Child SA (RFC 7296 section 2.17).

use crate::child_sa::{AgreedChild, ChildSa, Stage};
use crate::config::{ChildConfig, Connection};
use crate::context::{Deadlines, Step};
use crate::keymat::{self, Nonces};
use crate::nat::NatStatus;
use crate::negotiate::{ChildSuite, ChildTransform};
use crate::state::SaCommon;
use crate::{ChildId, ChildUp, Event, IkeSaId, Path, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::{PrfAlg, Providers, SecretBytes};
use casemate_sa::{Bounds, Lifetime, SaParams, Spi, Transform, UdpEncap};
use core::net::SocketAddr;

/// Inputs of the key derivation.
pub(crate) struct KeymatSource<'a> {
    pub(crate) prf: PrfAlg,
    /// SK_d of the IKE SA.
    pub(crate) sk_d: &'a SecretBytes,
    pub(crate) nonces: Nonces<'a>,
    pub(crate) shared: Option<&'a SecretBytes>,
    /// Our role in the exchange that creates the Child SA.
    pub(crate) role: Role,
}

/// IKE SA, connection and path of a Child SA.
pub(crate) struct ChildOwner<'a> {
    pub(crate) ike: IkeSaId,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) path: Path,
    pub(crate) udp_encap: bool,
}

impl<'a> ChildOwner<'a> {
    pub(crate) const fn new(common: &'a SaCommon, nat: NatStatus) -> Self {
        Self { ike: common.id, connection: &common.connection, path: common.path, udp_encap: nat.any() }
    }
}

/// An agreed Child SA that is not installed yet.
pub(crate) struct NewChild<'a> {
    pub(crate) config: &'a Arc<ChildConfig>,
    pub(crate) agreed: AgreedChild,
    /// Child SA that it replaces.
    pub(crate) replaces: Option<ChildId>,
    /// Whether the outbound SA is used at once.
    pub(crate) active: bool,
}

impl<'a> NewChild<'a> {
    /// Child SA of an IKE_AUTH exchange.
    pub(crate) const fn first(config: &'a Arc<ChildConfig>, agreed: AgreedChild) -> Self {
        Self { config, agreed, replaces: None, active: true }
    }
}

/// Derives the keys, reports the two SAs, and returns the Child SA.
pub(crate) fn install(
    new: NewChild<'_>,
    source: &KeymatSource<'_>,
    owner: &ChildOwner<'_>,
    step: &mut Step<'_, '_>,
) -> Result<ChildSa, StateFault> {
    let NewChild { config, agreed, replaces, active } = new;
    let ChildKeys { outbound, inbound } = ChildKeys::derive(agreed.suite, source, step.context.providers)?;
    let Path { local, remote } = owner.path;
    let encap = owner.udp_encap;
    let outbound = params(agreed.spi_out, outbound, local, remote, config, &agreed, encap);
    let outbound = SaParams { dscp: config.dscp, ..outbound };
    let inbound = params(agreed.spi_in, inbound, remote, local, config, &agreed, encap);
    let inbound = SaParams { original_addrs: agreed.original, ..inbound };
    let id = step.shared.next_child_id();
    step.shared.child_owners.insert(id, owner.ike);
    let now = step.context.now;
    step.event(Event::ChildUp(Box::new(ChildUp {
        id,
        ike: owner.ike,
        connection: owner.connection.clone(),
        child: config.clone(),
        suite: agreed.suite,
        inbound,
        outbound,
        local: agreed.local.clone(),
        remote: agreed.remote.clone(),
        replaces,
        active,
    })));
    let Deadlines { rekey_at, expires_at } = step.deadlines(&config.lifespan, now);
    Ok(ChildSa {
        id,
        config: config.clone(),
        agreed,
        stage: Stage::Installed,
        active,
        replaces,
        rekey_at,
        expires_at,
        installed_at: now,
        rekey_failures: 0,
        attempts: 0,
    })
}

/// Transforms of both SAs with their keys.
struct ChildKeys {
    outbound: Transform,
    inbound: Transform,
}

impl ChildKeys {
    fn derive(
        suite: ChildSuite,
        source: &KeymatSource<'_>,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        let (encr, integ) = (suite.encr_key_len(), suite.integ_key_len());
        let each = encr.saturating_add(integ);
        let len = each.saturating_mul(2);
        let KeymatSource { prf, sk_d, shared, nonces, role } = *source;
        let keymat = keymat::child_keymat(prf, sk_d, shared, nonces, len, providers);
        let keymat = keymat.map_err(|_| StateFault::Provider)?;
        let (first, second) = keymat.expose().split_at_checked(each).ok_or(StateFault::Provider)?;
        // RFC 7296 section 2.17: the SA from the initiator to the responder comes first.
        let (outbound, inbound) = match role {
            Role::Initiator => (first, second),
            Role::Responder => (second, first),
        };
        let transform = |key: &[u8]| transform(suite.transform, key, encr).ok_or(StateFault::Provider);
        Ok(Self { outbound: transform(outbound)?, inbound: transform(inbound)? })
    }
}

fn transform(transform_kind: ChildTransform, key: &[u8], encr: usize) -> Option<Transform> {
    let (encr, integ) = key.split_at_checked(encr)?;
    let (encr, integ) = (SecretBytes::new(encr), SecretBytes::new(integ));
    Some(match transform_kind {
        ChildTransform::Esp(suite) => Transform::Esp { suite, encr, integ },
        ChildTransform::Ah(suite) => Transform::Ah { suite, integ },
    })
}

fn params(
    spi: Spi,
    transform: Transform,
    src: SocketAddr,
    dst: SocketAddr,
    child: &ChildConfig,
    agreed: &AgreedChild,
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
        ..SaParams::new(spi, src.ip(), dst.ip(), agreed.mode, transform)
    }
}
