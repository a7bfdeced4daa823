//! CREATE_CHILD_SA for new and rekeyed Child SAs, as initiator and responder (RFC 7296 sections 1.3.1, 1.3.3,
//! 2.8, 2.25.1).

#[cfg(feature = "records")]
mod crossing;

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
use crate::transport::{Build, Content, required};
use crate::{ChildId, DownReason, Event, PeerFault, Role, StateFault, TrafficSelector};
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
    /// Child SA that the peer has created meanwhile, and that may be the requested one.
    #[cfg(feature = "records")]
    pub(super) crossing: Option<crossing::CrossingChild>,
    /// The additional key exchanges, once CREATE_CHILD_SA is complete.
    #[cfg(feature = "multiple-kex")]
    pub(super) series: Option<Box<super::kex_series::ChildSeries>>,
    /// Unknown SPIs that the peer deleted while the response is outstanding. One of them may be the SPI of
    /// this Child SA.
    deleted: Vec<ChildSpi>,
}

/// A Child SA that the peer has requested, and the response that completes it.
pub(super) struct RespondedChild<'a> {
    pub(super) config: &'a Arc<ChildConfig>,
    pub(super) agreed: AgreedChild,
    pub(super) nonces: Nonces<'a>,
    pub(super) secrets: &'a [SecretBytes],
    /// Child SA that it replaces.
    pub(super) replaces: Option<ChildId>,
    pub(super) exchange: ExchangeType,
    pub(super) write: Build<'a>,
}

/// Maximum number of SPIs that are remembered as deleted during one exchange. A correct peer deletes one:
/// that of the new Child SA.
const MAX_DELETED: usize = 8;

/// Result of the peer's simultaneous rekeying of the same Child SA.
pub(super) struct SimultaneousChildRekey {
    /// The Child SA; `None` while additional key exchanges are awaited.
    pub(super) id: Option<ChildId>,
    /// The lower of the two nonces of the peer's exchange.
    pub(super) lowest_nonce: Vec<u8>,
}

impl PendingChild {
    /// Child SA that the peer's simultaneous exchange made.
    pub(super) fn peer_child(&self) -> Option<ChildId> {
        self.simultaneous.as_ref().and_then(|other| other.id)
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
        self.installed(child).next().is_some()
            || self.requested_children().any(|config| config.name == child.name)
    }

    /// Child SAs of a configuration that exist and have not been replaced.
    fn installed(&self, child: &ChildConfig) -> impl Iterator<Item = &ChildSa> {
        self.children().iter().filter(|known| known.is_installed() && known.config.name == child.name)
    }

    /// Whether there is a Child SA such as the requested one.
    fn is_installed(&self, request: &ChildRequest) -> bool {
        let is_within = |agreed: &[TrafficSelector], one| agreed.iter().any(|agreed| agreed.contains(one));
        let carries = |AgreedChild { local, remote, .. }: &AgreedChild| {
            let packet = request.packet.as_ref();
            packet.is_none_or(|packet| is_within(local, &packet.src) && is_within(remote, &packet.dst))
        };
        self.installed(&request.config).any(|known| carries(&known.agreed))
    }

