//! Responders as processes, with the same initiators: CPU time of a handshake, also in relation to other
//! handshakes of the same round, and growth of the resident memory.

use crate::Options;
use crate::case::{BEHIND, Case, INITIATOR, Pki, RESPONDER};
use crate::report::Row;
use crate::responder::{self, Program};
use casemate_interop::{Error, Netns, Result, run};
use casemate_measure::stats::Spread;
use std::path::Path;
use std::time::Duration;

/// Time limit of the handshakes of one measurement.
const TURN_LIMIT: Duration = Duration::from_secs(150);

/// A responder in one case, and its measurements: one for each round.
struct Subject<'p> {
    case: Case,
    program: &'p Program,
    turns: Vec<Turn>,
}

/// Result of one measurement.
struct Turn {
    rate: f64,
    cpu_ms: f64,
    programs_ms: f64,
    resident_kib: f64,
}

/// Measures each program in the cases that it supports. Returns one row for each.
pub(crate) fn rounds(
    cases: &[Case],
    programs: &[Program],
    options: &Options,
    pki: Option<&Pki>,
    directory: &Path,
) -> Result<Vec<Row>> {
    let mut subjects: Vec<Subject<'_>> = cases
        .iter()
        .flat_map(|&case| programs.iter().map(move |program| (case, program)))
        .filter(|(case, program)| program.supports(*case))
        .map(|(case, program)| Subject { case, program, turns: Vec::new() })
        .collect();
    let count = subjects.len();
    for round in 0..options.rounds as usize {
        for step in 0..count {
            // Each round starts with another responder.
            let Subject { case, program, turns } = &mut subjects[(round + step) % count];
            let directory = directory.join(format!("{}-{round}-{}", case.name(), program.name()));
            responder::prepare(*case, pki, &directory)?;
            let context = Error::context(format!("{} with {}", case.name(), program.name()));
            turns.push(turn(program, options.count, &directory).map_err(context)?);
        }
    }
    Ok(subjects.iter().map(|subject| row(subject, &subjects)).collect())
}

fn row(subject: &Subject<'_>, all: &[Subject<'_>]) -> Row {
    let spread = |value: fn(&Turn) -> f64| {
        Spread::of(subject.turns.iter().map(value)).expect("there is at least one round")
    };
    let ratio = |program: &str| {
        let base =
            |other: &&Subject<'_>| other.case == subject.case.base() && other.program.name() == program;
        let cpu = |subject: &Subject<'_>| subject.turns.iter().map(|turn| turn.cpu_ms).collect::<Vec<_>>();
        Spread::of_ratios(cpu(subject), cpu(all.iter().find(base)?))
    };
    Row {
        case: subject.case,
        responder: subject.program.name(),
        rate: spread(|turn| turn.rate),
        cpu: spread(|turn| turn.cpu_ms),
        to_base: ratio(subject.program.name()),
        to_charon: ratio(responder::CHARON),
        programs: spread(|turn| turn.programs_ms),
        resident: spread(|turn| turn.resident_kib),
    }
}

fn turn(program: &Program, count: u32, directory: &Path) -> Result<Turn> {
    let (initiators, netns) = connected()?;
    let responder = program.start(&netns, &directory.join("responder"))?;
    let before = responder.usage()?;
    let own = std::env::current_exe().map_err(Error::context("this program"))?.display().to_string();
    let file = directory.join("initiator/swanctl.conf").display().to_string();
    let words = ["--cpu-list", "0", &own, "--load", &file, &count.to_string()];
    let output = run(&initiators, TURN_LIMIT, "taskset", &words)?;
    let after = responder.usage()?;
    let seconds: f64 = match output.status {
        0 => output.stdout.trim().parse().map_err(Error::context(output.stdout.trim()))?,
        _ => return Err(Error::new(output.stdout)),
    };
    let count = f64::from(count);
    Ok(Turn {
        rate: count / seconds,
        cpu_ms: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / count,
        programs_ms: after.programs.saturating_sub(before.programs).as_secs_f64() * 1e3 / count,
        resident_kib: after.resident_kib.saturating_sub(before.resident_kib) as f64 / count,
    })
}

/// Two connected namespaces: for the initiators and for the responder.
fn connected() -> Result<(Netns, Netns)> {
    let (initiators, responder) = (Netns::new()?, Netns::new()?);
    initiators.ip(&format!(
        "link add wire type veth peer name wire netns {}\nlink set wire up\naddr add {INITIATOR}/24 dev wire\n\
         route add default via {RESPONDER}\n",
        responder.pid()
    ))?;
    responder.ip(&format!(
        "link set wire up\naddr add {RESPONDER}/24 dev wire\naddr add {BEHIND}/24 dev lo\n\
         route add default via {INITIATOR}\n"
    ))?;
    Ok((initiators, responder))
}
