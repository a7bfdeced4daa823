//! The initiator's side of a Child SA: what it asks for, and what it makes of the answer.

use super::substitute::{Substituted, Substitution};
use super::{Agreed, ChildSa, Ends};
use crate::config::{Child, ChildMode};
use crate::message::{Content, need};
use crate::negotiate::{ChildSuite, Chosen, Offer, accepted, with_reprs};
use crate::sa::Cx;
use crate::{ChildId, PeerFault, StateFault, Traffic};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_sa::{Instant, Mode, Protocol, Spi};
use casemate_wire::ike::{
    Ke, KeMethod, Nonce, Notify, NotifyType, ProtocolId, Selector, Ts, WriteError, Writer,
};

/// A Child SA that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) config: Arc<Child>,
    /// The packet that wants it: source and destination (RFC 7296 section 2.9).
    pub(crate) packet: Option<(Traffic, Traffic)>,
    /// The Child SA that it replaces.
    pub(crate) replaces: Option<Replaced>,
    /// The key exchange method that the peer asked for.
    pub(crate) kex: Option<KexMethod>,
    /// When it is asked for, and how often that was put off.
    pub(crate) postponed: Postponed,
    /// It is to be set up again after one that ended, unless there is one by then.
    pub(crate) again: bool,
    /// Child SAs of its configuration in a row that ended soon.
    pub(crate) attempts: u8,
}

/// The peer had something else to do (RFC 7296 section 2.25).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Postponed {
    pub(crate) until: Instant,
    times: u8,
}

impl Postponed {
    const NOT: Self = Self { until: Instant::ZERO, times: 0 };
}

/// How often a Child SA is put off. RFC 7296 section 2.25: over a period of several minutes, then it is the peer's fault.
const MOST_POSTPONED: u8 = 60;

/// A Child SA that is to be replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replaced {
    pub(crate) id: ChildId,
    pub(crate) protocol: Protocol,
    pub(crate) spi_in: Spi,
}

impl Wish {
    /// The first of its configuration.
    pub(crate) const fn new(config: Arc<Child>, packet: Option<(Traffic, Traffic)>) -> Self {
        Self {
            config,
            packet,
            replaces: None,
            kex: None,
            postponed: Postponed::NOT,
            again: false,
            attempts: 0,
        }
    }

    /// One after another that ended, at this time at the earliest.
    pub(crate) fn again(config: Arc<Child>, until: Instant, attempts: u8) -> Self {
        let postponed = Postponed { until, times: 0 };
        Self { postponed, again: true, attempts, ..Self::new(config, None) }
    }

    /// The same, later; nothing if that was said too often.
    pub(crate) fn later(&self, until: Instant) -> Option<Self> {
        let times = self.postponed.times.checked_add(1).filter(|times| *times <= MOST_POSTPONED)?;
        Some(Self { postponed: Postponed { until, times }, ..self.clone() })
    }

    /// What is wanted after this one failed: the same, if it is to be set up again after one that ended.
    pub(crate) fn after_failure(&self) -> Option<Self> {
        let attempts = self.attempts.saturating_add(1);
        self.again.then(|| Self::again(self.config.clone(), self.postponed.until, attempts))
    }

    /// One in the place of `old`.
    pub(crate) fn replacing(old: &ChildSa) -> Self {
        let protocol = old.agreed.suite.protocol();
        let replaces = Some(Replaced { id: old.id, protocol, spi_in: old.agreed.spi_in });
        Self { replaces, ..Self::new(old.config.clone(), None) }
    }
}

/// A Child SA that was asked for.
pub(crate) struct ChildRequest {
    pub(crate) wish: Wish,
    pub(crate) spi: Spi,
    offers: Vec<Offer>,
    kex: Option<Box<dyn KexSecret>>,
    method: Option<KexMethod>,
    local: Vec<Traffic>,
    remote: Vec<Traffic>,
}

/// What came of a request.
pub(crate) struct Answer {
    pub(crate) agreed: Agreed,
    pub(crate) shared: Option<SecretBytes>,
}

impl ChildRequest {
    /// Prepares a request. `own_exchange` is CREATE_CHILD_SA, where there may be a key exchange.
    pub(crate) fn new(
        wish: Wish,
        ends: &Ends,
        own_exchange: bool,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        let proposals = wish.config.proposals.iter();
        let offers: Vec<Offer> = proposals.map(|proposal| Offer::child(proposal, own_exchange)).collect();
        let method = wish.kex.or_else(|| offers.iter().find_map(|offer| offer.kex().next()));
        let kex = match method {
            None => None,
            Some(method) => {
                let kex = cx.env.providers.kex(method, cx.env.rng);
                Some(kex.map_err(|_| StateFault::Provider)?)
            }
        };
        let (mut local, mut remote) = ends.fill(&wish.config);
        if let Some((from, to)) = wish.packet {
            // RFC 7296 section 2.9: the first selectors SHOULD be very specific ones of the packet.
            local.insert(0, from);
            remote.insert(0, to);
        }
        let spi = cx.env.host.reserve_spi(cx.env.rng).ok_or(StateFault::NoSpi)?;
        Ok(Self { wish, spi, offers, kex, method, local, remote })
    }

