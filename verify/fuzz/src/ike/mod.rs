//! Whole sessions of the IKE engine. Two engines, the wire between them and whoever forges are those of its own tests.

#[path = "../../../../core/ike/tests/hostile/forge.rs"]
mod forge;
#[path = "../../../../core/ike/tests/pair/mod.rs"]
mod pair;
pub(crate) mod responder;
pub(crate) mod session;

use casemate_ike::ChildId;
use pair::Side;
use std::collections::BTreeSet;

/// What holds at any time: what was told of Child SAs is what there is, SPIs are held for them and for requests on their way
/// only, and nothing that is due was left.
fn check(side: &Side, ticked: bool) {
    let told: BTreeSet<ChildId> = side.children().iter().map(|up| up.id).collect();
    let status: Vec<_> = side.ike.status().collect();
    let there: Vec<ChildId> = status.iter().flat_map(|ike| &ike.children).map(|child| child.id).collect();
    assert_eq!(told.len(), there.len(), "told {told:?}, there are {there:?}");
    assert!(there.iter().all(|id| told.contains(id)), "told {told:?}, there are {there:?}");
    // One request at a time, with one SPI.
    assert!(side.leaked().len() <= status.len(), "SPIs {:?} of {} IKE SAs", side.leaked(), status.len());
    assert!(!status.is_empty() || side.ike.due().is_none());
    if ticked {
        assert!(side.ike.due().is_none_or(|due| due > side.ticked), "due at {:?}", side.ike.due());
    }
}
