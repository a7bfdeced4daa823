//! `casemate run`: checks a file, sets everything up, moves packets, takes everything back.
//!
//! Nothing is changed in the system before the whole file has been found right. With manual keys `direction` says which way
//! each SA goes and `assembly` makes the data path; with IKE `config` makes an endpoint whose policies come and go.
//! [`casemate_linux::setup`] plans the changes, and `steward` looks after the loop while it runs.

mod assembly;
pub(crate) mod budget;
pub(crate) mod cleanup;
mod client;
pub(crate) mod config;
mod control;
mod direction;
mod dry;
mod exposed;
pub mod lines;
mod loading;
mod logbook;
mod steward;
mod tables;
mod waiting;

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::output::Output;
use crate::status::Identity;
use crate::xfrm::{LoadError, XfrmFile};
use assembly::Assembly;
use casemate::Endpoint;
use casemate_datapath::Direction;
use casemate_ike::Settings;
use casemate_linux::clock::Clock;
use casemate_linux::confine;
use casemate_linux::counters::{CounterFile, Opened};
use casemate_linux::instance::Instance;
use casemate_linux::journal::{Journal, Remains};
use casemate_linux::netlink::Netlink;
use casemate_linux::nft::{self, Nft};
use casemate_linux::rng::SystemRng;
use casemate_linux::route::Numbers;
use casemate_linux::setup::{Live, Plan, Wanted};
use casemate_linux::signal::Signals;
use casemate_linux::tun::Tun;
use casemate_linux::{Engine, Parts, Scheduling};
use casemate_sa::Limits;
use control::Control;
use logbook::Logbook;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use steward::Steward;

/// The only argument of the process that applies nftables scripts for an instance. It is no command for people.
pub(crate) const NFT_RUNNER: &str = "internal-nft-runner";

/// Is that process, until its parent ends.
pub(crate) fn nft_runner() -> Result<(), Failure> {
    nft::serve().map_err(Failure::failed)
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    // Before a key is read.
    if !args.dry_run {
        confine::hide().map_err(Failure::failed)?;
    }
    let mut remains = None;
    let done = match &args.xfrm {
        Some(path) => run_xfrm(args, path, &mut remains),
        None => config::run(args, &mut remains),
    };
    // The journal is gone by now, so what is left is known.
    done.map_err(|failure| explain(failure, remains))
}

/// Says what is left of the run, which is only known when its journal is gone.
type LeftOver = Option<Arc<Mutex<Remains>>>;

/// An error with what it leaves in the system.
fn explain(failure: Failure, remains: LeftOver) -> Failure {
    let remains = remains.map(|remains| remains.lock().unwrap_or_else(PoisonError::into_inner).clone());
    match remains.unwrap_or_default() {
        Remains::Nothing => failure,
        Remains::Guard => {
            failure.and("what is protected stays blocked until `casemate run` or `casemate cleanup`")
        }
        Remains::NoGuard(reason) => failure.and(&format!(
            "the guard does not stand ({reason}): what was protected leaves in clear until `casemate run`"
        )),
        Remains::NotUndone(error) => {
            let next = "it stays until `casemate run` or `casemate cleanup`";
            let is_said = failure.reason().contains(&error);
            failure.and(&if is_said { next.into() } else { format!("{error}\n{next}") })
        }
    }
}

