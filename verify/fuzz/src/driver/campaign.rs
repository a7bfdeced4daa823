//! All targets of one run, as many at once as there are processors, and the report.

use super::engine::{self, Failure, Outcome, Places};
use super::options::Campaign;
use casemate_fuzz::{Target, regressions};
use std::sync::Mutex;
use std::thread;

/// Longer inputs are not shown, but named by their file.
const LONGEST_SHOWN: usize = 1_024;

/// Fuzzes every target; fails when one of them broke a promise.
pub(crate) fn run(campaign: &Campaign) -> Result<(), String> {
    let places = Places::new().map_err(|error| error.to_string())?;
    engine::build(&places)?;
    let (count, seconds) = (campaign.targets.len(), campaign.time.as_secs());
    println!("{count} targets, {seconds} s each");
    let waiting = Mutex::new(campaign.targets.iter());
    let failed = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, |processors| processors.get()).min(count);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(target) = waiting.lock().unwrap().next() else { break };
                    if !fuzz(&places, target, campaign) {
                        failed.lock().unwrap().push(target.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    if failed.is_empty() { Ok(()) } else { Err(format!("broken promises: {}", failed.join(", "))) }
}

fn fuzz(places: &Places, target: &'static Target, campaign: &Campaign) -> bool {
    match engine::run(places, target, campaign.time, campaign.is_smoke) {
        Err(error) => {
            println!("{:<12} the engine did not run: {error}", target.name);
            false
        }
        Ok(outcome) => {
            println!("{}", report(&outcome));
            outcome.failure.is_none()
        }
    }
}

fn report(outcome: &Outcome) -> String {
    let Outcome { target, runs, corpus, took, failure } = outcome;
    let name = target.name;
    match failure {
        None => {
            let speed = *runs as f64 / took.as_secs_f64().max(0.001);
            format!("{name:<12} ok: {runs} runs, {speed:.0}/s, {corpus} new inputs")
        }
        Some(Failure { message, log, input, artifact }) => {
            let replay = match (input, artifact) {
                (Some(input), _) if input.len() <= LONGEST_SHOWN => {
                    let hex = regressions::to_hex(input);
                    format!("input: {hex}\nreplay: cargo xtask fuzz --replay {name} {hex}")
                }
                (_, Some(path)) => format!("replay: cargo xtask fuzz --replay {name} {}", path.display()),
                (_, None) => "no input is known".into(),
            };
            format!("{name:<12} FAILED\n{message}\nlog: {}\n{replay}", log.display())
        }
    }
}
