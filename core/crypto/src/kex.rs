//! Key exchange methods (IANA "IKEv2 Parameters", transform type 4; RFC 7296 section 3.3.2).
//!
//! A private value is made for one exchange and used up by it: [`KexSecret::agree`] takes it by value. All checks that the
//! RFCs ask of a recipient (RFC 6989 section 2, RFC 8031 section 3.2) are the provider's, in `agree`.

use crate::{KeyError, Rng, SecretBytes, modp};
use alloc::boxed::Box;
use core::fmt;
use zeroize::Zeroizing;

/// Private values that are drawn at most until one is in range. One draw in 2^32 fails with P-256, fewer with the others;
/// more than a few mean that the random source is broken.
const MAX_DRAWS: usize = 8;

/// Longest private value of any method, in bytes.
const MAX_PRIVATE: usize = 78;

/// A key exchange method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KexMethod {
    /// 1536-bit MODP group (RFC 3526 section 2). Weak: RFC 8247 section 2.4 says SHOULD NOT.
    Modp1536,
    /// 2048-bit MODP group (RFC 3526 section 3).
    Modp2048,
    /// 3072-bit MODP group (RFC 3526 section 4).
    Modp3072,
    /// 4096-bit MODP group (RFC 3526 section 5).
    Modp4096,
    /// 6144-bit MODP group (RFC 3526 section 6).
    Modp6144,
    /// 8192-bit MODP group (RFC 3526 section 7).
    Modp8192,
    /// 256-bit random ECP group, P-256 (RFC 5903 section 3.1).
    EcpP256,
    /// 384-bit random ECP group, P-384 (RFC 5903 section 3.2).
    EcpP384,
    /// 521-bit random ECP group, P-521 (RFC 5903 section 3.3).
    EcpP521,
    /// Curve25519 (RFC 8031).
    X25519,
    /// Curve448 (RFC 8031).
    X448,
}

