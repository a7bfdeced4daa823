//! CREATE_CHILD_SA for Child SAs: new ones, and ones in the place of others (RFC 7296 sections 1.3.1, 1.3.3, 2.8, 2.25.1).

use super::again::End;
use super::established::{LINGER, Phase};
use super::tasks::Pending;
use super::{Cx, Established, Head, Role, Task};
use crate::child::{
    Agreed, ChildRequest, ChildSa, Grant, KeySource, Place, Refusal, Stage, Substitution, Wish, install,
    protocol_id, respond,
};
use crate::config::Child;
use crate::keymat::Nonces;
use crate::message::{Content, need};
use crate::{ChildId, Down, Event, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, ProtocolId};

/// A Child SA that was asked for.
pub(crate) struct PendingChild {
    pub(super) request: ChildRequest,
    nonce: Vec<u8>,
    rival: Option<Rival>,
    /// Unknown SPIs that the peer deleted while the response is outstanding: one of them may be the SPI of this Child SA.
    deleted: Vec<(ProtocolId, [u8; 4])>,
}

/// SPIs that are remembered as deleted during one exchange. A peer that follows the rules deletes one: that of the new Child SA.
const MOST_DELETED: usize = 8;

/// What the peer made in the place of the same Child SA meanwhile.
struct Rival {
    id: ChildId,
    /// The lower of its exchange's two nonces.
    lowest: Vec<u8>,
}

impl PendingChild {
    /// The Child SA that the peer made in the place of the same one meanwhile.
    pub(super) fn rival(&self) -> Option<ChildId> {
        self.rival.as_ref().map(|rival| rival.id)
    }

    /// The peer deleted a Child SA that is not known here. If the response creates it, it has ended already.
    pub(super) fn note_deleted(&mut self, protocol: ProtocolId, spi: [u8; 4]) {
        if self.deleted.len() < MOST_DELETED && !self.deleted.contains(&(protocol, spi)) {
            self.deleted.push((protocol, spi));
        }
    }

    /// Whether the peer has deleted what its response creates.
    fn was_deleted(&self, agreed: &Agreed) -> bool {
        let (protocol, spi) = (protocol_id(agreed.suite.protocol()), agreed.spi_out.get().to_be_bytes());
        self.deleted.contains(&(protocol, spi))
    }
}

