//! Writes proposals and negotiated algorithms in the notation of `swanctl.conf`.
//!
//! The text of a configured proposal parses to the same proposal. Algorithms of a peer that this
//! implementation does not know are written with their IANA names or numbers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, PrfAlg};
use casemate_ike::diagnosis::Proposal;
use casemate_ike::{Algorithm, ChildSuite, IkeSuite};
use casemate_wire::ike::{EncrId, IntegId, PrfId, ProtocolId, SequenceNumbers, TransformType};

/// Writes a proposal, such as `aes128gcm16-prfsha256-x25519`. PRFs that follow from the integrity algorithms,
/// and 32-bit sequence numbers without an alternative, are omitted.
pub fn proposal(proposal: &Proposal) -> String {
    let of_kind = |kind| proposal.of_kind(kind).collect::<Vec<Algorithm>>();
    let (integrity, prfs) = (of_kind(TransformType::INTEG), of_kind(TransformType::PRF));
    let implied: Option<Vec<u16>> = integrity.iter().map(|alg| implied_prf(alg.id)).collect();
    let named: Vec<u16> = prfs.iter().map(|alg| alg.id).collect();
    let omits_prf = implied.is_some_and(|implied| !implied.is_empty() && implied == named);
    let omits_esn = of_kind(TransformType::ESN).iter().all(|alg| alg.id == SequenceNumbers::PLAIN.0);
    let is_shown = |alg: &&Algorithm| match alg.kind {
        TransformType::PRF => !omits_prf,
        TransformType::ESN => !omits_esn,
        // NONE, which a combined-mode cipher may have.
        TransformType::INTEG => alg.id != IntegId::NONE.0,
        _ => true,
    };
    let mut shown: Vec<&Algorithm> = proposal.algorithms.iter().filter(is_shown).collect();
    // The order of a configuration file. The sort is stable, so the order of preference stays.
    shown.sort_by_key(|alg| match alg.kind {
        TransformType::ENCR => 0,
        TransformType::INTEG => 1,
        TransformType::PRF => 2,
        TransformType::KE => 3,
        TransformType::ESN => 5,
        _ => 4,
    });
    let words: Vec<String> = shown.into_iter().map(|alg| algorithm(*alg)).collect();
    words.join("-")
}

/// Writes several proposals as a list, with the protocol in front of those for AH.
pub fn proposals(list: &[Proposal]) -> String {
    let texts: Vec<String> = list.iter().map(prefixed).collect();
    texts.join(", ")
}

fn prefixed(one: &Proposal) -> String {
    match one.protocol {
        ProtocolId::AH => format!("AH {}", proposal(one)),
        _ => proposal(one),
    }
}

/// Writes the algorithms of an IKE SA.
pub fn ike_suite(suite: &IkeSuite) -> String {
    proposal(&Proposal::from(suite))
}

/// Writes the methods of an IKE SA's key exchanges, such as `x25519-ke1_mlkem768`.
pub fn key_exchanges(suite: &IkeSuite) -> String {
    let is_kex = |alg: &&Algorithm| alg.kind == TransformType::KE || is_additional(alg.kind);
    let words: Vec<String> =
        Proposal::from(suite).algorithms.iter().filter(is_kex).map(|alg| algorithm(*alg)).collect();
    words.join("-")
}

/// Whether a transform type negotiates an additional key exchange (RFC 9370 section 2.2.1).
pub fn is_additional(kind: TransformType) -> bool {
    (TransformType::ADDKE1.0..=TransformType::ADDKE7.0).contains(&kind.0)
}

/// Writes the algorithms of a Child SA, with the protocol in front of AH.
pub fn child_suite(suite: &ChildSuite) -> String {
    prefixed(&Proposal::from(suite))
}

/// Name of a transform type in a sentence.
pub fn kind(kind: TransformType) -> &'static str {
    match kind {
        TransformType::ENCR => "encryption",
        TransformType::PRF => "pseudorandom function (PRF)",
        TransformType::INTEG => "integrity",
        TransformType::KE => "key exchange (Diffie-Hellman group)",
        TransformType::ESN => "extended sequence numbers (esn, noesn)",
        _ => "additional key exchange",
    }
}

