//! What both sides compute (RFC 2759 section 8, RFC 3079 section 3).

use crate::{EapContext, EapFault};
use alloc::vec::Vec;
use casemate_crypto::{Digest, HashAlg, PasswordAlgorithms, SecretBytes};
use core::fmt;
use zeroize::Zeroizing;

/// Length of a challenge in bytes.
pub(super) const CHALLENGE_LEN: usize = 16;
/// Length of an NT response in bytes.
pub(super) const NT_RESPONSE_LEN: usize = 24;
/// Length of an authenticator response in bytes.
pub(super) const AUTHENTICATOR_RESPONSE_LEN: usize = 20;
/// Length of a hash of MD4, and of each key of RFC 3079, in bytes.
const KEY_LEN: usize = 16;
/// Length of the master session key in bytes.
const MSK_LEN: usize = 64;

/// Hash of a password (RFC 2759 section 8.3): MD4 of its UTF-16LE form. It is as secret as the password,
/// because it is sufficient to authenticate like the user. Wiped on drop, never printed.
#[derive(Clone)]
pub struct NtHash(Zeroizing<[u8; KEY_LEN]>);

impl NtHash {
    /// Returns a hash that is already known; `None` if it has not 16 bytes. The caller wipes the original.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// The 16 bytes of the hash, with which a peer authenticates itself as with the password.
    pub fn expose(&self) -> &[u8] {
        &*self.0
    }

    /// Hashes a password.
    pub(super) fn of(password: &str, algorithms: &dyn PasswordAlgorithms) -> Self {
        // Enough for any text: a character has at least half as many bytes in UTF-8 as in UTF-16. Memory that
        // grows would leave a copy behind.
        let mut utf16 = Zeroizing::new(Vec::with_capacity(password.len().saturating_mul(2)));
        for unit in password.encode_utf16() {
            utf16.extend_from_slice(&unit.to_le_bytes());
        }
        Self(Zeroizing::new(algorithms.md4(&utf16)))
    }

    /// Hash of the hash (RFC 2759 section 8.4).
    fn hashed(&self, algorithms: &dyn PasswordAlgorithms) -> Self {
        Self(Zeroizing::new(algorithms.md4(&*self.0)))
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash")
    }
}

/// Returns the hash of the password of an EAP identity.
pub(super) fn nt_hash(identity: &[u8], context: &EapContext<'_>) -> Result<NtHash, EapFault> {
    if let Some(hash) = context.credentials.nt_hash(identity) {
        return Ok(hash.clone());
    }
    let password = core::str::from_utf8(context.password(identity)?.expose());
    Ok(NtHash::of(password.map_err(|_| EapFault::PasswordEncoding)?, context.algorithms()?))
}

/// What both sides have sent.
pub(super) struct Exchange<'a> {
    pub(super) authenticator_challenge: &'a [u8; CHALLENGE_LEN],
    pub(super) peer_challenge: &'a [u8; CHALLENGE_LEN],
    /// Name in the response, with or without a domain in front.
    pub(super) name: &'a [u8],
}

/// What both sides derive from the hash of the password.
pub(super) struct Derived {
    /// Proof of the peer (RFC 2759 section 8.1).
    pub(super) nt_response: Zeroizing<[u8; NT_RESPONSE_LEN]>,
    /// Proof of the authenticator (RFC 2759 section 8.7), without `S=`.
    pub(super) authenticator_response: Zeroizing<[u8; AUTHENTICATOR_RESPONSE_LEN]>,
    /// Master session key: MasterReceiveKey and MasterSendKey of the authenticator (RFC 3079 section 3.3),
    /// then 32 zero bytes (Microsoft's specification MS-CHAP).
    pub(super) msk: SecretBytes,
}

impl Derived {
    pub(super) fn new(
        hash: &NtHash,
        exchange: &Exchange<'_>,
        context: &EapContext<'_>,
    ) -> Result<Self, EapFault> {
        let algorithms = context.algorithms()?;
        let challenge = challenge_hash(exchange, context)?;
        let nt_response = nt_response(challenge, hash, algorithms);
        let hash_hash = hash.hashed(algorithms);
        let authenticator_response = authenticator_response(challenge, &hash_hash, &nt_response, context)?;
        let msk = msk(&hash_hash, &nt_response, context)?;
        Ok(Self { nt_response, authenticator_response, msk })
    }
}

