//! Proposals: keywords joined by dashes, such as `aes128-aes256-sha256-x25519`.
//!
//! Omitted parts are filled in as in strongSwan: an IKE proposal without a PRF uses the hash functions of its
//! MACs, and a MAC beside a combined-mode cipher only selects the PRF.

use super::Parsed;
use super::additional;
pub use super::additional::warnings;
use super::keyword::{self, Keyword};
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};
use casemate_ike::config::{
    self, AdditionalKex, AdditionalKexes, ChildAlgorithms, ChildProposal, EsnPolicy, EspCombined,
    IkeEncryption, IkeProposal, KexRound,
};

/// Default proposals for an IKE SA. With the feature `multiple-kex`, those with ML-KEM come first; the
/// classical ones follow for peers that do not know additional key exchanges.
pub fn default_ike() -> Vec<IkeProposal> {
    let classical = config::ike_proposals();
    if !cfg!(feature = "multiple-kex") {
        return classical;
    }
    classical.iter().filter_map(with_ml_kem).chain(classical.iter().cloned()).collect()
}

/// The proposal with ML-KEM-768 or 1024 after X25519 or P-384, or `None` if it has neither of these curves.
fn with_ml_kem(classical: &IkeProposal) -> Option<IkeProposal> {
    let curves = [KexMethod::X25519, KexMethod::EcpP384];
    let kex: Vec<_> = classical.kex.iter().copied().filter(|method| curves.contains(method)).collect();
    let methods = vec![KexMethod::MlKem768, KexMethod::MlKem1024];
    let second = AdditionalKex { methods, optional: false };
    let additional = AdditionalKexes::from([(KexRound::new(1)?, second)]);
    (!kex.is_empty()).then(|| IkeProposal { kex, additional, ..classical.clone() })
}

/// Parses a proposal for an IKE SA; `default` gives several.
pub fn parse_ike(text: &str) -> Parsed<Vec<IkeProposal>> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_ike());
    }
    let words = Keywords::read(text)?;
    if words.has(|word| matches!(word, Keyword::Gmac(_) | Keyword::Cipher(CipherAlg::Null))) {
        // RFC 7296 section 5: ENCR_NULL MUST NOT be used for IKE. AES-GMAC does not encrypt either.
        return Err("a cipher that encrypts was expected in a proposal for IKE".into());
    }
    if words.has(|word| matches!(word, Keyword::ImplicitIv(_))) {
        // RFC 8750 section 7.
        return Err(
            "an implicit IV is for Child SAs: a cipher with an IV in each message was expected in a \
                    proposal for IKE"
                .into(),
        );
    }
    if words.has(|word| matches!(word, Keyword::Esn | Keyword::NoEsn)) {
        return Err("esn and noesn are for Child SAs: no such word was expected in a proposal for IKE".into());
    }
    let (prfs, kex) = (words.prfs()?, words.kex());
    if kex.is_empty() || words.has(|word| word == Keyword::NoKex) {
        return Err("a key exchange method was expected, such as x25519, ecp256 or modp2048".into());
    }
    let aeads = words.pick(|word| if let Keyword::Aead(aead) = word { Some(aead) } else { None });
    let encryption = match one_kind(aeads, words.ciphers())? {
        Kind::Combined(aeads) => IkeEncryption::Combined(aeads),
        Kind::Separate(ciphers) => IkeEncryption::Separate(ciphers, with_some(words.macs())?),
    };
    Ok(vec![IkeProposal { encryption, prfs, kex, additional: words.additional()? }])
}

/// Parses an ESP proposal for a Child SA; `default` gives several.
pub fn parse_esp(text: &str) -> Parsed<Vec<ChildProposal>> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(config::child_proposals());
    }
    // strongSwan ignores a PRF here.
    let words = Keywords::read(text)?;
    let combined = words.pick(|word| match word {
        Keyword::Aead(aead) => Some(EspCombined::Aead(aead)),
        Keyword::ImplicitIv(alg) => Some(EspCombined::ImplicitIv(alg)),
        Keyword::Gmac(bits) => Some(EspCombined::Gmac(bits)),
        _ => None,
    });
    let algorithms = match one_kind(combined, words.ciphers())? {
        Kind::Combined(combined) => ChildAlgorithms::EspCombined(combined),
        // RFC 8221 section 4: encryption without integrity MUST NOT be used.
        Kind::Separate(ciphers) => ChildAlgorithms::EspSeparate(ciphers, with_some(words.macs())?),
    };
    let (kex, additional) = words.child_kexes()?;
    Ok(vec![ChildProposal { algorithms, kex, additional, esn: words.sequence() }])
}

