//! The legacy provider against every vector.

use casemate_legacy::LEGACY;
use casemate_vectors::{conformance, differential};

#[test]
fn conforms() {
    conformance(&LEGACY).assert(casemate_vectors::LEGACY);
}

#[test]
fn agrees_with_itself() {
    differential(&LEGACY, &LEGACY, 1).assert(&[
        ("differential/cipher", 12),
        ("differential/mac", 18),
        ("differential/etm", 18),
    ]);
}
