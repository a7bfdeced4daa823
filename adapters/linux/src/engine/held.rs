//! Packets that wait for their Child SA, so that the first packets of a connection are not lost.
//!
//! A thread that processes packets adds them; the event loop submits them again when an SA is added, and
//! drops those that have waited too long.

use super::event_loop::{EventLoop, send_own_packet};
use super::shared::Shared;
use casemate::{HeldPackets, Notice};
use casemate_datapath::{DropReason, Outbound};
use casemate_ike::Event;
use casemate_sa::{Instant, SpdId};
use std::slice;
use std::sync::{MutexGuard, PoisonError};

impl Shared {
    /// Keeps a packet until its SA exists. Drops it if there is no room.
    #[cold]
    pub(super) fn hold(&self, spd: SpdId, packet: &[u8], now: Instant) {
        let is_held = self.lock_held().hold(spd, packet, now);
        if !is_held {
            self.record_drop(now, DropReason::NoOutboundSa, packet);
        }
    }

    /// Drops packets that have waited too long.
    pub(super) fn drop_expired_held(&self, now: Instant) {
        loop {
            let expired = self.lock_held().take_expired(now);
            let Some(expired) = expired else { return };
            self.record_drop(now, DropReason::NoOutboundSa, expired.bytes());
        }
    }

    fn lock_held(&self) -> MutexGuard<'_, HeldPackets> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a packet that waits may have an SA after this notice.
pub(super) fn adds_outbound_sa(notice: &Notice) -> bool {
    match notice {
        Notice::Ike(Event::ChildUp(up)) => up.active,
        Notice::Ike(Event::ChildActive(_)) => true,
        _ => false,
    }
}

impl EventLoop {
    /// Submits the packets that wait to the data path again. Those that still have no SA go on waiting. Those
    /// that no policy protects any more are dropped: they were to be protected when they were sent.
    pub(super) fn submit_held(&mut self, shared: &Shared) {
        let held = shared.lock_held().take_all();
        let now = self.batch.now;
        for packet in held {
            let mut still_waits = false;
            let (spd, len, context) = (packet.spd(), packet.bytes().len(), shared.lock_endpoint());
            send_own_packet(&mut self.batch, spd, len, context, shared, |datapath, rng, buffer| {
                buffer.data_mut().iter_mut().zip(packet.bytes()).for_each(|(to, from)| *to = *from);
                let mut verdict = Outbound::Hold;
                datapath.outbound_in(spd, now, rng, slice::from_mut(buffer), slice::from_mut(&mut verdict));
                still_waits = verdict == Outbound::Hold;
                if matches!(verdict, Outbound::Bypass | Outbound::Reassemble) {
                    datapath.record_drop(now, DropReason::NoOutboundSa, packet.bytes());
                    return None;
                }
                (!still_waits).then_some(verdict)
            });
            if still_waits {
                shared.lock_held().push(packet);
            }
        }
    }
}
