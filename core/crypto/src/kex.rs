//! Key exchange methods (IANA "IKEv2 Parameters", transform type 4; RFC 7296 section 3.3.2): Diffie-Hellman
//! groups, and the key encapsulation mechanism ML-KEM (FIPS 203, draft-ietf-ipsecme-ikev2-mlkem).

use crate::{KexError, KeyError, Rng, modp};
use core::fmt;
use zeroize::Zeroizing;

/// Maximum number of attempts to draw a private value in range. With brainpoolP384r1 and brainpoolP256r1, 45
/// and 34 of 100 attempts fail, with P-256 one in 2^32, with the other methods fewer. More failures mean that
/// the random source is broken.
const MAX_DRAWS: usize = 64;

/// Maximum length of a private value, in bytes.
const MAX_PRIVATE: usize = 78;

/// Length of the randomness of an encapsulation, in bytes (FIPS 203 section 7.2: m).
const ENCAPSULATION: usize = 32;

/// A key exchange method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KexMethod {
    /// 1024-bit MODP group (RFC 2409 section 6.2), for old peers. Weak: SHOULD NOT be used (RFC 8247 section
    /// 2.4). Only the provider of legacy algorithms has it.
    Modp1024,
    /// 1536-bit MODP group (RFC 3526 section 2). Weak: SHOULD NOT be used (RFC 8247 section 2.4).
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
    /// brainpoolP256r1 (RFC 6954).
    BrainpoolP256,
    /// brainpoolP384r1 (RFC 6954).
    BrainpoolP384,
    /// Curve25519 (RFC 8031).
    X25519,
    /// Curve448 (RFC 8031).
    X448,
    /// ML-KEM-512 (FIPS 203 section 8).
    MlKem512,
    /// ML-KEM-768 (FIPS 203 section 8).
    MlKem768,
    /// ML-KEM-1024 (FIPS 203 section 8).
    MlKem1024,
}

impl KexMethod {
    /// All methods, in the order of their IANA ids.
    pub const ALL: [Self; 17] = [
        Self::Modp1024,
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::Modp6144,
        Self::Modp8192,
        Self::EcpP256,
        Self::EcpP384,
        Self::EcpP521,
        Self::BrainpoolP256,
        Self::BrainpoolP384,
        Self::X25519,
        Self::X448,
        Self::MlKem512,
        Self::MlKem768,
        Self::MlKem1024,
    ];

    /// IANA transform id.
    pub const fn id(self) -> u16 {
        match self {
            Self::Modp1024 => 2,
            Self::Modp1536 => 5,
            Self::Modp2048 => 14,
            Self::Modp3072 => 15,
            Self::Modp4096 => 16,
            Self::Modp6144 => 17,
            Self::Modp8192 => 18,
            Self::EcpP256 => 19,
            Self::EcpP384 => 20,
            Self::EcpP521 => 21,
            Self::BrainpoolP256 => 28,
            Self::BrainpoolP384 => 29,
            Self::X25519 => 31,
            Self::X448 => 32,
            Self::MlKem512 => 35,
            Self::MlKem768 => 36,
            Self::MlKem1024 => 37,
        }
    }

