//! Several rounds of authentication in one IKE_AUTH exchange (RFC 4739).

use super::{Connection, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Rounds of authentication after the first one, which [`Connection::local`] and [`Connection::remote`]
/// describe. Each side passes its own rounds in order, and every round must succeed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FurtherRounds {
    /// Further rounds of this host.
    pub local: Vec<LocalAuth>,
    /// Further rounds of the peer.
    pub remote: Vec<RemoteAuth>,
    /// The round that `local` and `remote` of the connection describe.
    current: Round,
}

impl FurtherRounds {
    /// Returns these rounds after the first one.
    pub const fn new(local: Vec<LocalAuth>, remote: Vec<RemoteAuth>) -> Self {
        Self { local, remote, current: Round { local: 0, remote: 0 } }
    }
}

/// Where both sides are in their rounds. The first round has number 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Round {
    /// Round of this host.
    pub local: usize,
    /// Round of the peer.
    pub remote: usize,
}

impl Connection {
    /// The round that [`local`](Self::local) and [`remote`](Self::remote) describe. In a configured
    /// connection that is the first one; the calls of [`Credentials`](crate::Credentials) during a later
    /// round get the connection as [`in_round`](Self::in_round) returns it.
    pub const fn round(&self) -> Round {
        self.further_rounds.current
    }

    /// The configured connection with the authentication of a round as `local` and `remote`; `None` if it has
    /// no such round.
    pub fn in_round(&self, round: Round) -> Option<Cow<'_, Self>> {
        if round == self.round() {
            return Some(Cow::Borrowed(self));
        }
        if self.round() != Round::default() {
            return None;
        }
        let mut connection = self.clone();
        let FurtherRounds { local, remote, current } = &mut connection.further_rounds;
        if let Some(at) = round.local.checked_sub(1) {
            connection.local = local.get(at)?.clone();
        }
        if let Some(at) = round.remote.checked_sub(1) {
            connection.remote = remote.get(at)?.clone();
        }
        *current = round;
        Some(Cow::Owned(connection))
    }

    /// Number of rounds of this host.
    pub const fn local_rounds(&self) -> usize {
        self.further_rounds.local.len().saturating_add(1)
    }

    /// Number of rounds of the peer.
    pub const fn remote_rounds(&self) -> usize {
        self.further_rounds.remote.len().saturating_add(1)
    }

    /// The connection in each round of the peer, with the first one of this host.
    pub fn in_remote_rounds(&self) -> impl Iterator<Item = Cow<'_, Self>> {
        (0..self.remote_rounds()).filter_map(|remote| self.in_round(Round { local: 0, remote }))
    }

    /// The connection in each round of this host, with the first one of the peer.
    pub fn in_local_rounds(&self) -> impl Iterator<Item = Cow<'_, Self>> {
        (0..self.local_rounds()).filter_map(|local| self.in_round(Round { local, remote: 0 }))
    }

    /// Whether either side has several rounds.
    pub const fn has_further_rounds(&self) -> bool {
        self.local_rounds() > 1 || self.remote_rounds() > 1
    }

    /// Methods of EAP, in order of preference, that may authenticate a responder without an AUTH payload of
    /// its own, and this host (RFC 5998 section 4). Empty if the connection demands more of the responder:
    /// another proof, several rounds, or the word of an AAA server about its groups.
    pub(crate) fn mutual_eap_methods(&self) -> Vec<casemate_eap::Method> {
        let (LocalMethod::Eap(local), RemoteMethod::Eap(remote)) = (&self.local.method, &self.remote.method)
        else {
            return Vec::new();
        };
        if self.has_further_rounds() || !remote.groups.is_empty() {
            return Vec::new();
        }
        let is_allowed = |method: &casemate_eap::Method| {
            method.is_mutual() && (remote.is_relayed() || remote.methods.contains(method))
        };
        local.methods.iter().copied().filter(is_allowed).collect()
    }
}
