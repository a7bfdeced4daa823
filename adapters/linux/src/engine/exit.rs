//! Where packets leave: the verdicts on a batch from the TUN interface are obeyed here.

use super::batch::Batch;
use super::common::{Common, Locked};
use super::door::Ticket;
use super::home::Home;
use super::set_ident_if_zero;
use crate::netlink::Netlink;
use crate::raw::{Sender, is_full};
use crate::train::{Train, Trains};
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate::path::{Cut, Leaving, OutboundPath};
use casemate_datapath::fragment::is_cut_by_routers;
use casemate_datapath::{DropReason, HEAD_ROOM, Outbound, RUN, SaId, Sealed};
use casemate_sa::Instant;
use casemate_wire::ip::{destination, proto};
use casemate_wire::packet::Packet;
use std::io;
use std::iter::repeat_n;
use std::net::IpAddr;
use std::sync::Arc;

/// Room for a batch of fragments on most links, and for a few on those with huge packets.
const SCRATCH: usize = 256 << 10;

/// Reserves numbers for the packets of a batch and seals them. Once they have their numbers, `pass_on` is called: the next batch may be read.
/// Answers the right to have them sent.
pub(super) fn take<'c>(
    common: &'c Common,
    batch: &mut Batch,
    pass_on: impl FnOnce(),
) -> Ticket<'c, Exit, Box<Batch>> {
    let Batch { buffers, now, sealing, .. } = batch;
    buffers.with_packets(|packets| {
        common.idents.prepare(packets);
        let mut home = common.home();
        let Home { endpoint, rng, .. } = &mut *home;
        for (packets, sealing) in packets.chunks_mut(RUN).zip(&mut *sealing) {
            endpoint.datapath_mut().begin_outbound(*now, rng, packets, sealing);
        }
        let ticket = common.exit.ticket();
        drop(home);
        pass_on();
        packets.chunks_mut(RUN).zip(sealing).for_each(|(packets, sealing)| sealing.seal(packets));
        ticket
    })
}

/// Obeys verdicts.
pub(super) struct Exit {
    path: OutboundPath,
    sending: Sending,
}

/// Sends packets, in fragments where the data path says so.
struct Sending {
    sender: Arc<Sender>,
    trains: Trains,
    scratch: Box<[u8]>,
    netlink: Netlink,
    mark: u32,
}

/// What a sent packet needs to be known for when it does not go.
type Outgoing<'p> = (&'p [u8], IpAddr, Option<SaId>);

impl Exit {
    pub(super) fn new(
        sender: Arc<Sender>,
        (mark, ports): (u32, &[UdpPort]),
        path: OutboundPath,
    ) -> Result<Self, Error> {
        let sending = Sending {
            sender,
            trains: Trains::new(ports)?,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            netlink: Netlink::open()?,
            mark,
        };
        Ok(Self { path, sending })
    }

    /// Has the data path judge the packets of a batch that [`take`] has sealed, and sends them.
    pub(super) fn conclude(&mut self, batch: &mut Batch, common: &Common) {
        let Batch { buffers, now, sealing, .. } = batch;
        buffers.with_packets(|packets| {
            // As many as there are packets: in a cache that has gone cold, what is written costs more than what is computed.
            let mut verdicts = ArrayVec::<_, BATCH>::new();
            verdicts.extend(repeat_n(Outbound::Drop(DropReason::CryptoFailed), packets.len()));
            let mut home = common.home();
            let datapath = home.endpoint.datapath_mut();
            let runs = packets.chunks(RUN).zip(verdicts.chunks_mut(RUN));
            for ((packets, verdicts), sealing) in runs.zip(sealing) {
                datapath.finish_outbound(*now, packets, sealing, verdicts);
            }
            drop(home);
            self.obey(packets, &verdicts, common, *now);
        });
    }

    /// Obeys the verdicts on a batch.
    pub(super) fn obey(
        &mut self,
        packets: &mut [Packet<'_>],
        verdicts: &[Outbound],
        common: &Common,
        now: Instant,
    ) {
        let Self { path, sending } = self;
        let mut sealed = 0u64;
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            if let Outbound::Send(_) = verdict {
                sealed = sealed.saturating_add(1);
                finish(packet, common);
            }
        }
        common.notes.sealed(sealed);
        let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            match *verdict {
                Outbound::Send(Sealed { sa, fragment_to: None, .. }) => {
                    push(&mut queue, packet.data(), Some(sa));
                }
                Outbound::Bypass => push(&mut queue, packet.data(), None),
                Outbound::Reassemble => {
                    sending.flush(&mut queue, common, now);
                    if let Some((mut whole, leaving)) =
                        path.reassemble(now, packet.data(), &mut Locked(common))
                    {
                        sending.send_whole(&mut whole, leaving, common, now);
                    }
                }
                other => {
                    sending.flush(&mut queue, common, now);
                    sending.obey_one(packet, other, common, now);
                }
            }
        }
        sending.flush(&mut queue, common, now);
    }

    /// Drops datagrams whose fragments did not come in time.
    pub(super) fn expire(&mut self, now: Instant, common: &Common) {
        self.path.expire(now, &mut Locked(common));
    }
}

