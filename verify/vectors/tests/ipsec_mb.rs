//! The provider on Intel's multi-buffer library against the vectors of what it has, and against two other providers.
//! Left out, by name, where the library is not there.

use casemate_aws_lc::AWS_LC;
use casemate_ipsec_mb::IPSEC_MB;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_vectors::{MANY_BUFFERS, MANY_BUFFERS_DIFFERENTIAL, conformance, differential};

/// Whether the library is there; notes the test as left out if not.
fn is_there() -> bool {
    IPSEC_MB.available().map_err(casemate_left_out::note).is_ok()
}

#[test]
fn conforms() {
    if is_there() {
        conformance(&IPSEC_MB).assert(MANY_BUFFERS);
    }
}

#[test]
fn agrees_with_rustcrypto() {
    if is_there() {
        differential(&IPSEC_MB, &RUSTCRYPTO, 1).assert(MANY_BUFFERS_DIFFERENTIAL);
    }
}

#[test]
fn agrees_with_aws_lc() {
    if is_there() {
        differential(&IPSEC_MB, &AWS_LC, 2).assert(MANY_BUFFERS_DIFFERENTIAL);
    }
}
