//! Where packets arrive: from packet sockets and UDP ports through the data path into the TUN interface.

use super::batch::Batch;
use super::common::{Common, Locked};
use super::door::Ticket;
use crate::BATCH;
use crate::ike::letter;
use crate::receive::Arrival;
use arrayvec::ArrayVec;
use casemate::path::{Arrivals, Cut, Opened};
use casemate_datapath::{DropReason, Inbound, RUN, Via};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use std::iter::repeat_n;
use std::slice;

/// Finds the SAs of the packets of a batch and opens them. Once the SAs are found, `pass_on` is called: the next batch may be read. Answers the
/// right to have them delivered.
pub(super) fn take<'c>(
    common: &'c Common,
    batch: &mut Batch,
    pass_on: impl FnOnce(),
) -> Ticket<'c, Entry, Box<Batch>> {
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
    arrivals: Arrivals,
    opened: Opened,
}

impl Entry {
    pub(super) fn new(arrivals: Arrivals, opened: Opened) -> Self {
        Self { arrivals, opened }
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
            let widest_link = datapath.widest_link();
            drop(home);
            self.obey(packets, &verdicts, (common, widest_link), *now);
        });
    }

    fn obey(
        &mut self,
        packets: &[Packet<'_>],
        verdicts: &[Inbound],
        (common, widest_link): (&Common, usize),
        now: Instant,
    ) {
        let mut queue = ArrayVec::<_, BATCH>::new();
        for (packet, verdict) in packets.iter().zip(verdicts) {
            let packet = packet.data();
            match *verdict {
                // Clear text, without an SA, has reached the host without us.
                Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
                Inbound::Deliver(_) => {
                    let cut = self.opened.cut_long(packet, widest_link, &mut Locked(common));
                    let Some(cut) = cut else {
                        queue.push(packet);
                        continue;
                    };
                    flush(&mut queue, common, now);
                    deliver_cut(packet, cut, common, now);
                }
                Inbound::Reassemble => {
                    flush(&mut queue, common, now);
                    self.reassemble(packet, common, now);
                }
                Inbound::ReassembleOpened(via) => {
                    flush(&mut queue, common, now);
                    reassemble_opened(&mut self.opened, via, packet, common, now);
                }
                Inbound::Ike(at) => common.notes.letters(letter(packet, at.into()).into_iter()),
                // Counted already.
                Inbound::Drop(_) | Inbound::Consumed(_) => {}
            }
        }
        flush(&mut queue, common, now);
    }

    /// Takes a fragment from the network, and opens the packet that is whole with it.
    fn reassemble(&mut self, fragment: &[u8], common: &Common, now: Instant) {
        let Self { arrivals, opened } = self;
        let Some(mut packet) = arrivals.join(now, fragment, &mut Locked(common)).whole() else { return };
        // A fragment may hide what it is a fragment of, so the whole is sorted once more.
        if Arrival::of(packet.data(), &common.ours()) != Arrival::Protected {
            return;
        }
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let (packets, verdicts) = (slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
        let mut home = common.home();
        let datapath = home.endpoint.datapath_mut();
        datapath.inbound(now, packets, verdicts);
        let widest_link = datapath.widest_link();
        drop(home);
        match verdict {
            Inbound::ReassembleOpened(via) => reassemble_opened(opened, via, packet.data(), common, now),
            verdict => {
                let cut = opened.cut_long(packet.data(), widest_link, &mut Locked(common));
                deliver(&packet, (verdict, cut), common, now);
            }
        }
    }

    /// Drops datagrams whose fragments did not come in time.
    pub(super) fn expire(&mut self, now: Instant, common: &Common) {
        self.arrivals.expire(now, &mut Locked(common));
        self.opened.expire(now, &mut Locked(common));
    }
}

/// Delivers the packets that wait, before anything that came after them.
#[inline]
fn flush(queue: &mut ArrayVec<&[u8], BATCH>, common: &Common, now: Instant) {
    if !queue.is_empty() {
        let lost = |packet: &[u8]| common.note_drop(now, DropReason::SendFailed, packet);
        common.tun.deliver_batch(queue, lost);
        queue.clear();
    }
}

/// Takes a fragment that SAs delivered, and delivers the datagram that is whole with it.
fn reassemble_opened(opened: &mut Opened, via: Via, fragment: &[u8], common: &Common, now: Instant) {
    let joined = opened.join(now, via, fragment, &mut Locked(common));
    let Some((whole, cut)) = joined.whole() else { return };
    match cut {
        Some(cut) => deliver_cut(whole.data(), cut, common, now),
        None => deliver_one(whole.data(), common, now),
    }
}

/// Delivers a packet in pieces.
#[cold]
fn deliver_cut(packet: &[u8], cut: Cut, common: &Common, now: Instant) {
    // What cannot be cut is a fragment already: the kernel sends its source an ICMP error if it is too long.
    let Ok(mut pieces) = cut.pieces(packet) else { return deliver_one(packet, common, now) };
    let mut piece = vec![0; cut.mtu];
    while let Some(len) = pieces.next(&mut piece) {
        deliver_one(piece.get(..len).unwrap_or_default(), common, now);
    }
}

fn deliver_one(packet: &[u8], common: &Common, now: Instant) {
    if common.tun.deliver(packet).is_err() {
        common.note_drop(now, DropReason::SendFailed, packet);
    }
}

fn deliver(packet: &Packet<'_>, (verdict, cut): (Inbound, Option<Cut>), common: &Common, now: Instant) {
    match verdict {
        // Clear text has reached the host without us.
        Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
        Inbound::Deliver(_) => match cut {
            Some(cut) => deliver_cut(packet.data(), cut, common, now),
            None => deliver_one(packet.data(), common, now),
        },
        // Only UDP ports bring IKE, and what they bring is whole.
        Inbound::Ike(_) => common.note_drop(now, DropReason::NoSa, packet.data()),
        // Counted already, or rightly nothing to deliver. What is whole is not asked for again.
        Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble | Inbound::ReassembleOpened(_) => {}
    }
}
