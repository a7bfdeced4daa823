//! The strongSwan matrix: Casemate's IKEv2, ESP and AH against Debian's strongSwan, in network namespaces.
//!
//! Each case has namespaces, a capture and two daemons of its own, so that cases can run beside each other and none sees what
//! an earlier one left. Where strongSwan is to have the ESP and AH of a kernel, it runs in a guest, which serves one case
//! after the other. A line a case, a closing line, exit status 0 only if every case passed.

mod arena;
mod bench;
mod casemate;
mod cases;
mod conf;
mod device;
mod firmware;
mod flow;
mod lwip;
mod options;
mod packet;
mod path;
mod peer;
mod pki;
mod place;
mod plan;
mod pretty;
mod report;
mod side;
mod strongswan;
mod wire;
mod wireshark;
mod xfrm;

use bench::Bench;
use casemate_interop::{Error, Result, is_root};
use cases::Case;
use options::Options;
use place::Guests;
use report::Report;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| start(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("strongswan-matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all went well.
fn start(options: &Options) -> Result<bool> {
    if options.help {
        print!("{}", options::HELP);
        return Ok(true);
    }
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| options.selects(case)).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    if cases.is_empty() {
        return Err(Error::new("no case has such a name (--list prints them)"));
    }
    // Namespaces with a user namespace each could not be connected, and tcpdump wants to be root without one.
    if !is_root() {
        return Err(Error::new("this needs root"));
    }
    let bench = Bench::new(options, &cases)?;
    let report = Report::new(options.json);
    let next = AtomicUsize::new(0);
    let machine = RwLock::new(());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                let mut guests = Guests::default();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _turn = Turn::wait_for(case, &machine);
                    let begin = Instant::now();
                    let outcome = bench.run(case, &mut guests);
                    report.add(&case.name, begin.elapsed(), outcome);
                }
            });
        }
    });
    Ok(report.finish())
}

/// The right to run a case: beside others, or alone.
#[expect(dead_code, reason = "what is held until the case is done")]
enum Turn<'m> {
    Beside(RwLockReadGuard<'m, ()>),
    Alone(RwLockWriteGuard<'m, ()>),
}

impl<'m> Turn<'m> {
    fn wait_for(case: &Case, machine: &'m RwLock<()>) -> Self {
        if case.is_alone {
            Self::Alone(machine.write().unwrap_or_else(PoisonError::into_inner))
        } else {
            Self::Beside(machine.read().unwrap_or_else(PoisonError::into_inner))
        }
    }
}
