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
/// Maximum length in bytes of a response that is sent: IKE_AUTH has to carry it.
const MAX_SENT: usize = 1 << 14;
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

impl Kept {
    /// Asks at once, unless the same responders have answered before a reload.
    fn new(wanted: Wanted, former: &[Self]) -> Self {
        let is_same = |one: &&Self| one.wanted.cert == wanted.cert && one.wanted.ocsp == wanted.ocsp;
        let answered = former.iter().find(|one| is_same(one) && one.failures == 0);
        Self { due: answered.map_or(0, |one| one.due), failures: 0, wanted }
    }
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
                    kept = order.certs.into_iter().map(|wanted| Kept::new(wanted, &kept)).collect();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn renew(&self, kept: &mut Kept, trusted: &[Vec<u8>]) {
        let fetched = self.fetch(kept, trusted);
        let now = unix_time();
        match fetched {
            Ok(until) => {
                kept.due = now.saturating_add((until.saturating_sub(now) / 2).clamp(MIN_AGE, MAX_AGE));
                kept.failures = 0;
            }
            Err((why, retry)) => {
                // A response that is still valid is sent further on.
                kept.due = now.saturating_add(retry.min(MAX_RETRY));
                kept.failures = kept.failures.saturating_add(1);
                if kept.failures == 1 {
                    let _ = self.reports.send(RevocationReport::Problem(why));
                    signal(&self.waker.0);
                }
            }
        }
    }

    /// Returns the time until which the new response may be used, or why there is none and the time in
    /// seconds until the next attempt.
    fn fetch(&self, kept: &Kept, trusted: &[Vec<u8>]) -> Result<u64, (String, u64)> {
        let trusted: Vec<&[u8]> = trusted.iter().map(Vec::as_slice).collect();
        let (options, crls) = (VerifyOptions::default(), CrlStore::default());
        let providers = Providers(&self.providers);
        let look_up = LookUp {
            verifier: StatusVerifier { now: unix_time(), options: &options, providers: &providers },
            trusted: &trusted,
            crls: &crls,
            deadline: Instant::now() + TIMEOUT,
        };
        let name = &kept.wanted.name;
        let none = |why: String| format!("no OCSP response for {name} can be sent: {why}");
        let (uri, answer, der) = look_up
            .ask_responders(&kept.wanted)
            .map_err(|why| (none(why.join("; ")), MIN_AGE << kept.failures.min(6)))?;
        if answer.status == CertStatus::Revoked {
            self.responses.lock().remove(&kept.wanted.cert);
            return Err((
                format!("the certificate of this host is revoked: {name}, by OCSP {uri}"),
                MAX_RETRY,
            ));
        }
        if der.len() > MAX_SENT {
            let why = format!("the responder's has {} bytes, at most {MAX_SENT} are sent", der.len());
            return Err((none(why), MAX_RETRY));
        }
        let until = answer.valid_until;
        self.responses.lock().insert(kept.wanted.cert.clone(), OwnResponse { der, until });
        Ok(until)
    }
}
