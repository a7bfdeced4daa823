//! Firmware matrix: the bootable image without an operating system (apps/firmware) under QEMU. Its peer is
//! `casemate run`, or a Linux kernel with manual keys.
//!
//! ```text
//!     network namespace                                      guest: the firmware, QEMU without KVM
//!     casemate run --config FILE, or --xfrm FILE             keys, mode and role from a file beside the
//!     image
//!     10.9.0.1 fd09::1 on tap0   ---- 1500 bytes, captured ---- 10.9.0.2 fd09::2
//! ```
//!
//! In the cases `kernel/...`, the other end of the link is eth0 of a second guest, whose kernel implements
//! ESP; its counters must show no errors. The strongSwan matrix tests the firmware with strongSwan.
//!
//! In each case, the page is fetched and each byte compared, echo requests of up to 8000 bytes get replies,
//! the capture contains only ARP, neighbour discovery, IKE and ESP, the TCP echo and discard services work,
//! and clear text gets no reply. Three cases measure requests per second, plain and protected. In the cases
//! `pc/exhaust/...`, a resource is exhausted or silent, and the firmware has to recover. In the cases
//! `pc/fault/...`, the firmware violates its memory protection and has to stop. In the cases `pc/refuse/...`,
//! its command line or file is not UTF-8, and it has to refuse it.
//!
//! The output has one line per case and a summary; the exit status is 0 only if all cases pass.

mod case;
mod exhaust;
mod peer;
mod run;
mod wire;

use case::{Case, Machine};
use casemate_interop::{Error, Result};
use exhaust::StressCase;
use run::{CaseOutcome, Files, StopCase};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: firmware-matrix --image FILE --casemate FILE --probe FILE --directory DIR [FILTER...]
FILTER selects cases by parts of their names, all of which must match.";

/// Goal for the time from the start of QEMU to the first protected reply, including the handshake.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match options(&words).and_then(|(files, filter)| all(&files, &filter)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("firmware-matrix: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options<'w>(words: &[&'w str]) -> Result<(Files, Vec<&'w str>)> {
    let (mut image, mut casemate, mut probe, mut directory) = (None, None, None, None);
    let (mut filter, mut rest) = (Vec::new(), words.iter());
    while let Some(word) = rest.next() {
        let option = match *word {
            "--image" => &mut image,
            "--casemate" => &mut casemate,
            "--probe" => &mut probe,
            "--directory" => &mut directory,
            option if option.starts_with('-') => return Err(Error::new(format!("`{option}`\n{USAGE}"))),
            part => {
                filter.push(part);
                continue;
            }
        };
        *option = rest.next().map(PathBuf::from);
    }
    match (image, casemate, probe, directory) {
        (Some(image), Some(casemate), Some(probe), Some(directory)) => {
            let images = directory.parent().unwrap_or(&directory).to_owned();
            Ok((Files { image, casemate, probe, directory, images }, filter))
        }
        _ => Err(Error::new(USAGE)),
    }
}

/// Runs the selected cases. Returns whether all passed.
fn all(files: &Files, filter: &[&str]) -> Result<bool> {
    let cases: Vec<Case> =
        case::all().into_iter().filter(|case| filter.iter().all(|part| case.name().contains(part))).collect();
    let picked = |name: String| filter.iter().all(|part| name.contains(part));
    let stress_cases: Vec<StressCase> = exhaust::ALL.into_iter().filter(|one| picked(one.name())).collect();
    let stop_cases: Vec<StopCase> = run::STOP_CASES.into_iter().filter(|one| picked(one.name())).collect();
    let count = cases.len().saturating_add(stress_cases.len()).saturating_add(stop_cases.len());
    if count == 0 {
        return Err(Error::new("no case matches the filters"));
    }
    let (start, mut failed) = (Instant::now(), 0u32);
    let (mut rates, mut kernel) = (Vec::new(), None);
    for case in &cases {
        match run::one(case, files, &mut kernel).and_then(|outcome| judge(case, outcome)) {
            Ok(outcome) => {
                println!("ok    {:<32} {outcome}", case.name());
                rates.extend(outcome.requests.map(|rate| (case.protection(), rate)));
            }
            Err(error) => {
                failed = failed.saturating_add(1);
                println!("FAIL  {:<32} {error}", case.name());
            }
        }
    }
    let stress_cases = stress_cases.iter().map(|case| (case.name(), case.run(files)));
    let stop_cases = stop_cases.iter().map(|case| (case.name(), case.run(files)));
    for (name, result) in stress_cases.chain(stop_cases) {
        match result {
            Ok(said) => println!("ok    {name:<32} {said}"),
            Err(error) => {
                failed = failed.saturating_add(1);
                println!("FAIL  {name:<32} {error}");
            }
        }
    }
    say_rates(&rates);
    println!("firmware matrix: {count} cases, {failed} failed ({:.0} s)", start.elapsed().as_secs_f64());
    Ok(failed == 0)
}

/// Prints the measured rates. The first one is without protection, unless that case was not selected; the
/// goal of the others is half of it. The load of the machine affects these rates, so a missed goal is not a
/// failure.
fn say_rates(rates: &[(&str, f64)]) {
    let Some((("plain", plain), others)) = rates.split_first() else { return };
    let shares =
        others.iter().map(|(what, rate)| format!(", {rate:.0} {what} ({:.0} %)", rate / plain * 100.0));
    println!("requests per second: {plain:.0} plain{}", shares.collect::<String>());
}

/// Checks the goal for the first reply, on QEMU's `pc` with IKEv2.
fn judge(case: &Case, outcome: CaseOutcome) -> Result<CaseOutcome> {
    if case.machine == Machine::Pc
        && case.uses_ike()
        && case.loss.is_none()
        && outcome.first_answer > FIRST_ANSWER
    {
        return Err(Error::new(format!(
            "the first reply took longer than {} s: {outcome}",
            FIRST_ANSWER.as_secs()
        )));
    }
    Ok(outcome)
}
