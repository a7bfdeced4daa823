//! Keys of a conversation (RFC 4187 section 7, RFC 9048 section 3.3).

use super::Flavour;
use super::milenage::{self, BLOCK, Key, SQN_LEN};
use crate::{EapContext, EapFault};
use alloc::vec::Vec;
use casemate_crypto::{HashAlg, PrfAlg, SecretBytes, prf_plus};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Length of K_encr in bytes. It only encrypts pseudonyms and identities of re-authentication, which are
/// not used, but stands in front of the other keys.
const K_ENCR_LEN: usize = 16;
/// Length of K_re in bytes, the key of re-authentication in EAP-AKA'.
const K_RE_LEN: usize = 32;
/// Length of the master session key in bytes.
const MSK_LEN: usize = 64;
/// Length of the extended master session key in bytes, which is not used.
const EMSK_LEN: usize = 64;
/// Length of the value of AT_MAC in bytes.
pub(super) const MAC_LEN: usize = 16;

/// Keys of one full authentication.
pub(super) struct Keys {
    flavour: Flavour,
    k_aut: Zeroizing<Vec<u8>>,
    pub(super) msk: SecretBytes,
}

/// What the keys are derived from.
pub(super) struct Secrets<'a> {
    pub(super) ck: &'a Key,
    pub(super) ik: &'a Key,
    /// Identity of the peer: the last one that it has sent.
    pub(super) identity: &'a [u8],
}

impl Keys {
    pub(super) const fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Derives the keys of EAP-AKA (RFC 4187 section 7).
    pub(super) fn aka(secrets: &Secrets<'_>, context: &EapContext<'_>) -> Result<Self, EapFault> {
        const K_AUT_LEN: usize = 16;
        let Secrets { ck, ik, identity } = *secrets;
        let digest = context.providers.hash(HashAlg::Sha1, &[identity, &**ik, &**ck]);
        let digest = Zeroizing::new(digest.ok_or(EapFault::Unsupported)?);
        let master = digest.as_slice().first_chunk().copied().map(Zeroizing::new);
        let stream = fips_186_prf(&*master.ok_or(EapFault::Unsupported)?, context)?;
        Self::split(Flavour::Aka, &stream[..], K_AUT_LEN, 0)
    }

    /// Derives the keys of EAP-AKA' (RFC 9048 section 3.3). `ck` and `ik` are CK' and IK'.
    pub(super) fn aka_prime(secrets: &Secrets<'_>, context: &EapContext<'_>) -> Result<Self, EapFault> {
        const K_AUT_LEN: usize = 32;
        const LEN: usize = K_ENCR_LEN + K_AUT_LEN + K_RE_LEN + MSK_LEN + EMSK_LEN;
        let Secrets { ck, ik, identity } = *secrets;
        let key = Zeroizing::new([&ik[..], &ck[..]].concat());
        let prf = context.providers.prf(PrfAlg::HmacSha256, &key).map_err(|_| EapFault::Unsupported)?;
        // PRF' is prf+ of IKEv2 (RFC 9048 section 3.4.1).
        let stream = prf_plus(&*prf, &[b"EAP-AKA'", identity], LEN).map_err(|_| EapFault::Unsupported)?;
        Self::split(Flavour::AkaPrime, stream.expose(), K_AUT_LEN, K_RE_LEN)
    }

    fn split(flavour: Flavour, stream: &[u8], k_aut: usize, k_re: usize) -> Result<Self, EapFault> {
        let parts = stream.split_at_checked(K_ENCR_LEN).and_then(|(_, rest)| {
            let (k_aut, rest) = rest.split_at_checked(k_aut)?;
            Some((k_aut, rest.get(k_re..)?.get(..MSK_LEN)?))
        });
        let (k_aut, msk) = parts.ok_or(EapFault::MissingKey)?;
        Ok(Self { flavour, k_aut: Zeroizing::new(k_aut.into()), msk: SecretBytes::new(msk) })
    }

