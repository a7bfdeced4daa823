//! The CRLs that were read from files, to name the one that revokes a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A CRL with its file.
#[derive(Debug)]
pub(crate) struct CrlFile {
    pub(crate) path: PathBuf,
    pub(crate) der: Vec<u8>,
}

/// All CRLs of a configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct CrlFiles(Arc<[CrlFile]>);

impl CrlFiles {
    pub(crate) fn new(files: impl Iterator<Item = CrlFile>) -> Self {
        Self(files.collect())
    }

    /// The file of the first CRL that lists a certificate, both in DER. Signatures are not verified: whether
    /// the certificate is revoked is known already.
    pub(crate) fn listing(&self, cert: &[u8]) -> Option<&Path> {
        let lists = |file: &&CrlFile| casemate_pki::is_listed(&file.der, cert);
        self.0.iter().find(lists).map(|file| file.path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! data {
        ($name:literal) => {
            include_bytes!(concat!("../../../../core/pki/tests/data/status/", $name)).to_vec()
        };
    }

    #[test]
    fn the_file_that_lists_a_certificate_is_named() {
        let files = [("x509crl/other.crl", data!("other.crl")), ("x509crl/ca.crl", data!("crl.crl"))];
        let files = files.map(|(path, der)| CrlFile { path: path.into(), der });
        let files = CrlFiles::new(files.into_iter());
        assert_eq!(files.listing(&data!("revoked.der")), Some(Path::new("x509crl/ca.crl")));
        assert_eq!(files.listing(&data!("good.der")), None);
    }
}
