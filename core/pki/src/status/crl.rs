//! A CRL that says whether a certificate is revoked (RFC 5280 section 6.3).

use super::to_unix;
use super::{CLOCK_SKEW, CertStatus, IssuedCert, Parsed, Signed, StatusAnswer, StatusFault, StatusVerifier};
use crate::crl::Crl;

impl StatusVerifier<'_> {
    /// Verifies a CRL in DER, and looks up a certificate in it. A CRL that has expired still revokes the
    /// certificates that it lists; about others it says nothing.
    pub fn verify_crl(&self, issued: IssuedCert<'_>, der: &[u8]) -> Result<StatusAnswer, StatusFault> {
        let Parsed { cert, issuer } = Parsed::new(issued)?;
        let crl = Crl::parse(der)?;
        if !crl.check_entries()? || !crl.covers(&cert) {
            return Err(StatusFault::OtherScope);
        }
        if !issuer.extensions.key_usage.is_none_or(|usage| usage.may_sign_crls()) {
            return Err(StatusFault::KeyUsage);
        }
        let Crl { tbs, algorithm, signature, .. } = crl;
        self.check_signature(&self.key(&issuer)?, Signed { content: tbs, algorithm, signature })?;
        if crl.this_update > self.now().saturating_add(CLOCK_SKEW) {
            return Err(StatusFault::NotYetValid);
        }
        let valid_until = to_unix(crl.next_update.unwrap_or_default());
        if crl.lists(cert.serial) {
            return Ok(StatusAnswer { status: CertStatus::Revoked, valid_until });
        }
        match valid_until >= self.now {
            true => Ok(StatusAnswer { status: CertStatus::Good, valid_until }),
            false => Err(StatusFault::Stale),
        }
    }
}
