//! The kernel's algorithm names, and keys.
//!
//! Both the names of the crypto API (`hmac(sha1)`) and the short names (`sha1`) are accepted. A key is
//! hexadecimal after `0x`, or otherwise the characters themselves; the salt of a counter mode follows the
//! key, as in Linux and IKEv2. No message in this module contains a key.

use super::LineProblem;
use super::cursor::Cursor;
use casemate_crypto::{
    AeadAlg, AesBits, AhSuite, CipherAlg, EspSuite, ImplicitIvAlg, MacAlg, MacKind, SecretBytes,
};
use casemate_sa::{Protocol, Transform};
use casemate_wire::invariant::OrBroken;
use zeroize::Zeroizing;

const CIPHERS: &str = "cbc(aes), rfc3686(ctr(aes)), ecb(cipher_null), cbc(des3_ede) or cbc(des)";
const MACS: &str = "hmac(sha256), hmac(sha384), hmac(sha512), hmac(sha1), cmac(aes), xcbc(aes) or hmac(md5)";
const AEADS: &str = "rfc4106(gcm(aes)), rfc4309(ccm(aes)), rfc4543(gcm(aes)), rfc7539esp(chacha20,poly1305), \
     iiv(rfc4106(gcm(aes))), iiv(rfc4309(ccm(aes))) or iiv(rfc7539esp(chacha20,poly1305))";

/// An algorithm that `aead` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combined {
    /// Encrypts and authenticates.
    Aead(AeadAlg),
    /// Does the same with an implicit IV (RFC 8750). The kernel has no such algorithm; the name is ours.
    ImplicitIv(ImplicitIvAlg),
    /// Authenticates only (RFC 4543).
    Gmac(MacAlg),
}

/// An algorithm, and its key with the salt of a counter mode.
pub(super) struct Keyed<A> {
    alg: A,
    key: SecretBytes,
}

/// Takes the name and key after `enc`.
pub(super) fn take_cipher(cursor: &mut Cursor<'_>) -> Result<Keyed<CipherAlg>, LineProblem> {
    let name = cursor.value("a cipher")?;
    let sized = |make: fn(AesBits) -> CipherAlg| AesBits::ALL.map(make).to_vec();
    let choices = match name {
        "cbc(aes)" | "aes" => sized(CipherAlg::AesCbc),
        "rfc3686(ctr(aes))" => sized(CipherAlg::AesCtr),
        "ecb(cipher_null)" | "cipher_null" => vec![CipherAlg::Null],
        "cbc(camellia)" => sized(CipherAlg::CamelliaCbc),
        "cbc(des3_ede)" | "des3_ede" => vec![CipherAlg::TripleDesCbc],
        "cbc(des)" | "des" => vec![CipherAlg::DesCbc],
        _ => return Err(cursor.unexpected(CIPHERS)),
    };
    take_key(cursor, name, &choices, |alg| alg.key_len().saturating_add(alg.salt_len()))
}

/// Takes the name and key after `auth`. The tag has the kernel's default length.
pub(super) fn take_mac(cursor: &mut Cursor<'_>) -> Result<Keyed<MacAlg>, LineProblem> {
    let Keyed { alg: kind, key } = take_mac_kind(cursor)?;
    Ok(Keyed { alg: kernel_default(kind), key })
}

/// Takes the name, key and tag length after `auth-trunc`.
pub(super) fn take_mac_truncated(cursor: &mut Cursor<'_>) -> Result<Keyed<MacAlg>, LineProblem> {
    let Keyed { alg: kind, key } = take_mac_kind(cursor)?;
    let bits: u32 = cursor.number()?;
    let max_bits = kind.full_tag_len().saturating_mul(8);
    let alg = whole_bytes(bits).and_then(|bytes| MacAlg::truncated(kind, bytes).ok());
    match alg {
        Some(alg) => Ok(Keyed { alg, key }),
        None => Err(cursor.problem(format!(
            "`auth-trunc {} ... {}`: a multiple of 8 from 64 to {max_bits} bits was expected",
            mac_name(kind),
            cursor.last()
        ))),
    }
}

