//! Requirements of `casemate-crypto` on key exchanges besides correct results, and exchanges between two
//! providers.

use crate::check::{expect_eq, key};
use crate::kex::{ScriptedRng, exposed, rejected};
use crate::report::{Family, Report};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Provider};
use casemate_test_support::TestRng;

/// Checks all methods of the provider.
pub(crate) fn run(provider: &dyn Provider, report: &mut Report) {
    let mut family = Family::new("contract/kex");
    for method in KexMethod::ALL {
        let made = provider.kex(method, &mut ScriptedRng(&[&private(method, 1)]));
        if let Some(result) = key(&mut family, &format!("no {method}"), made) {
            let checked = result.and_then(|secret| {
                check(provider, method, secret)?;
                check_response(provider, method)
            });
            family.ran(&method.to_string(), checked);
        }
    }
    report.families.push(family);
}

fn private(method: KexMethod, first: u8) -> Vec<u8> {
    (0..method.private_len()).map(|at| first.wrapping_add((at * 37) as u8)).collect()
}

fn check(provider: &dyn Provider, method: KexMethod, secret: Box<dyn KexSecret>) -> Result<(), String> {
    let make = |bytes: &[&[u8]]| provider.kex(method, &mut ScriptedRng(bytes)).map_err(|why| why.to_string());
    let (one, other) = (private(method, 1), private(method, 2));
    expect_eq("length of the public value", &secret.public().len(), &method.public_len())?;
    let (public, peer) = (secret.public().to_vec(), make(&[&other])?);
    if !method.is_kem() {
        let from_peer = exposed(secret.agree(peer.public()));
        let len = from_peer.as_ref().map(Vec::len);
        expect_eq("length of the shared secret", &len, &Ok(method.shared_len()))?;
        expect_eq("shared secret of both", &from_peer, &exposed(peer.agree(&public)))?;
    }
    let expected = method.response_len();
    for given in [0, 1, expected - 1, expected + 1] {
        let length = KexError::Length { expected, given };
        rejected(make(&[&one])?, &vec![1; given], length)?;
    }
    for (value, why) in bad_values(method, &public) {
        rejected(make(&[&one])?, &value, why)?;
    }
    let zero = vec![0; method.private_len()];
    expect_eq(
        "key from zeros",
        &provider.kex(method, &mut ScriptedRng(&[&zero])).err(),
        &Some(KeyError::Refused),
    )?;
    let again = make(&[&zero, &one])?;
    expect_eq("public value of the second draw", again.public(), &public[..])?;
    if let KexMethod::EcpP256 | KexMethod::EcpP384 | KexMethod::EcpP521 = method {
        let again = make(&[&vec![0xFF; method.private_len()], &one])?;
        expect_eq("public value after a draw above the order", again.public(), &public[..])?;
    }
    Ok(())
}

/// Checks the responder's side.
fn check_response(provider: &dyn Provider, method: KexMethod) -> Result<(), String> {
    let (one, other) = (private(method, 1), randomness(method, 2));
    let make = || provider.kex(method, &mut ScriptedRng(&[&one])).map_err(|why| why.to_string());
    let respond = |peer: &[u8], bytes: &[&[u8]]| provider.kex_response(method, peer, &mut ScriptedRng(bytes));
    let public = make()?.public().to_vec();
    let response = respond(&public, &[&other]).map_err(|why| why.to_string())?;
    expect_eq("length of the response", &response.public.len(), &method.response_len())?;
    let (shared, of_responder) =
        (exposed(make()?.agree(&response.public)), response.shared.expose().to_vec());
    expect_eq("shared secret of the initiator", &shared, &Ok(of_responder))?;
    let expected = method.public_len();
    for given in [0, 1, expected - 1, expected + 1] {
        let why = respond(&vec![1; given], &[&other]).err();
        expect_eq("response to another length", &why, &Some(KexError::Length { expected, given }))?;
    }
    let bad = if method.is_kem() { unreduced(&public) } else { bad_values(method, &public) };
    for (value, why) in bad {
        expect_eq("response to a bad value", &respond(&value, &[&other]).err(), &Some(why))?;
    }
    let zero = vec![0; other.len()];
    let refused = respond(&public, &[&zero]).err();
    expect_eq("response from zeros", &refused, &Some(KexError::Key(KeyError::Refused)))?;
    let again = respond(&public, &[&zero, &other]).map_err(|why| why.to_string())?;
    expect_eq("response of the second draw", &again.public, &response.public)?;
    if !method.is_kem() {
        return Ok(());
    }
    // FIPS 203 section 6.3: a wrong ciphertext yields another secret, which depends on the ciphertext.
    let agree = |at: usize| {
        let mut wrong = response.public.clone();
        wrong[at] ^= 1;
        Ok::<_, String>(exposed(make()?.agree(&wrong)))
    };
    let (first, last) = (agree(0)?, agree(response.public.len() - 1)?);
    expect_eq("rejected without an error", &(first.is_ok(), last.is_ok()), &(true, true))?;
    let different = first != shared && last != shared && first != last;
    expect_eq("secrets of wrong ciphertexts differ", &different, &true)?;
    expect_eq("secret of the same wrong ciphertext", &agree(0)?, &first)
}