    /// Returns the method with this IANA transform id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.id() == id)
    }

    /// Keyword in strongSwan proposals, e.g. `modp2048`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Modp1024 => "modp1024",
            Self::Modp1536 => "modp1536",
            Self::Modp2048 => "modp2048",
            Self::Modp3072 => "modp3072",
            Self::Modp4096 => "modp4096",
            Self::Modp6144 => "modp6144",
            Self::Modp8192 => "modp8192",
            Self::EcpP256 => "ecp256",
            Self::EcpP384 => "ecp384",
            Self::EcpP521 => "ecp521",
            Self::BrainpoolP256 => "ecp256bp",
            Self::BrainpoolP384 => "ecp384bp",
            Self::X25519 => "curve25519",
            Self::X448 => "curve448",
            Self::MlKem512 => "mlkem512",
            Self::MlKem768 => "mlkem768",
            Self::MlKem1024 => "mlkem1024",
        }
    }

    /// Whether the method is a key encapsulation mechanism. Its two public values differ: the initiator sends
    /// an encapsulation key, and the responder a ciphertext.
    pub const fn is_kem(self) -> bool {
        matches!(self, Self::MlKem512 | Self::MlKem768 | Self::MlKem1024)
    }

    /// Length of the initiator's public value in the KE payload, in bytes. MODP: the length of the prime (RFC
    /// 7296 section 3.4). ECP: both coordinates, without a leading byte (RFC 5903 section 7). ML-KEM: the
    /// encapsulation key (FIPS 203 table 3).
    pub const fn public_len(self) -> usize {
        match self {
            Self::EcpP256 | Self::EcpP384 | Self::EcpP521 | Self::BrainpoolP256 | Self::BrainpoolP384 => {
                self.shared_len().saturating_mul(2)
            }
            Self::MlKem512 => 800,
            Self::MlKem768 => 1184,
            Self::MlKem1024 => 1568,
            _ => self.shared_len(),
        }
    }

    /// Length of the responder's public value in the KE payload, in bytes. ML-KEM: the ciphertext (FIPS 203
    /// table 3). Other methods: the same as [`public_len`](Self::public_len).
    pub const fn response_len(self) -> usize {
        match self {
            Self::MlKem512 => 768,
            Self::MlKem768 => 1088,
            _ => self.public_len(),
        }
    }

    /// Length of the shared secret, in bytes. MODP: g^ir in the length of the prime, padded with zeros (RFC
    /// 7296 section 2.14). ECP: the x coordinate (RFC 5903 section 7). ML-KEM: 32 (FIPS 203 table 3).
    pub const fn shared_len(self) -> usize {
        match self {
            Self::Modp1024 => 128,
            Self::Modp1536 => 192,
            Self::Modp2048 => 256,
            Self::Modp3072 => 384,
            Self::Modp4096 => 512,
            Self::Modp6144 => 768,
            Self::Modp8192 => 1024,
            Self::EcpP256
            | Self::BrainpoolP256
            | Self::X25519
            | Self::MlKem512
            | Self::MlKem768
            | Self::MlKem1024 => 32,
            Self::EcpP384 | Self::BrainpoolP384 => 48,
            Self::EcpP521 => 66,
            Self::X448 => 56,
        }
    }

    /// Length of a private value, in bytes. A MODP exponent needs twice as many bits as the strength of the
    /// group, which is less than the length of the prime. RFC 3526 section 8 gives two estimates of the
    /// strength; this length uses the larger one, is at least 256 bits, and is rounded up to whole bytes. For
    /// ML-KEM, the private value is the seed of the decapsulation key, d || z (FIPS 203 section 7.1).
    pub const fn private_len(self) -> usize {
        match self {
            Self::Modp1024 | Self::Modp1536 => 32,
            Self::Modp2048 => 40,
            Self::Modp3072 => 53,
            Self::Modp4096 => 60,
            Self::Modp6144 => 68,
            Self::Modp8192 => MAX_PRIVATE,
            Self::MlKem512 | Self::MlKem768 | Self::MlKem1024 => 64,
            _ => self.shared_len(),
        }
    }

    /// Prime of a MODP group, big-endian. The generator of all these groups is 2 (RFC 2409, RFC 3526).
    pub const fn modp_prime(self) -> Option<&'static [u8]> {
        match self {
            Self::Modp1024 => Some(&modp::P1024),
            Self::Modp1536 => Some(&modp::P1536),
            Self::Modp2048 => Some(&modp::P2048),
            Self::Modp3072 => Some(&modp::P3072),
            Self::Modp4096 => Some(&modp::P4096),
            Self::Modp6144 => Some(&modp::P6144),
            Self::Modp8192 => Some(&modp::P8192),
            _ => None,
        }
    }

    /// For providers: draws a private value of [`private_len`](Self::private_len) bytes and passes it to
    /// `make`. Draws again if the value is zero or `make` returns `None` because the value is out of range.
    ///
    /// The value is big-endian for MODP and ECP, and used as it is for the other methods, so that all
    /// providers derive the same keys from the same random bytes.
    ///
    /// Returns [`KeyError::Refused`] if no value is in range.
    pub fn draw_private<T>(
        self,
        rng: &mut dyn Rng,
        mut make: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, KeyError> {
        let mut buffer = Zeroizing::new([0; MAX_PRIVATE]);
        let private = buffer.get_mut(..self.private_len()).unwrap_or_default();
        draw(rng, private, |private| {
            // P-521 has 521-bit values in 66 bytes.
            if let (Self::EcpP521, Some(top)) = (self, private.first_mut()) {
                *top &= 1;
            }
            make(private)
        })
    }

    /// For providers of ML-KEM: draws the randomness m of an encapsulation (FIPS 203 section 7.2) and passes
    /// it to `make`. Draws again if the value is zero, which only a broken random source returns.
    ///
    /// Returns [`KeyError::Refused`] if every value is zero or `make` returns `None`.
    pub fn draw_encapsulation<T>(
        rng: &mut dyn Rng,
        mut make: impl FnMut(&[u8; ENCAPSULATION]) -> Option<T>,
    ) -> Result<T, KeyError> {
        let mut buffer = Zeroizing::new([0; ENCAPSULATION]);
        draw(rng, &mut buffer[..], |m| make(m.first_chunk()?))
    }

    /// For providers: checks of the responder's public value before [`KexSecret::agree`]: its length for
    /// ML-KEM (FIPS 203 section 7.3: the ciphertext type check), and [`check_public`](Self::check_public)
    /// for the other methods.
    ///
    /// [`KexSecret::agree`]: crate::KexSecret::agree
    pub fn check_response(self, peer: &[u8]) -> Result<(), KexError> {
        if self.is_kem() { check_len(self.response_len(), peer) } else { self.check_public(peer) }
    }

    /// For providers: checks of the initiator's public value that need no arithmetic. They are its length
    /// and, for MODP, 1 < y < p - 1. The primes are safe primes, so no other value has a small order (RFC
    /// 6989 section 2.1).
    pub fn check_public(self, peer: &[u8]) -> Result<(), KexError> {
        check_len(self.public_len(), peer)?;
        let Some(([prime @ .., low], [peer @ .., peer_low])) = self.modp_prime().map(|prime| (prime, peer))
        else {
            return Ok(());
        };
        // Big-endian numbers of equal length compare like their bytes. The prime is odd, so p - 1 differs
        // from p only in the lowest byte.
        let above_one = peer.iter().any(|byte| *byte != 0) || *peer_low > 1;
        let below_last = (peer, *peer_low) < (prime, low & 0xFE);
        if above_one && below_last { Ok(()) } else { Err(KexError::OutOfRange) }
    }
}

