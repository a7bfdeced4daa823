//! The step of `casemate advise` that measures ESP in UDP. It runs in another process of this program, which
//! has a mount namespace with a private /run and, without root, a user namespace. Only a process with one
//! thread can enter a user namespace.

use super::AdviseArgs;
use casemate_advise::encapsulation::{self, EncapsulationPlan, EncapsulationSamples};
use casemate_app::failure::Failure;
use casemate_app::output;
use casemate_linux::netns;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Option of the process that measures. Its value is the suite.
const OPTION: &str = "--measure-encapsulation";
/// Interval at which the progress indicator moves.
const TICK: Duration = Duration::from_millis(100);

/// Measures ESP in UDP beside ESP alone with a suite, the value of `esp_proposals`. The error is the reason
/// why nothing was measured.
pub(super) fn measure(args: &AdviseArgs, suite: &str) -> Result<EncapsulationSamples, String> {
    if let Some(reason) = why_not(args) {
        return Err(reason.into());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let bar = ProgressBar::new_spinner().with_message("one TCP stream through ESP, and through ESP in UDP");
    bar.enable_steady_tick(TICK);
    let output = Command::new(program).args(["advise", OPTION, suite]).output();
    bar.finish_and_clear();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(reason(&String::from_utf8_lossy(&output.stderr)));
    }
    let value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    EncapsulationSamples::from_json(&value).ok_or_else(|| "the result is incomplete".into())
}

/// Runs the measurement in this process, and prints the samples.
pub(super) fn run(suite: &str) -> Result<(), Failure> {
    netns::isolate().map_err(Failure::failed)?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let directory = program.parent().map(PathBuf::from).unwrap_or_default();
    let samples =
        encapsulation::measure(suite, &directory, EncapsulationPlan::USUAL).map_err(Failure::failed)?;
    output::print(&format!("{}\n", samples.json()))
}

/// Reason why the measurement would not help with these arguments.
fn why_not(args: &AdviseArgs) -> Option<&'static str> {
    let reasons = [
        (args.goal.is_exact(), "the goal is the number of bytes, and encapsulation adds 8 to each packet"),
        (args.nat, "behind a NAT, ESP is always in UDP"),
        (args.other_peer, "only Casemate knows `encap = auto` (--other-peer)"),
        (args.lines == Some(super::Lines::Xfrm), "`encap` is a setting of swanctl.conf"),
        (args.quick, "--quick leaves it out"),
        (args.as_if.is_some(), "another device is simulated (--as-if)"),
        (args.host_to_host, "it is measured in tunnel mode only (--host-to-host)"),
        (args.ipv6, "it is measured over IPv4 only (--ipv6)"),
        (args.integrity_only, "it is measured with encryption only (--integrity-only)"),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

/// The message of a process that has failed, in one line without the name of the program.
fn reason(stderr: &str) -> String {
    let lines = stderr.lines().map(|line| line.strip_prefix("casemate: ").unwrap_or(line).trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "the measurement failed without a message".into() } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_line() {
        assert_eq!(
            reason("casemate: unshare: not permitted\n  \ncasemate: see above\n"),
            "unshare: not permitted; see above"
        );
        assert_eq!(reason(""), "the measurement failed without a message");
    }
}
