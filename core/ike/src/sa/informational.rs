//! INFORMATIONAL: the end of SAs, and signs of life (RFC 7296 sections 1.4, 2.4 and 2.25.1).

use super::again::End;
use super::established::Phase;
use super::tasks::Pending;
use super::{Cx, Established, Head, Task};
use crate::child::{ChildSa, Stage, protocol_id};
use crate::message::Content;
use crate::{ChildId, Down, Event, PeerFault, StateFault};
use alloc::vec::Vec;
use casemate_sa::Protocol;
use casemate_wire::ike::{Delete, ExchangeType, NotifyType, ProtocolId, WriteError, Writer};

impl Established {
    /// Asks for the end of a Child SA.
    pub(super) fn request_delete(
        &mut self,
        head: &Head,
        (id, why): (ChildId, Down),
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let Some(child) = self.child(id) else { return Ok(None) };
        child.stage = Stage::Closing;
        let closing = [inbound(child)];
        cx.event(Event::ChildClosing(id));
        let sent =
            self.link.request(head, ExchangeType::INFORMATIONAL, cx, &|out| write_deletes(&closing, out));
        sent.map(|()| Some(Pending::DeleteChildren([(id, why)].into()))).map_err(|_| StateFault::Provider)
    }

    /// Asks for the end of the IKE SA.
    pub(super) fn request_end(
        &mut self,
        head: &Head,
        why: Down,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        self.phase = Phase::Closing;
        self.tasks.clear();
        self.children().iter().for_each(|child| cx.event(Event::ChildClosing(child.id)));
        let sent =
            self.link.request(head, ExchangeType::INFORMATIONAL, cx, &|out| out.delete(&Delete::IKE_SA));
        sent.map(|()| Some(Pending::DeleteIke(why))).map_err(|_| StateFault::Provider)
    }

    /// Answers a request; says why the IKE SA is over, if it is.
    pub(super) fn on_informational(
        &mut self,
        head: &Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Option<Down>, PeerFault> {
        let ends = content.deletes.iter().any(|delete| delete.protocol() == ProtocolId::IKE);
        let failed = content.says(NotifyType::AUTHENTICATION_FAILED);
        if ends || failed {
            // The peer's own successor stands, and our request for another will never be answered.
            if let Some(rival) = self.rival() {
                self.leave_to(rival, head, cx);
            }
            let sent = self.link.answer(head, ExchangeType::INFORMATIONAL, cx, &|_| Ok(()));
            sent.map_err(|_| StateFault::Provider)?;
            let refused = Down::Refused(NotifyType::AUTHENTICATION_FAILED);
            return Ok(Some(match (self.phase, failed) {
                (Phase::Open, true) => refused,
                // Another one has its place, or we were closing it ourselves.
                (Phase::Replaced, _) => Down::Replaced,
                (Phase::Open | Phase::Closing, _) => self.closing_why().unwrap_or(Down::Peer),
            }));
        }
        let named = self.named_by(content);
        self.note_unknown(content);
        // RFC 7296 section 2.25.1: what we are closing ourselves is not named in the answer.
        let answered: Vec<_> = named.iter().filter(|(_, stage, _)| *stage != Stage::Closing).collect();
        let spis: Vec<_> = answered.iter().map(|(.., inbound)| *inbound).collect();
        let sent = self.link.answer(head, ExchangeType::INFORMATIONAL, cx, &|out| write_deletes(&spis, out));
        sent.map_err(|_| StateFault::Provider)?;
        for (id, stage, _) in named {
            // The peer may see before us which of two exchanges that met made one too many.
            let is_rival = matches!(&self.pending, Some(Pending::Child(ours)) if ours.rival() == Some(id));
            let why = match stage {
                Stage::Live if !is_rival => Down::Peer,
                Stage::Closing => self.closing_why_of(id).unwrap_or(Down::Replaced),
                Stage::Live | Stage::Replaced => Down::Replaced,
            };
            self.remove_child(id, End::by_peer(why), cx);
        }
        Ok(None)
    }

    /// Why we are closing it, if we are.
    pub(super) fn closing_why(&self) -> Option<Down> {
        let queued = self.tasks.iter().find_map(|task| match task {
            Task::DeleteIke(why) => Some(*why),
            _ => None,
        });
        match self.pending {
            Some(Pending::DeleteIke(why)) => Some(why),
            _ => queued,
        }
    }

    /// Why we are closing this Child SA, if we are.
    fn closing_why_of(&self, child: ChildId) -> Option<Down> {
        let Some(Pending::DeleteChildren(closing)) = &self.pending else { return None };
        closing.iter().find(|(id, _)| *id == child).map(|(_, why)| *why)
    }

    /// Remembers deleted SPIs that are not known here, if one of them may be the SPI of a Child SA that is being created.
    fn note_unknown(&mut self, content: &Content<'_>) {
        let Self { parentage, pending: Some(Pending::Child(pending)), .. } = self else { return };
        for delete in &content.deletes {
            for spi in delete.spis().filter_map(|spi| spi.first_chunk::<4>()) {
                let is_known = |child: &ChildSa| {
                    protocol_id(child.agreed.suite.protocol()) == delete.protocol()
                        && child.agreed.spi_out.get().to_be_bytes() == *spi
                };
                if !parentage.children.iter().any(is_known) {
                    pending.note_deleted(delete.protocol(), *spi);
                }
            }
        }
    }

    /// The Child SAs that a message deletes, each once. Unknown ones are passed over: they may have gone before.
    fn named_by(&self, content: &Content<'_>) -> Vec<(ChildId, Stage, (Protocol, [u8; 4]))> {
        let mut named: Vec<(ChildId, Stage, _)> = Vec::new();
        for delete in &content.deletes {
            for spi in delete.spis() {
                let is_it = |child: &&ChildSa| {
                    protocol_id(child.agreed.suite.protocol()) == delete.protocol()
                        && child.agreed.spi_out.get().to_be_bytes() == spi
                };
                let Some(child) = self.children().iter().find(is_it) else { continue };
                if !named.iter().any(|(id, ..)| *id == child.id) {
                    named.push((child.id, child.stage, inbound(child)));
                }
            }
        }
        named
    }
}

/// Protocol and SPI of our inbound SA.
fn inbound(child: &ChildSa) -> (Protocol, [u8; 4]) {
    (child.agreed.suite.protocol(), child.agreed.spi_in.get().to_be_bytes())
}

/// One Delete payload for each protocol.
fn write_deletes(spis: &[(Protocol, [u8; 4])], out: &mut Writer<'_>) -> Result<(), WriteError> {
    for protocol in [Protocol::Esp, Protocol::Ah] {
        let own = spis.iter().filter(|(of, _)| *of == protocol).map(|(_, spi)| *spi);
        let own: Vec<[u8; 4]> = own.collect();
        if own.is_empty() {
            continue;
        }
        let delete = Delete::children(protocol_id(protocol), &own).ok_or(WriteError::TooLong)?;
        out.delete(&delete)?;
    }
    Ok(())
}
