//! Keys of Access-Accept packets (RFC 2548 section 2.4).

use crate::RadiusFault;
use crate::attribute::{MS_MPPE_RECV_KEY, MS_MPPE_SEND_KEY};
use crate::packet::Packet;
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use zeroize::Zeroizing;

const SALT_LEN: usize = 2;
const BLOCK: usize = 16;
/// Length of a master session key.
const MSK_LEN: usize = 64;
/// Length of each half of most methods, and of EAP-MSCHAPv2.
const HALF_LENS: [usize; 2] = [32, 16];

/// The master session key: the key for receiving, then that for sending, as seen from the peer's server. Zeros
/// follow the short keys of EAP-MSCHAPv2, as in the key of the peer. `None` if the packet lacks a key.
pub(crate) fn master_session_key(
    packet: &Packet<'_>,
    authenticator: &[u8; 16],
    md5: &dyn PasswordAlgorithms,
    secret: &SecretBytes,
) -> Result<Option<SecretBytes>, RadiusFault> {
    let (receive, send) = (packet.microsoft(MS_MPPE_RECV_KEY), packet.microsoft(MS_MPPE_SEND_KEY));
    let (Some(receive), Some(send)) = (receive, send) else { return Ok(None) };
    let read = |value| decrypt(value, authenticator, md5, secret).ok_or(RadiusFault::WrongKey);
    let (receive, send) = (read(receive)?, read(send)?);
    if receive.len() != send.len() || !HALF_LENS.contains(&receive.len()) {
        return Err(RadiusFault::WrongKey);
    }
    let mut key = Zeroizing::new([0; MSK_LEN]);
    key.iter_mut().zip(receive.iter().chain(&*send)).for_each(|(to, from)| *to = *from);
    Ok(Some(SecretBytes::new(&key[..])))
}

/// Decrypts a key. The plain text begins with its length, and zeros follow the key.
fn decrypt(
    value: &[u8],
    authenticator: &[u8; 16],
    md5: &dyn PasswordAlgorithms,
    secret: &SecretBytes,
) -> Option<Zeroizing<Vec<u8>>> {
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
    rest.get(..usize::from(len)).map(|key| Zeroizing::new(key.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_legacy::LEGACY;

    const SECRET: &[u8] = b"a secret of gateway and server";

    /// Encrypts a key as RFC 2548 section 2.4.2 says.
    fn encrypt(key: &[u8], salt: [u8; 2], authenticator: &[u8; 16]) -> Vec<u8> {
        let mut plain = [&[key.len() as u8], key].concat();
        plain.resize(plain.len().next_multiple_of(BLOCK), 0);
        let mut mask = LEGACY.md5(&[SECRET, authenticator, &salt]);
        let mut out = salt.to_vec();
        for block in plain.chunks(BLOCK) {
            let encrypted: Vec<u8> = block.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
            mask = LEGACY.md5(&[SECRET, &encrypted]);
            out.extend(encrypted);
        }
        out
    }

    fn vendor(kind: u8, value: &[u8]) -> Vec<u8> {
        let len = value.len() as u8;
        [&[26, len + 8, 0, 0, 1, 55, kind, len + 2], value].concat()
    }

    fn key_of(receive: &[u8], send: &[u8]) -> Result<Option<Vec<u8>>, RadiusFault> {
        let authenticator = [7; 16];
        let attributes = [vendor(17, receive), vendor(16, send)].concat();
        let [hi, lo] = (20 + attributes.len() as u16).to_be_bytes();
        let bytes = [&[2, 1, hi, lo], &[0; 16][..], &attributes].concat();
        let packet = Packet::parse(&bytes).unwrap();
        let key = master_session_key(&packet, &authenticator, &LEGACY, &SecretBytes::new(SECRET));
        key.map(|key| key.map(|key| key.expose().to_vec()))
    }

    #[test]
    fn the_receiving_half_comes_first_and_zeros_fill_the_key() {
        let sealed = |key: &[u8]| encrypt(key, [0x80, 1], &[7; 16]);
        let whole = key_of(&sealed(&[1; 32]), &sealed(&[2; 32])).unwrap().unwrap();
        assert_eq!(whole, [[1; 32], [2; 32]].concat());
        let short = key_of(&sealed(&[1; 16]), &sealed(&[2; 16])).unwrap().unwrap();
        assert_eq!(short, [&[1; 16][..], &[2; 16], &[0; 32]].concat());
        for (receive, send) in [(16, 32), (0, 0), (31, 31), (8, 8)] {
            let key = key_of(&sealed(&[1].repeat(receive)), &sealed(&[2].repeat(send)));
            assert_eq!(key, Err(RadiusFault::WrongKey), "{receive} {send}");
        }
        for broken in [&[][..], &[0x80], &[0x80, 1], &[0x80, 1, 2]] {
            assert_eq!(key_of(broken, &sealed(&[2; 32])), Err(RadiusFault::WrongKey), "{broken:?}");
        }
    }
}
