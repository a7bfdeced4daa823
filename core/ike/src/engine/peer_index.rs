//! Index of established IKE SAs by the pair of identities and by the peer's authentication, for
//! INITIAL_CONTACT and uniqueness (RFC 7296 section 2.4).

use crate::auth::PeerAuthenticated;
use crate::config::{Connection, Identity};
use crate::{IkeSaId, Role};
use alloc::sync::Arc;
use casemate_sa::Instant;
use casemate_sa::table::ByteIndex;
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;

/// Our identity, the peer's identity and the IP version, as the key of a table. Identities that name the same
/// peer give the same bytes.
///
/// With one peer there may be an IKE SA over IPv4, one over IPv6, and one for each identity of ours. None of
/// these replaces another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerPair(Arc<[u8]>);

impl PeerPair {
    /// `remote` is the peer's address.
    pub(crate) fn new(own: &Identity, peer: &Identity, remote: IpAddr) -> Self {
        let (own, peer) = (own.canonical().to_bytes(), peer.canonical().to_bytes());
        Self([&[u8::from(remote.is_ipv4())][..], &length_prefix(&own), &own, &peer].concat().into())
    }
}

#[cfg(feature = "records")]
impl PeerPair {
    /// Whether the peer had an IPv4 address.
    pub(crate) fn is_v4(&self) -> bool {
        self.0.first() == Some(&1)
    }
}

/// How a peer proved its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    SharedKey = 0,
    Signature = 1,
    #[cfg(feature = "eap")]
    Eap = 2,
    /// EAP that has proved no identity: the peer's part of the scope is the IKE SA in which it happened, so
    /// other IKE SAs have another scope.
    #[cfg(feature = "eap")]
    EapLogin = 4,
    /// Several proofs, in rounds (RFC 4739).
    #[cfg(feature = "eap")]
    Rounds = 3,
}

/// The connection, the kind of the peer's proof, and the [`PeerPair`], as the key of a table. IKE SAs of the
/// same scope were authenticated equally: one may replace another and take over its addresses.
///
/// A peer that claims the same identity on another connection or with another kind of proof, such as a group
/// key, has another scope. Connections with different names are different, even if their configuration is the
/// same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthScope {
    bytes: Arc<[u8]>,
    /// Length of the part that depends on our identity and on the IP version.
    own_len: usize,
}

impl AuthScope {
    /// `remote` is the peer's address.
    pub(crate) fn new(
        connection: &Connection,
        proof: Proof,
        own: &Identity,
        peer: &Identity,
        remote: IpAddr,
    ) -> Self {
        let (own, peer) = (own.canonical().to_bytes(), peer.canonical().to_bytes());
        let name = connection.name.as_bytes();
        // No pair begins with this byte.
        let first = [&[u8::MAX, u8::from(remote.is_ipv4())][..], &length_prefix(&own), &own].concat();
        let bytes = [&*first, &[proof as u8], &length_prefix(name), name, &peer].concat().into();
        Self { bytes, own_len: first.len() }
    }

    /// Scope of a peer that proved `former` in earlier rounds and `self` in the last one.
    #[cfg(feature = "eap")]
    pub(crate) fn after(&self, former: &Self) -> Self {
        let own = self.bytes.get(..self.own_len).or_broken_default("our part is a prefix of the bytes");
        let (earlier, last) = (former.peer(), self.peer());
        let parts = [own, &[Proof::Rounds as u8], &length_prefix(earlier), earlier, last];
        Self { bytes: parts.concat().into(), own_len: self.own_len }
    }

    /// The part that does not depend on the IP version: the connection, the kind of proof, and the peer's
    /// identity.
    pub(crate) fn peer(&self) -> &[u8] {
        self.bytes.get(self.own_len..).or_broken_default("our part is a prefix of the bytes")
    }
}

