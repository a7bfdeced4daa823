//! What the network has seen, and the properties that must hold: an observer of all nodes, which no node
//! reads.

use crate::cell::{Cell, State};
use crate::node::Node;
use crate::store::{Record, Response};
use stateright::Property;

/// What all nodes together have sent and accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Wire {
    /// Sequence numbers of the SA that were sent, one bit each.
    pub sent: u32,
    /// Whether a sequence number was sent twice.
    pub number_repeated: bool,
    /// Sequence numbers of the peer that were accepted, one bit each.
    pub accepted: u32,
    /// Whether a packet of the peer was accepted twice.
    pub accepted_twice: bool,
    /// Responses that were sent, without those that repeat the bytes of another one.
    pub responses: Vec<Response>,
    /// Whether one IV was used for two contents.
    pub iv_repeated: bool,
    /// The response that the peer has received for each of its requests: the first one.
    pub received: Vec<u8>,
    /// Contents of responses that a record had, one bit each.
    pub recorded: u32,
    /// Whether a response left before a record had it.
    pub unrecorded: bool,
    /// Number of responses that were encrypted.
    pub contents: u8,
    /// Whether the SA was negotiated.
    pub negotiated: bool,
    /// Whether an owner knows that the record is deleted.
    pub deleted: bool,
    /// Situations that occurred, one bit each.
    pub situations: u16,
}

/// A situation that the model must reach, so that its properties say something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    /// The second owner sends.
    Takeover,
    /// The third owner sends.
    SecondTakeover,
    /// A former owner sends from its own reserve, after its lease has ended.
    FormerOwnerSends,
    /// A former owner accepts a packet from its own range.
    FormerOwnerAccepts,
    /// An owner that took over has extended its reserve.
    ExtendedAfterTakeover,
    /// An owner that took over accepts a packet.
    AcceptedAfterTakeover,
    /// An owner repeats the response of a former one.
    ResponseRepeated,
    /// The store executes a write for which no node waits any longer.
    LateWrite,
    /// An owner has entered itself again after a write without an answer.
    EnteredAgain,
    /// A node continues with a claim whose answer it did not receive.
    ClaimFound,
    /// The SA was deleted.
    Deleted,
    /// A node has refused a record of a store that was restored.
    RestoredRecordRefused,
}

impl Wire {
    /// Notes an outbound packet.
    pub fn send(&mut self, number: u8) {
        let bit = 1 << number;
        self.number_repeated |= self.sent & bit != 0;
        self.sent |= bit;
    }

    /// Notes that a node accepted a packet.
    pub fn accept(&mut self, number: u8) {
        let bit = 1 << number;
        self.accepted_twice |= self.accepted & bit != 0;
        self.accepted |= bit;
    }

    /// Notes that the store has a record.
    pub fn record(&mut self, record: &Record) {
        self.recorded |= record.response.map_or(0, |response| 1 << response.content);
    }

    /// Notes the response to the peer's request `request`, counted from 1.
    pub fn respond(&mut self, request: u8, response: Response) {
        self.unrecorded |= self.recorded & (1 << response.content) == 0;
        self.use_iv(response);
        if self.received.len() + 1 == usize::from(request) {
            self.received.push(response.content);
        }
    }

    /// Notes a response on the network.
    pub fn use_iv(&mut self, response: Response) {
        self.iv_repeated |=
            self.responses.iter().any(|other| other.iv == response.iv && other.content != response.content);
        if !self.responses.contains(&response) {
            self.responses.push(response);
            self.responses.sort_unstable();
        }
    }
}

/// Names of the properties that hold in every state.
pub const ALWAYS: [&str; 6] = [
    "no sequence number is sent twice",
    "no IV is used twice",
    "no packet is accepted twice",
    "no response is visible that is not recorded",
    "one node at most has a valid epoch",
    "no deleted record returns",
];

/// The properties of a run: those that always hold, or with [`crate::Bounds::situations`] those that
/// sometimes do.
#[must_use]
pub fn properties(cell: &Cell) -> Vec<Property<Cell>> {
    if cell.bounds.situations {
        return vec![
            Property::sometimes("takeover", |_, state| occurred(state, Situation::Takeover)),
            Property::sometimes("second takeover", |_, state| occurred(state, Situation::SecondTakeover)),
            Property::sometimes("former owner sends", |_, state| {
                occurred(state, Situation::FormerOwnerSends)
            }),
            Property::sometimes("former owner accepts", |_, state| {
                occurred(state, Situation::FormerOwnerAccepts)
            }),
            Property::sometimes("extended after takeover", |_, state| {
                occurred(state, Situation::ExtendedAfterTakeover)
            }),
            Property::sometimes("accepted after takeover", |_, state| {
                occurred(state, Situation::AcceptedAfterTakeover)
            }),
            Property::sometimes("response repeated", |_, state| occurred(state, Situation::ResponseRepeated)),
            Property::sometimes("late write", |_, state| occurred(state, Situation::LateWrite)),
            Property::sometimes("entered again", |_, state| occurred(state, Situation::EnteredAgain)),
            Property::sometimes("claim found", |_, state| occurred(state, Situation::ClaimFound)),
            Property::sometimes("deleted", |_, state| occurred(state, Situation::Deleted)),
            Property::sometimes("restored record refused", |_, state| {
                occurred(state, Situation::RestoredRecordRefused)
            }),
        ];
    }
    let [number, iv, accepted, recorded, epoch, deleted] = ALWAYS;
    vec![
        Property::always(number, |_, state: &State| !state.wire.number_repeated),
        Property::always(iv, |_, state: &State| !state.wire.iv_repeated),
        Property::always(accepted, |_, state: &State| !state.wire.accepted_twice),
        Property::always(recorded, |_, state: &State| !state.wire.unrecorded && keeps_responses(state)),
        Property::always(epoch, |cell: &Cell, state: &State| valid_epochs(cell, state) <= 1),
        Property::always(deleted, |_, state: &State| !state.wire.deleted || record(state).is_none()),
    ]
}

fn occurred(state: &State, situation: Situation) -> bool {
    state.wire.situations & (1 << situation as u16) != 0
}

/// The record of the SA that a next owner would continue.
fn record(state: &State) -> Option<&Record> {
    state.store.record.as_ref().filter(|record| record.identity == state.store.identity)
}

/// Whether the record still has the last response that the peer received.
fn keeps_responses(state: &State) -> bool {
    let (Some(content), Some(record)) = (state.wire.received.last(), record(state)) else { return true };
    let (answered, received) = (usize::from(record.answered), state.wire.received.len());
    let has_content = record.response.is_some_and(|response| response.content == *content);
    answered > received || answered == received && has_content
}

/// Number of nodes whose epoch is that of the slot. Revisions begin again after a restoration, so a node that
/// has not noticed it may have the same number; the identity of the store makes the difference.
fn valid_epochs(cell: &Cell, state: &State) -> usize {
    let Some(epoch) = state.store.epoch(&cell.protocol) else { return 0 };
    let is_of_store = |node: &&Node| node.identity.is_none_or(|identity| identity == state.store.identity);
    state.nodes.iter().filter(is_of_store).filter(|node| node.epoch() == Some(epoch)).count()
}
