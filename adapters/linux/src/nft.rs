//! Scripts for the program `nft`, each one transaction of the kernel.
//!
//! A running instance may not start programs: its system calls are limited. Before that it starts a small
//! process, the runner, which does nothing but apply scripts that it gets through a socket. Commands that
//! end at once start `nft` themselves (module `program`).

mod program;
mod runner;

use crate::Error;
use program::TIME_LIMIT;
use runner::Runner;
pub use runner::serve;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a caller waits for the end of a script. The runner ends a script that hangs before that, so only
/// a machine that is overloaded, or was suspended, takes longer.
const PATIENCE: Duration = TIME_LIMIT.saturating_add(Duration::from_secs(5));

/// The way of scripts to `nft`. Copies share it.
#[derive(Debug, Clone)]
pub struct Nft {
    /// `None` if this process starts `nft` itself.
    runner: Option<Arc<Mutex<Runner>>>,
    patience: Duration,
}

impl Nft {
    /// This process starts `nft` itself.
    pub const fn direct() -> Self {
        Self { runner: None, patience: PATIENCE }
    }

    /// A process of its own starts `nft`: this program with the argument `entry`, with which it calls [`serve`].
    /// It ends with the calling thread.
    pub fn runner(entry: &str) -> Result<Self, Error> {
        Runner::start(&[entry]).map(|runner| Self::through(runner, PATIENCE))
    }

    fn through(runner: Runner, patience: Duration) -> Self {
        Self { runner: Some(Arc::new(Mutex::new(runner))), patience }
    }

    /// Applies a script and waits for its end. After an error that says that it took too long, it may still
    /// be applied.
    pub(crate) fn run(&self, script: &str) -> Result<(), Error> {
        if self.runner.is_none() {
            return program::run(script);
        }
        let mut job = Job::start(self, script.into(), || {});
        job.wait()?;
        job.result().unwrap_or_else(|| Err(not_started()))
    }

    /// An error if no script can be applied any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(runner) = &self.runner else { return Ok(()) };
        match runner.try_lock() {
            Ok(runner) => runner.check(),
            // The thread that waits for a reply notices the end.
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Poisoned(error)) => error.into_inner().check(),
        }
    }

    /// Waits for the end of a script however long it takes: the reply to a script is the next one that comes.
    fn run_to_end(&self, script: &str) -> Result<(), Error> {
        match &self.runner {
            None => program::run(script),
            Some(runner) => runner.lock().unwrap_or_else(PoisonError::into_inner).run(script),
        }
    }
}

/// A script at work.
#[derive(Debug)]
pub(crate) struct Job {
    result: Receiver<Result<(), Error>>,
    /// It was waited for.
    early: Option<Result<(), Error>>,
    patience: Duration,
    /// When it takes longer than it should; `None` once that was reported.
    late_at: Option<Instant>,
}

impl Job {
    /// Starts a script; `done` is called at its end.
    pub(crate) fn start(nft: &Nft, script: String, done: impl FnOnce() + Send + 'static) -> Self {
        let (sender, result) = channel();
        let patience = nft.patience;
        let nft = nft.clone();
        let work = move || {
            // Whoever does not wait for it does not need it.
            let _ = sender.send(nft.run_to_end(&script));
            done();
        };
        // Without a thread the channel is closed, which is an error.
        let _ = thread::Builder::new().name("nft".into()).spawn(work);
        Self { result, early: None, patience, late_at: Instant::now().checked_add(patience) }
    }

    /// What became of it; `None` while it works.
    pub(crate) fn result(&mut self) -> Option<Result<(), Error>> {
        if self.early.is_some() {
            return self.early.take();
        }
        match self.result.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(not_started())),
            Ok(result) => Some(result),
        }
    }

    /// Reports once that it takes longer than it should.
    pub(crate) fn take_late(&mut self) -> Option<Error> {
        self.late_at.take_if(|late_at| Instant::now() >= *late_at).map(|_| self.late())
    }

    /// Waits for its end. An error if it does not come in time.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        if self.early.is_some() {
            return Ok(());
        }
        self.early = Some(match self.result.recv_timeout(self.patience) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(not_started()),
            Err(RecvTimeoutError::Timeout) => return Err(self.late()),
        });
        Ok(())
    }

    fn late(&self) -> Error {
        let reason = format!("a script has not ended after {} seconds", self.patience.as_secs_f32());
        Error::other("nft", reason)
    }
}

fn not_started() -> Error {
    Error::other("nft", "no thread could be started for it")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::eventually::eventually;
    use crate::netfilter::Netfilter;
    use crate::netns::Netns;

    /// The process that starts `nft`.
    pub(crate) struct Process(String);

    impl Process {
        /// Starts one; callers wait as long as `patience` says.
        pub(crate) fn start(patience: Duration) -> (Nft, Self) {
            let runner = runner::tests::start();
            let process = Self(runner.id().to_string());
            (Nft::through(runner, patience), process)
        }

        /// Stops it, as a machine does that is suspended or overloaded.
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
    fn a_late_reply_is_no_loss() {
        let Some(netns) = Netns::new().map_err(casemate_left_out::note).ok() else { return };
        let test = || {
            let (nft, process) = Process::start(Duration::from_millis(100));
            let mut netfilter = Netfilter::open().unwrap();
            let mut has = |table: &str| netfilter.has_table(table).unwrap();
            process.stop();
            // The second one is longer than what fits the socket.
            for script in
                ["table inet one { }\n".into(), format!("# {}\ntable inet two {{ }}\n", "x".repeat(1 << 20))]
            {
                let error = nft.run(&script).unwrap_err().to_string();
                assert!(error.contains("has not ended after 0.1 seconds"), "{error}");
            }
            nft.check().unwrap();
            process.go_on();
            eventually("both are applied", || (has("one") && has("two")).then_some(()));
            let nft = Nft { patience: PATIENCE, ..nft };
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
