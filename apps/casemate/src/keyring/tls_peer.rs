//! The other side of a TLS session of EAP, as a peer of its connection.

use super::pattern_matches;
use super::verifier::{PeerVerifier, Refusals, RefusedPeer, StatusCheck};
use crate::revocation::{Authorities, RevocationLink};
use casemate_crypto::{Provider, Providers};
use casemate_eap::CertificateStatus;
use casemate_ike::config::Identity;
use casemate_ike::{IkeSaId, PeerCertificates, PeerStatus, StatusQuery};
use casemate_rustls::{CertificateVerifier, NotAccepted, ShownCertificates};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Verifies the other side of one session.
pub(super) struct TlsPeerVerifier {
    pub(super) verifier: Arc<PeerVerifier>,
    pub(super) ike: IkeSaId,
    pub(super) expected: Identity,
    pub(super) authorities: Arc<Authorities>,
    /// The threads that fetch the status of certificates; `None` if nothing is fetched.
    pub(super) link: Option<RevocationLink>,
    pub(super) providers: Vec<&'static dyn Provider>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) shown: Mutex<Shown>,
}

/// What the handshake has shown, and what is known about it.
#[derive(Clone, Default)]
pub(super) struct Shown {
    chain: Vec<Vec<u8>>,
    ocsp_response: Option<Vec<u8>>,
    unix_time: u64,
    /// Whether the status was asked for. The second answer is final.
    is_asked: bool,
    /// The final answer.
    decided: Option<CertificateStatus>,
}

impl TlsPeerVerifier {
    /// Locks what was shown, which is replaced as a whole.
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, why: &str) {
        self.refusals.add(RefusedPeer {
            peer: self.expected.clone(),
            connection: self.verifier.conditions().connection.clone(),
            reason: format!("TLS certificate of {}: {why}", self.expected),
        });
    }

    fn ask(&self, shown: &Shown) -> CertificateStatus {
        let chain: Vec<&[u8]> = shown.chain.iter().map(Vec::as_slice).collect();
        let stapled: Vec<&[u8]> = shown.ocsp_response.iter().map(Vec::as_slice).collect();
        let query = StatusQuery {
            ike: self.ike,
            shown: PeerCertificates { id: &self.expected, chain: &chain, unix_time: shown.unix_time },
            stapled: &stapled,
            is_last: shown.is_asked,
        };
        let check = StatusCheck {
            verifier: &self.verifier,
            authorities: &self.authorities,
            link: self.link.as_ref(),
            providers: &Providers(&self.providers),
        };
        match check.run(&query) {
            Ok(PeerStatus::Accepted) => CertificateStatus::Accepted,
            Ok(PeerStatus::Pending) => CertificateStatus::Pending,
            Ok(PeerStatus::Refused) => CertificateStatus::Refused,
            Err(why) => {
                self.refuse(&why);
                CertificateStatus::Refused
            }
        }
    }
}

impl CertificateVerifier for TlsPeerVerifier {
    fn verify(&self, shown: &ShownCertificates<'_>) -> Result<(), NotAccepted> {
        let ShownCertificates { chain, ocsp_response, unix_time } = *shown;
        let certificates = PeerCertificates { id: &self.expected, chain, unix_time };
        let verdict = self.verifier.verify(&certificates, &Providers(&self.providers), &pattern_matches);
        verdict.map_err(|why| {
            self.refuse(&why.to_string());
            NotAccepted
        })?;
        *self.shown() = Shown {
            chain: chain.iter().map(|cert| cert.to_vec()).collect(),
            ocsp_response: ocsp_response.map(<[u8]>::to_vec),
            unix_time,
            ..Shown::default()
        };
        Ok(())
    }

    fn status(&self) -> CertificateStatus {
        if let Some(decided) = self.shown().decided {
            return decided;
        }
        let shown = self.shown().clone();
        let status = self.ask(&shown);
        let mut shown = self.shown();
        shown.is_asked = true;
        shown.decided = (status != CertificateStatus::Pending).then_some(status);
        status
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        let subjects = self.verifier.store.accepted_authorities().filter_map(casemate_pki::subject);
        subjects.map(<[u8]>::to_vec).collect()
    }
}