/// Takes the name, key and ICV length after `aead`.
pub(super) fn take_aead(cursor: &mut Cursor<'_>) -> Result<Keyed<Combined>, LineProblem> {
    let name = cursor.value("a combined-mode cipher")?;
    // The length of the key decides the variant, and the ICV length comes after the key. So the variants
    // are made with an ICV that they have first.
    let Some(AeadName { make, icvs }) = aead_of_name(name) else { return Err(cursor.unexpected(AEADS)) };
    let sizes: Vec<(AesBits, Combined)> =
        AesBits::ALL.into_iter().filter_map(|bits| Some((bits, make(bits, 16).or(make(bits, 8))?))).collect();
    let Keyed { alg: (bits, _), key } = take_key(cursor, name, &sizes, |(_, alg)| alg.key_and_salt_len())?;
    let icv: u32 = cursor.number()?;
    match whole_bytes(icv).and_then(|bytes| make(bits, bytes)) {
        Some(alg) => Ok(Keyed { alg, key }),
        None => Err(cursor.problem(format!("`aead {name} ... {icv}`: an ICV of {icvs} bits was expected"))),
    }
}

/// The algorithms of a name.
struct AeadName {
    /// Makes the algorithm with this key and this ICV length in bytes.
    make: fn(AesBits, usize) -> Option<Combined>,
    /// The ICV lengths in bits, as text.
    icvs: &'static str,
}

fn aead_of_name(name: &str) -> Option<AeadName> {
    fn gcm(bits: AesBits, icv: usize) -> Option<AeadAlg> {
        AeadAlg::aes_gcm(bits, icv).ok()
    }
    fn ccm(bits: AesBits, icv: usize) -> Option<AeadAlg> {
        AeadAlg::aes_ccm(bits, icv).ok()
    }
    fn chacha(bits: AesBits, icv: usize) -> Option<AeadAlg> {
        (bits == AesBits::B256 && icv == 16).then_some(AeadAlg::ChaCha20Poly1305)
    }
    fn implicit(aead: Option<AeadAlg>) -> Option<Combined> {
        aead.and_then(ImplicitIvAlg::new).map(Combined::ImplicitIv)
    }
    let (make, icvs): (fn(AesBits, usize) -> Option<Combined>, _) = match name {
        "rfc4106(gcm(aes))" => (|bits, icv| gcm(bits, icv).map(Combined::Aead), "64, 96 or 128"),
        "rfc4309(ccm(aes))" => (|bits, icv| ccm(bits, icv).map(Combined::Aead), "64, 96 or 128"),
        "rfc4543(gcm(aes))" => {
            (|bits, icv| MacAlg::truncated(MacKind::AesGmac(bits), icv).ok().map(Combined::Gmac), "128")
        }
        "rfc7539esp(chacha20,poly1305)" => (|bits, icv| chacha(bits, icv).map(Combined::Aead), "128"),
        "iiv(rfc4106(gcm(aes)))" => (|bits, icv| implicit(gcm(bits, icv)), "128"),
        "iiv(rfc4309(ccm(aes)))" => (|bits, icv| implicit(ccm(bits, icv)), "64"),
        "iiv(rfc7539esp(chacha20,poly1305))" => (|bits, icv| implicit(chacha(bits, icv)), "128"),
        _ => return None,
    };
    Some(AeadName { make, icvs })
}

impl Combined {
    fn key_and_salt_len(self) -> usize {
        match self {
            Self::Aead(alg) => EspSuite::Combined(alg).encr_key_len(),
            Self::ImplicitIv(alg) => EspSuite::ImplicitIv(alg).encr_key_len(),
            Self::Gmac(alg) => alg.key_len().saturating_add(alg.salt_len()),
        }
    }
}

/// The kernel's name of a cipher.
pub(super) const fn cipher_name(alg: CipherAlg) -> &'static str {
    match alg {
        CipherAlg::Null => "ecb(cipher_null)",
        CipherAlg::AesCbc(_) => "cbc(aes)",
        CipherAlg::AesCtr(_) => "rfc3686(ctr(aes))",
        CipherAlg::CamelliaCbc(_) => "cbc(camellia)",
        CipherAlg::DesCbc => "cbc(des)",
        CipherAlg::TripleDesCbc => "cbc(des3_ede)",
    }
}

