//! The responder's side of a Child SA: which of its configurations the request means, and what it grants.

use super::request::{from_wire, spi_of, to_wire};
use super::{Agreed, ChildSa, Ends, Stage, Substitution};
use crate::config::{Child, ChildMode};
use crate::message::{Content, need};
use crate::nat::Nat;
use crate::negotiate::{ChildSuite, Chosen, Offer, choose};
use crate::sa::Cx;
use crate::{IkeSaId, Path, PeerFault, StateFault, Traffic, narrow};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_sa::Mode;
use casemate_wire::ike::{Ke, KeMethod, Nonce, Notify, NotifyType, WriteError, Writer};
use core::net::IpAddr;

/// A Child SA that is granted.
pub(crate) struct Grant {
    pub(crate) config: Arc<Child>,
    pub(crate) agreed: Agreed,
    pub(crate) shared: Option<SecretBytes>,
    chosen: Chosen,
    /// Our public value, in an exchange of its own.
    public: Option<(KexMethod, Vec<u8>)>,
}

/// A refusal that names the key exchange method that is wanted (RFC 7296 section 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Fault(PeerFault),
    OtherKex(KexMethod),
}

impl From<PeerFault> for Refusal {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for Refusal {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

/// A configuration whose traffic has something in common with the request.
struct Fit {
    config: Arc<Child>,
    local: Vec<Traffic>,
    remote: Vec<Traffic>,
    /// Whether all that was asked for is granted.
    whole: bool,
    /// Whether all that is configured is.
    exact: bool,
    /// Whether there is a Child SA of it.
    is_up: bool,
}

/// Grants one of `candidates`, or says why none. `up` are the Child SAs that the IKE SA has, whose messages
/// have the ends of `path`; `own_exchange` is CREATE_CHILD_SA.
pub(crate) fn respond(
    (candidates, up): (&[Arc<Child>], &[ChildSa]),
    content: &Content<'_>,
    (ends, nat, path): (&Ends, Nat, Path),
    own_exchange: bool,
    cx: &mut Cx<'_, '_>,
) -> Result<Grant, Refusal> {
    let theirs = need(content.sa)?;
    let transport = content.says(NotifyType::USE_TRANSPORT_MODE);
    let substitution = Substitution::new(nat, path);
    let Fits { mut fits, transport, original } =
        Fits::find((candidates, up), content, (ends, substitution), transport)?;
    let shared = &*cx.shared;
    let is_own = |id| up.iter().any(|child| child.id == id);
    let is_closing = |ike: &IkeSaId| shared.effects.iter().any(|effect| effect.closes(*ike));
    let is_ignored = |id| is_own(id) || shared.owners.get(id).is_some_and(is_closing);
    let peer = (path.remote.ip(), nat.any().then_some(path.remote.port()));
    let is_shared = |fit: &Fit| {
        let mode = transport && fit.config.mode == ChildMode::Transport;
        mode && !cx.env.host.allows_transport(peer, &fit.local, &fit.remote, &is_ignored)
    };
    // RFC 3948 section 5.2: another host with the same address has this traffic already.
    fits.retain(|fit| !is_shared(fit));
    if fits.is_empty() {
        return Err(StateFault::TsUnacceptable.into());
    }
    // One that takes all of it comes first, and of these one that means nothing else, and of these one that is not up yet: a
    // peer that asks for the same again wants another class of service (RFC 4301 section 4.1). Otherwise they are asked in
    // their order.
    fits.sort_by_key(|fit| {
        let other_mode = (fit.config.mode == ChildMode::Transport) != transport;
        (!fit.whole, other_mode, !fit.exact, fit.is_up)
    });
    let prefer = content.ke.and_then(|ke| KexMethod::from_id(ke.method.0));
    let (mut refused, mut found) = (StateFault::NoProposalChosen, None);
    for fit in fits {
        let offers = fit.config.proposals.iter().map(|proposal| Offer::child(proposal, own_exchange));
        match choose(&offers.collect::<Vec<_>>(), &theirs, prefer) {
            Ok(chosen) => {
                found = Some((fit, chosen));
                break;
            }
            Err(fault) => refused = fault,
        }
    }
    let (fit, chosen) = found.ok_or(refused)?;
    let suite = ChildSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
    let (shared, public) = match suite.kex {
        None => (None, None),
        Some(method) => agree(method, content, cx).map(|(shared, public)| (Some(shared), Some(public)))?,
    };
    // RFC 7296 section 1.3.1: transport mode is granted, or the answer is silent about it and means a tunnel.
    let both_want_it = transport && fit.config.mode == ChildMode::Transport;
    let agreed = Agreed {
        suite,
        mode: if both_want_it { Mode::Transport } else { Mode::Tunnel },
        spi_in: cx.env.host.reserve_spi(cx.env.rng).ok_or(StateFault::NoSpi)?,
        spi_out: spi_of(&chosen)?,
        local: fit.local,
        remote: fit.remote,
        original: original.filter(|_| both_want_it),
    };
    Ok(Grant { config: fit.config, agreed, shared, chosen, public })
}

/// The configurations that a request may mean.
struct Fits {
    fits: Vec<Fit>,
    /// Whether transport mode may be granted.
    transport: bool,
    /// The peer's own addresses, if the selectors in `fits` have others in their place.
    original: Option<(IpAddr, IpAddr)>,
}

impl Fits {
    /// RFC 7296 section 2.23.1: a request for transport mode through a NAT is looked up by the addresses that we see. If
    /// no configuration allows that, it is looked up as it is, for a tunnel.
    fn find(
        (candidates, up): (&[Arc<Child>], &[ChildSa]),
        content: &Content<'_>,
        (ends, substitution): (&Ends, Option<Substitution>),
        transport: bool,
    ) -> Result<Self, Refusal> {
        let (ts_i, ts_r) = (from_wire(&need(content.ts_i)?), from_wire(&need(content.ts_r)?));
        let substitution = substitution.filter(|_| transport);
        if let Some(seen) = substitution.and_then(|substitution| substitution.apply(&ts_r, &ts_i)) {
            let allowed = candidates.iter().filter(|config| config.mode == ChildMode::Transport);
            let traffic = (&*seen.remote, &*seen.local);
            let fits: Vec<Fit> = allowed.filter_map(|config| Fit::new(config, up, ends, traffic)).collect();
            if !fits.is_empty() {
                return Ok(Self { fits, transport, original: seen.original });
            }
        }
        let fits = candidates.iter().filter_map(|config| Fit::new(config, up, ends, (&ts_i, &ts_r)));
        let transport = transport && substitution.is_none();
        Ok(Self { fits: fits.collect(), transport, original: None })
    }
}

impl Fit {
    fn new(
        config: &Arc<Child>,
        up: &[ChildSa],
        ends: &Ends,
        (ts_i, ts_r): (&[Traffic], &[Traffic]),
    ) -> Option<Self> {
        let (own_local, own_remote) = ends.fill(config);
        let (local, remote) = (narrow(ts_r, &own_local), narrow(ts_i, &own_remote));
        if local.is_empty() || remote.is_empty() {
            return None;
        }
        let holds = |granted: &[Traffic], asked: &[Traffic]| {
            asked.iter().all(|part| granted.iter().any(|own| own.contains(part)))
        };
        let whole = holds(&local, ts_r) && holds(&remote, ts_i);
        let exact = holds(&local, &own_local) && holds(&remote, &own_remote);
        let is_up = up.iter().any(|child| child.stage == Stage::Live && child.config.name == config.name);
        Some(Self { config: config.clone(), local, remote, whole, exact, is_up })
    }
}

/// Our side of the key exchange, with the method that was chosen.
fn agree(
    method: KexMethod,
    content: &Content<'_>,
    cx: &mut Cx<'_, '_>,
) -> Result<(SecretBytes, (KexMethod, Vec<u8>)), Refusal> {
    // RFC 7296 section 1.3: a guess of another group, or none, is corrected.
    let Some(ke) = content.ke.filter(|ke| ke.method.0 == method.id()) else {
        return Err(Refusal::OtherKex(method));
    };
    let kex = cx.env.providers.kex(method, cx.env.rng).map_err(|_| StateFault::Provider)?;
    let public = kex.public().to_vec();
    let shared = kex.agree(ke.data).map_err(|_| StateFault::KeValue)?;
    Ok((shared, (method, public)))
}

impl Grant {
    /// Writes the payloads of the answer, with a nonce in an exchange of its own.
    pub(crate) fn write(&self, nonce: Option<&[u8]>, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.agreed.mode == Mode::Transport {
            out.notify(&Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]))?;
        }
        self.chosen.with_repr(&self.agreed.spi_in.get().to_be_bytes(), |proposal| out.sa(proposal))?;
        if let Some(nonce) = nonce {
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Refused)?)?;
        }
        if let Some((method, public)) = &self.public {
            out.ke(&Ke { method: KeMethod(method.id()), data: public })?;
        }
        // In the answer, TSi is still the initiator's side: the peer's.
        out.ts_i(&to_wire(&self.agreed.remote))?;
        out.ts_r(&to_wire(&self.agreed.local))
    }
}
