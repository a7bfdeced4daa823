//! OCSP responses for the certificates of this host, which are sent to peers that request them (RFC 4806).
//!
//! A thread fetches them in advance and again before they end, so that no peer waits for a responder or makes
//! this host ask one.

use super::checker::Authorities;
use super::lookup::{CrlStore, LookUp, Wanted};
use super::service::RevocationReport;
use super::{CertKey, name_of, unix_time};
use crate::control::{Waker, signal};
use casemate_crypto::{Provider, Providers};
use casemate_linux::sandbox;
use casemate_pki::{CertStatus, IssuedCert, StatusVerifier, VerifyOptions};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of certificates.
const MAX_CERTS: usize = 64;
/// Longest time for the responders of a certificate.
const TIMEOUT: Duration = Duration::from_secs(12);
/// Shortest and longest time in seconds between two requests for a certificate.
const MIN_AGE: u64 = 60;
const MAX_AGE: u64 = 86_400;
/// Longest time in seconds until a failed request is repeated.
const MAX_RETRY: u64 = 3_600;

/// The responses that may be sent, by certificate in DER.
#[derive(Default)]
pub(super) struct OwnResponses(Mutex<HashMap<Vec<u8>, OwnResponse>>);

struct OwnResponse {
    der: Vec<u8>,
    /// Last second in which it may be used.
    until: u64,
}

impl OwnResponses {
    pub(super) fn get(&self, cert: &[u8], now: u64) -> Option<Vec<u8>> {
        self.lock().get(cert).filter(|response| now <= response.until).map(|response| response.der.clone())
    }

    /// Locks the responses. Each is inserted as a whole, so a thread that panicked leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, OwnResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Certificates of this host whose responses are kept fresh, instead of those before.
pub(super) struct KeepOrder {
    certs: Vec<Wanted>,
    /// Certificates of OCSP responders that the administrator trusts.
    trusted: Arc<[Vec<u8>]>,
}

impl KeepOrder {
    /// Leaves out the certificates without a responder.
    pub(super) fn new(
        certs: &[IssuedCert<'_>],
        authorities: &Authorities,
        providers: &Providers<'_>,
    ) -> Self {
        let wanted = |issued: &IssuedCert<'_>| {
            let (ocsp, _) = authorities.sources(*issued);
            let key = CertKey::of(*issued, providers).filter(|_| !ocsp.is_empty())?;
            let (cert, issuer) = (issued.cert.to_vec(), issued.issuer.to_vec());
            Some(Wanted { key, name: name_of(&cert), cert, issuer, ocsp, crls: Vec::new() })
        };
        let certs = certs.iter().filter_map(wanted).take(MAX_CERTS).collect();
        Self { certs, trusted: authorities.responders.clone() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.certs.is_empty()
    }
}

/// The thread that fetches. It ends when the sender of orders is gone.
pub(super) struct Keeper {
    pub(super) responses: Arc<OwnResponses>,
    pub(super) providers: Vec<&'static dyn Provider>,
    pub(super) reports: Sender<RevocationReport>,
    pub(super) waker: Arc<Waker>,
}

/// A certificate, and when its responders are asked next, in seconds since 1970.
struct Kept {
    wanted: Wanted,
    due: u64,
    /// Failures since the last response.
    failures: u32,
}

impl Keeper {
    pub(super) fn start(self) -> Result<Sender<KeepOrder>, String> {
        let (orders, received) = channel();
        let work = move || {
            // Answers of servers are parsed here, so the thread has no capabilities.
            if sandbox::drop_capabilities().is_ok() {
                self.run(&received);
            }
        };
        let started = thread::Builder::new().name("own-status".into()).spawn(work);
        started.map(|_| orders).map_err(|error| error.to_string())
    }

    fn run(&self, orders: &Receiver<KeepOrder>) {
        let (mut kept, mut trusted): (Vec<Kept>, Arc<[Vec<u8>]>) = (Vec::new(), Arc::default());
        loop {
            for one in &mut kept {
                if one.due <= unix_time() {
                    self.renew(one, &trusted);
                }
            }
            let next = kept.iter().map(|one| one.due).min();
            let wait = next.map_or(MAX_AGE, |due| due.saturating_sub(unix_time()).clamp(1, MAX_RETRY));
            match orders.recv_timeout(Duration::from_secs(wait)) {
                Ok(order) => {
                    trusted = order.trusted;
                    let is_kept = |cert: &[u8]| order.certs.iter().any(|wanted| wanted.cert == cert);
                    self.responses.lock().retain(|cert, _| is_kept(cert));
                    let keep = |wanted| Kept { wanted, due: 0, failures: 0 };
                    kept = order.certs.into_iter().map(keep).collect();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn renew(&self, kept: &mut Kept, trusted: &[Vec<u8>]) {
        let trusted: Vec<&[u8]> = trusted.iter().map(Vec::as_slice).collect();
        let (options, providers, crls) =
            (VerifyOptions::default(), Providers(&self.providers), CrlStore::default());
        let look_up = LookUp {
            verifier: StatusVerifier { now: unix_time(), options: &options, providers: &providers },
            trusted: &trusted,
            crls: &crls,
            deadline: Instant::now() + TIMEOUT,
        };
        let asked = look_up.ask_responders(&kept.wanted);
        let (name, now) = (&kept.wanted.name, unix_time());
        let (failure, retry) = match asked {
            Ok((answer, der)) if answer.status == CertStatus::Good => {
                let until = answer.valid_until;
                self.responses.lock().insert(kept.wanted.cert.clone(), OwnResponse { der, until });
                kept.due = now.saturating_add((until.saturating_sub(now) / 2).clamp(MIN_AGE, MAX_AGE));
                kept.failures = 0;
                return;
            }
            Ok(_) => {
                self.responses.lock().remove(&kept.wanted.cert);
                (format!("the certificate of this host is revoked: {name}"), MAX_RETRY)
            }
            Err(why) => {
                let text = format!("no OCSP response for {name} can be sent: {}", why.join("; "));
                (text, MIN_AGE << kept.failures.min(6))
            }
        };
        // A response that is still valid is sent further on.
        kept.due = now.saturating_add(retry.min(MAX_RETRY));
        kept.failures = kept.failures.saturating_add(1);
        if kept.failures == 1 {
            let _ = self.reports.send(RevocationReport::Problem(failure));
            signal(&self.waker.0);
        }
    }
}
