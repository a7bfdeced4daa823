//! Tests of a running engine and its handler.

use super::shared::Shared;
use super::{EndpointHandle, Engine, EngineHandler, EngineParts, SystemProblem};
use crate::Error;
use crate::instance::Instance;
use crate::journal::Journal;
use crate::netlink::Netlink;
use crate::netns::Netns;
use crate::nft::Nft;
use crate::process::{Clock, Signals, SystemRng};
use crate::route::RoutingNumbers;
use crate::setup::{Plan, PlanInput, SystemState};
use crate::sys::EventFd;
use crate::tun::Tun;
use casemate::{Endpoint, Notice};
use casemate_datapath::{Config, Datapath, DropReason, SaStatus};
use casemate_ike::{IkeSettings, SharedKeys};
use casemate_sa::Limits;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// An engine without SAs in the current namespace.
fn engine(directory: &Path) -> Engine {
    let mut netlink = Netlink::open().unwrap();
    let tun = Tun::create("tun5", &mut netlink).unwrap();
    let instance = Instance::at(directory, "tun5");
    let mut journal = Journal::open(&instance, Nft::direct()).unwrap();
    let numbers = RoutingNumbers::claim(&instance, &mut journal, &mut netlink).unwrap();
    let input = PlanInput {
        tun: "tun5",
        tun_mtu: 1_400,
        numbers,
        outbound: &[],
        inbound: &[],
        encap_ports: &[],
        peers: &[],
        former_protected: &[],
        classifier: None,
    };
    let plan = Plan::new(&input, &mut netlink).unwrap();
    plan.apply(&mut journal, &tun, &mut netlink).unwrap();
    let system = SystemState::new(plan, &tun, journal, netlink).unwrap();
    let limits = Limits::SERVER;
    let parts = EngineParts {
        endpoint: Endpoint::new(Datapath::new(Config::server(1)), IkeSettings::SERVER),
        clock: Clock::start(),
        rng: SystemRng::new().unwrap(),
        providers: Vec::new(),
        credentials: Arc::new(SharedKeys::new()),
        ike_enabled: false,
        limits,
        tun,
        scheduling: None,
        system,
        mark: numbers.mark,
        manual_sas: Vec::new(),
        dummy_traffic: None,
        counters: None,
        signals: Signals::block().unwrap(),
        threads: NonZeroUsize::MIN,
    };
    Engine::new(parts).unwrap()
}

/// Handler that asserts in each call that the endpoint is not locked.
struct LockChecker<'e> {
    shared: &'e Shared,
    never_signalled: EventFd,
    notices: usize,
}

impl<'e> LockChecker<'e> {
    fn new(shared: &'e Shared) -> Self {
        Self { shared, never_signalled: EventFd::new().unwrap(), notices: 0 }
    }

    fn assert_unlocked(&self, what: &str) {
        assert!(self.shared.is_endpoint_unlocked(), "the endpoint is locked during {what}");
    }
}

impl EngineHandler for LockChecker<'_> {
    fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.never_signalled.as_fd()
    }

    fn on_wakeup(&mut self, _endpoint: &EndpointHandle<'_>) -> Result<(), Error> {
        self.assert_unlocked("on_wakeup");
        Ok(())
    }

    fn on_reload(&mut self) {
        self.assert_unlocked("on_reload");
    }

    fn on_reconciled(&mut self) {
        self.assert_unlocked("on_reconciled");
    }

    fn on_notice(&mut self, _notice: &Notice, _sa: Option<&SaStatus>) {
        self.notices += 1;
        self.assert_unlocked("on_notice");
    }

    fn on_problem(&mut self, _kind: SystemProblem, what: String) {
        self.assert_unlocked(&what);
    }
}

/// Runs a test with an engine in a new network namespace.
fn with_engine(test: impl FnOnce(&mut Engine) + Send) {
    let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let scratch = casemate_test_support::TempDir::new("engine").unwrap();
    let run = || {
        let mut engine = engine(scratch.path());
        test(&mut engine);
        engine.close().unwrap();
    };
    netns.run(run).unwrap();
}

#[test]
fn the_endpoint_is_not_locked_while_the_handler_is_called() {
    with_engine(|Engine { shared, event_loop, .. }| {
        let now = event_loop.clock.now();
        let mut checker = LockChecker::new(shared);
        for reason in [DropReason::NoSa, DropReason::Replay] {
            shared.record_drop(now, reason, &[0x45; 20]);
        }
        event_loop.run_control_plane(Vec::new(), shared, &mut checker).unwrap();
        assert_eq!(checker.notices, 2, "audit events");
    });
}

#[test]
fn a_worker_that_panics_ends_the_run_with_an_error() {
    with_engine(|Engine { shared, event_loop, .. }| {
        let mut checker = LockChecker::new(shared);
        let epoll = event_loop.epoll(shared, &checker).unwrap();
        let ended = thread::scope(|scope| {
            scope.spawn(|| shared.run_guarded(|| panic!("on purpose")));
            event_loop.run(shared, &epoll, &mut checker)
        });
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    });
}
