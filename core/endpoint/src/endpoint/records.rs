//! Records of IKE SAs with the sequence numbers of their Child SAs, and endpoints that continue those of
//! others (docs/decisions/0140-cells.md).

use super::Endpoint;
use super::configuration::NewChild;
use crate::ChildSas;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::SaId;
use casemate_datapath::spd::InsertError;
use casemate_ike::config::{Connection, Pool};
use casemate_ike::{
    ChildId, ChildSequence, Context, Ike, IkeRecord, IkeSaId, Restoration, RestoreError, RestoredIke,
};
use casemate_sa::{Instant, Spi};
use core::net::IpAddr;

/// A record, and how often its IKE SA has changed its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The record. Its times are those of now ([`IkeRecord::advance`]).
    pub record: IkeRecord,
    /// Number of processes and hosts that have had the IKE SA before; at least 1.
    pub owners: u16,
}

/// A record whose IKE SA was not restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRestored {
    /// The record.
    pub record: IkeRecord,
    /// Why.
    pub error: RestoreError,
}

/// What waits until the numbers of restored SAs are known.
pub(super) struct Restored {
    ikes: Vec<RestoredIke>,
    /// New children of the configuration that are to be initiated.
    children: Vec<NewChild>,
}

impl Endpoint {
    /// Makes records of IKE SAs that are set up from now on possible. New SAs may use these sequence numbers,
    /// sent and received, until the caller has stored higher ones.
    pub fn keep_records(&mut self, sent: u64, received: u64) {
        self.ike.keep_records(true);
        self.datapath.limit_new_sas(sent, received);
    }

    /// Takes the IKE SAs that may have changed or ended since the last call. Those of one message, timer or
    /// command are together: their records and messages depend on each other. Empty unless records are kept.
    pub fn take_changes(&mut self) -> Vec<Vec<IkeSaId>> {
        self.ike.take_changes()
    }

    /// The SAs of the data path of the Child SA with this inbound SPI.
    pub fn sas_of_spi(&self, spi: u32) -> Option<ChildSas> {
        let inbound = self.spis.sa(Spi::new(spi)?)?;
        self.children.sas(self.children.by_sa_id(inbound)?)
    }

    /// The record of an IKE SA, with the last sequence number sent and the highest received of each of its
    /// Child SAs; `None` if it cannot be made ([`Ike::record`](casemate_ike::Ike::record)).
    pub fn record(&self, ike: IkeSaId, now: Instant) -> Option<IkeRecord> {
        let mut record = self.ike.record(ike, now)?;
        let spis: Vec<u32> = record.sequences().map(|child| child.spi).collect();
        for spi in spis {
            let sas = self.sas_of_spi(spi);
            let (inbound, outbound) = (sas.map(|sas| sas.inbound), sas.and_then(|sas| sas.outbound));
            record.set_used_numbers(spi, self.sequence(outbound), self.sequence(inbound));
        }
        Some(record)
    }

    /// How far the sequence numbers of the Child SAs in the record of an IKE SA are, as in
    /// [`record`](Self::record).
    pub fn sequences(&self, ike: IkeSaId) -> impl Iterator<Item = ChildSequence> {
        self.ike.sequences(ike).map(|child| {
            let sas = self.sas_of_spi(child.spi);
            let (inbound, outbound) = (sas.map(|sas| sas.inbound), sas.and_then(|sas| sas.outbound));
            child.with_used(self.sequence(outbound), self.sequence(inbound))
        })
    }

    fn sequence(&self, sa: Option<SaId>) -> u64 {
        sa.and_then(|sa| self.datapath.sa_sequence(sa)).unwrap_or(0)
    }

    /// Leaves out the next `count` sequence numbers of the outbound SAs of Child SAs. Those that have few
    /// numbers left, or none, are rekeyed.
    pub(super) fn skip_numbers(&mut self, children: &[ChildId], count: u64, context: &mut Context<'_>) {
        for child in children {
            let outbound = self.children.sas(*child).and_then(|sas| sas.outbound);
            match outbound.and_then(|outbound| self.datapath.skip_numbers(outbound, count)) {
                Some(true) => {
                    self.with_ike(|ike, host| ike.rekey_child(*child, host, context));
                }
                Some(false) => {}
                None => self.children.skip_before_first(*child, count),
            }
        }
    }

    /// Replaces the connections and pools, as [`configure`](Self::configure), and restores the IKE SAs of
    /// records. They and what is new in the configuration wait for
    /// [`begin_restored`](Self::begin_restored). The oldest records come first. Returns those whose IKE SAs
    /// were not restored.
    ///
    /// # Errors
    ///
    /// The SPD has no room for the traps. Nothing has changed then.
    pub fn configure_and_restore(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        mut records: Vec<OwnedRecord>,
        context: &mut Context<'_>,
    ) -> Result<Vec<NotRestored>, InsertError> {
        records.sort_by_key(|owned| core::cmp::Reverse(owned.record.age()));
        let children = self.replace_configuration(connections, pools, context)?;
        let mut restoration = Restoration::new(self.ike.connections());
        let (mut ikes, mut failed) = (Vec::new(), Vec::new());
        for OwnedRecord { record, owners } in records {
            let result = self
                .with_ike(|ike, host| ike.restore(record.clone(), owners, &mut restoration, host, context));
            match result {
                Ok(restored) => ikes.push(restored),
                Err(error) => failed.push(NotRestored { record, error }),
            }
        }
        // Their SAs are in the data path before any timer ends.
        self.take_ike_events(context);
        self.restored = Some(Restored { ikes, children });
        Ok(failed)
    }

    /// Lets restored IKE SAs go on, and then initiates what is new in the configuration and does not exist.
    /// `numbers` has the Child SAs of which more is known than their records say: what their former owner has
    /// sent and received. No packet of theirs may have been sent or received since they were restored.
    /// Returns the restored IKE SAs. Their timers wait for the next call of
    /// [`handle_timeouts`](Self::handle_timeouts), so that packets move first.
    pub fn begin_restored(
        &mut self,
        numbers: &[ChildSequence],
        context: &mut Context<'_>,
    ) -> Vec<RestoredIke> {
        let Some(Restored { ikes, children }) = self.restored.take() else { return Vec::new() };
        for ChildSequence { spi, sent, received, .. } in numbers {
            let Some(ChildSas { inbound, outbound }) = self.sas_of_spi(*spi) else { continue };
            self.datapath.set_last_sequence(inbound, *received);
            outbound.map(|outbound| self.datapath.set_last_sequence(outbound, *sent));
        }
        let numbers = numbers.iter().map(|child| (child.spi, *child)).collect();
        for restored in &ikes {
            self.with_ike(|ike, host| ike.begin_restored(*restored, &numbers, host, context));
        }
        self.initiate_new(children, Ike::start_after_restoration, context);
        // What has ended with that is known at once.
        self.take_ike_events(context);
        ikes
    }

    /// Reports that this host has got a local address of restored IKE SAs that it did not have when they were
    /// restored. What they have sent since then was lost, and is sent again.
    pub fn resend_from(&mut self, local: IpAddr, context: &mut Context<'_>) {
        self.with_ike(|ike, host| ike.resend_from(local, host, context));
    }
}
