//! The cell as a state machine: which steps are possible in a state. `steps` makes them.

use crate::node::{Node, Owner, Phase};
use crate::protocol::{Bounds, Defect, Protocol};
use crate::store::{Record, Request, Store, Transaction};
use crate::wire::{self, Wire};
use stateright::{Model, Property};

/// The model: a protocol, and the bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The protocol.
    pub protocol: Protocol,
    /// How often each thing may happen.
    pub bounds: Bounds,
}

/// A state of the whole cell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The store.
    pub store: Store,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Transactions on their way, sorted: the store may execute them in any order.
    pub requests: Vec<Request>,
    /// What the network has seen.
    pub wire: Wire,
    /// What may still happen.
    pub left: Bounds,
}

/// A step. `Node` stands for the index of a node, `Request` for an index in [`State::requests`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The node reads the slot and, if the slot is free, the takeover count.
    ReadSlot(usize),
    /// The node submits its claim.
    Claim(usize),
    /// The node, which has found its own lease in the slot, reads the takeover count.
    ReadCount(usize),
    /// The node reads the record.
    ReadRecord(usize),
    /// The node reads the record before it claims the slot.
    ReadRecordEarly(usize),
    /// The node takes the record from a watch that is behind.
    ReadOldRecord(usize),
    /// The node learns that its lease has ended.
    LearnLoss(usize),
    /// The node negotiates the SA, and submits its record.
    Negotiate(usize),
    /// The node sends a packet of the SA.
    Send(usize),
    /// The node submits a record with longer reserves.
    Extend(usize),
    /// The node receives a request of the peer, and submits the record with the response.
    Answer(usize),
    /// The node sends the recorded response. The peer, or the network, may repeat its request at any time.
    Respond(usize),
    /// The node responds to a liveness check, without a write.
    RespondLiveness(usize),
    /// The node accepts the peer's packet with this sequence number.
    Accept(usize, u8),
    /// The node submits the deletion of the record.
    Delete(usize),
    /// The node submits its planned record again.
    Repeat(usize),
    /// The node submits its own entry again.
    Enter(usize),
    /// The node loses everything it had in memory, and starts again.
    Crash(usize),
    /// The store executes the request.
    Execute(usize),
    /// The answer to the request arrives.
    Deliver(usize),
    /// The node does not wait for the request any longer.
    GiveUp(usize),
    /// The lease of the owner ends.
    EndLease,
    /// The store is backed up.
    BackUp,
    /// The store is restored from the backup.
    Restore,
}

impl Model for Cell {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut store = Store::default();
        let mut wire = Wire::default();
        if self.bounds.stored {
            let block = self.protocol.block;
            let record = Record {
                reserved: block,
                accepted: block,
                count: 1,
                answered: 0,
                response: None,
                identity: 0,
            };
            (store.revision, store.takeovers) = (2, (1, 1));
            (store.record, store.record_changed) = (Some(record), 2);
            // The former owner has used all of its reserve.
            wire.negotiated = true;
            wire.sent = (1 << (block + 1)) - 2;
            wire.accepted = wire.sent;
        }
        let nodes = (0..self.bounds.nodes).map(Node::new).collect();
        vec![State { store, nodes, requests: Vec::new(), wire, left: self.bounds }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, node) in state.nodes.iter().enumerate() {
            self.actions_of_node(state, index, node, actions);
        }
        for (index, request) in state.requests.iter().enumerate() {
            match request.answer {
                None => actions.push(Action::Execute(index)),
                Some(_) => actions.push(Action::Deliver(index)),
            }
            if request.awaited && state.left.unanswered > 0 {
                actions.push(Action::GiveUp(index));
            }
        }
        if state.store.slot.is_some() {
            actions.push(Action::EndLease);
        }
        if state.left.restorations > 0 {
            let action = if state.store.backup.is_some() { Action::Restore } else { Action::BackUp };
            actions.push(action);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action)?;
        self.forget_void_requests(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        wire::properties(self)
    }
}

