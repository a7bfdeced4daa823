//! `casemate run`: checks a file, sets everything up, moves packets, takes everything back.
//!
//! Nothing is changed in the system before the whole file has been found right. With manual keys `direction` says which way
//! each SA goes and `assembly` makes the data path; with IKE `config` makes an endpoint whose policies come and go.
//! [`casemate_linux::setup`] plans the changes, and `steward` looks after the loop while it runs.

mod assembly;
pub(crate) mod config;
mod control;
mod direction;
pub mod lines;
mod logbook;
mod steward;
mod tables;
mod waiting;

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::status::Identity;
use crate::xfrm::{LoadError, XfrmFile};
use assembly::Assembly;
use casemate::Endpoint;
use casemate_datapath::Direction;
use casemate_ike::Settings;
use casemate_linux::clock::Clock;
use casemate_linux::counters::{CounterFile, Opened};
use casemate_linux::instance::Instance;
use casemate_linux::journal::Journal;
use casemate_linux::netlink::Netlink;
use casemate_linux::rng::SystemRng;
use casemate_linux::route::Numbers;
use casemate_linux::setup::{Live, Plan, Wanted};
use casemate_linux::signal::Signals;
use casemate_linux::{Engine, Parts};
use casemate_sa::Limits;
use control::Control;
use std::path::Path;
use std::sync::Arc;
use steward::Steward;

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    match &args.xfrm {
        Some(path) => run_xfrm(args, path),
        None => config::run(args),
    }
}

/// With manual keys.
fn run_xfrm(args: &RunArgs, path: &Path) -> Result<(), Failure> {
    let file = XfrmFile::load(path).map_err(|error| match error {
        LoadError::Read(..) => Failure::failed(error),
        LoadError::Wrong(..) => Failure::bad_input(error),
    })?;
    file.warnings_at(path).for_each(|warning| eprintln!("casemate: warning: {warning}"));
    // Before any thread is started, so that signals reach the loop and nothing else.
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let addresses = netlink.addresses().map_err(Failure::failed)?;
    let mut sas = direction::decide(&file, &addresses);
    direction::check_counters(&sas, path, args)?;
    let mut opened = match &args.counters {
        Some(counters) if !args.dry_run => Some(open_counters(counters)?),
        _ => None,
    };
    let clock = Clock::start();
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let limits = Limits::SERVER;
    let numbers = Numbers::free(&mut netlink).map_err(Failure::failed)?;
    let mut assembly = Assembly::new(limits, rng.secret_u64(), clock.now());
    assembly.add_sas(&mut sas, path, opened.as_mut())?;
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
        classifier: None,
    };
    let plan = Plan::new(&wanted, &mut netlink).map_err(Failure::failed)?;
    if args.dry_run {
        print!("{plan}");
        return Ok(());
    }

    let instance = Instance::new(&args.tun).map_err(Failure::failed)?;
    let (mut journal, undone) = Journal::open(&instance, &mut netlink).map_err(Failure::failed)?;
    if !undone.is_empty() {
        eprintln!("casemate: undid {} changes that a former run left behind", undone.len());
    }
    let dummies = args.dummy_packets.map(|per_second| assembly.dummy_traffic(per_second, tun_mtu));
    let mut warn = |warning: String| eprintln!("casemate: warning: {warning}");
    let tun = plan.apply(&mut journal, &mut netlink, &mut warn).map_err(Failure::failed)?;
    let live = Live::new(plan, &tun, journal, netlink).map_err(Failure::failed)?;
    let mut datapath = assembly.datapath;
    let ledger = opened.map(|opened| opened.start(&mut datapath)).transpose().map_err(Failure::failed)?;
    let (out, inn) = assembly.counts;
    println!(
        "casemate: {out} SAs out, {inn} in; interface {} with MTU {tun_mtu}; mark and table {}",
        args.tun, numbers.table
    );
    let identity = Identity::of_xfrm(args, path, assembly.provider_names);
    let control = Control::open(&instance).map_err(Failure::failed)?;
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
    println!("ready");
    let ended = engine.run(&mut Steward::new(control, identity)).map_err(Failure::failed);
    engine.close().map_err(Failure::failed)?;
    ended
}

fn open_counters(path: &std::path::Path) -> Result<Opened, Failure> {
    let file = CounterFile::open(path).map_err(Failure::failed)?;
    if file.is_new() {
        eprintln!(
            "casemate: {} is new: it can only know of numbers that are used from now on, so the keys must be fresh",
            path.display()
        );
    }
    Ok(Opened::new(file))
}
