//! Key bytes.

use alloc::boxed::Box;
use core::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// Secret bytes: wiped on drop, never printed, compared in constant time.
#[derive(Clone)]
pub struct SecretBytes(Box<[u8]>);

impl SecretBytes {
    /// Takes a copy of `bytes`; the caller wipes its own.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Box::from(bytes))
    }

    /// The secret itself. Do not copy it into anything that is not wiped.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.0.ct_eq(&other.0))
    }
}

impl Eq for SecretBytes {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn debug_shows_no_key_byte() {
        assert_eq!(format!("{:?}", SecretBytes::new(&[0xAB; 16])), "SecretBytes(16 bytes)");
    }
}
