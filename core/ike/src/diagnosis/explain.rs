//! Builds explanations, and keeps the one of the current step until its fault is reported.

use super::{
    ChildMismatch, Considered, ConsideredChild, Explanation, MAX_CONSIDERED, MAX_IDENTITY, MAX_PER_SECOND,
    Mismatch, PeerProof, Proposal, SharedExplanation, Traffic,
};
use crate::auth::credentials::id_matches;
use crate::child_sa::{ChildNegotiation, ChildPolicy, SelectorLists, from_wire};
use crate::config::{AddrPattern, ChildMode, Connection, Identity};
use crate::context::Shared;
use crate::negotiate::{IkeSuite, Offer};
use crate::transport::{Content, ReceivedId};
use crate::{Context, Path, Routes, StateFault, TrafficSelector, narrow};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{NotifyType, Sa};

/// An IKE_AUTH request that no connection accepts.
pub(crate) struct RefusedInitiator<'a, 'm> {
    pub(crate) path: Path,
    pub(crate) suite: IkeSuite,
    pub(crate) content: &'a Content<'m>,
    /// Connections that fit the identities, and the fault of each.
    pub(crate) tried: &'a [Arc<Connection>],
    pub(crate) faults: &'a [StateFault],
}

/// Builds explanations. A trait object, so that a device that does not ask for explanations does not contain
/// the code.
pub(crate) trait Explain: Sync {
    /// Explains why no connection fits a first request.
    fn first_request(
        &self,
        path: Path,
        sa: &Sa<'_>,
        connections: &[Arc<Connection>],
        context: &Context<'_>,
    ) -> SharedExplanation;

    /// Explains why no connection accepts an IKE_AUTH request.
    fn initiator(
        &self,
        refused: RefusedInitiator<'_, '_>,
        connections: &[Arc<Connection>],
        context: &Context<'_>,
    ) -> SharedExplanation;

