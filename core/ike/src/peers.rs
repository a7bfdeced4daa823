//! Who is there: established IKE SAs by their pair of identities and by how the peer was authenticated, for
//! INITIAL_CONTACT and uniqueness (RFC 7296 section 2.4).

use crate::IkeSaId;
use crate::auth::PeerAuthenticated;
use crate::config::{Connection, Identity};
use alloc::sync::Arc;
use casemate_sa::Instant;
use casemate_tables::Names;
use core::net::IpAddr;

/// Our identity, the peer's, and the IP version between the two, as bytes by which tables find them. Identities that name the same peer have
/// the same bytes.
///
/// With one peer there may be an IKE SA over IPv4 and one over IPv6, and one for each identity of ours: none is in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair(Arc<[u8]>);

impl Pair {
    /// `remote` is the peer's address.
    pub(crate) fn new(own: &Identity, peer: &Identity, remote: IpAddr) -> Self {
        let (own, peer) = (own.folded().to_bytes(), peer.folded().to_bytes());
        Self([&[u8::from(remote.is_ipv4())][..], &len_of(&own), &own, &peer].concat().into())
    }
}

/// How a peer proved its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    SharedKey = 0,
    Signature = 1,
}

/// The connection, the kind of the peer's proof, and the [`Pair`], as bytes by which tables find them. IKE
/// SAs of the same scope were authenticated equally: one of them may take the place of another, and the
/// addresses of another.
///
/// A peer that claims the same identity on another connection or with another kind of proof, such as a key
/// that a group shares, has another scope. Connections of different names are different, even if their
/// configuration is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthScope {
    bytes: Arc<[u8]>,
    /// Length of what depends on our identity and on the IP version.
    own_len: usize,
}

impl AuthScope {
    /// `remote` is the peer's address.
    pub(crate) fn new(
        (connection, proof): (&Connection, Proof),
        own: &Identity,
        peer: &Identity,
        remote: IpAddr,
    ) -> Self {
        let (own, peer) = (own.folded().to_bytes(), peer.folded().to_bytes());
        let name = connection.name.as_bytes();
        // No pair begins with this byte.
        let first = [&[u8::MAX, u8::from(remote.is_ipv4())][..], &len_of(&own), &own].concat();
        let bytes = [&*first, &[proof as u8], &len_of(name), name, &peer].concat().into();
        Self { bytes, own_len: first.len() }
    }

    /// The part that stays the same when the peer comes over the other IP version: the connection, the kind
    /// of proof, and who it is.
    pub(crate) fn peer(&self) -> &[u8] {
        self.bytes.get(self.own_len..).unwrap_or_default()
    }
}

/// With the length in front, parts that differ never make the same bytes.
fn len_of(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Established IKE SAs by their pair and by their scope, and in this order: since when it is there, the IKE
/// SA.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    established: Names,
    /// IKE SAs whose IKE_AUTH request is outstanding, by their pair. The peer may have established them.
    begun: Names,
}

impl Peers {
    /// An IKE SA with this peer, which is there `since`.
    pub(crate) fn insert(&mut self, peer: &PeerAuthenticated, since: Instant, ike: IkeSaId) {
        self.add((peer.pair(), peer.scope()), since, ike);
    }

    fn add(&mut self, (pair, scope): (&Pair, &AuthScope), since: Instant, ike: IkeSaId) {
        for name in [&pair.0, &scope.bytes] {
            self.established.insert(name, [since.as_micros(), ike.0]);
        }
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, peer: &PeerAuthenticated, since: Instant, ike: IkeSaId) {
        self.take((peer.pair(), peer.scope()), since, ike);
    }

    fn take(&mut self, (pair, scope): (&Pair, &AuthScope), since: Instant, ike: IkeSaId) {
        for name in [&pair.0, &scope.bytes] {
            self.established.remove(name, [since.as_micros(), ike.0]);
        }
    }

    /// An IKE SA whose IKE_AUTH request has been sent.
    pub(crate) fn begin(&mut self, pair: &Pair, ike: IkeSaId) {
        self.begun.insert(&pair.0, [ike.0, 0]);
    }

    /// Its IKE_AUTH exchange has ended.
    pub(crate) fn settle(&mut self, pair: &Pair, ike: IkeSaId) {
        self.begun.remove(&pair.0, [ike.0, 0]);
    }

    /// Whether there is an IKE SA between the two, whatever the peer proved itself with, or the peer may have
    /// established one.
    pub(crate) fn has(&self, pair: &Pair) -> bool {
        let mut known = self.established.of(&pair.0).chain(self.begun.of(&pair.0));
        known.next().is_some()
    }