    /// The value of AT_MAC of a packet (RFC 4187 section 10.15, RFC 9048 section 3.4.2). `packet` has zeros
    /// in its place.
    pub(super) fn mac(&self, packet: &[u8], context: &EapContext<'_>) -> Result<[u8; MAC_LEN], EapFault> {
        let prf = context.providers.prf(self.flavour.prf(), &self.k_aut);
        let mac =
            prf.map_err(|_| EapFault::Unsupported)?.prf(&[packet]).map_err(|_| EapFault::Unsupported)?;
        mac.expose().first_chunk().copied().ok_or(EapFault::Unsupported)
    }

    /// Verifies the value of AT_MAC of a packet. `fault` is that of a wrong one.
    pub(super) fn verify_mac(
        &self,
        packet: &[u8],
        mac: &[u8; MAC_LEN],
        fault: EapFault,
        context: &EapContext<'_>,
    ) -> Result<(), EapFault> {
        if bool::from(self.mac(packet, context)?.ct_eq(mac)) { Ok(()) } else { Err(fault) }
    }
}

/// CK' and IK' (TS 33.402 annex A.2). `hidden_sqn` is the sequence number as AUTN hides it.
pub(super) fn bind_to_network(
    derived: &milenage::Derived,
    hidden_sqn: &[u8; SQN_LEN],
    network: &[u8],
    context: &EapContext<'_>,
) -> Result<(Key, Key), EapFault> {
    /// Function code, in front of the parameters (TS 33.220 annex B).
    const FUNCTION: u8 = 0x20;
    const SQN_FIELD_LEN: u16 = SQN_LEN as u16;
    let key = Zeroizing::new([&derived.ck[..], &derived.ik[..]].concat());
    let prf = context.providers.prf(PrfAlg::HmacSha256, &key).map_err(|_| EapFault::Unsupported)?;
    let len = u16::try_from(network.len()).map_err(|_| EapFault::Malformed)?.to_be_bytes();
    let parts: [&[u8]; 5] = [&[FUNCTION], network, &len, hidden_sqn, &SQN_FIELD_LEN.to_be_bytes()];
    let out = prf.prf(&parts).map_err(|_| EapFault::Unsupported)?;
    let (ck, rest) = out.expose().split_first_chunk::<BLOCK>().ok_or(EapFault::Unsupported)?;
    let ik = rest.first_chunk::<BLOCK>().ok_or(EapFault::Unsupported)?;
    Ok((Zeroizing::new(*ck), Zeroizing::new(*ik)))
}

/// Length of a number of the generator in bytes.
const XKEY_LEN: usize = 20;
/// Length of the output that the keys of EAP-AKA need, in bytes: eight numbers.
const STREAM_LEN: usize = 8 * XKEY_LEN;

/// The generator of FIPS 186-2 with change notice 1 and without a seed of the user (RFC 4187 appendix A).
fn fips_186_prf(
    master: &[u8; XKEY_LEN],
    context: &EapContext<'_>,
) -> Result<Zeroizing<[u8; STREAM_LEN]>, EapFault> {
    let algorithms = context.algorithms()?;
    let mut key = Zeroizing::new(*master);
    let mut stream = Zeroizing::new([0; STREAM_LEN]);
    for number in stream.as_chunks_mut::<XKEY_LEN>().0 {
        let mut block = Zeroizing::new([0; 64]);
        for (to, from) in block.iter_mut().zip(key.iter()) {
            *to = *from;
        }
        *number = algorithms.sha1_compress(&block);
        add_with_one(&mut key, number);
    }
    Ok(stream)
}

/// `key = (1 + key + number) mod 2^160`.
fn add_with_one(key: &mut [u8; XKEY_LEN], number: &[u8; XKEY_LEN]) {
    let mut carry = 1;
    for (to, from) in key.iter_mut().zip(number).rev() {
        let sum = u16::from(*to).wrapping_add(u16::from(*from)).wrapping_add(carry);
        let [high, low] = sum.to_be_bytes();
        (*to, carry) = (low, u16::from(high));
    }
}

#[cfg(test)]
pub(super) mod tests;
