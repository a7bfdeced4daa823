//! Public and private keys, algorithm identifiers, and ECDSA signatures.

use super::{data, moon, root, sub};
use crate::Target;
use casemate_crypto::der::{self, Reader};
use casemate_crypto::{
    Curve, KeyLimits, PrivateKey, PublicKey, SignatureAlg, ecdsa_from_fixed, ecdsa_to_fixed,
};
use casemate_pki::pem;

pub(crate) const TARGET: Target = Target {
    name: "keys",
    about: "Public and private keys, algorithm identifiers, ECDSA signatures: what is read is written the same",
    max_len: 2_000,
    run,
    seeds,
    words: &[],
};

fn run(bytes: &[u8]) {
    let limits = KeyLimits { min_rsa_bits: 0, ..KeyLimits::default() };
    if let Ok(key) = PublicKey::from_spki(bytes, limits) {
        assert_eq!(key.spki(), bytes, "a key has another form");
        assert!(SignatureAlg::ALL.into_iter().any(|alg| alg.fits(key.kind())));
    }
    let points = Curve::ALL.map(|curve| PublicKey::ec(curve, bytes));
    for key in points.into_iter().chain([PublicKey::rsa(bytes, &[1, 0, 1], limits)]).flatten() {
        assert_eq!(PublicKey::from_spki(key.spki(), limits).as_ref(), Ok(&key));
    }
    if let Ok(PrivateKey::Rsa(key)) = PrivateKey::from_der(bytes, limits) {
        assert!(key.numbers().is_ok() && key.public().bits() >= 1024);
    }
    if let Ok(alg) = SignatureAlg::from_identifier(bytes) {
        assert_eq!(SignatureAlg::from_identifier(alg.identifier()), Ok(alg));
    }
    for curve in Curve::ALL {
        if let Ok(fixed) = ecdsa_to_fixed(curve, bytes) {
            assert_eq!(ecdsa_from_fixed(curve, &fixed).as_deref(), Ok(bytes), "a signature has another form");
        }
    }
    if let Ok(inside) = Reader::only(der::SEQUENCE, bytes) {
        assert_eq!(der::write(der::SEQUENCE, &[inside.rest()]), bytes, "a value has another form");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let keys = [&data!("moon.key")[..], data!("sun.key"), data!("sub.key"), data!("sub-pkcs1.key")];
    let mut seeds: Vec<_> = keys.map(|text| pem::private_key(text).unwrap().expose().to_vec()).into();
    seeds.extend(SignatureAlg::ALL.map(|alg| alg.identifier().to_vec()));
    seeds.extend(Curve::ALL.map(|curve| vec![4; 1 + 2 * curve.field_len()]));
    seeds.push(vec![0xFF; 128]);
    // Anything of a certificate may be a key: each SEQUENCE in it.
    for der in [root(), sub(), moon()] {
        let starts = (0..der.len()).filter(|at| der[*at] == der::SEQUENCE);
        seeds.extend(
            starts.filter_map(|at| Reader::new(&der[at..]).any().ok()).map(|value| value.whole.to_vec()),
        );
    }
    seeds
}
