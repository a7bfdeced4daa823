//! The words of a proposal: strongSwan's names of algorithms.

use super::Read;
use alloc::format;
use alloc::string::String;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacKind, PrfAlg};

/// What one word of a proposal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// A combined-mode cipher.
    Aead(AeadAlg),
    /// AES-GMAC, which encrypts nothing in ESP, and is a MAC in AH.
    Gmac(AesBits),
    /// A cipher.
    Cipher(CipherAlg),
    /// A MAC.
    Mac(MacKind),
    /// A pseudorandom function.
    Prf(PrfAlg),
    /// A key exchange method.
    Kex(KexMethod),
    /// No key exchange.
    NoKex,
    /// Sequence numbers of 64 bits.
    Esn,
    /// Sequence numbers of 32 bits.
    NoEsn,
}

/// Reads one word.
pub(crate) fn word(text: &str) -> Read<Word> {
    if let Some(word) = fixed(text).or_else(|| aes(text)) {
        return Ok(word);
    }
    if let Some(kex) = KexMethod::ALL.into_iter().find(|kex| kex.keyword() == text) {
        // No provider has Curve448.
        return if kex == KexMethod::X448 { Err(missing(text)) } else { Ok(Word::Kex(kex)) };
    }
    if let Some(prf) = PrfAlg::ALL.into_iter().find(|prf| prf.keyword() == text) {
        return Ok(Word::Prf(prf));
    }
    if is_known_elsewhere(text) {
        return Err(missing(text));
    }
    Err(format!(
        "`{text}` names no algorithm: words such as aes256gcm16, aes128, sha256, prfsha256 or x25519 were expected"
    ))
}

fn missing(text: &str) -> String {
    format!("`{text}` is not implemented: another algorithm was expected")
}

fn fixed(text: &str) -> Option<Word> {
    Some(match text {
        "chacha20poly1305" => Word::Aead(AeadAlg::ChaCha20Poly1305),
        "null" => Word::Cipher(CipherAlg::Null),
        "des" => Word::Cipher(CipherAlg::DesCbc),
        "3des" => Word::Cipher(CipherAlg::TripleDesCbc),
        "md5" => Word::Mac(MacKind::HmacMd5),
        "sha" | "sha1" => Word::Mac(MacKind::HmacSha1),
        "sha256" | "sha2_256" => Word::Mac(MacKind::HmacSha256),
        "sha384" | "sha2_384" => Word::Mac(MacKind::HmacSha384),
        "sha512" | "sha2_512" => Word::Mac(MacKind::HmacSha512),
        "aesxcbc" => Word::Mac(MacKind::AesXcbc),
        "aescmac" => Word::Mac(MacKind::AesCmac),
        "x25519" => Word::Kex(KexMethod::X25519),
        "none" | "modpnone" => Word::NoKex,
        "esn" => Word::Esn,
        "noesn" => Word::NoEsn,
        _ => return None,
    })
}

/// `aes`, a key length, and a mode, where an ICV may be counted in bytes or in bits.
fn aes(text: &str) -> Option<Word> {
    let rest = text.strip_prefix("aes")?;
    let bits = |bits| rest.strip_prefix(bits);
    let (bits, mode) = match (bits("128"), bits("192"), bits("256")) {
        (Some(mode), _, _) => (AesBits::B128, mode),
        (_, Some(mode), _) => (AesBits::B192, mode),
        (_, _, Some(mode)) => (AesBits::B256, mode),
        _ if rest.is_empty() => (AesBits::B128, rest),
        _ => return None,
    };
    if let Some(icv) = mode.strip_prefix("gcm") {
        return AeadAlg::aes_gcm(bits, icv_len(icv)?).ok().map(Word::Aead);
    }
    if let Some(icv) = mode.strip_prefix("ccm") {
        return AeadAlg::aes_ccm(bits, icv_len(icv)?).ok().map(Word::Aead);
    }
    match mode {
        "" => Some(Word::Cipher(CipherAlg::AesCbc(bits))),
        "ctr" => Some(Word::Cipher(CipherAlg::AesCtr(bits))),
        "gmac" => Some(Word::Gmac(bits)),
        _ => None,
    }
}

/// Without a number an ICV has its full length.
fn icv_len(text: &str) -> Option<usize> {
    match text {
        "8" | "64" => Some(8),
        "12" | "96" => Some(12),
        "16" | "128" | "" => Some(16),
        _ => None,
    }
}

/// Words that strongSwan knows, and whose algorithms do not exist here.
fn is_known_elsewhere(text: &str) -> bool {
    const FRONTS: [&str; 10] =
        ["camellia", "blowfish", "cast128", "serpent", "twofish", "modp", "ecp", "mlkem", "ke", "ntru"];
    const WHOLE: [&str; 14] = [
        "x448",
        "chacha20poly1305compat",
        "prfmd5",
        "prfcamellia128",
        "camelliaxcbc",
        "md5_128",
        "sha1_160",
        "sha256_96",
        "sha2_256_96",
        "newhope128",
        "curve448",
        "idea",
        "rc5",
        "prfkeyedsha1",
    ];
    WHOLE.contains(&text) || FRONTS.iter().any(|front| text.starts_with(front))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_strongswan() {
        let gcm = |bits, icv| Ok(Word::Aead(AeadAlg::aes_gcm(bits, icv).unwrap()));
        assert_eq!(word("aes"), Ok(Word::Cipher(CipherAlg::AesCbc(AesBits::B128))));
        assert_eq!(word("aes192ctr"), Ok(Word::Cipher(CipherAlg::AesCtr(AesBits::B192))));
        for (text, icv) in [("8", 8), ("64", 8), ("12", 12), ("96", 12), ("16", 16), ("128", 16), ("", 16)] {
            assert_eq!(word(&format!("aes256gcm{text}")), gcm(AesBits::B256, icv));
            let ccm = AeadAlg::aes_ccm(AesBits::B128, icv).unwrap();
            assert_eq!(word(&format!("aes128ccm{text}")), Ok(Word::Aead(ccm)));
        }
        assert_eq!(word("aes192gmac"), Ok(Word::Gmac(AesBits::B192)));
        assert_eq!(word("curve25519"), word("x25519"));
        assert_eq!(word("modp3072"), Ok(Word::Kex(KexMethod::Modp3072)));
        assert_eq!(word("prfaescmac"), Ok(Word::Prf(PrfAlg::AesCmac)));
        assert_eq!(word("sha2_512"), Ok(Word::Mac(MacKind::HmacSha512)));
    }

    #[test]
    fn what_is_missing_is_told_from_what_is_unknown() {
        for text in
            ["modp1024", "curve448", "x448", "camellia256", "prfmd5", "ecp256bp", "sha256_96", "mlkem768"]
        {
            assert!(word(text).unwrap_err().contains("not implemented"), "{text}");
        }
        for text in ["", "aes129", "aes128gcm10", "AES128", "aes256xts", "sha255", "gcm"] {
            assert!(word(text).unwrap_err().contains("names no algorithm"), "{text}");
        }
    }
}
