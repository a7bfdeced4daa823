//! Runs the updown scripts of the configuration when Child SAs come up and go down.
//!
//! A running instance cannot start programs, so it starts a process before its system calls are limited, the
//! runner, which only runs the commands that it was started with. The instance sends it the number of a
//! command and an environment, and cannot make it run anything else. docs/decisions/0112-updown.md describes
//! what a script may do.
//!
//! Scripts with the same [`UpdownJob::lane`] run one after the other, in the order of their jobs; others run
//! at the same time. Peers take turns, so that one with many scripts does not delay those of others.

mod message;
mod queue;
mod server;

use crate::helper_process::HelperProcess;
use crate::{Error, sandbox};
use message::Request;
use queue::JobQueue;
pub use server::run_updown_server;
use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Scripts that run at the same time, at most.
pub const MAX_RUNNING: usize = 8;
/// Those of one peer, at most.
pub const MAX_RUNNING_OF_PEER: usize = MAX_RUNNING / 2;
/// Time limit of a script.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the environment of a script, at most.
pub const MAX_ENVIRONMENT: usize = 16 * 1_024;
/// Bytes of the output of a script that are kept, at most.
pub const MAX_OUTPUT: usize = 4_096;

/// The user of scripts if the instance was started by root and may change its user.
pub const NOBODY: u32 = sandbox::UNPRIVILEGED;

/// Name of the process in errors.
const PROCESS_NAME: &str = "the process that runs updown scripts";

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdownJob {
    /// Identifies the result.
    pub id: u64,
    /// Who caused the job. Peers take turns.
    pub peer: Arc<str>,
    /// Jobs of the same lane run in order.
    pub lane: Arc<str>,
    /// The command, one of those of [`UpdownRunner::start`].
    pub command: Arc<str>,
    /// Names and values of the environment; the script gets no others. None contains a zero byte.
    pub environment: Vec<(String, String)>,
}

/// The end of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdownResult {
    /// The job.
    pub id: u64,
    /// How it ended.
    pub end: ScriptEnd,
    /// The beginning of what it wrote to its standard output and standard error. It may contain anything.
    pub output: String,
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptEnd {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed after [`TIME_LIMIT`].
    TimedOut,
    /// It was not started, or its end is unknown, for this reason.
    Failed(String),
}

impl fmt::Display for ScriptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Signal(number) => write!(f, "ended by signal {number}"),
            Self::TimedOut => write!(f, "killed after {} seconds", TIME_LIMIT.as_secs()),
            Self::Failed(reason) => write!(f, "not run: {reason}"),
        }
    }
}

/// Inputs of the thread that sends jobs to the runner.
enum Input {
    Job(UpdownJob),
    Ended(UpdownResult),
    /// The runner has ended, for this reason.
    RunnerEnded(String),
}

/// The runner and its queue.
#[derive(Debug)]
pub struct UpdownRunner {
    commands: HashSet<Arc<str>>,
    jobs: Sender<Input>,
    results: Receiver<UpdownResult>,
    /// Jobs without a result.
    pending: Arc<AtomicUsize>,
    /// The user of scripts.
    user: u32,
    /// Ends with this value.
    process: HelperProcess,
}

impl UpdownRunner {
    /// Starts the runner for these commands of the shell: this program with the argument `entry`, for which
    /// it calls [`run_updown_server`]. Must be called before the sandbox is entered and after signals are
    /// blocked.
    /// `wake` is called when a result is ready, and when the runner has ended.
    pub fn start(
        entry: &str,
        commands: &[Arc<str>],
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let arguments: Vec<&str> = [entry].into_iter().chain(commands.iter().map(|it| &**it)).collect();
        Self::with_process(HelperProcess::start(&arguments, PROCESS_NAME)?, commands, wake)
    }

    fn with_process(
        process: HelperProcess,
        commands: &[Arc<str>],
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let clone = || process.socket.try_clone().map_err(|error| Error::new(PROCESS_NAME, error));
        let (to_runner, from_runner) = (clone()?, clone()?);
        let user = sandbox::user_of_scripts()?;
        let (jobs, inputs) = channel();
        let (to_loop, results) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let ended = jobs.clone();
        in_background("updown results", move || receive_results(from_runner, &ended))?;
        let mut dispatcher = Dispatcher {
            commands: commands.to_vec(),
            socket: to_runner,
            queue: JobQueue::default(),
            results: to_loop,
            failure: None,
        };
        in_background("updown", move || dispatcher.run(&inputs, wake))?;
        let commands = commands.iter().cloned().collect();
        Ok(Self { commands, jobs, results, pending, user, process })
    }

