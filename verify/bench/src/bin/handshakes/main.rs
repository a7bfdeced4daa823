//! IKEv2 handshakes and the memory of their SAs: Casemate's responder in this process ([`memory`]), and as a process beside
//! strongSwan's charon, both against the same initiators ([`load`]). Run by `cargo xtask bench handshakes`.
//!
//! In each round every responder has a turn with a fresh process on a CPU of its own, so that a machine that slows down
//! slows all of them down.
// A tool for developers: what goes wrong here should stop it, at the line where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod case;
mod dice;
mod heap;
mod initiator;
mod load;
mod memory;
mod options;
mod pki;
mod report;
mod responder;
mod turn;

use case::{Auth, CASES, Case, INITIATOR};
use casemate_interop::{Charon, Error, Result, is_root};
use casemate_stage::scratch::Scratch;
use options::Options;
use pki::Pki;
use report::{InMemory, Report};
use responder::Program;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.as_slice() {
        // Of this program by itself, in the namespace of the initiators.
        [load, file, count] if load == "--load" => load_here(Path::new(file), count),
        _ => Options::parse(words.into_iter()).and_then(|options| start(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("handshakes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load_here(file: &Path, count: &str) -> Result<()> {
    let count = count.parse().map_err(Error::in_front(count))?;
    let took = load::run(file, INITIATOR, count)?;
    println!("{}", took.as_secs_f64());
    Ok(())
}

fn start(options: &Options) -> Result<()> {
    if options.help {
        print!("{}", options::HELP);
        return Ok(());
    }
    let mut cases: Vec<Case> = CASES.into_iter().filter(|case| options.selects(&case.name())).collect();
    if cases.is_empty() {
        return Err(Error::new("no case has such a name"));
    }
    let directory = Scratch::new("handshakes")?;
    let mut report = Report::default();
    let pki = match Pki::make(directory.path().join("pki")) {
        Ok(pki) => Some(pki),
        Err(error) => {
            report.left_out.push(format!("certificates: {error}"));
            cases.retain(|case| case.auth == Auth::Psk);
            None
        }
    };
    for case in &cases {
        report.in_memory.push(in_memory(*case, options.sas, pki.as_ref(), directory.path())?);
    }
    if !options.in_memory {
        processes(&cases, options, pki.as_ref(), directory.path(), &mut report)?;
    }
    if options.json {
        println!("{}", report.to_json());
    } else {
        report.print();
    }
    Ok(())
}

fn in_memory(case: Case, count: u32, pki: Option<&Pki>, directory: &Path) -> Result<InMemory> {
    let directory = directory.join("memory").join(case.name());
    responder::prepare(case, pki, &directory)?;
    let cost = memory::measure(case, count, &directory);
    Ok(InMemory { case: case.name(), count, time: cost.time.as_secs_f64() * 1e3, bytes: cost.bytes })
}

fn processes(
    cases: &[Case],
    options: &Options,
    pki: Option<&Pki>,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    if !is_root() {
        return Err(Error::new("namespaces that are connected need root (--in-memory does not)"));
    }
    let mut programs = vec![Program::Casemate(options.casemate.clone())];
    match Charon::copy_to(directory.join("programs")) {
        Ok(charon) => programs.push(Program::Charon(charon)),
        Err(error) => report.left_out.push(format!("charon: {error}")),
    }
    for case in cases {
        report.rows.extend(turn::rounds(*case, &programs, options, pki, &directory.join(case.name()))?);
    }
    Ok(())
}