    /// Explains why the connection does not accept an IKE_AUTH response.
    fn responder(&self, content: &Content<'_>, own: &Identity) -> SharedExplanation;

    /// Explains why the peer's proposals for replacing the IKE SA ([`StateFault::NoProposalChosen`]), or its
    /// choice from our proposals (other faults), are refused.
    fn proposals(&self, fault: StateFault, sa: &Sa<'_>, own: &[Offer]) -> SharedExplanation;

    /// Explains why no child fits a request for a Child SA, which is refused for this fault.
    fn child_request(
        &self,
        fault: StateFault,
        policy: ChildPolicy<'_>,
        content: &Content<'_>,
    ) -> Option<SharedExplanation>;

    /// Explains why the response to our request for a Child SA is refused for this fault.
    fn child_response(
        &self,
        fault: StateFault,
        negotiation: &ChildNegotiation,
        content: &Content<'_>,
    ) -> Option<SharedExplanation>;
}

/// The implementation of [`Explain`].
pub(crate) struct ExplainFaults;

impl Explain for ExplainFaults {
    fn first_request(
        &self,
        path: Path,
        sa: &Sa<'_>,
        connections: &[Arc<Connection>],
        context: &Context<'_>,
    ) -> SharedExplanation {
        let considered = connections.iter().map(|connection| {
            (connection, address_mismatch(connection, path, context.routes).unwrap_or(Mismatch::Proposals))
        });
        Explanation::FirstRequest { offered: Proposal::read(sa), considered: closest_first(considered) }
            .into()
    }

    fn initiator(
        &self,
        refused: RefusedInitiator<'_, '_>,
        connections: &[Arc<Connection>],
        context: &Context<'_>,
    ) -> SharedExplanation {
        let RefusedInitiator { path, suite, content, tried, faults } = refused;
        let id = content.id_i.and_then(|id| Identity::from_payload(&id.id));
        let asked = content.id_r.and_then(|id| Identity::from_payload(&id.id));
        let mismatch = |connection: &Arc<Connection>| {
            let mut tried = tried.iter().zip(faults);
            if let Some((_, fault)) = tried.find(|(other, _)| Arc::ptr_eq(other, connection)) {
                return Mismatch::Proof(*fault);
            }
            if let Some(mismatch) = address_mismatch(connection, path, context.routes) {
                return mismatch;
            }
            if !connection.proposals.iter().any(|proposal| proposal.allows(suite)) {
                return Mismatch::Proposals;
            }
            let accepts = |id: &Identity| id_matches(context.credentials, &connection.remote.id, id);
            if id.as_ref().is_some_and(|id| !accepts(id)) {
                return Mismatch::RemoteIdentity;
            }
            match (&connection.local.id, &asked) {
                (Some(own), Some(asked)) if !own.is_same_peer(asked) => Mismatch::LocalIdentity,
                _ => Mismatch::Proof(StateFault::NoPeer),
            }
        };
        let considered = connections.iter().map(|connection| (connection, mismatch(connection)));
        Explanation::Initiator {
            proof: proof(content, content.id_i),
            asked: content.id_r.and_then(shown_identity),
            considered: closest_first(considered),
        }
        .into()
    }

    fn responder(&self, content: &Content<'_>, own: &Identity) -> SharedExplanation {
        Explanation::Responder { proof: proof(content, content.id_r), own: own.clone() }.into()
    }

    fn proposals(&self, fault: StateFault, sa: &Sa<'_>, own: &[Offer]) -> SharedExplanation {
        let received = Proposal::read(sa);
        if fault == StateFault::NoProposalChosen {
            return Explanation::RekeyRequest { offered: received }.into();
        }
        let offered = own.iter().map(Proposal::from).collect();
        Explanation::Choice { chosen: received, offered }.into()
    }

    fn child_request(
        &self,
        fault: StateFault,
        policy: ChildPolicy<'_>,
        content: &Content<'_>,
    ) -> Option<SharedExplanation> {
        let with_overlap = match fault {
            StateFault::NoProposalChosen => ChildMismatch::Proposals,
            StateFault::TsUnacceptable => ChildMismatch::SharedAddress,
            _ => return None,
        };
        let traffic = Traffic {
            local: content.ts_r.map(|ts| from_wire(&ts)).unwrap_or_default(),
            remote: content.ts_i.map(|ts| from_wire(&ts)).unwrap_or_default(),
        };
        let asks_for_transport = content.has_notify(NotifyType::USE_TRANSPORT_MODE);
        let considered = policy.configs.iter().take(MAX_CONSIDERED).map(|config| {
            let is_transport = asks_for_transport && config.mode == ChildMode::Transport;
            let SelectorLists { local, remote } =
                policy.dynamic_addrs.traffic_selectors(config, is_transport);
            let mismatch = match (overlap(&traffic.local, &local), overlap(&traffic.remote, &remote)) {
                (true, true) => with_overlap,
                (false, true) => ChildMismatch::LocalTraffic,
                (true, false) => ChildMismatch::RemoteTraffic,
                (false, false) => ChildMismatch::Traffic,
            };
            ConsideredChild { child: config.clone(), traffic: Traffic { local, remote }, mismatch }
        });
        let mut considered: Vec<ConsideredChild> = considered.collect();
        considered.sort_by_key(|child| core::cmp::Reverse(child.mismatch));
        let offered = content.sa.map(|sa| Proposal::read(&sa)).unwrap_or_default();
        Some(Explanation::ChildRequest { offered, considered, traffic: shortened(traffic) }.into())
    }

    fn child_response(
        &self,
        fault: StateFault,
        negotiation: &ChildNegotiation,
        content: &Content<'_>,
    ) -> Option<SharedExplanation> {
        match fault {
            StateFault::NotOffered => Some(self.proposals(fault, &content.sa?, negotiation.offers())),
            StateFault::TsNotOffered => {
                let (local, remote) = (from_wire(&content.ts_i?), from_wire(&content.ts_r?));
                let received = shortened(Traffic { local, remote });
                Some(Explanation::ChildResponse { received, requested: negotiation.traffic() }.into())
            }
            _ => None,
        }
    }
}

/// The connections that fit best, at most [`MAX_CONSIDERED`].
fn closest_first<'c>(all: impl Iterator<Item = (&'c Arc<Connection>, Mismatch)>) -> Vec<Considered> {
    let mut all: Vec<(&Arc<Connection>, Mismatch)> = all.collect();
    all.sort_by_key(|(_, mismatch)| core::cmp::Reverse(*mismatch));
    all.truncate(MAX_CONSIDERED);
    let considered = |(connection, mismatch): (&Arc<Connection>, Mismatch)| Considered {
        connection: connection.clone(),
        mismatch,
    };
    all.into_iter().map(considered).collect()
}