    /// Whether the runner was started with this command.
    pub fn has_command(&self, command: &str) -> bool {
        self.commands.contains(command)
    }

    /// Number of the user as whom scripts run.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Number of jobs without a result.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// An error if the runner has ended, so that no script can run any more. `wake` is called then, too.
    pub fn check(&self) -> Result<(), Error> {
        if self.process.has_closed() { Err(Error::other(PROCESS_NAME, "it has ended")) } else { Ok(()) }
    }

    /// Queues a job, which gets one result.
    pub fn submit(&self, job: UpdownJob) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // The thread runs as long as this value exists.
        let _ = self.jobs.send(Input::Job(job));
    }

    /// Takes the next result, if there is one.
    pub fn result(&self) -> Option<UpdownResult> {
        self.received(self.results.try_recv().ok())
    }

    /// Waits for the next result until `timeout` is over.
    pub fn wait_for_result(&self, timeout: Duration) -> Option<UpdownResult> {
        self.received(self.results.recv_timeout(timeout).ok())
    }

    fn received(&self, result: Option<UpdownResult>) -> Option<UpdownResult> {
        let result = result?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some(result)
    }
}

fn in_background(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let work = || {
        // The thread only reads and writes a socket. If this fails, the thread keeps what the others have.
        let _ = sandbox::drop_capabilities();
        work();
    };
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|error| Error::new(format!("thread {name}"), error))
}

