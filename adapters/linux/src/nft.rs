//! Runs scripts of the program `nft`. Each script is one transaction of the kernel.
//!
//! A running instance cannot start programs: its system calls are limited. Before they are, it starts a small
//! process, the runner, which only applies scripts that it receives through a socket. Commands that end at
//! once start `nft` themselves (module `program`).

mod program;

use crate::Error;
use crate::program::TIME_LIMIT;
use crate::runner::Runner;
use casemate_wire::invariant::OrBroken;
pub use program::{check_installed, run_script_server};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a caller waits for the end of a script. The runner kills a script that hangs before that, so
/// only a machine that is overloaded, or was suspended, takes longer.
const TIMEOUT: Duration = TIME_LIMIT.saturating_add(Duration::from_secs(5));

/// Runs scripts of `nft`. Clones share one runner.
#[derive(Debug, Clone)]
pub struct Nft {
    /// This process starts `nft` itself.
    runner: Option<Arc<Mutex<Runner>>>,
    timeout: Duration,
}

impl Nft {
    /// This process starts `nft` itself.
    pub const fn direct() -> Self {
        Self { runner: None, timeout: TIMEOUT }
    }

    /// Starts a process that starts `nft`: this program with the argument `entry`, for which it calls
    /// [`run_script_server`]. The process ends with the calling thread.
    pub fn runner(entry: &str) -> Result<Self, Error> {
        Runner::start("nft", &[entry]).map(|runner| Self::with_runner(runner, TIMEOUT))
    }

    fn with_runner(runner: Runner, timeout: Duration) -> Self {
        Self { runner: Some(Arc::new(Mutex::new(runner))), timeout }
    }

    /// Applies a script and waits for its end. After an error that says that it took too long, the script may
    /// still be applied.
    pub(crate) fn run(&self, script: &str) -> Result<(), Error> {
        if self.runner.is_none() {
            return program::run(script);
        }
        ScriptJob::start(self, script.into(), || {}).finish()
    }

    /// An error if no script can be applied any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.runner.as_deref().map_or(Ok(()), Runner::check_shared)
    }

    /// Waits for the end of a script, however long it takes, because the next reply belongs to this script.
    fn run_to_end(&self, script: &str) -> Result<(), Error> {
        match &self.runner {
            None => program::run(script),
            Some(runner) => runner.lock().unwrap_or_else(PoisonError::into_inner).run(script).map(drop),
        }
    }
}

/// A running script.
#[derive(Debug)]
pub(crate) struct ScriptJob {
    result: Receiver<Result<(), Error>>,
    /// The result, if a caller has waited for it.
    finished: Option<Result<(), Error>>,
    timeout: Duration,
    /// When the script is overdue; `None` once that was reported.
    overdue_at: Option<Instant>,
}

impl ScriptJob {
    /// Starts a script. Calls `done` at its end. If it cannot be started, the result says so at once.
    pub(crate) fn start(nft: &Nft, script: String, done: impl FnOnce() + Send + 'static) -> Self {
        let (sender, result) = channel();
        let timeout = nft.timeout;
        let nft = nft.clone();
        let run = move || {
            // The receiver is gone if no caller waits for the result.
            let _ = sender.send(nft.run_to_end(&script));
            done();
        };
        let started = thread::Builder::new().name("nft".into()).spawn(run);
        let finished = started.err().map(|error| Err(Error::new("thread for nft", error)));
        Self { result, finished, timeout, overdue_at: Instant::now().checked_add(timeout) }
    }

    /// The result of the script; `None` while it runs.
    pub(crate) fn result(&mut self) -> Option<Result<(), Error>> {
        if self.finished.is_some() {
            return self.finished.take();
        }
        match self.result.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(panicked())),
            Ok(result) => Some(result),
        }
    }

    /// Returns an error once if the script is overdue.
    pub(crate) fn take_overdue(&mut self) -> Option<Error> {
        self.overdue_at.take_if(|late_at| Instant::now() >= *late_at).map(|_| self.overdue_error())
    }

    /// Waits for the end of the script. An error if it does not end in time.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        if self.finished.is_some() {
            return Ok(());
        }
        self.finished = Some(match self.result.recv_timeout(self.timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
            Err(RecvTimeoutError::Timeout) => return Err(self.overdue_error()),
        });
        Ok(())
    }

    /// Waits for the end of the script and returns its result. An error if it does not end in time.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.wait()?;
        self.finished.or_report("a script that has ended has a result").unwrap_or_else(|| Err(panicked()))
    }

    fn overdue_error(&self) -> Error {
        let reason = format!("a script has not ended after {} seconds", self.timeout.as_secs_f32());
        Error::other("nft", reason)
    }
}

fn panicked() -> Error {
    Error::other("thread for nft", "it panicked")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netfilter::Netfilter;
    use crate::netns::Netns;
    use casemate_test_support::eventually;

    /// The process that starts `nft`.
    pub(crate) struct Process(String);

    impl Process {
        /// Starts the process. Callers wait for a script as long as `timeout` says.
        pub(crate) fn start(timeout: Duration) -> (Nft, Self) {
            let runner = program::tests::start();
            let process = Self(runner.id().to_string());
            (Nft::with_runner(runner, timeout), process)
        }

        /// Stops the process, as on a machine that is suspended or overloaded.
        pub(crate) fn stop(&self) {
            self.send("-STOP");
            let stat = format!("/proc/{}/stat", self.0);
            let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ").then_some(());
            eventually("it stops", is_stopped);
        }

        pub(crate) fn go_on(&self) {
            self.send("-CONT");
        }

        pub(crate) fn kill(&self) {
            self.send("-KILL");
        }

        fn send(&self, signal: &str) {
            assert!(std::process::Command::new("kill").args([signal, &self.0]).status().unwrap().success());
        }
    }

    #[test]
    fn a_late_reply_belongs_to_its_script() {
        let Some(netns) = Netns::new().map_err(casemate_test_support::skip).ok() else { return };
        let test = || {
            let (nft, process) = Process::start(Duration::from_millis(100));
            let mut netfilter = Netfilter::open().unwrap();
            let mut has = |table: &str| netfilter.has_table(table).unwrap();
            process.stop();
            // The second script does not fit into the socket.
            for script in
                ["table inet one { }\n".into(), format!("# {}\ntable inet two {{ }}\n", "x".repeat(1 << 20))]
            {
                let error = nft.run(&script).unwrap_err().to_string();
                assert!(error.contains("has not ended after 0.1 seconds"), "{error}");
            }
            nft.check().unwrap();
            process.go_on();
            eventually("both are applied", || (has("one") && has("two")).then_some(()));
            let nft = Nft { timeout: TIMEOUT, ..nft };
            let error = nft.run("no command\n").unwrap_err().to_string();
            assert!(error.contains("syntax error"), "each script gets its own reply: {error}");
            nft.run("table inet three { }\n").unwrap();
            assert!(has("three"));
            process.kill();
            eventually("the end is noticed", || nft.check().err());
        };
        netns.run(test).unwrap();
    }
}