/// A length prefix, so that different parts never give the same bytes.
fn length_prefix(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Established IKE SAs by pair and by scope, in the order (time of authentication, IKE SA and role).
#[derive(Debug, Default)]
pub(crate) struct PeerIndex {
    established: ByteIndex,
    /// IKE SAs whose IKE_AUTH request is outstanding, by pair. The peer may have established them.
    pending: ByteIndex,
}

impl PeerIndex {
    /// Adds an IKE SA that was authenticated at `since`.
    pub(crate) fn insert(&mut self, peer: &PeerAuthenticated, since: Instant, ike: IkeSaId, role: Role) {
        self.insert_keys(peer.pair(), peer.scope(), entry(since, ike, role));
    }

    fn insert_keys(&mut self, pair: &PeerPair, scope: &AuthScope, entry: [u64; 2]) {
        for name in [&pair.0, &scope.bytes] {
            self.established.insert(name, entry);
        }
    }

    /// Removes an IKE SA.
    pub(crate) fn remove(&mut self, peer: &PeerAuthenticated, since: Instant, ike: IkeSaId, role: Role) {
        self.remove_keys(peer.pair(), peer.scope(), entry(since, ike, role));
    }

    fn remove_keys(&mut self, pair: &PeerPair, scope: &AuthScope, entry: [u64; 2]) {
        for name in [&pair.0, &scope.bytes] {
            self.established.remove(name, entry);
        }
    }

    /// Adds an IKE SA whose IKE_AUTH request was sent.
    pub(crate) fn add_pending(&mut self, pair: &PeerPair, ike: IkeSaId) {
        self.pending.insert(&pair.0, [ike.0, 0]);
    }

    /// Removes an IKE SA whose IKE_AUTH exchange has ended.
    pub(crate) fn remove_pending(&mut self, pair: &PeerPair, ike: IkeSaId) {
        self.pending.remove(&pair.0, [ike.0, 0]);
    }

    /// Whether there is an IKE SA between the two identities, whatever the proof, or the peer may have
    /// established one.
    pub(crate) fn has(&self, pair: &PeerPair) -> bool {
        let mut known = self.established.get_all(&pair.0).chain(self.pending.get_all(&pair.0));
        known.next().is_some()
    }

    /// Oldest IKE SA of the scope.
    pub(crate) fn oldest(&self, scope: &AuthScope) -> Option<IkeSaId> {
        self.established.get_all(&scope.bytes).next().map(|[_, ike]| id_of(ike))
    }

    /// Number of IKE SAs of the scope, counted up to `most`.
    pub(crate) fn count(&self, scope: &AuthScope, most: usize) -> usize {
        self.established.get_all(&scope.bytes).take(most).count()
    }

    /// IKE SAs of the scope that were authenticated before `time`.
    pub(crate) fn established_before(
        &self,
        scope: &AuthScope,
        time: Instant,
    ) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let known = self.established.get_all(&scope.bytes);
        known.take_while(move |[since, _]| *since < time.as_micros()).map(|[_, ike]| id_of(ike))
    }

    /// IKE SAs of the scope that the peer has initiated.
    pub(crate) fn begun_by_peer(&self, scope: &AuthScope) -> impl Iterator<Item = IkeSaId> + use<'_> {
        let by_peer = |[_, ike]: &[u64; 2]| ike & RESPONDER_BIT != 0;
        self.established.get_all(&scope.bytes).filter(by_peer).map(|[_, ike]| id_of(ike))
    }
}

/// Marks an IKE SA whose origin the peer has initiated. An ID, which counts IKE SAs, never has this bit.
const RESPONDER_BIT: u64 = 1 << 63;

fn entry(since: Instant, ike: IkeSaId, role: Role) -> [u64; 2] {
    let bit = if role == Role::Responder { RESPONDER_BIT } else { 0 };
    [since.as_micros(), ike.0 | bit]
}

