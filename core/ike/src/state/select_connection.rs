//! Selection of the connection for a peer that starts an IKE SA: all candidates, the best one first (RFC 4301
//! section 4.4.3).
//!
//! In IKE_SA_INIT only addresses and algorithms are known, so CERTREQ, fragmentation and childless IKE SAs
//! are announced for all candidates. In IKE_AUTH the identities select among the candidates, and then the
//! peer's proof: a connection that does not accept the proof is skipped.

use crate::auth::CertRequests;
use crate::auth::credentials::id_matches;
#[cfg(feature = "ppk")]
use crate::auth::ppk;
use crate::config::{AddrPattern, Childless, Connection, Fragmentation, IdPattern, Identity, IkeProposal};
use crate::context::Step;
use crate::engine::connection_table::ConnectionTable;
use crate::negotiate::{IkeSuite, Offer};
use crate::transport::Content;
use crate::{HostAddrs, Lookup, Path, Routes, StateFault};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::ExchangeType;
use core::cmp::Reverse;

/// Maximum number of connections for which one proof is verified. Each may cost the search for a
/// certification path.
pub(crate) const MAX_CANDIDATES: usize = 16;

/// Features to announce in IKE_SA_INIT.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnnouncedFeatures {
    /// Fragmentation (RFC 7383).
    pub(crate) fragments: bool,
    /// IKE SAs without a first Child SA (RFC 6023).
    pub(crate) childless: bool,
    /// AUTH payloads that cover IKE_SA_INIT of both sides (draft-ietf-ipsecme-ikev2-downgrade-prevention).
    pub(crate) full_transcript: bool,
    /// IKE_INTERMEDIATE exchanges (RFC 9242).
    pub(crate) intermediate: bool,
    /// Several rounds of authentication (RFC 4739). Only a responder announces them in IKE_SA_INIT.
    #[cfg(feature = "eap")]
    pub(crate) multiple_auth: bool,
    /// Post-quantum pre-shared keys (RFC 8784).
    #[cfg(feature = "ppk")]
    pub(crate) ppk: bool,
    /// What is requested of the peer's certificates.
    pub(crate) requests: CertRequests,
}

impl AnnouncedFeatures {
    /// Features of one connection, for the initiator. The initiator requests certificates in IKE_AUTH.
    pub(crate) fn of_connection(connection: &Connection) -> Self {
        Self {
            fragments: connection.fragmentation != Fragmentation::No,
            childless: connection.childless != Childless::Never,
            full_transcript: connection.full_transcript_auth,
            intermediate: Offer::all_ike(connection).iter().any(Offer::has_additional),
            #[cfg(feature = "eap")]
            multiple_auth: false,
            #[cfg(feature = "ppk")]
            ppk: false,
            requests: CertRequests::default(),
        }
    }

    /// Features that the first request of an IKE SA announces.
    pub(crate) fn of_request(
        connection: &Connection,
        exchange: ExchangeType,
        step: &Step<'_, '_>,
    ) -> Result<Self, StateFault> {
        #[cfg(feature = "resumption")]
        if exchange == ExchangeType::IKE_SESSION_RESUME {
            return Ok(Self::of_resumption(connection));
        }
        #[cfg(not(feature = "resumption"))]
        let _ = exchange;
        #[cfg(not(feature = "ppk"))]
        let _ = step;
        Ok(Self {
            #[cfg(feature = "ppk")]
            ppk: ppk::is_announced(connection, step.context.credentials)?,
            ..Self::of_connection(connection)
        })
    }

    /// Features of an IKE_SESSION_RESUME exchange. The ticket says which messages AUTH covers.
    #[cfg(feature = "resumption")]
    pub(crate) fn of_resumption(connection: &Connection) -> Self {
        Self { full_transcript: false, ..Self::of_connection(connection) }
    }

    /// Features of all candidates with these addresses and algorithms.
    pub(crate) fn of_candidates(path: Path, suite: IkeSuite, step: &Step<'_, '_>) -> Self {
        let mut all = Self::default();
        let mut authorities = BTreeSet::new();
        let matching = matching_addrs(&step.shared.connections, path, step.context.routes);
        for (_, connection) in matching.filter(|(_, one)| allows(one, suite)) {
            let one = Self::of_connection(connection);
            all.fragments |= one.fragments;
            all.childless |= one.childless;
            all.full_transcript |= one.full_transcript;
            #[cfg(feature = "eap")]
            {
                all.multiple_auth |= connection.has_further_rounds();
            }
            let requests = CertRequests::ours(connection, step);
            authorities.extend(requests.authorities);
            #[cfg(feature = "revocation")]
            {
                all.requests.ocsp |= requests.ocsp;
            }
        }
        all.requests.authorities = authorities.into_iter().collect();
        all
    }
}

/// Rank of a connection by its addresses: the most specific first, then in the order of the configuration.
type AddrRank = (Reverse<(u8, u8)>, u64);

