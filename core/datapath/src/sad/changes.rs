//! Removal of SAs, and SAs that move to other addresses or in and out of UDP.

use super::{Direction, IndexEntry, OutboundIndex, SaId, SaLookupKey, Sad};
use crate::SaPath;
use casemate_wire::invariant::OrBroken;

impl Sad {
    /// Removes the SA; `false` if it does not exist.
    pub(crate) fn remove(&mut self, id: SaId) -> bool {
        match id.direction {
            Direction::Outbound => {
                if self.outbound.get(id.slot, id.generation).is_none() {
                    return false;
                }
                self.index_outbound(id.slot, OutboundIndex::remove);
                self.outbound.remove(id.slot, id.generation).is_some()
            }
            Direction::Inbound => {
                let Some(sa) = self.inbound.remove(id.slot, id.generation) else { return false };
                self.peers.remove(&self.peer_key(sa.src, id.slot));
                let found = self
                    .inbound_index
                    .find_entry(self.hash.of(&sa.lookup_key()), |entry| entry.slot == id.slot);
                if let Some(entry) = found.or_report("an inbound SA is in the index") {
                    entry.remove();
                }
                true
            }
        }
    }

    /// Changes the addresses and the encapsulation of an SA. Returns `false` if there is no such SA, it
    /// cannot have this path, or another SA has its SPI at the new destination.
    pub(crate) fn move_sa(&mut self, id: SaId, path: SaPath) -> bool {
        match id.direction {
            Direction::Inbound => self.move_inbound(id, path),
            Direction::Outbound => {
                if self.outbound.get(id.slot, id.generation).is_none() {
                    return false;
                }
                self.index_outbound(id.slot, OutboundIndex::remove);
                let moved = self.outbound.slot_mut(id.slot).is_some_and(|sa| sa.move_to(path));
                self.index_outbound(id.slot, OutboundIndex::insert);
                moved
            }
        }
    }

    fn move_inbound(&mut self, id: SaId, path: SaPath) -> bool {
        let Some(sa) = self.inbound.get(id.slot, id.generation) else { return false };
        let (before, old_key) = (sa.src, sa.lookup_key());
        let lookup_key = SaLookupKey::new(sa.spi.get(), sa.protocol, path.dst);
        if self.find_inbound(&lookup_key).is_some_and(|entry| entry.slot != id.slot) {
            return false;
        }
        let Some(sa) = self.inbound.get_mut(id.slot, id.generation) else { return false };
        if !sa.move_to(path) {
            return false;
        }
        let entry = IndexEntry { lookup_key, slot: id.slot, format: sa.format };
        let keyed = &self.hash;
        let found = self.inbound_index.find_entry(keyed.of(&old_key), |entry| entry.slot == id.slot);
        if let Some(found) = found.or_report("an inbound SA is in the index") {
            found.remove();
        }
        self.inbound_index.insert_unique(keyed.of(&lookup_key), entry, |entry| keyed.of(&entry.lookup_key));
        self.peers.remove(&self.peer_key(before, id.slot));
        self.peers.insert(self.peer_key(path.src, id.slot))
    }
}
