//! CREATE_CHILD_SA for an IKE SA in the place of another (RFC 7296 sections 1.3.2, 2.8.2, 2.18 and 2.25.2).

use super::established::Phase;
use super::tasks::Pending;
use super::{Cx, Effect, Established, Head, IkeSa, Link, Parentage, Role, State, Task};
use crate::keymat::{Nonces, SaKeys};
use crate::message::{Content, Window, need};
use crate::negotiate::{Chosen, IkeSuite, Offer, accepted, choose, with_reprs};
use crate::{Assigned, Down, IkeSaId, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret, SecretBytes};
use casemate_wire::ike::{ExchangeType, IkeSpi, Ke, KeMethod, Nonce, NotifyType, ProtocolId, WriteError};

/// A successor that was asked for.
pub(crate) struct PendingRekey {
    spi: IkeSpi,
    offers: Vec<Offer>,
    method: KexMethod,
    kex: Box<dyn KexSecret>,
    nonce: Vec<u8>,
    /// The method is one that the peer asked for.
    corrected: bool,
    rival: Option<Rival>,
}

impl PendingRekey {
    /// The successor that the peer made meanwhile, if it is still there.
    pub(super) fn rival(&self) -> Option<IkeSaId> {
        self.rival.as_ref().filter(|rival| !rival.is_gone).map(|rival| rival.ike)
    }
}

/// A successor that the peer made meanwhile.
struct Rival {
    ike: IkeSaId,
    /// The lower of its exchange's two nonces.
    lowest: Vec<u8>,
    /// It has been closed. Whether the peer closed it as the one too many or with everything that it had, the response to
    /// our request says.
    is_gone: bool,
}

/// What a successor begins with beside Child SAs.
#[derive(Default)]
struct Fresh {
    /// The IKE SA whose own exchange decides whether the successor stays.
    provisional: Option<IkeSaId>,
    task: Option<Task>,
}

impl Established {
    /// Asks for a successor.
    pub(super) fn request_rekey(
        &mut self,
        head: &Head,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        self.request_rekey_with(head, None, cx)
    }

    fn request_rekey_with(
        &mut self,
        head: &Head,
        wanted: Option<KexMethod>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let offers: Vec<Offer> = head.connection.proposals.iter().map(Offer::ike).collect();
        let first = offers.iter().find_map(|offer| offer.kex().next());
        // What the peer agreed to before, it will agree to again.
        let known = Some(self.link.suite.kex).filter(|kex| offers.iter().any(|o| o.kex().any(|m| m == *kex)));
        let method = wanted.or(known).or(first).ok_or(StateFault::NoProposalChosen)?;
        let kex = cx.env.providers.kex(method, cx.env.rng).map_err(|_| StateFault::Provider)?;
        let (spi, nonce) = (cx.ike_spi(), cx.nonce());
        let sent = self.link.request(head, ExchangeType::CREATE_CHILD_SA, cx, &|out| {
            with_reprs(&offers, &spi.0.to_be_bytes(), |proposals| out.sa(proposals))?;
            out.nonce(&Nonce::parse(&nonce).map_err(WriteError::Refused)?)?;
            out.ke(&Ke { method: KeMethod(method.id()), data: kex.public() })
        });
        sent.map_err(|_| StateFault::Provider)?;
        let corrected = wanted.is_some();
        let pending = PendingRekey { spi, offers, method, kex, nonce, corrected, rival: None };
        Ok(Some(Pending::Rekey(Box::new(pending))))
    }

