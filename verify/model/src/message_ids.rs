//! Message IDs of the owner's own requests, which the peer expects one after the other (RFC 7296 section
//! 2.2, window size 1).
//!
//! The peer takes a request with the ID before the expected one for a repeated request, and sends the
//! response that it has kept. It ignores older IDs. An owner that continues with an ID that the peer has
//! already seen therefore receives the response to another request, or none.

use stateright::{Model, Property};

/// Owners of a run, one after the other. Former ones stay active.
const OWNERS: usize = 3;
/// Highest message ID of a run.
const LAST_ID: u8 = 4;

/// When the message ID of a liveness check is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivenessRule {
    /// With the next change, however many checks are before it.
    WithNextChange,
    /// Before the check leaves, as for every other request.
    BeforeItLeaves,
    /// With the next change, but a check that is not written is the last request before the write; and the
    /// first request of the next owner is a check.
    OneAtMost,
    /// As before, but the next owner begins with any request.
    OneAtMostThenAny,
}

/// Model of the owners of one IKE SA and the peer.
#[derive(Debug, Clone, Copy)]
pub struct MessageIds {
    /// When the message ID of a liveness check is written.
    pub rule: LivenessRule,
}

/// A request. Requests with the same content have the same effect at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Message ID.
    id: u8,
    /// 0 for a liveness check; otherwise different for each request.
    content: u8,
}

const LIVENESS: u8 = 0;

/// An owner, or a former one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Message ID of the next request.
    next: u8,
    /// The request without a response.
    outstanding: Option<Request>,
    /// Message ID of the next request according to the record.
    written: u8,
    /// Whether the owner has a response to a request of its own.
    is_synchronized: bool,
}

/// A state of owners, record, network and peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Owners; the last one has the slot.
    owners: Vec<Owner>,
    /// The record: message ID of the next request, and the request that is outstanding.
    record: (u8, Option<Request>),
    /// Message ID that the peer expects.
    expected: u8,
    /// Requests that were sent, sorted. The network may deliver them at any time, and again.
    sent: Vec<Request>,
    /// Requests to which the peer has sent responses, sorted.
    responses: Vec<Request>,
    /// Number of requests that were not liveness checks.
    contents: u8,
    /// Whether the owner took the response to another request for that to its own.
    confused: bool,
}

/// A step. Owners, requests and responses are indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The owner sends a liveness check.
    CheckLiveness(usize),
    /// The owner writes its record, and sends another request.
    Request(usize),
    /// The network delivers a request to the peer.
    DeliverRequest(usize),
    /// The network delivers a response to an owner.
    DeliverResponse(usize, usize),
    /// The next owner reads the record, and repeats the outstanding request.
    TakeOver,
}

impl MessageIds {
    fn is_checked_first(&self, owner: &Owner) -> bool {
        self.rule != LivenessRule::OneAtMost || owner.is_synchronized
    }

    fn actions_of_owner(&self, state: &State, index: usize, owner: &Owner, actions: &mut Vec<Action>) {
        let has_slot = index + 1 == state.owners.len();
        if owner.outstanding.is_none() && owner.next <= LAST_ID {
            let may_check = match self.rule {
                LivenessRule::WithNextChange => true,
                LivenessRule::BeforeItLeaves => has_slot,
                LivenessRule::OneAtMost | LivenessRule::OneAtMostThenAny => {
                    has_slot || owner.written == owner.next
                }
            };
            if may_check {
                actions.push(Action::CheckLiveness(index));
            }
            // A former owner cannot write, so that its request does not leave.
            if has_slot && self.is_checked_first(owner) {
                actions.push(Action::Request(index));
            }
        }
        let awaited = |request: &Request| owner.outstanding.is_some_and(|own| own.id == request.id);
        let responses = state.responses.iter().enumerate().filter(|(_, request)| awaited(request));
        actions.extend(responses.map(|(response, _)| Action::DeliverResponse(index, response)));
    }

    fn send(state: &mut State, request: Request) {
        if !state.sent.contains(&request) {
            state.sent.push(request);
            state.sent.sort_unstable();
        }
    }
}

impl Model for MessageIds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            owners: vec![Owner { next: 0, outstanding: None, written: 0, is_synchronized: true }],
            record: (0, None),
            expected: 0,
            sent: Vec::new(),
            responses: Vec::new(),
            contents: 0,
            confused: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, owner) in state.owners.iter().enumerate() {
            self.actions_of_owner(state, index, owner, actions);
        }
        actions.extend((0..state.sent.len()).map(Action::DeliverRequest));
        if state.owners.len() < OWNERS {
            actions.push(Action::TakeOver);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::CheckLiveness(index) => {
                let has_slot = index + 1 == state.owners.len();
                let owner = &mut state.owners[index];
                let request = Request { id: owner.next, content: LIVENESS };
                let late = matches!(self.rule, LivenessRule::OneAtMost | LivenessRule::OneAtMostThenAny);
                if self.rule == LivenessRule::BeforeItLeaves {
                    state.record = (owner.next, Some(request));
                } else if late && has_slot && owner.written != owner.next {
                    // The ID of the check before is written first.
                    owner.written = owner.next;
                    state.record = (owner.next, None);
                }
                owner.outstanding = Some(request);
                Self::send(&mut state, request);
            }
            Action::Request(index) => {
                state.contents += 1;
                let owner = &mut state.owners[index];
                let request = Request { id: owner.next, content: state.contents };
                owner.outstanding = Some(request);
                owner.written = owner.next;
                state.record = (owner.next, Some(request));
                Self::send(&mut state, request);
            }
            Action::DeliverRequest(index) => {
                let request = state.sent[index];
                if request.id == state.expected {
                    state.expected += 1;
                    state.responses.push(request);
                    state.responses.sort_unstable();
                } else {
                    // The peer repeats its response, or ignores the request. Neither changes the state: the
                    // network may deliver each response again, too.
                    return None;
                }
            }
            Action::DeliverResponse(index, response) => {
                let response = state.responses[response];
                let owner = &mut state.owners[index];
                state.confused |= owner.outstanding != Some(response);
                owner.outstanding = None;
                owner.next += 1;
                owner.is_synchronized = true;
            }
            Action::TakeOver => {
                let (next, outstanding) = state.record;
                state.owners.push(Owner { next, outstanding, written: next, is_synchronized: false });
                if let Some(request) = outstanding {
                    Self::send(&mut state, request);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(OWN_RESPONSE, |_, state: &State| !state.confused),
            Property::always(IN_WINDOW, |_, state: &State| {
                state.owners.last().is_none_or(|owner| {
                    let next = owner.outstanding.map_or(owner.next, |request| request.id);
                    next <= state.expected && next + 1 >= state.expected
                })
            }),
            Property::sometimes("the third owner has a response", |_, state: &State| {
                state.owners.get(2).is_some_and(|owner| owner.is_synchronized)
            }),
        ]
    }
}

/// Name of a property: an owner receives the response to its own request.
pub const OWN_RESPONSE: &str = "a response belongs to the request of its owner";
/// Name of a property: the peer answers the next request of the present owner.
pub const IN_WINDOW: &str = "the peer answers the next request of the owner";
