//! `casemate run`: checks a file, sets everything up, moves packets, takes everything back.
//!
//! Nothing is changed in the system before the whole file has been found right: `direction` says which way each SA goes,
//! `assembly` makes the data path, [`casemate_linux::setup`] plans the changes.

mod assembly;
mod control;
mod direction;
mod journalist;

use crate::cli::RunArgs;
use crate::failure::Failure;
use crate::status::Identity;
use crate::xfrm::{LoadError, XfrmFile};
use assembly::Assembly;
use casemate_linux::clock::Clock;
use casemate_linux::counters::{CounterFile, Opened};
use casemate_linux::instance::Instance;
use casemate_linux::journal::Journal;
use casemate_linux::netlink::Netlink;
use casemate_linux::rng::SystemRng;
use casemate_linux::route::Numbers;
use casemate_linux::setup::{Plan, Wanted};
use casemate_linux::signal::Signals;
use casemate_linux::{Engine, Parts};
use casemate_sa::Limits;
use control::Control;
use journalist::Journalist;

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let file = XfrmFile::load(&args.xfrm).map_err(|error| match error {
        LoadError::Read(..) => Failure::failed(error),
        LoadError::Wrong(..) => Failure::bad_input(error),
    })?;
    file.warnings_at(&args.xfrm).for_each(|warning| eprintln!("casemate: warning: {warning}"));
    // Before any thread is started, so that signals reach the loop and nothing else.
    let signals = Signals::block().map_err(Failure::failed)?;
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let addresses = netlink.addresses().map_err(Failure::failed)?;
    let mut sas = direction::decide(&file, &addresses);
    direction::check_counters(&sas, args)?;
    let mut opened = match &args.counters {
        Some(path) if !args.dry_run => Some(open_counters(path)?),
        _ => None,
    };
    let clock = Clock::start();
    let mut rng = SystemRng::new().map_err(Failure::failed)?;
    let limits = Limits::SERVER;
    let numbers = Numbers::free(&mut netlink).map_err(Failure::failed)?;
    let mut assembly = Assembly::new(limits, rng.secret_u64(), clock.now());
    assembly.add_sas(&mut sas, &args.xfrm, opened.as_mut())?;
    assembly.add_policies(&file, &args.xfrm)?;
    let tun_mtu = assembly.learn_links(&mut netlink, numbers.mark);
    let plan = plan(&mut netlink, &assembly, args, numbers, tun_mtu)?;
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
    let mut datapath = assembly.datapath;
    let ledger = opened.map(|opened| opened.start(&mut datapath)).transpose().map_err(Failure::failed)?;
    let mut warn = |warning: String| eprintln!("casemate: warning: {warning}");
    let tun = plan.apply(&mut journal, &mut netlink, &mut warn).map_err(Failure::failed)?;
    let (out, inn) = assembly.counts;
    println!(
        "casemate: {out} SAs out, {inn} in; interface {} with MTU {tun_mtu}; mark and table {}",
        args.tun, numbers.table
    );
    let identity = Identity::new(args, assembly.provider_names);
    let control = Control::open(&instance).map_err(Failure::failed)?;
    let (mark, sas) = (numbers.mark, assembly.sas);
    let parts = Parts { datapath, clock, rng, limits, tun, mark, sas, dummies, ledger, signals };
    let mut engine = Engine::new(parts).map_err(Failure::failed)?;
    println!("ready");
    let ended = engine.run(&mut Journalist::new(control, identity)).map_err(Failure::failed);
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

fn plan(
    netlink: &mut Netlink,
    assembly: &Assembly,
    args: &RunArgs,
    numbers: Numbers,
    tun_mtu: usize,
) -> Result<Plan, Failure> {
    let wanted = Wanted {
        tun: &args.tun,
        tun_mtu,
        numbers,
        outbound: &assembly.policies(casemate_datapath::Direction::Outbound),
        inbound: &assembly.policies(casemate_datapath::Direction::Inbound),
        encap_ports: &assembly.encap_ports(),
        peers: &assembly.peers(),
    };
    Plan::new(&wanted, netlink).map_err(Failure::failed)
}
