//! Requirements of `casemate-crypto` on signing keys besides correct results, digests of several parts, and
//! signatures between two providers.

use crate::cavp::{Record, records};
use crate::check::{expect_eq, key};
use crate::differential::RandomInput;
use crate::report::{Family, Report};
use crate::signature::{OPENSSL, public};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{
    Curve, HashAlg, KeyError, KeyLimits, MAX_RSA_BITS, PrivateKey, Provider, PublicKey, PublicParts,
    SignatureAlg, SignatureError, SigningKey, ecdsa_to_fixed,
};
use casemate_test_support::TestRng;

/// Checks all kinds of keys in both file formats, and all hash functions of the provider.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let mut signatures = Family::new("contract/signature");
    for record in records(OPENSSL, "Spki") {
        for form in ["Pkcs8", "Traditional"] {
            let private = record.bytes(form);
            // Ed25519 has only one format.
            if private.is_empty() {
                continue;
            }
            let id = format!("{}, {form}", record.text("Key"));
            if let Some(result) = key(&mut signatures, UNSUPPORTED, signing_key(provider, &private)) {
                signatures.ran(&id, result.and_then(|key| check(provider, &*key, &record)));
            }
        }
    }
    bad_keys(provider, &mut signatures);
    largest_modulus(provider, &mut signatures);
    report.families.extend([signatures, hashes(provider)]);
}

const UNSUPPORTED: &str = "the provider does not have the algorithm";

fn signing_key(provider: &dyn Provider, der: &[u8]) -> Result<Box<dyn SigningKey>, KeyError> {
    provider.signing_key(&PrivateKey::from_der(der, KeyLimits::default()).unwrap())
}

fn check(provider: &dyn Provider, key: &dyn SigningKey, record: &Record) -> Result<(), String> {
    let known = public(&record.bytes("Spki"));
    expect_eq("public key", key.public_key().spki(), known.spki())?;
    let (rng, message) = (&mut TestRng::new(7), b"signed");
    for alg in SignatureAlg::ALL {
        let signed = key.sign(alg, message, rng);
        if !alg.accepts_key(known.kind()) {
            expect_eq("signing with another kind of key", &signed, &Err(SignatureError::WrongKey))?;
            let verdict = provider.verify(alg, &known, message, b"signature");
            expect_eq("verifying with another kind of key", &verdict, &Err(SignatureError::WrongKey))?;
            continue;
        }
        let signature = signed.map_err(|why| format!("{alg}: {why}"))?;
        expect_eq(&format!("verdict of {alg}"), &provider.verify(alg, &known, message, &signature), &Ok(()))?;
        corrupted(provider, alg, &known, message, &signature)?;
    }
    Ok(())
}

/// Checks that every failure of a verification is reported as a failure (iked commit 4b8f409).
fn corrupted(
    provider: &dyn Provider,
    alg: SignatureAlg,
    key: &PublicKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), String> {
    let rejected = |what: &str, alg, message: &[u8], signature: &[u8]| {
        let verdict = provider.verify(alg, key, message, signature);
        expect_eq(&format!("verdict of {alg}, {what}"), &verdict, &Err(SignatureError::Invalid))
    };
    for at in [0, signature.len() / 2, signature.len() - 1] {
        let mut flipped = signature.to_vec();
        flipped[at] ^= 1;
        rejected("a bit flipped in the signature", alg, message, &flipped)?;
    }
    rejected("another message", alg, b"signet", signature)?;
    rejected("a longer message", alg, b"signed ", signature)?;
    rejected("no message", alg, b"", signature)?;
    for (what, wrong) in [
        ("no signature", vec![]),
        ("a short signature", signature[1..].to_vec()),
        ("a cut signature", signature[..signature.len() - 1].to_vec()),
        ("a long signature", [signature, &[0]].concat()),
        ("zeros before the signature", [&[0], signature].concat()),
        ("zeros", vec![0; signature.len()]),
        ("ones", vec![0xFF; signature.len()]),
    ] {
        rejected(what, alg, message, &wrong)?;
    }
    if let PublicParts::Ec { curve, point, .. } = key.parts() {
        let curve = *curve;
        off_curve(provider, alg, curve, point, message, signature)?;
        let fixed = ecdsa_to_fixed(curve, signature).map_err(|why| why.to_string())?;
        rejected("r and s without DER", alg, message, &fixed)?;
    }
    let others = SignatureAlg::ALL.into_iter().filter(|other| *other != alg && other.accepts_key(key.kind()));
    for other in others {
        rejected("a signature of another algorithm", other, message, signature)?;
    }
    Ok(())
}

/// Checks that a key that is no point on its curve verifies no signature.
fn off_curve(
    provider: &dyn Provider,
    alg: SignatureAlg,
    curve: Curve,
    point: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), String> {
    let len = point.len();
    let [mut flipped, mut swapped, mut zero, mut ones] = [(); 4].map(|()| point.to_vec());
    flipped[len - 1] ^= 1;
    swapped[1..].rotate_left(curve.field_len());
    zero[1..].fill(0);
    ones[1..].fill(0xFF);
    for wrong in [flipped, swapped, zero, ones] {
        let key = PublicKey::ec(curve, &wrong).unwrap();
        let verdict = provider.verify(alg, &key, message, signature);
        expect_eq("verdict with a point off the curve", &verdict, &Err(SignatureError::Invalid))?;
    }
    Ok(())
}

