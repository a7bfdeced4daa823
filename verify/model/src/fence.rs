//! The fence: a node stops sending before its lease can have ended. Time passes in ticks.
//!
//! The fence holds if the clock of the node runs and the node is not stopped between looking at it and
//! sending. The other cases have counterexamples: they are why a former owner has a reserve of its own.

use stateright::{Model, Property};

/// Time of a lease in ticks.
const LEASE: u8 = 3;
/// Ticks of a run.
const END: u8 = 9;
/// Maximum number of renewals on their way.
const RENEWALS: usize = 2;

/// What is true of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As docs/decisions/0140-cells.md says: the fence counts from the moment before the renewal was sent.
    Normal,
    /// Defect: the fence counts from the arrival of the answer.
    CountedFromAnswer,
    /// Defect: a renewal without an answer moves the fence.
    CountedWithoutAnswer,
    /// The node is stopped after it has looked at its clock, and goes on (SIGSTOP and SIGCONT).
    StoppedProcess,
    /// The clock of the node does not run for some ticks, as that of a paused virtual machine.
    StoppedClock,
}

/// The model of a node with a lease.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// What is true of the node.
    pub condition: Condition,
}

/// A renewal on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Renewal {
    /// Clock of the node before the renewal was sent.
    sent: u8,
    /// Whether the store has executed the renewal.
    executed: bool,
}

/// A state of node and store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Time in ticks.
    time: u8,
    /// Clock of the node in ticks.
    clock: u8,
    /// When the store ends the lease at the earliest; `None` after that.
    lease_end: Option<u8>,
    /// Clock of the node at which it stops sending.
    fence: u8,
    /// Renewals on their way, sorted.
    renewals: Vec<Renewal>,
    /// Whether the node has looked at its clock, and is about to send.
    permitted: bool,
    /// Whether the node has just sent.
    sent: bool,
    /// Whether a renewal has moved the fence.
    renewed: bool,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// A tick passes, but not on the clock of the node.
    TickWithoutClock,
    /// The node sends a renewal.
    Renew,
    /// The store executes a renewal.
    Execute(usize),
    /// The answer to a renewal arrives.
    Deliver(usize),
    /// The renewal or its answer is lost.
    Lose(usize),
    /// The store ends the lease.
    EndLease,
    /// The node looks at its clock.
    Look,
    /// The node sends a packet.
    Send,
}

impl Model for Fence {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            time: 0,
            clock: 0,
            lease_end: Some(LEASE),
            fence: LEASE,
            renewals: Vec::new(),
            permitted: false,
            sent: false,
            renewed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // A node that is not stopped sends at the tick at which it has looked at its clock.
        let may_stop = self.condition == Condition::StoppedProcess;
        if state.time < END && (may_stop || !state.permitted) {
            actions.push(Action::Tick);
            if self.condition == Condition::StoppedClock {
                actions.push(Action::TickWithoutClock);
            }
        }
        if state.renewals.len() < RENEWALS {
            actions.push(Action::Renew);
        }
        for (index, renewal) in state.renewals.iter().enumerate() {
            let step = if renewal.executed { Action::Deliver(index) } else { Action::Execute(index) };
            actions.extend([step, Action::Lose(index)]);
        }
        if state.lease_end.is_some_and(|end| state.time >= end) && (may_stop || !state.permitted) {
            actions.push(Action::EndLease);
        }
        if state.permitted {
            actions.push(Action::Send);
        } else if state.clock < state.fence {
            actions.push(Action::Look);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = State { sent: false, ..last.clone() };
        match action {
            Action::Tick => (state.time, state.clock) = (state.time + 1, state.clock + 1),
            Action::TickWithoutClock => state.time += 1,
            Action::Renew => {
                state.renewals.push(Renewal { sent: state.clock, executed: false });
                if self.condition == Condition::CountedWithoutAnswer {
                    state.fence = state.clock + LEASE;
                }
            }
            Action::Execute(index) if state.lease_end.is_some() => {
                state.lease_end = Some(state.time + LEASE);
                state.renewals[index].executed = true;
            }
            // The lease has ended: the renewal fails.
            Action::Execute(index) | Action::Lose(index) => {
                state.renewals.remove(index);
            }
            Action::Deliver(index) => {
                let from = match self.condition {
                    Condition::CountedFromAnswer => state.clock,
                    _ => state.renewals[index].sent,
                };
                state.renewals.remove(index);
                state.renewed |= from + LEASE > state.fence;
                state.fence = state.fence.max(from + LEASE);
            }
            Action::EndLease => state.lease_end = None,
            Action::Look => state.permitted = true,
            Action::Send => (state.permitted, state.sent) = (false, true),
        }
        state.renewals.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HOLDS, |_, state: &State| !state.sent || state.lease_end.is_some()),
            Property::sometimes("the lease ends", |_, state: &State| state.lease_end.is_none()),
            Property::sometimes("a renewal moves the fence, and the node sends", |_, state: &State| {
                state.renewed && state.sent && state.time > LEASE
            }),
            Property::sometimes("the node stops sending before its lease ends", |_, state: &State| {
                state.clock >= state.fence && state.lease_end.is_some()
            }),
        ]
    }
}

/// Name of the property that the fence has.
pub const HOLDS: &str = "the node sends only while it has its lease";