    /// Whether the peer may ask for this key exchange method instead.
    pub(crate) fn offers_kex(&self, method: KexMethod) -> bool {
        self.offers.iter().any(|offer| offer.kex().any(|offered| offered == method))
    }

    /// Writes the payloads, with a nonce in an exchange of its own.
    pub(crate) fn write(&self, nonce: Option<&[u8]>, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if let Some(old) = &self.wish.replaces {
            let spi = old.spi_in.get().to_be_bytes();
            let (protocol, kind) = (protocol_id(old.protocol), NotifyType::REKEY_SA);
            out.notify(&Notify { protocol, kind, spi: &spi, data: &[] })?;
        }
        if self.wish.config.mode == ChildMode::Transport {
            out.notify(&Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]))?;
        }
        with_reprs(&self.offers, &self.spi.get().to_be_bytes(), |proposals| out.sa(proposals))?;
        if let Some(nonce) = nonce {
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Refused)?)?;
        }
        if let (Some(kex), Some(method)) = (&self.kex, self.method) {
            out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() })?;
        }
        out.ts_i(&to_wire(&self.local))?;
        out.ts_r(&to_wire(&self.remote))
    }

    /// Reads the answer. With `substitution`, a NAT is between.
    pub(crate) fn finish(
        &mut self,
        content: &Content<'_>,
        substitution: Option<Substitution>,
    ) -> Result<Answer, PeerFault> {
        let chosen = accepted(&self.offers, &need(content.sa)?)?;
        let suite = ChildSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
        let shared = self.agree(suite, content)?;
        let transport = content.says(NotifyType::USE_TRANSPORT_MODE);
        if transport && self.wish.config.mode != ChildMode::Transport {
            return Err(StateFault::NotOffered.into());
        }
        let (local, remote) = (from_wire(&need(content.ts_i)?), from_wire(&need(content.ts_r)?));
        let (local, remote, original) = match substitution.filter(|_| transport) {
            None => (local, remote, None),
            // RFC 7296 section 2.23.1: before the selectors are used for anything else.
            Some(substitution) => {
                let Substituted { local, remote, original } =
                    substitution.apply(&local, &remote).ok_or(StateFault::TsNotOffered)?;
                (local, remote, original)
            }
        };
        let within = |answer: Vec<Traffic>, offered: &[Traffic]| {
            let is_inside = |part: &Traffic| offered.iter().any(|offer| offer.contains(part));
            // RFC 7296 section 2.9: the responder narrows, and does nothing else.
            if answer.is_empty() || !answer.iter().all(is_inside) {
                return Err(PeerFault::State(StateFault::TsNotOffered));
            }
            Ok(answer)
        };
        let agreed = Agreed {
            suite,
            mode: if transport { Mode::Transport } else { Mode::Tunnel },
            spi_in: self.spi,
            spi_out: spi_of(&chosen)?,
            local: within(local, &self.local)?,
            remote: within(remote, &self.remote)?,
            original,
        };
        Ok(Answer { agreed, shared })
    }

    fn agree(&mut self, suite: ChildSuite, content: &Content<'_>) -> Result<Option<SecretBytes>, PeerFault> {
        let Some(method) = suite.kex else { return Ok(None) };
        let ke = need(content.ke)?;
        if Some(method) != self.method || ke.method.0 != method.id() {
            return Err(StateFault::NotOffered.into());
        }
        let kex = self.kex.take().ok_or(StateFault::NotOffered)?;
        Ok(Some(kex.agree(ke.data).map_err(|_| StateFault::KeValue)?))
    }
}

/// The peer's SPI in what was chosen.
pub(super) fn spi_of(chosen: &Chosen) -> Result<Spi, StateFault> {
    let value = chosen.spi.as_slice().try_into().map_or(0, u32::from_be_bytes);
    Spi::new(value).ok_or(StateFault::ZeroSpi)
}

pub(crate) const fn protocol_id(protocol: Protocol) -> ProtocolId {
    match protocol {
        Protocol::Esp => ProtocolId::ESP,
        Protocol::Ah => ProtocolId::AH,
    }
}

pub(super) fn to_wire(traffic: &[Traffic]) -> Vec<Selector<'static>> {
    traffic.iter().map(|part| Selector::Range(part.to_wire())).collect()
}

/// What is known of a peer's selectors. RFC 7296 section 2.9: others are left out, which narrows.
pub(super) fn from_wire(ts: &Ts<'_>) -> Vec<Traffic> {
    let ranges = ts.selectors().filter_map(|selector| match selector {
        Selector::Range(range) => Traffic::from_wire(&range),
        Selector::Other { .. } => None,
    });
    ranges.collect()
}
