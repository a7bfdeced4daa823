//! CREATE_CHILD_SA for new and rekeyed Child SAs, as initiator and responder (RFC 7296 sections 1.3.1, 1.3.3,
//! 2.8, 2.25.1).

use super::delete::REPLACED_LIFETIME;
use super::established::Phase;
use super::retry::EndCause;
use super::tasks::Pending;
use crate::child_sa::{
    AgreedChild, ChildNegotiation, ChildOwner, ChildPolicy, ChildRejected, ChildRequest, ChildResponse,
    ChildSa, ChildSpi, KeymatSource, NewChild, Stage, install, respond,
};
use crate::config::ChildConfig;
use crate::context::Step;
use crate::keymat::Nonces;
use crate::state::{Established, SaCommon, SaContents, Task};
use crate::transport::{Content, required};
use crate::{ChildId, DownReason, Event, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::SecretBytes;
use casemate_wire::ike::{ExchangeType, Notify, NotifyType, ProtocolId};

/// A requested Child SA.
pub(crate) struct PendingChild {
    pub(super) negotiation: ChildNegotiation,
    pub(super) nonce: Vec<u8>,
    pub(super) simultaneous: Option<SimultaneousChildRekey>,
    /// Unknown SPIs that the peer deleted while the response is outstanding. One of them may be the SPI of
    /// this Child SA.
    deleted: Vec<ChildSpi>,
}

/// Maximum number of SPIs that are remembered as deleted during one exchange. A correct peer deletes one:
/// that of the new Child SA.
const MAX_DELETED: usize = 8;

/// Result of the peer's simultaneous rekeying of the same Child SA.
pub(super) struct SimultaneousChildRekey {
    pub(super) id: ChildId,
    /// The lower of the two nonces of the peer's exchange.
    pub(super) lowest_nonce: Vec<u8>,
}

impl PendingChild {
    /// Child SA that the peer's simultaneous exchange made.
    pub(super) fn peer_child(&self) -> Option<ChildId> {
        self.simultaneous.as_ref().map(|other| other.id)
    }

    /// Notes that the peer deleted a Child SA that is unknown here. If the response creates it, it has
    /// already ended.
    pub(super) fn note_deleted(&mut self, spi: ChildSpi) {
        if self.deleted.len() < MAX_DELETED && !self.deleted.contains(&spi) {
            self.deleted.push(spi);
        }
    }

    /// Whether the peer has deleted the Child SA that its response creates.
    pub(super) fn was_deleted(&self, agreed: &AgreedChild) -> bool {
        self.deleted.contains(&agreed.outbound_spi())
    }
}

impl Established {
    /// Child SAs of the outstanding request and of queued requests.
    pub(super) fn requested_children(&self) -> impl Iterator<Item = &Arc<ChildConfig>> {
        let pending = match &self.pending {
            Some(Pending::Child(pending)) => Some(&pending.negotiation.request.config),
            _ => None,
        };
        let queued = self.tasks.iter().filter_map(|task| match task {
            Task::Child(child_request) => Some(&child_request.config),
            _ => None,
        });
        pending.into_iter().chain(queued)
    }

    /// Whether this Child SA exists or is requested.
    pub(super) fn has_or_requests(&self, child: &ChildConfig) -> bool {
        self.is_installed(child) || self.requested_children().any(|config| config.name == child.name)
    }

    /// Whether this Child SA exists and has not been replaced.
    fn is_installed(&self, child: &ChildConfig) -> bool {
        self.children().iter().any(|known| known.stage == Stage::Installed && known.config.name == child.name)
    }

    /// Whether this host is deleting the Child SA, or is about to, because it is no longer wanted. An expired
    /// Child SA, or one that the peer decided to close, is still wanted.
    fn is_being_deleted(&self, child: &ChildSa) -> bool {
        let is_unwanted =
            |id: ChildId, reason| id == child.id && !matches!(reason, DownReason::Expired | DownReason::Peer);
        matches!(self.pending, Some(Pending::DeleteChild { id, reason }) if is_unwanted(id, reason))
            || self
                .tasks
                .iter()
                .any(|task| matches!(task, Task::DeleteChild(id, reason) if is_unwanted(*id, *reason)))
    }

    /// Configurations of existing and requested Child SAs that are to be set up again.
    pub(super) fn children_to_restart(&self, reason: DownReason) -> Vec<Arc<ChildConfig>> {
        let mut again: Vec<Arc<ChildConfig>> = Vec::new();
        let here =
            self.children().iter().filter(|child| !self.is_being_deleted(child)).map(|child| &child.config);
        for child in here.chain(self.requested_children()).filter(|child| child.restarts_after(reason)) {
            if !again.contains(child) {
                again.push(child.clone());
            }
        }
        again
    }

    /// Sends a request for a Child SA.
    pub(super) fn request_child(
        &mut self,
        common: &SaCommon,
        child_request: ChildRequest,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let replaced = child_request.replaces.map(|old| old.id);
        let is_live =
            |id| self.children().iter().any(|child| child.id == id && child.stage == Stage::Installed);
        if replaced.is_some_and(|id| !is_live(id))
            || (child_request.is_restart && self.is_installed(&child_request.config))
        {
            // The peer may have closed the Child SA after it asked for another key exchange method. Until
            // then the Child SA was being replaced.
            if replaced.is_some_and(|id| self.child(id).is_none()) {
                self.restart_requested_child(&child_request, step);
            }
            return Ok(None);
        }
        let config = child_request.config.clone();
        let failed = |reason| Event::ChildFailed {
            connection: common.connection.clone(),
            child: config.clone(),
            replaces: replaced,
            reason,
        };
        if self.phase != Phase::Open {
            step.event(failed(DownReason::Local));
            return Ok(None);
        }
        let again = child_request.retry_after_failure();
        let request = match ChildNegotiation::new(child_request, &self.contents.dynamic_addrs, true, step) {
            Ok(request) => request,
            Err(fault) => {
                step.event(failed(DownReason::Fault(fault.into())));
                self.retry_request(again, step);
                replaced.into_iter().for_each(|old| self.child_rekey_failed(old, &config, step));
                return Err(fault);
            }
        };
        let nonce = step.nonce();
        let sent = self.channel.send_request(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            request.write(Some(&nonce), out)
        });
        if sent.is_err() {
            step.host.release_spi(request.spi);
            self.retry_request(again, step);
            replaced.into_iter().for_each(|old| self.child_rekey_failed(old, &config, step));
            return Err(StateFault::Provider);
        }
        Ok(Some(Pending::Child(Box::new(PendingChild {
            negotiation: request,
            nonce,
            simultaneous: None,
            deleted: Vec::new(),
        }))))
    }

    /// Responds to a request.
    pub(super) fn on_create_child(
        &mut self,
        common: &mut SaCommon,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        // RFC 7296 section 2.25: an IKE SA that is about to be closed does not change any more.
        if self.phase != Phase::Open {
            return Err(StateFault::Busy.into());
        }
        let protocol = required(content.sa)?.proposals().next().map(|proposal| proposal.protocol);
        if protocol == Some(ProtocolId::IKE) {
            return self.on_rekey(common, content, step);
        }
        // RFC 7296 section 2.25.2: no change while the IKE SA is being rekeyed.
        if matches!(self.pending, Some(Pending::Rekey(_))) {
            return Err(StateFault::Busy.into());
        }
        let old = match content.notify(NotifyType::REKEY_SA) {
            None => None,
            Some(notify) => match self.find_replaced(notify) {
                Ok(found) => Some(found),
                Err(StateFault::ChildNotFound) => return self.send_child_not_found(common, notify, step),
                Err(fault) => return Err(fault.into()),
            },
        };
        // A Child SA that replaces another takes an extra place only until the other one is closed.
        let (most, all) = (step.shared.settings.max_children, self.children());
        let installed = all.iter().filter(|child| child.stage == Stage::Installed).count();
        if all.len() >= most.saturating_mul(2) || (old.is_none() && installed >= most) {
            return Err(StateFault::ChildLimit.into());
        }
        let nonce_i = required(content.nonce)?.data();
        let candidates = match &old {
            Some((_, config)) => core::slice::from_ref(config),
            None => common.connection.children.as_slice(),
        };
        let SaContents { dynamic_addrs, nat, .. } = &self.contents;
        let policy = ChildPolicy { configs: candidates, installed: self.children(), dynamic_addrs };
        let response = match respond(policy, content, *nat, common.path, true, step) {
            Ok(response) => response,
            Err(ChildRejected::Fault(fault)) => return Err(fault),
            Err(ChildRejected::WrongKexMethod(method)) => {
                let data = method.id().to_be_bytes();
                let kind = NotifyType::INVALID_KE_PAYLOAD;
                step.sa_fault(StateFault::KeMethod.into(), common.path, common);
                self.channel.send_notify(common, ExchangeType::CREATE_CHILD_SA, kind, &data, step);
                return Ok(());
            }
        };
        self.respond_with_child(common, response, nonce_i, old.map(|(id, _)| id), step)
            .map_err(PeerFault::from)
    }

    /// Finds the Child SA that a request replaces. The SPI is the one with which the peer receives.
    fn find_replaced(&self, notify: &Notify<'_>) -> Result<(ChildId, Arc<ChildConfig>), StateFault> {
        let named = ChildSpi::from_payload(notify.protocol, notify.spi);
        let is_it = |child: &&ChildSa| Some(child.agreed.outbound_spi()) == named;
        let Some(child) = self.children().iter().find(is_it) else {
            // The peer may have created the Child SA in the exchange whose response is outstanding.
            let may_come = matches!(self.pending, Some(Pending::Child(_)));
            return Err(if may_come { StateFault::Busy } else { StateFault::ChildNotFound });
        };
        match child.stage {
            Stage::Installed => Ok((child.id, child.config.clone())),
            // RFC 7296 section 2.25.1: this host is closing the Child SA, or it has already been replaced.
            Stage::Closing | Stage::Replaced => Err(StateFault::Busy),
        }
    }

    /// Responds with CHILD_SA_NOT_FOUND for the SPI of the request (RFC 7296 section 2.25).
    fn send_child_not_found(
        &mut self,
        common: &SaCommon,
        asked: &Notify<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        step.sa_fault(StateFault::ChildNotFound.into(), common.path, common);
        let (protocol, spi) = (asked.protocol, asked.spi);
        let notify = Notify { protocol, kind: NotifyType::CHILD_SA_NOT_FOUND, spi, data: &[] };
        let sent = self
            .channel
            .send_response(common, ExchangeType::CREATE_CHILD_SA, step, &|out| out.notify(&notify));
        sent.map_err(|_| StateFault::Provider.into())
    }

    /// Installs the Child SA and sends the response.
    fn respond_with_child(
        &mut self,
        common: &SaCommon,
        response: ChildResponse,
        nonce_i: &[u8],
        replaces: Option<ChildId>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let (spi, nonce_r) = (response.agreed.spi_in, step.nonce());
        // The SAs are installed before the response is sent, so that a failure can still be reported to the
        // peer.
        let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
        // RFC 7296 section 2.8: the initiator may not yet be able to receive on the SA that replaces another.
        let active = replaces.is_none();
        let (config, agreed) = (&response.config, response.agreed.clone());
        let new = NewChild { config, agreed, replaces, active };
        let shared = response.kex.as_ref().map(|kex| &kex.shared);
        let made = self.install(common, new, nonces, shared, Role::Responder, step);
        let child = made.inspect_err(|_| step.host.release_spi(spi))?;
        let id = child.id;
        self.add_child(common, child);
        let sent = self.channel.send_response(common, ExchangeType::CREATE_CHILD_SA, step, &|out| {
            response.write(Some(&nonce_r), out)
        });
        if sent.is_err() {
            self.remove_child(id, EndCause::local(DownReason::Fault(StateFault::Provider.into())), step);
            return Err(StateFault::Provider);
        }
        let Some(old) = replaces else { return Ok(()) };
        if let Some(old) = self.child(old) {
            old.mark_replaced(step.context.now.after(REPLACED_LIFETIME));
        }
        if let Some(Pending::Child(pending)) = &mut self.pending
            && pending.negotiation.request.replaces.is_some_and(|ours| ours.id == old)
        {
            pending.simultaneous =
                Some(SimultaneousChildRekey { id, lowest_nonce: nonce_i.min(&nonce_r).into() });
        }
        Ok(())
    }

    pub(super) fn install(
        &self,
        common: &SaCommon,
        new: NewChild<'_>,
        nonces: Nonces<'_>,
        shared: Option<&SecretBytes>,
        role: Role,
        step: &mut Step<'_, '_>,
    ) -> Result<ChildSa, StateFault> {
        let (prf, d) = (self.channel.suite.prf, &self.channel.sk_d);
        let source = KeymatSource { prf, sk_d: d, nonces, shared, role };
        let owner = ChildOwner::new(common, self.contents.nat);
        // Packets would go to an address at which the peer may not be.
        #[cfg(feature = "mobike")]
        let owner = match self.mobike().and_then(|mobike| mobike.former) {
            Some((path, udp_encap)) => ChildOwner { path, udp_encap, ..owner },
            None => owner,
        };
        install(new, &source, &owner, step)
    }
}