impl fmt::Display for KexMethod {
    /// Writes the IANA name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EcpP256 => f.write_str("256-bit random ECP group"),
            Self::EcpP384 => f.write_str("384-bit random ECP group"),
            Self::EcpP521 => f.write_str("521-bit random ECP group"),
            Self::BrainpoolP256 => f.write_str("brainpoolP256r1"),
            Self::BrainpoolP384 => f.write_str("brainpoolP384r1"),
            Self::X25519 => f.write_str("Curve25519"),
            Self::X448 => f.write_str("Curve448"),
            Self::MlKem512 => f.write_str("ml-kem-512"),
            Self::MlKem768 => f.write_str("ml-kem-768"),
            Self::MlKem1024 => f.write_str("ml-kem-1024"),
            modp => write!(f, "{}-bit MODP Group", modp.public_len().saturating_mul(8)),
        }
    }
}

/// Fills `buffer` until its value is not zero and `make` accepts it, [`MAX_DRAWS`] times at most.
fn draw<T>(
    rng: &mut dyn Rng,
    buffer: &mut [u8],
    mut make: impl FnMut(&mut [u8]) -> Option<T>,
) -> Result<T, KeyError> {
    for _ in 0..MAX_DRAWS {
        rng.secret(buffer);
        let bits = buffer.iter().fold(0, |bits, byte| bits | byte);
        if let (1.., Some(made)) = (bits, make(buffer)) {
            return Ok(made);
        }
    }
    Err(KeyError::Refused)
}

fn check_len(expected: usize, peer: &[u8]) -> Result<(), KexError> {
    let given = peer.len();
    if expected == given { Ok(()) } else { Err(KexError::Length { expected, given }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn from_id_inverts_id() {
        let found: Vec<_> = (0..100).filter_map(KexMethod::from_id).collect();
        assert_eq!(found, KexMethod::ALL);
    }

    #[test]
    fn lengths_match_the_rfcs() {
        let lengths = KexMethod::ALL.map(|method| (method.public_len(), method.shared_len()));
        let modp = [128, 192, 256, 384, 512, 768, 1024].map(|len| (len, len));
        assert_eq!(&lengths[..7], modp);
        assert_eq!(&lengths[7..14], [(64, 32), (96, 48), (132, 66), (64, 32), (96, 48), (32, 32), (56, 56)]);
        assert_eq!(&lengths[14..], [(800, 32), (1184, 32), (1568, 32)]);
        let responses = KexMethod::ALL.map(KexMethod::response_len);
        assert_eq!(&responses[..14], KexMethod::ALL.map(KexMethod::public_len)[..14].as_ref());
        assert_eq!(&responses[14..], [768, 1088, 1568]);
        for method in KexMethod::ALL {
            assert!(method.private_len() <= MAX_PRIVATE);
            let prime = method.modp_prime().map(<[u8]>::len);
            assert!(prime.is_none_or(|len| len == method.public_len() && 32 <= method.private_len()));
        }
    }

    #[test]
    fn modp_values_are_between_1_and_p_minus_1() {
        let method = KexMethod::Modp2048;
        let prime = method.modp_prime().unwrap();
        let small = |low| [&[0; 255][..], &[low]].concat();
        let near = |low| [&prime[..255], &[low]].concat();
        assert_eq!(prime[255], 0xFF);
        for rejected in [small(0), small(1), near(0xFE), near(0xFF), vec![0xFF; 256]] {
            assert_eq!(method.check_public(&rejected), Err(KexError::OutOfRange), "{rejected:02x?}");
        }
        for taken in [small(2), near(0xFD), near(0), [&[0x80][..], &[0; 255]].concat()] {
            assert_eq!(method.check_public(&taken), Ok(()), "{taken:02x?}");
        }
        let (expected, given) = (256, 255);
        assert_eq!(method.check_public(&prime[1..]), Err(KexError::Length { expected, given }));
    }

    #[test]
    fn the_two_sides_of_ml_kem_have_their_own_lengths() {
        let (method, key, ciphertext) = (KexMethod::MlKem768, [0; 1184], [0; 1088]);
        assert_eq!((method.check_public(&key), method.check_response(&ciphertext)), (Ok(()), Ok(())));
        let swapped = |expected, given| Err(KexError::Length { expected, given });
        assert_eq!(method.check_public(&ciphertext), swapped(1184, 1088));
        assert_eq!(method.check_response(&key), swapped(1088, 1184));
        assert_eq!(KexMethod::Modp2048.check_response(&[0; 256]), Err(KexError::OutOfRange));
    }
}
