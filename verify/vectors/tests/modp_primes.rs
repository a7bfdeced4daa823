//! The primes of the MODP groups: those of the RFC's text, and safe primes of which 2 generates the large subgroup.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use casemate_crypto::KexMethod;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// The groups with the primes printed in RFC 3526, brought into bytes.
fn printed() -> Vec<(usize, Vec<u8>)> {
    let mut bits = 0;
    let mut found = Vec::new();
    for (name, value) in include_str!("../data/rfc/rfc3526.rsp").lines().filter_map(|l| l.split_once(" = ")) {
        match name {
            "Bits" => bits = value.parse().unwrap(),
            _ => found.push((bits, value)),
        }
    }
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    found.into_iter().map(|(bits, hex)| (bits, hex.as_bytes().chunks(2).map(byte).collect())).collect()
}

#[test]
fn primes_are_those_of_rfc_3526() {
    let named =
        KexMethod::ALL.into_iter().filter_map(|method| Some((method.public_len() * 8, method.modp_prime()?)));
    let named: Vec<_> = named.map(|(bits, prime)| (bits, prime.to_vec())).collect();
    assert_eq!(named.len(), 6);
    assert_eq!(named, printed());
}

/// `base` to the power of `exponent` modulo `modulus`, which is odd.
fn power(base: u8, exponent: &BoxedUint, modulus: &BoxedUint) -> BoxedUint {
    let params = BoxedMontyParams::new_vartime(Odd::new(modulus.clone()).unwrap());
    let base = BoxedUint::from_be_slice(&[base], modulus.bits_precision()).unwrap();
    BoxedMontyForm::new(base, &params).pow(exponent).retrieve()
}

#[test]
fn primes_are_safe_and_two_generates_the_large_subgroup() {
    for (bits, prime) in printed() {
        let p = BoxedUint::from_be_slice_vartime(&prime);
        let one = BoxedUint::one_with_precision(p.bits_precision());
        let q = p.wrapping_sub(&one) >> 1u32;
        // Euler's test of p with base 2, where it says that 2 is a square, and Fermat's of q with 3.
        assert_eq!(power(2, &q, &p), one, "2 to the power of (p - 1) / 2, {bits} bits");
        assert_eq!(power(3, &q.wrapping_sub(&one), &q), one, "3 to the power of q - 1, {bits} bits");
    }
}
