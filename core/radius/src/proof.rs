//! Authenticators: MD5 and HMAC-MD5 with the shared secret.

use crate::RadiusFault;
use crate::attribute::MESSAGE_AUTHENTICATOR;
use crate::packet::{HEADER_LEN, Packet};
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
}
