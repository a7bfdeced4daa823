//! Certificates, keys and CRLs made by OpenSSL: trust, names and revocation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::der::{OID, SEQUENCE, write};
use casemate_crypto::{
    Curve, HashAlg, KeyKind, KeyLimits, PrivateKey, Provider, Providers, SignatureAlg, SignatureError,
    SigningKey,
};
use casemate_pki::{
    AlgorithmPolicy, CertFault, DnPattern, KeyPolicy, LocalCert, LocalCertFault, PeerName, Revocation,
    SignatureAlgs, StoreLimits, TrustStore, VerifiedCert, VerifyOptions, pem,
};
use casemate_test_support::FixedRng;

const PROVIDERS: Providers<'static> = Providers(&[&AWS_LC]);

/// The first of January 2027.
const NOW: u64 = 1_798_761_600;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("data/", $name))
    };
}

fn cert(text: &[u8]) -> Vec<u8> {
    pem::certificates(text).unwrap().remove(0)
}

fn store() -> TrustStore {
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&cert(data!("root.pem"))).unwrap();
    store
}

fn with_crls(mut store: TrustStore) -> TrustStore {
    for text in [&data!("root.crl")[..], data!("sub.crl")] {
        assert_eq!(store.add_crl(&pem::crls(text).unwrap()[0]), Ok(true));
    }
    store
}

fn verify(store: &TrustStore, peer: &[u8], options: &VerifyOptions) -> Result<VerifiedCert, CertFault> {
    store.verify(&[&cert(peer), &cert(data!("sub.pem"))], NOW, options, &PROVIDERS)
}

fn strict() -> VerifyOptions {
    VerifyOptions { revocation: Revocation::Strict, ..VerifyOptions::default() }
}

#[test]
fn a_valid_path_leads_to_the_root() {
    let moon = verify(&store(), data!("moon.pem"), &VerifyOptions::default()).unwrap();
    let issuers: Vec<_> = moon.issuers().collect();
    assert_eq!(issuers, [cert(data!("sub.pem")), cert(data!("root.pem"))]);
    assert_eq!(
        (moon.der(), moon.public_key().kind().to_string()),
        (&cert(data!("moon.pem"))[..], "Ed25519".into())
    );
}

#[test]
fn a_path_needs_its_root_and_intermediate_ca() {
    let none = TrustStore::new(StoreLimits::default());
    assert_eq!(
        verify(&none, data!("moon.pem"), &VerifyOptions::default()).err(),
        Some(CertFault::UnknownIssuer)
    );
    let (moon, sub) = (cert(data!("moon.pem")), cert(data!("sub.pem")));
    let alone = |store: &TrustStore| store.verify(&[&moon], NOW, &VerifyOptions::default(), &PROVIDERS).err();
    assert_eq!(alone(&store()), Some(CertFault::UnknownIssuer));
    let mut knows = store();
    knows.add_intermediate(&sub).unwrap();
    assert_eq!(alone(&knows), None);
    // A CA that is only known, but not a root, is not trusted.
    let mut trusts_nobody = TrustStore::new(StoreLimits::default());
    trusts_nobody.add_intermediate(&cert(data!("root.pem"))).unwrap();
    assert_eq!(
        verify(&trusts_nobody, data!("moon.pem"), &VerifyOptions::default()).err(),
        Some(CertFault::UnknownIssuer)
    );
    assert_eq!(store().verify(&[], NOW, &VerifyOptions::default(), &PROVIDERS).err(), Some(CertFault::Empty));
}

#[test]
fn a_peer_certificate_is_not_accepted_as_ca() {
    let chain = [cert(data!("below.pem")), cert(data!("sun.pem")), cert(data!("sub.pem"))];
    let chain: Vec<_> = chain.iter().map(Vec::as_slice).collect();
    assert_eq!(
        store().verify(&chain, NOW, &VerifyOptions::default(), &PROVIDERS).err(),
        Some(CertFault::NotCa)
    );
    // Also not as a root.
    let mut trusts_sun = store();
    trusts_sun.add_root(chain[1]).unwrap();
    assert_eq!(
        trusts_sun.verify(&chain, NOW, &VerifyOptions::default(), &PROVIDERS).err(),
        Some(CertFault::NotCa)
    );
}

