//! Keys of Access-Accept packets (RFC 2548 section 2.4).

use crate::RadiusFault;
use crate::attribute::{MS_MPPE_RECV_KEY, MS_MPPE_SEND_KEY};
use crate::packet::Packet;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use zeroize::Zeroizing;

const SALT_LEN: usize = 2;
const BLOCK: usize = 16;
/// Length of each half of a master session key (RFC 3748 section 7.10, RFC 2548).
const HALF: usize = 32;

/// The master session key: the key for receiving, then that for sending, as seen from the server. `None` if
/// the packet has no keys. A key of another length is an error.
pub(crate) fn master_session_key(
    packet: &Packet<'_>,
    authenticator: &[u8; 16],
    md5: &dyn PasswordAlgorithms,
    secret: &SecretBytes,
) -> Result<Option<SecretBytes>, RadiusFault> {
    let (receive, send) = (packet.microsoft(MS_MPPE_RECV_KEY), packet.microsoft(MS_MPPE_SEND_KEY));
    let (Some(receive), Some(send)) = (receive, send) else { return Ok(None) };
    let mut key = Zeroizing::new(Vec::with_capacity(2 * HALF));
    for half in [receive, send] {
        let half = decrypt(half, authenticator, md5, secret).ok_or(RadiusFault::WrongKey)?;
        key.extend_from_slice(&half[..]);
    }
    Ok(Some(SecretBytes::new(&key)))
}

/// Decrypts a key of 32 bytes. The plain text begins with its length, and zeros follow the key.
fn decrypt(
    value: &[u8],
    authenticator: &[u8; 16],
    md5: &dyn PasswordAlgorithms,
    secret: &SecretBytes,
) -> Option<Zeroizing<[u8; HALF]>> {
    let (salt, encrypted) = value.split_first_chunk::<SALT_LEN>()?;
    let (blocks, rest) = encrypted.as_chunks::<BLOCK>();
    if !rest.is_empty() {
        return None;
    }
    let mut plain = Zeroizing::new(Vec::with_capacity(encrypted.len()));
    let mut mask = Zeroizing::new(md5.md5(&[secret.expose(), authenticator, salt]));
    for block in blocks {
        plain.extend(block.iter().zip(*mask).map(|(byte, mask)| byte ^ mask));
        mask = Zeroizing::new(md5.md5(&[secret.expose(), block]));
    }
    let (&len, rest) = plain.split_first()?;
    let key = rest.first_chunk::<HALF>().filter(|_| usize::from(len) == HALF)?;
    Some(Zeroizing::new(*key))
}