/// The last touch to a sealed packet. ESP does not cover the outer header, so its identification can still be chosen,
/// and all fragments of the packet must have the same.
fn finish(packet: &mut Packet<'_>, common: &Common) {
    if packet.data().get(9) != Some(&proto::AH) {
        set_ident_if_zero(packet, common.idents.next_v4());
    }
}

impl Sending {
    /// Sends a datagram that came in fragments.
    fn send_whole(&mut self, whole: &mut Packet<'_>, leaving: Leaving, common: &Common, now: Instant) {
        match leaving {
            Leaving::Send { sa, cut } => {
                if sa.is_some() {
                    common.notes.sealed(1);
                    finish(whole, common);
                }
                match cut {
                    Some(cut) => self.send_in_fragments(whole.data(), cut, sa, common, now),
                    None => self.send_one(whole.data(), sa, common, now),
                }
            }
            Leaving::Reply => self.reply(whole.data(), common, now),
            Leaving::Dropped(DropReason::CounterNotReserved) => common.notes.unreserved(),
            // The data path has counted it.
            Leaving::Dropped(_) => {}
        }
    }

    /// Delivers an ICMP error to a source behind us.
    fn reply(&self, packet: &[u8], common: &Common, now: Instant) {
        if common.tun.deliver(packet).is_err() {
            common.note_drop(now, DropReason::SendFailed, packet);
        }
    }

    /// Obeys a verdict that does not fit into a batch.
    fn obey_one(&mut self, packet: &mut Packet<'_>, verdict: Outbound, common: &Common, now: Instant) {
        match verdict {
            Outbound::Send(Sealed { sa, fragment_to: Some(mtu), .. }) => {
                let cut = Cut { mtu: mtu.into(), ident: common.idents.next() };
                self.send_in_fragments(packet.data(), cut, Some(sa), common, now);
            }
            Outbound::Send(Sealed { sa, .. }) => self.send_one(packet.data(), Some(sa), common, now),
            Outbound::Bypass => self.send_one(packet.data(), None, common, now),
            Outbound::Reply(_) => self.reply(packet.data(), common, now),
            Outbound::Drop(DropReason::CounterNotReserved) => common.notes.unreserved(),
            // The data path has counted it. A whole datagram is not asked for again.
            Outbound::Drop(_) | Outbound::Reassemble => {}
        }
    }

    fn flush(&mut self, queue: &mut ArrayVec<Outgoing<'_>, BATCH>, common: &Common, now: Instant) {
        let mut rest = queue.as_slice();
        while !rest.is_empty() {
            let train = |from: usize| Train::of(rest.get(from..)?.iter().map_while(protected));
            let next = (0..rest.len()).find_map(|from| Some((from, train(from)?)));
            let (alone, together) = next.map_or((rest.len(), None), |(from, train)| (from, Some(train)));
            let (now_alone, others) = rest.split_at_checked(alone).unwrap_or((rest, &[]));
            self.send_alone(now_alone, common, now);
            let count = together.as_ref().map_or(0, Train::len);
            let (now_together, others) = others.split_at_checked(count).unwrap_or((others, &[]));
            if together.is_some_and(|train| !self.goes_by_train(&train, now)) {
                // What is wrong with them is found out one by one.
                self.send_alone(now_together, common, now);
            }
            rest = others;
        }
        queue.clear();
    }

    /// Sends a train, if trains go there now; returns whether.
    fn goes_by_train(&mut self, train: &Train<'_>, now: Instant) -> bool {
        if self.sender.separates(now, train.destination()) {
            return false;
        }
        let sent = self.trains.send(train);
        if sent.as_ref().is_err_and(is_full) {
            self.sender.separate(now);
        }
        sent.is_ok()
    }