/// Parses an AH proposal for a Child SA.
pub fn parse_ah(text: &str) -> Parsed<Vec<ChildProposal>> {
    if text.eq_ignore_ascii_case("default") {
        let kinds = [MacKind::HmacSha256, MacKind::HmacSha384, MacKind::HmacSha512];
        let algorithms = ChildAlgorithms::Ah(kinds.map(MacAlg::standard).to_vec());
        return Ok(vec![ChildProposal {
            algorithms,
            kex: Vec::new(),
            additional: AdditionalKexes::new(),
            esn: EsnPolicy::Allowed,
        }]);
    }
    let words = Keywords::read(text)?;
    if words.has(|word| matches!(word, Keyword::Aead(_) | Keyword::ImplicitIv(_) | Keyword::Cipher(_))) {
        return Err("AH encrypts nothing: only integrity algorithms such as sha256 were expected".into());
    }
    let macs = words.pick(|word| match word {
        Keyword::Mac(alg) => Some(alg),
        Keyword::Gmac(bits) => Some(MacAlg::standard(MacKind::AesGmac(bits))),
        _ => None,
    });
    let algorithms = ChildAlgorithms::Ah(with_some(macs)?);
    let (kex, additional) = words.child_kexes()?;
    Ok(vec![ChildProposal { algorithms, kex, additional, esn: words.sequence() }])
}

/// Parses an integrity algorithm that takes no nonce, such as `sha256`.
pub fn parse_integrity(text: &str) -> Parsed<MacAlg> {
    match keyword::parse_keyword(text)? {
        Keyword::Mac(alg) => Ok(alg),
        _ => Err("an integrity algorithm was expected, such as sha256".into()),
    }
}

/// Encryption: combined-mode algorithms, or ciphers that need a MAC.
enum Kind<C> {
    Combined(Vec<C>),
    Separate(Vec<CipherAlg>),
}

fn one_kind<C>(combined: Vec<C>, ciphers: Vec<CipherAlg>) -> Parsed<Kind<C>> {
    match (combined.is_empty(), ciphers.is_empty()) {
        (false, true) => Ok(Kind::Combined(combined)),
        (true, false) => Ok(Kind::Separate(ciphers)),
        (false, false) => {
            Err("combined-mode ciphers and others in one proposal: two proposals separated by a comma were \
                 expected"
                .into())
        }
        (true, true) => Err("a cipher was expected, such as aes256gcm16 or aes128".into()),
    }
}

fn with_some(macs: Vec<MacAlg>) -> Parsed<Vec<MacAlg>> {
    if macs.is_empty() { Err("an integrity algorithm was expected, such as sha256".into()) } else { Ok(macs) }
}

/// Keywords of a proposal without duplicates, in order of preference.
pub(super) struct Keywords(Vec<Keyword>);

impl Keywords {
    pub(super) fn read(text: &str) -> Parsed<Self> {
        let mut words = Vec::new();
        for part in text.split('-').map(str::trim).filter(|part| !part.is_empty()) {
            let word = keyword::parse_keyword(part)?;
            if !words.contains(&word) {
                words.push(word);
            }
        }
        Ok(Self(words))
    }

    fn has(&self, wanted: impl Fn(Keyword) -> bool) -> bool {
        self.0.iter().any(|word| wanted(*word))
    }

    pub(super) fn pick<T>(&self, wanted: impl Fn(Keyword) -> Option<T>) -> Vec<T> {
        self.0.iter().filter_map(|word| wanted(*word)).collect()
    }

    fn ciphers(&self) -> Vec<CipherAlg> {
        self.pick(|word| if let Keyword::Cipher(cipher) = word { Some(cipher) } else { None })
    }

    fn macs(&self) -> Vec<MacAlg> {
        self.pick(|word| if let Keyword::Mac(alg) = word { Some(alg) } else { None })
    }

    pub(super) fn kex(&self) -> Vec<KexMethod> {
        self.pick(|word| if let Keyword::Kex(kex) = word { Some(kex) } else { None })
    }

    /// The PRFs, or else those with the hash functions of the MACs.
    fn prfs(&self) -> Parsed<Vec<PrfAlg>> {
        let named = self.pick(|word| if let Keyword::Prf(prf) = word { Some(prf) } else { None });
        if !named.is_empty() {
            return Ok(named);
        }
        let prfs: Option<Vec<PrfAlg>> = self.macs().into_iter().map(|alg| prf_of(alg.kind())).collect();
        prfs.filter(|prfs| !prfs.is_empty())
            .ok_or_else(|| "a pseudorandom function was expected, such as prfsha256".into())
    }