#[test]
fn the_search_for_a_path_is_bounded() {
    let (mut moon, sub) = (cert(data!("moon.pem")), cert(data!("sub.pem")));
    *moon.last_mut().unwrap() ^= 1;
    // Many possible issuers, because their own signatures are verified later.
    let similar = |last: usize| {
        let mut sub = sub.clone();
        *sub.last_mut().unwrap() = last as u8;
        sub
    };
    for (count, fault) in [(63, CertFault::Signature(SignatureError::Invalid)), (100, CertFault::WorkLimit)] {
        let subs: Vec<_> = (0..count).map(similar).collect();
        let chain: Vec<&[u8]> = [&moon[..]].into_iter().chain(subs.iter().map(Vec::as_slice)).collect();
        let store = TrustStore::new(StoreLimits { chain: 200, ..StoreLimits::default() });
        assert_eq!(
            store.verify(&chain, NOW, &VerifyOptions::default(), &PROVIDERS).err(),
            Some(fault),
            "{count}"
        );
    }
}

#[test]
fn both_names_of_the_signature_algorithm_are_the_same() {
    let (mut moon, sub) = (cert(data!("moon.pem")), cert(data!("sub.pem")));
    let identifier = SignatureAlg::RsaPss(HashAlg::Sha256).algorithm_identifier();
    let at = moon.windows(identifier.len()).position(|at| at == identifier).unwrap();
    // Length of the salt, in the last byte.
    moon[at + identifier.len() - 1] -= 1;
    let verdict = store().verify(&[&moon, &sub], NOW, &VerifyOptions::default(), &PROVIDERS);
    assert_eq!(verdict.err(), Some(CertFault::Malformed));
}

#[test]
fn cve_2026_35331_an_excluded_name_in_capitals() {
    assert_eq!(
        verify(&store(), data!("evil.pem"), &VerifyOptions::default()).err(),
        Some(CertFault::NameConstraint)
    );
}

#[test]
fn purposes_times_and_depth() {
    assert_eq!(
        verify(&store(), data!("code.pem"), &VerifyOptions::default()).err(),
        Some(CertFault::ExtendedKeyUsage)
    );
    let chain = [cert(data!("moon.pem")), cert(data!("sub.pem"))];
    let at = |now| store().verify(&[&chain[0], &chain[1]], now, &VerifyOptions::default(), &PROVIDERS).err();
    assert_eq!(at(0), Some(CertFault::NotYetValid));
    assert_eq!(at(5_000_000_000), Some(CertFault::Expired));
    assert_eq!(at(u64::MAX), Some(CertFault::Expired));
    let flat = VerifyOptions { max_intermediates: 0, ..VerifyOptions::default() };
    assert_eq!(verify(&store(), data!("moon.pem"), &flat).err(), Some(CertFault::Depth));
    let strong = VerifyOptions {
        key_limits: KeyLimits { min_rsa_bits: 3072, ..KeyLimits::default() },
        ..VerifyOptions::default()
    };
    assert!(matches!(verify(&store(), data!("moon.pem"), &strong), Err(CertFault::Key(_))));
}