/// The kernel's name of a MAC.
pub(super) const fn mac_name(kind: MacKind) -> &'static str {
    match kind {
        MacKind::HmacMd5 => "hmac(md5)",
        MacKind::HmacSha1 => "hmac(sha1)",
        MacKind::HmacSha256 => "hmac(sha256)",
        MacKind::HmacSha384 => "hmac(sha384)",
        MacKind::HmacSha512 => "hmac(sha512)",
        MacKind::AesXcbc => "xcbc(aes)",
        MacKind::AesCmac => "cmac(aes)",
        MacKind::AesGmac(_) => "rfc4543(gcm(aes))",
    }
}

/// The kernel's name of a combined-mode cipher.
pub(super) const fn aead_name(alg: AeadAlg) -> &'static str {
    match alg {
        AeadAlg::AesGcm { .. } => "rfc4106(gcm(aes))",
        AeadAlg::AesCcm { .. } => "rfc4309(ccm(aes))",
        AeadAlg::ChaCha20Poly1305 => "rfc7539esp(chacha20,poly1305)",
    }
}

/// Our name of a combined-mode cipher with an implicit IV, in the form of the kernel's crypto templates.
pub(super) const fn implicit_iv_name(alg: ImplicitIvAlg) -> &'static str {
    match alg {
        ImplicitIvAlg::AesGcm16(_) => "iiv(rfc4106(gcm(aes)))",
        ImplicitIvAlg::AesCcm8(_) => "iiv(rfc4309(ccm(aes)))",
        ImplicitIvAlg::ChaCha20Poly1305 => "iiv(rfc7539esp(chacha20,poly1305))",
    }
}

fn take_mac_kind(cursor: &mut Cursor<'_>) -> Result<Keyed<MacKind>, LineProblem> {
    let name = cursor.value("a MAC")?;
    let kind = match name {
        "hmac(sha1)" | "sha1" => MacKind::HmacSha1,
        "hmac(sha256)" | "sha256" => MacKind::HmacSha256,
        "hmac(sha384)" | "sha384" => MacKind::HmacSha384,
        "hmac(sha512)" | "sha512" => MacKind::HmacSha512,
        "hmac(md5)" | "md5" => MacKind::HmacMd5,
        "xcbc(aes)" => MacKind::AesXcbc,
        "cmac(aes)" => MacKind::AesCmac,
        _ => return Err(cursor.unexpected(MACS)),
    };
    take_key(cursor, name, &[kind], |kind| kind.key_len())
}

/// The kernel's default tag length for `auth`: for SHA-256 the 96 bits of the draft before RFC 4868.
fn kernel_default(kind: MacKind) -> MacAlg {
    match kind {
        MacKind::HmacSha256 => {
            MacAlg::truncated(kind, 12).or_broken("SHA-256 has tags of 96 bits", MacAlg::standard(kind))
        }
        _ => MacAlg::standard(kind),
    }
}

fn whole_bytes(bits: u32) -> Option<usize> {
    if bits.is_multiple_of(8) { usize::try_from(bits / 8).ok() } else { None }
}

/// Takes a key and returns the choice with that key length.
fn take_key<A: Copy>(
    cursor: &mut Cursor<'_>,
    name: &str,
    choices: &[A],
    len: impl Fn(A) -> usize,
) -> Result<Keyed<A>, LineProblem> {
    let text = cursor.key()?;
    let key = key_bytes(text).ok_or_else(|| {
        cursor.problem(format!("the key of {name} is malformed: hexadecimal digits were expected after 0x"))
    })?;
    if let Some(choice) = choices.iter().find(|choice| len(**choice) == key.len()) {
        return Ok(Keyed { alg: *choice, key: SecretBytes::new(&key) });
    }
    let lengths: Vec<String> = choices.iter().map(|choice| bits(len(*choice))).collect();
    Err(cursor.problem(format!(
        "the key of {name} has {} bits: {} was expected{}",
        bits(key.len()),
        lengths.join(" or "),
        hint(name)
    )))
}

fn bits(bytes: usize) -> String {
    bytes.saturating_mul(8).to_string()
}

