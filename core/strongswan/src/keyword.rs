//! Keywords of a proposal: strongSwan's names of algorithms.

use super::Parsed;
use alloc::format;
use alloc::string::String;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, ImplicitIvAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::KexRound;

/// Meaning of one keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    /// A combined-mode cipher.
    Aead(AeadAlg),
    /// A combined-mode cipher with an implicit IV (RFC 8750). strongSwan has no such keyword.
    ImplicitIv(ImplicitIvAlg),
    /// AES-GMAC: a combined-mode algorithm without encryption in ESP, and a MAC in AH.
    Gmac(AesBits),
    /// A cipher.
    Cipher(CipherAlg),
    /// A MAC.
    Mac(MacAlg),
    /// A pseudorandom function.
    Prf(PrfAlg),
    /// A key exchange method.
    Kex(KexMethod),
    /// A method of an additional key exchange (RFC 9370); `None` if the peer may leave it out.
    Additional(KexRound, Option<KexMethod>),
    /// No key exchange.
    NoKex,
    /// 64-bit sequence numbers.
    Esn,
    /// 32-bit sequence numbers.
    NoEsn,
}

/// Parses one keyword.
pub(crate) fn parse_keyword(text: &str) -> Parsed<Keyword> {
    if let Some(word) = fixed_keyword(text).or_else(|| aes_keyword(text)) {
        return Ok(word);
    }
    if let Some(cipher) = camellia_keyword(text) {
        return Ok(Keyword::Cipher(cipher));
    }
    if let Some(cipher) = text.strip_suffix("iiv") {
        return implicit_iv(text, cipher);
    }
    if let Some((round, method)) = text.strip_prefix("ke").and_then(|text| text.split_once('_')) {
        return additional(text, round, method);
    }
    if let Some(kex) = KexMethod::ALL.into_iter().find(|kex| kex.keyword() == text) {
        return match kex {
            // No provider implements Curve448.
            KexMethod::X448 => Err(not_implemented(text)),
            kem if kem.is_kem() && !cfg!(feature = "multiple-kex") => Err(not_implemented(text)),
            KexMethod::Modp1024 if !cfg!(feature = "legacy") => Err(format!(
                "`{text}` is only in builds with the feature `legacy`: modp2048, ecp256 or x25519 was \
                 expected"
            )),
            KexMethod::BrainpoolP256 | KexMethod::BrainpoolP384 if !cfg!(feature = "uncommon") => {
                Err(not_implemented(text))
            }
            kex => Ok(Keyword::Kex(kex)),
        };
    }
    if let Some(prf) = PrfAlg::ALL.into_iter().find(|prf| prf.keyword() == text) {
        return Ok(Keyword::Prf(prf));
    }
    if is_known_elsewhere(text) {
        return Err(not_implemented(text));
    }
    Err(format!(
        "`{text}` names no algorithm: \
         keywords such as aes256gcm16, aes128, sha256, prfsha256 or x25519 were expected"
    ))
}

/// `ke`, the number of an additional key exchange, and a method.
fn additional(text: &str, round: &str, method: &str) -> Parsed<Keyword> {
    if !cfg!(feature = "multiple-kex") {
        return Err(format!("`{text}` is only in builds with the feature `multiple-kex`"));
    }
    let round = round.parse().ok().and_then(KexRound::new);
    let round = round.ok_or_else(|| format!("`{text}`: ke1_ to ke7_ were expected before a method"))?;
    match parse_keyword(method)? {
        Keyword::Kex(method) => Ok(Keyword::Additional(round, Some(method))),
        Keyword::NoKex => Ok(Keyword::Additional(round, None)),
        _ => Err(format!("`{text}`: a key exchange method was expected, as in ke1_mlkem768")),
    }
}

