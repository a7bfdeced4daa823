//! Invariants. Each check returns a sentence that describes the violation.

mod delivery;
mod nonces;
mod owners;
mod peers;
mod strength;

use crate::node::{Incarnation, Node};
use casemate::Notice;
use casemate_ike::{ChildId, ChildUp, Event, IkeKeys, IkeSaId, IkeSpis};
use casemate_sa::{Instant, SaParams};
use casemate_wire::ike::IkeSpi;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

pub(crate) use delivery::{PacketLog, PacketSpec, Route};
use nonces::NonceSource;
use owners::Owners;
pub(crate) use peers::{check_empty, check_mirrors, check_sizes, describe, is_idle};

/// Violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of a check.
pub(crate) type Checked = Result<(), Violation>;

/// Returns a violation.
pub(crate) fn violated<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

/// SA of a node, identified by its ID or SPI. IDs and SPIs are unique only between two restarts.
type Sa<Id> = (Incarnation, Id);

/// When the peer of an IKE SA authenticated.
#[derive(Clone, Copy)]
struct Authenticated {
    /// By the clock of the node.
    by_clock: Instant,
    /// When the IKE SA was established, in simulation time, which has no jumps. If it resumed a session, the
    /// peer authenticated earlier.
    established_at: Duration,
}

/// Number of retransmissions without a response after which a host may set up a new IKE SA (decision 0080).
const RETRANSMISSIONS_IN_SILENCE: u32 = 3;

/// Record of all notices and all sealed data.
#[derive(Default)]
pub(crate) struct Monitor {
    /// Digest of the data that was sealed with each key and IV.
    sealed: HashMap<nonces::KeyAndIv, u64>,
    /// Digest of each sent message. Only one message may have a [`MessageName`](nonces::MessageName).
    messages: HashMap<nonces::MessageName, u64>,
    /// Keys in the order in which additional key exchanges replaced them.
    ike_keys: HashMap<Sa<[IkeSpi; 2]>, Vec<IkeKeys>>,
    /// By outbound SPI.
    outbound: HashMap<Sa<u32>, NonceSource>,
    children: HashMap<Sa<ChildId>, ChildUp>,
    /// When the peer of an IKE SA authenticated.
    authenticated: HashMap<Sa<IkeSaId>, Authenticated>,
    /// IKE SAs that a newer IKE SA with the same peer has to replace.
    must_close: HashSet<Sa<IkeSaId>>,
    /// IKE SAs whose sessions were resumed.
    resumed: HashSet<Sa<IkeSaId>>,
    /// Whether a request had no response for so long that its host may have set up a new IKE SA.
    was_silent: bool,
    /// SAs that several processes of a node have one after the other.
    owners: Owners,
    /// Packets of protected hosts.
    pub(crate) packet_log: PacketLog,
}

impl Monitor {
    /// Records a notice of a node.
    pub(crate) fn observe(&mut self, node: &Node, notice: &Notice) -> Checked {
        let incarnation = node.incarnation();
        match notice {
            Notice::Ike(Event::Keys(keys)) => {
                let IkeSpis { initiator: spi_i, responder: spi_r } = keys.spis;
                self.ike_keys.entry((incarnation, [spi_i, spi_r])).or_default().push((**keys).clone());
            }
            Notice::Ike(Event::ChildUp(up)) => {
                let source = NonceSource::of(&up.outbound);
                self.outbound.insert((incarnation, up.outbound.spi.get()), source);
                self.children.insert((incarnation, up.id), (**up).clone());
            }
            Notice::Ike(Event::IkeUp { ike, resumes, .. }) => {
                // A resumed session does not authenticate the peer anew.
                let earlier = resumes.and_then(|old| self.authenticated.get(&(incarnation, old)).copied());
                let by_clock = earlier.map_or(node.time(), |earlier| earlier.by_clock);
                let authenticated = Authenticated { by_clock, established_at: node.simulation_time() };
                self.authenticated.insert((incarnation, *ike), authenticated);
            }
            Notice::Ike(Event::IkeRekeyed { old, new }) => {
                let authenticated = self.authenticated.get(&(incarnation, *old)).copied();
                self.authenticated
                    .extend(authenticated.map(|authenticated| ((incarnation, *new), authenticated)));
                if self.must_close.contains(&(incarnation, *old)) {
                    self.must_close.insert((incarnation, *new));
                }
            }
            Notice::Ike(Event::Retransmitted { attempt: RETRANSMISSIONS_IN_SILENCE.., .. })
                if !node.is_replaced =>
            {
                self.was_silent = true;
            }
            Notice::ChildNotInstalled { child, error, .. } => {
                return violated(format!(
                    "node {}: child {} was not installed: {error}",
                    node.index, child.name
                ));
            }
            _ => {}
        }
        self.note_owner(node, notice);
        Ok(())
    }

    /// Records an outbound SA with manual keys.
    pub(crate) fn observe_manual_sa(&mut self, node: &Node, outbound: &SaParams) {
        let source = NonceSource::of(outbound);
        self.outbound.insert((node.incarnation(), outbound.spi.get()), source);
    }

    /// Whether the IKE SA was established at this node.
    pub(crate) fn was_up(&self, node: &Node, ike: IkeSaId) -> bool {
        self.authenticated.contains_key(&(node.incarnation(), ike))
    }

    /// Whether a node had no response to a request and three retransmissions.
    pub(crate) const fn was_silent(&self) -> bool {
        self.was_silent
    }

    fn child(&self, node: &Node, id: ChildId) -> Option<&ChildUp> {
        self.children.get(&(node.incarnation(), id))
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
