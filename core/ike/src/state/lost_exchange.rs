//! The outstanding request of a restored IKE SA: what it offered is known, its nonces and private values are
//! not (docs/decisions/0140-cells.md).
//!
//! The request is repeated until the peer responds, because the next message ID is valid only then. The
//! response shows what the peer has made. That is deleted, and another Child SA or IKE SA replaces it.

use crate::child_sa::{ChildRequest, ChildSa, ChildSpi};
use crate::context::Step;
use crate::record::{ClosedChild, PurposeFields};
use crate::state::tasks::Pending;
use crate::state::{Established, SaCommon, Task};
use crate::transport::Content;
use crate::{ChildId, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_wire::ike::{ExchangeType, NotifyType};

/// An exchange that another process or host has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LostExchange {
    /// Exchange type of the request.
    pub(super) exchange: ExchangeType,
    purpose: PurposeFields,
}

impl LostExchange {
    pub(super) const fn new(exchange: ExchangeType, purpose: PurposeFields) -> Self {
        Self { exchange, purpose }
    }

    /// Whether the peer has made what the request asked for. Before the last additional key exchange, it has
    /// made nothing (RFC 9370 section 2.2.4).
    fn has_made(self, response: &Content<'_>) -> bool {
        let is_last = response.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE).is_none();
        let is_accepted = match self.exchange {
            ExchangeType::IKE_FOLLOWUP_KE => response.ke.is_some(),
            _ => response.sa.is_some(),
        };
        is_last && is_accepted
    }

    /// What the request asked for.
    pub(super) const fn purpose(self) -> PurposeFields {
        self.purpose
    }
}

impl Established {
    /// Whether another process or host has asked to rekey this Child SA, and the peer has not responded, or
    /// this host is replacing it since.
    pub(super) fn is_rekeyed_by_lost_exchange(&self, child: &ChildSa) -> bool {
        let spi = child.agreed.spi_in.get();
        let replaces =
            |request: &ChildRequest| request.replaces.is_some_and(|old| old.id == child.id && !old.is_named);
        match &self.pending {
            Some(Pending::Lost(lost)) => {
                matches!(lost.purpose, PurposeFields::Child { replaces, .. } if replaces == Some(spi))
            }
            Some(Pending::Child(pending)) => replaces(&pending.negotiation.request),
            _ => self.tasks.iter().any(|task| matches!(task, Task::Child(request) if replaces(request))),
        }
    }

    /// Handles the response to the request of another process or host.
    pub(super) fn on_lost_response(
        &mut self,
        common: &SaCommon,
        lost: LostExchange,
        response: &Result<Content<'_>, PeerFault>,
        step: &mut Step<'_, '_>,
    ) {
        // A response that cannot be parsed may have created an SA, too.
        let has_made = response.as_ref().map_or(true, |content| lost.has_made(content));
        if has_made {
            self.replace_lost(common, lost.purpose, step);
        }
    }

    /// Replaces what the peer may have made for a request whose result is lost.
    pub(super) fn replace_lost(
        &mut self,
        common: &SaCommon,
        purpose: PurposeFields,
        step: &mut Step<'_, '_>,
    ) {
        match purpose {
            PurposeFields::Child { spi, is_ah, replaces } => {
                self.replace_lost_child(replaces);
                self.tasks.push_front(Task::DeleteSpi(ClosedChild { spi, is_ah }.into()));
            }
            // The peer may have moved the Child SAs to an IKE SA whose keys are lost. It does not rekey this
            // one again.
            PurposeFields::RekeyIke => {
                self.tasks.retain(|task| !matches!(task, Task::RekeyIke));
                self.reauthenticate(common, step);
            }
            _ => {}
        }
    }

    /// Asks for a new Child SA in place of one that the peer has replaced.
    fn replace_lost_child(&mut self, replaced: Option<u32>) {
        let is_old = |child: &&ChildSa| Some(child.agreed.spi_in.get()) == replaced;
        let Some(old) = self.children().iter().find(is_old) else { return };
        // The peer may have rekeyed the same Child SA, and close either of the new ones.
        let is_it = |child: &&ChildSa| child.id == old.id || child.replaces == Some(old.id);
        let mut candidates = self.children().iter().filter(is_it);
        let request = candidates.find(|child| child.is_installed()).map(ChildRequest::replacing_unnamed);
        if let Some(request) = request {
            self.tasks.push_front(Task::Child(Box::new(request)));
        }
    }

    /// The old Child SA, if the peer has created one of the same configuration since the exchange was lost.
    pub(super) fn replaced_by_peer(&self, request: &ChildRequest) -> Option<ChildId> {
        let old = request.replaces.filter(|old| !old.is_named)?.id;
        let is_newer = |child: &ChildSa| child.id > old && Arc::ptr_eq(&child.config, &request.config);
        let mut children = self.children().iter();
        children.any(|child| child.is_installed() && is_newer(child)).then_some(old)
    }

    /// Deletes an SA that the peer has and this host has not.
    pub(super) fn request_spi_delete(
        &mut self,
        common: &SaCommon,
        spi: ChildSpi,
        step: &mut Step<'_, '_>,
    ) -> Result<(), StateFault> {
        let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| {
            super::informational::write_deletes(&[spi], out)
        });
        sent.map_err(|_| StateFault::Provider)
    }
}