/// Bytes that the responder draws.
fn randomness(method: KexMethod, first: u8) -> Vec<u8> {
    let mut bytes = private(method, first);
    bytes.truncate(if method.is_kem() { 32 } else { bytes.len() });
    bytes
}

/// Encapsulation keys with a coefficient of 3329 or 4095 (FIPS 203 section 7.2: the modulus check), first or
/// last. Two coefficients of 12 bits have three bytes, and the last 32 bytes are no coefficients.
fn unreduced(public: &[u8]) -> Vec<(Vec<u8>, KexError)> {
    let with = |at: usize, coefficients: [u8; 3]| {
        let mut key = public.to_vec();
        key[at..at + 3].copy_from_slice(&coefficients);
        (key, KexError::NotReduced)
    };
    let last = public.len() - 32 - 3;
    vec![
        with(0, [0x01, 0x0D, 0]),
        with(0, [0xFF, 0x0F, 0]),
        with(last, [0, 0x10, 0xD0]),
        with(last, [0, 0xF0, 0xFF]),
    ]
}

/// Values of valid length that must be rejected. None for the ciphertexts of ML-KEM.
fn bad_values(method: KexMethod, public: &[u8]) -> Vec<(Vec<u8>, KexError)> {
    if method.is_kem() {
        return Vec::new();
    }
    let len = method.public_len();
    let low = |low: u8| [&vec![0; len - 1][..], &[low]].concat();
    if let Some(prime) = method.modp_prime() {
        let near = |by: i8| {
            let mut value = prime.to_vec();
            let (end, carry) = prime[len - 1].overflowing_add_signed(by);
            value[len - 1] = end;
            // The primes end in eight bytes of ones, so an overflow carries to the ninth byte from the end.
            if carry {
                value[len - 8..].fill(0);
                value[len - 9] += 1;
            }
            value
        };
        let values = vec![low(0), low(1), near(-1), near(0), near(1), vec![0xFF; len]];
        return values.into_iter().map(|value| (value, KexError::OutOfRange)).collect();
    }
    match method {
        KexMethod::X25519 | KexMethod::X448 => {
            // Little-endian. Zero, one and p - 1 have low order; p and p + 1 are non-canonical forms of zero
            // and one.
            let with_low = |low: u8, mut value: Vec<u8>| {
                value[0] = low;
                value
            };
            let mut values = vec![with_low(0, vec![0; len]), with_low(1, vec![0; len])];
            if method == KexMethod::X25519 {
                let below_2_255 = [&[0xFF; 31][..], &[0x7F]].concat();
                values.extend([0xEC, 0xED, 0xEE].map(|low| with_low(low, below_2_255.clone())));
            }
            values.into_iter().map(|value| (value, KexError::AllZero)).collect()
        }
        _ => {
            let mut off = public.to_vec();
            off[len - 1] ^= 1;
            let (x, y) = public.split_at(len / 2);
            let values = vec![off, [y, x].concat(), vec![0; len], low(1), vec![0xFF; len]];
            values.into_iter().map(|value| (value, KexError::NotOnCurve)).collect()
        }
    }
}

