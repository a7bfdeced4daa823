//! The invariants. Each check answers what is wrong, in one sentence.

mod delivery;
mod nonces;
mod peers;
mod rest;

use crate::node::Node;
use casemate::Notice;
use casemate_ike::{ChildId, ChildUp, Event, IkeKeys, IkeSaId};
use casemate_sa::{Instant, SaParams};
use casemate_wire::ike::IkeSpi;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(crate) use delivery::{Ledger, Way};
pub(crate) use rest::{check_empty, check_mirrors, check_sizes, describe, is_quiet};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a check answers.
pub(crate) type Checked = Result<(), Violation>;

/// Fails with a sentence.
pub(crate) fn violated<T>(what: String) -> Result<T, Violation> {
    Err(Violation(what))
}

/// One life of a node: a restart begins another one.
type Life = (usize, u32);

/// What is remembered of all that was ever sealed.
#[derive(Default)]
pub(crate) struct Watch {
    /// Key and IV, and what was sealed with them.
    sealed: HashMap<(Vec<u8>, Vec<u8>), u64>,
    /// What was sent under a name that only one message has.
    messages: HashMap<(Life, nonces::MessageName), u64>,
    ike_keys: HashMap<(Life, IkeSpi, IkeSpi), IkeKeys>,
    /// Key, and length of the IV, of an outbound SPI.
    outbound: HashMap<(Life, u32), (Vec<u8>, usize)>,
    children: HashMap<(Life, ChildId), ChildUp>,
    /// When the peer of an IKE SA proved who it is, by the node's own clock.
    proved: HashMap<(Life, IkeSaId), Instant>,
    /// IKE SAs that another one with the same peer is to replace.
    doomed: HashSet<(Life, IkeSaId)>,
    /// Where packets are.
    pub(crate) ledger: Ledger,
}

impl Watch {
    /// Hears what a node tells.
    pub(crate) fn hear(&mut self, node: &Node, notice: &Notice) -> Checked {
        let life = (node.index, node.lives);
        match notice {
            Notice::Ike(Event::Keys(keys)) => {
                let (spi_i, spi_r) = keys.spis;
                self.ike_keys.insert((life, spi_i, spi_r), (**keys).clone());
            }
            Notice::Ike(Event::ChildUp(up)) => {
                let (key, iv_len) = nonces::key_of(&up.outbound);
                self.outbound.insert((life, up.outbound.spi.get()), (key, iv_len));
                self.children.insert((life, up.id), (**up).clone());
            }
            Notice::Ike(Event::IkeUp { ike, .. }) => {
                self.proved.insert((life, *ike), node.time());
            }
            Notice::Ike(Event::IkeRekeyed { old, new }) => {
                let proved = self.proved.get(&(life, *old)).copied();
                self.proved.extend(proved.map(|proved| ((life, *new), proved)));
                if self.doomed.contains(&(life, *old)) {
                    self.doomed.insert((life, *new));
                }
            }
            Notice::NotInstalled { child, why, .. } => {
                return violated(format!(
                    "node {}: child {} was not installed: {why}",
                    node.index, child.name
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// A node gets an SA with manual keys.
    pub(crate) fn hear_manual(&mut self, node: &Node, outbound: &SaParams) {
        let (key, iv_len) = nonces::key_of(outbound);
        self.outbound.insert(((node.index, node.lives), outbound.spi.get()), (key, iv_len));
    }

    /// Whether an IKE SA was established at this node.
    pub(crate) fn was_up(&self, node: &Node, ike: IkeSaId) -> bool {
        self.proved.contains_key(&((node.index, node.lives), ike))
    }

    fn child(&self, node: &Node, id: ChildId) -> Option<&ChildUp> {
        self.children.get(&((node.index, node.lives), id))
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
