//! Child SA as the initiator: request, and evaluation of the response.

use crate::child_sa::{AgreedChild, ChildSa, ChildSpi, DynamicAddrs, SelectorLists, rohc, takes_tfc_padding};
use crate::config::{ChildConfig, ChildMode, RohcConfig};
use crate::context::Step;
use crate::diagnosis::Traffic;
use crate::nat::{Substituted, Substitution};
use crate::negotiate::{ChildSuite, Chosen, Offer, verify_choice, with_proposals};
use crate::transport::{Content, required};
use crate::{ChildId, PacketSelectors, PeerFault, StateFault, TrafficSelector};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_sa::{Instant, Mode, Protocol, Spi};
use casemate_wire::ike::{Ke, KeMethod, Nonce, Notify, NotifyType, Selector, Ts, WriteError, Writer};

/// Request for a Child SA.
#[derive(Debug, Clone)]
pub(crate) struct ChildRequest {
    pub(crate) config: Arc<ChildConfig>,
    /// The packet that triggered the request.
    pub(crate) packet: Option<PacketSelectors>,
    /// Child SA that the new one replaces.
    pub(crate) replaces: Option<ReplacedChild>,
    /// Key exchange method that the peer asked for.
    pub(crate) kex: Option<KexMethod>,
    /// Earliest time of the request, and number of postponements.
    pub(crate) postponed: Postponed,
    /// Whether the Child SA restarts one that ended. The request is dropped if there is another one by then.
    pub(crate) is_restart: bool,
    /// Whether `start_action` demands the Child SA, and IKE SAs of a former process were restored. The
    /// request is dropped as well if there is another one by then.
    #[cfg(feature = "records")]
    pub(crate) is_start: bool,
    /// Number of consecutive Child SAs of its configuration that ended soon.
    pub(crate) attempts: u8,
}

/// Postponement by a busy peer (RFC 7296 section 2.25).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Postponed {
    pub(crate) until: Instant,
    times: u8,
}

impl Postponed {
    const NONE: Self = Self { until: Instant::ZERO, times: 0 };
}

/// Maximum number of postponements. RFC 7296 section 2.25: after several minutes the peer is at fault.
const MAX_POSTPONED: u8 = 60;

/// The Child SA to be replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplacedChild {
    pub(crate) id: ChildId,
    pub(crate) protocol: Protocol,
    pub(crate) spi_in: Spi,
    /// Whether the request names it. The peer refuses that if it has replaced the Child SA already, in an
    /// exchange whose keys are lost.
    pub(crate) is_named: bool,
}

impl ChildRequest {
    /// Request for a new Child SA.
    pub(crate) const fn new(config: Arc<ChildConfig>, packet: Option<PacketSelectors>) -> Self {
        Self {
            config,
            packet,
            replaces: None,
            kex: None,
            postponed: Postponed::NONE,
            is_restart: false,
            #[cfg(feature = "records")]
            is_start: false,
            attempts: 0,
        }
    }

    /// Request for a Child SA that replaces an ended one, at `until` at the earliest.
    pub(crate) fn restart(config: Arc<ChildConfig>, until: Instant, attempts: u8) -> Self {
        let postponed = Postponed { until, times: 0 };
        Self { postponed, is_restart: true, attempts, ..Self::new(config, None) }
    }

    /// Request for a Child SA that `start_action` demands after a restart of this host.
    #[cfg(feature = "records")]
    pub(crate) fn start(config: Arc<ChildConfig>) -> Self {
        Self { is_start: true, ..Self::new(config, None) }
    }

    /// Whether the request is for one Child SA of its configuration, whichever side requests it.
    pub(crate) const fn is_for_one(&self) -> bool {
        #[cfg(feature = "records")]
        if self.is_start {
            return true;
        }
        self.is_restart
    }

    /// The same request, postponed; `None` after too many postponements.
    pub(crate) fn postponed_until(&self, until: Instant) -> Option<Self> {
        let times = self.postponed.times.checked_add(1).filter(|times| *times <= MAX_POSTPONED)?;
        Some(Self { postponed: Postponed { until, times }, ..self.clone() })
    }

    /// Request to send after this one failed: the same if it restarts a Child SA, or none.
    pub(crate) fn retry_after_failure(&self) -> Option<Self> {
        let attempts = self.attempts.saturating_add(1);
        let restart = || Self::restart(self.config.clone(), self.postponed.until, attempts);
        self.is_restart.then(|| Self { packet: self.packet, ..restart() })
    }

