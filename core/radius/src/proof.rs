//! What the shared secret proves and hides: authenticators with MD5 and HMAC-MD5, and the keys of
//! Access-Accept packets.

use crate::RadiusFault;
use crate::attribute::{MESSAGE_AUTHENTICATOR, MS_MPPE_RECV_KEY, MS_MPPE_SEND_KEY};
use crate::packet::{HEADER_LEN, Packet};
use alloc::vec::Vec;
use casemate_crypto::{PasswordAlgorithms, Rng, SecretBytes};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Block size of MD5 in bytes (RFC 2104 section 2).
const BLOCK: usize = 64;

/// MD5 and random numbers.
pub struct Algorithms<'a> {
    /// MD5.
    pub md5: &'a dyn PasswordAlgorithms,
    /// Random generator.
    pub rng: &'a mut dyn Rng,
}

/// HMAC-MD5 (RFC 2104) over the concatenation of `parts`, at most five.
pub(crate) fn hmac(md5: &dyn PasswordAlgorithms, secret: &SecretBytes, parts: [&[u8]; 5]) -> [u8; 16] {
    let mut key = Zeroizing::new([0_u8; BLOCK]);
    let digest;
    let short = if secret.len() > BLOCK {
        digest = Zeroizing::new(md5.md5(&[secret.expose()]));
        &digest[..]
    } else {
        secret.expose()
    };
    key.iter_mut().zip(short).for_each(|(to, from)| *to = *from);
    let pad = |with: u8| Zeroizing::new(key.map(|byte| byte ^ with));
    let (inner, outer) = (pad(0x36), pad(0x5C));
    let [a, b, c, d, e] = parts;
    let inside = md5.md5(&[&inner[..], a, b, c, d, e]);
    md5.md5(&[&outer[..], &inside])
}

/// The Response Authenticator (RFC 2865 section 3), the Request Authenticator of accounting (RFC 2866 section
/// 3) with an `authenticator` of zeros, and that of RFC 5176.
pub(crate) fn digest(
    md5: &dyn PasswordAlgorithms,
    packet: &[u8],
    authenticator: &[u8; 16],
    secret: &SecretBytes,
) -> [u8; 16] {
    let (head, attributes) = (packet.get(..4), packet.get(HEADER_LEN..));
    md5.md5(&[head.unwrap_or_default(), authenticator, attributes.unwrap_or_default(), secret.expose()])
}

/// Verifies the authenticator in the header of a packet.
pub(crate) fn verify_digest(
    md5: &dyn PasswordAlgorithms,
    packet: &Packet<'_>,
    authenticator: &[u8; 16],
    secret: &SecretBytes,
) -> Result<(), RadiusFault> {
    let expected = digest(md5, packet.bytes, authenticator, secret);
    if bool::from(expected.ct_eq(&packet.authenticator)) {
        Ok(())
    } else {
        Err(RadiusFault::WrongAuthenticator)
    }
}

/// Verifies the Message-Authenticator of a packet (RFC 3579 section 3.2). `authenticator` is that of the
/// request. Returns whether there is one.
pub(crate) fn verify_message(
    md5: &dyn PasswordAlgorithms,
    packet: &Packet<'_>,
    authenticator: &[u8; 16],
    secret: &SecretBytes,
) -> Result<bool, RadiusFault> {
    let mut attributes = packet.all(MESSAGE_AUTHENTICATOR);
    let Some(found) = attributes.next() else { return Ok(false) };
    if attributes.next().is_some() {
        return Err(RadiusFault::NoMessageAuthenticator);
    }
    let found: &[u8; 16] = found.try_into().map_err(|_| RadiusFault::Malformed)?;
    let (before, after) = around(packet).ok_or(RadiusFault::Malformed)?;
    let head = packet.bytes.get(..4).unwrap_or_default();
    let expected = hmac(md5, secret, [head, authenticator, before, &[0; 16], after]);
    if bool::from(expected.ct_eq(found)) { Ok(true) } else { Err(RadiusFault::WrongAuthenticator) }
}

/// The attributes before the value of the Message-Authenticator, and those behind it.
fn around<'p>(packet: &Packet<'p>) -> Option<(&'p [u8], &'p [u8])> {
    let before = packet.attributes().take_while(|attribute| attribute.kind != MESSAGE_AUTHENTICATOR);
    let len = before.map(|attribute| attribute.value.len().saturating_add(2)).fold(2, usize::saturating_add);
    let (before, rest) = packet.bytes.get(HEADER_LEN..)?.split_at_checked(len)?;
    Some((before, rest.get(16..)?))
}

const SALT_LEN: usize = 2;
const MPPE_BLOCK: usize = 16;
/// Length of a master session key.
const MSK_LEN: usize = 64;
/// Length of each half of most methods, and of EAP-MSCHAPv2.
const HALF_LENS: [usize; 2] = [32, 16];

/// The master session key (RFC 2548 section 2.4): the key for receiving, then that for sending, as the server
/// names them. Zeros follow the short keys of EAP-MSCHAPv2, as in the key of the peer. `None` if the packet
/// lacks a key.
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
    let (blocks, rest) = encrypted.as_chunks::<MPPE_BLOCK>();
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

    /// RFC 2202 section 2.
    #[test]
    fn hmac_md5_of_rfc_2202() {
        let mac = |key: &[u8], data: &[u8]| hmac(&LEGACY, &SecretBytes::new(key), [data, &[], &[], &[], &[]]);
        let hex = |text: &str| u128::from_str_radix(text, 16).unwrap().to_be_bytes();
        assert_eq!(mac(&[0x0B; 16], b"Hi There"), hex("9294727a3638bb1c13f48ef8158bfc9d"));
        assert_eq!(mac(b"Jefe", b"what do ya want for nothing?"), hex("750c783e6ab0b503eaa86e310a5db738"));
        assert_eq!(mac(&[0xAA; 16], &[0xDD; 50]), hex("56be34521d144c88dbb8c733f0e8b3f6"));
        let data = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(mac(&[0xAA; 80], data), hex("6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"));
    }

    /// RFC 2865 section 7.1: an Access-Accept, its request and the secret.
    #[test]
    fn response_authenticator_of_rfc_2865() {
        let request = 0x0f40_3f94_7397_8057_bd83_d5cb_98f4_227a_u128.to_be_bytes();
        let mut response = [0x02, 0, 0, 0x26].to_vec();
        response.extend(0x86fe_220e_7624_ba2a_1005_f6bf_9b55_e0b2_u128.to_be_bytes());
        response.extend([6, 6, 0, 0, 0, 1, 15, 6, 0, 0, 0, 0, 14, 6, 192, 168, 1, 3]);
        let verify = |secret: &[u8]| {
            verify_digest(&LEGACY, &Packet::parse(&response).unwrap(), &request, &SecretBytes::new(secret))
        };
        assert_eq!(verify(b"xyzzy5461"), Ok(()));
        assert_eq!(verify(b"xyzzy5462"), Err(RadiusFault::WrongAuthenticator));
    }

    const SECRET: &[u8] = b"a secret of gateway and server";

    /// Encrypts a key as RFC 2548 section 2.4.2 says.
    fn encrypt(key: &[u8], salt: [u8; 2], authenticator: &[u8; 16]) -> Vec<u8> {
        let mut plain = [&[key.len() as u8], key].concat();
        plain.resize(plain.len().next_multiple_of(MPPE_BLOCK), 0);
        let mut mask = LEGACY.md5(&[SECRET, authenticator, &salt]);
        let mut out = salt.to_vec();
        for block in plain.chunks(MPPE_BLOCK) {
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