/// Runs exchanges between two providers. One case is one exchange with a method that both support.
pub(crate) fn differential(a: &dyn Provider, b: &dyn Provider, random: &mut TestRng) -> Family {
    const ROUNDS: usize = 4;
    let mut family = Family::new("differential/kex");
    for method in KexMethod::ALL {
        for round in 0..ROUNDS {
            let mut in_range = || {
                let mut private = random.bytes(method.private_len());
                // The orders of the Brainpool curves are above half of the largest value.
                if matches!(method, KexMethod::BrainpoolP256 | KexMethod::BrainpoolP384) {
                    private[0] &= 0x7F;
                }
                private
            };
            if method.is_kem() {
                let (seed, m) = (in_range(), random.bytes(32));
                if let Some(result) = encapsulate_in_both(a, b, method, &seed, &m) {
                    family.ran(&format!("{method}, round {round}"), result);
                } else {
                    family.skip("not in both providers");
                }
                continue;
            }
            let (one, other) = (in_range(), in_range());
            let make = |p: &dyn Provider, bytes: &[u8]| p.kex(method, &mut ScriptedRng(&[bytes]));
            match [make(a, &one), make(b, &one), make(a, &other), make(b, &other)] {
                [Ok(a_one), Ok(b_one), Ok(a_other), Ok(b_other)] => {
                    let result = exchange([a_one, b_one], [a_other, b_other]);
                    family.ran(&format!("{method}, round {round}"), result);
                }
                [Err(KeyError::Unsupported), ..] | [_, Err(KeyError::Unsupported), ..] => {
                    family.skip("not in both providers");
                }
                _ => family.ran(&method.to_string(), Err("a key was refused".into())),
            }
        }
    }
    family
}

/// One exchange with ML-KEM in both providers, each with the other and with itself, and one with a wrong
/// ciphertext. `None` if a provider does not support the method.
fn encapsulate_in_both(
    a: &dyn Provider,
    b: &dyn Provider,
    method: KexMethod,
    seed: &[u8],
    m: &[u8],
) -> Option<Result<(), String>> {
    let make = |p: &dyn Provider| match p.kex(method, &mut ScriptedRng(&[seed])) {
        Err(KeyError::Unsupported) => None,
        made => Some(made.map_err(|why| why.to_string())),
    };
    let (a_key, b_key, a_again, b_again) = (make(a)?, make(b)?, make(a)?, make(b)?);
    let check = || {
        let (a_key, b_key) = (a_key?, b_key?);
        expect_eq("encapsulation keys", a_key.public(), b_key.public())?;
        let respond = |p: &dyn Provider| {
            let response = p.kex_response(method, a_key.public(), &mut ScriptedRng(&[m]));
            response.map_err(|why| why.to_string())
        };
        let (from_a, from_b) = (respond(a)?, respond(b)?);
        expect_eq("ciphertexts", &from_a.public, &from_b.public)?;
        let shared = Ok(from_a.shared.expose().to_vec());
        expect_eq("encapsulated secrets", &Ok(from_b.shared.expose().to_vec()), &shared)?;
        expect_eq("secret that A decapsulates", &exposed(a_key.agree(&from_b.public)), &shared)?;
        expect_eq("secret that B decapsulates", &exposed(b_key.agree(&from_a.public)), &shared)?;
        let mut wrong = from_a.public;
        wrong[usize::from(m[0])] ^= 1 << (m[1] % 8);
        let (of_a, of_b) = (exposed(a_again?.agree(&wrong)), exposed(b_again?.agree(&wrong)));
        expect_eq("secrets of a wrong ciphertext", &of_a, &of_b)?;
        expect_eq("a wrong ciphertext yields another secret", &(of_a != shared), &true)
    };
    Some(check())
}

fn exchange(one: [Box<dyn KexSecret>; 2], other: [Box<dyn KexSecret>; 2]) -> Result<(), String> {
    expect_eq("public values", one[0].public(), one[1].public())?;
    expect_eq("the other's public values", other[0].public(), other[1].public())?;
    let (from, to) = (one[0].public().to_vec(), other[0].public().to_vec());
    let [a, b] = one.map(|secret| exposed(secret.agree(&to)));
    let [c, d] = other.map(|secret| exposed(secret.agree(&from)));
    expect_eq("shared secrets", &[&b, &c, &d], &[&a; 3])?;
    a.map(|_| ()).map_err(|why| why.to_string())
}
