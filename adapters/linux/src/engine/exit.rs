//! Where packets leave: the verdicts on a batch from the TUN interface are obeyed here.

use super::{destination, set_ident_if_zero};
use crate::netlink::Netlink;
use crate::raw::Sender;
use crate::rng::SystemRng;
use crate::train::{Train, Trains};
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::fragment::Fragments;
use casemate_datapath::reassembly::{Reassembler, Reassembly};
use casemate_datapath::{Datapath, DropReason, Outbound, SaId, Sealed};
use casemate_sa::Instant;
use casemate_wire::ip::proto;
use casemate_wire::packet::Packet;
use std::io;
use std::net::IpAddr;

/// Room for a batch of fragments on most links, and for a few on those with huge packets.
const SCRATCH: usize = 256 << 10;

/// Obeys verdicts.
pub(super) struct Exit {
    reassembler: Reassembler,
    sending: Sending,
}

/// Sends packets, in fragments where the data path says so.
struct Sending {
    sender: Sender,
    trains: Trains,
    scratch: Box<[u8]>,
    netlink: Netlink,
    mark: u32,
    /// AH covers the identification of an IPv4 header, so it must be final before a packet is signed.
    settles_idents: bool,
    next_ident: u32,
    tally: Tally,
    trouble: Option<String>,
}

#[derive(Default)]
struct Tally {
    sealed: u64,
    unreserved: bool,
}

/// What a sent packet needs to be known for when it does not go.
type Outgoing<'p> = (&'p [u8], IpAddr, Option<SaId>);

impl Exit {
    pub(super) fn new(
        (mark, ports): (u32, &[UdpPort]),
        reassembler: Reassembler,
        first_ident: u32,
        settles_idents: bool,
    ) -> Result<Self, Error> {
        let sending = Sending {
            sender: Sender::open(mark)?,
            trains: Trains::new(ports)?,
            scratch: vec![0; SCRATCH].into_boxed_slice(),
            netlink: Netlink::open()?,
            mark,
            settles_idents,
            next_ident: first_ident,
            tally: Tally::default(),
            trouble: None,
        };
        Ok(Self { reassembler, sending })
    }

    /// From now on some packets are signed by AH over IPv4.
    pub(super) fn settle_idents(&mut self) {
        self.sending.settles_idents = true;
    }

    /// Makes packets from the TUN interface ready to be protected. The kernel gives an IPv4 packet that is sent without
    /// identification one of its own, after AH has signed it; so it gets one before (RFC 6864 section 4.1 lets the source
    /// choose).
    pub(super) fn prepare(&mut self, packets: &mut [Packet<'_>]) {
        packets.iter_mut().for_each(|packet| self.sending.prepare(packet));
    }

    /// Obeys the verdicts on a batch.
    pub(super) fn obey(
        &mut self,
        packets: &mut [Packet<'_>],
        verdicts: &[Outbound],
        datapath: &mut Datapath,
        rng: &mut SystemRng,
        tun: &mut Tun,
        now: Instant,
    ) {
        let Self { reassembler, sending } = self;
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            if let Outbound::Send(_) = verdict {
                sending.finish(packet);
            }
        }
        let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            match *verdict {
                Outbound::Send(Sealed { sa, fragment_to: None, .. }) => {
                    push(&mut queue, packet.data(), Some(sa));
                }
                Outbound::Bypass => push(&mut queue, packet.data(), None),
                Outbound::Reassemble => {
                    sending.flush(&mut queue, datapath, now);
                    match reassembler.push(now, packet.data()) {
                        Reassembly::Held => {}
                        Reassembly::Dropped(error) => {
                            datapath.note_drop(now, error.drop_reason(), packet.data());
                        }
                        Reassembly::Whole(mut whole) => {
                            sending.prepare(&mut whole);
                            let verdict = datapath.outbound_reassembled(now, rng, &mut whole);
                            if let Outbound::Send(_) = verdict {
                                sending.finish(&mut whole);
                            }
                            sending.obey_one(&mut whole, verdict, datapath, tun, now);
                        }
                    }
                }
                other => {
                    sending.flush(&mut queue, datapath, now);
                    sending.obey_one(packet, other, datapath, tun, now);
                }
            }
        }
        sending.flush(&mut queue, datapath, now);
    }

