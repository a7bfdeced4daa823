//! The Child SAs of records that an owner has restored: their first numbers.

use crate::records::{ChildReserves, KeptRecord, KeptRecords, limit};
use crate::reserve::{GrowingReserve, NumberUse, Reserve};
use crate::used_numbers::FormerNumbers;
use alloc::vec::Vec;
use casemate::{ChildSequence, Endpoint, IkeRecord, RestoredIke};

/// The Child SAs of a record of a former owner, as it names them.
#[derive(Debug)]
pub(crate) struct FormerChildren {
    /// Our SPI of their IKE SA.
    ike: u64,
    /// The owner that has written the record.
    writer: u64,
    recorded: Vec<ChildSequence>,
}

/// The first numbers of a Child SA for an owner: those sent, and those received. `None` unless `writer`,
/// which has written how far its numbers are, was an earlier owner.
fn first_reserves(written: ChildSequence, writer: u64, owner: u64) -> Option<[Reserve; 2]> {
    let reserve = |used_as, until| Reserve::of_owner(used_as, until, writer, owner, written.esn);
    Some([reserve(NumberUse::Sent, written.sent)?, reserve(NumberUse::Received, written.received)?])
}

impl KeptRecords {
    /// Adds the IKE SA of a record that owner `writer` has written, for `owner`. Sets the first numbers of
    /// its Child SAs in the record, as after a crash of the writer. `None` unless that was an earlier
    /// owner.
    pub(crate) fn add_restored(
        &mut self,
        created_by: u64,
        record: &mut IkeRecord,
        writer: u64,
        owner: u64,
    ) -> Option<()> {
        let recorded: Vec<ChildSequence> = record.sequences().collect();
        for child in &recorded {
            let [sent, received] = first_reserves(*child, writer, owner)?;
            record.set_sequence_numbers(child.spi, sent.after, received.after);
        }
        let children = recorded.iter().map(|child| child.spi).collect();
        let ike = record.own_spi();
        self.by_spi.insert(ike, KeptRecord::with_children(created_by, children));
        self.restored.push(FormerChildren { ike, writer, recorded });
        Some(())
    }

    /// Sets the reserves of the restored Child SAs. Returns the numbers of those of which more is known than
    /// their records say.
    pub(crate) fn begin_restored(&mut self, used: &FormerNumbers, owner: u64) -> Vec<ChildSequence> {
        let mut known = Vec::new();
        for FormerChildren { ike, writer, recorded } in core::mem::take(&mut self.restored) {
            let mut children = Vec::new();
            for child in recorded {
                let found = used.of(writer, child.spi);
                let (writer, written) = found.map_or((writer, child), |found| found.instead_of(child));
                let Some([sent, received]) = first_reserves(written, writer, owner) else { continue };
                let first = ChildSequence { sent: sent.after, received: received.after, ..written };
                known.extend(found.map(|_| first));
                children.push((first, sent, received));
            }
            self.add_reserves(ike, children);
        }
        known
    }

    /// Adds the reserves of the Child SAs of an IKE SA that was restored.
    fn add_reserves(&mut self, ike: u64, children: Vec<(ChildSequence, Reserve, Reserve)>) {
        let behind =
            |first: &ChildSequence| first.reached.map_or(0, |reached| first.received.saturating_sub(reached));
        // The peer may leave out as many numbers of each Child SA as it has to for any of them.
        let skip = children.iter().map(|(first, ..)| behind(first)).max().unwrap_or(0);
        self.reserves.extend(children.into_iter().map(|(first, sent, received)| {
            let is_in_use = first.reached.is_some_and(|reached| reached > 0);
            let sent = GrowingReserve::new(NumberUse::Sent, sent, first.esn);
            let received = GrowingReserve::restored(received, skip, first.esn);
            (first.spi, ChildReserves { sent, received, is_in_use, ike, sas: None })
        }));
    }

    /// Lets all Child SAs use their reserves.
    pub(crate) fn limit_all(&mut self, endpoint: &mut Endpoint) {
        for (spi, reserves) in &mut self.reserves {
            reserves.sas = endpoint.sas_of_spi(*spi);
            limit(reserves, endpoint);
        }
    }

    /// Notes the IKE SAs that the endpoint has restored, and forgets the others. Returns our SPIs of these.
    pub(crate) fn identify(&mut self, restored: &[RestoredIke]) -> Vec<u64> {
        for RestoredIke { ike, own_spi, .. } in restored {
            if let Some(kept) = self.by_spi.get_mut(own_spi) {
                kept.ike = Some(*ike);
                self.spis.insert(*ike, *own_spi);
            }
        }
        let not_restored = self.by_spi.extract_if(.., |_, kept| kept.ike.is_none());
        let (spis, ended): (Vec<u64>, Vec<KeptRecord>) = not_restored.unzip();
        for child in ended.iter().flat_map(|kept| &kept.children) {
            self.reserves.remove(child);
        }
        spis
    }
}
