//! Records of IKE SAs, and IKE SAs that continue those of records (docs/decisions/0140-cells.md).

use super::Ike;
use super::retries::Retry;
use crate::child_sa::ChildRequest;
use crate::config::{ChildConfig, Connection};
use crate::record::{ChildSequence, IkeRecord, RestoreError};
use crate::state::{IkeSa, RestoredIds};
use crate::transport::MAX_OWNERS;
use crate::{Context, DownReason, Host, IkeSaId, IkeSpis};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_sa::{Instant, Spi};
use casemate_wire::ike::IkeSpi;
use core::net::IpAddr;
use core::time::Duration;

/// Time after which an IKE SA that a former process was closing delays a new one no longer.
const CLOSING_TIME: Duration = Duration::from_secs(10);

/// IKE SAs whose records may have changed since they were last taken, if records are kept.
#[derive(Default)]
pub(crate) struct Changes {
    is_kept: bool,
    /// The IKE SAs that have changed in each step.
    steps: Vec<Vec<IkeSaId>>,
}

impl Changes {
    /// Whether Child SAs keep their keys, for records.
    pub(crate) const fn are_kept(&self) -> bool {
        self.is_kept
    }

    /// Sets whether changes are noted.
    pub(crate) const fn keep(&mut self, keep: bool) {
        self.is_kept = keep;
    }

    /// Begins a step, such as a message, a timer or a command: the records of the IKE SAs that change in it
    /// depend on each other.
    pub(crate) fn begin_step(&mut self) {
        if self.is_kept && self.steps.last().is_none_or(|last| !last.is_empty()) {
            self.steps.push(Vec::new());
        }
    }

    /// Notes that an IKE SA may have changed, or has ended.
    pub(crate) fn note(&mut self, ike: IkeSaId) {
        if self.steps.is_empty() {
            self.begin_step();
        }
        if let Some(step) = self.steps.last_mut().filter(|step| !step.contains(&ike)) {
            step.push(ike);
        }
    }

    /// Takes the changes, those of one step together.
    pub(crate) fn take(&mut self) -> Vec<Vec<IkeSaId>> {
        core::mem::take(&mut self.steps)
    }
}

/// An IKE SA that was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredIke {
    /// The IKE SA.
    pub ike: IkeSaId,
    /// Our SPI of it.
    pub own_spi: u64,
    /// Whether the configuration still allows it.
    is_allowed: bool,
}

/// Records to restore together. IKE SAs of one peer that follow each other keep that relation.
#[derive(Debug)]
pub struct Restoration {
    /// Identifiers of origins, by their SPIs.
    origins: BTreeMap<IkeSpis, IkeSaId>,
    /// Connections by their names.
    connections: BTreeMap<String, Arc<Connection>>,
}

impl Restoration {
    /// Records for these connections.
    pub fn new(connections: &[Arc<Connection>]) -> Self {
        let named = |connection: &Arc<Connection>| (connection.name.clone(), connection.clone());
        // Of several with the same name, the first one counts.
        let connections = connections.iter().rev().map(named).collect();
        Self { origins: BTreeMap::new(), connections }
    }
}

impl Ike {
    /// Sets whether records can be made. IKE SAs that exist already have none.
    pub fn keep_records(&mut self, keep: bool) {
        self.shared.changes.keep(keep);
    }

    /// The record of an IKE SA; `None` if it does not exist, is not established, or its peer has passed
    /// several rounds of authentication. The sequence numbers of its Child SAs are 0: the data path has them.
    pub fn record(&self, ike: IkeSaId, now: Instant) -> Option<IkeRecord> {
        self.sas.get(ike)?.record(now)
    }

    /// How far the sequence numbers of the Child SAs in the record of an IKE SA are, as in the record.
    pub fn sequences(&self, ike: IkeSaId) -> impl Iterator<Item = ChildSequence> {
        self.sas.get(ike).into_iter().flat_map(IkeSa::sequences)
    }

    /// Takes the IKE SAs that may have changed or ended since the last call. Those of one message, timer or
    /// command are together: their records and messages depend on each other. Empty unless records are kept.
    pub fn take_changes(&mut self) -> Vec<Vec<IkeSaId>> {
        self.shared.changes.take()
    }

