//! Sessions that have ended for the responder while tickets for them are still valid. Each peer has a number
//! of its own, so that a client that resumes without pause makes only its own tickets void.

use crate::IkeSaId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use casemate_sa::Instant;

/// Sessions of one peer that are remembered, at most. Hosts with the same identity count together, and each
/// ends a session when it comes back after a loss of the link.
const MAX_OF_PEER: usize = 4_096;
/// Sessions of all peers that are remembered, at most: those of 64 peers that have as many as they may.
const MAX_ENDED: usize = 262_144;

/// An identity that a peer has proved.
type Peer = Arc<[u8]>;

/// Sessions whose tickets have not expired, and are refused.
#[derive(Debug, Default)]
pub(super) struct EndedSessions {
    peers: BTreeMap<Peer, PeerSessions>,
    /// All sessions, in the order in which their tickets expire.
    order: BTreeSet<(Instant, IkeSaId, Peer)>,
    /// Tickets of this IKE SA and of older ones are refused, because all peers together had too many sessions
    /// to remember.
    floor: Option<IkeSaId>,
}

/// The sessions of one peer: at least one.
#[derive(Debug, Default)]
struct PeerSessions {
    /// When the tickets of each expire.
    until: BTreeMap<IkeSaId, Instant>,
    /// Tickets of this IKE SA and of older ones are refused, because the peer had too many sessions to
    /// remember. Those that were forgotten expire before the remembered ones.
    floor: Option<IkeSaId>,
}

impl EndedSessions {
    /// Whether tickets of this IKE SA are refused.
    pub(super) fn contains(&self, peer: &[u8], ike: IkeSaId) -> bool {
        let is_of_peer =
            |sessions: &PeerSessions| Some(ike) <= sessions.floor || sessions.until.contains_key(&ike);
        Some(ike) <= self.floor || self.peers.get(peer).is_some_and(is_of_peer)
    }

    /// Adds a session, all of whose tickets have expired at `until`.
    pub(super) fn insert(&mut self, peer: &[u8], ike: IkeSaId, until: Instant, now: Instant) {
        while self.order.first().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, expired, peer)) = self.order.pop_first()
        {
            self.remove(&peer, expired);
        }
        let peer =
            self.peers.get_key_value(peer).map_or_else(|| Peer::from(peer), |(known, _)| known.clone());
        let sessions = self.peers.entry(peer.clone()).or_default();
        let known = sessions.until.get(&ike).copied();
        let until = known.map_or(until, |known| known.max(until));
        sessions.until.insert(ike, until);
        if let Some(before) = known {
            self.order.remove(&(before, ike, peer.clone()));
        }
        self.order.insert((until, ike, peer.clone()));
        self.forget_excess(&peer);
    }

    fn remove(&mut self, peer: &Peer, ike: IkeSaId) -> Option<PeerSessions> {
        let sessions = self.peers.get_mut(peer)?;
        sessions.until.remove(&ike);
        if sessions.until.is_empty() { self.peers.remove(peer) } else { None }
    }

    /// Forgets the session that expires first if there are too many, of this peer or of all.
    fn forget_excess(&mut self, peer: &Peer) {
        if let Some(sessions) = self.peers.get_mut(peer).filter(|one| one.until.len() > MAX_OF_PEER)
            && let Some((until, ike)) = sessions.until.iter().map(|(ike, until)| (*until, *ike)).min()
        {
            sessions.until.remove(&ike);
            sessions.floor = sessions.floor.max(Some(ike));
            self.order.remove(&(until, ike, peer.clone()));
        }
        if self.order.len() > MAX_ENDED
            && let Some((_, ike, peer)) = self.order.pop_first()
        {
            let of_peer = self.remove(&peer, ike).and_then(|removed| removed.floor);
            self.floor = self.floor.max(Some(ike)).max(of_peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const CAROL: &[u8] = b"carol";
    const DAVE: &[u8] = b"dave";

    const fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    #[test]
    fn ended_sessions_are_remembered_until_their_tickets_expire() {
        let mut ended = EndedSessions::default();
        ended.insert(CAROL, IkeSaId(1), at(10), at(0));
        ended.insert(CAROL, IkeSaId(2), at(20), at(5));
        let has = |ended: &EndedSessions, ike| ended.contains(CAROL, IkeSaId(ike));
        assert!(has(&ended, 1) && has(&ended, 2) && !has(&ended, 3));
        // A session that is resumed and whose old IKE SA then ends. Its other tickets count as well.
        ended.insert(CAROL, IkeSaId(2), at(30), at(5));
        ended.insert(CAROL, IkeSaId(2), at(10), at(5));
        ended.insert(DAVE, IkeSaId(3), at(40), at(25));
        assert!(!has(&ended, 1) && has(&ended, 2));
        assert_eq!((ended.peers.len(), ended.order.len()), (2, 2));
        ended.insert(DAVE, IkeSaId(4), at(50), at(30));
        assert!(!has(&ended, 2));
        assert_eq!((ended.peers.len(), ended.order.len()), (1, 2));
    }

    #[test]
    fn a_client_that_resumes_without_pause_voids_its_own_tickets_only() {
        let mut ended = EndedSessions::default();
        let count = 2 * MAX_OF_PEER as u64;
        ended.insert(DAVE, IkeSaId(5), at(200), at(0));
        (10..10 + count).for_each(|ike| ended.insert(CAROL, IkeSaId(ike), at(100 + ike), at(0)));
        assert_eq!(ended.order.len(), MAX_OF_PEER + 1);
        assert!((1..10 + count).all(|ike| ended.contains(CAROL, IkeSaId(ike))));
        assert!(!ended.contains(CAROL, IkeSaId(10 + count)));
        let of_dave: Vec<u64> = (1..10 + count).filter(|ike| ended.contains(DAVE, IkeSaId(*ike))).collect();
        assert_eq!((of_dave, ended.floor), (vec![5], None));
    }

    /// Nothing that has ended is accepted, even if all peers together have ended too many sessions.
    #[test]
    fn too_many_ended_sessions_of_all_peers_void_older_tickets() {
        let mut ended = EndedSessions::default();
        let count = MAX_ENDED as u64 + 1;
        let peer = |ike: u64| (ike / 1_000).to_be_bytes();
        (10..10 + count).for_each(|ike| ended.insert(&peer(ike), IkeSaId(ike), at(100 + ike), at(0)));
        assert_eq!((ended.order.len(), ended.floor), (MAX_ENDED, Some(IkeSaId(10))));
        assert!((1..10 + count).all(|ike| ended.contains(&peer(ike), IkeSaId(ike))));
        assert!(!ended.contains(CAROL, IkeSaId(11)));
    }

    /// What one peer had too much of stays refused when its last session is forgotten.
    #[test]
    fn the_limit_of_all_peers_keeps_that_of_each() {
        let mut ended = EndedSessions::default();
        let of_carol = MAX_OF_PEER as u64 + 1;
        (0..of_carol).for_each(|ike| ended.insert(CAROL, IkeSaId(1_000_000 + ike), at(100), at(0)));
        let others = |ike: u64| ike.to_be_bytes();
        (0..MAX_ENDED as u64).for_each(|ike| ended.insert(&others(ike), IkeSaId(ike), at(200), at(0)));
        assert!((0..of_carol).all(|ike| ended.contains(CAROL, IkeSaId(1_000_000 + ike))));
        assert!(!ended.peers.contains_key(CAROL));
    }
}
