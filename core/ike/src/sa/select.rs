//! Which connection a peer means that begins: all that may be meant, the best one first (RFC 4301 section
//! 4.4.3).
//!
//! In IKE_SA_INIT only addresses and algorithms are known, so what is said there of CERTREQ, fragments and
//! childless IKE SAs holds for all connections that may still be meant. In IKE_AUTH the identities choose
//! among them, and then what the peer proves: a connection that does not take the proof leaves it to the next
//! one.

use super::Cx;
use super::init_reply::wanted_authorities;
use crate::config::{AddrPattern, Childless, Connection, Fragmentation, IdPattern, Identity, IkeProposal};
use crate::credentials::id_matches;
use crate::negotiate::IkeSuite;
use crate::{AuthorityHash, Path};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most connections against which one proof is judged: each costs the search for a path of certificates.
pub(crate) const MAX_JUDGED: usize = 16;

/// What is announced in the first exchange.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announced {
    /// Fragments (RFC 7383).
    pub(crate) fragments: bool,
    /// IKE SAs without a first Child SA (RFC 6023).
    pub(crate) childless: bool,
    /// The authorities for CERTREQ.
    pub(crate) authorities: Vec<AuthorityHash>,
}

impl Announced {
    /// Of one connection, when we begin. Authorities are named in IKE_AUTH then.
    pub(crate) fn by(connection: &Connection) -> Self {
        Self {
            fragments: connection.fragmentation != Fragmentation::No,
            childless: connection.childless != Childless::Never,
            authorities: Vec::new(),
        }
    }

    /// Of all connections that may be meant between these ends with these algorithms.
    pub(crate) fn for_all(path: Path, suite: IkeSuite, cx: &Cx<'_, '_>) -> Self {
        let mut all = Self::default();
        let mut authorities = BTreeSet::new();
        for connection in between(&cx.shared.connections, path).filter(|one| allows(one, suite)) {
            let one = Self::by(connection);
            all.fragments |= one.fragments;
            all.childless |= one.childless;
            authorities.extend(wanted_authorities(connection, cx));
        }
        all.authorities = authorities.into_iter().collect();
        all
    }
}

fn between(connections: &[Arc<Connection>], path: Path) -> impl Iterator<Item = &Arc<Connection>> {
    connections.iter().filter(move |connection| closeness(connection, path).is_some())
}

fn allows(connection: &Connection, IkeSuite { sk, prf, kex }: IkeSuite) -> bool {
    connection.proposals.iter().any(|proposal: &IkeProposal| proposal.allows(sk, prf, kex))
}

/// The connections between these ends, those first that name the ends most closely, then in the order of the
/// configuration.
pub(crate) fn by_address(connections: &[Arc<Connection>], path: Path) -> Vec<Arc<Connection>> {
    let mut found: Vec<_> = between(connections, path).cloned().collect();
    found.sort_by_key(|connection| core::cmp::Reverse(closeness(connection, path)));
    found
}

/// How closely a connection names the ends, the peer's first; `None` if it is not between them.
fn closeness(connection: &Connection, path: Path) -> Option<(u8, u8)> {
    let closest = |patterns: &[AddrPattern], addr| {
        patterns.iter().filter(|pattern| pattern.matches(addr)).map(how_close).max()
    };
    let local = closest(&connection.local_addrs, path.local.ip())?;
    Some((closest(&connection.remote_addrs, path.remote.ip())?, local))
}

/// One address is closer than a subnet or range, and that is closer than every address.
fn how_close(pattern: &AddrPattern) -> u8 {
    match pattern {
        AddrPattern::Range(_) if pattern.single().is_some() => 2,
        AddrPattern::Range(range) if range.prefix_len() != Some(0) => 1,
        AddrPattern::Range(_) | AddrPattern::Any => 0,
    }
}

/// The entries of the PAD for the identities (RFC 4301 section 4.4.3), among those between these ends that
/// would have agreed to the algorithms: one that names the peer comes before one that takes anybody, then one
/// that is called what the peer asks for, then one that names the ends. At most [`MAX_JUDGED`].
pub(crate) fn by_identity(
    (path, suite): (Path, IkeSuite),
    id: &Identity,
    asked: Option<&Identity>,
    cx: &Cx<'_, '_>,
) -> Vec<Arc<Connection>> {
    let is_asked_for = |connection: &Connection| match (&connection.local.id, asked) {
        (Some(own), Some(asked)) => own.names_same(asked),
        _ => true,
    };
    let suits = |connection: &Arc<Connection>| {
        allows(connection, suite)
            && is_asked_for(connection)
            && id_matches(cx.env.credentials, &connection.remote.id, id)
    };
    let rank = |connection: &Arc<Connection>| {
        let names_peer = match connection.remote.id {
            IdPattern::Exactly(_) => 0,
            IdPattern::Ending(..) | IdPattern::NameLike(_) => 1,
            IdPattern::Any => 2,
        };
        (names_peer, asked.is_some() && connection.local.id.is_none())
    };
    let mut found = by_address(&cx.shared.connections, path);
    found.retain(suits);
    found.sort_by_key(rank);
    found.truncate(MAX_JUDGED);
    found
}