    /// Sends a request for a Child SA.
    pub(super) fn request_child(
        &mut self,
        common: &SaCommon,
        child_request: ChildRequest,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        #[cfg(feature = "records")]
        if let Some(old) = self.replaced_by_peer(&child_request) {
            self.tasks.push_front(Task::DeleteChild(old, DownReason::Replaced));
            return Ok(None);
        }
        let replaced = child_request.replaces.map(|old| old.id);
        let is_live = |id| self.children().iter().any(|child| child.id == id && child.is_installed());
        if replaced.is_some_and(|id| !is_live(id))
            || (child_request.is_for_one() && self.is_installed(&child_request))
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
            #[cfg(feature = "records")]
            crossing: None,
            #[cfg(feature = "multiple-kex")]
            series: None,
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
        let installed = all.iter().filter(|child| child.is_installed()).count();
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
            Stage::Installed if child.is_stopped => Err(StateFault::Busy),
            // RFC 9370 section 2.2.4: our own exchange has been completed, and its key exchanges go on.
            #[cfg(feature = "multiple-kex")]
            Stage::Installed if self.is_rekeyed_by_series(child.id) => Err(StateFault::Busy),
            // The two Child SAs could not be compared, because the nonces of our request are lost.
            #[cfg(feature = "records")]
            Stage::Installed if self.is_rekeyed_by_lost_exchange(child) => Err(StateFault::Busy),
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

    /// Whether a series of ours replaces this Child SA.
    #[cfg(feature = "multiple-kex")]
    fn is_rekeyed_by_series(&self, id: ChildId) -> bool {
        let Some(Pending::Child(pending)) = &self.pending else { return false };
        pending.series.is_some() && pending.negotiation.request.replaces.is_some_and(|old| old.id == id)
    }

    /// Sends the response, and installs the Child SA unless additional key exchanges follow.
    fn respond_with_child(
        &mut self,
        common: &SaCommon,
        response: ChildResponse,
        nonce_i: &[u8],
        replaces: Option<ChildId>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let nonce_r = step.nonce();
        #[cfg(feature = "multiple-kex")]
        if !response.agreed.suite.additional.is_empty() {
            let nonces = super::awaited_series::OwnedNonces { initiator: nonce_i.into(), responder: nonce_r };
            return self.await_child_series(common, response, nonces, replaces, step);
        }
        let made = RespondedChild {
            config: &response.config,
            agreed: response.agreed.clone(),
            nonces: Nonces { initiator: nonce_i, responder: &nonce_r },
            secrets: &response.secrets(),
            replaces,
            exchange: ExchangeType::CREATE_CHILD_SA,
            write: &|out| response.write(Some(&nonce_r), out),
        };
        self.add_responded_child(common, made, step).map(drop)
    }

    /// Installs a Child SA that the peer has requested, and sends the last response.
    pub(super) fn add_responded_child(
        &mut self,
        common: &SaCommon,
        made: RespondedChild<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<ChildId, StateFault> {
        let RespondedChild { config, agreed, nonces, secrets, replaces, exchange, write } = made;
        let spi = agreed.spi_in;
        // The SAs are installed before the response is sent, so that a failure can still be reported to the
        // peer.
        // RFC 7296 section 2.8: the initiator may not yet be able to receive on the SA that replaces another.
        let new = NewChild { config, agreed, replaces, active: replaces.is_none(), restored: None };
        let made = self.install(common, new, nonces, secrets, Role::Responder, step);
        let child = made.inspect_err(|_| step.host.release_spi(spi))?;
        let id = child.id;
        self.add_child(common, child);
        if self.channel.send_response(common, exchange, step, write).is_err() {
            self.remove_child(id, EndCause::local(DownReason::Fault(StateFault::Provider.into())), step);
            return Err(StateFault::Provider);
        }
        let Some(old) = replaces else {
            #[cfg(feature = "records")]
            self.note_crossing(id, config, nonces);
            return Ok(id);
        };
        if let Some(old) = self.child(old) {
            old.mark_replaced(step.context.now.after(REPLACED_LIFETIME));
        }
        self.note_simultaneous_child(old, Some(id), nonces.initiator.min(nonces.responder).into());
        Ok(id)
    }

    /// Notes that the peer replaces a Child SA, if our outstanding request does so, too.
    pub(super) fn note_simultaneous_child(
        &mut self,
        old: ChildId,
        id: Option<ChildId>,
        lowest_nonce: Vec<u8>,
    ) {
        if let Some(Pending::Child(pending)) = &mut self.pending
            && pending.negotiation.request.replaces.is_some_and(|ours| ours.id == old)
        {
            pending.simultaneous = Some(SimultaneousChildRekey { id, lowest_nonce });
        }
    }

    pub(super) fn install(
        &self,
        common: &SaCommon,
        new: NewChild<'_>,
        nonces: Nonces<'_>,
        secrets: &[SecretBytes],
        role: Role,
        step: &mut Step<'_, '_>,
    ) -> Result<ChildSa, StateFault> {
        let (prf, d) = (self.channel.suite.prf, &self.channel.sk_d);
        let source = KeymatSource { prf, sk_d: d, nonces, secrets, role };
        let owner = ChildOwner::new(common, self.origin, self.contents.nat);
        #[cfg(feature = "mobike")]
        let owner = owner.until_check(self.mobike());
        install(new, &source, &owner, step)
    }
}