    /// Continues the IKE SA of a record, after [`configure`](Self::configure). `restoration` is for the same
    /// connections. `owners` is the number of processes and hosts that have had it before, at least 1. The
    /// IKE SA and its Child SAs are reported as new ones, with `is_restored`. The IKE SA sends nothing until
    /// [`begin_restored`](Self::begin_restored).
    ///
    /// # Errors
    ///
    /// [`RestoreError`]; nothing has changed then.
    pub fn restore(
        &mut self,
        record: IkeRecord,
        owners: u16,
        restoration: &mut Restoration,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<RestoredIke, RestoreError> {
        if owners == 0 || owners > MAX_OWNERS {
            return Err(RestoreError::TooManyOwners);
        }
        let connection = restoration.connections.get(&record.connection);
        let connection = connection.ok_or(RestoreError::NoConnection)?.clone();
        if self.sas.get_by_spi(IkeSpi(record.own_spi())).is_some() {
            return Err(RestoreError::SpiInUse);
        }
        let claimed = claim_spis(&record, host)?;
        let ids = self.restored_ids(&record, owners, restoration);
        let own_spi = record.own_spi();
        match IkeSa::restore(record, &connection, ids, &mut self.step(host, context)) {
            Ok((sa, is_allowed)) => {
                self.sas.insert(sa);
                self.run_effects(host, context);
                Ok(RestoredIke { ike: ids.ike, own_spi, is_allowed })
            }
            Err(error) => {
                claimed.into_iter().for_each(|spi| host.release_spi(spi));
                Err(error)
            }
        }
    }

    /// Lets a restored IKE SA go on: it makes the peer use sequence numbers that this host accepts, and
    /// begins what its record has left to do. If the configuration does not allow it any more, it is closed
    /// with a message to the peer. `numbers` has the Child SAs of which more is known than the record says:
    /// what their former owner has received. An IKE SA with nothing to do has not changed since its record.
    pub fn begin_restored(
        &mut self,
        restored: RestoredIke,
        numbers: &BTreeMap<u32, ChildSequence>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let RestoredIke { ike, is_allowed, .. } = restored;
        let Some(sa) = self.sas.get_mut(ike) else { return };
        sa.set_peer_numbers(numbers);
        if is_allowed && sa.is_idle_owner() {
            return;
        }
        self.update_sa(ike, host, context, |sa, step| match is_allowed {
            true => sa.begin_restored(step),
            false => sa.close(DownReason::Unconfigured, step),
        });
    }

    /// Sends the outstanding requests of the IKE SAs with this local address again: this host has the address
    /// from now on, and did not have it when the IKE SAs were restored.
    pub fn resend_from(&mut self, local: IpAddr, host: &mut dyn Host, context: &mut Context<'_>) {
        let has_addr = |sa: &&IkeSa| sa.common.path.local.ip() == local;
        let ids: Vec<IkeSaId> = self.sas.values().filter(has_addr).map(|sa| sa.common.id).collect();
        for id in ids {
            self.update_sa(id, host, context, IkeSa::resend);
        }
    }

    /// Sets up a Child SA that `start_action` demands, after the IKE SAs of records were restored: in an IKE
    /// SA of the connection, unless the peer requests the Child SA before, or in a new one. If a former
    /// process was closing an IKE SA of the connection, the new one is set up when that has ended, or after
    /// ten seconds: a peer may refuse a second IKE SA.
    pub fn start_after_restoration(
        &mut self,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        if self.has_or_requests(connection, child) {
            return;
        }
        let find = |is_it: &dyn Fn(&IkeSa) -> bool| {
            self.sas.of_connection(connection).find(|sa| is_it(sa)).map(|sa| sa.common.id)
        };
        let (open, closing) = (find(&IkeSa::accepts_child_requests), find(&IkeSa::is_closing));
        match (open, closing) {
            (Some(open), _) => {
                let request = ChildRequest::start(child.clone());
                self.update_sa(open, host, context, |sa, step| sa.request_child(request, step));
            }
            (None, Some(closing)) => {
                self.update_sa(closing, host, context, |sa, _| sa.start_when_closed(child));
                let (connection, children) = (connection.clone(), vec![child.clone()]);
                let at = context.now.after(CLOSING_TIME);
                let retry =
                    Retry { connection, children, at, attempts: 0, waits_for_addrs: false, restores: true };
                self.shared.retries.add(retry);
            }
            (None, None) => self.initiate_or_retry(connection, child, host, context),
        }
    }

    fn restored_ids(
        &mut self,
        record: &IkeRecord,
        owners: u16,
        restoration: &mut Restoration,
    ) -> RestoredIds {
        let known = restoration.origins.entry(record.origin.spis.into());
        let origin = *known.or_insert_with(|| self.shared.next_ike_id());
        let is_origin = record.origin.spis == record.spis;
        let ike = if is_origin { origin } else { self.shared.next_ike_id() };
        RestoredIds { ike, origin, owners }
    }
}

/// Reserves the SPIs of the inbound SAs.
fn claim_spis(record: &IkeRecord, host: &mut dyn Host) -> Result<Vec<Spi>, RestoreError> {
    let mut claimed = Vec::new();
    for child in record.sequences() {
        match Spi::new(child.spi).filter(|spi| host.claim_spi(*spi)) {
            Some(spi) => claimed.push(spi),
            None => {
                claimed.into_iter().for_each(|spi| host.release_spi(spi));
                return Err(RestoreError::SpiInUse);
            }
        }
    }
    Ok(claimed)
}
