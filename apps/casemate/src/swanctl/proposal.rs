//! Proposals: words with dashes between, each a choice of algorithms (`aes128-aes256-sha256-x25519`).
//!
//! What a proposal leaves out is filled in as strongSwan does it: an IKE proposal without a PRF takes those of its MACs, and a
//! MAC beside a combined-mode cipher means nothing else.

use super::keyword::{self, Word};
use super::value::Read;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    self, ChildAlgorithms, ChildProposal, EspCombined, IkeEncryption, IkeProposal, Sequence,
};

/// Most words of one proposal. A proposal of an IKE message has at most 255 transforms (RFC 7296 section 3.3.1).
const MAX_WORDS: usize = 255;

/// Reads a proposal for an IKE SA; `default` is several.
pub(super) fn ike(text: &str) -> Read<Vec<IkeProposal>> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(config::ike_proposals());
    }
    let words = Words::read(text)?;
    if !words.gmacs.is_empty() || words.ciphers.contains(&CipherAlg::Null) {
        // RFC 7296 section 5: ENCR_NULL MUST NOT be used for IKE; AES-GMAC encrypts as little.
        return Err("a cipher that encrypts was expected in a proposal for IKE".into());
    }
    if !words.sequence.is_empty() {
        return Err("esn and noesn are for Child SAs: no such word was expected in a proposal for IKE".into());
    }
    let prfs = words.prfs()?;
    if words.kex.is_empty() || words.no_kex {
        return Err("a key exchange method was expected, such as x25519, ecp256 or modp2048".into());
    }
    let encryption = match (words.aeads.is_empty(), words.ciphers.is_empty()) {
        (false, true) => IkeEncryption::Combined(words.aeads),
        (true, false) => IkeEncryption::Separate(words.ciphers, with_some(words.macs)?),
        (false, false) => return Err(MIXED.into()),
        (true, true) => return Err(NO_CIPHER.into()),
    };
    Ok(vec![IkeProposal { encryption, prfs, kex: words.kex }])
}

/// Reads a proposal for a Child SA with ESP; `default` is several.
pub(super) fn esp(text: &str) -> Read<Vec<ChildProposal>> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(config::child_proposals());
    }
    // A PRF says nothing here, and strongSwan lets it stand.
    let words = Words::read(text)?;
    let (sequence, kex) = (words.sequence()?, words.child_kex()?);
    let combined: Vec<EspCombined> = words
        .aeads
        .into_iter()
        .map(EspCombined::Aead)
        .chain(words.gmacs.into_iter().map(EspCombined::Gmac))
        .collect();
    let algorithms = match (combined.is_empty(), words.ciphers.is_empty()) {
        (false, true) => ChildAlgorithms::EspCombined(combined),
        // RFC 8221 section 4: encryption without integrity MUST NOT be used.
        (true, false) => ChildAlgorithms::EspSeparate(words.ciphers, with_some(words.macs)?),
        (false, false) => return Err(MIXED.into()),
        (true, true) => return Err(NO_CIPHER.into()),
    };
    Ok(vec![ChildProposal { algorithms, kex, sequence }])
}

/// Reads a proposal for a Child SA with AH; `default` is several.
pub(super) fn ah(text: &str) -> Read<Vec<ChildProposal>> {
    if text.eq_ignore_ascii_case("default") {
        let kinds = [MacKind::HmacSha256, MacKind::HmacSha384, MacKind::HmacSha512];
        let macs = kinds.into_iter().map(keyword::mac).collect();
        let algorithms = ChildAlgorithms::Ah(macs);
        return Ok(vec![ChildProposal { algorithms, kex: Vec::new(), sequence: Sequence::PreferPlain }]);
    }
    let words = Words::read(text)?;
    if !words.aeads.is_empty() || !words.ciphers.is_empty() {
        return Err("AH encrypts nothing: only integrity algorithms such as sha256 were expected".into());
    }
    let (sequence, kex) = (words.sequence()?, words.child_kex()?);
    let gmacs = words.gmacs.into_iter().map(|bits| keyword::mac(MacKind::AesGmac(bits)));
    let macs = with_some(words.macs.into_iter().chain(gmacs).collect())?;
    Ok(vec![ChildProposal { algorithms: ChildAlgorithms::Ah(macs), kex, sequence }])
}

/// HMAC-SHA-256 cut to 96 bits instead of 128, for peers that got it wrong. It is not negotiated.
pub(super) fn cut_sha256(proposal: &mut ChildProposal) {
    let (ChildAlgorithms::EspSeparate(_, macs) | ChildAlgorithms::Ah(macs)) = &mut proposal.algorithms else {
        return;
    };
    for mac in macs.iter_mut().filter(|mac| mac.kind() == MacKind::HmacSha256) {
        if let Ok(cut) = MacAlg::truncated(MacKind::HmacSha256, 12) {
            *mac = cut;
        }
    }
}

