//! PEM files.

use super::data;
use crate::Target;
use casemate_pki::pem;

pub(crate) const TARGET: Target = Target {
    name: "pem",
    about: "PEM files: what is found is not nothing",
    max_len: 4_000,
    run,
    seeds,
    words: &[
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----",
    ],
};

fn run(bytes: &[u8]) {
    for found in [pem::certificates(bytes), pem::crls(bytes)] {
        assert!(found.is_err() || found.is_ok_and(|found| !found.is_empty()));
    }
    let _ = (pem::private_key(bytes), pem::public_key(bytes));
}

fn seeds() -> Vec<Vec<u8>> {
    let files = [&data!("moon.pem")[..], data!("sub.crl"), data!("moon.key"), data!("sub-pkcs1.key")];
    files.map(<[u8]>::to_vec).into()
}
