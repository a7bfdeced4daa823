//! Who may sign an OCSP response about a certificate (RFC 6960 section 4.2.2.2).

use super::{Signed, StatusFault, StatusVerifier, key_hash};
use crate::certificate::Cert;
use crate::dn;
use casemate_crypto::der::{Malformed, OCTET_STRING, Reader, SEQUENCE, Value};
use casemate_crypto::{HashAlg, Providers};

/// Maximum number of certificates in a response that are looked at.
const MAX_CERTS: usize = 8;

/// ResponderID.
pub(super) enum ResponderId<'a> {
    /// A complete Name.
    Name(&'a [u8]),
    /// SHA-1 hash of the key.
    Key(&'a [u8]),
}

impl<'a> ResponderId<'a> {
    pub(super) fn parse(value: Value<'a>) -> Result<Self, Malformed> {
        match value.tag {
            0xA1 => {
                dn::check(value.content)?;
                Ok(Self::Name(value.content))
            }
            0xA2 => Ok(Self::Key(Reader::only(OCTET_STRING, value.content)?.rest())),
            _ => Err(Malformed),
        }
    }

    fn is_of(&self, cert: &Cert<'_>, providers: &Providers<'_>) -> bool {
        match self {
            Self::Name(name) => dn::same_dn(name, cert.subject),
            Self::Key(hash) => {
                key_hash(cert, HashAlg::Sha1, providers).is_some_and(|of_cert| of_cert.as_slice() == *hash)
            }
        }
    }
}

impl StatusVerifier<'_> {
    /// Checks the signature of a response, and that its signer may say what it says: the issuer itself, a
    /// responder whose certificate this issuer has signed for that purpose, or one that is trusted.
    pub(super) fn check_responder(
        &self,
        issuer: &Cert<'_>,
        id: &ResponderId<'_>,
        signed: Signed<'_>,
        certs: &[u8],
        trusted: &[&[u8]],
    ) -> Result<(), StatusFault> {
        if id.is_of(issuer, self.providers) {
            return self.check_signature(&self.key(issuer)?, signed);
        }
        let configured = trusted.iter().filter_map(|der| Cert::parse(der).ok());
        if let Some(responder) = { configured }.find(|cert| id.is_of(cert, self.providers)) {
            self.check_validity(&responder)?;
            return self.check_signature(&self.key(&responder)?, signed);
        }
        let mut list = Reader::new(certs);
        for _ in 0..MAX_CERTS {
            let Ok(der) = list.read_any() else { break };
            let Ok(responder) = Cert::parse(der.whole) else { continue };
            if id.is_of(&responder, self.providers) {
                self.check_delegation(issuer, &responder)?;
                return self.check_signature(&self.key(&responder)?, signed);
            }
        }
        Err(StatusFault::Signer)
    }

    /// Checks that the issuer has authorized a responder. The revocation of the responder itself is not
    /// checked: its certificate is short-lived or contains id-pkix-ocsp-nocheck (RFC 6960 section
    /// 4.2.2.2.1).
    fn check_delegation(&self, issuer: &Cert<'_>, responder: &Cert<'_>) -> Result<(), StatusFault> {
        let extensions = &responder.extensions;
        let may_sign = extensions.key_usage.is_none_or(|usage| usage.may_sign());
        if !extensions.signs_ocsp || !may_sign || !dn::same_dn(responder.issuer, issuer.subject) {
            return Err(StatusFault::Signer);
        }
        self.check_validity(responder)?;
        let Cert { tbs, algorithm, signature, .. } = *responder;
        self.check_signature(&self.key(issuer)?, Signed { content: tbs, algorithm, signature })
    }

    fn check_validity(&self, responder: &Cert<'_>) -> Result<(), StatusFault> {
        let is_valid = (responder.not_before..=responder.not_after).contains(&self.now());
        match is_valid && !responder.extensions.unknown_critical {
            true => Ok(()),
            false => Err(StatusFault::Signer),
        }
    }
}

/// Whether a list of purposes, the content of extendedKeyUsage, contains id-kp-OCSPSigning.
pub(crate) fn has_ocsp_signing(value: &[u8]) -> bool {
    const OCSP_SIGNING: [u8; 8] = [0x2B, 6, 1, 5, 5, 7, 3, 9];
    let mut purposes = Reader::only(SEQUENCE, value).unwrap_or(Reader::new(&[]));
    while let Ok(purpose) = purposes.read_any() {
        if purpose.content == OCSP_SIGNING {
            return true;
        }
    }
    false
}
