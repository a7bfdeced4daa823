//! The RustCrypto provider against every vector.

use casemate_rustcrypto::RUSTCRYPTO;
use casemate_vectors::{DIFFERENTIAL, MODERN, conformance, differential};

#[test]
fn conforms() {
    conformance(&RUSTCRYPTO).assert(MODERN);
}

/// What one batch does must not depend on what another did, nor opening on who sealed.
#[test]
fn agrees_with_itself() {
    differential(&RUSTCRYPTO, &RUSTCRYPTO, 1).assert(DIFFERENTIAL);
}
