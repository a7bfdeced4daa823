//! The strongSwan matrix: tests IKEv2, ESP and AH of Casemate with Debian's strongSwan in network
//! namespaces.
//!
//! Each case has its own namespaces, capture and daemons, so that cases can run in parallel and are
//! independent of earlier cases. In cases with the ESP and AH of a kernel, strongSwan runs in a guest,
//! which is reused for several cases. The program prints a line for each case and a summary. Its exit
//! status is 0 only if every case passed.

mod casemate;
mod cases;
mod device;
mod flow;
mod options;
mod path;
mod peer;
mod pki;
mod plan;
mod platform;
mod runner;
mod stream;
mod strongswan;
mod testbed;
mod wire;
mod wireshark;
mod xfrm;

use casemate_interop::{Error, Result, is_root};
use cases::Case;
use options::Options;
use platform::Guests;
use runner::{Report, Runner};
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

/// Runs the cases and returns whether all of them passed.
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
        return Err(Error::new("no case matches (--list prints the names)"));
    }
    // Namespaces with a user namespace each cannot be connected, and tcpdump needs root without a user
    // namespace.
    if !is_root() {
        return Err(Error::new("the strongSwan matrix needs root"));
    }
    let runner = Runner::new(options, &cases)?;
    let report = Report::new(options.json);
    let next = AtomicUsize::new(0);
    let machine = RwLock::new(());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                let mut guests = Guests::default();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _turn = CasePermit::wait_for(case, &machine);
                    let begin = Instant::now();
                    let outcome = runner.run(case, &mut guests);
                    report.add(&case.name, begin.elapsed(), outcome);
                }
            });
        }
    });
    Ok(report.finish())
}

/// Permission to run a case: in parallel with others, or exclusively.
#[expect(dead_code, reason = "the guard is held until the case ends")]
enum CasePermit<'m> {
    Shared(RwLockReadGuard<'m, ()>),
    Exclusive(RwLockWriteGuard<'m, ()>),
}

impl<'m> CasePermit<'m> {
    fn wait_for(case: &Case, machine: &'m RwLock<()>) -> Self {
        if case.is_exclusive {
            Self::Exclusive(machine.write().unwrap_or_else(PoisonError::into_inner))
        } else {
            Self::Shared(machine.read().unwrap_or_else(PoisonError::into_inner))
        }
    }
}
