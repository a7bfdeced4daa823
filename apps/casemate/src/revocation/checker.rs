//! Decides whether the certificates of a peer are still valid for their issuers, as far as is known.

use super::cache::Finding;
use super::http::Origin;
use super::lookup::{Source, Wanted};
use super::service::RevocationLink;
use super::uri::HttpUri;
use super::{CertKey, name_of};
use crate::swanctl::{Fetching, Revocation};
use casemate_crypto::Providers;
use casemate_ike::StatusQuery;
use casemate_pki::{
    CertStatus, IssuedCert, StatusUris, StatusVerifier, TrustStore, VerifiedCert, VerifyOptions,
};
use std::sync::Arc;

/// Maximum number of OCSP responses of a peer that are looked at.
const MAX_STAPLED: usize = 8;

/// URIs that the configuration names for the certificates that one CA issues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthorityUris {
    /// Certificate of the CA in DER.
    pub(crate) cacert: Vec<u8>,
    pub(crate) crls: Vec<HttpUri>,
    pub(crate) ocsp: Vec<HttpUri>,
}

/// What the configuration says about CAs and OCSP responders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authorities {
    pub(crate) uris: Vec<AuthorityUris>,
    /// Certificates of responders in DER.
    pub(crate) responders: Arc<[Vec<u8>]>,
    pub(crate) fetching: Fetching,
}

/// The check of a path.
pub(crate) struct PathCheck<'c> {
    pub(crate) policy: Revocation,
    /// CRL files.
    pub(crate) store: &'c TrustStore,
    pub(crate) authorities: &'c Authorities,
    /// Access to what is fetched; `None` if nothing is.
    pub(crate) link: Option<&'c RevocationLink>,
    pub(crate) query: &'c StatusQuery<'c>,
    pub(crate) providers: &'c Providers<'c>,
}

/// Result for a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathVerdict {
    Accepted,
    Pending,
    /// With the reason.
    Refused(String),
}

/// Result for a certificate.
enum Status {
    Good,
    /// With the source.
    Revoked(String),
    Unknown {
        why: Vec<String>,
        has_uris: bool,
    },
    Wanted(Wanted),
}

