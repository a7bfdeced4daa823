//! Certificates, alone and as a path: the peer's, with any CA above it.

use super::{Credulous, NOW, moon, root, sub};
use crate::Target;
use casemate_crypto::Providers;
use casemate_pki::{DnPattern, Options, PeerName, StoreLimits, TrustStore};
use std::net::Ipv4Addr;

pub(crate) const TARGET: Target = Target {
    name: "certificate",
    about: "Certificates as a peer's, as a CA and as a root, with signatures that always hold",
    max_len: 4_000,
    run,
    seeds,
    words: &[],
};

/// A length of two bytes, the peer's certificate of that length, and a CA.
fn run(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk() else { return };
    let (peer, ca) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let mut store = TrustStore::new(StoreLimits::default());
    let is_certificate = store.add_root(ca).is_ok();
    assert_eq!(store.roots().count(), usize::from(is_certificate));
    verify(&store, &[peer, ca]);
    // As a CA between the peer and a root that is true.
    let mut store = TrustStore::new(StoreLimits::default());
    store.add_root(&root()).unwrap();
    verify(&store, &[peer, ca]);
}

fn verify(store: &TrustStore, chain: &[&[u8]]) {
    for accept_sha1 in [false, true] {
        let options = Options { accept_sha1, ..Options::default() };
        let Ok(found) = store.verify(chain, NOW, &options, &Providers(&[&Credulous])) else { continue };
        assert_eq!(found.der(), chain[0]);
        // The path ends in a root.
        assert!(store.roots().any(|root| Some(root) == found.issuers().last()));
        for name in [
            PeerName::Dns("moon.casemate.test"),
            PeerName::Email("moon@gate.casemate.test"),
            PeerName::Ip(Ipv4Addr::new(192, 0, 2, 1).into()),
            PeerName::Dn(chain[0]),
        ] {
            found.is_named(&name);
        }
        found.is_like(&DnPattern::new([(&[0x55, 4, 6][..], "*")]));
        assert!(!found.is_named(&PeerName::Dns("")) && !found.is_named(&PeerName::Dn(&[0x30, 0])));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let input = |peer: &[u8], ca: &[u8]| [&(peer.len() as u16).to_be_bytes()[..], peer, ca].concat();
    vec![input(&moon(), &sub()), input(&moon(), &root()), input(&sub(), &root()), input(&root(), &root())]
}
