//! Looks up the status of one certificate: asks its OCSP responders in order, then fetches CRLs.

use super::cache::FetchedFrom;
use super::http::{FetchFault, Origin, Query, fetch};
use super::uri::HttpUri;
use super::{CertKey, unix_time};
use casemate_pki::{
    CertStatus, IssuedCert, MAX_OCSP_LEN, NONCE_LEN, OcspNonce, StatusAnswer, StatusFault, StatusVerifier,
    StoreLimits,
};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Maximum length of all CRLs that are kept, in bytes.
const MAX_CRL_BYTES: usize = 64 << 20;
/// Longest use of a CRL in seconds, whatever its nextUpdate says.
const MAX_CRL_AGE: u64 = 86_400;
/// Longest use of a complete CRL whose delta CRL was not available, in seconds.
const DELTA_RETRY: u64 = 60;

/// What a look-up has found out.
pub(super) struct Found {
    pub(super) answer: StatusAnswer,
    pub(super) source: FetchedFrom,
    /// Delta CRLs that were not available, with the reasons.
    pub(super) missing: Vec<String>,
}

impl Found {
    const fn complete(answer: StatusAnswer, source: FetchedFrom) -> Self {
        Self { answer, source, missing: Vec::new() }
    }
}

/// A certificate whose status is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(super) key: CertKey,
    /// Subject, for messages.
    pub(super) name: String,
    pub(super) cert: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    /// OCSP responders.
    pub(super) ocsp: Vec<Source>,
    /// Where CRLs are. Empty if a CRL file covers the certificate.
    pub(super) crls: Vec<Source>,
}

/// A URI that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) uri: HttpUri,
    pub(super) origin: Origin,
}

/// Why a source does not tell a status.
enum SourceFault {
    Fetch(FetchFault),
    Status(StatusFault),
}

impl fmt::Display for SourceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(fault) => fault.fmt(f),
            Self::Status(fault) => fault.fmt(f),
        }
    }
}

impl From<FetchFault> for SourceFault {
    fn from(fault: FetchFault) -> Self {
        Self::Fetch(fault)
    }
}

impl From<StatusFault> for SourceFault {
    fn from(fault: StatusFault) -> Self {
        Self::Status(fault)
    }
}

/// CRLs that were fetched, by URI.
#[derive(Default)]
pub(super) struct CrlStore(Mutex<HashMap<HttpUri, StoredCrl>>);

struct StoredCrl {
    der: Arc<[u8]>,
    until: u64,
}

/// What a look-up works with.
pub(super) struct LookUp<'l> {
    pub(super) verifier: StatusVerifier<'l>,
    /// Certificates of OCSP responders that the administrator trusts.
    pub(super) trusted: &'l [&'l [u8]],
    pub(super) crls: &'l CrlStore,
    pub(super) deadline: Instant,
}