impl Cell {
    fn actions_of_node(&self, state: &State, index: usize, node: &Node, actions: &mut Vec<Action>) {
        match &node.phase {
            Phase::Idle => {
                actions.push(Action::ReadSlot(index));
                if self.protocol.has(Defect::RecordsReadBeforeClaim) {
                    actions.push(Action::ReadRecordEarly(index));
                }
            }
            Phase::FoundFree { takeovers } if takeovers.0 < self.bounds.takeovers => {
                actions.push(Action::Claim(index));
            }
            Phase::FoundOwn { .. } => actions.push(Action::ReadCount(index)),
            Phase::Claimed { .. } => {
                actions.push(Action::ReadRecord(index));
                if self.protocol.has(Defect::RecordsOfOldWatch) {
                    actions.push(Action::ReadOldRecord(index));
                }
            }
            Phase::Owner(owner) => self.actions_of_owner(state, index, owner, actions),
            Phase::FoundFree { .. } | Phase::Claiming { .. } | Phase::Stopped => {}
        }
        let believes = node.epoch().is_some();
        let owns = state.store.slot.is_some_and(|slot| slot.lease == node.lease);
        if believes && !owns {
            actions.push(Action::LearnLoss(index));
        }
        if state.left.crashes > 0 && node.phase != Phase::Idle {
            actions.push(Action::Crash(index));
        }
    }

    fn actions_of_owner(&self, state: &State, index: usize, owner: &Owner, actions: &mut Vec<Action>) {
        let waits = state.awaits(index);
        if owner.must_enter && !waits {
            actions.push(Action::ReadSlot(index));
            actions.push(Action::Enter(index));
        }
        let Some(sa) = &owner.sa else {
            if !state.wire.negotiated {
                actions.push(Action::Negotiate(index));
            }
            return;
        };
        let highest = if self.protocol.has(Defect::FenceInsteadOfReserves) {
            // Bounded, so that the space of states is.
            self.bounds.takeovers * self.protocol.block
        } else {
            sa.limit
        };
        if self.bounds.outbound && sa.next <= highest {
            actions.push(Action::Send(index));
        }
        let numbers = sa.accept_from..=sa.accept_to.min(self.bounds.inbound);
        let fresh = numbers.filter(|number| sa.window & (1 << number) == 0);
        actions.extend(fresh.map(|number| Action::Accept(index, number)));
        if self.response_of(owner).is_some() {
            actions.push(Action::Respond(index));
        }
        if state.left.liveness > 0 {
            actions.push(Action::RespondLiveness(index));
        }
        let overlaps = self.protocol.has(Defect::SecondWriteBeforeAnswer) && waits;
        if sa.planned.is_some() && !overlaps {
            if !waits && !owner.must_enter {
                actions.push(Action::Repeat(index));
            }
            return;
        }
        if state.left.extensions > 0 {
            actions.push(Action::Extend(index));
        }
        // The peer sends a request when it has the response to the one before.
        let answered = sa.record.answered;
        if answered < self.bounds.ike_requests && usize::from(answered) <= state.wire.received.len() {
            actions.push(Action::Answer(index));
        }
        if state.left.deletions > 0 {
            actions.push(Action::Delete(index));
        }
    }

    /// Removes requests for which no node waits, and whose comparisons can never hold again. Epochs are not
    /// used again unless the store is restored from a backup.
    fn forget_void_requests(&self, state: &mut State) {
        if self.bounds.restorations == 0 && !self.protocol.has(Defect::NoEpochComparison) {
            let store = &state.store;
            let valid = store.epoch(&self.protocol);
            state.requests.retain(|request| {
                let possible = match request.transaction {
                    Transaction::Claim { read_at, .. } => {
                        !store.ended.contains(&request.lease)
                            && (read_at == store.takeovers.1 || self.protocol.has(Defect::CountNotCompared))
                    }
                    Transaction::Enter { epoch } | Transaction::Write { epoch, .. } => valid == Some(epoch),
                    Transaction::SetCount(_) => true,
                };
                request.awaited || possible
            });
        }
        state.requests.sort_unstable();
    }
}

impl State {
    /// Whether a node waits for an answer.
    #[must_use]
    pub fn awaits(&self, node: usize) -> bool {
        let lease = self.nodes[node].lease;
        self.requests.iter().any(|request| request.awaited && request.lease == lease)
    }
}