/// The chain is an Ed25519 key, signed with RSASSA-PSS by a key of 2048 bits, which is signed with ECDSA by
/// one on P-256.
#[test]
fn algorithm_policy_applies_to_the_whole_chain() {
    use HashAlg::{Sha256, Sha384, Sha512};
    let judged = |demands| {
        verify(
            &store(),
            data!("moon.pem"),
            &VerifyOptions { algorithms: demands, ..VerifyOptions::default() },
        )
        .err()
    };
    let keys = |rsa, ecdsa, ed25519| {
        judged(AlgorithmPolicy { keys: Some(KeyPolicy { rsa, ecdsa, ed25519 }), signatures: None })
    };
    assert_eq!(keys(Some(2048), Some(256), true), None);
    let not_wanted = |kind, bits, min_bits| Some(CertFault::KeyNotAllowed { kind, bits, min_bits });
    assert_eq!(keys(Some(4096), Some(256), true), not_wanted(KeyKind::Rsa, 2048, Some(4096)));
    assert_eq!(keys(None, Some(256), true), not_wanted(KeyKind::Rsa, 2048, None));
    assert_eq!(keys(Some(2048), Some(384), true), not_wanted(KeyKind::Ec(Curve::P256), 256, Some(384)));
    assert_eq!(keys(Some(2048), None, true), not_wanted(KeyKind::Ec(Curve::P256), 256, None));
    assert_eq!(keys(Some(2048), Some(256), false), not_wanted(KeyKind::Ed25519, 255, None));
    let schemes = |algs: &[SignatureAlg]| {
        judged(AlgorithmPolicy { signatures: Some(algs.iter().copied().collect()), keys: None })
    };
    let found: Vec<_> = SignatureAlg::ALL
        .into_iter()
        .filter(|alg| schemes(&[*alg, SignatureAlg::RsaPss(Sha256), SignatureAlg::Ecdsa(Sha384)]).is_some())
        .collect();
    assert_eq!(found, [], "the two algorithms of the chain are enough");
    for (algs, missing) in [
        (&[SignatureAlg::RsaPss(Sha256)][..], SignatureAlg::Ecdsa(Sha384)),
        (&[SignatureAlg::RsaPkcs1(Sha256), SignatureAlg::Ecdsa(Sha384)], SignatureAlg::RsaPss(Sha256)),
        (&[SignatureAlg::RsaPss(Sha512), SignatureAlg::Ecdsa(Sha512)], SignatureAlg::RsaPss(Sha256)),
        (&[], SignatureAlg::RsaPss(Sha256)),
    ] {
        assert_eq!(schemes(algs), Some(CertFault::SignatureNotAllowed(missing)), "{algs:?}");
    }
    // For a pinned certificate, only its own key counts.
    let moon = cert(data!("moon.pem"));
    let pinned = |keys| {
        let demands = AlgorithmPolicy { keys: Some(keys), signatures: Some(SignatureAlgs::default()) };
        VerifiedCert::pinned(&moon, NOW, &VerifyOptions { algorithms: demands, ..VerifyOptions::default() })
            .err()
    };
    assert_eq!(pinned(KeyPolicy { ed25519: true, ..KeyPolicy::default() }), None);
    assert_eq!(
        pinned(KeyPolicy { rsa: Some(0), ..KeyPolicy::default() }),
        not_wanted(KeyKind::Ed25519, 255, None)
    );
}

#[test]
fn sha1_requires_an_option() {
    let fault = CertFault::Signature(SignatureError::Sha1);
    assert_eq!(verify(&store(), data!("old.pem"), &VerifyOptions::default()).err(), Some(fault));
    let old = VerifyOptions { accept_sha1: true, ..VerifyOptions::default() };
    assert!(verify(&store(), data!("old.pem"), &old).is_ok());
}

/// Every bit of the certificate matters: most bits are signed, and the rest is the signature.
#[test]
fn a_certificate_with_a_changed_bit_is_rejected() {
    let (good, sub) = (cert(data!("moon.pem")), cert(data!("sub.pem")));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let verdict = store().verify(&[&bad, &sub], NOW, &VerifyOptions::default(), &PROVIDERS);
        assert!(verdict.is_err(), "a bit changed in byte {at}");
    }
    for cut in 0..good.len() {
        let verdict = store().verify(&[&good[..cut], &sub], NOW, &VerifyOptions::default(), &PROVIDERS);
        assert_eq!(verdict.err(), Some(CertFault::Malformed), "cut to {cut} bytes");
    }
}

#[test]
fn a_revoked_certificate_is_rejected() {
    let relaxed = VerifyOptions::default();
    // Without its CRL the status of sun is unknown.
    assert!(verify(&store(), data!("sun.pem"), &relaxed).is_ok());
    assert_eq!(verify(&with_crls(store()), data!("sun.pem"), &relaxed).err(), Some(CertFault::Revoked));
    assert_eq!(verify(&with_crls(store()), data!("sun.pem"), &strict()).err(), Some(CertFault::Revoked));
}

#[test]
fn revocation_policies_decide_whether_a_crl_is_required() {
    let uri = VerifyOptions { revocation: Revocation::IfUri, ..VerifyOptions::default() };
    assert_eq!(verify(&store(), data!("moon.pem"), &strict()).err(), Some(CertFault::RevocationUnknown));
    // Moon has a CRL distribution point, sun does not.
    assert_eq!(verify(&store(), data!("moon.pem"), &uri).err(), Some(CertFault::RevocationUnknown));
    assert!(verify(&store(), data!("sun.pem"), &uri).is_ok());
    assert!(verify(&with_crls(store()), data!("moon.pem"), &uri).is_ok());
    assert!(verify(&with_crls(store()), data!("moon.pem"), &strict()).is_ok());
    // The intermediate CA needs a CRL, too.
    let mut half = store();
    half.add_crl(&pem::crls(data!("sub.crl")).unwrap()[0]).unwrap();
    assert_eq!(verify(&half, data!("moon.pem"), &strict()).err(), Some(CertFault::RevocationUnknown));
}

