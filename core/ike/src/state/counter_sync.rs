//! Synchronization of message IDs and sequence numbers (RFC 6311).
//!
//! As the peer of a cluster, this host moves to the message IDs that the cluster announces, and leaves out
//! sequence numbers that the cluster does not accept any more.
//!
//! As the next owner of an IKE SA, this host asks its peer to leave out the sequence numbers up to the end of
//! the reserve of received numbers. It does not synchronize message IDs: all of its own are in the
//! record, and those of the peer may be higher than expected. So it uses a regular exchange, which is
//! repeated until the response arrives, and which the peer executes once (section 5, case 2).

use super::established::Phase;
use super::tasks::Pending;
use crate::child_sa::{ChildSa, PeerNumbers};
use crate::config::ReplayTakeover;
use crate::context::Step;
use crate::counter_sync::{SyncRequest, requested_skip, write_skip};
use crate::state::{Established, IkeSa, SaCommon, State, Task};
use crate::transport::Content;
use crate::{ChildSequence, Event, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;

/// Sequence number without extension from which on a Child SA is rekeyed as well: three quarters of all.
const NEAR_END: u64 = (u32::MAX / 4 * 3) as u64;

impl IkeSa {
    /// Notes what a former owner has received of Child SAs, by the SPIs of their inbound SAs.
    pub(crate) fn set_peer_numbers(&mut self, numbers: &BTreeMap<u32, ChildSequence>) {
        let State::Established(state) = &mut self.state else { return };
        let policy = self.common.connection.replay_takeover;
        for child in &mut state.contents.children {
            if let Some(ChildSequence { received, reached, .. }) = numbers.get(&child.agreed.spi_in.get()) {
                child.restored_numbers = Some(Box::new(peer_numbers(*received, *reached, policy)));
            }
        }
    }

    /// Whether an owner of the IKE SA has nothing to do after the restoration.
    pub(crate) fn is_idle_owner(&self) -> bool {
        let State::Established(state) = &self.state else { return false };
        state.phase == Phase::Open && state.tasks.is_empty() && !state.children().iter().any(is_behind)
    }

    /// Begins what is to be done after the restoration.
    pub(crate) fn begin_restored(mut self, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.follow_peer_numbers(&self.common, step.context.now);
        }
        self.start_next_task(step)
    }

    /// Handles a request to synchronize message IDs.
    pub(crate) fn on_synchronization(
        mut self,
        request: SyncRequest,
        path: Path,
        step: &mut Step<'_, '_>,
    ) -> Self {
        self.state = match self.state {
            State::Established(state) => state.on_synchronization(&mut self.common, request, path, step),
            // Support is known once the IKE SA is established.
            state => state,
        };
        self
    }
}

impl Established {
    /// Moves to the message IDs of a cluster, unless the request is a repetition, and leaves out sequence
    /// numbers.
    fn on_synchronization(
        mut self: Box<Self>,
        common: &mut SaCommon,
        request: SyncRequest,
        path: Path,
        step: &mut Step<'_, '_>,
    ) -> State {
        let channel = &mut self.channel;
        let Some(ids) = channel.window.synchronize(request.ids, &mut channel.sync) else {
            step.sa_fault(StateFault::MessageId.into(), path, common);
            return State::Established(self);
        };
        self.note_received(common, path, step);
        if self.channel.send_message_ids(ids, path, step).is_err() {
            step.sa_fault(StateFault::Provider.into(), path, common);
        }
        self.begin_exchange_again(common, step);
        request.skip.into_iter().for_each(|count| self.skip_numbers(common, count, step));
        self.start_next_task(common, step)
    }

    /// Asks again for what the outstanding request asked for: its response is not awaited any more. The
    /// cluster may have executed it, or not.
    fn begin_exchange_again(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        let purpose = self.purpose();
        let again = match self.pending.take() {
            None => None,
            Some(Pending::Child(pending)) => {
                step.host.release_spi(pending.negotiation.spi);
                self.replace_lost(common, purpose, step);
                let request = pending.negotiation.request;
                if request.replaces.is_none() {
                    self.tasks.push_back(Task::Child(Box::new(request)));
                }
                None
            }
            Some(Pending::Rekey(pending)) => {
                match pending.simultaneous {
                    Some(simultaneous) => self.yield_to(&simultaneous, common, step),
                    None => self.replace_lost(common, purpose, step),
                }
                None
            }
            Some(Pending::Lost(_)) => {
                self.replace_lost(common, purpose, step);
                None
            }
            Some(Pending::DeleteChild { id, reason }) => Some(Task::DeleteChild(id, reason)),
            Some(Pending::DeleteIke(reason)) => Some(Task::DeleteIke(reason)),
            Some(Pending::DeleteSpi(spi)) => Some(Task::DeleteSpi(spi)),
            Some(Pending::Synchronize) => Some(Task::Synchronize),
            Some(Pending::SendCrashToken) => Some(Task::SendCrashToken),
            Some(Pending::Ticket) => Some(Task::RequestTicket),
            Some(pending) => pending.address_task(),
        };
        self.abandon_probe(step.context.now);
        again.into_iter().for_each(|task| self.tasks.push_front(task));
    }

