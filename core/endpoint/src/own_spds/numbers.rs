//! Numbers of SPDs that belong to Child SAs and IKE SAs.

use crate::InstallError;
use alloc::sync::Arc;
#[cfg(feature = "eap")]
use casemate_ike::UserIdentity;
use casemate_ike::config::Identity;
use casemate_sa::table::OrderedMap;
use casemate_sa::{OwnSpd, SpdId, SpdNumbers, SpdOwner};

/// Which of the SPDs of an owner it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    owner: SpdOwner,
    direction: KeyDirection,
    numbers: SpdNumbers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyDirection {
    Both,
    Outbound,
    Inbound,
}

impl Key {
    pub(super) const fn new(own: &OwnSpd, is_outbound: bool) -> Self {
        let direction = match (own.per_direction, is_outbound) {
            (false, _) => KeyDirection::Both,
            (true, true) => KeyDirection::Outbound,
            (true, false) => KeyDirection::Inbound,
        };
        Self { owner: own.owner, direction, numbers: own.numbers }
    }

    pub(super) fn is_of_ike(&self) -> bool {
        self.owner == SpdOwner::IkeSa
    }
}

/// Numbers that one peer may have, at most: an eighth of those of `%unique`. An authenticated peer can
/// request any number of Child SAs, and must not take the numbers of all others.
const MAX_OF_PEER: usize = 128;

/// Whose numbers are counted together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PeerName {
    /// The identity of its ID payload, which it has proved.
    Id(Identity),
    /// The user of EAP, because a client with EAP may send any ID payload: the proven one, or the login.
    #[cfg(feature = "eap")]
    Eap(UserIdentity),
}

/// The numbers in use.
#[derive(Default)]
pub(super) struct Numbers {
    in_use: OrderedMap<u32, InUse>,
    /// When each number that is free was released: the count of releases until then.
    released: OrderedMap<u32, u64>,
    /// How many numbers were released.
    releases: u64,
}

/// A number in use.
struct InUse {
    /// How many SAs and IKE SAs have it.
    holders: u32,
    /// The peer for which it was taken; `None` if the peer is not known.
    peer: Option<Arc<PeerName>>,
}

impl Numbers {
    /// The number that is free for the longest time. Packets of its former SA may still be on their way, and
    /// firewall rules and scripts may still name it.
    pub(super) fn next(
        &self,
        numbers: SpdNumbers,
        peer: Option<&PeerName>,
        taken: &[SpdId],
    ) -> Result<SpdId, InstallError> {
        let of_peer = self.in_use.values().filter(|number| number.peer.as_deref() == peer).count();
        if peer.is_some() && of_peer.saturating_add(taken.len()) >= MAX_OF_PEER {
            return Err(InstallError::SpdNumbersOfPeer);
        }
        let is_free = |number: &u32| !self.in_use.contains(*number) && !taken.contains(&SpdId::new(*number));
        let free = (numbers.first()..=numbers.last()).filter(is_free);
        let oldest = free.min_by_key(|number| self.released.get(*number).copied());
        oldest.map(SpdId::new).ok_or(InstallError::SpdNumbers)
    }

    /// Notes that a number is in use. No SA has it yet.
    pub(super) fn take(&mut self, spd: SpdId, peer: Option<Arc<PeerName>>) {
        self.in_use.insert(spd.number(), InUse { holders: 0, peer });
        self.released.remove(spd.number());
    }

    /// Adds a holder. Numbers that are not from a range stay as they are.
    pub(super) fn hold(&mut self, spd: SpdId) {
        if let Some(number) = self.in_use.get_mut(spd.number()) {
            number.holders = number.holders.saturating_add(1);
        }
    }

    /// Removes a holder. Returns whether it was the last one.
    pub(super) fn release(&mut self, spd: SpdId) -> bool {
        let Some(number) = self.in_use.get_mut(spd.number()) else { return false };
        number.holders = number.holders.saturating_sub(1);
        let is_free = number.holders == 0;
        if is_free {
            self.in_use.remove(spd.number());
            self.releases = self.releases.saturating_add(1);
            self.released.insert(spd.number(), self.releases);
        }
        is_free
    }
}
