//! Milenage, the authentication functions of a subscriber (3GPP TS 35.206): f1 to f5, f1* and f5*.
//!
//! The home network and the USIM compute the same functions of the subscriber's key K. OPc individualises
//! them for an operator.

use crate::EapFault;
use casemate_crypto::{AesBits, CipherAlg, CipherKey, Providers};
use core::fmt;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Length of K, OP, OPc, RAND, CK and IK in bytes.
pub(super) const BLOCK: usize = 16;
/// Length of a sequence number, and of the key that hides it, in bytes.
pub(super) const SQN_LEN: usize = 6;
/// Length of MAC-A, MAC-S and RES in bytes.
pub(super) const MAC_LEN: usize = 8;

/// A secret of 16 bytes.
pub(super) type Key = Zeroizing<[u8; BLOCK]>;
/// A sequence number SQN, of which the lowest 48 bits are used.
pub(super) type Sqn = u64;

/// Authentication management field (TS 33.102 annex H).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amf(pub(super) [u8; 2]);

impl Amf {
    /// The field of resynchronisation (TS 33.102 section 6.3.3).
    const RESYNCHRONISATION: Self = Self([0; 2]);
    /// First bit of the field.
    const SEPARATION: u8 = 0x80;

    /// Whether the separation bit is set: the vector may be used in evolved packet systems, as EAP-AKA'
    /// requires (RFC 9048 section 3.3).
    pub(super) const fn is_separated(self) -> bool {
        self.0[0] & Self::SEPARATION != 0
    }

    /// The field with the separation bit.
    pub(super) const fn separated(self) -> Self {
        let [high, low] = self.0;
        Self([high | Self::SEPARATION, low])
    }
}

/// Keys of a subscriber (TS 33.102). Wiped on drop, never printed.
#[derive(Clone)]
pub struct Subscriber {
    k: Key,
    opc: Key,
    amf: Amf,
}

impl Subscriber {
    /// AMF unless the configuration names one: the separation bit, as strongSwan and operators have it.
    pub const DEFAULT_AMF: [u8; 2] = [0x80, 0];

    /// Creates a subscriber of K and OPc. `amf` is what the home network sends; the USIM ignores it.
    pub fn new(k: &[u8; BLOCK], opc: &[u8; BLOCK], amf: [u8; 2]) -> Self {
        Self { k: Zeroizing::new(*k), opc: Zeroizing::new(*opc), amf: Amf(amf) }
    }

    /// Creates a subscriber of K and OP (TS 35.206 section 4.1): OPc is OP encrypted under K. `None` without
    /// AES.
    pub fn with_op(
        k: &[u8; BLOCK],
        op: &[u8; BLOCK],
        amf: [u8; 2],
        providers: &Providers<'_>,
    ) -> Option<Self> {
        let opc = Zeroizing::new(xor(op, &*Aes::new(k, providers).ok()?.encrypt(op).ok()?));
        Some(Self::new(k, &opc, amf))
    }

    pub(super) const fn amf(&self) -> Amf {
        self.amf
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriber")
    }
}

/// AES-128 of single blocks.
struct Aes(alloc::boxed::Box<dyn CipherKey>);

impl Aes {
    fn new(k: &[u8; BLOCK], providers: &Providers<'_>) -> Result<Self, EapFault> {
        let alg = CipherAlg::AesCbc(AesBits::B128);
        let mut keys = providers.0.iter().filter_map(|provider| provider.cipher(alg, k).ok());
        keys.next().map(Self).ok_or(EapFault::Unsupported)
    }

    /// Encrypts a block: CBC with one block and an IV of zeros.
    fn encrypt(&self, block: &[u8; BLOCK]) -> Result<Key, EapFault> {
        let mut block = Zeroizing::new(*block);
        self.0.encrypt(&[0; BLOCK], &mut block[..]).then_some(block).ok_or(EapFault::Unsupported)
    }
}

fn xor<const N: usize>(a: &[u8; N], b: &[u8; N]) -> [u8; N] {
    let mut out = *a;
    for (to, from) in out.iter_mut().zip(b) {
        *to ^= from;
    }
    out
}

/// The last six bytes of a number.
pub(super) const fn sqn_bytes(sqn: Sqn) -> [u8; SQN_LEN] {
    let [_, _, a, b, c, d, e, f] = sqn.to_be_bytes();
    [a, b, c, d, e, f]
}

const fn sqn_of([a, b, c, d, e, f]: [u8; SQN_LEN]) -> Sqn {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn first<const N: usize>(block: &[u8]) -> Result<Zeroizing<[u8; N]>, EapFault> {
    block.first_chunk().copied().map(Zeroizing::new).ok_or(EapFault::Unsupported)
}

fn last<const N: usize>(block: &[u8]) -> Result<Zeroizing<[u8; N]>, EapFault> {
    block.last_chunk().copied().map(Zeroizing::new).ok_or(EapFault::Unsupported)
}

/// The functions for one challenge RAND.
pub(super) struct Milenage<'a> {
    aes: Aes,
    opc: &'a [u8; BLOCK],
    /// RAND and OPc encrypted under K.
    temp: Key,
}

/// What the functions f2 to f5 derive from a challenge.
pub(super) struct Derived {
    /// RES, the proof of the USIM.
    pub(super) res: Zeroizing<[u8; MAC_LEN]>,
    /// Cipher key CK.
    pub(super) ck: Key,
    /// Integrity key IK.
    pub(super) ik: Key,
    /// AK, which hides the sequence number of AUTN.
    ak: Zeroizing<[u8; SQN_LEN]>,
}