impl LookUp<'_> {
    /// Returns the status and where it is from, or why each source does not tell it.
    pub(super) fn run(
        &self,
        wanted: &Wanted,
        mut nonce: impl FnMut() -> OcspNonce,
    ) -> Result<Found, Vec<String>> {
        let issued = IssuedCert { cert: &wanted.cert, issuer: &wanted.issuer };
        let mut why = Vec::new();
        for source in &wanted.ocsp {
            match self.ask(issued, source, Some(&nonce())) {
                Ok((answer, _)) => return Ok(Found::complete(answer, FetchedFrom::Ocsp(source.uri.clone()))),
                Err(fault) => why.push(format!("OCSP {}: {fault}", source.uri)),
            }
        }
        for source in &wanted.crls {
            match self.crl(issued, source) {
                Ok(found) => return Ok(found),
                Err(fault) => why.push(format!("CRL {}: {fault}", source.uri)),
            }
        }
        Err(why)
    }

    /// Asks the responders for a response that this host passes on, and returns it with the responder that
    /// sent it. Without a nonce, because the host that gets it has sent none.
    pub(super) fn ask_responders<'w>(
        &self,
        wanted: &'w Wanted,
    ) -> Result<(&'w HttpUri, StatusAnswer, Vec<u8>), Vec<String>> {
        let issued = IssuedCert { cert: &wanted.cert, issuer: &wanted.issuer };
        let mut why = Vec::new();
        for source in &wanted.ocsp {
            match self.ask(issued, source, None) {
                Ok((answer, der)) => return Ok((&source.uri, answer, der)),
                Err(fault) => why.push(format!("OCSP {}: {fault}", source.uri)),
            }
        }
        Err(why)
    }

    /// Returns the answer of a responder, and the response.
    fn ask(
        &self,
        issued: IssuedCert<'_>,
        Source { uri, origin }: &Source,
        nonce: Option<&[u8; NONCE_LEN]>,
    ) -> Result<(StatusAnswer, Vec<u8>), SourceFault> {
        let request = self.verifier.ocsp_request(issued, nonce)?;
        let response = fetch(uri, &Query::Ocsp(&request), *origin, MAX_OCSP_LEN, self.deadline)?;
        // Time has passed.
        let verifier = StatusVerifier { now: unix_time(), ..self.verifier };
        let answer = verifier.verify_ocsp(issued, &response, nonce, self.trusted)?;
        Ok((answer, response))
    }

    /// Looks up a certificate in the complete CRL of this URI, and in the delta CRLs that belong to it.
    fn crl(&self, issued: IssuedCert<'_>, source: &Source) -> Result<Found, SourceFault> {
        let (answer, crl) =
            self.stored_or_fetched(issued, source, |verifier, issued, crl| verifier.verify_crl(issued, crl))?;
        let from = FetchedFrom::Crl(source.uri.clone());
        if answer.status == CertStatus::Revoked {
            return Ok(Found::complete(answer, from));
        }
        let uris = casemate_pki::delta_crl_uris(issued.cert, &crl);
        let uris = uris.iter().filter_map(|uri| HttpUri::parse(uri).ok());
        let mut missing = Vec::new();
        for uri in uris {
            let delta = Source { uri, origin: Origin::Certificate };
            match self.stored_or_fetched(issued, &delta, |verifier, issued, crl| {
                verifier.verify_delta_crl(issued, crl)
            }) {
                Ok((answer, _)) if answer.status == CertStatus::Revoked => {
                    return Ok(Found::complete(answer, FetchedFrom::Crl(delta.uri)));
                }
                Ok((_, der)) if !casemate_pki::is_base_of_delta(&crl, &der) => {
                    // A newer complete CRL exists.
                    self.crls.remove(&source.uri);
                    missing.push(format!("delta CRL {}: it belongs to another complete CRL", delta.uri));
                }
                Ok((delta, _)) => {
                    let valid_until = answer.valid_until.min(delta.valid_until);
                    return Ok(Found::complete(StatusAnswer { valid_until, ..answer }, from));
                }
                Err(fault) => missing.push(format!("delta CRL {}: {fault}", delta.uri)),
            }
        }
        if missing.is_empty() {
            return Ok(Found::complete(answer, from));
        }
        // The complete CRL is valid without it (RFC 5280 section 6.3.3). It is tried again soon.
        let valid_until = answer.valid_until.min(unix_time().saturating_add(DELTA_RETRY));
        let source = FetchedFrom::CrlWithoutDelta(source.uri.clone());
        Ok(Found { answer: StatusAnswer { valid_until, ..answer }, source, missing })
    }

    /// Uses the stored CRL of this URI, or fetches it.
    fn stored_or_fetched(
        &self,
        issued: IssuedCert<'_>,
        Source { uri, origin }: &Source,
        verify: impl Fn(&StatusVerifier<'_>, IssuedCert<'_>, &[u8]) -> Result<StatusAnswer, StatusFault>,
    ) -> Result<(StatusAnswer, Arc<[u8]>), SourceFault> {
        if let Some(stored) = self.crls.get(uri, self.verifier.now)
            && let Ok(answer) = verify(&self.verifier, issued, &stored)
        {
            return Ok((answer, stored));
        }
        let fetched = fetch(uri, &Query::Crl, *origin, StoreLimits::default().crl_len, self.deadline)?;
        let der = match fetched.first() {
            Some(0x30) => fetched,
            // RFC 5280 section 4.2.1.13 requires DER; some servers have PEM.
            _ => casemate_pki::pem::crls(&fetched).ok().and_then(|mut crls| crls.pop()).unwrap_or_default(),
        };
        let verifier = StatusVerifier { now: unix_time(), ..self.verifier };
        let (answer, der) = (verify(&verifier, issued, &der)?, Arc::from(der));
        self.crls.add(uri, Arc::clone(&der), answer.valid_until, verifier.now);
        Ok((answer, der))
    }
}

impl CrlStore {
    fn get(&self, uri: &HttpUri, now: u64) -> Option<Arc<[u8]>> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get(uri).filter(|crl| now <= crl.until).map(|crl| crl.der.clone())
    }

    /// Forgets all CRLs.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn remove(&self, uri: &HttpUri) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
    }

    /// Keeps a verified CRL. Forgets those that end first if there is no room.
    fn add(&self, uri: &HttpUri, der: Arc<[u8]>, valid_until: u64, now: u64) {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.retain(|other, crl| other != uri && now <= crl.until);
        let room = MAX_CRL_BYTES.saturating_sub(der.len());
        while stored.values().map(|crl| crl.der.len()).sum::<usize>() > room {
            let Some(first) = stored.iter().min_by_key(|(_, crl)| crl.until).map(|(uri, _)| uri.clone())
            else {
                break;
            };
            stored.remove(&first);
        }
        let until = valid_until.min(now.saturating_add(MAX_CRL_AGE));
        stored.insert(uri.clone(), StoredCrl { der, until });
    }
}