/// Passes results of the runner on until it ends.
fn receive_results(mut socket: UnixStream, inputs: &Sender<Input>) {
    loop {
        let input = match message::receive_result(&mut socket) {
            Ok(Some(result)) => Input::Ended(result),
            Ok(None) => Input::RunnerEnded(format!("{PROCESS_NAME} has ended")),
            Err(error) => Input::RunnerEnded(format!("{PROCESS_NAME}: {error}")),
        };
        let is_last = matches!(input, Input::RunnerEnded(_));
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}

/// Sends jobs to the runner when it is their turn.
struct Dispatcher {
    commands: Vec<Arc<str>>,
    socket: UnixStream,
    queue: JobQueue,
    results: Sender<UpdownResult>,
    /// Why no script can be run any more.
    failure: Option<String>,
}

impl Dispatcher {
    /// Serves inputs until the event loop receives no results any more.
    fn run(&mut self, inputs: &Receiver<Input>, wake: impl Fn()) {
        while let Ok(input) = inputs.recv() {
            let is_open = match input {
                Input::Job(job) => {
                    self.queue.push(job);
                    true
                }
                Input::Ended(result) => {
                    self.queue.end(result.id);
                    let sent = self.results.send(result);
                    wake();
                    sent.is_ok()
                }
                Input::RunnerEnded(reason) => {
                    self.failure.get_or_insert(reason);
                    wake();
                    true
                }
            };
            if !is_open || !self.dispatch(&wake) {
                return;
            }
        }
    }

    /// Sends the jobs whose turn it is, or fails all if the runner has ended. Returns false if the event
    /// loop receives no results any more.
    fn dispatch(&mut self, wake: &impl Fn()) -> bool {
        while self.failure.is_none()
            && let Some(job) = self.queue.next()
        {
            if let Err(error) = self.send(job) {
                self.failure = Some(error);
            }
        }
        let Some(failure) = &self.failure else { return true };
        for id in self.queue.take_all() {
            let end = ScriptEnd::Failed(failure.clone());
            if self.results.send(UpdownResult { id, end, output: String::new() }).is_err() {
                return false;
            }
            wake();
        }
        true
    }

    fn send(&mut self, job: UpdownJob) -> Result<(), String> {
        let UpdownJob { id, command, environment, .. } = job;
        let command = self.commands.iter().position(|known| *known == command);
        let request = command.and_then(|command| Request { id, command, environment }.encode());
        match request {
            Some(request) => {
                self.socket.write_all(&request).map_err(|error| format!("{PROCESS_NAME}: {error}"))
            }
            // The caller checks both; the script counts as ended.
            None => {
                self.queue.end(id);
                let end = ScriptEnd::Failed("its environment is too long".into());
                let _ = self.results.send(UpdownResult { id, end, output: String::new() });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_test_support::{TempDir, eventually};

    const ENTRY: &str = "updown::tests::runs_as_runner";

    #[test]
    #[ignore = "another test starts it as a process of its own"]
    fn runs_as_runner() {
        // The arguments of the test program are in front of the commands.
        let commands: Vec<String> = std::env::args().skip_while(|it| it != "--skip").skip(1).collect();
        let commands = commands.into_iter().filter(|it| it != "--skip").collect();
        let _ = run_updown_server(commands);
    }

    /// Starts the runner with the test program in the place of the program.
    fn start(commands: &[&str]) -> UpdownRunner {
        let arguments: Vec<&str> = ["--ignored", "--exact", ENTRY, "--test-threads=1"]
            .into_iter()
            .chain(commands.iter().flat_map(|command| ["--skip", command]))
            .collect();
        let process = HelperProcess::start(&arguments, PROCESS_NAME).unwrap();
        let commands: Vec<Arc<str>> = commands.iter().map(|it| Arc::from(*it)).collect();
        UpdownRunner::with_process(process, &commands, || {}).unwrap()
    }

    fn job(id: u64, command: &str, environment: &[(&str, &str)]) -> UpdownJob {
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        UpdownJob { id, peer: "p".into(), lane: "a".into(), command: command.into(), environment }
    }

    #[test]
    fn scripts_run_with_their_environment_and_little_else() {
        let scratch = TempDir::new("updown").unwrap();
        let show = format!(
            "echo \"$VALUE\"; /usr/bin/env | sort; grep -E '^(Cap|NoNew|Seccomp:|SigBlk)' \
             /proc/self/status; id -u; exit 3; # {}",
            scratch.path().display()
        );
        let runner = start(&[&show]);
        runner.submit(job(7, &show, &[("VALUE", "a'b`id`")]));
        let result = runner.wait_for_result(Duration::from_secs(30)).unwrap();
        assert_eq!((result.id, &result.end), (7, &ScriptEnd::Exited(3)), "{result:?}");
        let line = |start: &str| result.output.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(result.output.starts_with("a'b`id`\n"), "{result:?}");
        let variables = result.output.lines().filter(|line| line.contains('='));
        let others = variables
            .filter(|line| !["VALUE=", "PWD=", "_=", "SHLVL="].iter().any(|it| line.starts_with(it)));
        assert_eq!(others.count(), 0, "{result:?}");
        // CAP_NET_ADMIN has the number 12.
        let is_capable = rustix::thread::capabilities(None)
            .unwrap()
            .effective
            .contains(rustix::thread::CapabilitySet::NET_ADMIN);
        if is_capable {
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"] {
                assert_eq!(line(set), format!("{set}:\t0000000000001000"), "{result:?}");
            }
        }
        assert_eq!(line("SigBlk"), "SigBlk:\t0000000000000000");
        assert_eq!(line("NoNewPrivs"), "NoNewPrivs:\t1");
        assert!(!result.output.lines().any(|line| line == "0"), "not root: {result:?}");
        // A command that the runner was not started with.
        assert!(!runner.has_command("id"));
        assert_eq!(runner.pending(), 0);
    }

    #[test]
    fn jobs_of_a_lane_run_in_order_and_the_end_of_the_runner_is_reported() {
        let scratch = TempDir::new("updown-order").unwrap();
        let file = scratch.file("order");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        // The earlier a job, the longer it takes.
        let command = format!("sleep 0.$((3 - N)); echo $N >> {}", file.display());
        let runner = start(&[&command]);
        for n in 0..3 {
            runner.submit(job(n, &command, &[("N", &n.to_string()), ("PATH", "/usr/bin:/bin")]));
        }
        for n in 0..3 {
            let result = runner.wait_for_result(Duration::from_secs(30)).unwrap();
            assert_eq!((result.id, result.end), (n, ScriptEnd::Exited(0)), "{}", result.output);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0\n1\n2\n");
        runner.process.socket.shutdown(std::net::Shutdown::Both).unwrap();
        let result = eventually("the end", || {
            runner.submit(job(9, &command, &[]));
            runner.wait_for_result(Duration::from_secs(30))
        });
        assert!(matches!(result.end, ScriptEnd::Failed(_)), "{result:?}");
    }
}
