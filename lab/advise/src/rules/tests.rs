//! Tests that the profiles match the RFCs and that the filter permits nothing that they forbid.

use super::*;
use crate::suites;
use casemate_crypto::{
    AeadAlg, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, KexMethod, MacAlg, MacKind, PrfAlg,
};

fn filter(profile: &str, integrity_only: bool) -> Filter {
    Filter::new(Some(Profile::named(profile).unwrap()), integrity_only).unwrap()
}

fn status(filter: &Filter, suite: EspSuite) -> Option<RequirementLevel> {
    filter.esp(suite, Keying::Negotiated).ok().map(|admitted| admitted.status)
}

const fn gcm(bits: AesBits, icv: u8) -> EspSuite {
    EspSuite::Combined(AeadAlg::AesGcm { bits, icv })
}

const fn ccm(bits: AesBits, icv: u8) -> EspSuite {
    EspSuite::Combined(AeadAlg::AesCcm { bits, icv })
}

const fn pair(cipher: CipherAlg, kind: MacKind) -> EspSuite {
    EspSuite::Separate(cipher, MacAlg::standard(kind))
}

#[test]
fn every_profile_cites_rfc_section_and_date() {
    // NSA's table is not an RFC.
    let (cnsa2, profiles): (Vec<_>, Vec<_>) =
        Profile::built_in().unwrap().into_iter().partition(|profile| profile.name == "cnsa2");
    assert!(cnsa2[0].rules.iter().all(|rule| {
        rule.ruling.source.starts_with("CNSA 2.0 FAQ") || rule.ruling.source.starts_with("RFC 9370 section 2")
    }));
    for profile in profiles {
        assert!(profile.read.len() == 10 && profile.title.contains("RFC "), "{profile:?}");
        let rulings = profile.rules.iter().map(|rule| &rule.ruling);
        for ruling in rulings.chain(profile.otherwise.iter().map(|other| &other.ruling)) {
            let source = ruling.source.strip_prefix("RFC ").unwrap();
            assert!(source.contains(" section "), "{}: {source}", profile.name);
        }
    }
}

/// Tables of RFC 8221 sections 5 and 6, copied from the RFC and not from the profile.
#[test]
fn levels_are_those_of_rfc_8221() {
    use AesBits::{B128, B192, B256};
    use RequirementLevel::{May, Must, MustMinus, Should};
    let filter = filter("rfc8221", true);
    for (suite, expected) in [
        (gcm(B128, 16), Some(Must)),
        (gcm(B256, 16), Some(Must)),
        (gcm(B192, 16), Some(May)),
        (gcm(B128, 8), Some(May)),
        (ccm(B128, 8), Some(Should)),
        (ccm(B256, 8), Some(May)),
        (ccm(B128, 16), Some(May)),
        (EspSuite::Combined(AeadAlg::ChaCha20Poly1305), Some(Should)),
        (pair(CipherAlg::AesCbc(B128), MacKind::HmacSha256), Some(Must)),
        (pair(CipherAlg::AesCbc(B256), MacKind::HmacSha512), Some(Should)),
        (pair(CipherAlg::AesCbc(B256), MacKind::HmacSha384), Some(May)),
        (pair(CipherAlg::AesCbc(B192), MacKind::HmacSha256), Some(May)),
        (pair(CipherAlg::AesCbc(B128), MacKind::HmacSha1), Some(MustMinus)),
        (pair(CipherAlg::AesCbc(B128), MacKind::AesXcbc), Some(May)),
        (pair(CipherAlg::AesCtr(B128), MacKind::HmacSha256), Some(May)),
        (pair(CipherAlg::Null, MacKind::HmacSha256), Some(Must)),
        (pair(CipherAlg::Null, MacKind::AesGmac(B128)), Some(May)),
        (pair(CipherAlg::AesCbc(B128), MacKind::AesGmac(B128)), None),
        (pair(CipherAlg::AesCbc(B128), MacKind::HmacMd5), None),
        (pair(CipherAlg::DesCbc, MacKind::HmacSha256), None),
        (pair(CipherAlg::TripleDesCbc, MacKind::HmacSha256), None),
    ] {
        assert_eq!(status(&filter, suite), expected, "{suite}");
    }
}