#[test]
fn a_crl_is_valid_for_its_period() {
    let mut later = store();
    for text in [&data!("root.crl")[..], data!("sub-later.crl")] {
        later.add_crl(&pem::crls(text).unwrap()[0]).unwrap();
    }
    let at = |peer: &[u8], year: u64, options: &VerifyOptions| {
        let chain = [cert(peer), cert(data!("sub.pem"))];
        later.verify(&[&chain[0], &chain[1]], NOW + (year - 2027) * 31_557_600, options, &PROVIDERS).err()
    };
    let (moon, sun) = (&data!("moon.pem")[..], &data!("sun.pem")[..]);
    assert_eq!(at(moon, 2027, &strict()), Some(CertFault::RevocationUnknown));
    assert_eq!(at(sun, 2027, &VerifyOptions::default()), None);
    assert_eq!((at(moon, 2035, &strict()), at(sun, 2035, &strict())), (None, Some(CertFault::Revoked)));
    // A revoked certificate stays revoked, although the status of others is unknown.
    assert_eq!(at(moon, 2045, &strict()), Some(CertFault::RevocationUnknown));
    assert_eq!(at(sun, 2045, &VerifyOptions::default()), Some(CertFault::Revoked));
}

#[test]
fn a_crl_with_a_changed_bit_is_ignored() {
    let good = pem::crls(data!("sub.crl")).unwrap().remove(0);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let mut store = store();
        let _ = store.add_crl(&bad);
        assert!(
            verify(&store, data!("sun.pem"), &VerifyOptions::default()).is_ok(),
            "a bit changed in byte {at}"
        );
    }
}

/// Country, organization and common name: contents of OBJECT IDENTIFIERs.
const ATTRIBUTES: [&[u8]; 3] = [&[0x55, 4, 6], &[0x55, 4, 10], &[0x55, 4, 3]];

/// A name with string types as OpenSSL writes them: UTF8String except for the country.
fn dn(country: &str, organization: &str, common: &str) -> Vec<u8> {
    let parts = ATTRIBUTES.into_iter().zip([(0x13, country), (0x0C, organization), (0x0C, common)]);
    let rdns: Vec<u8> = parts
        .flat_map(|(oid, (tag, text))| {
            let attribute = [write(OID, &[oid]), write(tag, &[text.as_bytes()])].concat();
            write(0x31, &[&write(SEQUENCE, &[&attribute])])
        })
        .collect();
    write(SEQUENCE, &[&rdns])
}

#[test]
fn names_of_a_certificate() {
    let moon = verify(&store(), data!("moon.pem"), &VerifyOptions::default()).unwrap();
    let subject = dn("CH", "Casemate Test", "moon");
    let other = dn("ch", "casemate  TEST", "Other Name of Moon");
    for name in [
        PeerName::Dns("moon.casemate.test"),
        PeerName::Dns("MOON.casemate.test"),
        PeerName::Email("moon@GATE.casemate.test"),
        PeerName::Ip("192.0.2.1".parse().unwrap()),
        PeerName::Ip("2001:db8::1".parse().unwrap()),
        PeerName::Dn(&subject),
        PeerName::Dn(&other),
    ] {
        assert!(moon.has_name(&name), "{name:?}");
    }
    let sun = dn("CH", "Casemate Test", "sun");
    for name in [
        PeerName::Dns("moon"),
        PeerName::Dns("moon.casemate.test."),
        PeerName::Dns("sun.casemate.test"),
        PeerName::Dns("a.wild.casemate.test"),
        PeerName::Dns("*.wild.casemate.test"),
        PeerName::Dns(""),
        PeerName::Email("Moon@gate.casemate.test"),
        PeerName::Email("moon"),
        PeerName::Ip("192.0.2.2".parse().unwrap()),
        PeerName::Ip("::ffff:192.0.2.1".parse().unwrap()),
        PeerName::Dn(&sun),
        PeerName::Dn(&[0x30, 0]),
        PeerName::Dn(&[]),
    ] {
        assert!(!moon.has_name(&name), "{name:?}");
    }
    assert!(moon.subject_matches(&DnPattern::new(ATTRIBUTES.into_iter().zip(["CH", "*", "*"]))));
    assert!(!moon.subject_matches(&DnPattern::new(ATTRIBUTES.into_iter().zip(["CH", "*", "sun"]))));
}