/// Connections that match these addresses, in no particular order. A connection may be there twice.
fn matching_addrs<'c>(
    connections: &'c ConnectionTable,
    path: Path,
    routes: &'c dyn Routes,
) -> impl Iterator<Item = (AddrRank, &'c Arc<Connection>)> {
    connections.candidates(path.remote.ip()).filter_map(move |(position, connection)| {
        Some(((Reverse(specificity(connection, path, routes)?), position), connection))
    })
}

fn allows(connection: &Connection, suite: IkeSuite) -> bool {
    connection.proposals.iter().any(|proposal: &IkeProposal| proposal.allows(suite))
}

/// Connections that match these addresses, the most specific first, then in the order of the configuration.
pub(crate) fn by_address<'c>(
    connections: &'c ConnectionTable,
    path: Path,
    routes: &'c dyn Routes,
) -> impl Iterator<Item = &'c Arc<Connection>> {
    let mut found: Vec<_> = matching_addrs(connections, path, routes).collect();
    found.sort_unstable_by_key(|(rank, _)| *rank);
    found.dedup_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, connection)| connection)
}

/// Whether the name of a peer is being looked up again, because its address may have changed to this one.
/// Asks for the names of all connections that no address excludes.
pub(super) fn awaits_look_up(connections: &ConnectionTable, path: Path, routes: &dyn Routes) -> bool {
    let is_local = |connection: &Connection| {
        connection.local_addrs.iter().any(|pattern| pattern.matches(path.local.ip(), routes))
    };
    let named = connections.candidates(path.remote.ip()).filter(|(_, connection)| is_local(connection));
    let patterns = named.flat_map(|(_, connection)| &connection.remote_addrs);
    let pending = patterns
        .filter(|pattern| matches!(pattern, AddrPattern::Host(_)))
        .filter(|pattern| pattern.single_addrs(Lookup::Recheck, routes) == HostAddrs::Pending);
    pending.count() > 0
}

/// How specifically a connection names the peer's address, then ours; `None` if it does not match.
fn specificity(connection: &Connection, path: Path, routes: &dyn Routes) -> Option<(u8, u8)> {
    let closest = |patterns: &[AddrPattern], addr| {
        patterns.iter().filter(|pattern| pattern.matches(addr, routes)).map(pattern_specificity).max()
    };
    let local = closest(&connection.local_addrs, path.local.ip())?;
    Some((closest(&connection.remote_addrs, path.remote.ip())?, local))
}

/// A single address or host is more specific than a subnet or range, and that is more specific than any
/// address.
fn pattern_specificity(pattern: &AddrPattern) -> u8 {
    match pattern {
        _ if pattern.is_single() => 2,
        AddrPattern::Range(range) if range.prefix_len() != Some(0) => 1,
        _ => 0,
    }
}

/// PAD entries that match the identities (RFC 4301 section 4.4.3) among the connections that match the
/// addresses and algorithms. A connection that names the peer comes before one that accepts any peer, then
/// one with the identity that the peer asks for, then one with more specific addresses. Returns at most
/// [`MAX_CANDIDATES`].
pub(crate) fn by_identity(
    path: Path,
    suite: IkeSuite,
    id: &Identity,
    asked: Option<&Identity>,
    step: &Step<'_, '_>,
) -> Vec<Arc<Connection>> {
    let is_asked_for = |connection: &Connection| match (&connection.local.id, asked) {
        (Some(own), Some(asked)) => own.is_same_peer(asked),
        _ => true,
    };
    let suits = |connection: &Arc<Connection>| {
        allows(connection, suite)
            && is_asked_for(connection)
            && id_matches(step.context.credentials, &connection.remote.id, id)
    };
    let rank = |connection: &Arc<Connection>| {
        let names_peer = match connection.remote.id {
            IdPattern::Exact(_) => 0,
            IdPattern::Suffix(..) | IdPattern::DnPattern(_) => 1,
            IdPattern::Any => 2,
        };
        (names_peer, asked.is_some() && connection.local.id.is_none())
    };
    let matching = matching_addrs(&step.shared.connections, path, step.context.routes);
    let mut found: Vec<_> = matching
        .filter(|(_, connection)| suits(connection))
        .map(|(addr_rank, connection)| ((rank(connection), addr_rank), connection))
        .collect();
    found.sort_unstable_by_key(|(rank, _)| *rank);
    found.dedup_by_key(|(rank, _)| *rank);
    found.into_iter().take(MAX_CANDIDATES).map(|(_, connection)| connection.clone()).collect()
}

/// Whether the request is for an IKE SA without a Child SA (RFC 6023 section 3).
pub(super) const fn is_childless(content: &Content<'_>) -> bool {
    content.sa.is_none() && content.ts_i.is_none() && content.ts_r.is_none()
}

/// Checks the request against the policy of the connection.
pub(super) fn check_childless(connection: &Connection, content: &Content<'_>) -> Result<(), StateFault> {
    match (connection.childless, is_childless(content)) {
        (Childless::Never, true) | (Childless::Force, false) => Err(StateFault::ChildlessRefused),
        _ => Ok(()),
    }
}
