//! Ends of processes: at once at any moment, or in an orderly way.

use super::{CHECK, Process, SHORT_CHECK, StateStore};
use casemate::{Context, Endpoint};
use casemate_cell::Handover;
use casemate_ike::Transmit;
use std::time::Duration;

/// Time for which an orderly end waits for the store.
const END: Duration = Duration::from_secs(10);
/// Time for which a process moves packets until the next owner is ready, at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// When a process ends, seen from what it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMoment {
    Now,
    /// It has made an IKE message, and does not write its state.
    BeforeWrite,
    /// It has submitted a write, and the store has not answered.
    AfterSubmission,
    /// Its state is written, and messages that waited for it have not left.
    BeforeSending,
    /// Messages that waited for a write have left.
    AfterSending,
}

impl EndMoment {
    pub(crate) const ALL: [Self; 5] =
        [Self::Now, Self::BeforeWrite, Self::AfterSubmission, Self::BeforeSending, Self::AfterSending];
}

/// A planned end of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedEnd {
    pub(super) moment: EndMoment,
    /// The process ends at this time at the latest.
    pub(super) until: Duration,
    pub(super) down_for: Duration,
}

/// An orderly end.
#[derive(Debug, Clone, Copy)]
pub(super) enum OrderlyEnd {
    /// Packets move until the next owner is ready, or until this time.
    HandingOver(Duration),
    /// The process writes its state, until this time at the latest.
    Writing(Duration),
}

impl OrderlyEnd {
    pub(super) const fn until(self) -> Duration {
        match self {
            Self::HandingOver(until) | Self::Writing(until) => until,
        }
    }
}

/// A step of an orderly end.
pub(crate) struct EndStep {
    /// Messages to send.
    pub(crate) released: Vec<Transmit>,
    /// The next owner is ready, and this process stops.
    pub(crate) has_handed_over: bool,
    /// Pause before the next process, when the end is complete.
    pub(crate) ended: Option<Duration>,
}

impl StateStore {
    /// The planned end, if its time has come.
    pub(crate) fn take_end(&mut self, now: Duration) -> Option<Duration> {
        let late = self.planned.filter(|end| end.until <= now).map(|end| end.down_for);
        self.ends_now.take().or(late)
    }

    /// Plans the end of the process.
    pub(crate) fn plan_end(&mut self, moment: EndMoment, until: Duration, down_for: Duration) {
        self.planned = Some(PlannedEnd { moment, until, down_for });
    }

    /// Cancels a planned end.
    pub(crate) fn keep_running(&mut self) {
        (self.planned, self.ends_now) = (None, None);
    }

    /// Ends the process at once.
    pub(crate) fn end(&mut self, now: Duration, down_for: Duration) {
        (self.planned, self.ends_now) = (None, None);
        self.process = Process::Down(now + down_for);
    }

    /// Begins to end the process in an orderly way: it hands its state over if another machine stands by.
    /// Returns the messages to send.
    pub(crate) fn begin_end(
        &mut self,
        now: Duration,
        down_for: Duration,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> Vec<Transmit> {
        let unix_time = self.machine.unix_time(now);
        let mut messages = Vec::new();
        self.process = match std::mem::replace(&mut self.process, Process::Lost) {
            Process::Running(mut keeper) if self.is_of_cell() && keeper.has_standby() => {
                messages = keeper.begin_handover(endpoint, unix_time, context);
                Process::Ending { keeper, end: OrderlyEnd::HandingOver(now + PATIENCE), down_for }
            }
            Process::Running(mut keeper) => {
                keeper.finish(endpoint, unix_time, context);
                Process::Ending { keeper, end: OrderlyEnd::Writing(now + END), down_for }
            }
            other => other,
        };
        self.planned = None;
        self.next_check = now;
        messages
    }

    /// Continues an orderly end.
    pub(crate) fn continue_end(
        &mut self,
        now: Duration,
        endpoint: &mut Endpoint,
        context: &mut Context<'_>,
    ) -> Option<EndStep> {
        let unix_time = self.machine.unix_time(now);
        let Process::Ending { keeper, end, down_for } = &mut self.process else { return None };
        let mut released = keeper.poll(endpoint, false, unix_time, context);
        let mut has_handed_over = false;
        if let OrderlyEnd::HandingOver(until) = *end {
            let progress = keeper.handover();
            if progress == Handover::InProgress && now < until {
                self.next_check = now + SHORT_CHECK;
                return Some(EndStep { released, has_handed_over, ended: None });
            }
            has_handed_over = progress == Handover::Ready;
            keeper.finish(endpoint, unix_time, context);
            *end = OrderlyEnd::Writing(now + END);
            released.extend(keeper.poll(endpoint, false, unix_time, context));
        }
        self.next_check = now + CHECK;
        let is_over = keeper.is_idle() || end.until() <= now;
        Some(EndStep { released, has_handed_over, ended: is_over.then_some(*down_for) })
    }
}
