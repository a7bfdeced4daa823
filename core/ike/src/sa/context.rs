//! What a state works with: the caller's means, and what all IKE SAs share.

use super::{IkeSa, Parentage};
use crate::assigned::AssignedAddrs;
use crate::child::ChildSa;
use crate::config::{Connection, Lifespan};
use crate::cookie::CookieJar;
use crate::farewell::Farewells;
use crate::peers::Peers;
use crate::pool::Pools;
use crate::restarts::{Restart, Restarts};
use crate::{ChildId, Down, Env, Event, FaultCounters, IkeSaId, Path, PeerFault, Settings, Transmit};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::Rng;
use casemate_sa::Instant;
use casemate_tables::Table;
use casemate_wire::ike::IkeSpi;
use core::time::Duration;

/// What all IKE SAs share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) pools: Pools,
    pub(crate) cookies: CookieJar,
    pub(crate) transmits: VecDeque<Transmit>,
    pub(crate) assigned: AssignedAddrs,
    pub(crate) farewells: Farewells,
    pub(crate) restarts: Restarts,
    pub(crate) events: VecDeque<Event>,
    pub(crate) faults: FaultCounters,
    pub(crate) peers: Peers,
    /// The IKE SA that each Child SA belongs to.
    pub(crate) owners: Table<ChildId, IkeSaId>,
    pub(crate) scratch: Box<[u8]>,
    pub(crate) tell_keys: bool,
    pub(crate) last_child: u64,
    pub(crate) last_ike: u64,
    pub(crate) effects: Vec<Effect>,
}

/// What a state asks of the engine.
pub(crate) enum Effect {
    /// A new IKE SA that came of an old one.
    Spawn(Box<IkeSa>),
    /// What one IKE SA had now belongs to that one, and the peer is where the first one heard it.
    Adopt(IkeSaId, Box<Parentage>, Path),
    /// This IKE SA is one too many, and the peer is to close it.
    Redundant(IkeSaId),
    /// This IKE SA goes if another has replaced it: the peer need not close it any more.
    Forget(IkeSaId),
    /// The successor that the peer made for the first IKE SA is gone.
    RivalGone(IkeSaId, IkeSaId),
    /// Another IKE SA is closed: with a message to the peer, or without one if the peer has forgotten it.
    Close { ike: IkeSaId, why: Down, tell: bool },
    /// An IKE SA is closed at once: one message tells the peer, and its response is not awaited.
    Evict(IkeSaId),
    /// A connection is begun anew.
    Begin(Restart),
    /// This IKE SA is made anew beside the old one (RFC 7296 section 2.8.3).
    Reauthenticate(IkeSaId),
    /// What has this origin is closed: its reauthentication is over.
    Reauthenticated(IkeSaId),
}

impl Effect {
    /// Whether it closes this IKE SA because another takes its place.
    pub(crate) fn closes(&self, id: IkeSaId) -> bool {
        matches!(self, Self::Close { ike, .. } | Self::Evict(ike) if *ike == id)
    }
}

impl Shared {
    pub(crate) fn next_child_id(&mut self) -> ChildId {
        self.last_child = self.last_child.saturating_add(1);
        ChildId(self.last_child)
    }

    /// These Child SAs belong to this IKE SA now.
    pub(crate) fn own(&mut self, children: &[ChildSa], ike: IkeSaId) {
        for child in children {
            self.owners.insert(child.id, ike);
        }
    }

    pub(crate) fn next_ike_id(&mut self) -> IkeSaId {
        self.last_ike = self.last_ike.saturating_add(1);
        IkeSaId(self.last_ike)
    }
}

/// What a state works with.
pub(crate) struct Cx<'c, 'e> {
    pub(crate) env: &'c mut Env<'e>,
    pub(crate) shared: &'c mut Shared,
}

impl Cx<'_, '_> {
    /// Sends datagrams. On the port that is shared with ESP they have a marker (RFC 7296 section 3.1).
    pub(crate) fn send(&mut self, path: Path, datagrams: &[Vec<u8>]) {
        let marker = path.local.port() == self.shared.settings.natt_port;
        let transmits = datagrams.iter().map(|message| Transmit { path, marker, message: message.clone() });
        self.shared.transmits.extend(transmits);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.shared.events.push_back(event);
    }

    /// A Child SA of an IKE SA with this origin is gone.
    pub(crate) fn child_down(&mut self, id: ChildId, why: Down, origin: IkeSaId) {
        self.shared.owners.remove(id);
        self.event(Event::ChildDown { id, why, origin });
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.shared.effects.push(effect);
    }

    /// Counts and tells what a peer did wrong.
    pub(crate) fn fault(&mut self, fault: PeerFault, path: Path) {
        self.shared.faults.count(fault);
        self.event(Event::Fault { fault, path });
    }

    /// A nonce (RFC 7296 section 2.10: at least half as long as the key of the PRF; the longest has 64 bytes).
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = [0; 32];
        self.env.rng.public(&mut nonce);
        nonce.into()
    }

    /// An SPI for an IKE SA, never zero. 64 random bits do not meet by chance; the engine sees if they do.
    pub(crate) fn ike_spi(&mut self) -> IkeSpi {
        IkeSpi(random_u64(self.env.rng).max(1))
    }

    /// When something that lives so is rekeyed, and when it ends.
    pub(crate) fn lifespan(&mut self, span: &Lifespan, now: Instant) -> (Option<Instant>, Option<Instant>) {
        let early = random_below(self.env.rng, span.random);
        let rekey = span.rekey.map(|rekey| now.after(rekey.saturating_sub(early)));
        (rekey, span.hard.map(|hard| now.after(hard)))
    }
}

fn random_u64(rng: &mut dyn Rng) -> u64 {
    let mut bytes = [0; 8];
    rng.public(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// A random time up to `limit`. The bias does not matter.
pub(crate) fn random_below(rng: &mut dyn Rng, limit: Duration) -> Duration {
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random_u64(rng).checked_rem(limit.saturating_add(1)).unwrap_or(0))
}
