//! The end of a run. Packets of the owner of a cell move here until the next owner is ready for them
//! (docs/decisions/0140-cells.md).

use super::EngineHandler;
use super::endpoint_context::EndpointContext;
use super::event_loop::{EVENTS, EventLoop, REPORT, ReadySet, STORED};
use super::shared::Shared;
use super::state_keeper::{CHECK_INTERVAL, StateKeeper};
use crate::Error;
use crate::sys::{Epoll, NumberedFd};
use casemate_cell::Handover;
use casemate_ike::{IkeSaId, Transmit};
use casemate_sa::Instant;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Longest time for which the next owner restores the SAs while packets move here.
const PATIENCE: Duration = Duration::from_secs(5);

impl EventLoop {
    /// Ends a run: terminates all IKE SAs, or leaves them to the next run if there is a store and the end is
    /// not `orderly`, and returns unused sequence numbers. An `orderly` end undoes all changes to the
    /// system; otherwise they stay, the guard included.
    pub(super) fn close(mut self, orderly: bool, shared: &Shared) -> Result<(), Error> {
        if !orderly {
            // Before anything that takes time.
            self.system.leave_guard();
            let _ = self.system.restore_name_servers();
        }
        let stored = match self.keeper.take() {
            None if self.has_left_cell => Ok(()),
            Some(keeper) if !orderly => self.keep_state(keeper, shared),
            keeper => self.close_all(keeper, shared),
        };
        let mut context = shared.lock_endpoint();
        let closed = match self.counters.take() {
            None => Ok(()),
            Some(counters) => counters
                .close(context.endpoint.datapath_mut())
                .map_err(|error| Error::other("counters", error.to_string())),
        };
        drop(context);
        let closed = closed.and(stored);
        if orderly { closed.and(self.system.close()) } else { closed }
    }

    /// Closes all IKE SAs, and deletes their records.
    fn close_all(&mut self, keeper: Option<StateKeeper>, shared: &Shared) -> Result<(), Error> {
        let mut context = shared.lock_endpoint();
        // Does not wait for responses. A peer that misses the message detects the end itself.
        let all: Vec<IkeSaId> = context.endpoint.ike().status().map(|sa| sa.id).collect();
        for ike_sa in all {
            context.with(|endpoint, context| endpoint.terminate(ike_sa, context));
        }
        let mut messages = std::mem::take(&mut self.ike_outbox);
        messages.extend(std::iter::from_fn(|| context.endpoint.next_transmit()));
        self.send_ike(messages, shared, &mut |_| {});
        keeper.map_or(Ok(()), |keeper| keeper.clear(&mut context))
    }

    /// Ends the ownership of the SAs of a cell: other nodes go on after any end of this one. No packet moves
    /// any more.
    pub(super) fn leave_cell(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(keeper) = self.keeper.take_if(|keeper| keeper.is_node()) else { return Ok(()) };
        self.has_left_cell = true;
        // Before anything that takes time.
        self.system.leave_guard();
        self.keep_state(keeper, shared)
    }

    /// Writes the state for the next owner.
    fn keep_state(&mut self, mut keeper: StateKeeper, shared: &Shared) -> Result<(), Error> {
        let mut context = shared.lock_endpoint();
        let mut messages = std::mem::take(&mut self.ike_outbox);
        // Otherwise IKE stands still.
        if keeper.handover() == Handover::None {
            messages.extend(close_unrecorded(&mut keeper, &mut context));
        }
        let mut addresses = self.addresses.take();
        if let Some(addresses) = &mut addresses {
            // Before the next owner takes them. Messages that still wait for the store are lost: peers repeat
            // them.
            self.send_ike(std::mem::take(&mut messages), shared, &mut |_| {});
            addresses.give_up();
        }
        let written = keeper.hand_over(&mut context).map(|released| messages.extend(released));
        // The kernel takes tens of milliseconds to close their sockets.
        drop(addresses);
        self.send_ike(messages, shared, &mut |_| {});
        written
    }

