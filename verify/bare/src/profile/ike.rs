//! Programs with IKEv2.

use super::end;
use crate::Board;
use crate::certificates::{Certificates, MOON, SUN};
use crate::peers::{AuthMethod, PeerPair};
use casemate_crypto::{Providers, SecretBytes};
use casemate_ike::config::IdPattern;
use casemate_ike::{Credentials, SharedKeys};
use casemate_rustcrypto::{AES_128_GCM, HMAC_SHA256, RUSTCRYPTO, SHA1, X25519};
use core::hint::black_box;

/// Pre-shared key, X25519, AES-128-GCM and HMAC-SHA-256, and SHA-1 for NAT detection.
pub fn ike_psk(board: &Board) -> bool {
    let providers = Providers(&[AES_128_GCM, HMAC_SHA256, SHA1, X25519]);
    let keys = SharedKeys::new().with(IdPattern::Any, SecretBytes::new(&black_box([7; 32])));
    sessions(board, (&keys, &keys), &providers, AuthMethod::SharedKey).is_some() && end(board)
}

/// Certificates, and all algorithms.
pub fn ike_certificates(board: &Board) -> bool {
    let providers = Providers(&[&RUSTCRYPTO]);
    let load = |files| Certificates::load(black_box(files), &providers);
    let done = load(MOON)
        .zip(load(SUN))
        .and_then(|(moon, sun)| sessions(board, (&moon, &sun), &providers, AuthMethod::Certificate));
    done.is_some() && end(board)
}

/// Establishes IKE SAs with and without a Child SA between two endpoints. Both have the same cost, so
/// half of the memory belongs to one side.
fn sessions(
    board: &Board,
    credentials: (&dyn Credentials, &dyn Credentials),
    providers: &Providers<'_>,
    auth: AuthMethod,
) -> Option<()> {
    let mut used = (board.heap)();
    let mut half = |name: &str| {
        let now = (board.heap)();
        board.report(name, now.saturating_sub(used) / 2);
        used = now;
    };
    let mut pair = PeerPair::new(credentials.0, credentials.1, providers);
    half("heap-endpoint");
    pair.configure(3, auth)?;
    half("heap-configuration");
    pair.initiate(0, false)?;
    half("heap-first-ike-sa");
    pair.initiate(1, false)?;
    half("heap-second-ike-sa");
    pair.initiate(2, true)?;
    half("heap-ike-sa-with-child");
    let [left, right] = pair.established();
    (left.len() == 3 && right.len() == 3).then_some(())
}
