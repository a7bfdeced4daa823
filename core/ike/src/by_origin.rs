//! Values of IKE SAs that their successors by rekeying share.
//!
//! Rekeying replaces an IKE SA by another one with the same peer, identity and Child SAs. If both hosts rekey
//! at once, an IKE SA has two successors for a while, and one of them is redundant and ends (RFC 7296 section
//! 2.8.1). The events do not tell which. So a value belongs to the origin, the IKE SA whose IKE_AUTH exchange
//! authenticated the peer, and lasts until the last IKE SA with that origin has ended.

use crate::IkeSaId;
use alloc::vec::Vec;
use casemate_sa::table::OrderedMap;

/// Values of IKE SAs, by the origin of each IKE SA.
#[derive(Debug)]
pub struct ByOrigin<T> {
    /// Origins of the IKE SAs that exist.
    origins: OrderedMap<IkeSaId, IkeSaId>,
    entries: OrderedMap<IkeSaId, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    origin: IkeSaId,
    /// The IKE SAs that exist, the newest last. Never empty.
    members: Vec<IkeSaId>,
    value: T,
}

impl<T> Default for ByOrigin<T> {
    fn default() -> Self {
        Self { origins: OrderedMap::default(), entries: OrderedMap::default() }
    }
}

impl<T> ByOrigin<T> {
    /// The origin of an IKE SA that has a value. An origin that has ended is still known while a successor
    /// exists.
    pub fn origin(&self, ike: IkeSaId) -> Option<IkeSaId> {
        match self.origins.get(ike) {
            Some(origin) => Some(*origin),
            None => self.entries.contains(ike).then_some(ike),
        }
    }

    /// The value of an IKE SA.
    pub fn get(&self, ike: IkeSaId) -> Option<&T> {
        Some(&self.entries.get(self.origin(ike)?)?.value)
    }

    /// The value of an IKE SA, mutable.
    pub fn get_mut(&mut self, ike: IkeSaId) -> Option<&mut T> {
        Some(&mut self.entries.get_mut(self.origin(ike)?)?.value)
    }

    /// The IKE SAs with the same origin that have not ended, the newest last.
    pub fn members(&self, ike: IkeSaId) -> &[IkeSaId] {
        let entry = self.origin(ike).and_then(|origin| self.entries.get(origin));
        entry.map_or(&[], |entry| &entry.members)
    }

    /// Sets the value of an IKE SA and of those with the same origin. An IKE SA without a value becomes an
    /// origin.
    pub fn insert(&mut self, ike: IkeSaId, value: T) {
        if let Some(known) = self.get_mut(ike) {
            *known = value;
            return;
        }
        self.origins.insert(ike, ike);
        self.entries.insert(ike, Entry { origin: ike, members: [ike].into(), value });
    }

    /// Changes the value of an IKE SA. Without a value it becomes an origin, with the default value.
    pub fn update(&mut self, ike: IkeSaId, change: impl FnOnce(&mut T))
    where
        T: Default,
    {
        if let Some(known) = self.get_mut(ike) {
            return change(known);
        }
        let mut value = T::default();
        change(&mut value);
        self.insert(ike, value);
    }

    /// Notes that an IKE SA has a successor (`Event::IkeRekeyed`).
    pub fn rekeyed(&mut self, old: IkeSaId, new: IkeSaId) {
        let Some(origin) = self.origin(old) else { return };
        if let Some(entry) = self.entries.get_mut(origin)
            && self.origins.insert(new, origin).is_none()
        {
            entry.members.push(new);
        }
    }

    /// Notes that an IKE SA has ended. Returns the value if no other IKE SA shares it.
    pub fn ended(&mut self, ike: IkeSaId) -> Option<T> {
        let origin = self.origins.remove(ike)?;
        let entry = self.entries.get_mut(origin)?;
        entry.members.retain(|member| *member != ike);
        if !entry.members.is_empty() {
            return None;
        }
        self.entries.remove(origin).map(|entry| entry.value)
    }

    /// Origins and their values, in the order of the origins.
    pub fn iter(&self) -> impl Iterator<Item = (IkeSaId, &T)> {
        self.entries.values().map(|entry| (entry.origin, &entry.value))
    }

    /// The IKE SAs of each origin, the newest last, and their value, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&[IkeSaId], &mut T)> {
        self.entries.values_mut().map(|entry| (&*entry.members, &mut entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: IkeSaId = IkeSaId(1);
    const OURS: IkeSaId = IkeSaId(2);
    const PEERS: IkeSaId = IkeSaId(3);
    const NEXT: IkeSaId = IkeSaId(4);

    fn with_origin() -> ByOrigin<&'static str> {
        let mut values = ByOrigin::default();
        values.insert(ORIGIN, "value");
        values
    }

    #[test]
    fn a_value_outlives_a_redundant_successor_in_each_order() {
        for redundant_first in [false, true] {
            let mut values = with_origin();
            values.rekeyed(ORIGIN, PEERS);
            if redundant_first {
                assert_eq!(values.ended(PEERS), None);
            }
            values.rekeyed(ORIGIN, OURS);
            let ends = [PEERS, ORIGIN];
            for ike in ends.into_iter().skip(usize::from(redundant_first)) {
                assert_eq!(values.ended(ike), None);
            }
            assert_eq!((values.members(OURS), values.get(OURS)), (&[OURS][..], Some(&"value")));
            values.rekeyed(OURS, NEXT);
            assert_eq!(values.ended(OURS), None);
            assert_eq!(values.get(ORIGIN), Some(&"value"), "the origin is still known");
            assert_eq!(values.ended(NEXT), Some("value"));
            assert_eq!((values.get(ORIGIN), values.get(NEXT)), (None, None));
            assert_eq!(values.iter().count(), 0);
        }
    }

    #[test]
    fn an_ike_sa_without_a_value_gives_none_to_its_successor() {
        let mut values = with_origin();
        values.rekeyed(OURS, NEXT);
        assert_eq!((values.origin(NEXT), values.ended(NEXT)), (None, None));
        assert_eq!(values.ended(PEERS), None);
        assert_eq!(values.ended(ORIGIN), Some("value"));
        assert_eq!(values.ended(ORIGIN), None);
    }

    #[test]
    fn events_in_another_order_do_no_harm() {
        let mut values = with_origin();
        values.rekeyed(ORIGIN, OURS);
        values.rekeyed(ORIGIN, OURS);
        assert_eq!(values.members(ORIGIN), [ORIGIN, OURS]);
        values.insert(OURS, "other");
        assert_eq!(values.ended(ORIGIN), None);
        assert_eq!(values.ended(ORIGIN), None, "it ends once");
        assert_eq!(values.ended(OURS), Some("other"));
    }
}
