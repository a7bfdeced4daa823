//! The threads that look up the status of certificates. Orders and reports go through channels.

use super::cache::{Fetched, StatusCache};
use super::checker::Authorities;
use super::lookup::{CrlStore, Found, LookUp, Wanted};
use super::own::{KeepOrder, Keeper, OwnResponses};
use super::unix_time;
use crate::control::{Waker, signal};
use casemate_crypto::{Provider, Providers, Rng as _};
use casemate_ike::IkeSaId;
use casemate_linux::process::SystemRng;
use casemate_linux::sandbox;
use casemate_pki::{IssuedCert, NONCE_LEN, StatusVerifier, VerifyOptions};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of threads, thus of sources that are asked at the same time.
const THREADS: usize = 4;
/// Maximum number of peers that wait.
const MAX_WAITING: usize = 256;
/// Longest time for all certificates of a peer. IKE waits a little longer (`IkeSettings::auth_wait`).
const TIMEOUT: Duration = Duration::from_secs(12);

/// The certificates of one peer.
struct Order {
    ike: IkeSaId,
    wanted: Vec<Wanted>,
    /// Certificates of OCSP responders that the administrator trusts.
    trusted: Arc<[Vec<u8>]>,
    deadline: Instant,
}

/// What the event loop has to do.
pub(crate) enum RevocationReport {
    /// The status of the certificates of this peer is in the cache, or why it is not known.
    Known(IkeSaId),
    /// A line for the log.
    Problem(String),
}

/// Access to the threads and to what they have found. The threads start with the first order, and end when
/// there is no link any more.
#[derive(Clone)]
pub(crate) struct RevocationLink(Arc<Service>);

struct Service {
    cache: Arc<StatusCache>,
    crls: Arc<CrlStore>,
    orders: Mutex<Option<SyncSender<Order>>>,
    own: Arc<OwnResponses>,
    /// The thread that fetches them, once it has started.
    keeper: Mutex<Option<Sender<KeepOrder>>>,
    providers: Vec<&'static dyn Provider>,
    reports: Sender<RevocationReport>,
    waker: Arc<Waker>,
}

impl RevocationLink {
    /// `reports` lead to the event loop, which `waker` wakes.
    pub(crate) fn new(
        providers: Vec<&'static dyn Provider>,
        reports: Sender<RevocationReport>,
        waker: Waker,
    ) -> Self {
        let (cache, crls, orders, waker) =
            (Arc::default(), Arc::default(), Mutex::default(), Arc::new(waker));
        let (own, keeper) = (Arc::default(), Mutex::default());
        Self(Arc::new(Service { cache, crls, orders, own, keeper, providers, reports, waker }))
    }

    /// Asks sources again that did not answer.
    pub(crate) fn forget_failures(&self) {
        self.0.cache.forget_failures();
    }

    /// Forgets what was fetched: it is fetched again for the next peer.
    pub(crate) fn forget(&self, fetched: Fetched) {
        if fetched != Fetched::OcspResponses {
            self.0.crls.clear();
        }
        self.0.cache.forget(fetched);
    }

    /// What was found out so far.
    pub(crate) fn cache(&self) -> &StatusCache {
        &self.0.cache
    }

    /// A valid OCSP response for a certificate of this host, if there is one.
    pub(crate) fn own_response(&self, cert: &[u8]) -> Option<Vec<u8>> {
        self.0.own.get(cert, unix_time())
    }