#[cfg(test)]
impl Derived {
    /// CK and IK without the other values.
    pub(super) fn of_keys(ck: Key, ik: Key) -> Self {
        Self { res: Zeroizing::default(), ck, ik, ak: Zeroizing::default() }
    }
}

/// A challenge of the home network: AUTN without RAND.
pub(super) type Autn = [u8; BLOCK];
/// Sequence number of the USIM with its proof (TS 33.102 section 6.3.3).
pub(super) type Auts = [u8; SQN_LEN + MAC_LEN];

impl<'a> Milenage<'a> {
    pub(super) fn new(
        subscriber: &'a Subscriber,
        rand: &[u8; BLOCK],
        providers: &Providers<'_>,
    ) -> Result<Self, EapFault> {
        let aes = Aes::new(&subscriber.k, providers)?;
        let temp = aes.encrypt(&Zeroizing::new(xor(rand, &subscriber.opc)))?;
        Ok(Self { aes, opc: &subscriber.opc, temp })
    }

    /// OUT2 to OUT5 (TS 35.206 section 4.1), by the rotation r and the last byte of the constant c.
    fn out(&self, rotation: u32, constant: u8) -> Result<Key, EapFault> {
        let rotated = u128::from_be_bytes(xor(&self.temp, self.opc)).rotate_left(rotation);
        let input = Zeroizing::new((rotated ^ u128::from(constant)).to_be_bytes());
        Ok(Zeroizing::new(xor(&*self.aes.encrypt(&input)?, self.opc)))
    }

    /// OUT1: MAC-A in the first half, MAC-S in the second.
    fn f1(&self, sqn: &[u8; SQN_LEN], amf: Amf) -> Result<Key, EapFault> {
        /// Both halves of IN1 are rotated into each other's place.
        const ROTATION: u32 = 64;
        let mut in1 = [0; BLOCK];
        for (to, from) in in1.iter_mut().zip(sqn.iter().chain(&amf.0).cycle()) {
            *to = *from;
        }
        let rotated = u128::from_be_bytes(xor(&in1, self.opc)).rotate_left(ROTATION);
        let input = Zeroizing::new(xor(&self.temp, &rotated.to_be_bytes()));
        Ok(Zeroizing::new(xor(&*self.aes.encrypt(&input)?, self.opc)))
    }

    /// Computes f2 to f5.
    pub(super) fn derive(&self) -> Result<Derived, EapFault> {
        let out2 = self.out(0, 1)?;
        Ok(Derived { res: last(&*out2)?, ck: self.out(32, 2)?, ik: self.out(64, 4)?, ak: first(&*out2)? })
    }

    /// AUTN of a sequence number: SQN hidden by AK, AMF, and MAC-A (TS 33.102 section 6.3.2).
    pub(super) fn autn(&self, sqn: Sqn, amf: Amf, derived: &Derived) -> Result<Autn, EapFault> {
        let sqn = sqn_bytes(sqn);
        let mac = first::<MAC_LEN>(&*self.f1(&sqn, amf)?)?;
        let mut autn = [0; BLOCK];
        let parts = xor(&sqn, &derived.ak).into_iter().chain(amf.0).chain(*mac);
        for (to, from) in autn.iter_mut().zip(parts) {
            *to = from;
        }
        Ok(autn)
    }

    /// Verifies AUTN. Returns the sequence number and AMF.
    pub(super) fn open_autn(&self, autn: &Autn, derived: &Derived) -> Result<(Sqn, Amf), EapFault> {
        let [s0, s1, s2, s3, s4, s5, a0, a1, mac @ ..] = *autn;
        let (sqn, amf) = (xor(&[s0, s1, s2, s3, s4, s5], &derived.ak), Amf([a0, a1]));
        let expected = first::<MAC_LEN>(&*self.f1(&sqn, amf)?)?;
        if bool::from(expected.ct_eq(&mac)) {
            Ok((sqn_of(sqn), amf))
        } else {
            Err(EapFault::WrongAuthenticator)
        }
    }

    /// AK of resynchronisation: f5*.
    fn ak_star(&self) -> Result<Zeroizing<[u8; SQN_LEN]>, EapFault> {
        first(&*self.out(96, 8)?)
    }

    /// AUTS with the sequence number of the USIM.
    pub(super) fn auts(&self, sqn: Sqn) -> Result<Auts, EapFault> {
        let sqn = sqn_bytes(sqn);
        let mac = last::<MAC_LEN>(&*self.f1(&sqn, Amf::RESYNCHRONISATION)?)?;
        let mut auts = [0; SQN_LEN + MAC_LEN];
        for (to, from) in auts.iter_mut().zip(xor(&sqn, &*self.ak_star()?).into_iter().chain(*mac)) {
            *to = from;
        }
        Ok(auts)
    }

    /// Verifies AUTS. Returns the sequence number of the USIM.
    pub(super) fn open_auts(&self, auts: &Auts) -> Result<Sqn, EapFault> {
        let [s0, s1, s2, s3, s4, s5, mac @ ..] = *auts;
        let sqn = xor(&[s0, s1, s2, s3, s4, s5], &*self.ak_star()?);
        let expected = last::<MAC_LEN>(&*self.f1(&sqn, Amf::RESYNCHRONISATION)?)?;
        if bool::from(expected.ct_eq(&mac)) { Ok(sqn_of(sqn)) } else { Err(EapFault::WrongPassword) }
    }
}

#[cfg(test)]
mod tests;
