//! IKEv2 handshakes and the memory of their SAs: Casemate's responder in this process ([`memory`]), and as
//! a process compared with strongSwan's charon, with the same initiators ([`initiator`]). `cargo xtask bench
//! handshakes` runs it.
//!
//! In each round, every responder is measured with a new process on a CPU of its own, so that a machine
//! that slows down affects all of them.

// Developer tool: a failure stops the program where it happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod case;
mod initiator;
mod memory;
mod processes;
mod report;
mod responder;

use case::{Auth, CASES, Case, INITIATOR, Pki};
use casemate_interop::{Charon, Error, Result, is_root};
use casemate_testbed::TempDir;
use memory::ProviderSet;
use report::{InMemory, Report};
use responder::Program;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let completed = match words.as_slice() {
        // This program runs itself with --load in the namespace of the initiators.
        [load, file, count] if load == "--load" => load_here(Path::new(file), count),
        _ => Options::parse(words.into_iter()).and_then(|options| start(&options)),
    };
    match completed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("handshakes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load_here(file: &Path, count: &str) -> Result<()> {
    let count = count.parse().map_err(Error::context(count))?;
    let took = initiator::run_load(file, INITIATOR, count)?;
    println!("{}", took.as_secs_f64());
    Ok(())
}

fn start(options: &Options) -> Result<()> {
    if options.help {
        print!("{}", HELP);
        return Ok(());
    }
    let mut cases: Vec<Case> = CASES.into_iter().filter(|case| options.selects(&case.name())).collect();
    if cases.is_empty() {
        return Err(Error::new("no case name contains all of the filters"));
    }
    let directory = TempDir::new("handshakes")?;
    let mut report = Report::default();
    let pki = match Pki::make(directory.path().join("pki")) {
        Ok(pki) => Some(pki),
        Err(error) => {
            report.skipped.push(format!("certificates: {error}"));
            cases.retain(|case| case.auth == Auth::Psk);
            None
        }
    };
    for providers in &memory::PROVIDERS {
        for case in &cases {
            report.in_memory.push(in_memory(*case, providers, options.sas, pki.as_ref(), directory.path())?);
        }
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

fn in_memory(
    case: Case,
    providers: &ProviderSet,
    count: u32,
    pki: Option<&Pki>,
    directory: &Path,
) -> Result<InMemory> {
    let directory = directory.join("memory").join(providers.name).join(case.name());
    responder::prepare(case, pki, &directory)?;
    let count = count.min(providers.most_sas);
    let cost = memory::measure(case, count, providers.list, &directory);
    Ok(InMemory { case, provider: providers.name, count, cost })
}

fn processes(
    cases: &[Case],
    options: &Options,
    pki: Option<&Pki>,
    directory: &Path,
    report: &mut Report,
) -> Result<()> {
    if !is_root() {
        return Err(Error::new(
            "this benchmark needs root, because it connects network namespaces (--in-memory does not)",
        ));
    }
    let mut programs = vec![Program::Casemate(options.casemate.clone())];
    match Charon::copy_to(directory.join("programs")) {
        Ok(charon) => programs.push(Program::Charon(charon)),
        Err(error) => report.skipped.push(format!("charon: {error}")),
    }
    report.rows = processes::rounds(cases, &programs, options, pki, directory)?;
    Ok(())
}

pub(crate) const HELP: &str = "IKEv2 handshakes: Casemate and strongSwan's charon as responders, side by side.

Usage: handshakes [--json] [--quick] [--in-memory] [--casemate PROGRAM] [--rounds N] [--count N] [--sas N] [FILTER...]

  FILTER              measure only cases whose names contain every FILTER, for example `psk x25519`
  --in-memory         measure only Casemate's responder in this process, without sockets; needs no root
  --casemate PROGRAM  program to measure (default: `casemate` in the directory of this program)
  --rounds N          rounds; each measures every responder with a new process (default: 5)
  --count N           handshakes of a responder in each round (default: 2000)
  --sas N             IKE SAs in memory, each with a Child SA (default: 10000; at most 1000 with RustCrypto)
  --quick             one short round: a smoke test, not a measurement
  --json              print one JSON object
";

/// Options of the benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) json: bool,
    pub(crate) in_memory: bool,
    pub(crate) casemate: PathBuf,
    pub(crate) rounds: u32,
    pub(crate) count: u32,
    pub(crate) sas: u32,
    filters: Vec<String>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(Error::context("this program"))?;
        let mut options = Self {
            help: false,
            json: false,
            in_memory: false,
            casemate: program.parent().unwrap_or(Path::new(".")).join("casemate"),
            rounds: 5,
            count: 2_000,
            sas: 10_000,
            filters: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => options.help = true,
                "--json" => options.json = true,
                "--in-memory" => options.in_memory = true,
                "--quick" => (options.rounds, options.count, options.sas) = (1, 100, 100),
                "--casemate" => options.casemate = value(&word, words.next())?.into(),
                "--rounds" => options.rounds = number(&word, words.next())?,
                "--count" => options.count = number(&word, words.next())?,
                "--sas" => options.sas = number(&word, words.next())?,
                option if option.starts_with('-') => {
                    return Err(Error::new(format!("unknown option `{option}` (see --help)")));
                }
                _ => options.filters.push(word),
            }
        }
        Ok(options)
    }

    /// Whether the filters select a case.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| name.contains(filter.as_str()))
    }
}

fn value(option: &str, value: Option<String>) -> Result<String> {
    value.ok_or_else(|| Error::new(format!("{option} needs a value")))
}

fn number(option: &str, word: Option<String>) -> Result<u32> {
    let word = value(option, word)?;
    let number = word.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Error::new(format!("{option} {word}: expected a number greater than 0")))
}
