//! INFORMATIONAL exchanges: deletion of SAs and liveness checks (RFC 7296 sections 1.4, 2.4 and 2.25.1).

use super::established::Phase;
use super::retry::EndCause;
use super::tasks::Pending;
use crate::child_sa::{ChildSa, ChildSpi, Stage};
use crate::context::Step;
use crate::crash_token::PeerToken;
use crate::state::{Established, IncomingMessage, SaCommon, Task};
use crate::transport::Content;
use crate::{ChildId, DownReason, Event, PeerFault, StateFault};
use alloc::vec::Vec;
use casemate_wire::ike::{Delete, ExchangeType, NotifyType, ProtocolId, WriteError, Writer};

impl Established {
    /// Sends a Delete payload for a Child SA.
    pub(super) fn request_child_delete(
        &mut self,
        common: &SaCommon,
        id: ChildId,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let Some(child) = self.child(id) else { return Ok(None) };
        child.stage = Stage::Closing;
        let closing = [child.agreed.inbound_spi()];
        if !child.is_stopped {
            step.event(Event::ChildClosing(id));
        }
        let sent = self
            .channel
            .send_request(common, ExchangeType::INFORMATIONAL, step, &|out| write_deletes(&closing, out));
        sent.map(|()| Some(Pending::DeleteChild { id, reason })).map_err(|_| StateFault::Provider)
    }

    /// Sends a Delete payload for the IKE SA.
    pub(super) fn request_ike_delete(
        &mut self,
        common: &SaCommon,
        reason: DownReason,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        self.phase = Phase::Closing;
        self.tasks.clear();
        self.children_in_use().into_iter().for_each(|id| step.event(Event::ChildClosing(id)));
        let sent = self
            .channel
            .send_request(common, ExchangeType::INFORMATIONAL, step, &|out| out.delete(&Delete::IKE_SA));
        sent.map(|()| Some(Pending::DeleteIke(reason))).map_err(|_| StateFault::Provider)
    }