    fn child_kex(&self) -> Parsed<Vec<KexMethod>> {
        let kex = self.kex();
        if !kex.is_empty() && self.has(|word| word == Keyword::NoKex) {
            return Err(
                "an optional key exchange is not implemented: either `none` or methods were expected".into(),
            );
        }
        Ok(kex)
    }

    /// Additional key exchanges by their number. One that only has `none` is left out.
    fn additional(&self) -> Parsed<AdditionalKexes> {
        let mut all = AdditionalKexes::new();
        for word in &self.0 {
            let Keyword::Additional(round, method) = word else { continue };
            let none = || AdditionalKex { methods: Vec::new(), optional: false };
            let kex = all.entry(*round).or_insert_with(none);
            kex.methods.extend(method);
            kex.optional |= method.is_none();
        }
        all.retain(|_, kex| !kex.methods.is_empty());
        if cfg!(feature = "multiple-kex") && !additional::can_be_agreed(&all) {
            return Err(
                "no method can be used in two additional key exchanges (RFC 9370 section 2.2.2), so no \
                        peer can accept it: another method in each of ke1_ to ke7_ was expected, as in \
                        ke1_mlkem768-ke2_mlkem1024"
                    .into(),
            );
        }
        Ok(all)
    }

    /// Key exchange and additional key exchanges of a Child SA.
    fn child_kexes(&self) -> Parsed<(Vec<KexMethod>, AdditionalKexes)> {
        let (kex, additional) = (self.child_kex()?, self.additional()?);
        if kex.is_empty() && !additional.is_empty() {
            return Err(
                "an additional key exchange follows another one: a method such as x25519 was expected, too"
                    .into(),
            );
        }
        Ok((kex, additional))
    }

