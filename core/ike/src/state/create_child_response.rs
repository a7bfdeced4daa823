//! Responses to our CREATE_CHILD_SA requests for Child SAs (RFC 7296 sections 1.3, 2.8.1 and 2.25.1).

use super::create_child::PendingChild;
use super::delete::REPLACED_LIFETIME;
use super::retry::EndCause;
use crate::child_sa::{AcceptedChild, ChildRequest, ChildSa, NewChild, Stage};
use crate::config::ChildConfig;
use crate::context::Step;
use crate::keymat::Nonces;
use crate::nat::Substitution;
use crate::state::{Established, SaCommon, Task};
use crate::transport::{Content, required};
use crate::{ChildId, DownReason, Event, PeerFault, Role};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_crypto::KexMethod;
use casemate_wire::ike::NotifyType;

/// A Child SA whose key exchanges are complete.
pub(super) struct CompletedChild<'a> {
    pub(super) answer: AcceptedChild,
    pub(super) nonce_r: &'a [u8],
    /// Whether it is redundant: the peer's simultaneous exchange stays.
    pub(super) lost: bool,
}

impl SaCommon {
    /// Task that deletes a Child SA which was requested before a reload and is no longer configured.
    pub(super) fn delete_if_unconfigured(&self, id: ChildId, config: &Arc<ChildConfig>) -> Option<Task> {
        let is_configured = self.connection.children.contains(config);
        (!is_configured).then_some(Task::DeleteChild(id, DownReason::Unconfigured))
    }
}

impl Established {
    /// Handles the response to our request.
    pub(super) fn on_child_response(
        &mut self,
        common: &SaCommon,
        mut pending: PendingChild,
        response: Result<Content<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) {
        let content = match response {
            Ok(content) => content,
            Err(fault) => return self.child_failed(common, &pending, DownReason::Fault(fault), step),
        };
        #[cfg(feature = "multiple-kex")]
        if let Some(series) = pending.series.take() {
            return self.on_child_series_response(common, pending, *series, &content, step);
        }
        if let Some(refusal) = content.error() {
            return self.on_child_error(common, &pending, refusal, &content, step);
        }
        let substitution = Substitution::new(self.contents.nat, common.path);
        let made = pending.negotiation.accept(&content, substitution).and_then(|answer| {
            let nonce_r = required(content.nonce)?.data();
            Ok((answer, nonce_r))
        });
        let (answer, nonce_r) = match made {
            Ok(made) => made,
            Err(fault) => {
                pending.negotiation.explain(fault, &content, step);
                step.sa_fault(fault, common.path, common);
                // The peer has a Child SA that does not exist here. Only the deletion of the IKE SA removes
                // it.
                self.tasks.push_front(Task::DeleteIke(DownReason::Fault(fault)));
                return self.child_failed(common, &pending, DownReason::Fault(fault), step);
            }
        };
        // RFC 7296 sections 2.25.1 and 2.8.1: of two simultaneous exchanges, the one with the lowest nonce
        // made the redundant Child SA.
        let lost = pending
            .simultaneous
            .as_ref()
            .is_some_and(|other| pending.nonce.as_slice().min(nonce_r) < other.lowest_nonce.as_slice());
        #[cfg(feature = "multiple-kex")]
        if !answer.agreed.suite.additional.is_empty() {
            let nonce_r = nonce_r.into();
            if lost {
                // RFC 9370 section 2.2.4: this exchange has made no Child SA and ends here.
                return self.give_way_to_child(&pending, step);
            }
            if pending.simultaneous.is_some() {
                // The peer ends its own exchange.
                self.drop_series(step);
            }
            return self.continue_child(common, pending, answer, nonce_r, &content, step);
        }
        self.complete_child(common, &pending, CompletedChild { answer, nonce_r, lost }, step);
    }