impl KexMethod {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::Modp6144,
        Self::Modp8192,
        Self::EcpP256,
        Self::EcpP384,
        Self::EcpP521,
        Self::X25519,
        Self::X448,
    ];

    /// IANA transform id.
    pub const fn id(self) -> u16 {
        match self {
            Self::Modp1536 => 5,
            Self::Modp2048 => 14,
            Self::Modp3072 => 15,
            Self::Modp4096 => 16,
            Self::Modp6144 => 17,
            Self::Modp8192 => 18,
            Self::EcpP256 => 19,
            Self::EcpP384 => 20,
            Self::EcpP521 => 21,
            Self::X25519 => 31,
            Self::X448 => 32,
        }
    }

    /// The method with this IANA transform id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.id() == id)
    }

    /// The word for it in a proposal of strongSwan, e.g. `modp2048`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Modp1536 => "modp1536",
            Self::Modp2048 => "modp2048",
            Self::Modp3072 => "modp3072",
            Self::Modp4096 => "modp4096",
            Self::Modp6144 => "modp6144",
            Self::Modp8192 => "modp8192",
            Self::EcpP256 => "ecp256",
            Self::EcpP384 => "ecp384",
            Self::EcpP521 => "ecp521",
            Self::X25519 => "curve25519",
            Self::X448 => "curve448",
        }
    }

    /// Length of a public value in the KE payload, in bytes. For MODP that of the prime (RFC 7296 section 3.4); for ECP the two
    /// coordinates without a leading byte (RFC 5903 section 7).
    pub const fn public_len(self) -> usize {
        match self {
            Self::EcpP256 | Self::EcpP384 | Self::EcpP521 => self.shared_len().saturating_mul(2),
            _ => self.shared_len(),
        }
    }

    /// Length of the shared secret g^ir, in bytes: the prime's for MODP, padded with zeros (RFC 7296 section 2.14); the x
    /// coordinate for ECP (RFC 5903 section 7).
    pub const fn shared_len(self) -> usize {
        match self {
            Self::Modp1536 => 192,
            Self::Modp2048 => 256,
            Self::Modp3072 => 384,
            Self::Modp4096 => 512,
            Self::Modp6144 => 768,
            Self::Modp8192 => 1024,
            Self::EcpP256 | Self::X25519 => 32,
            Self::EcpP384 => 48,
            Self::EcpP521 => 66,
            Self::X448 => 56,
        }
    }

    /// Length of a private value, in bytes. A MODP exponent need not be as long as the prime, only twice the group's strength:
    /// RFC 3526 section 8 gives two estimates, and this is the larger of them, at least 256 bits, in whole bytes.
    pub const fn private_len(self) -> usize {
        match self {
            Self::Modp1536 => 32,
            Self::Modp2048 => 40,
            Self::Modp3072 => 53,
            Self::Modp4096 => 60,
            Self::Modp6144 => 68,
            Self::Modp8192 => MAX_PRIVATE,
            Self::EcpP256 | Self::EcpP384 | Self::EcpP521 | Self::X25519 | Self::X448 => self.shared_len(),
        }
    }

    /// The prime of a MODP group, big-endian. The generator is 2 in all of them (RFC 3526).
    pub const fn modp_prime(self) -> Option<&'static [u8]> {
        match self {
            Self::Modp1536 => Some(&modp::P1536),
            Self::Modp2048 => Some(&modp::P2048),
            Self::Modp3072 => Some(&modp::P3072),
            Self::Modp4096 => Some(&modp::P4096),
            Self::Modp6144 => Some(&modp::P6144),
            Self::Modp8192 => Some(&modp::P8192),
            Self::EcpP256 | Self::EcpP384 | Self::EcpP521 | Self::X25519 | Self::X448 => None,
        }
    }

    /// For providers: draws a private value of [`private_len`](Self::private_len) bytes and gives it to `make`, again if it is
    /// zero and while `make` says that it is out of range. Big-endian for MODP and ECP, as it is for X25519 and X448, so that
    /// two providers make the same of the same random bytes. Refused if nothing suits.
    pub fn draw_private<T>(
        self,
        rng: &mut dyn Rng,
        mut make: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, KeyError> {
        let mut buffer = Zeroizing::new([0; MAX_PRIVATE]);
        let private = buffer.get_mut(..self.private_len()).unwrap_or_default();
        for _ in 0..MAX_DRAWS {
            rng.secret(private);
            // The field of P-521 has 521 bits in 66 bytes.
            if let (Self::EcpP521, Some(top)) = (self, private.first_mut()) {
                *top &= 1;
            }
            let bits = private.iter().fold(0, |bits, byte| bits | byte);
            if let (1.., Some(made)) = (bits, make(private)) {
                return Ok(made);
            }
        }
        Err(KeyError::Refused)
    }

    /// For providers: the recipient's tests of a public value that need no curve, which are its length and, for MODP, that
    /// 1 < y < p - 1. As the primes are safe primes, no other value is of small order (RFC 6989 section 2.1).
    pub fn check_public(self, peer: &[u8]) -> Result<(), KexError> {
        let (expected, given) = (self.public_len(), peer.len());
        if expected != given {
            return Err(KexError::Length { expected, given });
        }
        let Some(([prime @ .., low], [peer @ .., peer_low])) = self.modp_prime().map(|prime| (prime, peer))
        else {
            return Ok(());
        };
        // Numbers of one length compare like their bytes. The prime is odd: p - 1 differs from it in the lowest byte only.
        let above_one = peer.iter().any(|byte| *byte != 0) || *peer_low > 1;
        let below_last = (peer, *peer_low) < (prime, low & 0xFE);
        if above_one && below_last { Ok(()) } else { Err(KexError::OutOfRange) }
    }
}

impl fmt::Display for KexMethod {
    /// The IANA name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EcpP256 => f.write_str("256-bit random ECP group"),
            Self::EcpP384 => f.write_str("384-bit random ECP group"),
            Self::EcpP521 => f.write_str("521-bit random ECP group"),
            Self::X25519 => f.write_str("Curve25519"),
            Self::X448 => f.write_str("Curve448"),
            modp => write!(f, "{}-bit MODP Group", modp.public_len().saturating_mul(8)),
        }
    }
}

