//! The AWS-LC provider against every vector, and against the RustCrypto provider.

use casemate_aws_lc::AWS_LC;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_vectors::{DIFFERENTIAL, MODERN, conformance, differential};

#[test]
fn conforms() {
    conformance(&AWS_LC).assert(MODERN);
}

#[test]
fn agrees_with_rustcrypto() {
    differential(&AWS_LC, &RUSTCRYPTO, 1).assert(DIFFERENTIAL);
}