    /// Responds to a request. Returns the reason if the IKE SA has ended.
    pub(super) fn on_informational(
        &mut self,
        common: &mut SaCommon,
        request: &IncomingMessage<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<DownReason>, PeerFault> {
        let content = &request.content;
        let deletes_ike = content.deletes.iter().any(|delete| delete.protocol() == ProtocolId::IKE);
        let failed = content.has_notify(NotifyType::AUTHENTICATION_FAILED);
        if deletes_ike || failed {
            // The peer has chosen its own successor. Our request for another one will never be answered.
            if let Some(peer_successor) = self.peer_successor() {
                self.hand_over_to(peer_successor, common, step);
            }
            let sent = self.channel.send_response(common, ExchangeType::INFORMATIONAL, step, &|_| Ok(()));
            sent.map_err(|_| StateFault::Provider)?;
            let refused = DownReason::Refused(NotifyType::AUTHENTICATION_FAILED);
            return Ok(Some(match (self.phase, failed) {
                (Phase::Open, true) => refused,
                // Another IKE SA has replaced this one, or this host was closing it.
                (Phase::Replaced, _) => DownReason::Replaced,
                (Phase::Open | Phase::Closing, _) => self.closing_reason().unwrap_or(DownReason::Peer),
            }));
        }
        if let Some(token) = PeerToken::from_message(content) {
            self.channel.peer_token = Some(token);
        }
        #[cfg(feature = "eap")]
        self.limit_authentication(content, step);
        #[cfg(feature = "mobike")]
        let answer = self.answer_mobike(common, content, request.path, step)?;
        #[cfg(feature = "resumption")]
        let ticket = self.answer_ticket_request(common, content, step);
        #[cfg(feature = "records")]
        let skip = self.requested_skip(content)?;
        let deleted = self.deleted_children(content);
        self.note_unknown_deletes(content);
        // RFC 7296 section 2.25.1: the response does not name the Child SAs that this host is closing.
        let named = deleted.iter().filter(|child| child.stage != Stage::Closing);
        let spis: Vec<_> = named.map(|child| child.inbound_spi).collect();
        let sent = self.channel.send_response(common, ExchangeType::INFORMATIONAL, step, &|out| {
            #[cfg(feature = "mobike")]
            answer.write(out)?;
            #[cfg(feature = "resumption")]
            ticket.write(out)?;
            write_deletes(&spis, out)
        });
        sent.map_err(|_| StateFault::Provider)?;
        #[cfg(feature = "records")]
        skip.into_iter().for_each(|count| self.skip_numbers(common, count, step));
        #[cfg(feature = "redirect")]
        self.on_redirect(common, content, step);
        #[cfg(feature = "mobike")]
        self.apply_mobike(common, answer, request.path, step);
        for DeletedChild { id, stage, .. } in deleted {
            // The peer may know before this host which of two simultaneous exchanges made the redundant Child
            // SA.
            let is_simultaneous =
                matches!(&self.pending, Some(Pending::Child(ours)) if ours.peer_child() == Some(id));
            let reason = match stage {
                Stage::Installed if !is_simultaneous => DownReason::Peer,
                Stage::Closing => self.child_closing_reason(id).unwrap_or(DownReason::Replaced),
                Stage::Installed | Stage::Replaced => DownReason::Replaced,
            };
            self.remove_child(id, EndCause::by_peer(reason), step);
        }
        Ok(None)
    }

    /// Reason for which this host is closing the IKE SA, if it is.
    pub(super) fn closing_reason(&self) -> Option<DownReason> {
        let queued = self.tasks.iter().find_map(|task| match task {
            Task::DeleteIke(reason) => Some(*reason),
            _ => None,
        });
        match self.pending {
            Some(Pending::DeleteIke(reason)) => Some(reason),
            _ => queued,
        }
    }

    /// Reason for which this host is closing a Child SA, if it is.
    fn child_closing_reason(&self, child: ChildId) -> Option<DownReason> {
        match self.pending {
            Some(Pending::DeleteChild { id, reason }) if id == child => Some(reason),
            _ => None,
        }
    }

    /// Remembers deleted SPIs that are unknown here, because one of them may belong to the Child SA that is
    /// being created.
    fn note_unknown_deletes(&mut self, content: &Content<'_>) {
        let Self { contents, pending: Some(Pending::Child(pending)), .. } = self else { return };
        for delete in &content.deletes {
            for spi in spis(delete) {
                let is_known = |child: &ChildSa| child.agreed.outbound_spi() == spi;
                if !contents.children.iter().any(is_known) {
                    pending.note_deleted(spi);
                }
            }
        }
    }

    /// Child SAs that a message deletes, each once. Skips unknown ones: they may have been removed before.
    fn deleted_children(&self, content: &Content<'_>) -> Vec<DeletedChild> {
        let mut deleted: Vec<DeletedChild> = Vec::new();
        for spi in content.deletes.iter().flat_map(spis) {
            let is_it = |child: &&ChildSa| child.agreed.outbound_spi() == spi;
            let Some(child) = self.children().iter().find(is_it) else { continue };
            if !deleted.iter().any(|known| known.id == child.id) {
                let inbound_spi = child.agreed.inbound_spi();
                deleted.push(DeletedChild { id: child.id, stage: child.stage, inbound_spi });
            }
        }
        deleted
    }
}

/// A Child SA that the peer deletes.
struct DeletedChild {
    id: ChildId,
    /// Stage before the deletion.
    stage: Stage,
    inbound_spi: ChildSpi,
}

/// SPIs of Child SAs in a Delete payload.
fn spis<'a>(delete: &'a Delete<'_>) -> impl Iterator<Item = ChildSpi> + use<'a> {
    let protocol = delete.protocol();
    delete.spis().filter_map(move |spi| ChildSpi::from_payload(protocol, spi))
}

/// Writes one Delete payload for each protocol.
pub(super) fn write_deletes(spis: &[ChildSpi], out: &mut Writer<'_>) -> Result<(), WriteError> {
    for protocol in [ProtocolId::ESP, ProtocolId::AH] {
        let own = spis.iter().filter(|spi| spi.protocol == protocol).map(|spi| spi.spi);
        let own: Vec<[u8; 4]> = own.collect();
        if own.is_empty() {
            continue;
        }
        let delete = Delete::children(protocol, &own).ok_or(WriteError::TooLong)?;
        out.delete(&delete)?;
    }
    Ok(())
}
