//! The engine's own thread: it waits, takes its turns at reading, and does what only it does: signals, IKE, and what time asks for.

use super::batch::Batch;
use super::common::Common;
use super::discards::Discards;
use super::dummies::Dummies;
use super::exit::Exit;
use super::keepalive::Keepalives;
use super::told::Told;
use super::{Attendant, Home, HomeLock};
use crate::clock::Clock;
use crate::counters::Ledger;
use crate::ike::IkePorts;
use crate::raw::Sender;
use crate::setup::Live;
use crate::signal::{Signal, Signals};
use crate::sys::Watch;
use crate::udp::UdpSender;
use crate::{BATCH, Error};
use casemate_ike::Transmit;
use casemate_sa::Instant;
use std::sync::Arc;

/// What only the engine's own thread uses.
pub(super) struct Front {
    /// The batch that it reads.
    pub(super) batch: Box<Batch>,
    pub(super) clock: Clock,
    pub(super) live: Live,
    pub(super) ike: Option<IkePorts>,
    /// Where IKE messages are sent from.
    pub(super) senders: Vec<UdpSender>,
    /// Where packets leave.
    pub(super) raw: Arc<Sender>,
    pub(super) keepalives: Keepalives,
    pub(super) dummies: Option<Dummies>,
    pub(super) ledger: Option<Ledger>,
    pub(super) signals: Signals,
    pub(super) last_tick: Instant,
    /// IKE messages, and notices, that wait until the system follows.
    pub(super) outbox: Vec<Transmit>,
    pub(super) told: Told,
    /// What is held for a former run.
    pub(super) discards: Discards,
}

impl Front {
    /// Works until a signal comes.
    pub(super) fn run(
        &mut self,
        common: &Common,
        watch: &Watch,
        attendant: &mut dyn Attendant,
    ) -> Result<(), Error> {
        loop {
            let ready = self.wait(common, watch)?;
            if common.notes.has_lost_a_thread() {
                return Err(Error::other("a thread that moves packets", "it panicked"));
            }
            let [signal, call, bell, others, ike, followed] = ready.own();
            if signal && self.obey_signal(attendant) {
                return Ok(());
            }
            if call {
                let queues = common.intake().source.counters();
                let mut home = common.home();
                home.queues = queues;
                home.rejected_writes = common.tun.rejected();
                home.guard = self.live.sentry().state();
                drop(home);
                attendant.attend(&HomeLock(common))?;
            }
            if bell {
                common.notes.bell.silence();
            }
            if followed {
                self.live.bell().silence();
            }
            if others && self.live.note_others() {
                common.home().endpoint.note_routes();
            }
            common.round(&ready, &mut self.batch)?;
            self.batch.now = self.clock.now();
            let mut letters = common.notes.take_letters();
            for port in self.ike.iter_mut().filter(|_| ike).flat_map(|ike| &mut ike.0) {
                let received = IkePorts::receive(port, &mut self.batch.buffers, &mut letters);
                received.map_err(|error| Error::new("IKE port", error))?;
            }
            self.send_dummies(common);
            if ready.own().contains(&true) || !letters.is_empty() || !self.is_at_rest(common) {
                self.look_after(letters, common, attendant)?;
            }
        }
    }

    /// Whether it is the end.
    fn obey_signal(&mut self, attendant: &mut dyn Attendant) -> bool {
        match self.signals.take() {
            None => false,
            // It never ends a run: a terminal that goes away sends it too, and the guard must stay.
            Some(Signal::Hangup) => {
                attendant.reload();
                false
            }
            Some(Signal::End) => true,
        }
    }

    /// Sends the dummy packets that are due, as many as a round of others may have.
    fn send_dummies(&mut self, common: &Common) {
        let Self { dummies: Some(dummies), batch, .. } = self else { return };
        let Batch { buffers, now, .. } = &mut **batch;
        for _ in 0..BATCH {
            let mut home = common.home();
            let Some((sa, len)) = dummies.next(*now, &mut home.rng) else { return };
            buffers.hold(&[len]);
            buffers.with_packets(|packets| {
                let Some(packet) = packets.first_mut() else { return };
                let Home { endpoint, rng, .. } = &mut *home;
                let verdict = endpoint.datapath_mut().dummy(sa, *now, rng, packet);
                let ticket = common.exit.ticket();
                drop(home);
                let obey = |exit: &mut Exit| exit.obey(packets, &[verdict], common, *now);
                common.exit.pass(ticket, obey, |exit, batch| exit.conclude(batch, common));
            });
        }
    }
}
