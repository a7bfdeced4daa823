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
    /// The sequence numbers of a Child SA that is restored.
    pub(crate) restored: Option<SequenceNumbers>,
}

/// How far the sequence numbers of a Child SA are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceNumbers {
    /// The last one that may have been sent.
    pub(crate) sent: u64,
    /// The highest one that may have been received.
    pub(crate) received: u64,
}

impl<'a> NewChild<'a> {
    /// Child SA of an IKE_AUTH exchange.
    pub(crate) const fn first(config: &'a Arc<ChildConfig>, agreed: AgreedChild) -> Self {
        Self { config, agreed, replaces: None, active: true, restored: None }
    }
}

/// Derives the keys, reports the two SAs, and returns the Child SA.
pub(crate) fn install(
    new: NewChild<'_>,
    source: &KeymatSource<'_>,
    owner: &ChildOwner<'_>,
    step: &mut Step<'_, '_>,
) -> Result<ChildSa, StateFault> {
    let keymat = ChildKeymat::derive(&new.agreed, source, step.context.providers)?;
    let keys = keymat.split(new.agreed.suite).ok_or(StateFault::Provider)?;
    let mut child = install_with(new, keys, owner, step);
    step.shared.retries.end_for(owner.connection, |other| other.name == child.config.name);
    let Deadlines { rekey_at, expires_at } = step.deadlines(&child.config.lifespan, step.context.now);
    (child.rekey_at, child.expires_at) = (rekey_at, expires_at);
    Ok(child)
}

/// Reports the two SAs with these keys, and returns the Child SA, which has no deadlines yet.
pub(crate) fn install_with(
    new: NewChild<'_>,
    keys: ChildKeys,
    owner: &ChildOwner<'_>,
    step: &mut Step<'_, '_>,
) -> ChildSa {
    let NewChild { config, agreed, replaces, active, restored } = new;
    let ChildKeys { outbound, inbound, .. } = keys;
    let (rohc_out, rohc_in) =
        (outbound.rohc(&agreed, AgreedRohc::outbound), inbound.rohc(&agreed, AgreedRohc::inbound));
    let Path { local, remote } = owner.path;
    let encap = owner.udp_encap;
    let outbound = params(agreed.spi_out, outbound.transform, local, remote, config, &agreed, encap);
    let last_sent = restored.map_or(0, |numbers| numbers.sent);
    let outbound = SaParams { dscp: config.dscp, rohc: rohc_out, last_sent, ..outbound };
    let inbound = params(agreed.spi_in, inbound.transform, remote, local, config, &agreed, encap);
    let last_received = restored.map_or(0, |numbers| numbers.received);
    let inbound = SaParams { original_addrs: agreed.original, rohc: rohc_in, last_received, ..inbound };
    let id = step.shared.next_child_id();
    step.shared.child_owners.insert(id, owner.ike);
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
        is_restored: restored.is_some(),
    })));
    ChildSa {
        id,
        config: config.clone(),
        agreed,
        stage: Stage::Installed,
        is_stopped: false,
        active,
        replaces,
        rekey_at: None,
        expires_at: None,
        installed_at: step.context.now,
        rekey_failures: 0,
        attempts: 0,
        #[cfg(feature = "records")]
        keymat: step.shared.changes.are_kept().then(|| Box::new(keys.keymat)),
        #[cfg(feature = "records")]
        restored_numbers: None,
    }
}

/// Keys of both SAs.
pub(crate) struct ChildKeys {
    outbound: SaKeys,
    inbound: SaKeys,
    #[cfg(feature = "records")]
    keymat: ChildKeymat,
}

/// Key material of both SAs.
#[derive(Debug)]
pub(crate) struct ChildKeymat {
    pub(crate) outbound: SecretBytes,
    pub(crate) inbound: SecretBytes,
}

/// Keys of one SA.
struct SaKeys {
    transform: Transform,
    /// Key of the ROHC ICV; empty if there is none.
    rohc: SecretBytes,
}

impl ChildKeymat {
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
        Ok(Self { outbound: SecretBytes::new(outbound), inbound: SecretBytes::new(inbound) })
    }

    /// Keys of the outbound and of the inbound SA; `None` if the lengths do not fit the algorithms.
    pub(crate) fn split(self, suite: ChildSuite) -> Option<ChildKeys> {
        Some(ChildKeys {
            outbound: SaKeys::split(suite, self.outbound.expose())?,
            inbound: SaKeys::split(suite, self.inbound.expose())?,
            #[cfg(feature = "records")]
            keymat: self,
        })
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
