//! Randomness comes in by the door.

/// A cryptographically secure random source, owned by the caller.
///
/// The two methods must draw on independent streams, so that nothing learnt from values that travel in clear (IVs, SPIs,
/// nonces, cookies) predicts a key.
pub trait Rng {
    /// Fills `out` with unpredictable bytes that will be visible on the wire.
    fn public(&mut self, out: &mut [u8]);
    /// Fills `out` with unpredictable bytes that stay secret.
    fn secret(&mut self, out: &mut [u8]);
}
