//! The steps that are possible in a state, what they do, and the properties.

use super::state::{Owner, Phase, Record, Request, State, Used};
use super::{Defect, FINAL, Handover, Numbers, ONE_OWNER};
use stateright::{Model, Property};

/// A step. Owners are takeover counts, requests are indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A node claims the slot, which has no owner.
    Claim,
    /// The lease of an owner ends.
    EndLease(u8),
    /// An owner takes the next step of its beginning.
    Read(u8),
    /// An owner uses a number.
    Use(u8, u8),
    /// An owner submits a request.
    Submit(u8, Request),
    /// An owner stops, and submits its numbers.
    Finish(u8, Request),
    /// The store executes a request, and the answer arrives or is lost.
    Execute {
        /// Position of the request among those on the way.
        request: usize,
        /// Whether the answer arrives.
        is_answered: bool,
    },
}

impl Handover {
    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Begins the numbers of owner `count` behind these of a former one (`core/cell/src/reserve.rs`).
    fn begin(&self, owner: &mut Owner, count: u8, used: Option<Used>) {
        let counts = |used: &Used| {
            let is_known = used.owner >= owner.record.writer || self.is(Defect::NumbersOfEarlierOwner);
            is_known && used.owner < count
        };
        owner.began_with = used.filter(counts);
        let Record { writer, until } = owner.record;
        let (writer, until) = owner.began_with.map_or((writer, until), |used| (used.owner, used.last));
        owner.after = until + (count - writer - 1) * self.block;
        owner.until = owner.after + self.block;
        owner.deletes_used = used.is_some();
        owner.phase = Phase::Active;
    }

    fn actions_of_owner(&self, state: &State, count: u8, owner: &Owner, actions: &mut Vec<Action>) {
        if [state.slot, state.handover].contains(&Some(count)) {
            actions.push(Action::EndLease(count));
        }
        if owner.uses_numbers() || (self.is(Defect::UsedAfterNumbers) && owner.after < owner.until) {
            let all = owner.after + 1..=owner.until;
            let next = match self.numbers {
                Numbers::Sent => owner.last() + 1..=(owner.last() + 1).min(owner.until),
                Numbers::Received => all,
            };
            let is_unused = |number: &u8| owner.used & 1 << number == 0;
            actions.extend(next.filter(is_unused).map(|number| Action::Use(count, number)));
        }
        if owner.waits {
            return;
        }
        match owner.phase {
            Phase::Claimed => {
                actions.push(Action::Read(count));
                if state.handover.is_some() && !state.requests.contains(&(count, Request::Void)) {
                    actions.push(Action::Submit(count, Request::Void));
                }
            }
            Phase::NoHandover | Phase::ReadEarly(_) => actions.push(Action::Read(count)),
            Phase::Confirming(_) => actions.push(Action::Submit(count, Request::Confirm)),
            Phase::Active => self.actions_of_active(state, count, owner, actions),
            Phase::Released => {
                let last = owner.last();
                actions.extend(
                    [true, false]
                        .map(|is_last| Action::Finish(count, Request::LastNumbers { last, is_last })),
                );
            }
            Phase::Stopped { deletes: true } => actions.push(Action::Submit(count, Request::End)),
            Phase::Releasing | Phase::Stopped { deletes: false } => {}
        }
    }

    fn actions_of_active(&self, state: &State, count: u8, owner: &Owner, actions: &mut Vec<Action>) {
        let mut submit = |request| actions.push(Action::Submit(count, request));
        if owner.deletes_used {
            submit(Request::Write { until: None, deletes_used: true });
        } else {
            submit(Request::Release);
        }
        if state.writes < self.writes {
            for until in [owner.until, owner.until + self.block] {
                submit(Request::Write { until: Some(until), deletes_used: false });
                if owner.deletes_used {
                    submit(Request::Write { until: Some(until), deletes_used: true });
                }
            }
        }
        actions.push(Action::Finish(count, Request::Numbers(owner.last())));
    }

