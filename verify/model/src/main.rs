//! Explores runs of the model: those of the tests, larger ones, or one with given bounds.

use casemate_model::handover::{self, Handover};
use casemate_model::{Bounds, Defect, HIGHEST_NUMBER, LARGE_RUNS, RUNS, Run};
use std::process::ExitCode;

const HELP: &str = "\
casemate-model                          explores the runs of the tests, and those of handovers
casemate-model --large                  explores larger runs, which take minutes and gigabytes
casemate-model BOUND=N ...              explores one run with these bounds; the others are 0
casemate-model --defect NAME BOUND=N ...   the same with a defect, for its counterexample

Bounds: nodes, takeovers, extensions, crashes, unanswered, ike-requests, liveness, inbound, deletions,
restorations; block (size of a block of sequence numbers), outbound and stored (0 or 1).
Without a bound for them, there are 2 nodes, 3 takeovers and blocks of 1.
";

struct Arguments {
    runs: Vec<Run>,
    handovers: Vec<Handover>,
    defect: Option<Defect>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut own = Run { name: "run", block: 1, bounds: Bounds::SMALL };
    let mut parsed = Arguments { runs: Vec::new(), handovers: Vec::new(), defect: None };
    let mut has_bounds = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--large" => {
                parsed.runs.extend(LARGE_RUNS);
                parsed.handovers.extend(handover::LARGE_RUNS);
            }
            "--defect" => {
                let name = arguments.next().ok_or("`--defect` needs a name")?;
                let defect = Defect::ALL.into_iter().find(|defect| format!("{defect:?}") == name);
                parsed.defect = Some(defect.ok_or_else(|| unknown_defect(&name))?);
            }
            _ => {
                let (name, value) = argument.split_once('=').ok_or_else(|| unknown(&argument))?;
                let limit = "a number from 0 to 6";
                let number = value.parse().ok().filter(|number| *number <= 6);
                let number = number.ok_or_else(|| format!("`{name}` needs {limit}, got `{value}`"))?;
                set(&mut own, name, number).ok_or_else(|| unknown(&argument))?;
                has_bounds = true;
            }
        }
    }
    if has_bounds {
        let numbers = own.bounds.highest_number(own.block);
        if numbers > HIGHEST_NUMBER {
            return Err(format!(
                "the bounds allow sequence number {numbers}, {HIGHEST_NUMBER} is the highest: lower `block`, \
                 `takeovers` or `extensions`"
            ));
        }
        parsed.runs.push(own);
    } else if parsed.runs.is_empty() {
        parsed.runs.extend(RUNS);
        parsed.handovers.extend(handover::RUNS);
    }
    Ok(parsed)
}

fn unknown(argument: &str) -> String {
    format!("`{argument}` is neither an option nor a bound\n{HELP}")
}

fn unknown_defect(name: &str) -> String {
    format!("`{name}` is not a defect; there are {:?}", Defect::ALL)
}

/// Sets a bound. `None` if there is none with this name.
fn set(run: &mut Run, name: &str, number: u8) -> Option<()> {
    let bounds = &mut run.bounds;
    match name {
        "block" => run.block = number.max(1),
        "nodes" => bounds.nodes = number,
        "takeovers" => bounds.takeovers = number,
        "extensions" => bounds.extensions = number,
        "crashes" => bounds.crashes = number,
        "unanswered" => bounds.unanswered = number,
        "ike-requests" => bounds.ike_requests = number,
        "liveness" => bounds.liveness = number,
        "inbound" => bounds.inbound = number,
        "deletions" => bounds.deletions = number,
        "restorations" => bounds.restorations = number,
        "outbound" => bounds.outbound = number > 0,
        "stored" => bounds.stored = number > 0,
        _ => return None,
    }
    Some(())
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("casemate-model: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut all_hold = true;
    for run in &arguments.runs {
        let report = run.explore(arguments.defect);
        println!("{}: {report}", run.name);
        all_hold &= report.holds();
    }
    for run in &arguments.handovers {
        let explored = run.explore();
        println!("{run}: {} states, failed: {:?}", explored.states, explored.failed);
        all_hold &= explored.failed.is_empty();
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
