//! Child SA as the responder: selection of a configuration, and the response.

use super::initiate::{from_wire, spi_of, to_wire};
use crate::child_sa::{AgreedChild, ChildSa, DynamicAddrs, rohc, takes_tfc_padding};
use crate::config::{ChildConfig, ChildMode};
use crate::context::{KexResponse, Step};
use crate::nat::{NatStatus, Substitution};
use crate::negotiate::{ChildSuite, Chosen, Offer, choose};
use crate::transport::{Content, required};
use crate::{IkeSaId, Path, PeerFault, StateFault, TrafficSelector, narrow};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_sa::{AddrPair, Mode, Protocol};
use casemate_wire::ike::{Ke, KeMethod, Nonce, Notify, NotifyType, Sa, WriteError, Writer};

/// An accepted Child SA.
pub(crate) struct ChildResponse {
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) agreed: AgreedChild,
    chosen: Chosen,
    /// Our side of the key exchange, if the exchange has a KE payload.
    pub(crate) kex: Option<KexResponse>,
}

/// Rejection of a request. It may name the key exchange method to use (RFC 7296 section 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildRejected {
    Fault(PeerFault),
    WrongKexMethod(KexMethod),
}

impl From<PeerFault> for ChildRejected {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for ChildRejected {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

/// A configuration whose traffic selectors overlap with the request.
struct Candidate {
    config: Arc<ChildConfig>,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    /// Whether everything requested is accepted.
    covers_request: bool,
    /// Whether the first selectors of both sides are accepted.
    covers_first: bool,
    /// Whether everything configured is accepted.
    covers_config: bool,
    /// Whether there is a Child SA of this configuration.
    is_installed: bool,
}

/// What a request for a Child SA is compared with.
#[derive(Clone, Copy)]
pub(crate) struct ChildPolicy<'a> {
    /// Configurations that the request may select.
    pub(crate) configs: &'a [Arc<ChildConfig>],
    /// Child SAs of the IKE SA.
    pub(crate) installed: &'a [ChildSa],
    pub(crate) dynamic_addrs: &'a DynamicAddrs,
}

/// Accepts the request for one of the configurations, or returns why none fits. `path` contains the addresses
/// of the messages of the IKE SA. `own_exchange` is true for CREATE_CHILD_SA.
pub(crate) fn respond(
    policy: ChildPolicy<'_>,
    content: &Content<'_>,
    nat: NatStatus,
    path: Path,
    own_exchange: bool,
    step: &mut Step<'_, '_>,
) -> Result<ChildResponse, ChildRejected> {
    try_respond(policy, content, nat, path, own_exchange, step).inspect_err(|rejected| {
        if let ChildRejected::Fault(PeerFault::State(fault)) = rejected {
            step.explain(*fault, true, |explainer, _| explainer.child_request(*fault, policy, content));
        }
    })
}

fn try_respond(
    policy: ChildPolicy<'_>,
    content: &Content<'_>,
    nat: NatStatus,
    path: Path,
    own_exchange: bool,
    step: &mut Step<'_, '_>,
) -> Result<ChildResponse, ChildRejected> {
    let theirs = required(content.sa)?;
    let requested = content.has_notify(NotifyType::USE_TRANSPORT_MODE);
    let mut candidates = Candidates::find(policy, content, Substitution::new(nat, path), requested)?;
    candidates.retain_allowed(policy, nat, path, step)?;
    let Candidates { list, transport, original } = candidates;
    let prefer = content.ke.and_then(|ke| KexMethod::from_id(ke.method.0));
    let (candidate, chosen) = choose_candidate(list, &theirs, prefer, own_exchange)?;
    let suite = ChildSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
    let kex = suite.kex.map(|method| agree_kex(method, content, step)).transpose()?;
    let spi_out = spi_of(&chosen)?;
    // Reserved last: an error of a later step would have to release it.
    let spi_in = step.host.reserve_spi(step.context.rng).ok_or(StateFault::NoSpi)?;
    // RFC 7296 section 1.3.1: the response confirms transport mode, or omits it for tunnel mode.
    let both_want_it = transport && candidate.config.mode == ChildMode::Transport;
    let mode = if both_want_it { Mode::Transport } else { Mode::Tunnel };
    let may_compress = mode == Mode::Tunnel && suite.protocol() == Protocol::Esp;
    let rohc = candidate.config.rohc.as_ref().filter(|_| may_compress);
    let offered = content.notify(NotifyType::ROHC_SUPPORTED);
    let agreed = AgreedChild {
        suite,
        mode,
        spi_in,
        spi_out,
        local: candidate.local,
        remote: candidate.remote,
        original: original.filter(|_| both_want_it),
        takes_tfc_padding: takes_tfc_padding(content),
        rohc: rohc.zip(offered).and_then(|(config, offered)| rohc::choose(config, offered.data)),
    };
    Ok(ChildResponse { config: candidate.config, agreed, chosen, kex })
}

/// Returns the first candidate with an acceptable proposal, and the proposal.
fn choose_candidate(
    candidates: Vec<Candidate>,
    theirs: &Sa<'_>,
    prefer: Option<KexMethod>,
    own_exchange: bool,
) -> Result<(Candidate, Chosen), StateFault> {
    let mut refused = StateFault::NoProposalChosen;
    for candidate in candidates {
        let offers = Offer::all_child(&candidate.config, own_exchange);
        match choose(&offers, theirs, prefer, true) {
            Ok(chosen) => return Ok((candidate, chosen)),
            Err(fault) => refused = fault,
        }
    }
    Err(refused)
}

/// Configurations that fit a request.
struct Candidates {
    list: Vec<Candidate>,
    /// Whether transport mode may be accepted.
    transport: bool,
    /// The peer's own addresses, if other addresses replace them in the selectors of `list`.
    original: Option<AddrPair>,
}

impl Candidates {
    /// Removes the candidates that another host behind the same address forbids, and sorts the others: the
    /// best comes first.
    fn retain_allowed(
        &mut self,
        policy: ChildPolicy<'_>,
        nat: NatStatus,
        path: Path,
        step: &Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let shared = &*step.shared;
        let is_own = |id| policy.installed.iter().any(|child| child.id == id);
        let is_closing = |ike: &IkeSaId| shared.effects.iter().any(|effect| effect.closes(*ike));
        let is_ignored = |id| is_own(id) || shared.child_owners.get(id).is_some_and(is_closing);
        let peer = path.remote.ip();
        let encap_port = nat.any().then_some(path.remote.port());
        let transport = self.transport;
        let is_shared = |candidate: &Candidate| {
            let mode = transport && candidate.config.mode == ChildMode::Transport;
            let Candidate { local, remote, .. } = candidate;
            mode && !step.host.allows_transport_mode(peer, encap_port, local, remote, &is_ignored)
        };
        // RFC 3948 section 5.2: another host behind the same address has this traffic already.
        self.list.retain(|candidate| !is_shared(candidate));
        // The order is: a configuration that covers the whole request, then one that covers the first
        // selectors, such as those of a packet (RFC 7296 section 2.9), then one in the requested mode, then
        // one that the request covers, then one without a Child SA. A peer that repeats a request wants
        // another class of service (RFC 4301 section 4.1). Otherwise the order of the configuration decides.
        self.list.sort_by_key(|candidate| {
            let other_mode = (candidate.config.mode == ChildMode::Transport) != transport;
            let Candidate { covers_request, covers_first, covers_config, is_installed, .. } = *candidate;
            (!covers_request, !covers_first, other_mode, !covers_config, is_installed)
        });
        if self.list.is_empty() { Err(StateFault::TsUnacceptable) } else { Ok(()) }
    }