    /// Sends a packet of our own making; whether it goes matters little.
    pub(super) fn send_aside(&self, packet: &[u8], dst: IpAddr) {
        let _ = self.sending.sender.send(&[(packet, dst)]);
    }

    /// How many packets were sealed since the last call, and whether one found no number.
    pub(super) fn take_tally(&mut self) -> (u64, bool) {
        let Tally { sealed, unreserved } = std::mem::take(&mut self.sending.tally);
        (sealed, unreserved)
    }

    pub(super) fn take_trouble(&mut self) -> Option<String> {
        self.sending.trouble.take()
    }

    /// Gives up datagrams whose fragments did not come in time; answers how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        self.reassembler.expire(now)
    }
}

impl Sending {
    fn prepare(&mut self, packet: &mut Packet<'_>) {
        if self.settles_idents {
            let ident = self.ident_v4();
            set_ident_if_zero(packet, ident);
        }
    }

    /// Obeys a verdict that does not fit into a batch.
    fn obey_one(
        &mut self,
        packet: &mut Packet<'_>,
        verdict: Outbound,
        datapath: &mut Datapath,
        tun: &mut Tun,
        now: Instant,
    ) {
        match verdict {
            Outbound::Send(Sealed { sa, fragment_to: Some(mtu), .. }) => {
                self.send_in_fragments(packet.data(), mtu.into(), sa, datapath, now);
            }
            Outbound::Send(Sealed { sa, .. }) => self.send_one(packet.data(), Some(sa), datapath, now),
            Outbound::Bypass => self.send_one(packet.data(), None, datapath, now),
            Outbound::Reply(_) => {
                if tun.deliver(packet.data()).is_err() {
                    datapath.note_drop(now, DropReason::SendFailed, packet.data());
                }
            }
            Outbound::Drop(DropReason::CounterNotReserved) => self.tally.unreserved = true,
            // The data path has counted it. A whole datagram is not asked for again.
            Outbound::Drop(_) | Outbound::Reassemble => {}
        }
    }

    /// The last touch to a sealed packet. ESP does not cover the outer header, so its identification can still be chosen,
    /// and all fragments of the packet must have the same.
    fn finish(&mut self, packet: &mut Packet<'_>) {
        self.tally.sealed = self.tally.sealed.saturating_add(1);
        if packet.data().get(9) != Some(&proto::AH) {
            let ident = self.ident_v4();
            set_ident_if_zero(packet, ident);
        }
    }

    fn flush(&mut self, queue: &mut ArrayVec<Outgoing<'_>, BATCH>, datapath: &mut Datapath, now: Instant) {
        let mut rest = queue.as_slice();
        while !rest.is_empty() {
            let train = |from: usize| Train::of(rest.get(from..)?.iter().map_while(protected));
            let next = (0..rest.len()).find_map(|from| Some((from, train(from)?)));
            let (alone, together) = next.map_or((rest.len(), None), |(from, train)| (from, Some(train)));
            let (now_alone, others) = rest.split_at_checked(alone).unwrap_or((rest, &[]));
            self.send_alone(now_alone, datapath, now);
            let count = together.as_ref().map_or(0, Train::len);
            let (now_together, others) = others.split_at_checked(count).unwrap_or((others, &[]));
            if together.is_some_and(|train| self.trains.send(&train).is_err()) {
                // What is wrong with them is found out one by one.
                self.send_alone(now_together, datapath, now);
            }
            rest = others;
        }
        queue.clear();
    }