    /// Installs a Child SA after its last key exchange.
    pub(super) fn complete_child(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        completed: CompletedChild<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let CompletedChild { answer, nonce_r, lost } = completed;
        let AcceptedChild { agreed, secrets } = answer;
        if pending.was_deleted(&agreed) {
            return self.child_deleted_early(common, pending, lost, step);
        }
        #[cfg(feature = "records")]
        let crossed = self.crossed(pending, &agreed, nonce_r);
        #[cfg(feature = "records")]
        let lost = lost || crossed.is_some_and(|crossed| crossed.is_ours_redundant);
        let nonces = Nonces { initiator: &pending.nonce, responder: nonce_r };
        let request = &pending.negotiation.request;
        let (config, replaces) = (request.config.clone(), request.replaces.map(|old| old.id));
        let new = NewChild { config: &config, agreed, replaces, active: !lost, restored: None };
        match self.install(common, new, nonces, &secrets, Role::Initiator, step) {
            Ok(child) => {
                self.child_created(common, pending, child, lost, step);
                #[cfg(feature = "records")]
                crossed.into_iter().for_each(|crossed| self.end_redundant(pending, crossed));
            }
            Err(fault) => self.child_failed(common, pending, DownReason::Fault(fault.into()), step),
        }
    }

    /// Adds a negotiated Child SA.
    pub(super) fn add_child(&mut self, common: &SaCommon, child: ChildSa) {
        self.tasks.extend(common.delete_if_unconfigured(child.id, &child.config));
        self.contents.children.push(child);
    }

    /// Ends our exchange for that of the peer, which replaces the same Child SA.
    fn give_way_to_child(&mut self, pending: &PendingChild, step: &mut Step<'_, '_>) {
        step.host.release_spi(pending.negotiation.spi);
        self.restart_if_peer_child_closed(pending, step);
        #[cfg(feature = "multiple-kex")]
        if pending.peer_child().is_none() && !self.give_way_to_series() {
            let request = &pending.negotiation.request;
            request
                .replaces
                .into_iter()
                .for_each(|old| self.child_rekey_failed(old.id, &request.config, step));
        }
    }

    /// Handles a Child SA that our exchange installed. `lost` means that it is redundant: the Child SA of a
    /// simultaneous exchange of the peer stays.
    fn child_created(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        mut child: ChildSa,
        lost: bool,
        step: &mut Step<'_, '_>,
    ) {
        let (made, replaces) = (child.id, child.replaces);
        // Nothing may activate the redundant Child SA any more.
        child.stage = if lost { Stage::Closing } else { Stage::Installed };
        child.attempts = pending.negotiation.request.attempts;
        self.add_child(common, child);
        if lost {
            self.tasks.push_back(Task::DeleteChild(made, DownReason::Replaced));
            return self.restart_if_peer_child_closed(pending, step);
        }
        // The peer knows that the Child SA of its own exchange is redundant.
        if let Some(peer_child) = pending.peer_child().and_then(|id| self.child(id)) {
            peer_child.mark_replaced(step.context.now.after(REPLACED_LIFETIME));
            // The end of the old Child SA must not activate the redundant one.
            peer_child.replaces = None;
        }
        // The peer may no longer replace the old Child SA, even while its Delete waits in the queue: two
        // Child SAs would replace it.
        if let Some(old) = replaces.and_then(|old| self.child(old)) {
            old.stage = Stage::Replaced;
        }
        replaces.into_iter().for_each(|old| self.inherit_delete(old, made));
        self.tasks.extend(replaces.map(|old| Task::DeleteChild(old, DownReason::Replaced)));
    }

    /// Handles a Child SA that the peer deleted before the response arrived. The Child SA is not installed.
    fn child_deleted_early(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        lost: bool,
        step: &mut Step<'_, '_>,
    ) {
        if lost {
            // The peer's own exchange has replaced the old Child SA, and the peer deletes the old one, too.
            step.host.release_spi(pending.negotiation.spi);
            return self.restart_if_peer_child_closed(pending, step);
        }
        if let Some(peer_child) = pending.peer_child().and_then(|peer_child| self.child(peer_child)) {
            peer_child.mark_replaced(step.context.now.after(REPLACED_LIFETIME));
        }
        let Some(old) = pending.negotiation.request.replaces else {
            self.child_failed(common, pending, DownReason::Peer, step);
            // The Child SA had no lifetime at all, so it counts as a failed attempt.
            let attempts = pending.negotiation.request.attempts.saturating_add(1);
            return self.restart_requested_child(
                &ChildRequest { attempts, ..pending.negotiation.request.clone() },
                step,
            );
        };
        step.host.release_spi(pending.negotiation.spi);
        match self.child(old.id) {
            // The peer has closed the replacement, so the old Child SA ends as if the peer had closed it.
            Some(old) => {
                old.stage = Stage::Closing;
                let closing = old.id;
                self.tasks.push_back(Task::DeleteChild(closing, DownReason::Peer));
            }
            // The peer has closed both Child SAs.
            None => self.restart_requested_child(&pending.negotiation.request, step),
        }
    }