/// Checks that the provider accepts the largest modulus, for which no signature is valid.
fn largest_modulus(provider: &dyn Provider, family: &mut Family) {
    let key = PublicKey::rsa(&[0xFF; MAX_RSA_BITS / 8], &[1, 0, 1], KeyLimits::default()).unwrap();
    for alg in [SignatureAlg::RsaPkcs1(HashAlg::Sha512), SignatureAlg::RsaPss(HashAlg::Sha512)] {
        match provider.verify(alg, &key, b"signed", &[0x7F; MAX_RSA_BITS / 8]) {
            Err(SignatureError::Unsupported) => family.skip(UNSUPPORTED),
            verdict => {
                family.ran(&alg.to_string(), expect_eq("verdict", &verdict, &Err(SignatureError::Invalid)))
            }
        }
    }
}

/// Checks that the provider rejects numbers that form no valid key, which only the provider can detect.
fn bad_keys(provider: &dyn Provider, family: &mut Family) {
    for record in records(OPENSSL, "Spki") {
        let (name, private) = (record.text("Key"), record.bytes("Traditional"));
        if !private.is_empty() && !matches!(signing_key(provider, &private), Err(KeyError::Unsupported)) {
            for (what, wrong) in wrong_numbers(&record, private) {
                let made = signing_key(provider, &wrong).err();
                family.ran(&format!("{name}, {what}"), expect_eq("key", &made, &Some(KeyError::Refused)));
            }
        }
    }
}

/// Variants of the private key with one number changed; all lengths are unchanged.
fn wrong_numbers(record: &Record, private: Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    let changed = |at: usize, to: &[u8]| {
        let mut wrong = private.clone();
        wrong[at..at + to.len()].copy_from_slice(to);
        wrong
    };
    match PrivateKey::from_der(&private, KeyLimits::default()).unwrap() {
        PrivateKey::Rsa(key) => {
            let numbers = key.numbers().unwrap();
            let last_of = |number: &[u8]| {
                private.windows(number.len()).position(|at| at == number).unwrap() + number.len() - 1
            };
            [("first prime", numbers.primes[0]), ("second prime", numbers.primes[1])]
                .map(|(what, number)| (what, changed(last_of(number), &[number.last().unwrap() ^ 2])))
                .into_iter()
                .chain([(
                    "modulus",
                    changed(last_of(numbers.modulus), &[numbers.modulus.last().unwrap() ^ 2]),
                )])
                .collect()
        }
        // The private scalar follows the version and its own header.
        PrivateKey::Ec { curve, .. } => {
            let at = private.windows(4).position(|at| at[..3] == [2, 1, 1] && at[3] == 4).unwrap() + 5;
            let len = curve.field_len();
            assert_eq!(usize::from(private[at - 1]), len, "{}", record.line);
            vec![("zero", changed(at, &vec![0; len])), ("above the order", changed(at, &vec![0xFF; len]))]
        }
        _ => panic!("no other kind has a traditional form"),
    }
}

/// The example "abc" of FIPS 180-4, in one part and in several parts.
fn hashes(provider: &dyn Provider) -> Family {
    let mut family = Family::new("fips/180-4");
    for (alg, abc) in [
        (HashAlg::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (HashAlg::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            HashAlg::Sha384,
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            HashAlg::Sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd\
             454d4423643ce80e2a9ac94fa54ca49f",
        ),
    ] {
        for parts in [&[&b"abc"[..]][..], &[b"a", b"bc"], &[b"", b"ab", b"", b"c", b""]] {
            let Some(digest) = provider.hash(alg, parts) else {
                family.skip(UNSUPPORTED);
                continue;
            };
            let hex: String = digest.as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
            family.ran(&alg.to_string(), expect_eq("digest", &hex[..], abc));
        }
    }
    family
}

/// Checks that each provider verifies signatures of the other one. One case is one message with an algorithm
/// that both support.
pub(crate) fn differential(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    const ROUNDS: usize = 3;
    let mut family = Family::new("differential/signature");
    for record in records(OPENSSL, "Spki") {
        let make = |provider: &dyn Provider| signing_key(provider, &record.bytes("Pkcs8"));
        let (Ok(by_a), Ok(by_b)) = (make(a), make(b)) else {
            family.skip("not in both providers");
            continue;
        };
        let fitting = SignatureAlg::ALL.into_iter().filter(|alg| alg.accepts_key(by_a.public_key().kind()));
        for (alg, _) in fitting.flat_map(|alg| (0..ROUNDS).map(move |round| (alg, round))) {
            let message = random.text();
            let mut crossed = |signer: &dyn SigningKey, verifier: &dyn Provider| {
                let signature = signer.sign(alg, &message, random).map_err(|why| why.to_string())?;
                let key = signer.public_key();
                expect_eq("verdict", &verifier.verify(alg, key, &message, &signature), &Ok(()))?;
                let mut forged = signature;
                random.flip_bit(&mut forged);
                let verdicts = [a, b].map(|provider| provider.verify(alg, key, &message, &forged));
                expect_eq("verdicts on a flipped bit", &verdicts, &[Err(SignatureError::Invalid); 2])
            };
            let result = crossed(&*by_a, b).and_then(|()| crossed(&*by_b, a));
            family.ran(&format!("{}, {alg}", record.text("Key")), result);
        }
    }
    family
}