/// Why there is no shared secret. All but [`Failed`](Self::Failed) are the peer's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KexError {
    /// The public value's length is not the method's (RFC 7296 section 3.4).
    Length {
        /// Length of the method's public values, in bytes.
        expected: usize,
        /// Length that was given, in bytes.
        given: usize,
    },
    /// The coordinates are not those of a point on the curve (RFC 6989 section 2.3).
    NotOnCurve,
    /// The public value y of a MODP group is not in 1 < y < p - 1 (RFC 6989 section 2.1).
    OutOfRange,
    /// The public value is of low order, so that the shared secret would be all zero whatever our private value (RFC 7748
    /// section 6).
    AllZero,
    /// The provider failed.
    Failed,
}

impl fmt::Display for KexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { expected, given } => {
                write!(f, "public value of {given} bytes, expected {expected}")
            }
            Self::NotOnCurve => f.write_str("public value is not a point on the curve"),
            Self::OutOfRange => f.write_str("public value is not between 1 and p - 1"),
            Self::AllZero => f.write_str("public value of low order: the shared secret would be zero"),
            Self::Failed => f.write_str("the provider failed to compute the shared secret"),
        }
    }
}

impl core::error::Error for KexError {}

/// Our side of one key exchange: a private value with its public one. The private value is wiped on drop.
pub trait KexSecret: Send {
    /// Our public value, as in the KE payload.
    fn public(&self) -> &[u8];

    /// The shared secret g^ir with the peer's public value, after the recipient's tests of the method.
    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Answers with one byte, and counts.
    struct Fixed(u8, usize);

    impl Rng for Fixed {
        fn public(&mut self, _: &mut [u8]) {}

        fn secret(&mut self, out: &mut [u8]) {
            out.fill(self.0);
            self.1 += 1;
        }
    }

    #[test]
    fn ids_are_found_again() {
        let found: Vec<_> = (0..100).filter_map(KexMethod::from_id).collect();
        assert_eq!(found, KexMethod::ALL);
    }

    #[test]
    fn lengths_are_those_of_the_rfcs() {
        let lengths = KexMethod::ALL.map(|method| (method.public_len(), method.shared_len()));
        let modp = [192, 256, 384, 512, 768, 1024].map(|len| (len, len));
        assert_eq!(&lengths[..6], modp);
        assert_eq!(&lengths[6..], [(64, 32), (96, 48), (132, 66), (32, 32), (56, 56)]);
        for method in KexMethod::ALL {
            assert!(method.private_len() <= MAX_PRIVATE);
            let prime = method.modp_prime().map(<[u8]>::len);
            assert!(prime.is_none_or(|len| len == method.public_len() && 32 <= method.private_len()));
        }
    }

    #[test]
    fn a_source_that_never_suits_is_given_up() {
        for (byte, taken) in [(0, Some(())), (7, None)] {
            let mut rng = Fixed(byte, 0);
            let nothing = KexMethod::Modp2048.draw_private(&mut rng, |_| taken);
            assert_eq!((nothing, rng.1), (Err(KeyError::Refused), MAX_DRAWS));
        }
    }

    #[test]
    fn a_modp_value_is_between_one_and_the_last() {
        let method = KexMethod::Modp2048;
        let prime = method.modp_prime().unwrap();
        let small = |low| [&[0; 255][..], &[low]].concat();
        let near = |low| [&prime[..255], &[low]].concat();
        assert_eq!(prime[255], 0xFF);
        for refused in [small(0), small(1), near(0xFE), near(0xFF), vec![0xFF; 256]] {
            assert_eq!(method.check_public(&refused), Err(KexError::OutOfRange), "{refused:02x?}");
        }
        for taken in [small(2), near(0xFD), near(0), [&[0x80][..], &[0; 255]].concat()] {
            assert_eq!(method.check_public(&taken), Ok(()), "{taken:02x?}");
        }
        let (expected, given) = (256, 255);
        assert_eq!(method.check_public(&prime[1..]), Err(KexError::Length { expected, given }));
    }

    #[test]
    fn a_private_value_fits_the_field() {
        for method in KexMethod::ALL {
            let drawn = method.draw_private(&mut Fixed(0xFF, 0), |bytes| Some(bytes.to_vec())).unwrap();
            let top = if method == KexMethod::EcpP521 { 1 } else { 0xFF };
            assert_eq!((drawn.len(), drawn[0], drawn[1]), (method.private_len(), top, 0xFF));
        }
    }
}
