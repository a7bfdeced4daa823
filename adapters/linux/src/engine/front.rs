//! The thread that reads: packets, signals, and the time.

use super::batch::Batch;
use super::common::Common;
use super::dummies::Dummies;
use super::keepalive::Keepalives;
use super::pace::Pace;
use super::source::Source;
use super::{Attendant, Home, entry, exit};
use crate::clock::Clock;
use crate::counters::Ledger;
use crate::ike::IkePorts;
use crate::receive::{Arrival, Receiver};
use crate::setup::Live;
use crate::signal::{Signal, Signals};
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use casemate_sa::Instant;
use std::io;
use std::mem;

/// What only the front uses.
pub(super) struct Front {
    /// The batch that is being read.
    pub(super) batch: Box<Batch>,
    pub(super) clock: Clock,
    pub(super) tun: Tun,
    pub(super) source: Source,
    pub(super) live: Live,
    pub(super) receivers: Vec<Receiver>,
    /// UDP ports of encapsulated ESP; with IKE, the one that it shares is among them.
    pub(super) ports: Vec<UdpPort>,
    pub(super) ike: Option<IkePorts>,
    pub(super) keepalives: Keepalives,
    pub(super) dummies: Option<Dummies>,
    pub(super) ledger: Option<Ledger>,
    pub(super) signals: Signals,
    pub(super) last_tick: Instant,
    /// How long batches from the wire may be, if what is urgent overtakes others.
    pub(super) pace: Option<Pace>,
}

impl Front {
    /// Reads until a signal comes.
    pub(super) fn run(&mut self, common: &Common, attendant: &mut dyn Attendant) -> Result<(), Error> {
        let watch = self.watch(common, attendant)?;
        loop {
            let ready = self.wait(common, &watch)?;
            self.batch.now = self.clock.now();
            let mut ready = ready.into_iter();
            let mut next = || ready.next().unwrap_or(false);
            if next() && self.obey_signal(common, attendant) {
                common.finish_waiting();
                return Ok(());
            }
            if next() {
                let mut home = common.home();
                home.queues = self.source.counters();
                attendant.attend(&mut home);
            }
            if next() {
                common.notes.bell.silence();
            }
            if next() {
                self.outbound_round(common)?;
            }
            if next() {
                self.live.note_addresses();
            }
            for index in 0..self.receivers.len() {
                if next() {
                    self.raw_round(common, index)?;
                }
            }
            for index in 0..self.ports.len() {
                if next() {
                    self.port_round(common, index)?;
                }
            }
            let mut letters = common.notes.take_letters();
            for port in self.ike.iter_mut().flat_map(|ike| &mut ike.0) {
                if next() {
                    let received = IkePorts::receive(port, &mut self.batch.buffers, &mut letters);
                    received.map_err(|error| Error::new("IKE port", error))?;
                }
            }
            self.send_dummies(common);
            self.look_after(letters, common, attendant);
        }
    }

    /// Whether it is the end.
    fn obey_signal(&mut self, common: &Common, attendant: &mut dyn Attendant) -> bool {
        match self.signals.take() {
            None => false,
            Some(Signal::Hangup) => !attendant.reload(&mut common.home()),
            Some(Signal::End) => true,
        }
    }

    /// Takes a batch from the TUN interface and has it sent.
    fn outbound_round(&mut self, common: &Common) -> Result<(), Error> {
        let Self { tun, source, batch, .. } = self;
        let Batch { buffers, now, .. } = &mut **batch;
        let mut dropped = |reason, packet: &[u8]| common.note_drop(*now, reason, packet);
        source
            .fill(tun, buffers, *now, &mut dropped)
            .map_err(|error| Error::new(format!("TUN interface {}", tun.name()), error))?;
        let has_more = source.has_more() || buffers.is_full();
        self.pass_on(common, has_more, exit::take);
        Ok(())
    }

    /// Takes a batch from a packet socket and has it delivered.
    fn raw_round(&mut self, common: &Common, index: usize) -> Result<(), Error> {
        let Some(receiver) = self.receivers.get(index) else { return Ok(()) };
        let buffers = &mut self.batch.buffers;
        let most = self.pace.as_mut().map_or(BATCH, |pace| pace.packets(self.clock.now()));
        let count = received(receiver.receive(buffers, most), "packet socket")?;
        // The kernel has these packets, too. What is not for the data path is the kernel's business alone.
        let ours = common.ours();
        buffers.retain(|packet| Arrival::of(packet, &ours) != Arrival::Other);
        drop(ours);
        self.pass_in(common, count == most);
        Ok(())
    }

    /// Takes a batch from a UDP port and has it delivered.
    fn port_round(&mut self, common: &Common, index: usize) -> Result<(), Error> {
        let Some(port) = self.ports.get_mut(index) else { return Ok(()) };
        let room = self.pace.as_mut().map_or(usize::MAX, |pace| pace.room(self.clock.now()));
        received(port.receive(&mut self.batch.buffers, room), "UDP port")?;
        let has_more = port.has_more();
        self.pass_in(common, has_more);
        Ok(())
    }

    /// Has a batch opened and delivered.
    fn pass_in(&mut self, common: &Common, has_more: bool) {
        if let Some(pace) = self.pace.as_mut().filter(|_| has_more) {
            pace.leave_waiting(self.clock.now());
        }
        self.pass_on(common, has_more, entry::take);
    }

    /// Gives the batch to a helper if there is a backlog and somebody is free, or carries on with it, after those that wait.
    fn pass_on(&mut self, common: &Common, is_backlog: bool, take: impl Fn(&Common, &mut Batch, bool)) {
        if self.batch.buffers.is_empty() {
            return;
        }
        let to_give = is_backlog && common.crew.has_free_hands();
        if !to_give {
            common.finish_waiting();
        }
        take(common, &mut self.batch, to_give);
        if to_give {
            let mut spare = common.crew.spare();
            spare.now = self.batch.now;
            common.crew.give(mem::replace(&mut self.batch, spare));
        }
    }

    /// Sends the dummy packets that are due, as many as a round of others may have.
    fn send_dummies(&mut self, common: &Common) {
        let Self { dummies: Some(dummies), batch, .. } = self else { return };
        let Batch { buffers, now, .. } = &mut **batch;
        for _ in 0..BATCH {
            let mut home = common.home();
            let Home { endpoint, rng, .. } = &mut *home;
            let Some((sa, len)) = dummies.next(*now, rng) else { return };
            buffers.hold(&[len]);
            let mut packets = buffers.packets();
            let Some(packet) = packets.first_mut() else { return };
            let verdict = endpoint.datapath_mut().dummy(sa, *now, rng, packet);
            let ticket = common.exit.ticket();
            drop(home);
            common.finish_waiting();
            common.exit.pass(ticket, |exit| exit.obey(&mut packets, &[verdict], common, *now));
        }
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
