//! Tests of a running engine and its attendant.

use super::common::Common;
use super::{Attendant, Engine, HomeLock, Parts, Trouble};
use crate::Error;
use crate::clock::Clock;
use crate::instance::Instance;
use crate::journal::Journal;
use crate::netlink::Netlink;
use crate::netns::Netns;
use crate::nft::Nft;
use crate::rng::SystemRng;
use crate::route::Numbers;
use crate::setup::{Live, Plan, Wanted};
use crate::signal::Signals;
use crate::sys::Bell;
use crate::tun::Tun;
use casemate::{Endpoint, Notice};
use casemate_datapath::{Config, Datapath, DropReason, SaStatus};
use casemate_ike::{Settings, SharedKeys};
use casemate_sa::Limits;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// An engine without SAs in the present namespace.
fn engine(directory: &Path) -> Engine {
    let mut netlink = Netlink::open().unwrap();
    let tun = Tun::create("tun5", &mut netlink).unwrap();
    let instance = Instance::at(directory, "tun5");
    let mut journal = Journal::open(&instance, Nft::direct()).unwrap();
    let numbers = Numbers::claim(&instance, &mut journal, &mut netlink).unwrap();
    let wanted = Wanted {
        tun: "tun5",
        tun_mtu: 1_400,
        numbers,
        outbound: &[],
        inbound: &[],
        encap_ports: &[],
        peers: &[],
        held: &[],
        classifier: None,
    };
    let plan = Plan::new(&wanted, &mut netlink).unwrap();
    plan.apply(&mut journal, &tun, &mut netlink).unwrap();
    let live = Live::new(plan, &tun, journal, netlink).unwrap();
    let limits = Limits::SERVER;
    let parts = Parts {
        endpoint: Endpoint::new(Datapath::new(Config::server(1)), Settings::SERVER),
        clock: Clock::start(),
        rng: SystemRng::new().unwrap(),
        providers: Vec::new(),
        credentials: Arc::new(SharedKeys::new()),
        speaks_ike: false,
        limits,
        tun,
        scheduling: None,
        live,
        mark: numbers.mark,
        sas: Vec::new(),
        dummies: None,
        ledger: None,
        signals: Signals::block().unwrap(),
        threads: NonZeroUsize::MIN,
    };
    Engine::new(parts).unwrap()
}

/// Looks whether the endpoint is locked while it is told something.
struct Watcher<'e> {
    common: &'e Common,
    never: Bell,
    notices: usize,
}

impl<'e> Watcher<'e> {
    fn new(common: &'e Common) -> Self {
        Self { common, never: Bell::new().unwrap(), notices: 0 }
    }

    fn assert_unlocked(&self, what: &str) {
        assert!(self.common.is_home_free(), "the endpoint is locked during {what}");
    }
}

impl Attendant for Watcher<'_> {
    fn wake(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn attend(&mut self, _home: &HomeLock<'_>) -> Result<(), Error> {
        self.assert_unlocked("attend");
        Ok(())
    }

    fn reload(&mut self) {
        self.assert_unlocked("reload");
    }

    fn settled(&mut self) {
        self.assert_unlocked("settled");
    }

    fn notice(&mut self, _notice: &Notice, _sa: Option<&SaStatus>) {
        self.notices += 1;
        self.assert_unlocked("notice");
    }

    fn trouble(&mut self, _kind: Trouble, what: String) {
        self.assert_unlocked(&what);
    }
}

/// Runs a test with an engine in a namespace of its own.
fn with_engine(test: impl FnOnce(&mut Engine) + Send) {
    let Some(netns) = Netns::new().map_err(casemate_left_out::note).ok() else { return };
    let scratch = casemate_scratch::Scratch::new("attended");
    let run = || {
        let mut engine = engine(scratch.path());
        test(&mut engine);
        engine.close().unwrap();
    };
    netns.run(run).unwrap();
}

#[test]
fn the_endpoint_is_not_locked_while_lines_are_written() {
    with_engine(|Engine { common, front, .. }| {
        let now = front.clock.now();
        let mut watcher = Watcher::new(common);
        for reason in [DropReason::NoSa, DropReason::Replay] {
            common.note_drop(now, reason, &[0x45; 20]);
        }
        front.look_after(Vec::new(), common, &mut watcher).unwrap();
        assert_eq!(watcher.notices, 2, "audit events");
    });
}

#[test]
fn a_helper_that_panics_ends_the_run_as_an_error() {
    with_engine(|Engine { common, front, .. }| {
        let mut watcher = Watcher::new(common);
        let watch = front.watch(common, &watcher).unwrap();
        let ended = thread::scope(|scope| {
            scope.spawn(|| common.watch_over(|| panic!("on purpose")));
            front.run(common, &watch, &mut watcher)
        });
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    });
}
