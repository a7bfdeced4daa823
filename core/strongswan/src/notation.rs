//! Writes algorithms and proposals with strongSwan's keywords: what [`proposal`](crate::proposal) parses.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::{AeadAlg, CipherAlg, ImplicitIvAlg, KexMethod, MacKind, PrfAlg};
use casemate_ike::config::{
    ChildAlgorithms, ChildProposal, EsnPolicy, EspCombined, IkeEncryption, IkeProposal,
};

/// Keyword of a combined-mode cipher, such as `aes128gcm16`.
pub fn aead_keyword(alg: AeadAlg) -> String {
    match alg {
        AeadAlg::AesGcm { bits, icv } => format!("aes{}gcm{icv}", bits.bits()),
        AeadAlg::AesCcm { bits, icv } => format!("aes{}ccm{icv}", bits.bits()),
        AeadAlg::ChaCha20Poly1305 => "chacha20poly1305".to_owned(),
    }
}

/// Keyword of a cipher with an implicit IV, such as `aes128gcm16iiv`.
pub fn implicit_iv_keyword(alg: ImplicitIvAlg) -> String {
    format!("{}iiv", aead_keyword(alg.aead()))
}

/// Keyword of a cipher, such as `aes128`.
pub fn cipher_keyword(alg: CipherAlg) -> String {
    match alg {
        CipherAlg::Null => "null".to_owned(),
        CipherAlg::AesCbc(bits) => format!("aes{}", bits.bits()),
        CipherAlg::AesCtr(bits) => format!("aes{}ctr", bits.bits()),
        CipherAlg::DesCbc => "des".to_owned(),
        CipherAlg::TripleDesCbc => "3des".to_owned(),
    }
}

/// Keyword of a MAC with its standard length, such as `sha256`.
pub fn mac_keyword(kind: MacKind) -> String {
    let fixed = match kind {
        MacKind::HmacMd5 => "md5",
        MacKind::HmacSha1 => "sha1",
        MacKind::HmacSha256 => "sha256",
        MacKind::HmacSha384 => "sha384",
        MacKind::HmacSha512 => "sha512",
        MacKind::AesXcbc => "aesxcbc",
        MacKind::AesCmac => "aescmac",
        MacKind::AesGmac(bits) => return format!("aes{}gmac", bits.bits()),
    };
    fixed.to_owned()
}

/// A proposal for an IKE SA, such as `aes128gcm16-prfsha256-x25519`.
pub fn ike_proposal(proposal: &IkeProposal) -> String {
    let mut words: Vec<String> = match &proposal.encryption {
        IkeEncryption::Combined(algs) => algs.iter().copied().map(aead_keyword).collect(),
        IkeEncryption::Separate(ciphers, macs) => {
            let macs = macs.iter().map(|mac| mac_keyword(mac.kind()));
            ciphers.iter().copied().map(cipher_keyword).chain(macs).collect()
        }
    };
    words.extend(proposal.prfs.iter().copied().map(PrfAlg::keyword).map(ToOwned::to_owned));
    words.extend(kex_keywords(&proposal.kex));
    words.join("-")
}

/// A proposal for a Child SA, such as `aes128gcm16-x25519-esn`.
pub fn child_proposal(proposal: &ChildProposal) -> String {
    let mut words: Vec<String> = match &proposal.algorithms {
        ChildAlgorithms::EspCombined(algs) => algs.iter().copied().map(combined_keyword).collect(),
        ChildAlgorithms::EspSeparate(ciphers, macs) => {
            let macs = macs.iter().map(|mac| mac_keyword(mac.kind()));
            ciphers.iter().copied().map(cipher_keyword).chain(macs).collect()
        }
        ChildAlgorithms::Ah(macs) => macs.iter().map(|mac| mac_keyword(mac.kind())).collect(),
    };
    words.extend(kex_keywords(&proposal.kex));
    words.extend(esn_keywords(proposal.esn).iter().copied().map(ToOwned::to_owned));
    words.join("-")
}

fn combined_keyword(alg: EspCombined) -> String {
    match alg {
        EspCombined::Aead(alg) => aead_keyword(alg),
        EspCombined::ImplicitIv(alg) => implicit_iv_keyword(alg),
        EspCombined::Gmac(bits) => mac_keyword(MacKind::AesGmac(bits)),
    }
}

fn kex_keywords(methods: &[KexMethod]) -> impl Iterator<Item = String> {
    methods.iter().copied().map(kex_keyword)
}

/// Keyword of a key exchange method, such as `ecp256`.
pub fn kex_keyword(method: KexMethod) -> String {
    match method {
        // The usual one of strongSwan's two keywords.
        KexMethod::X25519 => "x25519".to_owned(),
        method => method.keyword().to_owned(),
    }
}

const fn esn_keywords(policy: EsnPolicy) -> &'static [&'static str] {
    match policy {
        EsnPolicy::Disabled => &[],
        EsnPolicy::Required => &["esn"],
        EsnPolicy::Preferred => &["esn", "noesn"],
        EsnPolicy::Allowed => &["noesn", "esn"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{parse_ah, parse_esp, parse_ike};

    #[test]
    fn written_proposals_are_parsed_to_the_same() {
        for text in ["default", "aes128gcm16-aes256ccm8-chacha20poly1305-prfsha384-x25519-ecp384"] {
            for proposal in parse_ike(text).unwrap() {
                let written = ike_proposal(&proposal);
                assert_eq!(parse_ike(&written).unwrap(), [proposal], "{written}");
            }
        }
        let separate = "aes256-aes128ctr-3des-sha256-sha1-md5-aesxcbc-aescmac-prfsha1-modp2048";
        assert_eq!(ike_proposal(&parse_ike(separate).unwrap()[0]), separate);
        for text in [
            "default",
            "aes128gcm16iiv-aes256ccm8iiv-chacha20poly1305iiv-aes192gmac-esn",
            "null-des-aes192-sha384-sha512-x25519-esn-noesn",
            "aes128gcm12-noesn-esn",
        ] {
            for proposal in parse_esp(text).unwrap() {
                let written = child_proposal(&proposal);
                assert!(text == "default" || written == text, "{written}");
                assert_eq!(parse_esp(&written).unwrap(), [proposal], "{written}");
            }
        }
        for proposal in [parse_ah("default").unwrap(), parse_ah("aes256gmac-md5-modp2048").unwrap()].concat()
        {
            let written = child_proposal(&proposal);
            assert_eq!(parse_ah(&written).unwrap(), [proposal], "{written}");
        }
    }
}