const MIXED: &str =
    "combined-mode ciphers and others in one proposal: two proposals with a comma between were expected";
const NO_CIPHER: &str = "a cipher was expected, such as aes256gcm16 or aes128";

fn with_some(macs: Vec<MacAlg>) -> Read<Vec<MacAlg>> {
    if macs.is_empty() { Err("an integrity algorithm was expected, such as sha256".into()) } else { Ok(macs) }
}

/// The words of a proposal by what they are.
#[derive(Default)]
struct Words {
    aeads: Vec<AeadAlg>,
    gmacs: Vec<AesBits>,
    ciphers: Vec<CipherAlg>,
    macs: Vec<MacAlg>,
    prfs: Vec<PrfAlg>,
    kex: Vec<KexMethod>,
    no_kex: bool,
    /// Whether each is the longer one.
    sequence: Vec<bool>,
}

impl Words {
    fn read(text: &str) -> Read<Self> {
        let mut words = Self::default();
        let mut count = 0usize;
        for part in text.split('-').map(str::trim).filter(|part| !part.is_empty()) {
            words.add(keyword::word(part)?);
            count = count.saturating_add(1);
            if count > MAX_WORDS {
                return Err(format!("at most {MAX_WORDS} words were expected"));
            }
        }
        Ok(words)
    }

    fn add(&mut self, word: Word) {
        match word {
            Word::Aead(aead) => add(&mut self.aeads, aead),
            Word::Gmac(bits) => add(&mut self.gmacs, bits),
            Word::Cipher(cipher) => add(&mut self.ciphers, cipher),
            Word::Mac(kind) => add(&mut self.macs, keyword::mac(kind)),
            Word::Prf(prf) => add(&mut self.prfs, prf),
            Word::Kex(kex) => add(&mut self.kex, kex),
            Word::NoKex => self.no_kex = true,
            Word::Esn => add(&mut self.sequence, true),
            Word::NoEsn => add(&mut self.sequence, false),
        }
    }

    /// The PRFs, or else those of the same functions as the MACs.
    fn prfs(&self) -> Read<Vec<PrfAlg>> {
        if !self.prfs.is_empty() {
            return Ok(self.prfs.clone());
        }
        let prfs: Option<Vec<PrfAlg>> = self.macs.iter().map(|mac| prf_of(mac.kind())).collect();
        prfs.filter(|prfs| !prfs.is_empty())
            .ok_or_else(|| "a pseudorandom function was expected, such as prfsha256".into())
    }

    fn child_kex(&self) -> Read<Vec<KexMethod>> {
        if self.no_kex && !self.kex.is_empty() {
            return Err(
                "a key exchange that may be left out is not implemented: none, or a method, was expected"
                    .into(),
            );
        }
        Ok(self.kex.clone())
    }

    fn sequence(&self) -> Read<Sequence> {
        Ok(match self.sequence.as_slice() {
            [] | [false] => Sequence::Plain,
            [true] => Sequence::Extended,
            [true, ..] => Sequence::PreferExtended,
            [false, ..] => Sequence::PreferPlain,
        })
    }
}

/// Adds what is not in the list yet.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

