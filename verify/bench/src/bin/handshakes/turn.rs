//! Rounds: in each, every responder has a turn with a process and namespaces of its own.

use crate::case::{BEHIND, Case, INITIATOR, RESPONDER};
use crate::options::Options;
use crate::pki::Pki;
use crate::report::{Row, Spread};
use crate::responder::{self, Program};
use casemate_interop::{Error, Netns, Result, run};
use std::path::Path;
use std::time::Duration;

/// How long the handshakes of a turn may take.
const LIMIT: Duration = Duration::from_secs(150);

/// What one turn came to.
struct Turn {
    rate: f64,
    cpu_ms: f64,
    programs_ms: f64,
    resident_kib: f64,
}

/// Measures all programs, and gives a row for each.
pub(crate) fn rounds(
    case: Case,
    programs: &[Program],
    options: &Options,
    pki: Option<&Pki>,
    directory: &Path,
) -> Result<Vec<Row>> {
    let mut turns: Vec<Vec<Turn>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds as usize {
        for step in 0..programs.len() {
            // Each round begins with another one.
            let which = (round + step) % programs.len();
            let program = &programs[which];
            let directory = directory.join(format!("{round}-{}", program.name()));
            responder::prepare(case, pki, &directory)?;
            let context = Error::in_front(format!("{} with {}", case.name(), program.name()));
            turns[which].push(turn(program, options.count, &directory).map_err(context)?);
        }
    }
    let row = |(program, turns): (&Program, Vec<Turn>)| {
        let spread = |value: fn(&Turn) -> f64| Spread::of(turns.iter().map(value).collect());
        Row {
            case: case.name(),
            responder: program.name(),
            rate: spread(|turn| turn.rate),
            cpu: spread(|turn| turn.cpu_ms),
            programs: spread(|turn| turn.programs_ms),
            resident: spread(|turn| turn.resident_kib),
        }
    };
    Ok(programs.iter().zip(turns).map(row).collect())
}

fn turn(program: &Program, count: u32, directory: &Path) -> Result<Turn> {
    let (initiators, netns) = connected()?;
    let responder = program.start(&netns, &directory.join("responder"))?;
    let before = responder.usage()?;
    let own = std::env::current_exe().map_err(Error::in_front("this program"))?.display().to_string();
    let file = directory.join("initiator/swanctl.conf").display().to_string();
    let words = ["--cpu-list", "0", &own, "--load", &file, &count.to_string()];
    let output = run(&initiators, LIMIT, "taskset", &words)?;
    let after = responder.usage()?;
    let seconds: f64 = match output.status {
        0 => output.stdout.trim().parse().map_err(Error::in_front(output.stdout.trim()))?,
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

/// Two namespaces with a link between them: of the initiators and of the responder.
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
