//! The suites of the product, and which of them are worth measuring.

use crate::rules::{Admitted, Filter, Keying, Refusal};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};

/// Every ESP suite that the product has and IKEv2 has numbers for.
pub fn all() -> Vec<EspSuite> {
    let aes = || AesBits::ALL.into_iter();
    let icvs = || [8, 12, 16].into_iter();
    let gcm = aes().flat_map(|bits| icvs().map(move |icv| AeadAlg::AesGcm { bits, icv }));
    let ccm = aes().flat_map(|bits| icvs().map(move |icv| AeadAlg::AesCcm { bits, icv }));
    let combined = gcm.chain(ccm).chain([AeadAlg::ChaCha20Poly1305]).map(EspSuite::Combined);
    combined.chain(separate()).collect()
}

fn separate() -> impl Iterator<Item = EspSuite> {
    let aes = AesBits::ALL.into_iter().flat_map(|bits| [CipherAlg::AesCbc(bits), CipherAlg::AesCtr(bits)]);
    let ciphers = aes.chain([CipherAlg::Null, CipherAlg::DesCbc, CipherAlg::TripleDesCbc]);
    ciphers.flat_map(|cipher| macs().map(move |mac| EspSuite::Separate(cipher, mac)))
}

fn macs() -> impl Iterator<Item = MacAlg> {
    use MacKind::{AesCmac, AesGmac, AesXcbc, HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    let kinds = [HmacMd5, HmacSha1, HmacSha256, HmacSha384, HmacSha512, AesXcbc, AesCmac];
    kinds.into_iter().chain(AesBits::ALL.into_iter().map(AesGmac)).map(MacAlg::standard)
}

/// A suite that may be advised.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The suite.
    pub suite: EspSuite,
    /// What the rules say of it.
    pub admitted: Admitted,
}

/// What became of every suite.
#[derive(Debug, Clone, Default)]
pub struct Sorted {
    /// May be advised, and is measured.
    pub candidates: Vec<Candidate>,
    /// May be advised, and never will be: another one is at least as good in everything.
    pub passed_over: Vec<(EspSuite, &'static str)>,
    /// May not be advised.
    pub refused: Vec<(EspSuite, Refusal)>,
}

/// Sorts all suites.
pub fn sort(filter: &Filter, keying: Keying) -> Sorted {
    let mut sorted = Sorted::default();
    for suite in all() {
        match (filter.esp(suite, keying), dominated(suite)) {
            (Err(refusal), _) => sorted.refused.push((suite, refusal)),
            (Ok(_), Some(why)) => sorted.passed_over.push((suite, why)),
            (Ok(admitted), None) => sorted.candidates.push(Candidate { suite, admitted }),
        }
    }
    sorted
}

/// What kind of suite it is: those of one kind differ in lengths.
pub const fn family(suite: EspSuite) -> &'static str {
    match suite {
        EspSuite::Combined(AeadAlg::AesGcm { .. }) => "AES-GCM",
        EspSuite::Combined(AeadAlg::AesCcm { .. }) => "AES-CCM",
        EspSuite::Combined(AeadAlg::ChaCha20Poly1305) => "ChaCha20-Poly1305",
        EspSuite::Separate(CipherAlg::Null, _) => "NULL",
        EspSuite::Separate(CipherAlg::AesCbc(_), _) => "AES-CBC",
        EspSuite::Separate(CipherAlg::AesCtr(_), _) => "AES-CTR",
        EspSuite::Separate(CipherAlg::DesCbc | CipherAlg::TripleDesCbc, _) => "DES",
    }
}