const fn prf_of(kind: MacKind) -> Option<PrfAlg> {
    match kind {
        MacKind::HmacSha1 => Some(PrfAlg::HmacSha1),
        MacKind::HmacSha256 => Some(PrfAlg::HmacSha256),
        MacKind::HmacSha384 => Some(PrfAlg::HmacSha384),
        MacKind::HmacSha512 => Some(PrfAlg::HmacSha512),
        MacKind::AesXcbc => Some(PrfAlg::AesXcbc),
        MacKind::AesCmac => Some(PrfAlg::AesCmac),
        MacKind::HmacMd5 | MacKind::AesGmac(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transform ids of encryption, PRF, integrity, key exchange and ESN, as libstrongswan 5.9.8 reads the same text
    /// (`proposal_create_from_string`, then every transform of each type).
    const IKE: [(&str, &str); 6] = [
        ("aes128-sha256-modp2048", "AES_CBC-128 | 5 | 12 | 14"),
        ("aes128gcm16-prfsha256-ecp256", "AES_GCM_16-128 | 5 | | 19"),
        ("aes128gcm16-sha256-ecp256", "AES_GCM_16-128 | 5 | | 19"),
        ("aes128-sha1-sha256-prfsha384-modp2048", "AES_CBC-128 | 6 | 2 12 | 14"),
        ("aes-sha1-modp2048", "AES_CBC-128 | 2 | 2 | 14"),
        ("aes128-aesxcbc-x25519", "AES_CBC-128 | 4 | 5 | 31"),
    ];

    fn joined(items: impl Iterator<Item = String>) -> String {
        items.collect::<Vec<_>>().join(" ")
    }

    fn mac_id(mac: &MacAlg) -> String {
        let id = match mac.kind() {
            MacKind::HmacMd5 => 1,
            MacKind::HmacSha1 => 2,
            MacKind::AesXcbc => 5,
            MacKind::HmacSha256 => 12,
            other => panic!("{other:?} is in no row"),
        };
        id.to_string()
    }

    #[test]
    fn as_strongswan_reads_them() {
        for (text, expected) in IKE {
            let [proposal] = &ike(text).unwrap()[..] else { panic!("{text}") };
            let (ciphers, macs) = match &proposal.encryption {
                IkeEncryption::Combined(aeads) => {
                    (joined(aeads.iter().map(AeadAlg::to_string)), String::new())
                }
                IkeEncryption::Separate(ciphers, macs) => {
                    (joined(ciphers.iter().map(CipherAlg::to_string)), joined(macs.iter().map(mac_id)))
                }
            };
            let prfs = joined(proposal.prfs.iter().map(|prf| prf.id().to_string()));
            let kex = joined(proposal.kex.iter().map(|kex| kex.id().to_string()));
            let all =
                format!("{} | {prfs} | {macs} | {kex}", ciphers.replace("ENCR_", "")).replace("|  |", "| |");
            assert_eq!(all, expected, "{text}");
        }
    }

    #[test]
    fn what_strongswan_refuses_is_refused() {
        for text in [
            "aes128gcm16-ecp256",
            "aes128gcm16-aes128-sha256-modp2048",
            "aes128-sha256",
            "aes128-sha256_96-modp2048",
        ] {
            assert!(ike(text).is_err(), "{text}");
        }
        for text in ["sha1", "", "aes128gcm-aes128ctr-sha256", "AES128-SHA1"] {
            assert!(esp(text).is_err(), "{text}");
        }
        assert!(ah("none").is_err());
    }

    #[test]
    fn what_would_not_protect_is_refused() {
        let why = |result: Read<Vec<_>>| result.unwrap_err();
        assert_eq!(why(esp("aes128")), "an integrity algorithm was expected, such as sha256");
        assert!(why(ah("aes128-sha256")).contains("AH encrypts nothing"));
        assert!(ike("null-sha1-modp2048").unwrap_err().contains("encrypts"));
        assert!(ike("aes128gmac-prfsha1-modp2048").unwrap_err().contains("encrypts"));
        assert!(ike("3des-md5-modp1536").unwrap_err().contains("pseudorandom"));
        assert!(ike("3des-md5-prfsha1-modp1536").is_ok());
    }

    #[test]
    fn sequence_numbers_and_key_exchange_of_children() {
        let one = |text| esp(text).unwrap().remove(0);
        for (text, expected) in [
            ("aes128gcm16", Sequence::Plain),
            ("aes128gcm16-noesn", Sequence::Plain),
            ("aes128gcm16-esn", Sequence::Extended),
            ("aes128gcm16-esn-noesn", Sequence::PreferExtended),
            ("aes128gcm16-noesn-esn", Sequence::PreferPlain),
        ] {
            assert_eq!(one(text).sequence, expected, "{text}");
        }
        assert_eq!(one("null-sha256-modp2048").kex, [KexMethod::Modp2048]);
        assert_eq!(one("aes128gcm16-none").kex, []);
        assert!(esp("aes128gcm16-modp2048-none").is_err());
        assert_eq!(
            one("aes256gmac").algorithms,
            ChildAlgorithms::EspCombined(vec![EspCombined::Gmac(AesBits::B256)])
        );
        let gmac = MacAlg::standard(MacKind::AesGmac(AesBits::B128));
        assert_eq!(ah("aes128gmac").unwrap().remove(0).algorithms, ChildAlgorithms::Ah(vec![gmac]));
    }

    #[test]
    fn sha256_is_cut_where_asked() {
        let mut proposal = esp("aes128-sha256-sha512").unwrap().remove(0);
        cut_sha256(&mut proposal);
        let ChildAlgorithms::EspSeparate(_, macs) = proposal.algorithms else { panic!() };
        assert_eq!(macs.iter().map(|mac| mac.tag_len()).collect::<Vec<_>>(), [12, 32]);
    }
}