    /// Answers a request for a successor.
    pub(super) fn on_rekey(
        &mut self,
        head: &Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        // RFC 7296 section 2.25.2: not while a Child SA is being made, replaced or closed.
        if matches!(self.pending, Some(Pending::Child(_) | Pending::DeleteChildren(_))) {
            return Err(StateFault::Busy.into());
        }
        // One successor of the peer's beside ours is enough to choose from.
        if self.rival().is_some() {
            return Err(StateFault::Busy.into());
        }
        let (sa, ke, nonce_i) = (need(content.sa)?, need(content.ke)?, need(content.nonce)?.data());
        let offers: Vec<Offer> = head.connection.proposals.iter().map(Offer::ike).collect();
        let chosen = choose(&offers, &sa, KexMethod::from_id(ke.method.0))?;
        let suite = IkeSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
        if ke.method.0 != suite.kex.id() {
            cx.fault(StateFault::KeMethod.into(), head.path);
            let data = suite.kex.id().to_be_bytes();
            let notify = (NotifyType::INVALID_KE_PAYLOAD, &data[..]);
            self.link.notify(head, ExchangeType::CREATE_CHILD_SA, notify, cx);
            return Ok(());
        }
        let kex = cx.env.providers.kex(suite.kex, cx.env.rng).map_err(|_| StateFault::Provider)?;
        let public = kex.public().to_vec();
        let shared = kex.agree(ke.data).map_err(|_| StateFault::KeValue)?;
        let (spi_r, nonce_r) = (cx.ike_spi(), cx.nonce());
        let spis = (spi_of(&chosen)?, spi_r);
        let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
        let (new, link) = self.successor_link(head, (suite, &shared), nonces, (spis, Role::Responder), cx)?;
        let sent = self.link.answer(head, ExchangeType::CREATE_CHILD_SA, cx, &|out| {
            chosen.with_repr(&spi_r.0.to_be_bytes(), |proposal| out.sa(proposal))?;
            out.nonce(&Nonce::parse(&nonce_r).map_err(WriteError::Refused)?)?;
            out.ke(&Ke { method: KeMethod(suite.kex.id()), data: &public })
        });
        sent.map_err(|_| StateFault::Provider)?;
        let lowest: Vec<u8> = nonce_i.min(&nonce_r).into();
        if let Some(Pending::Rekey(pending)) = &mut self.pending {
            // RFC 7296 section 2.8.2: which of the two remains is known when our answer comes.
            pending.rival = Some(Rival { ike: new.id, lowest, is_gone: false });
            let nothing = self.parentage.barren();
            self.spawn(head, (new, link), nothing, Fresh { provisional: Some(head.id), task: None }, cx);
        } else {
            let heritage = self.bequeath();
            self.spawn(head, (new, link), heritage, Fresh::default(), cx);
            self.linger(head, cx);
        }
        // The peer has this IKE SA, so it does not wait for the response that made it: one that rekeys again and again has two at most.
        self.predecessor.take().into_iter().for_each(|old| cx.effect(Effect::Forget(old)));
        Ok(())
    }