/// Why a suite is never the best, whatever is measured.
fn dominated(suite: EspSuite) -> Option<&'static str> {
    const MIDDLE_KEY: &str = "a key of 192 bits: MAY, slower than one of 128 and weaker than one of 256";
    const MIDDLE_ICV: &str = "an ICV of 12 bytes: MAY, longer than 8 and weaker than 16";
    match suite {
        EspSuite::Combined(
            AeadAlg::AesGcm { bits: AesBits::B192, .. } | AeadAlg::AesCcm { bits: AesBits::B192, .. },
        )
        | EspSuite::Separate(CipherAlg::AesCbc(AesBits::B192) | CipherAlg::AesCtr(AesBits::B192), _) => {
            Some(MIDDLE_KEY)
        }
        EspSuite::Combined(AeadAlg::AesGcm { icv: 12, .. } | AeadAlg::AesCcm { icv: 12, .. }) => {
            Some(MIDDLE_ICV)
        }
        EspSuite::Separate(_, mac) if mac.kind() == MacKind::AesGmac(AesBits::B192) => Some(MIDDLE_KEY),
        _ => None,
    }
}

/// The suite as a proposal of strongSwan spells it, e.g. `aes128gcm16` or `aes256-sha256`.
pub fn spelling(suite: EspSuite) -> String {
    match suite {
        EspSuite::Combined(alg) => aead_spelling(alg),
        EspSuite::Separate(CipherAlg::Null, mac) if mac.takes_nonce() => mac_spelling(mac).into(),
        EspSuite::Separate(cipher, mac) => pair_spelling(cipher, mac),
    }
}

/// A combined-mode cipher, as in [`spelling`].
pub fn aead_spelling(alg: AeadAlg) -> String {
    match alg {
        AeadAlg::AesGcm { bits, icv } => format!("aes{}gcm{icv}", bits.bits()),
        AeadAlg::AesCcm { bits, icv } => format!("aes{}ccm{icv}", bits.bits()),
        AeadAlg::ChaCha20Poly1305 => "chacha20poly1305".into(),
    }
}

/// A cipher and a MAC, as in [`spelling`].
pub fn pair_spelling(cipher: CipherAlg, mac: MacAlg) -> String {
    let cipher = match cipher {
        CipherAlg::Null => "null".into(),
        CipherAlg::AesCbc(bits) => format!("aes{}", bits.bits()),
        CipherAlg::AesCtr(bits) => format!("aes{}ctr", bits.bits()),
        CipherAlg::DesCbc => "des".into(),
        CipherAlg::TripleDesCbc => "3des".into(),
    };
    format!("{cipher}-{}", mac_spelling(mac))
}

fn mac_spelling(mac: MacAlg) -> &'static str {
    match mac.kind() {
        MacKind::HmacMd5 => "md5",
        MacKind::HmacSha1 => "sha1",
        MacKind::HmacSha256 => "sha256",
        MacKind::HmacSha384 => "sha384",
        MacKind::HmacSha512 => "sha512",
        MacKind::AesXcbc => "aesxcbc",
        MacKind::AesCmac => "aescmac",
        MacKind::AesGmac(AesBits::B128) => "aes128gmac",
        MacKind::AesGmac(AesBits::B192) => "aes192gmac",
        MacKind::AesGmac(AesBits::B256) => "aes256gmac",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_spelled_as_the_products_own_reader_reads_it() {
        let all = all();
        assert_eq!(all.len(), 19 + 9 * 10);
        for suite in all {
            // A cipher with GMAC has no spelling in strongSwan either; NULL with GMAC is one word.
            let with_gmac = matches!(suite, EspSuite::Separate(cipher, mac) if cipher != CipherAlg::Null && mac.takes_nonce());
            let read = casemate_calls::suite::suite(&spelling(suite));
            assert!(with_gmac || read == Ok(suite), "{suite}: {read:?}");
        }
    }

    #[test]
    fn every_suite_is_sorted_once_and_what_is_left_is_worth_measuring() {
        let filter = Filter::new(None, true).unwrap();
        let sorted = sort(&filter, Keying::Negotiated);
        let (candidates, others) = (sorted.candidates.len(), sorted.passed_over.len() + sorted.refused.len());
        assert_eq!(candidates + others, all().len());
        // GCM and CCM with two keys and two ICVs; ChaCha20; CBC and CTR with two keys and six MACs; NULL with six, and GMAC
        // with two keys.
        assert_eq!(candidates, 8 + 1 + 24 + 8);
    }
}
