//! Decides whether the certificates of a peer are still valid for their issuers, as far as is known.

use super::cache::{Finding, StatusCache};
use super::http::Origin;
use super::lookup::{Source, Wanted};
use super::uri::HttpUri;
use super::{CertKey, name_of};
use crate::swanctl::{Fetching, Revocation};
use casemate_crypto::Providers;
use casemate_pki::{
    CertStatus, IssuedCert, StatusUris, StatusVerifier, TrustStore, VerifiedCert, VerifyOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of OCSP responses of a peer that are looked at.
const MAX_STAPLED: usize = 8;

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

impl Authorities {
    /// OCSP responders and CRLs: those of the configuration, then those of the certificate.
    pub(super) fn sources(&self, issued: IssuedCert<'_>) -> (Vec<Source>, Vec<Source>) {
        let configured: Vec<&AuthorityUris> =
            self.uris.iter().filter(|authority| authority.cacert == issued.issuer).collect();
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
        let Fetching { ocsp: asks, crls: fetches } = self.fetching;
        let (ocsp, crls) = (join(ocsp, &own.ocsp), join(crls, &own.crls));
        (if asks { ocsp } else { Vec::new() }, if fetches { crls } else { Vec::new() })
    }
}

/// The check of a path.
pub(crate) struct PathCheck<'c> {
    pub(crate) policy: Revocation,
    /// CRL files.
    pub(crate) store: &'c TrustStore,
    /// The same with their names.
    pub(crate) crl_files: &'c CrlFiles,
    pub(crate) authorities: &'c Authorities,
    /// What was found out by fetching; `None` if nothing is fetched.
    pub(crate) cache: Option<&'c StatusCache>,
    /// Seconds since 1970.
    pub(crate) now: u64,
    /// OCSP responses that the peer has sent.
    pub(crate) stapled: &'c [&'c [u8]],
    /// Whether the time is over.
    pub(crate) is_last: bool,
    pub(crate) providers: &'c Providers<'c>,
}