impl Established {
    /// The Child SAs that the peer is asked for, or will be.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Arc<Child>> {
        let pending = match &self.pending {
            Some(Pending::Child(pending)) => Some(&pending.request.wish.config),
            _ => None,
        };
        let wished = self.tasks.iter().filter_map(|task| match task {
            Task::Child(wish) => Some(&wish.config),
            _ => None,
        });
        pending.into_iter().chain(wished)
    }

    /// Whether this Child SA is there, or is asked for.
    pub(super) fn has(&self, child: &Child) -> bool {
        self.is_live(child) || self.asked().any(|config| config.name == child.name)
    }

    /// Whether this Child SA is there, and no other has its place.
    fn is_live(&self, child: &Child) -> bool {
        self.children().iter().any(|known| known.stage == Stage::Live && known.config.name == child.name)
    }

    /// Whether we are closing this Child SA, or are about to, because it is not wanted any more. One that expired, or that
    /// the peer decided to close, is.
    fn is_unwanted(&self, child: &ChildSa) -> bool {
        let closing = match &self.pending {
            Some(Pending::DeleteChildren(closing)) => closing.as_slice(),
            _ => &[],
        };
        let queued = self.tasks.iter().filter_map(|task| match task {
            Task::DeleteChild(id, why) => Some((*id, *why)),
            _ => None,
        });
        let mut closing = closing.iter().copied().chain(queued);
        closing.any(|(id, why)| id == child.id && !matches!(why, Down::Expired | Down::Peer))
    }

    /// The Child SAs that it has, or was to have, and that are to be set up again.
    pub(super) fn wanted_again(&self, why: Down) -> Vec<Arc<Child>> {
        let mut again: Vec<Arc<Child>> = Vec::new();
        let here = self.children().iter().filter(|child| !self.is_unwanted(child)).map(|child| &child.config);
        for child in here.chain(self.asked()).filter(|child| child.comes_back_after(why)) {
            if !again.contains(child) {
                again.push(child.clone());
            }
        }
        again
    }

    /// Asks for a Child SA.
    pub(super) fn request_child(
        &mut self,
        head: &Head,
        wish: Wish,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let replaced = wish.replaces.map(|old| old.id);
        let is_live = |id| self.children().iter().any(|child| child.id == id && child.stage == Stage::Live);
        if replaced.is_some_and(|id| !is_live(id)) || (wish.again && self.is_live(&wish.config)) {
            // The peer may have closed it after it asked for another key exchange method. Until now it was being replaced.
            if replaced.is_some_and(|id| self.child(id).is_none()) {
                self.bring_back_wished(&wish, cx);
            }
            return Ok(None);
        }
        let config = wish.config.clone();
        let failed =
            |why| Event::ChildFailed { connection: head.connection.clone(), child: config.clone(), why };
        if self.phase != Phase::Open {
            cx.event(failed(Down::Local));
            return Ok(None);
        }
        let again = wish.after_failure();
        let request = match ChildRequest::new(wish, &self.parentage.ends, true, cx) {
            Ok(request) => request,
            Err(fault) => {
                cx.event(failed(Down::Fault(fault.into())));
                self.ask_again(again, cx);
                replaced.into_iter().for_each(|old| self.child_rekey_failed(old, &config, cx));
                return Err(fault);
            }
        };
        let nonce = cx.nonce();
        let sent = self
            .link
            .request(head, ExchangeType::CREATE_CHILD_SA, cx, &|out| request.write(Some(&nonce), out));
        if sent.is_err() {
            cx.env.host.release_spi(request.spi);
            self.ask_again(again, cx);
            replaced.into_iter().for_each(|old| self.child_rekey_failed(old, &config, cx));
            return Err(StateFault::Provider);
        }
        Ok(Some(Pending::Child(Box::new(PendingChild { request, nonce, rival: None, deleted: Vec::new() }))))
    }

    /// Answers a request.
    pub(super) fn on_create_child(
        &mut self,
        head: &mut Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        // RFC 7296 section 2.25: what is about to be closed does not change any more.
        if self.phase != Phase::Open {
            return Err(StateFault::Busy.into());
        }
        let protocol = need(content.sa)?.proposals().next().map(|proposal| proposal.protocol);
        if protocol == Some(ProtocolId::IKE) {
            return self.on_rekey(head, content, cx);
        }
        // RFC 7296 section 2.25.2: nor while the IKE SA is being replaced.
        if matches!(self.pending, Some(Pending::Rekey(_))) {
            return Err(StateFault::Busy.into());
        }
        let old = match content.notify(NotifyType::REKEY_SA) {
            None => None,
            Some(notify) => match self.find_replaced(notify) {
                Ok(found) => Some(found),
                Err(StateFault::ChildNotFound) => return self.deny(head, notify, cx),
                Err(fault) => return Err(fault.into()),
            },
        };
        // What takes the place of another needs room only until that one is closed.
        let (most, all) = (cx.shared.settings.children, self.children());
        let live = all.iter().filter(|child| child.stage == Stage::Live).count();
        if all.len() >= most.saturating_mul(2) || (old.is_none() && live >= most) {
            return Err(StateFault::ChildLimit.into());
        }
        let nonce_i = need(content.nonce)?.data();
        let candidates = match &old {
            Some((_, config)) => core::slice::from_ref(config),
            None => head.connection.children.as_slice(),
        };
        let between = (&self.parentage.ends, self.parentage.nat, head.path);
        let grant = match respond((candidates, self.children()), content, between, true, cx) {
            Ok(grant) => grant,
            Err(Refusal::Fault(fault)) => return Err(fault),
            Err(Refusal::OtherKex(method)) => {
                let data = method.id().to_be_bytes();
                let notify = (NotifyType::INVALID_KE_PAYLOAD, &data[..]);
                cx.fault(StateFault::KeMethod.into(), head.path);
                self.link.notify(head, ExchangeType::CREATE_CHILD_SA, notify, cx);
                return Ok(());
            }
        };
        self.grant(head, grant, (nonce_i, old.map(|(id, _)| id)), cx).map_err(PeerFault::from)
    }

    /// The Child SA that a request wants to replace. Its SPI is the one that the peer receives with.
    fn find_replaced(&self, notify: &Notify<'_>) -> Result<(ChildId, Arc<Child>), StateFault> {
        let is_it = |child: &&ChildSa| {
            protocol_id(child.agreed.suite.protocol()) == notify.protocol
                && child.agreed.spi_out.get().to_be_bytes() == notify.spi
        };
        let Some(child) = self.children().iter().find(is_it) else {
            // The peer may have created it in the exchange whose response is still outstanding.
            let may_come = matches!(self.pending, Some(Pending::Child(_)));
            return Err(if may_come { StateFault::Busy } else { StateFault::ChildNotFound });
        };
        match child.stage {
            Stage::Live => Ok((child.id, child.config.clone())),
            // RFC 7296 section 2.25.1: we are closing it, or it has been replaced already.
            Stage::Closing | Stage::Replaced => Err(StateFault::Busy),
        }
    }

    /// RFC 7296 section 2.25: CHILD_SA_NOT_FOUND says which one.
    fn deny(&mut self, head: &Head, asked: &Notify<'_>, cx: &mut Cx<'_, '_>) -> Result<(), PeerFault> {
        cx.fault(StateFault::ChildNotFound.into(), head.path);
        let (protocol, spi) = (asked.protocol, asked.spi);
        let notify = Notify { protocol, kind: NotifyType::CHILD_SA_NOT_FOUND, spi, data: &[] };
        let sent = self.link.answer(head, ExchangeType::CREATE_CHILD_SA, cx, &|out| out.notify(&notify));
        sent.map_err(|_| StateFault::Provider.into())
    }

    /// Answers with what is granted, and makes it.
    fn grant(
        &mut self,
        head: &Head,
        grant: Grant,
        (nonce_i, replaces): (&[u8], Option<ChildId>),
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), StateFault> {
        let (spi, nonce_r) = (grant.agreed.spi_in, cx.nonce());
        // The SAs stand before the answer goes out, so that a failure can still be answered.
        let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
        let source = (nonces, grant.shared.as_ref(), Role::Responder);
        // RFC 7296 section 2.8: the initiator may not yet be able to receive on what replaces another.
        let active = replaces.is_none();
        let (config, agreed) = (grant.config.clone(), grant.agreed.clone());
        let made = self.install(head, (&config, agreed), source, (replaces, active), cx);
        let child = made.inspect_err(|_| cx.env.host.release_spi(spi))?;
        let id = child.id;
        self.add_child(head, child);
        let sent = self
            .link
            .answer(head, ExchangeType::CREATE_CHILD_SA, cx, &|out| grant.write(Some(&nonce_r), out));
        if sent.is_err() {
            self.remove_child(id, End::here(Down::Fault(StateFault::Provider.into())), cx);
            return Err(StateFault::Provider);
        }
        let Some(old) = replaces else { return Ok(()) };
        if let Some(old) = self.child(old) {
            old.be_replaced(cx.env.now.after(LINGER));
        }
        if let Some(Pending::Child(pending)) = &mut self.pending
            && pending.request.wish.replaces.is_some_and(|ours| ours.id == old)
        {
            pending.rival = Some(Rival { id, lowest: nonce_i.min(&nonce_r).into() });
        }
        Ok(())
    }

    fn install(
        &self,
        head: &Head,
        what: (&Arc<Child>, crate::child::Agreed),
        (nonces, shared, role): (Nonces<'_>, Option<&SecretBytes>, Role),
        how: (Option<ChildId>, bool),
        cx: &mut Cx<'_, '_>,
    ) -> Result<ChildSa, StateFault> {
        let (prf, d) = (self.link.suite.prf, &self.link.d);
        let source = KeySource { prf, d, nonces, shared, role };
        install(what, &source, &Place::new(head, self.parentage.nat), how, cx)
    }

    /// Reads the answer to our request.
    pub(super) fn on_child_response(
        &mut self,
        head: &Head,
        mut pending: PendingChild,
        response: Result<Content<'_>, PeerFault>,
        cx: &mut Cx<'_, '_>,
    ) {
        let content = match response {
            Ok(content) => content,
            Err(fault) => return self.child_failed(head, &pending, Down::Fault(fault), cx),
        };
        if let Some(refusal) = content.error() {
            return self.child_refused(head, &pending, (refusal, &content), cx);
        }
        let substitution = Substitution::new(self.parentage.nat, head.path);
        let made = pending.request.finish(&content, substitution).and_then(|answer| {
            let nonce_r = need(content.nonce)?.data();
            Ok((answer, nonce_r))
        });
        let (answer, nonce_r) = match made {
            Ok(made) => made,
            Err(fault) => {
                cx.fault(fault, head.path);
                // The peer has a Child SA that we have not, and it can only be closed with everything else.
                self.tasks.push_front(Task::DeleteIke(Down::Fault(fault)));
                return self.child_failed(head, &pending, Down::Fault(fault), cx);
            }
        };
        let nonces = Nonces { initiator: &pending.nonce, responder: nonce_r };
        let source = (nonces, answer.shared.as_ref(), Role::Initiator);
        // RFC 7296 section 2.25.1 and 2.8.1: of two exchanges that met, the one with the lowest nonce made one too many.
        let lost = pending
            .rival
            .as_ref()
            .is_some_and(|rival| pending.nonce.as_slice().min(nonce_r) < rival.lowest.as_slice());
        let (config, replaces) =
            (pending.request.wish.config.clone(), pending.request.wish.replaces.map(|old| old.id));
        if pending.was_deleted(&answer.agreed) {
            return self.ended_early(head, &pending, lost, cx);
        }
        match self.install(head, (&config, answer.agreed), source, (replaces, !lost), cx) {
            Ok(mut child) => {
                let made = child.id;
                // Nothing may bring it into use any more.
                child.stage = if lost { Stage::Closing } else { Stage::Live };
                child.attempts = pending.request.wish.attempts;
                self.add_child(head, child);
                // Of the other one too many, the peer knows.
                let rival = pending.rival().filter(|_| !lost).and_then(|rival| self.child(rival));
                if let Some(rival) = rival {
                    rival.be_replaced(cx.env.now.after(LINGER));
                    // The end of the old one must not bring it into use.
                    rival.replaces = None;
                }
                // The peer may not replace it any more, even if its Delete waits in the queue: there would be two in its place.
                if let Some(old) = replaces.filter(|_| !lost).and_then(|old| self.child(old)) {
                    old.stage = Stage::Replaced;
                }
                let redundant = if lost { Some(made) } else { replaces };
                self.tasks.extend(redundant.map(|id| Task::DeleteChild(id, Down::Replaced)));
                if lost {
                    self.rival_may_have_ended(&pending, cx);
                }
            }
            Err(fault) => self.child_failed(head, &pending, Down::Fault(fault.into()), cx),
        }
    }

    /// The peer deleted the new Child SA before its response arrived: the Child SA is not installed.
    fn ended_early(&mut self, head: &Head, pending: &PendingChild, lost: bool, cx: &mut Cx<'_, '_>) {
        if lost {
            // The peer's own exchange has replaced the old Child SA, and the peer deletes the old one, too.
            cx.env.host.release_spi(pending.request.spi);
            return self.rival_may_have_ended(pending, cx);
        }
        if let Some(rival) = pending.rival().and_then(|rival| self.child(rival)) {
            rival.be_replaced(cx.env.now.after(LINGER));
        }
        let Some(old) = pending.request.wish.replaces else {
            self.child_failed(head, pending, Down::Peer, cx);
            // It lasted no time at all.
            let attempts = pending.request.wish.attempts.saturating_add(1);
            return self.bring_back_wished(&Wish { attempts, ..pending.request.wish.clone() }, cx);
        };
        cx.env.host.release_spi(pending.request.spi);
        match self.child(old.id) {
            // The peer has closed what replaced it, so the old one ends as if the peer had closed it.
            Some(old) => {
                old.stage = Stage::Closing;
                let closing = old.id;
                self.tasks.push_back(Task::DeleteChild(closing, Down::Peer));
            }
            // The peer has closed both.
            None => self.bring_back_wished(&pending.request.wish, cx),
        }
    }

    /// What the peer made stays, but the peer may have closed it while our request was outstanding.
    fn rival_may_have_ended(&mut self, pending: &PendingChild, cx: &mut Cx<'_, '_>) {
        if pending.rival().is_some_and(|rival| self.child(rival).is_none()) {
            self.bring_back_wished(&pending.request.wish, cx);
        }
    }

    fn child_refused(
        &mut self,
        head: &Head,
        pending: &PendingChild,
        (refusal, content): (NotifyType, &Content<'_>),
        cx: &mut Cx<'_, '_>,
    ) {
        let wish = &pending.request.wish;
        match (refusal, wish.replaces) {
            (NotifyType::INVALID_KE_PAYLOAD, _) if wish.kex.is_none() => {
                let data = content.notify(refusal).map_or(&[][..], |notify| notify.data);
                let method = data.as_array().map(|id| u16::from_be_bytes(*id)).and_then(KexMethod::from_id);
                match method.filter(|method| pending.request.offers_kex(*method)) {
                    Some(method) => {
                        cx.env.host.release_spi(pending.request.spi);
                        let again = Wish { kex: Some(method), ..wish.clone() };
                        self.tasks.push_front(Task::Child(Box::new(again)));
                    }
                    None => self.child_failed(head, pending, Down::Refused(refusal), cx),
                }
            }
            // The peer's own exchange has replaced it.
            (_, Some(_)) if pending.rival.is_some() => {
                cx.env.host.release_spi(pending.request.spi);
                self.rival_may_have_ended(pending, cx);
            }
            (NotifyType::TEMPORARY_FAILURE, Some(old)) => {
                cx.env.host.release_spi(pending.request.spi);
                let config = wish.config.clone();
                self.child_rekey_failed(old.id, &config, cx);
            }
            (NotifyType::TEMPORARY_FAILURE, None) => match wish.later(Self::again_at(cx)) {
                Some(later) => {
                    cx.env.host.release_spi(pending.request.spi);
                    self.tasks.push_back(Task::Child(Box::new(later)));
                }
                None => self.child_failed(head, pending, Down::Refused(refusal), cx),
            },
            (NotifyType::CHILD_SA_NOT_FOUND, Some(old)) => {
                cx.env.host.release_spi(pending.request.spi);
                let config = wish.config.clone();
                if self.child(old.id).is_some() {
                    // RFC 7296 section 2.25.1: it is gone, and a new one takes its place.
                    self.remove_child(old.id, End::here(Down::Replaced), cx);
                    self.tasks.push_front(Task::Child(Box::new(Wish::again(config, cx.env.now, 0))));
                } else {
                    self.child_rekey_failed(old.id, &config, cx);
                }
            }
            _ => self.child_failed(head, pending, Down::Refused(refusal), cx),
        }
    }

    fn child_failed(&mut self, head: &Head, pending: &PendingChild, why: Down, cx: &mut Cx<'_, '_>) {
        cx.env.host.release_spi(pending.request.spi);
        let (connection, child) = (head.connection.clone(), pending.request.wish.config.clone());
        if let Some(old) = pending.request.wish.replaces {
            self.child_rekey_failed(old.id, &child, cx);
        }
        // What the peer closes at once is the peer's decision: `close_action` says what follows.
        self.ask_again(pending.request.wish.after_failure().filter(|_| why != Down::Peer), cx);
        cx.event(Event::ChildFailed { connection, child, why });
    }
}
