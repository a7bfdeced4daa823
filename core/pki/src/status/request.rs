//! OCSP requests (RFC 6960 section 4.1) and their nonce (RFC 8954).

use super::{IssuedCert, Parsed, StatusFault, StatusVerifier, key_hash};
use alloc::vec::Vec;
use casemate_crypto::HashAlg;
use casemate_crypto::der::{INTEGER, NULL, OCTET_STRING, OID, SEQUENCE, write};

/// id-pkix-ocsp-nonce, as an OBJECT IDENTIFIER's content.
pub(super) const NONCE: [u8; 9] = [0x2B, 6, 1, 5, 5, 7, 48, 1, 2];
/// id-sha1 and id-sha256.
pub(super) const SHA1: [u8; 5] = [0x2B, 14, 3, 2, 26];
pub(super) const SHA256: [u8; 9] = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// Length of a nonce in bytes. RFC 8954 section 2.1: 32 bytes are recommended.
pub const NONCE_LEN: usize = 32;

/// Random bytes by which the response to a request is recognized.
pub type OcspNonce = [u8; NONCE_LEN];

impl StatusVerifier<'_> {
    /// Creates a request for the status of one certificate, unsigned, in DER.
    ///
    /// CertID has SHA-1 hashes, which every responder supports (RFC 5019 section 2.1.1) and which protect
    /// nothing: the response is signed and names the certificate again.
    pub fn ocsp_request(&self, issued: IssuedCert<'_>, nonce: &OcspNonce) -> Result<Vec<u8>, StatusFault> {
        let Parsed { cert, issuer } = Parsed::new(issued)?;
        let hashed = |alg| {
            let name = self.providers.hash(alg, &[issuer.subject])?;
            Some((name, key_hash(&issuer, alg, self.providers)?))
        };
        let sha1 = hashed(HashAlg::Sha1).map(|hashes| (&SHA1[..], hashes));
        let found = sha1.or_else(|| hashed(HashAlg::Sha256).map(|hashes| (&SHA256[..], hashes)));
        let (oid, (name, key)) = found.ok_or(StatusFault::Hash)?;
        let alg = write(SEQUENCE, &[&write(OID, &[oid]), &write(NULL, &[])]);
        let (name, key) = (write(OCTET_STRING, &[name.as_slice()]), write(OCTET_STRING, &[key.as_slice()]));
        let cert_id = write(SEQUENCE, &[&alg, &name, &key, &write(INTEGER, &[cert.serial])]);
        let list = write(SEQUENCE, &[&write(SEQUENCE, &[&cert_id])]);
        // The value of the extension is an OCTET STRING inside the OCTET STRING of every extension.
        let value = write(OCTET_STRING, &[&write(OCTET_STRING, &[nonce])]);
        let extensions = write(SEQUENCE, &[&write(SEQUENCE, &[&write(OID, &[&NONCE]), &value])]);
        let tbs = write(SEQUENCE, &[&list, &write(0xA2, &[&extensions])]);
        Ok(write(SEQUENCE, &[&tbs]))
    }
}