/// The name of a combined-mode cipher with `iiv` at its end.
fn implicit_iv(text: &str, cipher: &str) -> Parsed<Keyword> {
    let aead = match fixed_keyword(cipher).or_else(|| aes_keyword(cipher)) {
        Some(Keyword::Aead(aead)) => Some(aead),
        _ => None,
    };
    let implicit = aead.and_then(ImplicitIvAlg::new).map(Keyword::ImplicitIv);
    implicit.ok_or_else(|| {
        format!(
            "`{text}` names no algorithm: with an implicit IV (RFC 8750), aes128gcm16iiv, aes128ccm8iiv (or \
             192 or 256) or chacha20poly1305iiv were expected"
        )
    })
}

fn not_implemented(text: &str) -> String {
    format!("`{text}` is not implemented: another algorithm was expected")
}

const fn mac(kind: MacKind) -> Keyword {
    Keyword::Mac(MacAlg::standard(kind))
}

fn fixed_keyword(text: &str) -> Option<Keyword> {
    Some(match text {
        "chacha20poly1305" => Keyword::Aead(AeadAlg::ChaCha20Poly1305),
        "null" => Keyword::Cipher(CipherAlg::Null),
        "des" => Keyword::Cipher(CipherAlg::DesCbc),
        "3des" => Keyword::Cipher(CipherAlg::TripleDesCbc),
        "md5" => mac(MacKind::HmacMd5),
        "sha" | "sha1" => mac(MacKind::HmacSha1),
        "sha1_160" => Keyword::Mac(MacAlg::untruncated(MacKind::HmacSha1)),
        "sha256" | "sha2_256" => mac(MacKind::HmacSha256),
        "sha384" | "sha2_384" => mac(MacKind::HmacSha384),
        "sha512" | "sha2_512" => mac(MacKind::HmacSha512),
        "aesxcbc" => mac(MacKind::AesXcbc),
        "aescmac" => mac(MacKind::AesCmac),
        "x25519" => Keyword::Kex(KexMethod::X25519),
        "none" | "modpnone" => Keyword::NoKex,
        "esn" => Keyword::Esn,
        "noesn" => Keyword::NoEsn,
        _ => return None,
    })
}

/// `aes`, a key length, and a mode. The ICV length is in bytes or in bits.
fn aes_keyword(text: &str) -> Option<Keyword> {
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
        return AeadAlg::aes_gcm(bits, icv_len(icv)?).ok().map(Keyword::Aead);
    }
    if let Some(icv) = mode.strip_prefix("ccm") {
        return AeadAlg::aes_ccm(bits, icv_len(icv)?).ok().map(Keyword::Aead);
    }
    match mode {
        "" => Some(Keyword::Cipher(CipherAlg::AesCbc(bits))),
        "ctr" => Some(Keyword::Cipher(CipherAlg::AesCtr(bits))),
        "gmac" => Some(Keyword::Gmac(bits)),
        _ => None,
    }
}

/// `camellia` and a key length.
fn camellia_keyword(text: &str) -> Option<CipherAlg> {
    let bits = match text.strip_prefix("camellia").filter(|_| cfg!(feature = "uncommon"))? {
        "" | "128" => AesBits::B128,
        "192" => AesBits::B192,
        "256" => AesBits::B256,
        _ => return None,
    };
    Some(CipherAlg::CamelliaCbc(bits))
}

/// ICV length in bytes. Without a number the ICV has its full length.
fn icv_len(text: &str) -> Option<usize> {
    match text {
        "8" | "64" => Some(8),
        "12" | "96" => Some(12),
        "16" | "128" | "" => Some(16),
        _ => None,
    }
}

