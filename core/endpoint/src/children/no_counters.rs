//! Without the Cargo feature `child-counters` nothing is counted, so that devices do not pay for it.

use crate::Notice;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use casemate_datapath::{Datapath, SaId};
use casemate_ike::IkeSaId;
use casemate_ike::config::{ChildConfig, Connection};

/// Counters of nothing.
#[derive(Default)]
pub(super) struct CounterTable {}

impl CounterTable {
    pub(super) fn configure(&mut self, _: &[Arc<Connection>]) {}
    pub(super) fn add_sa(&mut self, _: &Connection, _: &ChildConfig, _: IkeSaId, _: SaId) {}
    pub(super) fn sa_lingers(&mut self, _: SaId, _: &Datapath) {}
    pub(super) fn take_reports(&mut self, _: &mut VecDeque<Notice>) {}
    pub(super) fn remove_sa(&mut self, sa: SaId, datapath: &mut Datapath) {
        datapath.remove_sa(sa);
    }
    pub(super) fn child_up(&mut self, _: &Connection, _: &ChildConfig) {}
    pub(super) fn child_down(&mut self, _: &Connection, _: &ChildConfig) {}
}
