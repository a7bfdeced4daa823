//! Groups of a peer, which an AAA server names when it accepts the peer: they select among the connections
//! whose authentication is otherwise the same. As in strongSwan, the first connection that accepts one of the
//! groups is used.

use super::explain;
use crate::config::{Connection, IdPattern, Identity, RemoteAuth, RemoteMethod, Round};
use crate::context::Step;
use crate::state::responder_rounds::ResponderRounds;
use crate::state::select_connection::{by_identity, check_childless};
use crate::state::{HalfOpen, SaCommon};
use crate::transport::required;
use crate::{PeerFault, StateFault};
use alloc::vec::Vec;
use casemate_eap::{Authenticated, EapFault};

impl HalfOpen {
    /// Selects the connection of a peer that has passed EAP in its current round. Fails if the peer belongs to
    /// no group that a connection requires.
    pub(super) fn select_by_groups(
        &self,
        common: &mut SaCommon,
        rounds: &ResponderRounds,
        done: &Authenticated,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let round = rounds.peer;
        if accepts(&common.connection, round, &done.groups) {
            return Ok(());
        }
        let first = rounds.first()?;
        let id = Identity::from_payload(&required(first.id_i)?.id).ok_or(StateFault::IdentityType)?;
        let asked = first.id_r.and_then(|asked| Identity::from_payload(&asked.id));
        let candidates = by_identity(common.path, self.channel.suite, &id, asked.as_ref(), step);
        let other = candidates.into_iter().find(|candidate| {
            is_proved_alike(candidate, &common.connection, round)
                && check_childless(candidate, &first).is_ok()
                && accepts(candidate, round, &done.groups)
        });
        let Some(other) = other else {
            explain(EapFault::NoGroup, Some(&done.identity), &rounds.peer_id, step);
            return Err(StateFault::EapFailed.into());
        };
        common.connection = other;
        Ok(())
    }
}

/// Whether a connection accepts a peer of these groups in a round. The groups of earlier rounds were checked.
fn accepts(connection: &Connection, remote: usize, groups: &[Vec<u8>]) -> bool {
    let Some(in_round) = connection.in_round(Round { local: 0, remote }) else { return false };
    match &in_round.remote.method {
        RemoteMethod::Eap(eap) => eap.accepts_groups(groups),
        _ => false,
    }
}

/// Whether what both sides have proved and still have to prove is the same on both connections, except for the
/// groups of the current round. Both accept the identity of the first round.
fn is_proved_alike(a: &Connection, b: &Connection, round: usize) -> bool {
    let proofs = |connection: &Connection| {
        let first = RemoteAuth { id: IdPattern::Any, ..connection.remote.clone() };
        let mut remote: Vec<RemoteAuth> =
            [first].into_iter().chain(connection.further_rounds.remote.clone()).collect();
        if let Some(RemoteMethod::Eap(eap)) = remote.get_mut(round).map(|auth| &mut auth.method) {
            eap.groups.clear();
        }
        (connection.local.clone(), connection.further_rounds.local.clone(), remote)
    };
    proofs(a) == proofs(b)
}
