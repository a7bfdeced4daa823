//! The program `nft`, which applies scripts to nftables.
//!
//! A script is one transaction of the kernel: after an error, or if `nft` is killed, the kernel is in the one
//! state or the other.

use crate::program::{TIME_LIMIT, find, searched};
use crate::{Error, program, sandbox};
use std::path::PathBuf;

/// Runs a script and waits for its end.
pub(super) fn run(script: &str) -> Result<(), Error> {
    program::run(&path()?, &["-f", "-"], script, TIME_LIMIT)
}

/// Fails if the program is not installed; the error names the paths that were searched.
pub fn check_installed() -> Result<(), Error> {
    path().map(drop)
}

fn path() -> Result<PathBuf, Error> {
    let missing = || {
        let reason = format!("not installed (Debian package nftables): looked for {}", searched("nft"));
        Error::other("nft", reason)
    };
    find("nft").ok_or_else(missing)
}

/// Main loop of the process that applies scripts for its parent (`runner`).
pub fn run_script_server() -> Result<(), Error> {
    crate::runner::serve(sandbox::keep_for_nft, |script| run(script).map(|()| String::new()))
}

#[cfg(test)]
pub(in crate::nft) mod tests {
    use super::*;
    use crate::netfilter::Netfilter;
    use crate::netns::Netns;
    use crate::runner::Runner;

    /// Starts [`runs_as_runner`] in a process of its own.
    pub(in crate::nft) fn start() -> Runner {
        let test = "nft::program::tests::runs_as_runner";
        Runner::start("nft", &["--ignored", "--exact", test, "--test-threads=1"]).unwrap()
    }

    #[test]
    #[ignore = "other tests start it as a process of its own"]
    fn runs_as_runner() {
        // Without a socket as standard input, the call returns at once.
        let _ = run_script_server();
    }

    #[test]
    fn the_runner_applies_scripts_and_returns_errors_until_it_ends() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let test = || {
            let (mut runner, mut netfilter) = (start(), Netfilter::open().unwrap());
            let mut has = |table: &str| netfilter.has_table(table).unwrap();
            runner.run("table inet one { }\n").unwrap();
            assert!(has("one"));
            let long = format!("# {}\ntable inet two {{ }}\n", "x".repeat(1 << 20));
            runner.run(&long).unwrap();
            let error = runner.run("table inet three { }\nno command\n").unwrap_err().to_string();
            assert!(error.starts_with("nft: ") && error.contains("syntax error"), "{error}");
            assert!(has("two") && !has("three"));
            runner.run("delete table inet one\n").unwrap();
            assert!(!has("one"));
            runner.kill();
            for _ in 0..2 {
                let error = runner.run("table inet four { }\n").unwrap_err().to_string();
                assert!(error.contains("the process that runs nft"), "{error}");
            }
        };
        netns.run(test).unwrap();
    }

    #[test]
    fn the_runner_ends_with_its_parent() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        // The parent is the thread that started the process. It ends after the first script.
        let work = || {
            let mut runner = start();
            runner.run("").unwrap();
            runner
        };
        let mut runner = netns.run(work).unwrap();
        let started = casemate_test_support::eventually("it ends", || runner.exit_status());
        assert!(!started.success(), "killed by the kernel");
        assert!(runner.run("table inet one { }\n").is_err());
    }
}