    /// Sends packets with the headers that they have.
    fn send_alone(&mut self, queue: &[Outgoing<'_>], datapath: &mut Datapath, now: Instant) {
        for run in queue.chunk_by(|(_, a, _), (_, b, _)| a.is_ipv4() == b.is_ipv4()) {
            let packets: ArrayVec<(&[u8], IpAddr), BATCH> =
                run.iter().map(|(packet, dst, _)| (*packet, *dst)).collect();
            let mut sent = 0usize;
            while let (Some(rest), Some(first)) = (packets.get(sent..), run.get(sent)) {
                match self.sender.send(rest) {
                    Ok(count) => sent = sent.saturating_add(count.max(1)),
                    Err(error) => {
                        self.not_sent(*first, &error, datapath, now);
                        sent = sent.saturating_add(1);
                    }
                }
            }
        }
    }

    fn send_one(&mut self, packet: &[u8], sa: Option<SaId>, datapath: &mut Datapath, now: Instant) {
        let mut queue = ArrayVec::new();
        push(&mut queue, packet, sa);
        self.flush(&mut queue, datapath, now);
    }

    /// RFC 4303 section 3.3.4: fragments are cut after protection.
    fn send_in_fragments(
        &mut self,
        packet: &[u8],
        mtu: usize,
        sa: SaId,
        datapath: &mut Datapath,
        now: Instant,
    ) {
        let ident = self.ident();
        let (Ok(mut fragments), Some(dst)) = (Fragments::new(packet, mtu, ident), destination(packet)) else {
            return datapath.note_drop(now, DropReason::TooBig, packet);
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut is_lost = false;
        while !fragments.is_finished() && !is_lost {
            let mut queue: ArrayVec<Outgoing<'_>, BATCH> = ArrayVec::new();
            for out in scratch.chunks_exact_mut(mtu.max(1)).take(BATCH) {
                let Some(len) = fragments.next(out) else { break };
                queue.push((out.get(..len).unwrap_or_default(), dst, Some(sa)));
            }
            is_lost = queue.is_empty();
            self.flush(&mut queue, datapath, now);
        }
        self.scratch = scratch;
        if is_lost {
            datapath.note_drop(now, DropReason::TooBig, packet);
        }
    }

    /// The kernel refused a packet.
    #[cold]
    fn not_sent(
        &mut self,
        (packet, dst, sa): Outgoing<'_>,
        error: &io::Error,
        datapath: &mut Datapath,
        now: Instant,
    ) {
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            return self.too_long_for_link(packet, dst, sa, datapath, now);
        }
        datapath.note_drop(now, DropReason::SendFailed, packet);
        self.trouble = Some(format!("a packet to {dst} could not be sent: {error}"));
    }

    /// The link is narrower than thought. Its MTU is learnt, so that senders behind us hear of it with their next packet,
    /// and this one goes in fragments if it may.
    fn too_long_for_link(
        &mut self,
        packet: &[u8],
        dst: IpAddr,
        sa: Option<SaId>,
        datapath: &mut Datapath,
        now: Instant,
    ) {
        let mtu = link_mtu(&mut self.netlink, dst, self.mark).filter(|&mtu| mtu < packet.len());
        let (Some(mtu), Some(sa)) = (mtu, sa) else {
            return datapath.note_drop(now, DropReason::TooBig, packet);
        };
        datapath.set_path_mtu(sa, mtu, now);
        // Empty while fragments are being sent: then the link shrank under them, and they are lost.
        if self.scratch.is_empty() {
            return datapath.note_drop(now, DropReason::TooBig, packet);
        }
        self.send_in_fragments(packet, mtu, sa, datapath, now);
    }

    fn ident(&mut self) -> u32 {
        self.next_ident = self.next_ident.wrapping_add(1);
        self.next_ident
    }

    /// Never 0.
    fn ident_v4(&mut self) -> u16 {
        (self.ident() as u16).max(1)
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

/// The MTU of the link towards `dst`.
pub(crate) fn link_mtu(netlink: &mut Netlink, dst: IpAddr, mark: u32) -> Option<usize> {
    let index = netlink.interface_to(dst, mark).ok()??;
    netlink.link_at(index).ok().map(|link| link.mtu)
}
