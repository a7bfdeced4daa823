//! Where packets arrive: from packet sockets and UDP ports through the data path into the TUN interface.

use crate::buffers::Buffers;
use crate::ike::{Letter, letter};
use crate::offload::{Joiner, Run};
use crate::receive::{Arrival, Receiver};
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_datapath::reassembly::{Reassembler, Reassembly};
use casemate_datapath::{Datapath, DropReason, Inbound};
use casemate_sa::Instant;
use casemate_wire::packet::Packet;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::slice;

/// Takes packets in.
pub(super) struct Entry {
    /// Where the inbound SAs end.
    ours: HashSet<IpAddr>,
    reassembler: Reassembler,
    /// IKE messages that came among other packets.
    pub(super) inbox: Vec<Letter>,
}

impl Entry {
    pub(super) fn new(ours: HashSet<IpAddr>, reassembler: Reassembler) -> Self {
        Self { ours, reassembler, inbox: Vec::new() }
    }

    /// Protected packets may arrive at this address, too.
    pub(super) fn listen(&mut self, addr: IpAddr) {
        self.ours.insert(addr);
    }

    /// Takes a batch from a packet socket.
    pub(super) fn take_from(
        &mut self,
        receiver: &Receiver,
        buffers: &mut Buffers,
        datapath: &mut Datapath,
        tun: &mut Tun,
        now: Instant,
    ) -> Result<(), Error> {
        let mut lens = [0; BATCH];
        let count = received(receiver.receive(buffers, &mut lens), "packet socket")?;
        let mut packets = buffers.packets(lens.get(..count).unwrap_or_default());
        // The kernel has these packets, too. What is not for the data path is the kernel's business alone.
        packets.retain(|packet| Arrival::of(packet.data(), &self.ours) != Arrival::Other);
        self.open(packets, datapath, tun, now);
        Ok(())
    }

    /// Takes a batch from a UDP port.
    pub(super) fn take_from_port(
        &mut self,
        port: &mut UdpPort,
        buffers: &mut Buffers,
        datapath: &mut Datapath,
        tun: &mut Tun,
        now: Instant,
    ) -> Result<(), Error> {
        let packets = match port.receive(buffers) {
            Ok(packets) => packets,
            Err(error) => return received(Err(error), "UDP port").map(drop),
        };
        self.open(packets, datapath, tun, now);
        Ok(())
    }

    fn open(
        &mut self,
        mut packets: ArrayVec<Packet<'_>, BATCH>,
        datapath: &mut Datapath,
        tun: &mut Tun,
        now: Instant,
    ) {
        let mut verdicts = [Inbound::Drop(DropReason::MalformedHeader); BATCH];
        datapath.inbound(now, &mut packets, &mut verdicts);
        let mut joiner = Joiner::new();
        let mut hand_over = |run: &Run<'_>| {
            if tun.deliver_run(run).is_err() {
                run.packets()
                    .iter()
                    .for_each(|packet| datapath.note_drop(now, DropReason::SendFailed, packet));
            }
        };
        for (packet, verdict) in packets.iter().zip(verdicts) {
            match verdict {
                // Clear text has reached the host without us.
                Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
                Inbound::Deliver(_) => joiner.push(packet.data(), &mut hand_over),
                _ => {}
            }
        }
        joiner.finish(&mut hand_over);
        for (packet, verdict) in packets.iter().zip(verdicts) {
            match verdict {
                Inbound::Reassemble => self.reassemble(packet.data(), datapath, tun, now),
                Inbound::Ike(at) => self.inbox.extend(letter(packet.data(), at.into())),
                // Handed over, or counted already.
                Inbound::Deliver(_) | Inbound::Drop(_) | Inbound::Consumed(_) => {}
            }
        }
    }

    /// RFC 4303 section 3.4.1: reassembly comes before opening.
    fn reassemble(&mut self, fragment: &[u8], datapath: &mut Datapath, tun: &mut Tun, now: Instant) {
        match self.reassembler.push(now, fragment) {
            Reassembly::Held => {}
            Reassembly::Dropped(error) => datapath.note_drop(now, error.drop_reason(), fragment),
            // A fragment may hide what it is a fragment of, so the whole is sorted once more.
            Reassembly::Whole(mut packet) => {
                if Arrival::of(packet.data(), &self.ours) == Arrival::Protected {
                    let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
                    datapath.inbound(now, slice::from_mut(&mut packet), slice::from_mut(&mut verdict));
                    deliver(&packet, verdict, datapath, tun, now);
                }
            }
        }
    }

    /// Gives up datagrams whose fragments did not come in time; answers how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        self.reassembler.expire(now)
    }
}

fn deliver(packet: &Packet<'_>, verdict: Inbound, datapath: &mut Datapath, tun: &mut Tun, now: Instant) {
    match verdict {
        // Clear text has reached the host without us.
        Inbound::Deliver(admitted) if admitted.sa.is_none() => {}
        Inbound::Deliver(_) => {
            if tun.deliver(packet.data()).is_err() {
                datapath.note_drop(now, DropReason::SendFailed, packet.data());
            }
        }
        // Only UDP ports bring IKE, and what they bring is whole.
        Inbound::Ike(_) => datapath.note_drop(now, DropReason::NoSa, packet.data()),
        // Counted already, or rightly nothing to deliver. What is whole is not asked for again.
        Inbound::Drop(_) | Inbound::Consumed(_) | Inbound::Reassemble => {}
    }
}

/// How many packets came. An interface that goes down, or a packet that could not be delivered long ago, is no failure of
/// the socket.
fn received(result: io::Result<usize>, what: &str) -> Result<usize, Error> {
    result.or_else(|error| match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ECONNREFUSED | libc::ENOBUFS) => Ok(0),
        _ => Err(Error::new(what, error)),
    })
}