    /// How many sequence numbers a regular request asks to leave out. `None` unless both peers support that.
    pub(super) fn requested_skip(&self, content: &Content<'_>) -> Result<Option<u64>, PeerFault> {
        if self.channel.sync.support.numbers { requested_skip(content) } else { Ok(None) }
    }

    /// Leaves out sequence numbers of all outbound SAs (RFC 6311 section 5.2).
    pub(super) fn skip_numbers(&mut self, common: &SaCommon, count: u64, step: &mut Step<'_, '_>) {
        let sync = &mut self.channel.sync;
        if !sync.support.numbers || count == 0 {
            return;
        }
        sync.skipped = sync.skipped.saturating_add(count);
        let (connection, children) = (common.connection.clone(), self.children_in_use());
        step.event(Event::NumbersSkipped { ike: common.id, connection, children, count });
    }

    /// Plans what makes the peer use sequence numbers that this host accepts, after it has taken the IKE SA
    /// over. The policy of the connection decides.
    pub(super) fn follow_peer_numbers(&mut self, common: &SaCommon, now: Instant) {
        let policy = common.connection.replay_takeover;
        if policy == ReplayTakeover::Strict || self.phase != Phase::Open || self.closing_reason().is_some() {
            return;
        }
        let skip = self.numbers_to_skip().filter(|_| policy == ReplayTakeover::Sync);
        let mut is_needed = false;
        for child in self.contents.children.iter_mut().filter(|child| is_behind(child)) {
            let reaches = skip.map(|skip| child.peer_numbers().start.saturating_add(skip));
            let is_near_end = |last| !child.agreed.suite.esn && last > NEAR_END;
            // The peer leaves out numbers of the Child SAs that it has.
            let follows = child.peer_numbers().are_in_use();
            is_needed |= follows;
            if !follows || reaches.is_none_or(is_near_end) {
                child.rekey_at = Some(now);
            }
        }
        if is_needed && skip.is_some() {
            self.tasks.push_front(Task::Synchronize);
        }
    }

    /// How many numbers the peer has to leave out so that all Child SAs accept its packets. `None` if that
    /// is not known for any, or the peer cannot be asked: it does not support that, or some Child SAs have
    /// extended sequence numbers and others do not (RFC 6311 section 6.4).
    fn numbers_to_skip(&self) -> Option<u64> {
        let children = self.children();
        let is_extended = children.first()?.agreed.suite.esn;
        let is_uniform = children.iter().all(|child| child.agreed.suite.esn == is_extended);
        let behind = children.iter().filter(|child| is_behind(child));
        let count = behind.filter_map(|child| child.peer_numbers().behind()).max();
        count.filter(|_| is_uniform && self.channel.sync.support.numbers)
    }

    /// Whether the peer is to leave out sequence numbers. Meanwhile it is not to make new Child SAs: their
    /// numbers would change, too.
    pub(super) fn is_synchronizing(&self) -> bool {
        matches!(self.pending, Some(Pending::Synchronize))
            || self.tasks.iter().any(|task| matches!(task, Task::Synchronize))
    }

    /// Asks the peer to leave out sequence numbers.
    pub(super) fn request_synchronization(
        &mut self,
        common: &SaCommon,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        let Some(count) = self.numbers_to_skip() else {
            self.rekey_children_behind();
            return Ok(None);
        };
        let esn = self.children().iter().any(|child| child.agreed.suite.esn);
        let sent = self
            .channel
            .send_request(common, ExchangeType::INFORMATIONAL, step, &|out| write_skip(count, esn, out));
        if sent.is_err() {
            self.rekey_children_behind();
            return Err(StateFault::Provider);
        }
        Ok(Some(Pending::Synchronize))
    }

    /// Handles the response of the peer, which has left out the numbers or refuses to.
    pub(super) fn on_synchronized(&mut self, response: &Result<Content<'_>, PeerFault>) {
        if !response.as_ref().is_ok_and(|content| content.error().is_none()) {
            return self.rekey_children_behind();
        }
        let children = self.contents.children.iter_mut();
        let restored = children.filter_map(|child| child.restored_numbers.as_deref_mut());
        for numbers in restored.filter(|numbers| numbers.are_in_use()) {
            numbers.reached = numbers.reached.map(|reached| reached.max(numbers.start));
        }
    }

    fn rekey_children_behind(&mut self) {
        let Self { contents, tasks, .. } = self;
        let behind = contents.children.iter().filter(|child| is_behind(child));
        tasks.extend(behind.map(|child| Task::RekeyChild(child.id)));
    }
}

/// The numbers from which the inbound SA goes on. `received` is the last one that may have been received.
pub(super) fn peer_numbers(received: u64, reached: Option<u64>, policy: ReplayTakeover) -> PeerNumbers {
    let start = match (policy, reached) {
        (ReplayTakeover::Learn, Some(reached)) => reached.min(received),
        _ => received,
    };
    PeerNumbers { reached, start }
}

/// Whether the peer's packets may have too low numbers for a Child SA. Without a replay window, any number is
/// accepted.
fn is_behind(child: &ChildSa) -> bool {
    let is_behind = child.peer_numbers().behind().is_none_or(|count| count > 0);
    is_behind && child.is_installed() && child.config.replay_window > 0
}
