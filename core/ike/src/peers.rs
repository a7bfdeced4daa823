//! Who is there: established IKE SAs by their peers, for INITIAL_CONTACT and uniqueness (RFC 7296 section 2.4).

use crate::IkeSaId;
use crate::config::Identity;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use casemate_sa::Instant;

/// Established IKE SAs: the peer, since when it is there, and the IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Peers(BTreeSet<(Arc<Identity>, Instant, IkeSaId)>);

impl Peers {
    /// An IKE SA with `peer`, which is there `since`.
    pub(crate) fn insert(&mut self, peer: &Arc<Identity>, since: Instant, ike: IkeSaId) {
        self.0.insert((peer.clone(), since, ike));
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, peer: &Arc<Identity>, since: Instant, ike: IkeSaId) {
        self.0.remove(&(peer.clone(), since, ike));
    }

    /// Whether there is an IKE SA with `peer`.
    pub(crate) fn has(&self, peer: &Identity) -> bool {
        let first = (Arc::new(peer.clone()), Instant::ZERO, IkeSaId(0));
        self.0.range(first..).next().is_some_and(|(known, ..)| **known == *peer)
    }

    /// IKE SAs with `peer` that were there before `time`.
    pub(crate) fn before(&self, peer: &Arc<Identity>, time: Instant) -> impl Iterator<Item = IkeSaId> {
        let (first, end) = ((peer.clone(), Instant::ZERO, IkeSaId(0)), (peer.clone(), time, IkeSaId(0)));
        self.0.range(first..end).map(|(.., ike)| *ike)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn peer(name: &str) -> Arc<Identity> {
        Arc::new(Identity::Fqdn(name.into()))
    }

    #[test]
    fn each_peer_has_its_own() {
        let (a, b, c) = (peer("a"), peer("b"), peer("c"));
        let at = Instant::from_secs;
        let mut peers = Peers::default();
        for (peer, since, ike) in [(&b, 2, 1), (&b, 1, 2), (&a, 1, 3), (&b, 3, 4)] {
            peers.insert(peer, at(since), IkeSaId(ike));
        }
        let before =
            |peers: &Peers, peer, time| peers.before(peer, at(time)).map(|ike| ike.0).collect::<Vec<_>>();
        assert_eq!(before(&peers, &b, 3), [2, 1], "not the one that came at that time");
        assert_eq!(before(&peers, &b, 1), []);
        assert_eq!(before(&peers, &a, 9), [3]);
        assert_eq!([peers.has(&a), peers.has(&b), peers.has(&c)], [true, true, false]);
        peers.remove(&b, at(1), IkeSaId(2));
        assert_eq!(before(&peers, &b, 9), [1, 4]);
        peers.remove(&a, at(1), IkeSaId(3));
        assert!(!peers.has(&a));
    }
}