    /// Looks up a request for transport mode through a NAT by the addresses that this host sees (RFC 7296
    /// section 2.23.1). If no configuration allows that, looks up the original selectors for a tunnel.
    fn find(
        policy: ChildPolicy<'_>,
        content: &Content<'_>,
        substitution: Option<Substitution>,
        transport: bool,
    ) -> Result<Self, ChildRejected> {
        let (ts_i, ts_r) = (from_wire(&required(content.ts_i)?), from_wire(&required(content.ts_r)?));
        let substitution = substitution.filter(|_| transport);
        if let Some(seen) = substitution.and_then(|substitution| substitution.apply(&ts_r, &ts_i)) {
            let allowed = policy.configs.iter().filter(|config| config.mode == ChildMode::Transport);
            let candidates: Vec<Candidate> = allowed
                .filter_map(|config| Candidate::new(config, policy, true, &seen.remote, &seen.local))
                .collect();
            if !candidates.is_empty() {
                return Ok(Self { list: candidates, transport, original: seen.original });
            }
        }
        let transport = transport && substitution.is_none();
        let candidates = policy
            .configs
            .iter()
            .filter_map(|config| Candidate::new(config, policy, transport, &ts_i, &ts_r));
        Ok(Self { list: candidates.collect(), transport, original: None })
    }
}

impl Candidate {
    fn new(
        config: &Arc<ChildConfig>,
        policy: ChildPolicy<'_>,
        transport: bool,
        ts_i: &[TrafficSelector],
        ts_r: &[TrafficSelector],
    ) -> Option<Self> {
        let is_transport = transport && config.mode == ChildMode::Transport;
        let own = policy.dynamic_addrs.traffic_selectors(config, is_transport);
        let (local, remote) = (narrow(ts_r, &own.local), narrow(ts_i, &own.remote));
        if local.is_empty() || remote.is_empty() {
            return None;
        }
        let holds = |granted: &[TrafficSelector], asked: &[TrafficSelector]| {
            asked.iter().all(|part| granted.iter().any(|own| own.contains(part)))
        };
        let whole = holds(&local, ts_r) && holds(&remote, ts_i);
        let [first_r, first_i] = [ts_r, ts_i].map(|asked| asked.get(..1).unwrap_or_default());
        let specific = holds(&local, first_r) && holds(&remote, first_i);
        let exact = holds(&local, &own.local) && holds(&remote, &own.remote);
        let is_up =
            policy.installed.iter().any(|child| child.is_installed() && child.config.name == config.name);
        Some(Self {
            config: config.clone(),
            local,
            remote,
            covers_request: whole,
            covers_first: specific,
            covers_config: exact,
            is_installed: is_up,
        })
    }
}

/// Performs our side of the key exchange with the chosen method.
fn agree_kex(
    method: KexMethod,
    content: &Content<'_>,
    step: &mut Step<'_, '_>,
) -> Result<KexResponse, ChildRejected> {
    // RFC 7296 section 1.3: another method, or none, is corrected.
    let Some(ke) = content.ke.filter(|ke| ke.method.0 == method.id()) else {
        return Err(ChildRejected::WrongKexMethod(method));
    };
    Ok(step.respond_to_kex(method, ke.data)?)
}

impl ChildResponse {
    /// The secret of the key exchange, if there was one.
    pub(crate) fn secrets(&self) -> Vec<SecretBytes> {
        self.kex.iter().map(|kex| kex.shared.clone()).collect()
    }

    /// Writes the payloads of the response. CREATE_CHILD_SA has a nonce.
    pub(crate) fn write(&self, nonce: Option<&[u8]>, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.agreed.mode == Mode::Transport {
            out.notify(&Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]))?;
        }
        if let (Some(config), Some(agreed)) = (&self.config.rohc, &self.agreed.rohc) {
            out.notify(&Notify::new(NotifyType::ROHC_SUPPORTED, &rohc::answer(config, agreed)))?;
        }
        self.chosen.with_proposal(&self.agreed.spi_in.get().to_be_bytes(), |proposal| out.sa(proposal))?;
        if let Some(nonce) = nonce {
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Invalid)?)?;
        }
        if let Some(KexResponse { method, public, .. }) = &self.kex {
            out.ke(&Ke { method: KeMethod(method.id()), data: public })?;
        }
        // In the response, TSi is still the initiator's side: the peer's.
        out.ts_i(&to_wire(&self.agreed.remote))?;
        out.ts_r(&to_wire(&self.agreed.local))
    }
}
