//! Who is there: established IKE SAs by their pair of identities, for INITIAL_CONTACT and uniqueness (RFC 7296 section 2.4).

use crate::IkeSaId;
use crate::config::{Connection, Identity, Unique};
use alloc::sync::Arc;
use alloc::vec::Vec;
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
        // With the length of the first, two pairs that differ never have the same bytes.
        let len = u32::try_from(own.len()).unwrap_or(u32::MAX).to_be_bytes();
        Self([&[u8::from(remote.is_ipv4())][..], &len, &own, &peer].concat().into())
    }

    /// The pair on one connection.
    fn on(&self, connection: &Connection) -> Vec<u8> {
        // No pair begins with this byte.
        [&[u8::MAX][..], connection.name.as_bytes(), &[0], &self.0].concat()
    }
}

/// Established IKE SAs by their pair, and in this order: since when it is there, the IKE SA. Where the connection is to be unique, also by
/// pair and connection.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    established: Names,
    /// IKE SAs whose IKE_AUTH request is outstanding, by their pair. The peer may have established them.
    begun: Names,
}

impl Peers {
    /// An IKE SA of this connection, which is there `since`.
    pub(crate) fn insert(&mut self, pair: &Pair, connection: &Connection, since: Instant, ike: IkeSaId) {
        let behind = [since.as_micros(), ike.0];
        self.established.insert(&pair.0, behind);
        if is_counted(connection) {
            self.established.insert(&pair.on(connection), behind);
        }
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, pair: &Pair, connection: &Connection, since: Instant, ike: IkeSaId) {
        let behind = [since.as_micros(), ike.0];
        self.established.remove(&pair.0, behind);
        if is_counted(connection) {
            self.established.remove(&pair.on(connection), behind);
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

    /// Whether there is an IKE SA between the two, or the peer may have established one.
    pub(crate) fn has(&self, pair: &Pair) -> bool {
        let mut known = self.established.of(&pair.0).chain(self.begun.of(&pair.0));
        known.next().is_some()
    }

    /// The oldest IKE SA between the two.
    pub(crate) fn oldest(&self, pair: &Pair) -> Option<IkeSaId> {
        self.established.of(&pair.0).next().map(|[_, ike]| IkeSaId(ike))
    }

    /// How many IKE SAs there are between the two, counted up to `most`.
    pub(crate) fn count(&self, pair: &Pair, most: usize) -> usize {
        self.established.of(&pair.0).take(most).count()
    }

    /// IKE SAs between the two that were there before `time`.
    pub(crate) fn before(&self, pair: &Pair, time: Instant) -> impl Iterator<Item = IkeSaId> + use<'_> {
        self.until(&pair.0, time)
    }

    /// Those of a connection that is to be unique. What another connection has between the same two is not in its place.
    pub(crate) fn before_on(
        &self,
        pair: &Pair,
        connection: &Connection,
        time: Instant,
    ) -> impl Iterator<Item = IkeSaId> + use<'_> {
        self.until(&pair.on(connection), time)
    }

    fn until(&self, name: &[u8], time: Instant) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let known = self.established.of(name);
        known.take_while(move |[since, _]| *since < time.as_micros()).map(|[_, ike]| IkeSaId(ike))
    }
}

const fn is_counted(connection: &Connection) -> bool {
    matches!(connection.unique, Unique::Keep | Unique::Replace)
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

    fn connection(name: &str, unique: Unique) -> Connection {
        Connection { unique, ..Connection::with_shared_key(name, named("us"), named("a")) }
    }

    #[test]
    fn each_pair_has_its_own() {
        let (a, b, c) = (pair("a"), pair("b"), pair("c"));
        let at = Instant::from_secs;
        let any = connection("t", Unique::No);
        let mut peers = Peers::default();
        for (pair, since, ike) in [(&b, 2, 1), (&b, 1, 2), (&a, 1, 3), (&b, 3, 4)] {
            peers.insert(pair, &any, at(since), IkeSaId(ike));
        }
        let before =
            |peers: &Peers, pair, time| peers.before(pair, at(time)).map(|ike| ike.0).collect::<Vec<_>>();
        assert_eq!(before(&peers, &b, 3), [2, 1], "not the one that came at that time");
        assert_eq!(before(&peers, &b, 1), []);
        assert_eq!(before(&peers, &a, 9), [3]);
        assert_eq!([peers.has(&a), peers.has(&b), peers.has(&c)], [true, true, false]);
        peers.remove(&b, &any, at(1), IkeSaId(2));
        assert_eq!(before(&peers, &b, 9), [1, 4]);
        peers.remove(&a, &any, at(1), IkeSaId(3));
        assert!(!peers.has(&a));
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
    fn a_unique_connection_does_not_see_others_between_the_same_two() {
        let (pair, at) = (pair("a"), Instant::from_secs);
        let (one, other) = (connection("one", Unique::Replace), connection("other", Unique::Keep));
        let mut peers = Peers::default();
        peers.insert(&pair, &one, at(1), IkeSaId(1));
        peers.insert(&pair, &other, at(2), IkeSaId(2));
        let on = |peers: &Peers, connection| {
            peers.before_on(&pair, connection, at(9)).map(|ike| ike.0).collect::<Vec<_>>()
        };
        assert_eq!((on(&peers, &one), on(&peers, &other)), ([1].into(), [2].into()));
        assert_eq!(peers.before(&pair, at(9)).count(), 2);
        peers.remove(&pair, &one, at(1), IkeSaId(1));
        assert_eq!((on(&peers, &one), on(&peers, &other)), (Vec::new(), [2].into()));
    }
}