/// Tables of RFC 8247 section 2, copied from the RFC.
#[test]
fn levels_are_those_of_rfc_8247() {
    use RequirementLevel::{May, Must, MustMinus, Should, ShouldPlus};
    let filter = filter("rfc8247", false);
    let kex = |method| filter.kex(method).ok().map(|admitted| admitted.status);
    assert_eq!(kex(KexMethod::Modp1024), None);
    assert_eq!(kex(KexMethod::Modp1536), None);
    assert_eq!(kex(KexMethod::Modp2048), Some(Must));
    assert_eq!(kex(KexMethod::EcpP256), Some(Should));
    assert_eq!(kex(KexMethod::X25519), Some(May));
    let prf = |alg| filter.prf(alg).ok().map(|admitted| admitted.status);
    assert_eq!(prf(PrfAlg::HmacSha256), Some(Must));
    assert_eq!(prf(PrfAlg::HmacSha512), Some(ShouldPlus));
    assert_eq!(prf(PrfAlg::HmacSha1), Some(MustMinus));
    assert_eq!(prf(PrfAlg::AesXcbc), Some(May));
    let sha256 = MacAlg::standard(MacKind::HmacSha256);
    let cipher = |cipher| filter.ike_pair(cipher, sha256).ok().map(|admitted| admitted.status);
    assert_eq!(cipher(CipherAlg::AesCbc(AesBits::B128)), Some(Must));
    assert_eq!(cipher(CipherAlg::TripleDesCbc), Some(May));
    assert_eq!(cipher(CipherAlg::DesCbc), None);
    assert_eq!(cipher(CipherAlg::Null), None);
    let gcm = |icv| AeadAlg::aes_gcm(AesBits::B128, icv).unwrap();
    assert_eq!(filter.ike_aead(gcm(16)).unwrap().status, Should);
    assert_eq!(filter.ike_aead(gcm(8)).unwrap().status, May);
}

#[test]
fn refusals_cite_their_source() {
    let refusal = |suite, keying| filter("rfc8221", false).esp(suite, keying).unwrap_err().to_string();
    let des = refusal(pair(CipherAlg::DesCbc, MacKind::HmacSha256), Keying::Negotiated);
    assert_eq!(des, "ENCR_DES: MUST NOT (RFC 8221 section 5)");
    let null = refusal(pair(CipherAlg::Null, MacKind::HmacSha256), Keying::Negotiated);
    assert!(null.contains("integrity-only ESP was not requested (RFC 8221 section 5)"), "{null}");
    for suite in [
        gcm(AesBits::B128, 16),
        ccm(AesBits::B128, 8),
        EspSuite::Combined(AeadAlg::ChaCha20Poly1305),
        pair(CipherAlg::AesCtr(AesBits::B128), MacKind::HmacSha256),
    ] {
        assert!(refusal(suite, Keying::Manual).contains("RFC 8221 section 3"), "{suite}");
    }
    let cut = MacAlg::truncated(MacKind::HmacSha256, 12).unwrap();
    let cut = EspSuite::Separate(CipherAlg::AesCbc(AesBits::B128), cut);
    assert!(refusal(cut, Keying::Negotiated).contains("no number"));
    let cbc = pair(CipherAlg::AesCbc(AesBits::B128), MacKind::HmacSha256);
    assert!(filter("rfc8221", false).esp(cbc, Keying::Manual).is_ok());
}

/// No profile permits what RFC 8221 and RFC 8247 forbid, even if it says MUST to everything.
#[test]
fn a_profile_narrows_and_never_widens() {
    let kinds = ["encryption", "integrity"].map(|kind| {
        format!("[[otherwise]]\nuse = \"esp\"\nkind = \"{kind}\"\nstatus = \"MUST\"\nsource = \"nobody\"\n")
    });
    let names = ["ENCR_DES", "ENCR_3DES"].map(|name| {
        format!(
            "[[rule]]\nuse = \"esp\"\nkind = \"encryption\"\nname = \"{name}\"\nstatus = \"MUST\"\n\
             source = \"nobody\"\n"
        )
    });
    let text = format!("name = \"x\"\ntitle = \"x\"\nread = \"x\"\n{}{}", kinds.concat(), names.concat());
    let everything = Filter::new(Some(Profile::parse("x", &text).unwrap()), true).unwrap();
    let is_forbidden = |suite| match suite {
        EspSuite::Combined(_) | EspSuite::ImplicitIv(_) => false,
        EspSuite::Separate(cipher, mac) => {
            matches!(cipher, CipherAlg::DesCbc | CipherAlg::TripleDesCbc) || mac.kind() == MacKind::HmacMd5
        }
    };
    let (forbidden, others): (Vec<EspSuite>, Vec<EspSuite>) =
        suites::all().into_iter().partition(|suite| is_forbidden(*suite));
    assert!(forbidden.len() > 20 && others.len() > 60, "{} {}", forbidden.len(), others.len());
    for suite in forbidden {
        assert_eq!(status(&everything, suite), None, "{suite}");
    }
    assert_eq!(status(&everything, gcm(AesBits::B128, 8)), Some(RequirementLevel::Must));
}