/// Explains the expected lengths where they may surprise.
fn hint(name: &str) -> &'static str {
    if name.contains("rfc4309") {
        " (the key and a salt of 24 bits, RFC 4309 section 7.1)"
    } else if name.starts_with("rfc") {
        " (the key and a salt of 32 bits)"
    } else if name.contains("sha") || name.contains("md5") {
        " (RFC 4868 section 2.1.1 fixes the length; the kernel accepts others)"
    } else {
        ""
    }
}

/// Decodes a key: hexadecimal after `0x`, otherwise the characters themselves.
fn key_bytes(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let Some(digits) = text.strip_prefix("0x").filter(|digits| !digits.is_empty()) else {
        return Some(Zeroizing::new(text.as_bytes().to_vec()));
    };
    // An odd number of digits means a leading zero, as in iproute2.
    let (first, pairs) = digits.as_bytes().split_at_checked(digits.len() % 2)?;
    let mut key = Zeroizing::new(Vec::with_capacity(digits.len()));
    for digit in first {
        key.push(nibble(*digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        let [high, low] = pair else { return None };
        key.push(nibble(*high)? << 4 | nibble(*low)?);
    }
    Some(key)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Combines the algorithms into a transform. The error names the missing or superfluous one.
pub(super) fn transform(
    protocol: Protocol,
    cipher: Option<Keyed<CipherAlg>>,
    mac: Option<Keyed<MacAlg>>,
    combined: Option<Keyed<Combined>>,
    cursor: &Cursor<'_>,
) -> Result<Transform, LineProblem> {
    let none = || SecretBytes::new(&[]);
    let text = match (protocol, cipher, mac, combined) {
        (
            Protocol::Esp,
            Some(Keyed { alg: cipher, key: encr }),
            Some(Keyed { alg: mac, key: integ }),
            None,
        ) => {
            return Ok(Transform::Esp { suite: EspSuite::Separate(cipher, mac), encr, integ });
        }
        (Protocol::Esp, None, None, Some(Keyed { alg: Combined::Aead(aead), key: encr })) => {
            return Ok(Transform::Esp { suite: EspSuite::Combined(aead), encr, integ: none() });
        }
        (Protocol::Esp, None, None, Some(Keyed { alg: Combined::ImplicitIv(alg), key: encr })) => {
            return Ok(Transform::Esp { suite: EspSuite::ImplicitIv(alg), encr, integ: none() });
        }
        (Protocol::Esp, None, None, Some(Keyed { alg: Combined::Gmac(mac), key: integ })) => {
            return Ok(Transform::Esp {
                suite: EspSuite::Separate(CipherAlg::Null, mac),
                encr: none(),
                integ,
            });
        }
        (Protocol::Ah, None, Some(Keyed { alg: mac, key: integ }), None)
        | (Protocol::Ah, None, None, Some(Keyed { alg: Combined::Gmac(mac), key: integ })) => {
            return Ok(Transform::Ah { suite: AhSuite(mac), integ });
        }
        (Protocol::Esp, Some(_), None, None) => {
            "encryption without integrity is refused (RFC 8221 section 4): `auth` was expected beside \
             `enc`, or `aead`"
        }
        (Protocol::Esp, None, Some(_), None) => {
            "`enc` was expected beside `auth`; enc 'ecb(cipher_null)' '' means no encryption"
        }
        (Protocol::Esp, None, None, None) => {
            "the state has no algorithms: `aead`, or `enc` and `auth`, was expected"
        }
        (Protocol::Esp, _, _, Some(_)) => {
            "`aead` both encrypts and authenticates: no `enc` and no `auth` was expected beside it"
        }
        (Protocol::Ah, ..) => {
            "an AH state has one MAC: a single `auth`, `auth-trunc` or aead 'rfc4543(gcm(aes))' was expected"
        }
    };
    Err(cursor.problem(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_hex_and_as_text() {
        let key = |text: &str| key_bytes(text).map(|key| key.to_vec());
        assert_eq!(key("0x0aF0"), Some(vec![0x0A, 0xF0]));
        assert_eq!(key("0x123"), Some(vec![0x01, 0x23]));
        assert_eq!(key("abc"), Some(b"abc".to_vec()));
        assert_eq!(key("0x"), Some(b"0x".to_vec()));
        assert_eq!(key(""), Some(vec![]));
        assert_eq!(key("0xg1"), None);
        assert_eq!(key("0x1é2"), None);
    }
}