    fn read(&self, state: &mut State, count: u8) {
        let (handover, used) = (state.handover, state.used);
        let owner = owner_of(state, count);
        let then = |used| match self.is(Defect::OwnershipNotConfirmed) {
            true => None,
            false => Some(Phase::Confirming(used)),
        };
        let read = match owner.phase {
            Phase::Claimed if self.is(Defect::HandoverReadLast) => {
                owner.phase = Phase::ReadEarly(used);
                return;
            }
            Phase::Claimed if self.is(Defect::NotVoided) && handover.is_some() => None,
            Phase::Claimed if handover.is_none() || self.is(Defect::HandoverIgnored) => {
                owner.phase = Phase::NoHandover;
                return;
            }
            Phase::NoHandover => used,
            Phase::ReadEarly(used) if handover.is_none() => used,
            Phase::ReadEarly(_) => {
                owner.phase = Phase::Claimed;
                return;
            }
            _ => return,
        };
        match then(read) {
            Some(phase) => owner.phase = phase,
            None => self.begin(owner, count, read),
        }
    }

    /// Whether the comparisons of a transaction hold.
    fn holds(&self, state: &State, count: u8, request: Request) -> bool {
        match request {
            Request::LastNumbers { .. } | Request::End => {
                state.handover == Some(count) || self.is(Defect::HandoverNotCompared)
            }
            _ => state.slot == Some(count),
        }
    }

    /// Forgets requests that will be refused whenever they are executed: no owner gets its slot or its entry
    /// a second time. An owner that learns it writes nothing more, as one that never does.
    fn forget_refused(&self, state: &mut State) {
        let requests = std::mem::take(&mut state.requests);
        let is_possible = |(count, request): &(u8, Request)| self.holds(state, *count, *request);
        state.requests = requests.iter().copied().filter(is_possible).collect();
    }

    fn execute(&self, state: &mut State, count: u8, request: Request) {
        match request {
            Request::Void => {
                state.has_voided |= state.handover.is_some();
                state.handover = None;
            }
            Request::Confirm => {}
            Request::Write { until, deletes_used } => {
                if let Some(until) = until {
                    state.record = Record { writer: count, until };
                }
                if deletes_used {
                    state.used = None;
                }
            }
            Request::Release => {
                state.slot = None;
                // An entry that exists keeps the revision at which it was created.
                state.handover = state.handover.or(Some(count));
            }
            Request::Numbers(last) => state.used = Some(Used { owner: count, last }),
            Request::LastNumbers { last, is_last } => {
                state.used = Some(Used { owner: count, last });
                state.handed_over = Some(count);
                if is_last {
                    state.handover = None;
                }
            }
            Request::End => state.handover = None,
        }
    }

    /// The owner takes the answer to a transaction that was executed.
    fn answered(&self, owner: &mut Owner, count: u8, request: Request) {
        owner.waits &= request == Request::Void;
        match (request, owner.phase) {
            (Request::Confirm, Phase::Confirming(used)) => self.begin(owner, count, used),
            (Request::Write { until, deletes_used }, _) => {
                owner.until = until.unwrap_or(owner.until);
                owner.deletes_used &= !deletes_used;
            }
            (Request::Release, _) => owner.phase = Phase::Released,
            (Request::Numbers(_), _) => owner.phase = Phase::Stopped { deletes: false },
            (Request::LastNumbers { is_last, .. }, _) => owner.phase = Phase::Stopped { deletes: !is_last },
            (Request::End, _) => owner.phase = Phase::Stopped { deletes: false },
            _ => {}
        }
    }
}

fn owner_of(state: &mut State, count: u8) -> &mut Owner {
    &mut state.owners[usize::from(count) - 1]
}

impl Model for Handover {
    type State = State;
    type Action = Action;

