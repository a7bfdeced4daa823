//! Who is there: established IKE SAs by their peers, for INITIAL_CONTACT and uniqueness (RFC 7296 section 2.4).

use crate::IkeSaId;
use crate::config::Identity;
use casemate_sa::Instant;
use casemate_tables::Names;

/// Established IKE SAs by their peer, and in this order: since when it is there, the IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Peers(Names);

impl Peers {
    /// An IKE SA with `peer`, which is there `since`.
    pub(crate) fn insert(&mut self, peer: &Identity, since: Instant, ike: IkeSaId) {
        self.0.insert(&peer.to_bytes(), [since.as_micros(), ike.0]);
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, peer: &Identity, since: Instant, ike: IkeSaId) {
        self.0.remove(&peer.to_bytes(), [since.as_micros(), ike.0]);
    }

    /// Whether there is an IKE SA with `peer`.
    pub(crate) fn has(&self, peer: &Identity) -> bool {
        self.0.of(&peer.to_bytes()).next().is_some()
    }

    /// IKE SAs with `peer` that were there before `time`.
    pub(crate) fn before(&self, peer: &Identity, time: Instant) -> impl Iterator<Item = IkeSaId> {
        let known = self.0.of(&peer.to_bytes());
        known.take_while(move |[since, _]| *since < time.as_micros()).map(|[_, ike]| IkeSaId(ike))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn peer(name: &str) -> Identity {
        Identity::Fqdn(name.into())
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
