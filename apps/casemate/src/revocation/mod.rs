//! Revocation: whether the certificates of authenticated peers are still valid for their issuers.
//!
//! `checker` decides on the certificates of one peer by CRL files, by OCSP responses that the peer has
//! sent, and by the `cache`. What is missing, the threads of `service` look up at the URIs of the
//! configuration and of the certificates (`lookup`, `http`); `RevocationLink` leads to them. No URI is
//! followed before the peer has proved that it has the private key. `own` keeps the OCSP responses for our
//! own certificates.

mod cache;
mod checker;
mod http;
mod lookup;
mod own;
mod service;
mod uri;

pub(crate) use cache::Fetched;
pub(crate) use checker::{Authorities, AuthorityUris, CrlFile, CrlFiles, PathCheck, PathVerdict};
pub(crate) use service::RevocationLink;
pub use uri::HttpUri;

use crate::control::ControlServer;
use casemate_crypto::{HashAlg, Provider, Providers};
use casemate_linux::EndpointHandle;
use casemate_pki::IssuedCert;
use service::RevocationReport;
use std::sync::mpsc::{Receiver, channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// The part of the controller of a run that has the status of certificates fetched.
#[derive(Default)]
pub(crate) struct RevocationState(Option<(RevocationLink, Receiver<RevocationReport>)>);

impl RevocationState {
    /// The link for a keyring that is about to be used. Sources that did not answer are asked again.
    pub(crate) fn link(
        &mut self,
        providers: &[&'static dyn Provider],
        control: &ControlServer,
    ) -> Result<RevocationLink, String> {
        if let Some((link, _)) = &self.0 {
            link.forget_failures();
            return Ok(link.clone());
        }
        let waker = control.waker().map_err(|error| format!("status of certificates: {error}"))?;
        let (reports, received) = channel();
        let link = RevocationLink::new(providers.to_vec(), reports, waker);
        self.0 = Some((link.clone(), received));
        Ok(link)
    }

    /// Continues with the peers for which something was found out. Returns lines for the log.
    pub(crate) fn serve(&mut self, handle: &EndpointHandle<'_>) -> Vec<String> {
        let Some((_, reports)) = &self.0 else { return Vec::new() };
        let mut problems = Vec::new();
        for report in reports.try_iter() {
            match report {
                RevocationReport::Known(ike) => {
                    handle.lock().with(|endpoint, context| endpoint.continue_authentication(ike, context));
                }
                RevocationReport::Problem(text) => problems.push(text),
            }
        }
        problems
    }
}

/// A certificate with its issuer, by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CertKey([u8; 32]);

impl CertKey {
    /// `None` if no provider has SHA-256.
    fn of(issued: IssuedCert<'_>, providers: &Providers<'_>) -> Option<Self> {
        let digest = providers.hash(HashAlg::Sha256, &[issued.issuer, issued.cert])?;
        digest.as_slice().try_into().ok().map(Self)
    }
}

/// Seconds since 1970; 0 before.
fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Name of a certificate for messages: its subject.
fn name_of(cert: &[u8]) -> String {
    let subject = casemate_pki::subject(cert).and_then(casemate_pki::dn_to_text);
    subject.unwrap_or_else(|| "a certificate whose subject is no plain text".into())
}
