//! Sessions of the IKE engine. The two engines, the link between them and the forged messages are those of
//! the engine's own tests.

#[path = "../../../../core/ike/tests/hostile/forge.rs"]
mod forge;
#[path = "../../../../core/ike/tests/pair/mod.rs"]
mod pair;
pub(crate) mod responder;
pub(crate) mod resumption;
pub(crate) mod session;

use casemate_ike::ChildId;
use pair::IkePeer;
use std::collections::BTreeSet;

/// Invariants: the reported Child SAs are the existing ones, SPIs are reserved only for them and for
/// pending requests, and no due timer was skipped.
fn check(side: &IkePeer, ticked: bool) {
    let reported: BTreeSet<ChildId> = side.children().iter().map(|up| up.id).collect();
    let status: Vec<_> = side.ike.status().collect();
    let existing: Vec<ChildId> = status.iter().flat_map(|ike| &ike.children).map(|child| child.id).collect();
    assert_eq!(reported.len(), existing.len(), "reported {reported:?}, existing {existing:?}");
    assert!(existing.iter().all(|id| reported.contains(id)), "reported {reported:?}, existing {existing:?}");
    // Each IKE SA has at most one pending request and one series of key exchanges of the peer, each with one
    // SPI.
    assert!(
        side.leaked_spis().len() <= 2 * status.len(),
        "SPIs {:?} of {} IKE SAs",
        side.leaked_spis(),
        status.len()
    );
    assert!(!status.is_empty() || side.ike.next_timeout().is_none());
    if ticked {
        assert!(
            side.ike.next_timeout().is_none_or(|due| due > side.last_timeout),
            "due at {:?}",
            side.ike.next_timeout()
        );
    }
}
