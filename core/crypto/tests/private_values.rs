//! Private values of a key exchange, from random sources with known values.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_crypto::{KexMethod, KeyError};
use casemate_test_support::FixedRng;

/// Maximum number of draws for one private value.
const MAX_DRAWS: usize = 64;

#[test]
fn a_random_source_without_valid_values_is_an_error() {
    for (byte, taken) in [(0, Some(())), (7, None)] {
        let mut rng = FixedRng::new(byte);
        let nothing = KexMethod::Modp2048.draw_private(&mut rng, |_| taken);
        assert_eq!((nothing, rng.secret_draws()), (Err(KeyError::Refused), MAX_DRAWS));
        assert_eq!(rng.public_draws(), 0);
    }
}

#[test]
fn private_values_fit_the_field() {
    for method in KexMethod::ALL {
        let drawn = method.draw_private(&mut FixedRng::new(0xFF), |bytes| Some(bytes.to_vec())).unwrap();
        let top = if method == KexMethod::EcpP521 { 1 } else { 0xFF };
        assert_eq!((drawn.len(), drawn[0], drawn[1]), (method.private_len(), top, 0xFF));
    }
}
