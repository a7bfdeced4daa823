//! PEM files, and distinguished names as text.

use super::data;
use crate::Target;
use casemate_pki::{DnPattern, dn_from_text, pem, same_dn};

pub(crate) const TARGET: Target = Target {
    name: "pki-text",
    about: "PEM files, and distinguished names as text: a name that is written is read and like itself",
    max_len: 4_000,
    run,
    seeds,
    words: &["-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", "emailAddress=", "CN=*", "DC="],
};

fn run(bytes: &[u8]) {
    for found in [pem::certificates(bytes), pem::crls(bytes)] {
        assert!(found.is_err() || found.is_ok_and(|found| !found.is_empty()));
    }
    let _ = pem::private_key(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (name, pattern) = (dn_from_text(text), DnPattern::from_text(text));
    assert_eq!(name.as_ref().err(), pattern.as_ref().err());
    if let (Ok(name), Ok(pattern)) = (name, pattern) {
        assert!(same_dn(&name, &name) && pattern.matches(&name), "{text}");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let files = [&data!("moon.pem")[..], data!("sub.crl"), data!("moon.key"), data!("sub-pkcs1.key")];
    let mut seeds: Vec<_> = files.map(<[u8]>::to_vec).into();
    seeds.extend(
        [&b"C=CH, O=strongSwan Project, CN=moon\\, the gate"[..], b"DC=test,E=a@b,CN=*"].map(<[u8]>::to_vec),
    );
    seeds
}