/// Keywords of strongSwan whose algorithms are not implemented here.
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
    fn keywords_of_strongswan() {
        let gcm = |bits, icv| Ok(Keyword::Aead(AeadAlg::aes_gcm(bits, icv).unwrap()));
        assert_eq!(parse_keyword("aes"), Ok(Keyword::Cipher(CipherAlg::AesCbc(AesBits::B128))));
        assert_eq!(parse_keyword("aes192ctr"), Ok(Keyword::Cipher(CipherAlg::AesCtr(AesBits::B192))));
        for (text, icv) in [("8", 8), ("64", 8), ("12", 12), ("96", 12), ("16", 16), ("128", 16), ("", 16)] {
            assert_eq!(parse_keyword(&format!("aes256gcm{text}")), gcm(AesBits::B256, icv));
            let ccm = AeadAlg::aes_ccm(AesBits::B128, icv).unwrap();
            assert_eq!(parse_keyword(&format!("aes128ccm{text}")), Ok(Keyword::Aead(ccm)));
        }
        let implicit = |alg| Ok(Keyword::ImplicitIv(alg));
        assert_eq!(parse_keyword("aes128ccm8iiv"), implicit(ImplicitIvAlg::AesCcm8(AesBits::B128)));
        assert_eq!(parse_keyword("aes256gcmiiv"), implicit(ImplicitIvAlg::AesGcm16(AesBits::B256)));
        assert_eq!(parse_keyword("chacha20poly1305iiv"), implicit(ImplicitIvAlg::ChaCha20Poly1305));
        for text in ["aes128gcm8iiv", "aes128iiv", "aes128ccm16iiv", "iiv", "sha256iiv", "aes128gmaciiv"] {
            let why = parse_keyword(text).unwrap_err();
            assert!(why.contains("with an implicit IV (RFC 8750)"), "{text}: {why}");
        }
        assert_eq!(parse_keyword("aes192gmac"), Ok(Keyword::Gmac(AesBits::B192)));
        assert_eq!(parse_keyword("curve25519"), parse_keyword("x25519"));
        assert_eq!(parse_keyword("modp3072"), Ok(Keyword::Kex(KexMethod::Modp3072)));
        assert_eq!(parse_keyword("prfaescmac"), Ok(Keyword::Prf(PrfAlg::AesCmac)));
        assert_eq!(parse_keyword("sha2_512"), Ok(mac(MacKind::HmacSha512)));
        assert_eq!(
            parse_keyword("sha1_160"),
            Ok(Keyword::Mac(MacAlg::truncated(MacKind::HmacSha1, 20).unwrap()))
        );
    }

    #[test]
    fn keywords_of_uncommon_algorithms() {
        let camellia = Ok(Keyword::Cipher(CipherAlg::CamelliaCbc(AesBits::B256)));
        let brainpool = Ok(Keyword::Kex(KexMethod::BrainpoolP384));
        for (text, word) in [("camellia256", camellia), ("ecp384bp", brainpool)] {
            let parsed = parse_keyword(text);
            assert!(if cfg!(feature = "uncommon") { parsed == word } else { parsed.is_err() }, "{text}");
        }
    }

    #[test]
    fn keywords_of_ml_kem_and_additional_key_exchanges() {
        let round = |number| KexRound::new(number).unwrap();
        let words = [
            ("mlkem1024", Keyword::Kex(KexMethod::MlKem1024)),
            ("ke1_mlkem768", Keyword::Additional(round(1), Some(KexMethod::MlKem768))),
            ("ke7_x25519", Keyword::Additional(round(7), Some(KexMethod::X25519))),
            ("ke2_none", Keyword::Additional(round(2), None)),
        ];
        for (text, word) in words {
            let parsed = parse_keyword(text);
            assert!(
                if cfg!(feature = "multiple-kex") { parsed == Ok(word) } else { parsed.is_err() },
                "{text}"
            );
        }
        for text in ["ke0_mlkem768", "ke8_mlkem768", "ke1_aes128", "ke1_", "ke_mlkem768", "ke1_ke2_x25519"] {
            assert!(parse_keyword(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unimplemented_keywords_differ_from_unknown_ones() {
        for text in ["modp768", "curve448", "x448", "camellia256ctr", "prfmd5", "ecp512bp", "sha256_96"] {
            assert!(parse_keyword(text).unwrap_err().contains("not implemented"), "{text}");
        }
        for text in ["", "aes129", "aes128gcm10", "AES128", "aes256xts", "sha255", "gcm"] {
            assert!(parse_keyword(text).unwrap_err().contains("names no algorithm"), "{text}");
        }
    }
}
