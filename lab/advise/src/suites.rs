//! ESP suites of Casemate, and which of them are worth measuring.

use crate::goal::Goal;
use crate::rules::{Admitted, Filter, Keying, Refusal};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, MacAlg, MacKind};

/// Returns every ESP suite that Casemate supports and that has numbers in IKEv2.
pub fn all() -> Vec<EspSuite> {
    let aes = || AesBits::ALL.into_iter();
    let icvs = || [8, 12, 16].into_iter();
    let gcm = aes().flat_map(|bits| icvs().map(move |icv| AeadAlg::AesGcm { bits, icv }));
    let ccm = aes().flat_map(|bits| icvs().map(move |icv| AeadAlg::AesCcm { bits, icv }));
    let aeads = gcm.chain(ccm).chain([AeadAlg::ChaCha20Poly1305]);
    let implicit_iv = aeads.clone().filter_map(ImplicitIvAlg::new).map(EspSuite::ImplicitIv);
    aeads.map(EspSuite::Combined).chain(separate()).chain(implicit_iv).collect()
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

/// A suite that may be recommended.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// ESP suite.
    pub suite: EspSuite,
    /// Verdict of the rules.
    pub admitted: Admitted,
}

/// Classification of all suites.
#[derive(Debug, Clone, Default)]
pub struct ClassifiedSuites {
    /// Permitted suites that are measured.
    pub candidates: Vec<Candidate>,
    /// Permitted suites that another suite equals or exceeds in every respect.
    pub dominated: Vec<DominatedSuite>,
    /// Refused suites.
    pub refused: Vec<RefusedSuite>,
}

/// A suite that can never be the best one.
#[derive(Debug, Clone)]
pub struct DominatedSuite {
    /// ESP suite.
    pub suite: EspSuite,
    /// Reason.
    pub why: &'static str,
}

/// A suite that the rules refuse.
#[derive(Debug, Clone)]
pub struct RefusedSuite {
    /// ESP suite.
    pub suite: EspSuite,
    /// Reason and its source.
    pub refusal: Refusal,
}

/// Classifies all suites for a goal. Those with implicit IVs, which save bytes and nothing else, are left out
/// unless bytes count and the peer is Casemate.
pub fn classify(filter: &Filter, keying: Keying, goal: Goal, peer_is_casemate: bool) -> ClassifiedSuites {
    let mut sorted = ClassifiedSuites::default();
    let implicit_ivs = goal.is_exact() && peer_is_casemate;
    let is_considered = |suite: &EspSuite| implicit_ivs || !matches!(suite, EspSuite::ImplicitIv(_));
    for suite in all().into_iter().filter(is_considered) {
        let dominated = || {
            let short = why_short_icv_loses(suite, filter, keying).filter(|_| !goal.is_exact());
            why_dominated(suite).or(short)
        };
        match (filter.esp(suite, keying), dominated()) {
            (Err(refusal), _) => sorted.refused.push(RefusedSuite { suite, refusal }),
            (Ok(_), Some(why)) => sorted.dominated.push(DominatedSuite { suite, why }),
            (Ok(admitted), None) => sorted.candidates.push(Candidate { suite, admitted }),
        }
    }
    sorted
}

/// Family of a suite. Suites of one family differ in lengths only.
pub const fn family(suite: EspSuite) -> &'static str {
    match suite {
        EspSuite::Combined(alg) => aead_family(alg),
        EspSuite::ImplicitIv(alg) => aead_family(alg.aead()),
        EspSuite::Separate(CipherAlg::Null, _) => "NULL",
        EspSuite::Separate(CipherAlg::AesCbc(_), _) => "AES-CBC",
        EspSuite::Separate(CipherAlg::AesCtr(_), _) => "AES-CTR",
        EspSuite::Separate(CipherAlg::CamelliaCbc(_), _) => "Camellia-CBC",
        EspSuite::Separate(CipherAlg::DesCbc | CipherAlg::TripleDesCbc, _) => "DES",
    }
}

const fn aead_family(alg: AeadAlg) -> &'static str {
    match alg {
        AeadAlg::AesGcm { .. } => "AES-GCM",
        AeadAlg::AesCcm { .. } => "AES-CCM",
        AeadAlg::ChaCha20Poly1305 => "ChaCha20-Poly1305",
    }
}

/// Returns why a suite can never be the best one, or `None`.
fn why_dominated(suite: EspSuite) -> Option<&'static str> {
    const MIDDLE_KEY: &str = "192-bit key: MAY, slower than 128 bits and weaker than 256 bits";
    const MIDDLE_ICV: &str = "12-byte ICV: MAY, longer than 8 bytes and weaker than 16 bytes";
    match suite {
        EspSuite::Combined(
            AeadAlg::AesGcm { bits: AesBits::B192, .. } | AeadAlg::AesCcm { bits: AesBits::B192, .. },
        )
        | EspSuite::Separate(CipherAlg::AesCbc(AesBits::B192) | CipherAlg::AesCtr(AesBits::B192), _) => {
            Some(MIDDLE_KEY)
        }
        EspSuite::ImplicitIv(alg) => why_dominated(EspSuite::Combined(alg.aead())),
        EspSuite::Combined(AeadAlg::AesGcm { icv: 12, .. } | AeadAlg::AesCcm { icv: 12, .. }) => {
            Some(MIDDLE_ICV)
        }
        EspSuite::Separate(_, mac) if mac.kind() == MacKind::AesGmac(AesBits::B192) => Some(MIDDLE_KEY),
        _ => None,
    }
}