const fn id_of(ike: u64) -> IkeSaId {
    IkeSaId(ike & !RESPONDER_BIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);

    fn named(name: &str) -> Identity {
        Identity::Fqdn(name.into())
    }

    fn pair(peer: &str) -> PeerPair {
        PeerPair::new(&named("us"), &named(peer), V4)
    }

    fn scope(connection: &str, proof: Proof, peer: &str) -> AuthScope {
        let connection = Connection::with_shared_key(connection, named("us"), named("a"));
        AuthScope::new(&connection, proof, &named("us"), &named(peer), V4)
    }

    #[test]
    fn each_peer_has_its_own_entries() {
        let at = Instant::from_secs;
        let of = |peer| (pair(peer), scope("t", Proof::SharedKey, peer));
        let (a, b, c) = (of("a"), of("b"), of("c"));
        let mut peers = PeerIndex::default();
        for (who, since, ike) in [(&b, 2, 1), (&b, 1, 2), (&a, 1, 3), (&b, 3, 4)] {
            peers.insert_keys(&who.0, &who.1, entry(at(since), IkeSaId(ike), Role::Initiator));
        }
        let before = |peers: &PeerIndex, who: &(PeerPair, AuthScope), time| {
            peers.established_before(&who.1, at(time)).map(|ike| ike.0).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(before(&peers, &b, 3), [2, 1], "without the IKE SA of that time");
        assert!(before(&peers, &b, 1).is_empty());
        assert_eq!(before(&peers, &a, 9), [3]);
        assert_eq!(peers.begun_by_peer(&b.1).count(), 0);
        assert_eq!([peers.has(&a.0), peers.has(&b.0), peers.has(&c.0)], [true, true, false]);
        assert_eq!(
            (peers.oldest(&b.1), peers.count(&b.1, 9), peers.count(&b.1, 2)),
            (Some(IkeSaId(2)), 3, 2)
        );
        peers.remove_keys(&b.0, &b.1, entry(at(1), IkeSaId(2), Role::Initiator));
        assert_eq!(before(&peers, &b, 9), [1, 4]);
        peers.remove_keys(&a.0, &a.1, entry(at(1), IkeSaId(3), Role::Initiator));
        assert!(!peers.has(&a.0));
    }

    #[test]
    fn a_pair_is_both_identities_and_the_ip_version() {
        let one = pair("peer");
        assert_eq!(one, PeerPair::new(&named("US"), &named("Peer"), V4), "the case of letters is ignored");
        for other in [
            PeerPair::new(&named("others"), &named("peer"), V4),
            PeerPair::new(&named("us"), &named("other"), V4),
            PeerPair::new(&named("us"), &named("peer"), V6),
            PeerPair::new(&named("peer"), &named("us"), V4),
        ] {
            assert_ne!(one, other);
        }
        // The boundary between the two identities matters.
        let (a, ab, b) =
            (Identity::KeyId(b"a".into()), Identity::KeyId(b"a\x0bb".into()), Identity::KeyId(b"b".into()));
        assert_ne!(PeerPair::new(&a, &Identity::KeyId(b"b\x0bb".into()), V4), PeerPair::new(&ab, &b, V4));
    }

    #[test]
    fn a_scope_consists_of_pair_connection_and_proof() {
        let pair = pair("a");
        let one = scope("one", Proof::SharedKey, "a");
        assert_eq!(one, scope("one", Proof::SharedKey, "A"));
        let others = [
            scope("one", Proof::Signature, "a"),
            scope("other", Proof::SharedKey, "a"),
            scope("one", Proof::SharedKey, "b"),
        ];
        let mut peers = PeerIndex::default();
        peers.insert_keys(&pair, &one, entry(Instant::from_secs(1), IkeSaId(1), Role::Responder));
        assert_eq!(peers.begun_by_peer(&one).collect::<alloc::vec::Vec<_>>(), [IkeSaId(1)]);
        assert_eq!(peers.established_before(&one, Instant::from_secs(9)).count(), 1);
        for other in &others {
            assert_eq!(
                (peers.established_before(other, Instant::from_secs(9)).count(), peers.oldest(other)),
                (0, None)
            );
            assert!(other.peer() != one.peer() && other.bytes != one.bytes);
        }
        assert!(peers.has(&pair), "a pair does not depend on the proof");
        // Over the other IP version the peer is the same, but its IKE SAs are different ones.
        let connection = Connection::with_shared_key("one", named("us"), named("a"));
        let over_v6 = AuthScope::new(&connection, Proof::SharedKey, &named("us"), &named("a"), V6);
        assert_ne!(over_v6, one);
        assert_eq!(over_v6.peer(), one.peer());
    }
}