    /// Keys and head of a successor.
    fn successor_link(
        &self,
        head: &Head,
        (suite, shared): (IkeSuite, &SecretBytes),
        nonces: Nonces<'_>,
        (spis, role): ((IkeSpi, IkeSpi), Role),
        cx: &mut Cx<'_, '_>,
    ) -> Result<(Head, Link), StateFault> {
        let old = (self.link.suite.prf, &self.link.d);
        let keys = SaKeys::rekeyed(old, (suite.prf, suite.sk), shared, nonces, spis, cx.env.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        let new = Head {
            id: cx.shared.next_ike_id(),
            connection: head.connection.clone(),
            path: head.path,
            role,
            spi_i: spis.0,
            spi_r: spis.1,
            attempts: head.attempts,
            reauthenticates: None,
        };
        // RFC 7296 section 2.18: numbers begin at 0 again.
        let link = Link::new(&new, suite, &keys, Window::new(0, 0), self.link.fragments, cx)?;
        Ok((new, link))
    }

    fn spawn(
        &self,
        old: &Head,
        (new, link): (Head, Link),
        parentage: Parentage,
        fresh: Fresh,
        cx: &mut Cx<'_, '_>,
    ) {
        let mut state = self.successor(old, (&new, link), parentage, cx);
        state.provisional = fresh.provisional;
        state.tasks.extend(fresh.task);
        let sa = IkeSa { head: new, state: State::Established(Box::new(state)) };
        cx.effect(Effect::Spawn(Box::new(sa)));
    }

    /// Reads the answer to our request.
    pub(super) fn on_rekey_response(
        &mut self,
        head: &Head,
        pending: PendingRekey,
        response: Result<Content<'_>, PeerFault>,
        cx: &mut Cx<'_, '_>,
    ) {
        let refusal = response.as_ref().ok().and_then(|content| content.error());
        let made = match (&response, refusal) {
            (Ok(content), Some(NotifyType::INVALID_KE_PAYLOAD))
                if !pending.corrected && pending.rival.is_none() =>
            {
                return self.correct(head, &pending, content, cx);
            }
            (Ok(content), None) => self.finish(head, pending, content, cx),
            (_, refusal) => {
                let busy = refusal == Some(NotifyType::TEMPORARY_FAILURE);
                Err((pending.rival, busy))
            }
        };
        match made {
            Ok(()) => {}
            // The peer's own exchange has made the successor.
            Err((Some(rival), _)) => self.yield_to(&rival, head, cx),
            Err((None, true)) => self.rekey_at = Some(Self::again_at(cx)),
            // Without a successor it ends in its time.
            Err((None, false)) => self.rekey_failed(cx),
        }
    }

    fn correct(&mut self, head: &Head, pending: &PendingRekey, content: &Content<'_>, cx: &mut Cx<'_, '_>) {
        let notify = content.notify(NotifyType::INVALID_KE_PAYLOAD);
        let id = notify.and_then(|notify| notify.data.as_array().map(|id| u16::from_be_bytes(*id)));
        let offered =
            |method: &KexMethod| pending.offers.iter().any(|offer| offer.kex().any(|m| m == *method));
        let Some(method) = id.and_then(KexMethod::from_id).filter(offered) else {
            return self.rekey_failed(cx);
        };
        match self.request_rekey_with(head, Some(method), cx) {
            Ok(pending) => self.pending = pending,
            Err(fault) => {
                cx.fault(fault.into(), head.path);
                self.rekey_failed(cx);
            }
        }
    }

    fn finish(
        &mut self,
        head: &Head,
        pending: PendingRekey,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), (Option<Rival>, bool)> {
        let PendingRekey { spi, offers, method, kex, nonce, rival, .. } = pending;
        let agreed = || {
            let chosen = accepted(&offers, &need(content.sa)?)?;
            let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
            let (ke, nonce_r) = (need(content.ke)?, need(content.nonce)?.data());
            if suite.kex != method || ke.method.0 != method.id() {
                return Err(PeerFault::State(StateFault::KeMethod));
            }
            let shared = kex.agree(ke.data).map_err(|_| StateFault::KeValue)?;
            Ok((suite, spi_of(&chosen)?, shared, nonce_r))
        };
        let made = agreed().and_then(|(suite, spi_r, shared, nonce_r)| {
            let nonces = Nonces { initiator: &nonce, responder: nonce_r };
            let spis = (spi, spi_r);
            let made = self.successor_link(head, (suite, &shared), nonces, (spis, Role::Initiator), cx)?;
            Ok((made, nonce_r))
        });
        let (made, nonce_r) = match made {
            Ok(made) => made,
            Err(fault) => {
                cx.fault(fault, head.path);
                return Err((rival, false));
            }
        };
        let is_lower = |rival: &Rival| nonce.as_slice().min(nonce_r) < rival.lowest.as_slice();
        match rival {
            // The peer's successor has the Child SAs already, because the peer uses it.
            rival if self.phase != Phase::Open => {
                self.spawn_redundant(head, made, cx);
                drop(rival);
            }
            // RFC 7296 section 2.8.2: the lowest nonce is ours, so our successor is the one too many.
            Some(rival) if is_lower(&rival) => {
                self.spawn_redundant(head, made, cx);
                self.yield_to(&rival, head, cx);
            }
            rival => {
                // Of the other one too many, the peer knows.
                rival.into_iter().for_each(|rival| cx.effect(Effect::Redundant(rival.ike)));
                let heritage = self.bequeath();
                self.spawn(head, made, heritage, Fresh::default(), cx);
                self.be_replaced(head, cx);
                self.tasks.clear();
                self.tasks.push_front(Task::DeleteIke(Down::Replaced));
            }
        }
        Ok(())
    }

    /// The peer's successor stands. If the peer has closed it meanwhile, it has closed the Child SAs with it.
    fn yield_to(&mut self, rival: &Rival, head: &Head, cx: &mut Cx<'_, '_>) {
        if !rival.is_gone {
            self.leave_to(rival.ike, head, cx);
        } else if self.phase == Phase::Open {
            self.tasks.push_front(Task::DeleteIke(Down::Peer));
        }
    }

    /// Our successor is the one too many, and is deleted at once.
    fn spawn_redundant(&self, head: &Head, made: (Head, Link), cx: &mut Cx<'_, '_>) {
        let task = Some(Task::DeleteIke(Down::Replaced));
        self.spawn(head, made, self.parentage.barren(), Fresh { provisional: None, task }, cx);
    }

    /// The successor that the peer made while our own request is outstanding.
    pub(super) fn rival(&self) -> Option<IkeSaId> {
        match &self.pending {
            Some(Pending::Rekey(pending)) => pending.rival(),
            _ => None,
        }
    }

    /// The peer uses the successor that its own exchange made: it has chosen that one.
    pub(crate) fn concede(&mut self, rival: IkeSaId, head: &Head, cx: &mut Cx<'_, '_>) {
        if self.rival() == Some(rival) {
            self.leave_to(rival, head, cx);
        }
    }

    /// The successor that the peer made is gone: the peer has chosen ours, or closes everything.
    pub(crate) fn forget_rival(&mut self, rival: IkeSaId) {
        if let Some(Pending::Rekey(pending)) = &mut self.pending
            && let Some(known) = pending.rival.as_mut().filter(|known| known.ike == rival)
        {
            known.is_gone = true;
        }
    }

    /// The IKE SA that hands its Child SAs to this one, because the peer sends a request here other than the end of this IKE SA.
    pub(crate) fn conceding(&self, request: &Content<'_>) -> Option<IkeSaId> {
        let ends = request.deletes.iter().any(|delete| delete.protocol() == ProtocolId::IKE);
        let failed = request.says(NotifyType::AUTHENTICATION_FAILED);
        self.provisional.filter(|_| !ends && !failed)
    }

    /// The peer's successor takes the Child SAs.
    pub(super) fn leave_to(&mut self, rival: IkeSaId, head: &Head, cx: &mut Cx<'_, '_>) {
        if self.phase != Phase::Open {
            return;
        }
        let heritage = self.bequeath();
        cx.effect(Effect::Adopt(rival, Box::new(heritage), head.path));
        self.linger(head, cx);
    }

    /// Takes over what another IKE SA left. That one heard the peer last, which may have moved behind its NAT meanwhile.
    pub(crate) fn adopt(&mut self, head: &mut Head, heritage: Parentage, path: Path) {
        head.path = path;
        self.provisional = None;
        let Parentage { leased, assigned, children, tasks, .. } = heritage;
        self.parentage.leased.extend(leased);
        self.parentage.assigned = assigned;
        self.parentage.children.extend(children);
        self.tasks.extend(tasks);
    }

    /// Everything that there is, with what is still to be asked for. Its own replacement is not, nor whether the peer lives.
    fn bequeath(&mut self) -> Parentage {
        let is_own =
            |task: &Task| matches!(task, Task::RekeyIke | Task::Liveness | Task::DeleteIke(Down::Replaced));
        let mut heritage = self.parentage.bequeath();
        heritage.tasks = core::mem::take(&mut self.tasks);
        heritage.tasks.retain(|task| !is_own(task));
        heritage
    }
}

impl Parentage {
    /// The same peer, and nothing else.
    fn barren(&self) -> Self {
        Self {
            peer: self.peer.clone(),
            nat: self.nat,
            ends: self.ends.clone(),
            leased: Vec::new(),
            assigned: Assigned::default(),
            children: Vec::new(),
            tasks: VecDeque::new(),
        }
    }

    /// The same peer, with everything that there is.
    fn bequeath(&mut self) -> Self {
        let barren = self.barren();
        core::mem::replace(self, barren)
    }
}

fn spi_of(chosen: &Chosen) -> Result<IkeSpi, StateFault> {
    let value = chosen.spi.as_slice().try_into().map_or(0, u64::from_be_bytes);
    if value == 0 { Err(StateFault::ZeroSpi) } else { Ok(IkeSpi(value)) }
}