/// The address that does not fit, the peer's first.
fn address_mismatch(connection: &Connection, path: Path, routes: &dyn Routes) -> Option<Mismatch> {
    let fits = |patterns: &[AddrPattern], addr| patterns.iter().any(|pattern| pattern.matches(addr, routes));
    if !fits(&connection.remote_addrs, path.remote.ip()) {
        return Some(Mismatch::RemoteAddress);
    }
    (!fits(&connection.local_addrs, path.local.ip())).then_some(Mismatch::LocalAddress)
}

fn proof(content: &Content<'_>, id: Option<ReceivedId<'_>>) -> PeerProof {
    PeerProof {
        id: id.and_then(shown_identity),
        method: content.auth.map(|auth| auth.method),
        certificates: content.certs.len(),
        #[cfg(feature = "ppk")]
        ppk_id: content.notify(NotifyType::PPK_IDENTITY).map(|notify| {
            let id = notify.data.get(1..).unwrap_or_default();
            id.get(..MAX_IDENTITY).unwrap_or(id).into()
        }),
    }
}

/// The identity of a payload, unless it is too long to show.
fn shown_identity(received: ReceivedId<'_>) -> Option<Identity> {
    Identity::from_payload(&received.id).filter(|_| received.body.len() <= MAX_IDENTITY)
}

fn overlap(requested: &[TrafficSelector], configured: &[TrafficSelector]) -> bool {
    !narrow(requested, configured).is_empty()
}

/// Limits the number of a peer's selectors.
fn shortened(mut traffic: Traffic) -> Traffic {
    traffic.local.truncate(crate::MAX_SELECTORS);
    traffic.remote.truncate(crate::MAX_SELECTORS);
    traffic
}

/// The explanation of the current step. It belongs to one fault, and is dropped if another one is reported.
#[derive(Default)]
pub(crate) struct ExplanationSlot {
    pending: Option<(StateFault, SharedExplanation)>,
    /// Start of the second that `built` counts, and the number of explanations in it.
    second: Instant,
    built: u32,
}

impl ExplanationSlot {
    /// Whether another explanation for an unauthenticated peer may be built now. Counts it.
    pub(crate) fn admit(&mut self, now: Instant) -> bool {
        if now.since(self.second).as_secs() > 0 || self.built == 0 {
            (self.second, self.built) = (now, 0);
        }
        self.built = self.built.saturating_add(1);
        self.built <= MAX_PER_SECOND
    }

    pub(crate) fn set(&mut self, fault: StateFault, explanation: SharedExplanation) {
        self.pending = Some((fault, explanation));
    }

    /// Takes the explanation of `fault`, if there is one.
    pub(crate) fn take(&mut self, fault: StateFault) -> Option<SharedExplanation> {
        self.pending.take().filter(|(explained, _)| *explained == fault).map(|(_, explanation)| explanation)
    }
}

impl Shared {
    /// The builder of explanations, if they are wanted. Before authentication, only if the quota allows one.
    pub(crate) fn explainer(&mut self, now: Instant, is_authenticated: bool) -> Option<&'static dyn Explain> {
        let explainer = self.explainer?;
        (is_authenticated || self.explanation.admit(now)).then_some(explainer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_for_unauthenticated_peers_are_limited_in_each_second() {
        let mut slot = ExplanationSlot::default();
        let admitted = |slot: &mut ExplanationSlot, at| (0..100).filter(|_| slot.admit(at)).count();
        assert_eq!(admitted(&mut slot, Instant::from_secs(5)), MAX_PER_SECOND as usize);
        assert_eq!(admitted(&mut slot, Instant::from_micros(5_999_999)), 0);
        assert_eq!(admitted(&mut slot, Instant::from_secs(6)), MAX_PER_SECOND as usize);
    }

    #[test]
    fn an_explanation_belongs_to_its_fault() {
        let mut slot = ExplanationSlot::default();
        let explanation = Explanation::FirstRequest { offered: Vec::new(), considered: Vec::new() };
        let explanation = SharedExplanation::from(explanation);
        slot.set(StateFault::NoConnection, explanation.clone());
        assert_eq!(slot.take(StateFault::KeValue), None);
        assert_eq!(slot.take(StateFault::NoConnection), None, "another fault has dropped it");
        slot.set(StateFault::NoConnection, explanation.clone());
        assert_eq!(slot.take(StateFault::NoConnection), Some(explanation));
    }
}