    /// Request for a Child SA that replaces `old`.
    pub(crate) fn replacing(old: &ChildSa) -> Self {
        let protocol = old.agreed.suite.protocol();
        let replaces = ReplacedChild { id: old.id, protocol, spi_in: old.agreed.spi_in, is_named: true };
        Self { replaces: Some(replaces), ..Self::new(old.config.clone(), None) }
    }

    /// Request for a new Child SA, after which this host closes `old`.
    #[cfg(feature = "records")]
    pub(crate) fn replacing_unnamed(old: &ChildSa) -> Self {
        let mut request = Self::replacing(old);
        request.replaces.iter_mut().for_each(|old| old.is_named = false);
        request
    }
}

/// A Child SA under negotiation.
pub(crate) struct ChildNegotiation {
    pub(crate) request: ChildRequest,
    pub(crate) spi: Spi,
    offers: Vec<Offer>,
    kex: Option<Box<dyn KexSecret>>,
    method: Option<KexMethod>,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

/// Result of a successful response.
pub(crate) struct AcceptedChild {
    pub(crate) agreed: AgreedChild,
    /// The secret of the key exchange, if there was one.
    pub(crate) secrets: Vec<SecretBytes>,
}

impl ChildNegotiation {
    /// Our SPI, as the first offer names it.
    #[cfg(feature = "records")]
    pub(crate) fn offered_spi(&self) -> ChildSpi {
        let protocol =
            self.offers.first().map_or(casemate_wire::ike::ProtocolId::ESP, |offer| offer.protocol);
        ChildSpi { protocol, spi: self.spi.get().to_be_bytes() }
    }

    /// Prepares a request. `own_exchange` is true for CREATE_CHILD_SA, which may have a key exchange.
    pub(crate) fn new(
        child_request: ChildRequest,
        dynamic_addrs: &DynamicAddrs,
        own_exchange: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        let offers = Offer::all_child(&child_request.config, own_exchange);
        let method = child_request.kex.or_else(|| offers.iter().find_map(|offer| offer.kex().next()));
        let kex = match method {
            None => None,
            Some(method) => {
                let kex = step.context.providers.kex(method, step.context.rng);
                Some(kex.map_err(|_| StateFault::Provider)?)
            }
        };
        let SelectorLists { mut local, mut remote } = dynamic_addrs
            .traffic_selectors(&child_request.config, child_request.config.mode == ChildMode::Transport);
        if local.is_empty() || remote.is_empty() {
            // The peer has assigned no virtual address.
            return Err(StateFault::TsUnacceptable);
        }
        if let Some(PacketSelectors { src, dst }) = child_request.packet {
            // RFC 7296 section 2.9: the first selectors SHOULD be the specific ones of the packet.
            local.insert(0, src);
            remote.insert(0, dst);
        }
        let spi = step.host.reserve_spi(step.context.rng).ok_or(StateFault::NoSpi)?;
        Ok(Self { request: child_request, spi, offers, kex, method, local, remote })
    }

    /// Whether the peer may ask for this key exchange method.
    pub(crate) fn offers_kex(&self, method: KexMethod) -> bool {
        self.offers.iter().any(|offer| offer.kex().any(|offered| offered == method))
    }

    /// Our proposals.
    pub(crate) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Requested traffic.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { local: self.local.clone(), remote: self.remote.clone() }
    }

    /// Explains why a response is refused for this fault.
    pub(crate) fn explain(&self, fault: PeerFault, content: &Content<'_>, step: &mut Step<'_, '_>) {
        if let PeerFault::State(fault) = fault {
            step.explain(fault, true, |explainer, _| explainer.child_response(fault, self, content));
        }
    }