    /// The first owner has negotiated the SA, and its record is written.
    fn init_states(&self) -> Vec<State> {
        let record = Record { writer: 1, until: self.block };
        let first = Owner { phase: Phase::Active, until: self.block, ..Owner::claimed(record) };
        vec![State {
            slot: Some(1),
            handover: None,
            record,
            used: None,
            owners: vec![first],
            requests: Vec::new(),
            writes: 0,
            has_voided: false,
            handed_over: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.slot.is_none() && state.owners.len() < self.owners {
            actions.push(Action::Claim);
        }
        for (count, owner) in (1..).zip(&state.owners) {
            self.actions_of_owner(state, count, owner, actions);
        }
        for request in 0..state.requests.len() {
            actions.extend([true, false].map(|is_answered| Action::Execute { request, is_answered }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Claim => {
                state.owners.push(Owner::claimed(state.record));
                state.slot = Some(state.owners.len() as u8);
            }
            Action::EndLease(count) => {
                state.slot = state.slot.filter(|owner| *owner != count);
                if self.is_bound_to_lease {
                    state.handover = state.handover.filter(|owner| *owner != count);
                }
            }
            Action::Read(count) => self.read(&mut state, count),
            Action::Use(count, number) => owner_of(&mut state, count).used |= 1 << number,
            Action::Submit(count, request) | Action::Finish(count, request) => {
                state.writes += u8::from(matches!(request, Request::Write { until: Some(_), .. }));
                let owner = owner_of(&mut state, count);
                // An owner goes on to read whether or not its deletion of the entry has an answer.
                owner.waits = request != Request::Void;
                owner.phase = match (action, request) {
                    (Action::Finish(..), _) => Phase::Stopped { deletes: false },
                    (_, Request::Release) => Phase::Releasing,
                    _ => owner.phase,
                };
                state.requests.push((count, request));
                state.requests.sort_unstable();
            }
            Action::Execute { request, is_answered } => {
                let (count, request) = state.requests.remove(request);
                if self.holds(&state, count, request) {
                    self.execute(&mut state, count, request);
                    if is_answered {
                        self.answered(owner_of(&mut state, count), count, request);
                    }
                }
            }
        }
        self.forget_refused(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(ONE_OWNER, one_owner), Property::always(FINAL, numbers_are_final)];
        if self.defect.is_none() {
            properties.extend([
                Property::sometimes("an owner begins with the numbers of a handover", |_, state: &State| {
                    let mut known = state.owners.iter().filter_map(|owner| owner.began_with);
                    known.any(|used| state.handed_over == Some(used.owner))
                }),
                Property::sometimes("an owner begins without the numbers", |_, state: &State| {
                    state.has_voided && has_begun(state, 2, false)
                }),
                Property::sometimes("a former owner goes on beside the next one", |_, state: &State| {
                    let uses = |owner: &&Owner| owner.uses_numbers() && owner.used != 0;
                    state.owners.iter().filter(uses).count() > 1
                }),
                Property::sometimes("two owners begin with the same numbers", |_, state: &State| {
                    has_begun(state, 2, true) && has_begun(state, 3, true)
                }),
            ]);
        }
        properties
    }
}

fn one_owner(_: &Handover, state: &State) -> bool {
    let mut all = 0;
    state.owners.iter().all(|owner| {
        let are_free = all & owner.used == 0;
        all |= owner.used;
        are_free
    })
}

fn numbers_are_final(_: &Handover, state: &State) -> bool {
    let mut known = state.owners.iter().filter_map(|owner| owner.began_with);
    known.all(|used| state.owners[usize::from(used.owner) - 1].last() == used.last)
}

/// Whether an owner uses its numbers, and whether it has begun behind those of a former one.
fn has_begun(state: &State, count: usize, with_numbers: bool) -> bool {
    let owner = state.owners.get(count - 1);
    owner.is_some_and(|owner| owner.used != 0 && owner.began_with.is_some() == with_numbers)
}
