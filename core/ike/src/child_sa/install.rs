//! Installation of the two SAs of a Child SA (RFC 7296 section 2.17).

use crate::child_sa::{AgreedChild, AgreedRohc, ChildSa, Stage};
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
use casemate_sa::{Bounds, Lifetime, RohcParams, SaParams, Spi, Transform, UdpEncap};
use core::net::SocketAddr;

/// Inputs of the key derivation.
pub(crate) struct KeymatSource<'a> {
    pub(crate) prf: PrfAlg,
    /// SK_d of the IKE SA.
    pub(crate) sk_d: &'a SecretBytes,
    pub(crate) nonces: Nonces<'a>,
    /// Secrets of the key exchanges of the Child SA, in order.
    pub(crate) secrets: &'a [SecretBytes],
    /// Our role in the exchange that creates the Child SA.
    pub(crate) role: Role,
}

/// IKE SA, connection and path of a Child SA.
pub(crate) struct ChildOwner<'a> {
    pub(crate) ike: IkeSaId,
    /// Origin of the IKE SA.
    pub(crate) origin: IkeSaId,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) path: Path,
    pub(crate) udp_encap: bool,
}

impl<'a> ChildOwner<'a> {
    pub(crate) const fn new(common: &'a SaCommon, origin: IkeSaId, nat: NatStatus) -> Self {
        let (ike, path) = (common.id, common.path);
        Self { ike, origin, connection: &common.connection, path, udp_encap: nat.any() }
    }
}

#[cfg(feature = "mobike")]
impl ChildOwner<'_> {
    /// Packets stay at the former path until the peer has proved that it receives at the present one.
    pub(crate) fn until_check(self, mobike: Option<&crate::mobike::Mobike>) -> Self {
        match mobike.and_then(|mobike| mobike.former) {
            Some((path, udp_encap)) => Self { path, udp_encap, ..self },
            None => self,
        }
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
    let ChildKeys { outbound, inbound } = ChildKeys::derive(&agreed, source, step.context.providers)?;
    let (rohc_out, rohc_in) =
        (outbound.rohc(&agreed, AgreedRohc::outbound), inbound.rohc(&agreed, AgreedRohc::inbound));
    let Path { local, remote } = owner.path;
    let encap = owner.udp_encap;
    let outbound = params(agreed.spi_out, outbound.transform, local, remote, config, &agreed, encap);
    let outbound = SaParams { dscp: config.dscp, rohc: rohc_out, ..outbound };
    let inbound = params(agreed.spi_in, inbound.transform, remote, local, config, &agreed, encap);
    let inbound = SaParams { original_addrs: agreed.original, rohc: rohc_in, ..inbound };
    let id = step.shared.next_child_id();
    step.shared.child_owners.insert(id, owner.ike);
    let now = step.context.now;
    step.shared.retries.end_for(owner.connection, |child| child.name == config.name);
    step.event(Event::ChildUp(Box::new(ChildUp {
        id,
        ike: owner.ike,
        origin: owner.origin,
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
        is_stopped: false,
        active,
        replaces,
        rekey_at,
        expires_at,
        installed_at: now,
        rekey_failures: 0,
        attempts: 0,
    })
}

/// Keys of both SAs.
struct ChildKeys {
    outbound: SaKeys,
    inbound: SaKeys,
}

/// Keys of one SA.
struct SaKeys {
    transform: Transform,
    /// Key of the ROHC ICV; empty if there is none.
    rohc: SecretBytes,
}

impl ChildKeys {
    fn derive(
        agreed: &AgreedChild,
        source: &KeymatSource<'_>,
        providers: &Providers<'_>,
    ) -> Result<Self, StateFault> {
        let rohc = agreed.rohc.as_ref().map_or(0, AgreedRohc::key_len);
        let suite = agreed.suite;
        let each = suite.encr_key_len().saturating_add(suite.integ_key_len()).saturating_add(rohc);
        let len = each.saturating_mul(2);
        let KeymatSource { prf, sk_d, secrets, nonces, role } = *source;
        let keymat = keymat::child_keymat(prf, sk_d, secrets, nonces, len, providers);
        let keymat = keymat.map_err(|_| StateFault::Provider)?;
        let (first, second) = keymat.expose().split_at_checked(each).ok_or(StateFault::Provider)?;
        // RFC 7296 section 2.17: the SA from the initiator to the responder comes first.
        let (outbound, inbound) = match role {
            Role::Initiator => (first, second),
            Role::Responder => (second, first),
        };
        let keys = |key: &[u8]| SaKeys::split(suite, key).ok_or(StateFault::Provider);
        Ok(Self { outbound: keys(outbound)?, inbound: keys(inbound)? })
    }
}

impl SaKeys {
    /// Splits the key material of one direction: encryption, integrity, then ROHC, which counts as a protocol
    /// inside of ESP (RFC 5857 section 3.1.2).
    fn split(suite: ChildSuite, key: &[u8]) -> Option<Self> {
        let (encr, rest) = key.split_at_checked(suite.encr_key_len())?;
        let (integ, rohc) = rest.split_at_checked(suite.integ_key_len())?;
        let (encr, integ) = (SecretBytes::new(encr), SecretBytes::new(integ));
        let transform = match suite.transform {
            ChildTransform::Esp(suite) => Transform::Esp { suite, encr, integ },
            ChildTransform::Ah(suite) => Transform::Ah { suite, integ },
        };
        Some(Self { transform, rohc: SecretBytes::new(rohc) })
    }

    /// Header compression of the SA.
    fn rohc(
        &self,
        agreed: &AgreedChild,
        of_direction: fn(&AgreedRohc, &[u8]) -> RohcParams,
    ) -> Option<RohcParams> {
        agreed.rohc.as_ref().map(|agreed| of_direction(agreed, self.rohc.expose()))
    }
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
        tfc_pad_to: if agreed.takes_tfc_padding { child.tfc_pad_to } else { 0 },
        outer: child.outer,
        ..SaParams::new(spi, src.ip(), dst.ip(), agreed.mode, transform)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgreedKexes;
    use alloc::vec::Vec;
    use casemate_crypto::{AesBits, CipherAlg, EspSuite, MacAlg, MacKind};

    #[test]
    fn the_key_of_the_rohc_icv_is_behind_those_of_esp() {
        let mac = MacAlg::standard(MacKind::HmacSha256);
        let suite = EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), mac);
        let transform = ChildTransform::Esp(suite);
        let suite = ChildSuite { transform, kex: None, additional: AgreedKexes::NONE, esn: false };
        let keymat: Vec<u8> = (0..16 + 32 + 32).collect();
        let keys = SaKeys::split(suite, &keymat).unwrap();
        let Transform::Esp { encr, integ, .. } = &keys.transform else { panic!("ESP") };
        assert_eq!((encr.expose(), integ.expose()), (&keymat[..16], &keymat[16..48]));
        assert_eq!(keys.rohc.expose(), &keymat[48..]);
    }
}