/// Result for a path.
#[derive(Debug)]
pub(crate) enum PathVerdict {
    Accepted,
    /// It depends on these certificates, which must be looked up.
    Wanted(Vec<Wanted>),
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
    /// Decides on the certificates of a verified path.
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
        if wanted.is_empty() { PathVerdict::Accepted } else { PathVerdict::Wanted(wanted) }
    }

    /// Decides on certificates that cannot be looked up.
    pub(crate) fn without_look_up(&self, wanted: &[Wanted], why: String) -> PathVerdict {
        match wanted.first() {
            Some(first) if self.must_know(true) => PathVerdict::Refused(refusal(&first.name, &[why])),
            _ => PathVerdict::Accepted,
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
        let (now, options) = (self.now, VerifyOptions::default());
        let verifier = StatusVerifier { now, options: &options, providers: self.providers };
        let by_file = self.store.crl_status(issued, &verifier).map(|answer| answer.status);
        if by_file == Some(CertStatus::Revoked) {
            let file = self.crl_files.listing(issued.cert);
            return Status::Revoked(
                file.map_or("a CRL file".into(), |path| format!("CRL {}", path.display())),
            );
        }
        if let Some(status) = self.stapled(issued, &verifier) {
            return known(status, "the OCSP response that the peer has sent");
        }
        let key = CertKey::of(issued, self.providers);
        let found = key.zip(self.cache).and_then(|(key, cache)| cache.get(key, now));
        let (ocsp, crls) = self.authorities.sources(issued);
        let has_uris = !ocsp.is_empty() || !crls.is_empty();
        let why = match found {
            Some(Finding::Status { status, source }) => return known(status, &source.to_string()),
            Some(Finding::Failed(why)) => why,
            None if self.is_last && has_uris => vec!["no answer in time".into()],
            None => {
                let crls = if by_file.is_some() { Vec::new() } else { crls };
                let has_next = !ocsp.is_empty() || !crls.is_empty();
                if let Some(key) = key.filter(|_| has_next && self.cache.is_some()) {
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
        let stapled = self.stapled.iter().take(MAX_STAPLED);
        let mut answers = stapled.filter_map(|der| verifier.verify_ocsp(issued, der, None, &trusted).ok());
        answers.next().map(|answer| answer.status)
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
        return format!("no valid CRL covers the certificate: {name}");
    }
    format!("status of {name} is not known: {}", why.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_aws_lc::AWS_LC;
    use casemate_pki::StoreLimits;

    /// 2027-01-01. The data of the tests of core/pki is valid then.
    const NOW: u64 = 1_798_761_600;

    macro_rules! data {
        ($name:literal) => {
            include_bytes!(concat!("../../../../core/pki/tests/data/status/", $name)).as_slice()
        };
    }

    /// What is known about a certificate with URIs of both kinds.
    struct Case {
        policy: Revocation,
        crl: Option<&'static [u8]>,
        stapled: Vec<&'static [u8]>,
        is_last: bool,
        fetching: Fetching,
        cache: Option<StatusCache>,
    }

    impl Case {
        fn new(policy: Revocation) -> Self {
            let (stapled, fetching) = (Vec::new(), Fetching::default());
            Self { policy, crl: None, stapled, is_last: false, fetching, cache: None }
        }

        fn check<T>(&self, act: impl FnOnce(&PathCheck<'_>, &VerifiedCert) -> T) -> T {
            let mut store = TrustStore::new(StoreLimits::default());
            store.add_root(data!("ca.der")).unwrap();
            self.crl.map(|crl| store.add_crl(crl).unwrap());
            let providers = Providers(&[&AWS_LC]);
            let path =
                store.verify(&[data!("good.der")], NOW, &VerifyOptions::default(), &providers).unwrap();
            let uris = AuthorityUris {
                cacert: data!("ca.der").to_vec(),
                crls: vec![HttpUri::parse("http://ca2.test/ca.crl").unwrap()],
                ocsp: vec![HttpUri::parse("http://own.test/").unwrap()],
            };
            let check = PathCheck {
                policy: self.policy,
                store: &store,
                crl_files: &CrlFiles::default(),
                authorities: &Authorities {
                    uris: vec![uris],
                    responders: [].into(),
                    fetching: self.fetching,
                },
                cache: self.cache.as_ref(),
                now: NOW,
                stapled: &self.stapled,
                is_last: self.is_last,
                providers: &providers,
            };
            act(&check, &path)
        }

        fn verdict(&self) -> PathVerdict {
            self.check(|check, path| check.run(path))
        }
    }

    fn accepts(case: &Case) -> bool {
        matches!(case.verdict(), PathVerdict::Accepted)
    }

    #[test]
    fn the_policy_decides_on_an_unknown_status() {
        for (policy, is_accepted) in
            [(Revocation::Strict, false), (Revocation::IfUri, false), (Revocation::Relaxed, true)]
        {
            assert_eq!(accepts(&Case::new(policy)), is_accepted, "{policy:?}");
            // What is not fetched is no source.
            let fetching = Fetching { ocsp: false, crls: false };
            let is_accepted = policy != Revocation::Strict;
            assert_eq!(accepts(&Case { fetching, ..Case::new(policy) }), is_accepted, "{policy:?}");
        }
        let late = Case { is_last: true, ..Case::new(Revocation::Strict) }.verdict();
        let expected = "status of O=Casemate, CN=good is not known: no answer in time";
        assert!(matches!(late, PathVerdict::Refused(why) if why == expected));
    }

    /// Until the time is over, or a source has failed.
    #[test]
    fn an_unknown_status_is_looked_up() {
        for policy in [Revocation::Strict, Revocation::IfUri, Revocation::Relaxed] {
            let case = || Case { cache: Some(StatusCache::default()), ..Case::new(policy) };
            let PathVerdict::Wanted(wanted) = case().verdict() else { panic!("{policy:?}") };
            assert_eq!((wanted.len(), wanted[0].ocsp.len(), wanted[0].crls.len()), (1, 2, 2));
            // A CRL file makes the fetched ones superfluous, but a responder knows more.
            let PathVerdict::Wanted(by_file) = Case { crl: Some(data!("crl.crl")), ..case() }.verdict()
            else {
                panic!("{policy:?}")
            };
            assert_eq!((by_file[0].ocsp.len(), by_file[0].crls.len()), (2, 0));
            let must_not_know = policy == Revocation::Relaxed;
            assert_eq!(accepts(&Case { is_last: true, ..case() }), must_not_know);
            let failed = case();
            failed.cache.as_ref().unwrap().add_failure(wanted[0].key, vec!["down".into()], NOW);
            assert_eq!(accepts(&failed), must_not_know);
            assert!(accepts(&Case { crl: Some(data!("crl.crl")), ..failed }));
            let without = case().check(|check, _| check.without_look_up(&wanted, "full".into()));
            assert_eq!(matches!(without, PathVerdict::Accepted), must_not_know);
        }
    }

    #[test]
    fn files_and_responses_of_the_peer_tell_the_status() {
        let strict = || Case::new(Revocation::Strict);
        assert!(accepts(&Case { crl: Some(data!("crl.crl")), ..strict() }));
        for response in [data!("good.ocsp"), data!("by-ca.ocsp")] {
            assert!(accepts(&Case { stapled: vec![response], ..strict() }));
        }
        // One that proves nothing is passed over.
        let stapled = vec![data!("by-foreign.ocsp"), data!("revoked.ocsp"), b"nonsense", data!("good.ocsp")];
        assert!(accepts(&Case { stapled, ..strict() }));
        for stapled in [data!("by-foreign.ocsp"), data!("revoked.ocsp"), data!("short.ocsp")] {
            assert!(!accepts(&Case { stapled: vec![stapled], ..strict() }));
        }
    }

    #[test]
    fn sources_of_the_configuration_come_first() {
        let texts = |sources: Vec<Source>| -> Vec<(String, Origin)> {
            sources.into_iter().map(|source| (source.uri.to_string(), source.origin)).collect()
        };
        let (ocsp, crls) = Case::new(Revocation::Relaxed).check(|check, path| {
            let (ocsp, crls) = check.authorities.sources(path.issued().next().unwrap());
            (texts(ocsp), texts(crls))
        });
        let own = |uri: &str| (uri.to_owned(), Origin::Certificate);
        // The certificate also names a responder by ldap.
        assert_eq!(
            ocsp,
            [("http://own.test/".to_owned(), Origin::Configuration), own("http://ocsp.test:8880/")]
        );
        assert_eq!(
            crls,
            [("http://ca2.test/ca.crl".to_owned(), Origin::Configuration), own("http://ca.test/ca.crl")]
        );
    }

    #[test]
    fn the_file_that_lists_a_certificate_is_named() {
        let files = [
            ("x509crl/other.crl", data!("other.crl").to_vec()),
            ("x509crl/ca.crl", data!("crl.crl").to_vec()),
        ];
        let files = files.map(|(path, der)| CrlFile { path: path.into(), der });
        let files = CrlFiles::new(files.into_iter());
        assert_eq!(files.listing(data!("revoked.der")), Some(Path::new("x509crl/ca.crl")));
        assert_eq!(files.listing(data!("good.der")), None);
    }
}