impl PathCheck<'_> {
    /// Decides on the certificates of a verified path. Orders those to be looked up that no source has told
    /// yet.
    pub(crate) fn run(&self, path: &VerifiedCert) -> PathVerdict {
        let (mut wanted, mut unknown) = (Vec::new(), None);
        for issued in path.issued() {
            match self.status(issued) {
                Status::Good => {}
                Status::Revoked(source) => {
                    let name = name_of(issued.cert);
                    return PathVerdict::Refused(format!("the certificate is revoked: {name}, by {source}"));
                }
                Status::Wanted(one) => wanted.push(one),
                Status::Unknown { why, has_uris } if self.must_know(has_uris) => {
                    unknown.get_or_insert_with(|| refusal(&name_of(issued.cert), &why));
                }
                Status::Unknown { .. } => {}
            }
        }
        if let Some(reason) = unknown {
            return PathVerdict::Refused(reason);
        }
        let (Some(link), Some(first)) = (self.link, wanted.first()) else { return PathVerdict::Accepted };
        let name = first.name.clone();
        match link.look_up(self.query.ike, wanted, self.authorities.responders.clone()) {
            Ok(()) => PathVerdict::Pending,
            Err(why) if self.must_know(true) => PathVerdict::Refused(refusal(&name, &[why])),
            Err(_) => PathVerdict::Accepted,
        }
    }

    /// Whether the connection requires to know the status of a certificate with or without URIs.
    fn must_know(&self, has_uris: bool) -> bool {
        match self.policy {
            Revocation::Strict => true,
            Revocation::IfUri => has_uris,
            Revocation::Relaxed => false,
        }
    }

    fn status(&self, issued: IssuedCert<'_>) -> Status {
        let (now, options) = (self.query.shown.unix_time, VerifyOptions::default());
        let verifier = StatusVerifier { now, options: &options, providers: self.providers };
        let by_file = self.store.crl_status(issued, &verifier).map(|answer| answer.status);
        if by_file == Some(CertStatus::Revoked) {
            return Status::Revoked("a CRL file".into());
        }
        if let Some(status) = self.stapled(issued, &verifier) {
            return known(status, "the OCSP response that the peer has sent");
        }
        let key = CertKey::of(issued, self.providers);
        let found = key.zip(self.link).and_then(|(key, link)| link.cache().get(key, now));
        let (ocsp, crls) = self.sources(issued);
        let has_uris = !ocsp.is_empty() || !crls.is_empty();
        let why = match found {
            Some(Finding::Status { status, source }) => return known(status, &source),
            Some(Finding::Failed(why)) => why,
            None if self.query.is_last && has_uris => vec!["no answer in time".into()],
            None => {
                let crls = if by_file.is_some() { Vec::new() } else { crls };
                let has_next = !ocsp.is_empty() || !crls.is_empty();
                if let Some(key) = key.filter(|_| has_next && self.link.is_some()) {
                    let (cert, issuer) = (issued.cert.to_vec(), issued.issuer.to_vec());
                    return Status::Wanted(Wanted { key, name: name_of(&cert), cert, issuer, ocsp, crls });
                }
                Vec::new()
            }
        };
        match by_file {
            Some(CertStatus::Good) => Status::Good,
            _ => Status::Unknown { why, has_uris },
        }
    }

    /// What the responses that the peer has sent say (RFC 4806). They are as good as fetched ones, because
    /// the issuer has signed them or had them signed.
    fn stapled(&self, issued: IssuedCert<'_>, verifier: &StatusVerifier<'_>) -> Option<CertStatus> {
        let trusted: Vec<&[u8]> = self.authorities.responders.iter().map(Vec::as_slice).collect();
        let stapled = self.query.stapled.iter().take(MAX_STAPLED);
        let mut answers = stapled.filter_map(|der| verifier.verify_ocsp(issued, der, None, &trusted).ok());
        answers.next().map(|answer| answer.status)
    }

    /// OCSP responders and CRLs: those of the configuration, then those of the certificate.
    fn sources(&self, issued: IssuedCert<'_>) -> (Vec<Source>, Vec<Source>) {
        let configured: Vec<&AuthorityUris> =
            self.authorities.uris.iter().filter(|authority| authority.cacert == issued.issuer).collect();
        let own = StatusUris::of(issued.cert);
        let join = |configured: Vec<HttpUri>, own: &[String]| {
            let configured = configured.into_iter().map(|uri| (uri, Origin::Configuration));
            let own = own.iter().filter_map(|uri| HttpUri::parse(uri).ok());
            let mut sources: Vec<Source> = Vec::new();
            for (uri, origin) in configured.chain(own.map(|uri| (uri, Origin::Certificate))) {
                if !sources.iter().any(|known| known.uri == uri) {
                    sources.push(Source { uri, origin });
                }
            }
            sources
        };
        let ocsp = configured.iter().flat_map(|authority| authority.ocsp.clone()).collect();
        let crls = configured.iter().flat_map(|authority| authority.crls.clone()).collect();
        let Fetching { ocsp: asks, crls: fetches } = self.authorities.fetching;
        let (ocsp, crls) = (join(ocsp, &own.ocsp), join(crls, &own.crls));
        (if asks { ocsp } else { Vec::new() }, if fetches { crls } else { Vec::new() })
    }
}

fn known(status: CertStatus, source: &str) -> Status {
    match status {
        CertStatus::Good => Status::Good,
        CertStatus::Revoked => Status::Revoked(source.into()),
    }
}

fn refusal(name: &str, why: &[String]) -> String {
    if why.is_empty() {
        return "no valid CRL covers the certificate".into();
    }
    format!("status of {name} is not known: {}", why.join("; "))
}
