//! Tests of a running engine and its handler.

use super::FormerState;
use super::shared::Shared;
use super::{EndpointHandle, Engine, EngineHandler, EngineParts, ManualSa, Performance, SystemProblem};
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
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers, SecretBytes};
use casemate_datapath::{Config, Datapath, Direction, DropReason};
use casemate_ike::{IkeSettings, SharedKeys};
use casemate_rustcrypto::RustCrypto;
use casemate_sa::{Instant, Limits, Mode, SaParams, Spi, Transform, UdpEncap};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Parts of an engine without SAs in the current namespace.
pub(super) fn parts(directory: &Path) -> EngineParts {
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
        cell_addresses: &[],
        peers: &[],
        former_protected: &[],
        classifier: None,
    };
    let plan = Plan::new(&input, &mut netlink).unwrap();
    plan.apply(&mut journal, &tun, &mut netlink).unwrap();
    let system = SystemState::new(plan, &tun, journal, netlink).unwrap();
    let limits = Limits::SERVER;
    EngineParts {
        endpoint: Endpoint::new(Datapath::new(Config::server(1)), IkeSettings::SERVER),
        clock: Clock::start(),
        rng: SystemRng::new().unwrap(),
        providers: Vec::new(),
        credentials: Arc::new(SharedKeys::new()),
        ike_enabled: false,
        limits,
        tun,
        scheduling: None,
        performance: Performance::default(),
        system,
        mark: numbers.mark,
        keeps_former_traffic: false,
        manual_sas: Vec::new(),
        dummy_traffic: None,
        counters: None,
        keeper: None,
        addresses: None,
        forwarding: None,
        signals: Signals::block().unwrap(),
        threads: NonZeroUsize::MIN,
    }
}

/// Handler that asserts in each call that the endpoint is not locked.
pub(super) struct LockChecker<'e> {
    shared: &'e Shared,
    never_signalled: EventFd,
    notices: usize,
}

impl<'e> LockChecker<'e> {
    pub(super) fn new(shared: &'e Shared) -> Self {
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

    fn on_tick(&mut self) {
        self.assert_unlocked("on_tick");
    }

    fn own_tunnel(&self, _: casemate_sa::SpdId) -> Option<crate::TunnelSpec> {
        None
    }

    fn on_name_servers(&mut self, _: &crate::dns::DnsState) {}
    fn on_reconciled(&mut self) {
        self.assert_unlocked("on_reconciled");
    }

    fn on_trace(&mut self, _endpoint: &EndpointHandle<'_>) {
        self.assert_unlocked("on_trace");
    }

    fn on_notice(&mut self, _notice: &Notice, _sa: Option<&casemate::NoticeSa>) {
        self.notices += 1;
        self.assert_unlocked("on_notice");
    }

    fn on_takeover(&mut self, _: FormerState, _endpoint: &EndpointHandle<'_>) -> Result<(), Error> {
        self.assert_unlocked("on_takeover");
        Ok(())
    }

    fn on_cell_role(&mut self, _: casemate_cell::KeeperRole, _: Option<&str>) {
        self.assert_unlocked("on_cell_role");
    }

    fn on_drained(&mut self, _: Result<bool, String>) {
        self.assert_unlocked("on_drained");
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
        let mut engine = Engine::new(parts(scratch.path())).unwrap();
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

/// An SA with UDP encapsulation between ports of this number, and its ID in a data path of its own.
pub(crate) fn encapsulated_sa(port: u16, direction: Direction) -> ManualSa {
    let suite = EspSuite::Combined(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let transform = Transform::Esp { suite, encr: SecretBytes::new(&[7; 20]), integ: SecretBytes::new(&[]) };
    let (spi, src, dst) = (Spi::new(port.into()).unwrap(), [192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let encap = Some(UdpEncap { src_port: port, dst_port: port });
    let params = SaParams { encap, ..SaParams::new(spi, src, dst, Mode::Tunnel, transform) };
    let mut datapath = Datapath::new(Config::server(1));
    let id = datapath.add_sa(&params, direction, &Providers(&[&RustCrypto]), Instant::ZERO).unwrap();
    ManualSa { id, params }
}

/// The data path has room for eight ports, so only a caller that uses several data paths asks for more.
#[test]
fn more_inputs_than_the_event_loop_can_wait_for_are_an_error() {
    let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
    let scratch = casemate_test_support::TempDir::new("engine").unwrap();
    let run = || {
        let manual_sas = (4_501..4_550).map(|port| encapsulated_sa(port, Direction::Inbound)).collect();
        let error = Engine::new(EngineParts { manual_sas, ..parts(scratch.path()) }).err();
        error.map(|error| error.to_string())
    };
    let error = netns.run(run).unwrap().expect("an error");
    assert!(error.contains("UDP ports"), "{error}");
}