    /// Keeps the OCSP responses for these certificates of this host, and no others.
    pub(crate) fn keep_own(&self, certs: &[IssuedCert<'_>], authorities: &Authorities) {
        let order = KeepOrder::new(certs, authorities, &Providers(&self.0.providers));
        let mut keeper = self.0.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() && !order.is_empty() {
            let Service { own, providers, reports, waker, .. } = &*self.0;
            let (responses, providers) = (own.clone(), providers.clone());
            let thread = Keeper { responses, providers, reports: reports.clone(), waker: waker.clone() };
            match thread.start() {
                Ok(started) => *keeper = Some(started),
                Err(error) => {
                    let problem = format!("no OCSP responses can be sent: {error}");
                    let _ = self.0.reports.send(RevocationReport::Problem(problem));
                    signal(&self.0.waker.0);
                }
            }
        }
        if let Some(keeper) = &*keeper {
            let _ = keeper.send(order);
        }
    }

    /// Orders a look-up. A report follows. The error says why none will, and returns the certificates.
    pub(crate) fn look_up(
        &self,
        ike: IkeSaId,
        wanted: Vec<Wanted>,
        trusted: Arc<[Vec<u8>]>,
    ) -> Result<(), (Vec<Wanted>, String)> {
        let mut orders = self.0.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.is_none() {
            match self.start() {
                Ok(started) => *orders = Some(started),
                Err(error) => return Err((wanted, format!("the threads that fetch: {error}"))),
            }
        }
        let order = Order { ike, wanted, trusted, deadline: Instant::now() + TIMEOUT };
        let Some(Err(failed)) = orders.as_ref().map(|orders| orders.try_send(order)) else { return Ok(()) };
        match failed {
            TrySendError::Full(order) => {
                Err((order.wanted, format!("nothing is fetched while {MAX_WAITING} peers wait")))
            }
            TrySendError::Disconnected(order) => {
                Err((order.wanted, "the threads that fetch have ended".into()))
            }
        }
    }

    fn start(&self) -> Result<SyncSender<Order>, String> {
        let (orders, received) = sync_channel(MAX_WAITING);
        let received = Arc::new(Mutex::new(received));
        for _ in 0..THREADS {
            let worker = Worker {
                orders: received.clone(),
                cache: self.0.cache.clone(),
                crls: self.0.crls.clone(),
                providers: self.0.providers.clone(),
                rng: SystemRng::new().map_err(|error| error.to_string())?,
                reports: self.0.reports.clone(),
                waker: self.0.waker.clone(),
            };
            let work = move || {
                // Answers of servers are parsed here, so the thread has no capabilities.
                if sandbox::drop_capabilities().is_ok() {
                    worker.run();
                }
            };
            thread::Builder::new()
                .name("revocation".into())
                .spawn(work)
                .map_err(|error| error.to_string())?;
        }
        Ok(orders)
    }
}

struct Worker {
    orders: Arc<Mutex<Receiver<Order>>>,
    cache: Arc<StatusCache>,
    crls: Arc<CrlStore>,
    providers: Vec<&'static dyn Provider>,
    rng: SystemRng,
    reports: Sender<RevocationReport>,
    waker: Arc<Waker>,
}

impl Worker {
    fn run(mut self) {
        loop {
            // The thread that waits for an order holds the lock; the others wait for the lock.
            let order = self.orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(order) = order else { return };
            for wanted in &order.wanted {
                // Another peer may have needed the same certificate of a CA.
                if self.cache.get(wanted.key, unix_time()).is_none() {
                    self.look_up(wanted, &order);
                }
            }
            self.report(RevocationReport::Known(order.ike));
        }
    }

    fn look_up(&mut self, wanted: &Wanted, order: &Order) {
        let Self { providers, crls, rng, cache, .. } = self;
        let trusted: Vec<&[u8]> = order.trusted.iter().map(Vec::as_slice).collect();
        let (options, providers) = (VerifyOptions::default(), Providers(providers));
        let look_up = LookUp {
            verifier: StatusVerifier { now: unix_time(), options: &options, providers: &providers },
            trusted: &trusted,
            crls,
            deadline: order.deadline,
        };
        let mut nonce = || {
            let mut nonce = [0; NONCE_LEN];
            rng.public(&mut nonce);
            nonce
        };
        match look_up.run(wanted, &mut nonce) {
            Ok(Found { answer, source, missing }) => {
                let text =
                    format!("status of {} is from {source} alone: {}", wanted.name, missing.join("; "));
                cache.add(wanted.key, answer, source, unix_time());
                if !missing.is_empty() {
                    self.report(RevocationReport::Problem(text));
                }
            }
            Err(why) => {
                let text = format!("status of {} is not known: {}", wanted.name, why.join("; "));
                cache.add_failure(wanted.key, why, unix_time());
                self.report(RevocationReport::Problem(text));
            }
        }
    }

    fn report(&self, report: RevocationReport) {
        let _ = self.reports.send(report);
        signal(&self.waker.0);
    }
}
