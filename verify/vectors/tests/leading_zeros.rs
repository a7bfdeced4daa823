//! Shared secrets that begin with a zero byte, as one in 256 does, are as long as the others (RFC 7296 section 2.14, RFC 5903
//! section 7). VPP 336eac8: big numbers without their leading zeros gave other keys than the peer's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use casemate_aws_lc::AWS_LC;
use casemate_crypto::{KexMethod, Provider, Rng, SecretBytes};
use casemate_rustcrypto::RUSTCRYPTO;

/// Values without such a secret that are passed over at most. As many in a row come once in 10^14 runs.
const MOST: u16 = 8_192;

/// A private value, drawn as often as is wanted.
struct Private(u16);

impl Rng for Private {
    fn public(&mut self, out: &mut [u8]) {
        self.secret(out);
    }

    fn secret(&mut self, out: &mut [u8]) {
        out.fill(0x25);
        let [high, low] = self.0.to_be_bytes();
        // Not at an end: Curve25519 and the length of P-521 change bits there.
        out.iter_mut().skip(8).zip([high, low]).for_each(|(to, from)| *to = from);
    }
}

fn public(provider: &dyn Provider, method: KexMethod, private: u16) -> Vec<u8> {
    provider.kex(method, &mut Private(private)).unwrap().public().to_vec()
}

fn secret(provider: &dyn Provider, method: KexMethod, private: u16, peer: &[u8]) -> SecretBytes {
    provider.kex(method, &mut Private(private)).unwrap().agree(peer).unwrap()
}

fn check(method: KexMethod) {
    let peer = public(&AWS_LC, method, u16::MAX);
    let found = (0..MOST).find(|private| secret(&AWS_LC, method, *private, &peer).expose().starts_with(&[0]));
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