    /// Lets another node of the cell, if one stands by, claim the SAs and restore them, and moves packets
    /// meanwhile. IKE and timers stand still. Afterwards no packet may move any more.
    pub(super) fn hand_over(
        &mut self,
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) -> Result<(), Error> {
        if !self.keeper.as_ref().is_some_and(|keeper| keeper.is_node() && keeper.has_standby()) {
            return Ok(());
        }
        self.system.leave_guard();
        let mut messages = std::mem::take(&mut self.ike_outbox);
        if let Some(keeper) = &mut self.keeper {
            let mut context = shared.lock_endpoint();
            messages.extend(close_unrecorded(keeper, &mut context));
            messages.extend(keeper.begin_handover(&mut context));
        }
        self.send_ike(messages, shared, &mut |_| {});
        let epoll = self.handover_epoll(shared)?;
        let deadline = self.clock.now().after(PATIENCE);
        while self.hands_over(self.clock.now(), deadline) {
            let mut ready = ReadySet::buffered([false; EVENTS], shared);
            ready.add_readable(&epoll, if ready.is_empty() { CHECK_INTERVAL } else { Duration::ZERO })?;
            shared.poll_all(&ready, &mut self.batch)?;
            self.batch.now = self.clock.now();
            let now = self.batch.now;
            shared.reports.wakeup.clear();
            // IKE stands still: peers repeat their messages, and the next owner responds.
            drop(shared.reports.take_ike());
            let Some(keeper) = &mut self.keeper else { return Ok(()) };
            let usage = shared.reports.take_number_usage();
            let polled = keeper.poll(&mut shared.lock_endpoint(), usage.sealed, usage.is_missing, now)?;
            self.addresses.iter_mut().try_for_each(|addresses| addresses.keep(keeper, now, handler))?;
            self.send_ike(polled.released, shared, &mut |_| {});
        }
        Ok(())
    }

    fn hands_over(&self, now: Instant, deadline: Instant) -> bool {
        let is_in_progress =
            self.keeper.as_ref().is_some_and(|keeper| keeper.handover() == Handover::InProgress);
        is_in_progress && now < deadline
    }

    /// Registers what matters during a handover: packets, reports of workers and the store.
    fn handover_epoll(&self, shared: &Shared) -> Result<Epoll, Error> {
        let report = NumberedFd { number: REPORT, fd: shared.reports.wakeup.as_fd() };
        let stored = self.keeper.iter().map(|keeper| NumberedFd { number: STORED, fd: keeper.fd() });
        let rx = shared.lock_rx();
        let inputs = rx.descriptors().map(|input| NumberedFd { number: EVENTS + input.number, ..input });
        Epoll::new(std::iter::once(report).chain(stored).chain(inputs))
            .map_err(|error| Error::new("epoll", error))
    }
}

/// Closes the IKE SAs that the next run cannot continue, because they have no record. Returns the messages to
/// their peers, and those of others that do not wait for the store.
fn close_unrecorded(keeper: &mut StateKeeper, context: &mut EndpointContext) -> Vec<Transmit> {
    let mut messages = take_transmits(keeper, context);
    let ids = context.endpoint.ike().status().map(|sa| sa.id);
    let unrecorded: Vec<IkeSaId> = ids.filter(|ike| !keeper.has_record(*ike)).collect();
    for ike_sa in unrecorded {
        context.with(|endpoint, context| endpoint.terminate(ike_sa, context));
    }
    messages.extend(take_transmits(keeper, context));
    messages
}

/// Gives the messages of the endpoint to the keeper, which notes what has changed. Returns those that do not
/// wait.
fn take_transmits(keeper: &mut StateKeeper, context: &mut EndpointContext) -> Vec<Transmit> {
    let transmits = std::iter::from_fn(|| context.endpoint.next_transmit()).collect();
    keeper.collect(context, transmits)
}
