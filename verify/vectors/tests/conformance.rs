//! The providers: all vectors, and comparison with other providers.

use casemate_aws_lc::AWS_LC;
use casemate_ipsec_mb::IPSEC_MB;
use casemate_legacy::LEGACY;
use casemate_ring::RING;
use casemate_rustcrypto::{RUSTCRYPTO, UNCOMMON};
use casemate_vectors::{
    DIFFERENTIAL, FULL_TAGS, FULL_TAGS_DIFFERENTIAL, MANY_BUFFERS, MANY_BUFFERS_DIFFERENTIAL, MODERN,
    conformance, differential,
};

#[test]
fn aws_lc_conforms() {
    conformance(&AWS_LC).assert(MODERN);
}

#[test]
fn aws_lc_agrees_with_rustcrypto() {
    differential(&AWS_LC, &RUSTCRYPTO, 1).assert(DIFFERENTIAL);
}

#[test]
fn rustcrypto_conforms() {
    conformance(&RUSTCRYPTO).assert(MODERN);
}

/// Results must not depend on previous batches, nor on which provider sealed a packet.
#[test]
fn rustcrypto_agrees_with_itself() {
    differential(&RUSTCRYPTO, &RUSTCRYPTO, 1).assert(DIFFERENTIAL);
}

#[test]
fn legacy_conforms() {
    conformance(&LEGACY).assert(casemate_vectors::LEGACY);
}

#[test]
fn legacy_agrees_with_itself() {
    differential(&LEGACY, &LEGACY, 1).assert(&[
        ("differential/cipher", 12),
        ("differential/mac", 18),
        ("differential/etm", 18),
        ("differential/kex", 4),
    ]);
}

#[test]
fn uncommon_conforms() {
    conformance(&UNCOMMON).assert(casemate_vectors::UNCOMMON);
}

#[test]
fn uncommon_agrees_with_itself() {
    differential(&UNCOMMON, &UNCOMMON, 1).assert(&[("differential/cipher", 18), ("differential/kex", 8)]);
}

#[test]
fn ring_conforms() {
    conformance(&RING).assert(FULL_TAGS);
}

#[test]
fn ring_agrees_with_rustcrypto() {
    differential(&RING, &RUSTCRYPTO, 1).assert(FULL_TAGS_DIFFERENTIAL);
}

#[test]
fn ring_agrees_with_aws_lc() {
    differential(&RING, &AWS_LC, 2).assert(FULL_TAGS_DIFFERENTIAL);
}

/// Whether Intel's library is available; reports the test as skipped if not.
fn has_ipsec_mb() -> bool {
    IPSEC_MB.available().map_err(casemate_test_support::skip).is_ok()
}

#[test]
fn ipsec_mb_conforms() {
    if has_ipsec_mb() {
        conformance(&IPSEC_MB).assert(MANY_BUFFERS);
    }
}

#[test]
fn ipsec_mb_agrees_with_rustcrypto() {
    if has_ipsec_mb() {
        differential(&IPSEC_MB, &RUSTCRYPTO, 1).assert(MANY_BUFFERS_DIFFERENTIAL);
    }
}

#[test]
fn ipsec_mb_agrees_with_aws_lc() {
    if has_ipsec_mb() {
        differential(&IPSEC_MB, &AWS_LC, 2).assert(MANY_BUFFERS_DIFFERENTIAL);
    }
}
