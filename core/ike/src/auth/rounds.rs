//! Peers that prove several identities, in rounds (RFC 4739).

use super::PeerAuthenticated;
use crate::StateFault;
use crate::config::Connection;
use crate::status::ProvenRound;
use crate::transport::Content;
use casemate_wire::ike::{Notify, NotifyType, WriteError, Writer};

impl PeerAuthenticated {
    /// Adds the proof of an earlier round. The peer has the identity of its last round; the scope consists of
    /// all rounds, so IKE SAs with another proof in any round have another scope.
    pub(crate) fn after(self, former: Self) -> Self {
        let scope = self.scope.after(&former.scope);
        let former_round = ProvenRound { peer: former.id, eap_identity: former.eap_identity.clone() };
        let mut earlier_rounds = former.earlier_rounds;
        earlier_rounds.push(former_round);
        let mut assigned_addrs = former.assigned_addrs;
        assigned_addrs.extend(self.assigned_addrs);
        let eap_identity = self.eap_identity.or(former.eap_identity);
        Self {
            scope,
            #[cfg(feature = "resumption")]
            proof: crate::engine::peer_index::Proof::Rounds,
            earlier_rounds,
            assigned_addrs,
            eap_identity,
            ..self
        }
    }

    /// What the peer proved before the last round, in this order.
    pub(crate) fn earlier_rounds(&self) -> &[ProvenRound] {
        &self.earlier_rounds
    }
}

/// Checks that the message with the peer's proof announces another round exactly if round `proved` is not the
/// last one of the peer. A peer can thus neither leave out a round nor add one.
pub(crate) fn check_another_round(
    connection: &Connection,
    proved: usize,
    content: &Content<'_>,
) -> Result<(), StateFault> {
    let is_announced = content.has_notify(NotifyType::ANOTHER_AUTH_FOLLOWS);
    let is_expected = proved.saturating_add(1) < connection.remote_rounds();
    if is_announced == is_expected { Ok(()) } else { Err(StateFault::AuthRounds) }
}

/// Checks that a peer supports several rounds, if the connection has them.
pub(crate) const fn check_support(connection: &Connection, is_supported: bool) -> Result<(), StateFault> {
    if is_supported || !connection.has_further_rounds() { Ok(()) } else { Err(StateFault::AuthRounds) }
}

/// Writes the notifications of several rounds into the first request.
pub(crate) fn write_first(
    connection: &Connection,
    has_proof: bool,
    out: &mut Writer<'_>,
) -> Result<(), WriteError> {
    if connection.has_further_rounds() {
        out.notify(&Notify::new(NotifyType::MULTIPLE_AUTH_SUPPORTED, &[]))?;
    }
    write_another(has_proof && connection.local_rounds() > 1, out)
}

/// Announces another round of this host, beside an AUTH payload.
pub(crate) fn write_another(follows: bool, out: &mut Writer<'_>) -> Result<(), WriteError> {
    if follows { out.notify(&Notify::new(NotifyType::ANOTHER_AUTH_FOLLOWS, &[])) } else { Ok(()) }
}