#[test]
fn implicit_ivs_are_transforms_of_their_own() {
    let suite = |bits| EspSuite::ImplicitIv(ImplicitIvAlg::AesGcm16(bits));
    // RFC 8221 does not mention them.
    assert_eq!(status(&filter("rfc8221", false), suite(AesBits::B128)), Some(RequirementLevel::May));
    assert_eq!(status(&filter("cnsa", false), suite(AesBits::B256)), None);
    let rule = |name: &str, status: &str| {
        format!(
            "[[rule]]\nuse = \"esp\"\nkind = \"encryption\"\nname = \"{name}\"\nstatus = \"{status}\"\n\
             source = \"us\"\n"
        )
    };
    let own = |rules: &[String]| {
        let text = format!("name = \"x\"\ntitle = \"x\"\nread = \"x\"\n{}", rules.concat());
        status(&Filter::new(Some(Profile::parse("x", &text).unwrap()), false).unwrap(), suite(AesBits::B128))
    };
    let wanted = rule("ENCR_AES_GCM_16_IIV", "MUST");
    assert_eq!(own(std::slice::from_ref(&wanted)), Some(RequirementLevel::Must));
    assert_eq!(own(&[wanted, rule("ENCR_AES_GCM_16", "MUST NOT")]), None, "not without its cipher");
}

#[test]
fn cnsa_and_suite_b_permit_only_their_suites() {
    let taken = |profile| {
        let filter = filter(profile, true);
        suites::all().into_iter().filter(|suite| status(&filter, *suite).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(taken("cnsa"), [gcm(AesBits::B256, 16)]);
    for (name, bits) in [("suite-b-128", AesBits::B128), ("suite-b-256", AesBits::B256)] {
        assert_eq!(taken(name), [gcm(bits, 16), pair(CipherAlg::Null, MacKind::AesGmac(bits))]);
        assert!(Profile::named(name).unwrap().is_history);
    }
    assert!(filter("cnsa", false).kex(KexMethod::X25519).is_err());
    assert!(filter("cnsa", false).kex(KexMethod::EcpP384).is_ok());
    assert!(filter("cnsa", false).prf(PrfAlg::HmacSha256).is_err());
}

#[test]
fn cnsa_2_requires_ml_kem_1024_and_says_what_is_missing() {
    let cnsa2 = filter("cnsa2", true);
    let suites: Vec<_> = suites::all().into_iter().filter(|suite| status(&cnsa2, *suite).is_some()).collect();
    assert_eq!(suites, [gcm(AesBits::B256, 16)]);
    let kex: Vec<_> = KexMethod::ALL.into_iter().filter(|method| cnsa2.kex(*method).is_ok()).collect();
    assert_eq!(kex, [KexMethod::EcpP384, KexMethod::MlKem1024]);
    assert_eq!(cnsa2.kex(KexMethod::MlKem1024).unwrap().status, RequirementLevel::Must);
    assert!(cnsa2.prf(PrfAlg::HmacSha384).is_ok() && cnsa2.prf(PrfAlg::HmacSha256).is_err());
    let unmet = Profile::named("cnsa2").unwrap().unmet;
    assert!(unmet.len() == 1 && unmet[0].starts_with("signatures with ML-DSA-87: "), "{unmet:?}");
    assert!(Profile::named("cnsa").unwrap().unmet.is_empty());
}

#[test]
fn constrained_devices_prefer_algorithms_marked_iot() {
    let xcbc = pair(CipherAlg::AesCbc(AesBits::B128), MacKind::AesXcbc);
    assert_eq!(status(&filter("rfc8221", false), xcbc), Some(RequirementLevel::May));
    assert_eq!(status(&filter("iot", false), xcbc), Some(RequirementLevel::Should));
    assert_eq!(status(&filter("iot", false), gcm(AesBits::B128, 16)), Some(RequirementLevel::Must));
}

#[test]
fn profile_errors_name_the_line() {
    let head = "name = \"x\"\ntitle = \"x\"\nread = \"x\"\n";
    let rule = "[[rule]]\nuse = \"esp\"\nkind = \"encryption\"\nname = \"ENCR_DES\"\nstatus = \"MAY\"\n";
    for (text, line, part) in [
        (format!("{head}[[rule"), 4, "TOML was expected"),
        (head.into(), 1, "[[rule]] or [[otherwise]] was expected"),
        ("title = \"x\"\n".into(), 1, "`name` is missing"),
        (format!("{head}colour = 1\n"), 4, "`colour`: one of name, title"),
        (format!("{head}unmet = [1]\n"), 4, "`unmet`: a list of texts was expected"),
        (format!("{head}{rule}"), 4, "`source` is missing"),
        (format!("{head}{rule}source = \" \"\n"), 9, "`source` is empty"),
        (format!("{head}{rule}source = 1\n"), 9, "a text in quotes"),
        (format!("{head}{rule}source = \"s\"\nbits = [\"x\"]\n"), 10, "a list such as [128, 256]"),
        (format!("{head}{rule}source = \"s\"\n").replace("\"MAY\"", "\"may\""), 8, "one of MUST NOT, "),
        (
            format!("{head}{rule}source = \"s\"\n").replace("\"esp\"", "\"ah\""),
            5,
            "one of esp, ike was expected",
        ),
    ] {
        let error = Profile::parse("own.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("own.toml:{line}: ")) && error.contains(part), "{error}");
    }
    let missing = Profile::named("no-such-profile").unwrap_err().to_string();
    assert!(missing.contains("one of rfc8221, rfc8247, iot, cnsa"), "{missing}");
}
