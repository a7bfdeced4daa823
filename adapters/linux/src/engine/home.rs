//! The endpoint with everything that its calls need.

use super::common::Common;
use crate::clock::Clock;
use crate::ike::MarkedRoutes;
use crate::rng::SystemRng;
use crate::setup::GuardState;
use casemate::{Endpoint, Means};
use casemate_crypto::{Provider, Providers};
use casemate_ike::Credentials;
use casemate_sched::{Counters, PerClass};
use std::sync::{Arc, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// The way to the endpoint of a running engine.
pub struct HomeLock<'e>(pub(super) &'e Common);

impl HomeLock<'_> {
    /// Locks the endpoint. Packets wait until it is released: nothing that waits for a file, a socket or a process may be done
    /// meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Home> {
        self.0.home()
    }
}

/// The endpoint and its means.
pub struct Home {
    pub(super) endpoint: Endpoint,
    pub(super) rng: SystemRng,
    pub(super) clock: Clock,
    pub(super) routes: MarkedRoutes,
    /// As they were when the attendant was called.
    pub(super) queues: Option<PerClass<Counters>>,
    /// As it was then.
    pub(super) rejected_writes: u64,
    /// As it was then.
    pub(super) guard: GuardState,
    providers: Vec<&'static dyn Provider>,
    credentials: Arc<dyn Credentials + Send + Sync>,
}

impl Home {
    pub(super) fn new(
        endpoint: Endpoint,
        (rng, clock, routes): (SystemRng, Clock, MarkedRoutes),
        providers: Vec<&'static dyn Provider>,
        credentials: Arc<dyn Credentials + Send + Sync>,
    ) -> Self {
        let guard = GuardState { stands: true, restored: 0 };
        Self { endpoint, rng, clock, routes, queues: None, rejected_writes: 0, guard, providers, credentials }
    }

    /// The endpoint, to look at.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What became of the packets of each class before they were protected; `None` without a scheduler.
    pub const fn queues(&self) -> Option<&PerClass<Counters>> {
        self.queues.as_ref()
    }

    /// How many writes of joined packets to the TUN interface the kernel rejected; their packets were written one by one.
    pub const fn rejected_writes(&self) -> u64 {
        self.rejected_writes
    }

    /// How the guard is.
    pub const fn guard(&self) -> GuardState {
        self.guard
    }

    /// The time.
    pub fn now(&self) -> casemate_sa::Instant {
        self.clock.now()
    }

    /// Other keys and certificates from now on.
    pub fn set_credentials(&mut self, credentials: Arc<dyn Credentials + Send + Sync>) {
        self.credentials = credentials;
    }

    /// Lets the endpoint do something.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> T) -> T {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let providers = Providers(&self.providers);
        let mut means = Means {
            now: self.clock.now(),
            unix_time: since_1970.as_secs(),
            rng: &mut self.rng,
            providers: &providers,
            credentials: &*self.credentials,
            routes: &self.routes,
        };
        act(&mut self.endpoint, &mut means)
    }
}