    fn sequence(&self) -> EsnPolicy {
        let extended = self.pick(|word| match word {
            Keyword::Esn => Some(true),
            Keyword::NoEsn => Some(false),
            _ => None,
        });
        match extended.as_slice() {
            [] | [false] => EsnPolicy::Disabled,
            [true] => EsnPolicy::Required,
            [true, ..] => EsnPolicy::Preferred,
            [false, ..] => EsnPolicy::Allowed,
        }
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
    use alloc::format;
    use alloc::string::{String, ToString as _};
    use casemate_crypto::{AeadAlg, AesBits, ImplicitIvAlg};

    /// Transform IDs of encryption, PRF, integrity, key exchange and ESN that libstrongswan 5.9.8 produces
    /// for the same text (`proposal_create_from_string`, then every transform of each type).
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
            let [proposal] = &parse_ike(text).unwrap()[..] else { panic!("{text}") };
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
    fn proposals_that_strongswan_rejects_are_rejected() {
        // strongSwan refuses all of these but the one with `none`, where it ignores that keyword.
        for text in [
            "aes128gcm16-ecp256",
            "aes128gcm16-aes128-sha256-modp2048",
            "aes128-sha256",
            "aes128-sha256-modp2048-none",
            "aes128-sha256_96-modp2048",
        ] {
            assert!(parse_ike(text).is_err(), "{text}");
        }
        for text in ["sha1", "", "aes128gcm-aes128ctr-sha256", "AES128-SHA1"] {
            assert!(parse_esp(text).is_err(), "{text}");
        }
        assert!(parse_ah("none").is_err());
    }

    #[test]
    fn proposals_without_protection_are_rejected() {
        let why = |result: Parsed<Vec<_>>| result.unwrap_err();
        assert_eq!(why(parse_esp("aes128")), "an integrity algorithm was expected, such as sha256");
        assert!(why(parse_ah("aes128-sha256")).contains("AH encrypts nothing"));
        assert!(parse_integrity("aes128gmac").unwrap_err().contains("such as sha256"));
        assert_eq!(parse_integrity("sha256"), Ok(MacAlg::standard(MacKind::HmacSha256)));
        assert!(parse_ike("null-sha1-modp2048").unwrap_err().contains("encrypts"));
        assert!(parse_ike("aes128gmac-prfsha1-modp2048").unwrap_err().contains("encrypts"));
        assert!(parse_ike("3des-md5-modp1536").unwrap_err().contains("pseudorandom"));
        assert!(parse_ike("3des-md5-prfsha1-modp1536").is_ok());
    }

    #[test]
    fn implicit_iv_is_for_esp_only() {
        let esp = parse_esp("aes128gcm16iiv-aes128gcm16").unwrap().remove(0);
        let gcm = AeadAlg::aes_gcm(AesBits::B128, 16).unwrap();
        let implicit = ImplicitIvAlg::new(gcm).unwrap();
        assert_eq!(
            esp.algorithms,
            ChildAlgorithms::EspCombined(vec![EspCombined::ImplicitIv(implicit), EspCombined::Aead(gcm)])
        );
        let why = parse_ike("aes128gcm16iiv-prfsha256-x25519").unwrap_err();
        assert!(why.contains("an implicit IV is for Child SAs"), "{why}");
        assert!(parse_ah("aes128gcm16iiv").unwrap_err().contains("AH encrypts nothing"));
    }

    #[test]
    fn sequence_numbers_and_key_exchange_of_children() {
        let one = |text| parse_esp(text).unwrap().remove(0);
        for (text, expected) in [
            ("aes128gcm16", EsnPolicy::Disabled),
            ("aes128gcm16-noesn", EsnPolicy::Disabled),
            ("aes128gcm16-esn", EsnPolicy::Required),
            ("aes128gcm16-esn-noesn", EsnPolicy::Preferred),
            ("aes128gcm16-noesn-esn", EsnPolicy::Allowed),
        ] {
            assert_eq!(one(text).esn, expected, "{text}");
        }
        assert_eq!(one("null-sha256-modp2048").kex, [KexMethod::Modp2048]);
        assert_eq!(one("aes128gcm16-none").kex, []);
        assert!(parse_esp("aes128gcm16-modp2048-none").is_err());
        assert_eq!(
            one("aes256gmac").algorithms,
            ChildAlgorithms::EspCombined(vec![EspCombined::Gmac(AesBits::B256)])
        );
        let gmac = MacAlg::standard(MacKind::AesGmac(AesBits::B128));
        assert_eq!(parse_ah("aes128gmac").unwrap().remove(0).algorithms, ChildAlgorithms::Ah(vec![gmac]));
    }

    #[test]
    fn default_proposals_have_ml_kem_first_and_then_classical_ones() {
        let (all, classical) = (parse_ike("default").unwrap(), config::ike_proposals());
        let (first, rest) = all.split_at(all.len() - classical.len());
        assert_eq!(rest, classical);
        assert_eq!(first.len(), if cfg!(feature = "multiple-kex") { classical.len() } else { 0 });
        for (hybrid, classical) in first.iter().zip(&classical) {
            let parts = |proposal: &IkeProposal| (proposal.encryption.clone(), proposal.prfs.clone());
            assert_eq!(parts(hybrid), parts(classical));
            assert_eq!(hybrid.kex, [KexMethod::X25519, KexMethod::EcpP384]);
            let second =
                AdditionalKex { methods: vec![KexMethod::MlKem768, KexMethod::MlKem1024], optional: false };
            assert_eq!(hybrid.additional, [(KexRound::new(1).unwrap(), second)].into());
        }
    }

    /// Only builds with the legacy provider have `modp1024`, and only if a proposal names it.
    #[test]
    fn modp1024_must_be_named() {
        match parse_ike("aes256-sha256-modp1024") {
            Ok(named) => assert!(cfg!(feature = "legacy") && named[0].kex == [KexMethod::Modp1024]),
            Err(why) => assert!(!cfg!(feature = "legacy") && why.contains("feature `legacy`"), "{why}"),
        }
        let ike = parse_ike("default").unwrap().into_iter().flat_map(|proposal| proposal.kex);
        let esp = parse_esp("default").unwrap().into_iter().flat_map(|proposal| proposal.kex);
        assert!(ike.chain(esp).all(|kex| kex != KexMethod::Modp1024));
    }

    #[test]
    fn the_order_of_keywords_is_kept() {
        let gmac = |bits| MacAlg::standard(MacKind::AesGmac(bits));
        let macs = [gmac(AesBits::B256), MacAlg::standard(MacKind::HmacSha1), gmac(AesBits::B128)];
        let ChildAlgorithms::Ah(read) =
            parse_ah("aes256gmac-sha1-aes128gmac-sha1").unwrap().remove(0).algorithms
        else {
            panic!()
        };
        assert_eq!(read, macs);
        let one = parse_esp("aes128gmac-aes128gcm16").unwrap().remove(0);
        let aead = EspCombined::Aead(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
        assert_eq!(
            one.algorithms,
            ChildAlgorithms::EspCombined(vec![EspCombined::Gmac(AesBits::B128), aead])
        );
    }
}
