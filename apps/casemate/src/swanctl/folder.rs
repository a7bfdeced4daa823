//! The folders of certificates and keys beside a configuration. Whatever lies in them is loaded, as swanctl(8) does it.

use super::files::Host;
use super::problem::Place;
use super::schema::Problems;
use std::path::{Path, PathBuf};

/// Files to load, by what is in them. In each list they are in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// Certificates of end entities: `x509`.
    pub certs: Vec<PathBuf>,
    /// Certificates of authorities, which are trusted: `x509ca`.
    pub cacerts: Vec<PathBuf>,
    /// Lists of revoked certificates: `x509crl`.
    pub crls: Vec<PathBuf>,
    /// Public keys without a certificate: `pubkey`.
    pub pubkeys: Vec<PathBuf>,
    /// Private keys: `private`, `rsa`, `ecdsa` and `pkcs8`.
    pub private_keys: Vec<PathBuf>,
}

/// Folders that strongSwan loads too, and why there is nothing to do with them here.
const REFUSED: [(&str, &str); 5] = [
    ("pkcs12", "PKCS #12 containers are not read"),
    ("x509ac", "attribute certificates are not implemented"),
    ("x509aa", "attribute certificates are not implemented"),
    ("x509ocsp", "OCSP is not implemented"),
    ("bliss", "BLISS is not implemented"),
];

impl Folders {
    /// What lies in the folders of `directory`. A folder that is not there is empty.
    pub(super) fn list(directory: &Path, host: &dyn Host, start: &Place, problems: &Problems) -> Self {
        let wrong = |folder: &str, why: &str| {
            problems.wrong(start, format!("{}: {why}", directory.join(folder).display()));
        };
        let files = |folder: &str| {
            host.matching(&directory.join(folder), "*").unwrap_or_else(|error| {
                wrong(folder, &error.to_string());
                Vec::new()
            })
        };
        for (folder, why) in REFUSED {
            if !files(folder).is_empty() {
                wrong(folder, &format!("{why}; an empty folder was expected"));
            }
        }
        Self {
            certs: files("x509"),
            cacerts: files("x509ca"),
            crls: files("x509crl"),
            pubkeys: files("pubkey"),
            private_keys: ["private", "rsa", "ecdsa", "pkcs8"].into_iter().flat_map(files).collect(),
        }
    }
}
