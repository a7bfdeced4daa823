//! Where packets arrive: from packet sockets and UDP ports through the data path into the TUN interface.

use super::batch::Batch;
use super::common::Common;
use super::door::Ticket;
use crate::BATCH;
use crate::ike::letter;
use crate::offload;
use crate::receive::Arrival;
use arrayvec::ArrayVec;
use casemate_datapath::reassembly::{Reassembler, Reassembly};
use casemate_datapath::{DropReason, Inbound, RUN};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use std::iter::repeat_n;
use std::slice;

/// Finds the SAs of the packets of a batch and opens them. Once the SAs are found, `pass_on` is called: the next batch may be read. Answers the
/// right to have them delivered.
pub(super) fn take(common: &Common, batch: &mut Batch, pass_on: impl FnOnce()) -> Ticket {
    let Batch { buffers, now, opening, .. } = batch;
    buffers.with_packets(|packets| {
        let mut home = common.home();
        for (packets, opening) in packets.chunks_mut(RUN).zip(&mut *opening) {
            home.endpoint.datapath_mut().begin_inbound(*now, packets, opening);
        }
        let ticket = common.entry.ticket();
        drop(home);
        pass_on();
        packets.chunks_mut(RUN).zip(opening).for_each(|(packets, opening)| opening.open(packets));
        ticket
    })
}

/// Obeys verdicts.
pub(super) struct Entry {
    reassembler: Reassembler,
}

impl Entry {
    pub(super) fn new(reassembler: Reassembler) -> Self {
        Self { reassembler }
    }

    /// Has the data path judge the packets of a batch that [`take`] has opened, and delivers them.
    pub(super) fn conclude(&mut self, batch: &mut Batch, common: &Common) {
        let Batch { buffers, now, opening, .. } = batch;
        buffers.with_packets(|packets| {
            let mut verdicts = ArrayVec::<_, BATCH>::new();
            verdicts.extend(repeat_n(Inbound::Drop(DropReason::MalformedHeader), packets.len()));
            let mut home = common.home();
            let datapath = home.endpoint.datapath_mut();
            let runs = packets.chunks_mut(RUN).zip(verdicts.chunks_mut(RUN));
            for ((packets, verdicts), opening) in runs.zip(opening) {
                datapath.finish_inbound(*now, packets, opening, verdicts);
            }
            drop(home);
            self.obey(packets, &verdicts, common, *now);
        });
    }

    fn obey(&mut self, packets: &[Packet<'_>], verdicts: &[Inbound], common: &Common, now: Instant) {
        let mut to_deliver = ArrayVec::<_, BATCH>::new();
        // Clear text, without an SA, has reached the host without us.
        let is_ours =
            |verdict: &Inbound| matches!(verdict, Inbound::Deliver(admitted) if admitted.sa.is_some());
        let delivered = packets.iter().zip(verdicts).filter(|(_, verdict)| is_ours(verdict));
        to_deliver.extend(delivered.map(|(packet, _)| packet.data()));
        offload::join(&to_deliver, |run| {
            if common.tun.deliver_run(run).is_err() {
                run.packets().for_each(|packet| common.note_drop(now, DropReason::SendFailed, packet));
            }
        });
        for (packet, verdict) in packets.iter().zip(verdicts) {
            match *verdict {
                Inbound::Reassemble => self.reassemble(packet.data(), common, now),
                Inbound::Ike(at) => common.notes.letters(letter(packet.data(), at.into()).into_iter()),
                // Handed over, or counted already.
                Inbound::Deliver(_) | Inbound::Drop(_) | Inbound::Consumed(_) => {}
            }
        }
    }

    /// RFC 4303 section 3.4.1: reassembly comes before opening.
    fn reassemble(&mut self, fragment: &[u8], common: &Common, now: Instant) {
        match self.reassembler.push(now, fragment) {
            Reassembly::Held => {}
            Reassembly::Dropped(error) => common.note_drop(now, error.drop_reason(), fragment),
            // A fragment may hide what it is a fragment of, so the whole is sorted once more.
            Reassembly::Whole(mut packet) => {
                if Arrival::of(packet.data(), &common.ours()) == Arrival::Protected {
                    let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
                    let (packets, verdicts) = (slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
                    common.home().endpoint.datapath_mut().inbound(now, packets, verdicts);
                    deliver(&packet, verdict, common, now);
                }
            }
        }
    }

    /// Gives up datagrams whose fragments did not come in time; answers how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        self.reassembler.expire(now)
    }
}

fn deliver(packet: &Packet<'_>, verdict: Inbound, common: &Common, now: Instant) {
    match verdict {
        // Clear text has reached the host without us.
        Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
        Inbound::Deliver(_) => {
            if common.tun.deliver(packet.data()).is_err() {
                common.note_drop(now, DropReason::SendFailed, packet.data());
            }
        }
        // Only UDP ports bring IKE, and what they bring is whole.
        Inbound::Ike(_) => common.note_drop(now, DropReason::NoSa, packet.data()),
        // Counted already, or rightly nothing to deliver. What is whole is not asked for again.
        Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble => {}
    }
}