/// Returns why a suite with a short ICV loses where only time counts: the ICV of 16 bytes takes the same
/// work. A profile that ranks the short one higher keeps it.
fn why_short_icv_loses(suite: EspSuite, filter: &Filter, keying: Keying) -> Option<&'static str> {
    let long = match suite {
        EspSuite::Combined(AeadAlg::AesGcm { bits, icv: 8 }) => AeadAlg::AesGcm { bits, icv: 16 },
        EspSuite::Combined(AeadAlg::AesCcm { bits, icv: 8 }) => AeadAlg::AesCcm { bits, icv: 16 },
        _ => return None,
    };
    let (short, long) = (filter.esp(suite, keying).ok()?, filter.esp(EspSuite::Combined(long), keying).ok()?);
    (long.status >= short.status).then_some("8-byte ICV: the same work as for 16 bytes, and weaker")
}

/// Proposal keyword of strongSwan for a suite, e.g. `aes128gcm16` or `aes256-sha256`.
pub fn proposal_keyword(suite: EspSuite) -> String {
    match suite {
        EspSuite::Combined(alg) => aead_keyword(alg),
        EspSuite::ImplicitIv(alg) => format!("{}iiv", aead_keyword(alg.aead())),
        EspSuite::Separate(CipherAlg::Null, mac) if mac.takes_nonce() => mac_keyword(mac).into(),
        EspSuite::Separate(cipher, mac) => pair_keyword(cipher, mac),
    }
}

/// Proposal keyword of a combined-mode cipher.
pub fn aead_keyword(alg: AeadAlg) -> String {
    match alg {
        AeadAlg::AesGcm { bits, icv } => format!("aes{}gcm{icv}", bits.bits()),
        AeadAlg::AesCcm { bits, icv } => format!("aes{}ccm{icv}", bits.bits()),
        AeadAlg::ChaCha20Poly1305 => "chacha20poly1305".into(),
    }
}

/// Proposal keywords of a cipher and a MAC.
pub fn pair_keyword(cipher: CipherAlg, mac: MacAlg) -> String {
    let cipher = match cipher {
        CipherAlg::Null => "null".into(),
        CipherAlg::AesCbc(bits) => format!("aes{}", bits.bits()),
        CipherAlg::AesCtr(bits) => format!("aes{}ctr", bits.bits()),
        CipherAlg::CamelliaCbc(bits) => format!("camellia{}", bits.bits()),
        CipherAlg::DesCbc => "des".into(),
        CipherAlg::TripleDesCbc => "3des".into(),
    };
    format!("{cipher}-{}", mac_keyword(mac))
}

fn mac_keyword(mac: MacAlg) -> &'static str {
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
    fn every_keyword_parses_to_its_suite() {
        let all = all();
        assert_eq!(all.len(), 19 + 9 * 10 + 7);
        for suite in all {
            // strongSwan has no keyword for a cipher with GMAC either; NULL with GMAC is one keyword.
            let with_gmac = matches!(
                suite,
                EspSuite::Separate(cipher, mac) if cipher != CipherAlg::Null && mac.takes_nonce()
            );
            let read = casemate_calls::scheme::parse_suite(&proposal_keyword(suite));
            assert!(with_gmac || read == Ok(suite), "{suite}: {read:?}");
        }
    }

    #[test]
    fn every_suite_is_classified_once() {
        let filter = Filter::new(None, true).unwrap();
        // GCM and CCM with two key lengths, and two ICVs where bytes count; ChaCha20; CBC and CTR with two
        // key lengths and six MACs; NULL with six MACs, and GMAC with two key lengths. RFC 8221 ranks the 8
        // bytes of AES-CCM-128 above its 16.
        for (goal, expected) in [(Goal::Bytes, 8 + 1 + 24 + 8), (Goal::Throughput, 4 + 1 + 1 + 24 + 8)] {
            let sorted = classify(&filter, Keying::Negotiated, goal, false);
            let others = sorted.dominated.len() + sorted.refused.len();
            assert_eq!(sorted.candidates.len() + others, all().len() - 7);
            assert_eq!(sorted.candidates.len(), expected, "{}", goal.word());
            // With implicit IVs, GCM and CCM with two key lengths, and ChaCha20.
            let with_casemate = classify(&filter, Keying::Negotiated, goal, true).candidates.len();
            assert_eq!(with_casemate, if goal == Goal::Bytes { expected + 5 } else { expected });
        }
        let manual = |peer_is_casemate| classify(&filter, Keying::Manual, Goal::Bytes, peer_is_casemate);
        assert_eq!(manual(true).candidates.len(), manual(false).candidates.len());
    }
}