fn key(text: &[u8]) -> Box<dyn SigningKey> {
    let der = pem::private_key(text).unwrap();
    let key = PrivateKey::from_der(der.expose(), KeyLimits::default()).unwrap();
    AWS_LC.signing_key(&key).unwrap()
}

#[test]
fn our_certificate_must_match_our_key() {
    let (moon, sub) = (cert(data!("moon.pem")), cert(data!("sub.pem")));
    let make = |certs: &[&[u8]], text: &[u8]| LocalCert::new(certs, key(text), KeyLimits::default());
    let own = make(&[&moon, &sub], data!("moon.key")).unwrap();
    assert_eq!(own.chain().collect::<Vec<_>>(), [&moon[..], &sub]);
    assert_eq!(own.subject(), dn("CH", "Casemate Test", "moon"));
    assert!(
        own.has_name(&PeerName::Dns("moon.casemate.test"))
            && !own.has_name(&PeerName::Dns("sun.casemate.test"))
    );
    assert_eq!(format!("{own:?}"), "LocalCert(2 certificates, Ed25519 key)");
    let mut rng = FixedRng::new(0);
    let signature = own.key().sign(SignatureAlg::Ed25519, b"octets", &mut rng).unwrap();
    assert_eq!((rng.public_draws(), rng.secret_draws()), (0, 0), "Ed25519 needs no random bytes");
    let peer = verify(&store(), data!("moon.pem"), &VerifyOptions::default()).unwrap();
    let check = |message| PROVIDERS.verify(SignatureAlg::Ed25519, peer.public_key(), message, &signature);
    assert_eq!((check(b"octets"), check(b"Octets")), (Ok(()), Err(SignatureError::Invalid)));
    assert_eq!(make(&[&moon], data!("sun.key")).err(), Some(LocalCertFault::KeyMismatch));
    assert_eq!(make(&[&sub, &moon], data!("moon.key")).err(), Some(LocalCertFault::KeyMismatch));
    assert_eq!(make(&[], data!("moon.key")).err(), Some(LocalCertFault::Certificate(CertFault::Empty)));
    let cut = &moon[..moon.len() - 1];
    assert_eq!(
        make(&[cut], data!("moon.key")).err(),
        Some(LocalCertFault::Certificate(CertFault::Malformed))
    );
    for text in [&data!("sub.key")[..], data!("sub-pkcs1.key")] {
        assert!(make(&[&sub], text).is_ok());
    }
}

/// The constraints and CRLs of the upper CA apply to the lower one.
#[test]
fn a_path_leads_to_the_highest_of_several_trusted_cas() {
    let (root, sub) = (cert(data!("root.pem")), cert(data!("sub.pem")));
    for order in [[&root, &sub], [&sub, &root]] {
        let mut both = TrustStore::new(StoreLimits::default());
        for ca in order {
            both.add_root(ca).unwrap();
        }
        let moon = verify(&both, data!("moon.pem"), &VerifyOptions::default()).unwrap();
        assert_eq!(moon.issuers().collect::<Vec<_>>(), [&sub, &root]);
    }
    let mut alone = TrustStore::new(StoreLimits::default());
    alone.add_root(&sub).unwrap();
    let moon = verify(&alone, data!("moon.pem"), &VerifyOptions::default()).unwrap();
    assert_eq!(moon.issuers().collect::<Vec<_>>(), [&sub]);
}