    /// Sends packets with the headers that they have.
    fn send_alone(&mut self, queue: &[Outgoing<'_>], common: &Common, now: Instant) {
        for run in queue.chunk_by(|(_, a, _), (_, b, _)| a.is_ipv4() == b.is_ipv4()) {
            let mut packets = ArrayVec::<_, BATCH>::new();
            packets.extend(run.iter().map(|(packet, dst, _)| (*packet, *dst)));
            let mut sent = 0usize;
            while let (Some(rest), Some(first)) = (packets.get(sent..), run.get(sent)) {
                match self.sender.send(now, rest) {
                    Ok(count) => sent = sent.saturating_add(count.max(1)),
                    // Nothing else goes there for now.
                    Err(error) if is_full(&error) => {
                        let same = rest.iter().take_while(|(_, dst)| *dst == first.1);
                        sent = sent.saturating_add(same.clone().count());
                        same.for_each(|(packet, _)| common.note_drop(now, DropReason::LinkFull, packet));
                    }
                    Err(error) => {
                        self.not_sent(*first, &error, common, now);
                        sent = sent.saturating_add(1);
                    }
                }
            }
        }
    }

    fn send_one(&mut self, packet: &[u8], sa: Option<SaId>, common: &Common, now: Instant) {
        let mut queue = ArrayVec::new();
        push(&mut queue, packet, sa);
        self.flush(&mut queue, common, now);
    }

    /// RFC 4303 section 3.3.4: fragments are cut after protection.
    fn send_in_fragments(
        &mut self,
        packet: &[u8],
        cut: Cut,
        sa: Option<SaId>,
        common: &Common,
        now: Instant,
    ) {
        let (Ok(mut fragments), Some(dst)) = (cut.pieces(packet), destination(packet)) else {
            return common.note_drop(now, DropReason::TooBig, packet);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        // Empty while it is in use: a fragment is cut once more.
        let is_nested = scratch.is_empty();
        if is_nested {
            scratch = vec![0; cut.mtu].into_boxed_slice();
        }
        let mut is_lost = false;
        while !fragments.is_finished() && !is_lost {
            let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
            for out in scratch.chunks_exact_mut(cut.mtu.max(1)).take(BATCH) {
                let Some(len) = fragments.next(out) else { break };
                queue.push((out.get(..len).unwrap_or_default(), dst, sa));
            }
            is_lost = queue.is_empty();
            self.flush(&mut queue, common, now);
        }
        if !is_nested {
            self.scratch = scratch;
        }
        if is_lost {
            common.note_drop(now, DropReason::TooBig, packet);
        }
    }

    /// The kernel refused a packet.
    #[cold]
    fn not_sent(
        &mut self,
        (packet, dst, sa): Outgoing<'_>,
        error: &io::Error,
        common: &Common,
        now: Instant,
    ) {
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            return self.too_long_for_link(packet, dst, sa, common, now);
        }
        common.note_drop(now, DropReason::SendFailed, packet);
        common.notes.trouble(format!("a packet to {dst} could not be sent: {error}"));
    }

    /// The link is narrower than thought. Its MTU is learnt, so that senders behind us hear of it with their next packet,
    /// and this one goes in fragments if it may. A fragment of IPv4 is cut once more; one of IPv6 is lost. In clear there is
    /// no SA that could learn it: the source of a packet that may not be cut hears of it at once.
    fn too_long_for_link(
        &mut self,
        packet: &[u8],
        dst: IpAddr,
        sa: Option<SaId>,
        common: &Common,
        now: Instant,
    ) {
        let mtu = self.netlink.link_mtu_to(dst, self.mark).ok().flatten();
        let Some(mtu) = mtu.filter(|&mtu| mtu < packet.len()) else {
            return common.note_drop(now, DropReason::TooBig, packet);
        };
        match sa {
            Some(sa) => {
                common.home().endpoint.datapath_mut().set_path_mtu(sa, mtu, now);
            }
            None if !is_cut_by_routers(packet) => return self.refuse_too_long(packet, mtu, common, now),
            None => {}
        }
        let cut = Cut { mtu, ident: common.idents.next() };
        self.send_in_fragments(packet, cut, sa, common, now);
    }

    /// Tells the source of a packet in clear that its link takes no more than `mtu` bytes.
    fn refuse_too_long(&self, packet: &[u8], mtu: usize, common: &Common, now: Instant) {
        let mut storage = vec![0; HEAD_ROOM.saturating_add(packet.len())];
        storage.iter_mut().skip(HEAD_ROOM).zip(packet).for_each(|(to, from)| *to = *from);
        let Some(mut packet) = Packet::new(&mut storage, HEAD_ROOM, packet.len()) else { return };
        let verdict = common.home().endpoint.datapath_mut().refuse_too_long(now, &mut packet, mtu);
        if let Outbound::Reply(_) = verdict {
            self.reply(packet.data(), common, now);
        }
    }
}

/// The packet, if an SA protects it: those that policy lets pass are not ours to put headers on.
fn protected<'p>(&(packet, _, sa): &Outgoing<'p>) -> Option<&'p [u8]> {
    sa.map(|_| packet)
}

fn push<'p>(queue: &mut ArrayVec<Outgoing<'p>, BATCH>, packet: &'p [u8], sa: Option<SaId>) {
    // What the data path lets out has a sound header.
    if let Some(dst) = destination(packet) {
        queue.push((packet, dst, sa));
    }
}
