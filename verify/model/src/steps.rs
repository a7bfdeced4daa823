//! The steps of the cell. Each is one action of one node, of the store, or of the network.

use crate::cell::{Action, Cell, State};
use crate::node::{Owner, Phase, Sa};
use crate::protocol::Defect;
use crate::store::{Answer, Record, Request, Response, Transaction};
use crate::wire::Situation;

impl Cell {
    /// Makes a step. `None` if the step changes nothing.
    pub(crate) fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::ReadSlot(node) => return self.read_slot(state, node),
            Action::Claim(node) => self.claim(state, node),
            Action::ReadCount(node) => self.read_count(state, node),
            Action::ReadRecord(node) => self.read_record(state, node, state.store.record),
            Action::ReadRecordEarly(node) => state.nodes[node].early_record = state.store.record,
            Action::ReadOldRecord(node) => self.read_record(state, node, state.store.previous),
            Action::LearnLoss(node) => self.lose_slot(state, node),
            Action::Enter(node) => {
                let epoch = state.nodes[node].epoch()?;
                submit(state, node, Transaction::Enter { epoch });
            }
            Action::Crash(node) => {
                state.left.crashes -= 1;
                state.stop_waiting(node);
                state.nodes[node].restart();
            }
            Action::Execute(request) => self.execute(state, request),
            Action::Deliver(request) => self.deliver(state, request),
            Action::GiveUp(request) => self.give_up(state, request),
            Action::EndLease => state.store.end_lease(),
            Action::BackUp => state.store.back_up(),
            Action::Restore => {
                state.left.restorations -= 1;
                state.store.restore(&self.protocol);
            }
            _ => self.step_of_owner(state, action)?,
        }
        Some(())
    }

    fn note(&self, state: &mut State, situation: Situation, occurs: bool) {
        if self.bounds.situations && occurs {
            state.wire.situations |= 1 << situation as u16;
        }
    }

    /// Compares the identity and the revision of an answer with those that the node has seen. Returns
    /// whether the node goes on.
    fn trusts(&self, state: &mut State, node: usize, answer: Answer) -> bool {
        if self.bounds.restorations == 0 || self.protocol.has(Defect::RestoreNotSeen) {
            return true;
        }
        let node = &mut state.nodes[node];
        let is_other = node.identity.is_some_and(|identity| identity != answer.identity);
        let is_old = answer.revision < node.seen || answer.committed && answer.revision == node.seen;
        if is_other || is_old {
            node.phase = Phase::Stopped;
            return false;
        }
        (node.identity, node.seen) = (Some(answer.identity), answer.revision);
        true
    }

    /// Compares identity and revision of what a node reads.
    fn trusts_read(&self, state: &mut State, node: usize) -> bool {
        let answer =
            Answer { committed: false, revision: state.store.revision, identity: state.store.identity };
        self.trusts(state, node, answer)
    }

    fn read_slot(&self, state: &mut State, node: usize) -> Option<()> {
        if !self.trusts_read(state, node) {
            return Some(());
        }
        let by_name = self.protocol.has(Defect::OwnershipByName);
        let lease = state.nodes[node].lease;
        let own =
            state.store.slot.filter(|slot| slot.lease == lease || by_name && slot.lease.node == lease.node);
        let epoch = state.store.epoch(&self.protocol);
        let known = state.store.record_changed;
        let compares_record = self.protocol.has(Defect::RecordRevisionCompared);
        let has_owner = state.store.slot.is_some();
        let takeovers = state.store.takeovers;
        if let Some(owner) = state.nodes[node].owner_mut() {
            let (Some(_), Some(epoch)) = (own, epoch) else {
                self.lose_slot(state, node);
                return Some(());
            };
            if epoch == owner.epoch && !compares_record {
                return None;
            }
            (owner.epoch, owner.must_enter) = (epoch, false);
            if let Some(sa) = &mut owner.sa {
                sa.known = known;
            }
            self.note(state, Situation::EnteredAgain, true);
            return Some(());
        }
        state.nodes[node].phase = match (own, epoch) {
            (Some(slot), Some(epoch)) => Phase::FoundOwn { created: slot.created, epoch },
            _ if has_owner => return None,
            _ => Phase::FoundFree { takeovers },
        };
        Some(())
    }

    fn claim(&self, state: &mut State, node: usize) {
        let Phase::FoundFree { takeovers } = state.nodes[node].phase else { return };
        let (count, read_at) = (takeovers.0 + 1, takeovers.1);
        submit(state, node, Transaction::Claim { read_at, count });
        state.nodes[node].phase = Phase::Claiming { count };
    }

    /// A takeover count that was changed at another revision than the slot was created is not of this claim.
    fn read_count(&self, state: &mut State, node: usize) {
        let Phase::FoundOwn { created, epoch } = state.nodes[node].phase else { return };
        if !self.trusts_read(state, node) {
            return;
        }
        let (count, changed) = state.store.takeovers;
        let any =
            self.protocol.has(Defect::CountOfAnotherClaim) || self.protocol.has(Defect::CountIncreasedLater);
        if changed == created || any {
            state.nodes[node].phase = Phase::Claimed { epoch, count };
            self.note(state, Situation::ClaimFound, true);
        } else {
            self.lose_slot(state, node);
        }
    }

    fn read_record(&self, state: &mut State, node: usize, read: Option<Record>) {
        let Phase::Claimed { epoch, count } = state.nodes[node].phase else { return };
        if !self.trusts_read(state, node) {
            return;
        }
        let identity = state.store.identity;
        let read = state.nodes[node].early_record.take().or(read);
        let usable = read.filter(|record| record.identity == identity);
        self.note(state, Situation::RestoredRecordRefused, usable.is_none() && read.is_some());
        let known = state.store.record_changed;
        let sa = usable.map(|record| Sa::restored(&self.protocol, record, known, count));
        // A record of a later owner: this node has lost the slot.
        if sa.is_some_and(|sa| sa.is_none()) {
            return self.lose_slot(state, node);
        }
        let owner = Owner { epoch, count, identity, must_enter: false, sa: sa.flatten() };
        state.nodes[node].phase = Phase::Owner(owner);
    }

    fn lose_slot(&self, state: &mut State, node: usize) {
        state.stop_waiting(node);
        state.nodes[node].lose_slot(&self.protocol);
    }

    fn execute(&self, state: &mut State, index: usize) {
        let request = state.requests[index];
        let answer = state.store.execute(&self.protocol, request.lease, request.transaction);
        if let Some(record) = &state.store.record {
            state.wire.record(record);
        }
        if request.awaited {
            state.requests[index].answer = Some(answer);
            return;
        }
        state.requests.remove(index);
        let is_write = matches!(request.transaction, Transaction::Write { .. });
        self.note(state, Situation::LateWrite, is_write && answer.committed);
    }

    fn deliver(&self, state: &mut State, index: usize) {
        let request = state.requests.remove(index);
        let node = usize::from(request.lease.node);
        let Some(answer) = request.answer else { return };
        if !self.trusts(state, node, answer) {
            return;
        }
        let Answer { committed, revision, .. } = answer;
        match request.transaction {
            Transaction::Claim { count, .. } => {
                let epoch = revision;
                let claimed = Phase::Claimed { epoch, count };
                state.nodes[node].phase = if committed { claimed } else { Phase::Idle };
                if committed && self.protocol.has(Defect::CountIncreasedLater) {
                    submit(state, node, Transaction::SetCount(count));
                }
            }
            Transaction::Enter { .. } => {
                if let Some(owner) = state.nodes[node].owner_mut().filter(|_| committed) {
                    (owner.epoch, owner.must_enter) = (revision, false);
                    self.note(state, Situation::EnteredAgain, true);
                }
            }
            Transaction::Write { record, .. } if committed => self.confirm(state, node, record, revision),
            // The slot has another owner, or this node has entered itself again: it reads the slot.
            Transaction::Write { .. } => {
                if let Some(owner) = state.nodes[node].owner_mut() {
                    owner.must_enter = true;
                }
            }
            Transaction::SetCount(_) => {}
        }
    }

    fn confirm(&self, state: &mut State, node: usize, record: Option<Record>, revision: u8) {
        let Some(owner) = state.nodes[node].owner_mut() else { return };
        let Some(sa) = &mut owner.sa else { return };
        match record {
            Some(record) => {
                let extended = record.reserved > sa.limit && owner.count > 1;
                sa.confirm(&self.protocol, record, revision);
                self.note(state, Situation::ExtendedAfterTakeover, extended);
            }
            None => {
                owner.sa = None;
                state.wire.deleted = true;
                self.note(state, Situation::Deleted, true);
            }
        }
    }

    fn give_up(&self, state: &mut State, index: usize) {
        state.left.unanswered -= 1;
        let request = state.requests[index];
        if request.answer.is_some() {
            state.requests.remove(index);
        } else {
            state.requests[index].awaited = false;
        }
        let node = &mut state.nodes[usize::from(request.lease.node)];
        match request.transaction {
            Transaction::Claim { .. } => node.phase = Phase::Idle,
            Transaction::Write { .. } => {
                let Some(owner) = node.owner_mut() else { return };
                owner.must_enter = !self.protocol.has(Defect::CreateRevisionAsEpoch);
                let undone = self.protocol.has(Defect::IvCounterUndone);
                let is_change =
                    |sa: &Sa| sa.planned.flatten().is_some_and(|new| new.response != sa.record.response);
                if let Some(sa) = owner.sa.as_mut().filter(|sa| undone && is_change(sa)) {
                    (sa.planned, sa.iv) = (None, sa.iv_before);
                }
            }
            Transaction::Enter { .. } | Transaction::SetCount(_) => {}
        }
    }

    /// The response that an owner sends when the peer repeats its request, with the number of the request.
    pub(crate) fn response_of(&self, owner: &Owner) -> Option<(u8, Response)> {
        let sa = owner.sa.as_ref()?;
        let planned = sa.planned.flatten().filter(|_| self.protocol.has(Defect::ResponseBeforeWrite));
        let record = planned.unwrap_or(sa.record);
        Some((record.answered, record.response?))
    }

    /// Steps that only an owner makes.
    fn step_of_owner(&self, state: &mut State, action: Action) -> Option<()> {
        let (Action::Negotiate(node)
        | Action::Send(node)
        | Action::Extend(node)
        | Action::Answer(node)
        | Action::Respond(node)
        | Action::RespondLiveness(node)
        | Action::Accept(node, _)
        | Action::Delete(node)
        | Action::Repeat(node)) = action
        else {
            return None;
        };
        let mut owner = *state.nodes[node].owner()?;
        let is_former = state.store.epoch(&self.protocol) != Some(owner.epoch);
        let mut sa = match owner.sa {
            Some(sa) => sa,
            None => Sa::negotiated(&self.protocol, owner.count, owner.identity),
        };
        let mut next = sa.next_record(&self.protocol, owner.count, owner.identity);
        match action {
            Action::Negotiate(_) => state.wire.negotiated = true,
            Action::Send(_) => {
                state.wire.send(sa.next);
                sa.next += 1;
                self.note(state, Situation::Takeover, owner.count == 2);
                self.note(state, Situation::SecondTakeover, owner.count == 3);
                self.note(state, Situation::FormerOwnerSends, is_former);
            }
            Action::Accept(_, number) => {
                state.wire.accept(number);
                sa.window |= 1 << number;
                self.note(state, Situation::AcceptedAfterTakeover, owner.count > 1);
                self.note(state, Situation::FormerOwnerAccepts, is_former);
            }
            Action::Respond(_) => {
                let (request, response) = self.response_of(&owner)?;
                state.wire.respond(request, response);
                self.note(state, Situation::ResponseRepeated, response.iv.0 != owner.count);
            }
            Action::Extend(_) => {
                state.left.extensions -= 1;
                if let Some(Some(planned)) = sa.planned {
                    next = planned;
                }
                next.reserved += self.protocol.block;
                next.accepted += self.protocol.block;
                if self.protocol.has(Defect::ExtensionBeforeConfirmation) {
                    sa.limit = next.reserved;
                }
                sa.planned = Some(Some(next));
            }
            Action::Answer(_) => {
                sa.iv_before = sa.iv;
                next.answered += 1;
                next.response = Some(self.encrypt(state, &mut sa, owner.count));
                sa.planned = Some(Some(next));
            }
            Action::RespondLiveness(_) => {
                state.left.liveness -= 1;
                let response = self.encrypt(state, &mut sa, owner.count);
                state.wire.use_iv(response);
            }
            Action::Delete(_) => {
                state.left.deletions -= 1;
                sa.planned = Some(None);
            }
            _ => {}
        }
        let writes = matches!(
            action,
            Action::Negotiate(_)
                | Action::Extend(_)
                | Action::Answer(_)
                | Action::Delete(_)
                | Action::Repeat(_)
        );
        let overlaps = self.protocol.has(Defect::SecondWriteBeforeAnswer);
        owner.sa = Some(sa);
        state.nodes[node].phase = Phase::Owner(owner);
        let may_write = writes && !owner.must_enter && (overlaps || !state.awaits(node));
        if let Some(record) = sa.planned.filter(|_| may_write) {
            submit(state, node, Transaction::Write { epoch: owner.epoch, known: sa.known, record });
        }
        Some(())
    }
}

impl Cell {
    /// Encrypts a response with the next IV.
    fn encrypt(&self, state: &mut State, sa: &mut Sa, count: u8) -> Response {
        state.wire.contents += 1;
        sa.iv += 1;
        let prefix = if self.protocol.has(Defect::IvWithoutCount) { 0 } else { count };
        Response { iv: (prefix, sa.iv), content: state.wire.contents }
    }
}

fn submit(state: &mut State, node: usize, transaction: Transaction) {
    let lease = state.nodes[node].lease;
    state.requests.push(Request { lease, awaited: true, transaction, answer: None });
}

impl State {
    /// Requests of a node that does not wait for answers any longer: they may still be executed.
    fn stop_waiting(&mut self, node: usize) {
        let lease = self.nodes[node].lease;
        self.requests.retain(|request| request.lease != lease || request.answer.is_none());
        for request in self.requests.iter_mut().filter(|request| request.lease == lease) {
            request.awaited = false;
        }
    }
}