/// As with `cacerts` of strongSwan: the named CA must be on the path, which goes on to the root.
#[cfg(feature = "policies")]
#[test]
fn a_path_must_contain_a_required_ca() {
    let (root, sub, other) =
        (cert(data!("root.pem")), cert(data!("sub.pem")), data!("status/other.der").to_vec());
    let requiring = |required: &[u8], trusted: &[&[u8]]| {
        let mut store = TrustStore::new(StoreLimits::default());
        store.add_required_root(required).unwrap();
        trusted.iter().for_each(|ca| store.add_root(ca).unwrap());
        assert_eq!(store.accepted_authorities().collect::<Vec<_>>(), [required]);
        store
    };
    let path = |store: &TrustStore| {
        let found = verify(store, data!("moon.pem"), &VerifyOptions::default());
        found.map(|moon| moon.issuers().map(<[u8]>::to_vec).collect::<Vec<_>>())
    };
    assert_eq!(path(&requiring(&sub, &[&root])), Ok(vec![sub.clone(), root.clone()]));
    assert_eq!(path(&requiring(&sub, &[&other])), Ok(vec![sub.clone()]), "the CA above is not trusted");
    assert_eq!(path(&requiring(&root, &[&sub])), Ok(vec![sub.clone(), root.clone()]));
    assert_eq!(path(&requiring(&other, &[&root, &sub])), Err(CertFault::UnknownIssuer));
    // The CRLs of the upper CA are required, too.
    let mut store = requiring(&sub, &[&root]);
    store.add_crl(&pem::crls(data!("sub.crl")).unwrap()[0]).unwrap();
    let strictly = |store: &TrustStore| verify(store, data!("moon.pem"), &strict()).map(drop);
    assert_eq!(strictly(&store), Err(CertFault::RevocationUnknown));
    store.add_crl(&pem::crls(data!("root.crl")).unwrap()[0]).unwrap();
    assert_eq!(strictly(&store), Ok(()));
}

#[test]
fn certreq_names_a_ca_by_its_key_hash() {
    // openssl x509 -in root.pem -noout -pubkey | openssl pkey -pubin -outform DER | sha1sum
    let hash = store().certificate_authorities(&PROVIDERS);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "263a0812bd60e447a6c9127c2a52db101a6e3055");
    assert!(TrustStore::new(StoreLimits::default()).certificate_authorities(&PROVIDERS).is_empty());
}

#[test]
fn a_store_enforces_its_limits() {
    let limits = StoreLimits { roots: 1, intermediates: 0, crls: 0, chain: 1, ..StoreLimits::default() };
    let (root, sub) = (cert(data!("root.pem")), cert(data!("sub.pem")));
    let mut store = TrustStore::new(limits);
    assert_eq!((store.add_root(&root), store.add_root(&root)), (Ok(()), Ok(())));
    assert_eq!(store.accepted_authorities().count(), 1);
    assert_eq!(store.add_root(&sub), Err(CertFault::TooLarge));
    assert_eq!(store.add_intermediate(&sub), Err(CertFault::TooLarge));
    assert_eq!(store.add_crl(&pem::crls(data!("sub.crl")).unwrap()[0]), Err(CertFault::TooLarge));
    assert_eq!(verify(&store, data!("moon.pem"), &VerifyOptions::default()).err(), Some(CertFault::TooLarge));
    let mut small =
        TrustStore::new(StoreLimits { certificate_len: 100, crl_len: 100, ..StoreLimits::default() });
    assert_eq!(small.add_root(&root), Err(CertFault::TooLarge));
    assert_eq!(small.add_crl(&pem::crls(data!("sub.crl")).unwrap()[0]), Err(CertFault::TooLarge));
    assert_eq!(
        small.verify(&[&root], NOW, &VerifyOptions::default(), &PROVIDERS).err(),
        Some(CertFault::TooLarge)
    );
}

#[test]
fn pem_files() {
    use pem::PemFault;
    let both =
        [&b"text\n"[..], data!("moon.pem"), b"more text\n", data!("sub.pem"), data!("sub.crl")].concat();
    assert_eq!(pem::certificates(&both).unwrap(), [cert(data!("moon.pem")), cert(data!("sub.pem"))]);
    assert_eq!(pem::crls(&both).map(|crls| crls.len()), Ok(1));
    let missing = |expected, found| Some(PemFault::Missing { expected, found });
    assert_eq!(pem::private_key(&both).err(), missing("PRIVATE KEY", Some("CERTIFICATE")));
    assert_eq!(pem::certificates(data!("moon.key")).err(), missing("CERTIFICATE", Some("PRIVATE KEY")));
    assert_eq!(pem::certificates(b"").err(), missing("CERTIFICATE", None));
    assert_eq!(pem::crls(b"-----BEGIN ODD-----\n").err(), Some(PemFault::Malformed));
    let twice = [&data!("moon.key")[..], data!("sun.key")].concat();
    assert_eq!(pem::private_key(&twice).err(), Some(PemFault::MultipleKeys));
    let cut = &data!("moon.pem")[..300];
    assert_eq!(pem::certificates(cut), Err(PemFault::Malformed));
}