/// Writes one algorithm.
pub fn algorithm(alg: Algorithm) -> String {
    let known = match alg.kind {
        TransformType::ENCR => encryption(EncrId(alg.id), alg.key_bits),
        TransformType::INTEG => integrity(IntegId(alg.id)).map(String::from),
        TransformType::PRF => prf(PrfId(alg.id)).map(String::from),
        TransformType::ESN => sequence_numbers(SequenceNumbers(alg.id)).map(String::from),
        TransformType::KE => key_exchange(alg.id).map(String::from),
        kind if is_additional(kind) => {
            let number = kind.0.saturating_sub(TransformType::ADDKE1.0).saturating_add(1);
            key_exchange(alg.id).map(|method| format!("ke{number}_{method}"))
        }
        _ => None,
    };
    known.unwrap_or_else(|| unknown(alg))
}

/// IANA name or number of an algorithm without a keyword.
fn unknown(Algorithm { kind, id, key_bits }: Algorithm) -> String {
    let name = kind.id_name(id).map_or_else(|| format!("{}({id})", self::kind(kind)), String::from);
    match key_bits {
        Some(bits) => format!("{name}_{bits}"),
        None => name,
    }
}

fn encryption(id: EncrId, bits: Option<u16>) -> Option<String> {
    let aes = |mode: &str| bits.map(|bits| format!("aes{bits}{mode}"));
    match id {
        EncrId::AES_CBC => aes(""),
        EncrId::AES_CTR => aes("ctr"),
        EncrId::AES_CCM_8 => aes("ccm8"),
        EncrId::AES_CCM_12 => aes("ccm12"),
        EncrId::AES_CCM_16 => aes("ccm16"),
        EncrId::AES_GCM_8 => aes("gcm8"),
        EncrId::AES_GCM_12 => aes("gcm12"),
        EncrId::AES_GCM_16 => aes("gcm16"),
        EncrId::AES_CCM_8_IIV => aes("ccm8iiv"),
        EncrId::AES_GCM_16_IIV => aes("gcm16iiv"),
        EncrId::NULL_AUTH_AES_GMAC => aes("gmac"),
        EncrId::CAMELLIA_CBC => bits.map(|bits| format!("camellia{bits}")),
        EncrId::CHACHA20_POLY1305 => Some("chacha20poly1305".into()),
        EncrId::CHACHA20_POLY1305_IIV => Some("chacha20poly1305iiv".into()),
        EncrId::NULL => Some("null".into()),
        EncrId::DES => Some("des".into()),
        EncrId::TRIPLE_DES => Some("3des".into()),
        _ => None,
    }
}

const fn integrity(id: IntegId) -> Option<&'static str> {
    Some(match id {
        IntegId::HMAC_MD5_96 => "md5",
        IntegId::HMAC_SHA1_96 => "sha1",
        IntegId::HMAC_SHA1_160 => "sha1_160",
        IntegId::HMAC_SHA2_256_128 => "sha256",
        IntegId::HMAC_SHA2_384_192 => "sha384",
        IntegId::HMAC_SHA2_512_256 => "sha512",
        IntegId::AES_XCBC_96 => "aesxcbc",
        IntegId::AES_CMAC_96 => "aescmac",
        IntegId::AES_128_GMAC => "aes128gmac",
        IntegId::AES_192_GMAC => "aes192gmac",
        IntegId::AES_256_GMAC => "aes256gmac",
        _ => return None,
    })
}

fn prf(id: PrfId) -> Option<&'static str> {
    match id {
        PrfId::HMAC_MD5 => Some("prfmd5"),
        _ => PrfAlg::from_id(id.0).map(PrfAlg::keyword),
    }
}

