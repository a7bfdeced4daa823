//! The EAP matrix: tests casemate-eap with the programs of hostapd. `eapol_test` is the peer of our
//! authenticator, which a small RADIUS server passes packets to; `hostapd` is the server of our peer.
//!
//! Everything runs on the loopback interface with ports of its own. The program prints a line for each case
//! and a summary. A case whose program is not installed is skipped. The exit status is 0 only if no case
//! failed.

// A test program: a malformed packet of the other program may end it.
#![allow(clippy::indexing_slicing, clippy::expect_used)]

mod cases;
mod eapol;
mod hostapd;
mod party;
mod radius;
mod server;

use cases::{Case, Foreign, Outcome};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "Usage: eap-matrix [--list] [FILTER]...\n\
                    Runs the cases whose names contain all FILTERs. Needs the Debian packages eapoltest \
                    and hostapd.\n";

fn main() -> ExitCode {
    let (options, filters): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if let Some(wrong) = options.iter().find(|option| *option != "--list") {
        eprint!("eap-matrix: {wrong}: --list was expected\n{HELP}");
        return ExitCode::FAILURE;
    }
    let mut cases = cases::all();
    cases.retain(|case| filters.iter().all(|filter| case.name.contains(&**filter)));
    if !options.is_empty() {
        cases.iter().for_each(|case| println!("{}", case.name));
        return ExitCode::SUCCESS;
    }
    if cases.is_empty() {
        eprintln!("eap-matrix: no case matches (--list prints the names)");
        return ExitCode::FAILURE;
    }
    run(&cases)
}

fn run(cases: &[Case]) -> ExitCode {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in cases {
        let program = match case.foreign {
            Foreign::EapolTest => eapol::PROGRAM,
            Foreign::Hostapd => hostapd::PROGRAM,
        };
        if !Path::new(program).exists() {
            println!("skip  {}: {program} is not installed", case.name);
            skipped += 1;
            continue;
        }
        match case.run() {
            Ok(Outcome { summary }) => {
                println!("ok    {}: {summary}", case.name);
                passed += 1;
            }
            Err(why) => {
                println!("FAIL  {}: {why}", case.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