/// Name of a user without the domain in front: `carol` of `OFFICE\carol`.
fn without_domain(name: &[u8]) -> &[u8] {
    let mut parts = name.splitn(2, |byte| *byte == b'\\');
    let first = parts.next().unwrap_or_default();
    parts.next().unwrap_or(first)
}

fn sha1(parts: &[&[u8]], context: &EapContext<'_>) -> Result<Zeroizing<Digest>, EapFault> {
    context.providers.hash(HashAlg::Sha1, parts).map(Zeroizing::new).ok_or(EapFault::Unsupported)
}

/// The first bytes of a digest.
fn first<const N: usize>(digest: &Digest) -> Result<Zeroizing<[u8; N]>, EapFault> {
    digest.as_slice().first_chunk().copied().map(Zeroizing::new).ok_or(EapFault::Unsupported)
}

/// `ChallengeHash` (RFC 2759 section 8.2).
fn challenge_hash(exchange: &Exchange<'_>, context: &EapContext<'_>) -> Result<[u8; 8], EapFault> {
    let Exchange { authenticator_challenge, peer_challenge, name } = exchange;
    let digest = sha1(&[*peer_challenge, *authenticator_challenge, without_domain(name)], context)?;
    Ok(*first(&digest)?)
}

/// `ChallengeResponse` (RFC 2759 section 8.5): three DES blocks. Their keys are the hash, padded with zeros
/// to 21 bytes.
fn nt_response(
    challenge: [u8; 8],
    hash: &NtHash,
    algorithms: &dyn PasswordAlgorithms,
) -> Zeroizing<[u8; NT_RESPONSE_LEN]> {
    let mut padded = Zeroizing::new([0; 21]);
    for (to, from) in padded.iter_mut().zip(*hash.0) {
        *to = from;
    }
    let (keys, _) = padded.as_chunks::<7>();
    let mut response = Zeroizing::new([0; NT_RESPONSE_LEN]);
    for (block, key) in response.as_chunks_mut::<8>().0.iter_mut().zip(keys) {
        *block = algorithms.des(key, challenge);
    }
    response
}

/// `GenerateAuthenticatorResponse` (RFC 2759 section 8.7), from the hash of the hash on.
fn authenticator_response(
    challenge: [u8; 8],
    hash_hash: &NtHash,
    nt_response: &[u8; NT_RESPONSE_LEN],
    context: &EapContext<'_>,
) -> Result<Zeroizing<[u8; AUTHENTICATOR_RESPONSE_LEN]>, EapFault> {
    const MAGIC_1: &[u8] = b"Magic server to client signing constant";
    const MAGIC_2: &[u8] = b"Pad to make it do more than one iteration";
    let inner = sha1(&[&*hash_hash.0, nt_response, MAGIC_1], context)?;
    first(&*sha1(&[inner.as_slice(), &challenge, MAGIC_2], context)?)
}

/// Derives the master session key. Both sides derive the same: what the authenticator receives with, the peer
/// sends with.
fn msk(
    hash_hash: &NtHash,
    nt_response: &[u8; NT_RESPONSE_LEN],
    context: &EapContext<'_>,
) -> Result<SecretBytes, EapFault> {
    /// `GetMasterKey` (RFC 3079 section 3.4).
    const MASTER: &[u8] = b"This is the MPPE Master Key";
    /// The key with which the authenticator receives.
    const RECEIVE: &[u8] =
        b"On the client side, this is the send key; on the server side, it is the receive key.";
    /// The key with which the authenticator sends.
    const SEND: &[u8] =
        b"On the client side, this is the receive key; on the server side, it is the send key.";
    let master = first::<KEY_LEN>(&*sha1(&[&*hash_hash.0, nt_response, MASTER], context)?)?;
    let start_key = |direction| {
        // `GetAsymmetricStartKey` (RFC 3079 section 3.4).
        first::<KEY_LEN>(&*sha1(&[&*master, &[0; 40], direction, &[0xF2; 40]], context)?)
    };
    let (receive, send) = (start_key(RECEIVE)?, start_key(SEND)?);
    let mut msk = Zeroizing::new([0; MSK_LEN]);
    for (to, from) in msk.iter_mut().zip(receive.iter().chain(send.iter())) {
        *to = *from;
    }
    Ok(SecretBytes::new(&*msk))
}

#[cfg(test)]
mod tests;