    /// The oldest IKE SA of the scope.
    pub(crate) fn oldest(&self, scope: &AuthScope) -> Option<IkeSaId> {
        self.established.of(&scope.bytes).next().map(|[_, ike]| IkeSaId(ike))
    }

    /// How many IKE SAs the scope has, counted up to `most`.
    pub(crate) fn count(&self, scope: &AuthScope, most: usize) -> usize {
        self.established.of(&scope.bytes).take(most).count()
    }

    /// IKE SAs of the scope that were there before `time`.
    pub(crate) fn before(&self, scope: &AuthScope, time: Instant) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let known = self.established.of(&scope.bytes);
        known.take_while(move |[since, _]| *since < time.as_micros()).map(|[_, ike]| IkeSaId(ike))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);

    fn named(name: &str) -> Identity {
        Identity::Fqdn(name.into())
    }

    fn pair(peer: &str) -> Pair {
        Pair::new(&named("us"), &named(peer), V4)
    }

    fn scope(connection: &str, proof: Proof, peer: &str) -> AuthScope {
        let connection = Connection::with_shared_key(connection, named("us"), named("a"));
        AuthScope::new((&connection, proof), &named("us"), &named(peer), V4)
    }

    #[test]
    fn each_peer_has_its_own() {
        let at = Instant::from_secs;
        let of = |peer| (pair(peer), scope("t", Proof::SharedKey, peer));
        let (a, b, c) = (of("a"), of("b"), of("c"));
        let mut peers = Peers::default();
        for (who, since, ike) in [(&b, 2, 1), (&b, 1, 2), (&a, 1, 3), (&b, 3, 4)] {
            peers.add((&who.0, &who.1), at(since), IkeSaId(ike));
        }
        let before = |peers: &Peers, who: &(Pair, AuthScope), time| {
            peers.before(&who.1, at(time)).map(|ike| ike.0).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(before(&peers, &b, 3), [2, 1], "not the one that came at that time");
        assert_eq!(before(&peers, &b, 1), []);
        assert_eq!(before(&peers, &a, 9), [3]);
        assert_eq!([peers.has(&a.0), peers.has(&b.0), peers.has(&c.0)], [true, true, false]);
        assert_eq!(
            (peers.oldest(&b.1), peers.count(&b.1, 9), peers.count(&b.1, 2)),
            (Some(IkeSaId(2)), 3, 2)
        );
        peers.take((&b.0, &b.1), at(1), IkeSaId(2));
        assert_eq!(before(&peers, &b, 9), [1, 4]);
        peers.take((&a.0, &a.1), at(1), IkeSaId(3));
        assert!(!peers.has(&a.0));
    }

    #[test]
    fn a_pair_is_both_identities_and_the_ip_version() {
        let one = pair("peer");
        assert_eq!(one, Pair::new(&named("US"), &named("Peer"), V4), "whatever the case of letters");
        for other in [
            Pair::new(&named("others"), &named("peer"), V4),
            Pair::new(&named("us"), &named("other"), V4),
            Pair::new(&named("us"), &named("peer"), V6),
            Pair::new(&named("peer"), &named("us"), V4),
        ] {
            assert_ne!(one, other);
        }
        // The border between the two counts.
        let (a, ab, b) =
            (Identity::KeyId(b"a".into()), Identity::KeyId(b"a\x0bb".into()), Identity::KeyId(b"b".into()));
        assert_ne!(Pair::new(&a, &Identity::KeyId(b"b\x0bb".into()), V4), Pair::new(&ab, &b, V4));
    }

    #[test]
    fn a_scope_is_the_pair_the_connection_and_the_proof() {
        let pair = pair("a");
        let one = scope("one", Proof::SharedKey, "a");
        assert_eq!(one, scope("one", Proof::SharedKey, "A"));
        let others = [
            scope("one", Proof::Signature, "a"),
            scope("other", Proof::SharedKey, "a"),
            scope("one", Proof::SharedKey, "b"),
        ];
        let mut peers = Peers::default();
        peers.add((&pair, &one), Instant::from_secs(1), IkeSaId(1));
        assert_eq!(peers.before(&one, Instant::from_secs(9)).count(), 1);
        for other in &others {
            assert_eq!((peers.before(other, Instant::from_secs(9)).count(), peers.oldest(other)), (0, None));
            assert!(other.peer() != one.peer() && other.bytes != one.bytes);
        }
        assert!(peers.has(&pair), "the same two, whatever the proof");
        // Over the other IP version it is the same peer, with other IKE SAs.
        let connection = Connection::with_shared_key("one", named("us"), named("a"));
        let over_v6 = AuthScope::new((&connection, Proof::SharedKey), &named("us"), &named("a"), V6);
        assert_ne!(over_v6, one);
        assert_eq!(over_v6.peer(), one.peer());
    }
}