    /// Restarts the Child SA if the peer has closed the one that its own exchange made while our request was
    /// outstanding.
    fn restart_if_peer_child_closed(&mut self, pending: &PendingChild, step: &mut Step<'_, '_>) {
        if pending.peer_child().is_some_and(|peer_child| self.child(peer_child).is_none()) {
            self.restart_requested_child(&pending.negotiation.request, step);
        }
    }

    pub(super) fn on_child_error(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        refusal: NotifyType,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let child_request = &pending.negotiation.request;
        match (refusal, child_request.replaces) {
            (NotifyType::INVALID_KE_PAYLOAD, _) if child_request.kex.is_none() => {
                let data = content.notify(refusal).map_or(&[][..], |notify| notify.data);
                let method = data.as_array().map(|id| u16::from_be_bytes(*id)).and_then(KexMethod::from_id);
                match method.filter(|method| pending.negotiation.offers_kex(*method)) {
                    Some(method) => {
                        step.host.release_spi(pending.negotiation.spi);
                        let again = ChildRequest { kex: Some(method), ..child_request.clone() };
                        self.tasks.push_front(Task::Child(Box::new(again)));
                    }
                    None => self.child_failed(common, pending, DownReason::Refused(refusal), step),
                }
            }
            // The peer's own exchange has replaced the Child SA.
            (_, Some(_)) if pending.simultaneous.is_some() => self.give_way_to_child(pending, step),
            (NotifyType::TEMPORARY_FAILURE, Some(old)) => {
                step.host.release_spi(pending.negotiation.spi);
                let config = child_request.config.clone();
                self.child_rekey_failed(old.id, &config, step);
            }
            (NotifyType::TEMPORARY_FAILURE, None) => {
                match child_request.postponed_until(Self::busy_retry_at(step)) {
                    Some(later) => {
                        step.host.release_spi(pending.negotiation.spi);
                        self.tasks.push_back(Task::Child(Box::new(later)));
                    }
                    None => self.child_failed(common, pending, DownReason::Refused(refusal), step),
                }
            }
            (NotifyType::CHILD_SA_NOT_FOUND, Some(old)) => {
                step.host.release_spi(pending.negotiation.spi);
                let config = child_request.config.clone();
                if self.child(old.id).is_some() {
                    // RFC 7296 section 2.25.1: the Child SA does not exist at the peer, and a new one
                    // replaces it.
                    self.remove_child(old.id, EndCause::local(DownReason::Replaced), step);
                    self.tasks.push_front(Task::Child(Box::new(ChildRequest::restart(
                        config,
                        step.context.now,
                        0,
                    ))));
                } else {
                    self.child_rekey_failed(old.id, &config, step);
                }
            }
            _ => self.child_failed(common, pending, DownReason::Refused(refusal), step),
        }
    }

    pub(super) fn child_failed(
        &mut self,
        common: &SaCommon,
        pending: &PendingChild,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) {
        step.host.release_spi(pending.negotiation.spi);
        let (connection, child) = (common.connection.clone(), pending.negotiation.request.config.clone());
        let replaces = pending.negotiation.request.replaces.map(|old| old.id);
        if let Some(old) = replaces {
            self.child_rekey_failed(old, &child, step);
        }
        // If the peer closes the Child SA at once, `close_action` decides what follows.
        self.retry_request(
            pending.negotiation.request.retry_after_failure().filter(|_| reason != DownReason::Peer),
            step,
        );
        let replaces = replaces.filter(|old| self.child(*old).is_some());
        step.event(Event::ChildFailed { connection, child, replaces, reason });
    }
}