/// With manual keys.
fn run_xfrm(args: &RunArgs, path: &Path, remains: &mut LeftOver) -> Result<(), Failure> {
    let file = XfrmFile::load(path).map_err(|error| match error {
        LoadError::Read(..) => Failure::failed(error),
        LoadError::Wrong(..) => Failure::bad_input(error),
    })?;
    // Before any thread is started, so that signals reach the loop and nothing else.
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut log = logbook()?;
    file.warnings_at(path).chain(exposed::warning(path)).for_each(|warning| log.warn(&warning));
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let addresses = netlink.addresses().map_err(Failure::failed)?;
    let mut sas = direction::decide(&file, &addresses);
    direction::check_counters(&sas, path, args)?;
    let mut opened = match &args.counters {
        Some(counters) if !args.dry_run => Some(open_counters(counters, &mut log)?),
        _ => None,
    };
    let clock = Clock::start();
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let limits = Limits::SERVER;
    let mut place = Place::take(args, None, &mut netlink, remains, &mut log)?;
    let numbers = place.numbers;
    let mut assembly = Assembly::new(limits, rng.secret_u64(), clock.now());
    assembly.add_sas(&mut sas, path, opened.as_mut(), &mut log)?;
    assembly.add_policies(&file, path)?;
    let tun_mtu = assembly.learn_links(&mut netlink, numbers.mark);
    let (outbound, inbound) = (assembly.policies(Direction::Outbound), assembly.policies(Direction::Inbound));
    let (encap_ports, peers) = (assembly.encap_ports(), assembly.peers());
    let wanted = Wanted {
        tun: &args.tun,
        tun_mtu,
        numbers,
        outbound: &outbound,
        inbound: &inbound,
        encap_ports: &encap_ports,
        peers: &peers,
        // The file says everything that is to be protected.
        held: &[],
        classifier: None,
    };
    let plan = Plan::new(&wanted, &mut netlink).map_err(Failure::failed)?;
    let Some(Own { instance, journal, tun }) = &mut place.own else {
        print!("{plan}");
        return Ok(());
    };
    let dummies = args.dummy_packets.map(|per_second| assembly.dummy_traffic(per_second, tun_mtu));
    plan.apply(journal, tun, &mut netlink).map_err(Failure::failed)?;
    let control = Control::open(instance).map_err(Failure::failed)?;
    let Some(Own { journal, tun, .. }) = place.own.take() else { return Ok(()) };
    let live = Live::new(plan, &tun, journal, netlink).map_err(Failure::failed)?;
    let mut datapath = assembly.datapath;
    let ledger = opened.map(|opened| opened.start(&mut datapath)).transpose().map_err(Failure::failed)?;
    let (out, inn) = assembly.counts;
    let summary = format!(
        "casemate: {out} SAs out, {inn} in; interface {} with MTU {tun_mtu}; mark and table {}",
        args.tun, numbers.table
    );
    let identity = Identity::of_xfrm(args, path, assembly.provider_names);
    let parts = Parts {
        endpoint: Endpoint::new(datapath, Settings::SERVER),
        clock,
        rng,
        providers: Vec::new(),
        credentials: Arc::new(Keyring::empty()),
        speaks_ike: false,
        limits,
        tun,
        scheduling: None,
        live,
        mark: numbers.mark,
        sas: assembly.sas,
        dummies,
        ledger,
        signals,
        threads: args.threads(),
    };
    let mut engine = Engine::new(parts).map_err(Failure::failed)?;
    let mut steward = Steward::new(control, identity, log);
    steward.is_ready(&summary)?;
    let ended = engine.run(&mut steward);
    finish(engine, ended)
}

/// Where an instance is in the system: its numbers and, unless it only shows what it would do, its files.
struct Place {
    numbers: Numbers,
    own: Option<Own>,
}

/// What an instance has to itself.
struct Own {
    instance: Instance,
    journal: Journal,
    tun: Tun,
}

impl Place {
    /// The numbers that a former run had, or free ones. The TUN interface comes first: of two instances that would
    /// have the same one, the second looks at nothing of the first.
    fn take(
        args: &RunArgs,
        scheduling: Option<&Scheduling>,
        netlink: &mut Netlink,
        remains: &mut LeftOver,
        log: &mut Logbook,
    ) -> Result<Self, Failure> {
        if args.dry_run {
            return Ok(Self { numbers: Numbers::free(netlink).map_err(Failure::failed)?, own: None });
        }
        let classifier = scheduling.map(|scheduling| &scheduling.classifier);
        let mut warn = |warning: String| log.warn(&warning);
        let tun = Tun::claim(&args.tun, classifier, netlink, &mut warn).map_err(Failure::failed)?;
        // Without the interface not even a directory is made.
        let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
        let nft = Nft::runner(NFT_RUNNER).map_err(Failure::failed)?;
        let mut journal = Journal::open(&instance, nft).map_err(Failure::failed)?;
        *remains = Some(journal.remains());
        if journal.is_adopted() {
            log.say("took over the guard and the routes that a former run left behind");
        }
        let numbers = Numbers::claim(&instance, &mut journal, netlink).map_err(Failure::failed)?;
        Ok(Self { numbers, own: Some(Own { instance, journal, tun }) })
    }
}

/// Ends a run. After an error the guard stays.
fn finish(engine: Engine, ended: Result<(), casemate_linux::Error>) -> Result<(), Failure> {
    let Err(error) = ended else { return engine.close().map_err(Failure::failed) };
    let closed = engine.abandon();
    let also = closed.err().map_or(String::new(), |also| format!("\n{also}"));
    Err(Failure::failed(format!("{error}{also}")))
}

/// The log of an instance, which writes to standard error. Its thread is started after signals are blocked.
fn logbook() -> Result<Logbook, Failure> {
    let failed = |error| Failure::failed(format!("standard error: {error}"));
    Output::standard_error().map(Logbook::new).map_err(failed)
}

/// Gives up what is not needed once everything is set up.
fn confine(log: &mut Logbook) -> Result<(), Failure> {
    if !confine::hide().map_err(Failure::failed)? {
        log.warn("memory cannot be locked, so keys may reach swap: CAP_SYS_RESOURCE was expected");
    }
    if !confine::keep().map_err(Failure::failed)? {
        log.warn("this kernel has no seccomp filter, so system calls are not limited");
    }
    Ok(())
}

fn open_counters(path: &Path, log: &mut Logbook) -> Result<Opened, Failure> {
    let file = CounterFile::open(path).map_err(Failure::failed)?;
    if file.is_new() {
        log.say(&format!(
            "{} is new: it can only know of numbers that are used from now on, so the keys must be fresh",
            path.display()
        ));
    }
    Ok(Opened::new(file))
}
