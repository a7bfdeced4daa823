//! Key exchange: primes of the MODP groups, and shared secrets with leading zeros.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{KexMethod, Provider, Rng, SecretBytes};
use casemate_rustcrypto::RUSTCRYPTO;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// Maximum number of private values to try. That many failures in a row occur once in 10^14 runs.
const MAX_TRIES: u16 = 8_192;

/// A random source that always returns the same private value.
struct Private(u16);

impl Rng for Private {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        out.fill(0x25);
        let [high, low] = self.0.to_be_bytes();
        // Not at the ends: Curve25519 and the length of P-521 change bits there.
        out.iter_mut().skip(8).zip([high, low]).for_each(|(to, from)| *to = from);
    }
}

fn public(provider: &dyn Provider, method: KexMethod, private: u16) -> Vec<u8> {
    provider.kex(method, &mut Private(private)).unwrap().public().to_vec()
}

fn secret(provider: &dyn Provider, method: KexMethod, private: u16, peer: &[u8]) -> SecretBytes {
    provider.kex(method, &mut Private(private)).unwrap().agree(peer).unwrap()
}

/// Shared secrets with leading zero bytes (one in 256) have the same length as the others (RFC 7296 section
/// 2.14, RFC 5903 section 7). VPP commit 336eac8: big numbers without leading zeros led to other keys than
/// the peer's.
fn check(method: KexMethod) {
    let peer = public(&AWS_LC, method, u16::MAX);
    let found =
        (0..MAX_TRIES).find(|private| secret(&AWS_LC, method, *private, &peer).expose().starts_with(&[0]));
    let private = found.unwrap_or_else(|| panic!("{method}: no secret begins with zero"));
    let own = public(&AWS_LC, method, private);
    let expected = secret(&AWS_LC, method, private, &peer);
    assert_eq!(expected.len(), method.shared_len(), "{method}");
    for provider in [&AWS_LC as &dyn Provider, &RUSTCRYPTO] {
        let name = provider.name();
        assert!(secret(provider, method, private, &peer) == expected, "{method} of {name}");
        assert!(secret(provider, method, u16::MAX, &own) == expected, "{method} of {name}, the other side");
    }
}

#[test]
fn vpp_336eac8_secrets_of_modp_groups_keep_their_zeros() {
    [KexMethod::Modp1536, KexMethod::Modp2048, KexMethod::Modp3072].into_iter().for_each(check);
}

#[test]
fn vpp_336eac8_secrets_of_curves_keep_their_zeros() {
    [KexMethod::EcpP256, KexMethod::EcpP384, KexMethod::EcpP521, KexMethod::X25519]
        .into_iter()
        .for_each(check);
}

/// The groups with their primes, from the texts of RFC 2409 and RFC 3526.
fn printed() -> Vec<(usize, Vec<u8>)> {
    let mut bits = 0;
    let mut found = Vec::new();
    let texts = [include_str!("../data/rfc/rfc2409.rsp"), include_str!("../data/rfc/rfc3526.rsp")];
    for (name, value) in texts.into_iter().flat_map(str::lines).filter_map(|l| l.split_once(" = ")) {
        match name {
            "Bits" => bits = value.parse().unwrap(),
            _ => found.push((bits, value)),
        }
    }
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    found.into_iter().map(|(bits, hex)| (bits, hex.as_bytes().chunks(2).map(byte).collect())).collect()
}

#[test]
fn primes_match_the_rfcs() {
    let named =
        KexMethod::ALL.into_iter().filter_map(|method| Some((method.public_len() * 8, method.modp_prime()?)));
    let named: Vec<_> = named.map(|(bits, prime)| (bits, prime.to_vec())).collect();
    assert_eq!(named.len(), 7);
    assert_eq!(named, printed());
}

/// Computes `base` to the power of `exponent` modulo the odd `modulus`.
fn power(base: u8, exponent: &BoxedUint, modulus: &BoxedUint) -> BoxedUint {
    let params = BoxedMontyParams::new_vartime(Odd::new(modulus.clone()).unwrap());
    let base = BoxedUint::from_be_slice(&[base], modulus.bits_precision()).unwrap();
    BoxedMontyForm::new(base, &params).pow(exponent).retrieve()
}

/// The primes are safe primes, and 2 generates the large subgroup.
#[test]
fn primes_are_safe_and_two_generates_the_large_subgroup() {
    for (bits, prime) in printed() {
        let p = BoxedUint::from_be_slice_vartime(&prime);
        let one = BoxedUint::one_with_precision(p.bits_precision());
        let q = p.wrapping_sub(&one) >> 1u32;
        // Euler's test of p with base 2, which also shows that 2 is a square, and Fermat's test of q with
        // base 3.
        assert_eq!(power(2, &q, &p), one, "2 to the power of (p - 1) / 2, {bits} bits");
        assert_eq!(power(3, &q.wrapping_sub(&one), &q), one, "3 to the power of q - 1, {bits} bits");
    }
}