    /// Writes the payloads. CREATE_CHILD_SA has a nonce.
    pub(crate) fn write(&self, nonce: Option<&[u8]>, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if let Some(old) = self.request.replaces.filter(|old| old.is_named) {
            let ChildSpi { protocol, spi } = ChildSpi::new(old.protocol, old.spi_in);
            out.notify(&Notify { protocol, kind: NotifyType::REKEY_SA, spi: &spi, data: &[] })?;
        }
        if self.request.config.mode == ChildMode::Transport {
            out.notify(&Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]))?;
        }
        if let Some(rohc) = self.offered_rohc() {
            out.notify(&Notify::new(NotifyType::ROHC_SUPPORTED, &rohc::offer(rohc)))?;
        }
        with_proposals(&self.offers, &self.spi.get().to_be_bytes(), |proposals| out.sa(proposals))?;
        if let Some(nonce) = nonce {
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Invalid)?)?;
        }
        if let (Some(kex), Some(method)) = (&self.kex, self.method) {
            out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() })?;
        }
        out.ts_i(&to_wire(&self.local))?;
        out.ts_r(&to_wire(&self.remote))
    }

    /// Evaluates the response. There is a NAT if `substitution` is set.
    pub(crate) fn accept(
        &mut self,
        content: &Content<'_>,
        substitution: Option<Substitution>,
    ) -> Result<AcceptedChild, PeerFault> {
        let chosen = verify_choice(&self.offers, &required(content.sa)?)?;
        let suite = ChildSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
        let secrets = self.agree_kex(suite, content)?.into_iter().collect();
        let transport = content.has_notify(NotifyType::USE_TRANSPORT_MODE);
        if transport && self.request.config.mode != ChildMode::Transport {
            return Err(StateFault::NotOffered.into());
        }
        let (local, remote) = (from_wire(&required(content.ts_i)?), from_wire(&required(content.ts_r)?));
        let (local, remote, original) = match substitution.filter(|_| transport) {
            None => (local, remote, None),
            // RFC 7296 section 2.23.1: addresses are replaced before the selectors are used for anything
            // else.
            Some(substitution) => {
                let Substituted { local, remote, original } =
                    substitution.apply(&local, &remote).ok_or(StateFault::TsNotOffered)?;
                (local, remote, original)
            }
        };
        let within = |narrowed: Vec<TrafficSelector>, offered: &[TrafficSelector]| {
            let is_inside = |part: &TrafficSelector| offered.iter().any(|offer| offer.contains(part));
            // RFC 7296 section 2.9: the responder may only narrow the selectors.
            if narrowed.is_empty() || !narrowed.iter().all(is_inside) {
                return Err(PeerFault::State(StateFault::TsNotOffered));
            }
            Ok(narrowed)
        };
        let answer = content.notify(NotifyType::ROHC_SUPPORTED);
        let rohc = match (self.offered_rohc(), answer) {
            (Some(config), Some(answer)) => Some(rohc::accept(config, answer.data)?),
            _ => None,
        };
        let agreed = AgreedChild {
            suite,
            mode: if transport { Mode::Transport } else { Mode::Tunnel },
            spi_in: self.spi,
            spi_out: spi_of(&chosen)?,
            local: within(local, &self.local)?,
            remote: within(remote, &self.remote)?,
            original,
            rohc,
            takes_tfc_padding: takes_tfc_padding(content),
        };
        Ok(AcceptedChild { agreed, secrets })
    }

    /// The header compression that the request offers: for tunnel mode only (RFC 5856 section 1).
    fn offered_rohc(&self) -> Option<&RohcConfig> {
        let config = &self.request.config;
        config.rohc.as_ref().filter(|_| config.mode == ChildMode::Tunnel)
    }

    fn agree_kex(
        &mut self,
        suite: ChildSuite,
        content: &Content<'_>,
    ) -> Result<Option<SecretBytes>, PeerFault> {
        let Some(method) = suite.kex else { return Ok(None) };
        let ke = required(content.ke)?;
        if Some(method) != self.method || ke.method.0 != method.id() {
            return Err(StateFault::NotOffered.into());
        }
        let kex = self.kex.take().ok_or(StateFault::NotOffered)?;
        Ok(Some(kex.agree(ke.data).map_err(|_| StateFault::KeValue)?))
    }
}

/// SPI of the peer in the chosen proposal.
pub(super) fn spi_of(chosen: &Chosen) -> Result<Spi, StateFault> {
    let value = chosen.spi.as_slice().try_into().map_or(0, u32::from_be_bytes);
    Spi::new(value).ok_or(StateFault::ZeroSpi)
}

pub(super) fn to_wire(traffic: &[TrafficSelector]) -> Vec<Selector<'static>> {
    traffic.iter().map(|part| Selector::Range(part.to_wire())).collect()
}

/// Known selectors of a peer. RFC 7296 section 2.9: unknown ones are left out, which narrows.
pub(crate) fn from_wire(ts: &Ts<'_>) -> Vec<TrafficSelector> {
    let ranges = ts.selectors().filter_map(|selector| match selector {
        Selector::Range(range) => TrafficSelector::from_wire(&range),
        Selector::Other { .. } => None,
    });
    ranges.collect()
}
