//! What a former process has not finished: its outstanding request, its tasks, and what it would have set up
//! again after an IKE SA that it was closing. That begins when the IKE SA has ended, because a peer may
//! refuse a second one.

use crate::config::{ChildConfig, Connection};
use crate::record::{IkeRecord, PhaseField, PurposeFields};
use crate::state::established::Phase;
use crate::state::lost_exchange::LostExchange;
use crate::state::tasks::Pending;
use crate::state::{Established, IkeSa, State, Task};
use crate::transport::SecureChannel;
use crate::{DownReason, IkeState};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The outstanding request, whose nonces and private values are lost.
pub(super) fn pending(channel: &SecureChannel, purpose: Option<PurposeFields>) -> Option<Pending> {
    let exchange = channel.window.outstanding_exchange()?;
    Some(match purpose {
        Some(PurposeFields::DeleteIke) => Pending::DeleteIke(DownReason::Local),
        Some(purpose) => Pending::Lost(LostExchange::new(exchange, purpose)),
        None => Pending::Lost(LostExchange::new(exchange, PurposeFields::Other)),
    })
}

pub(super) fn tasks(record: &IkeRecord, purpose: Option<PurposeFields>) -> VecDeque<Task> {
    let mut tasks = VecDeque::new();
    if record.phase == PhaseField::Closing && purpose != Some(PurposeFields::DeleteIke) {
        tasks.push_back(Task::DeleteIke(DownReason::Local));
    }
    let closed = record.closed.iter().flatten();
    tasks.extend(closed.map(|child| Task::DeleteSpi((*child).into())));
    if purpose == Some(PurposeFields::UpdateAddresses) {
        tasks.push_back(Task::UpdateAddresses);
    }
    if record.mobike.as_ref().is_some_and(|mobike| mobike.is_unverified && !mobike.decides) {
        tasks.push_back(Task::CheckRoute);
    }
    tasks
}

impl IkeSa {
    /// Whether this host is closing the IKE SA, and no successor has replaced it.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.public_state() == IkeState::Closing)
    }

    /// Sets a Child SA up when the IKE SA, which is being closed, has ended.
    pub(crate) fn start_when_closed(mut self, child: &Arc<ChildConfig>) -> Self {
        if let State::Established(state) = &mut self.state {
            let again = state.again.get_or_insert_default();
            if !again.contains(child) {
                again.push(child.clone());
            }
        }
        self
    }
}

impl Established {
    /// What is to be set up again when the IKE SA, which this host is closing, has ended.
    pub(in crate::state) fn again_field(&self) -> Option<Vec<String>> {
        let reason = self.closing_reason().filter(|_| self.phase != Phase::Replaced)?;
        let children = self.children_to_restart(reason);
        let is_set_up = !children.is_empty() || self.is_set_up_again(reason);
        is_set_up.then(|| children.iter().map(|child| child.name.clone()).collect())
    }
}

/// The Child SAs to set up again when the IKE SA has ended, as far as they are configured.
pub(super) fn again(record: &IkeRecord, connection: &Connection) -> Option<Vec<Arc<ChildConfig>>> {
    let names = record.again.as_ref()?;
    Some(connection.children.iter().filter(|child| names.contains(&child.name)).cloned().collect())
}
