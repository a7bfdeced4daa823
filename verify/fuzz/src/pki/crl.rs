//! CRLs, about a path that is true.

use super::{Credulous, NOW, data, moon, root, sub};
use crate::Target;
use casemate_crypto::Providers;
use casemate_pki::{CertFault, Options, Revocation, StoreLimits, TrustStore, pem};

pub(crate) const TARGET: Target = Target {
    name: "crl",
    about: "CRLs with signatures that always hold: they may only refuse a path, never make one",
    max_len: 2_000,
    run,
    seeds,
    words: &[],
};

fn run(bytes: &[u8]) {
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&root()).unwrap();
    let _ = store.add_crl(bytes);
    let verify = |revocation| {
        let options = Options { revocation, ..Options::default() };
        store.verify(&[&moon(), &sub()], NOW, &options, &Providers(&[&Credulous])).map(|_| ())
    };
    let relaxed = verify(Revocation::Relaxed);
    assert!(matches!(relaxed, Ok(()) | Err(CertFault::Revoked)), "{relaxed:?}");
    // The CA and its root have two CRLs; one alone is never enough.
    let strict = verify(Revocation::Strict);
    assert!(matches!(strict, Err(CertFault::Revoked | CertFault::RevocationUnknown)), "{strict:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    [&data!("root.crl")[..], data!("sub.crl")].map(|text| pem::crls(text).unwrap().remove(0)).into()
}