/// The PRF that a proposal without PRFs gets from an integrity algorithm.
const fn implied_prf(integrity: u16) -> Option<u16> {
    Some(match IntegId(integrity) {
        IntegId::HMAC_SHA1_96 | IntegId::HMAC_SHA1_160 => PrfId::HMAC_SHA1.0,
        IntegId::HMAC_SHA2_256_128 => PrfId::HMAC_SHA2_256.0,
        IntegId::HMAC_SHA2_384_192 => PrfId::HMAC_SHA2_384.0,
        IntegId::HMAC_SHA2_512_256 => PrfId::HMAC_SHA2_512.0,
        IntegId::AES_XCBC_96 => PrfId::AES128_XCBC.0,
        IntegId::AES_CMAC_96 => PrfId::AES128_CMAC.0,
        _ => return None,
    })
}

const fn sequence_numbers(id: SequenceNumbers) -> Option<&'static str> {
    match id {
        SequenceNumbers::PLAIN => Some("noesn"),
        SequenceNumbers::EXTENDED => Some("esn"),
        _ => None,
    }
}

/// Keyword of a key exchange method, also of those that are not implemented here (IANA registry "Key
/// Exchange Method Transform IDs").
fn key_exchange(id: u16) -> Option<&'static str> {
    Some(match id {
        0 => "none",
        1 => "modp768",
        2 => "modp1024",
        22 => "modp1024s160",
        23 => "modp2048s224",
        24 => "modp2048s256",
        25 => "ecp192",
        26 => "ecp224",
        27 => "ecp224bp",
        28 => "ecp256bp",
        29 => "ecp384bp",
        30 => "ecp512bp",
        35 => "mlkem512",
        36 => "mlkem768",
        37 => "mlkem1024",
        _ => match KexMethod::from_id(id)? {
            KexMethod::X25519 => "x25519",
            KexMethod::X448 => "x448",
            method => method.keyword(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{parse_ah, parse_esp, parse_ike};

    #[test]
    fn configured_proposals_parse_to_themselves() {
        for text in [
            "aes128gcm16-prfsha256-x25519",
            "aes128-aes256-sha256-sha512-modp2048-ecp384",
            "aes256-sha384-prfsha256-x25519",
            "aes128gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha512-x25519-ecp256-modp3072",
            "3des-sha1-modp1536",
            "aes128ctr-aesxcbc-x25519",
        ] {
            let parsed = parse_ike(text).unwrap().remove(0);
            assert_eq!(proposal(&Proposal::from(&parsed)), text);
            assert_eq!(parse_ike(&proposal(&Proposal::from(&parsed))).unwrap(), [parsed]);
        }
        for text in [
            "aes128gcm16",
            "aes256gcm16-x25519-esn",
            "aes128-sha256-esn-noesn",
            "aes128-sha256-modp2048-noesn-esn",
            "aes128gmac",
            "aes128gcm16iiv-aes128gcm16",
            "chacha20poly1305iiv",
            "aes192ccm12",
            "null-sha256",
        ] {
            let parsed = parse_esp(text).unwrap().remove(0);
            assert_eq!(proposal(&Proposal::of_child(&parsed, true)), text);
        }
        for text in ["sha256", "aes128gmac", "sha512-x25519-esn"] {
            let parsed = parse_ah(text).unwrap().remove(0);
            assert_eq!(proposals(&[Proposal::of_child(&parsed, true)]), format!("AH {text}"));
        }
        // Each default proposal is written in words that parse to it, too.
        for parsed in parse_ike("default").unwrap() {
            assert_eq!(parse_ike(&proposal(&Proposal::from(&parsed))).unwrap(), [parsed]);
        }
    }

    #[test]
    fn algorithms_without_a_keyword_have_their_registered_name_or_number() {
        let text = |kind, id, key_bits| algorithm(Algorithm { kind, id, key_bits });
        assert_eq!(text(TransformType::KE, 2, None), "modp1024");
        assert_eq!(text(TransformType::ADDKE1, 36, None), "ke1_mlkem768");
        assert_eq!(text(TransformType::ENCR, 24, Some(256)), "ENCR_CAMELLIA_CTR_256");
        assert_eq!(text(TransformType::ENCR, 1_024, None), "encryption(1024)");
        assert_eq!(text(TransformType::ENCR, EncrId::AES_CBC.0, None), "ENCR_AES_CBC", "no key length");
        assert_eq!(text(TransformType::ESN, 7, None).matches("(7)").count(), 1);
    }
}
