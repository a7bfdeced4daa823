//! The process that runs scripts. It accepts only the numbers of the commands that it was started with, and
//! runs each with an environment of its own and a time limit. The beginning of its output is kept.

use super::message::{self, Request};
use super::{MAX_OUTPUT, MAX_RUNNING, ScriptEnd, TIME_LIMIT, UpdownResult};
use crate::process::Signals;
use crate::{Error, sandbox, sys};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use std::collections::BTreeSet;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SHELL: &str = "/bin/sh";
/// Longest interval between two checks whether a script has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for the rest of the output after the end, in case a process that has left the group of the script
/// keeps the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// Main loop of the process: runs scripts that standard input asks for, until the parent ends.
pub fn run_updown_server(commands: Vec<String>) -> Result<(), Error> {
    let failed = |error| Error::new("standard input, for scripts", error);
    let mut requests = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let results = Arc::new(Mutex::new(requests.try_clone().map_err(failed)?));
    let _signals = Signals::block()?;
    sandbox::keep_for_scripts()?;
    let running = Arc::new(Running::default());
    // The parent never asks for more at once. A place in the channel is the right to run.
    let (right, taken) = sync_channel(MAX_RUNNING);
    let taken = Arc::new(Mutex::new(taken));
    while let Some(Request { id, command, environment }) =
        message::receive_request(&mut requests).map_err(failed)?
    {
        let Some(command) = commands.get(command).cloned() else {
            send(&results, id, ScriptEnd::Failed("there is no such command".into()), String::new());
            continue;
        };
        if right.send(()).is_err() {
            return Ok(());
        }
        let (of_job, taken, running) = (results.clone(), taken.clone(), running.clone());
        let run = move || {
            let (end, output) = run_for(&command, &environment, TIME_LIMIT, &running);
            let _ = taken.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
            send(&of_job, id, end, output);
        };
        if let Err(error) = thread::Builder::new().name("script".into()).spawn(run) {
            send(&results, id, ScriptEnd::Failed(format!("thread: {error}")), String::new());
        }
    }
    // Nothing would end them at their time limit.
    running.kill_all();
    Ok(())
}

/// The scripts that run; `None` if none may run any more.
struct Running(Mutex<Option<BTreeSet<i32>>>);

impl Default for Running {
    fn default() -> Self {
        Self(Mutex::new(Some(BTreeSet::new())))
    }
}

impl Running {
    /// Notes a script, or kills it.
    fn add(&self, script: Pid) {
        match &mut *self.lock() {
            Some(scripts) => drop(scripts.insert(script.as_raw_nonzero().get())),
            None => drop(kill_process_group(script, Signal::KILL)),
        }
    }

    /// Must be called before the script is reaped, because then its number may be given to another process.
    fn remove(&self, script: Pid) {
        if let Some(scripts) = &mut *self.lock() {
            scripts.remove(&script.as_raw_nonzero().get());
        }
    }

    fn kill_all(&self) {
        for script in self.lock().take().into_iter().flatten().filter_map(Pid::from_raw) {
            let _ = kill_process_group(script, Signal::KILL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<i32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a result. If the parent has ended, the kernel kills this process.
fn send(socket: &Mutex<UnixStream>, id: u64, end: ScriptEnd, output: String) {
    let result = message::encode_result(&UpdownResult { id, end, output });
    let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = socket.write_all(&result);
}

/// Runs a script and waits for its end. Processes that it leaves behind in its process group are killed.
fn run_for(
    command: &str,
    environment: &[(String, String)],
    limit: Duration,
    running: &Running,
) -> (ScriptEnd, String) {
    let failed = |error: io::Error| (ScriptEnd::Failed(format!("{SHELL}: {error}")), String::new());
    let (mut child, output) = match start(command, environment) {
        Ok(started) => started,
        Err(error) => return failed(error),
    };
    let output = Output::collect(output);
    match wait_until(&mut child, Instant::now().checked_add(limit), running) {
        Err(error) => failed(error),
        Ok(None) => (ScriptEnd::TimedOut, output.finish()),
        Ok(Some(status)) => {
            let signal = status.signal().map(ScriptEnd::Signal);
            let end = status.code().map(ScriptEnd::Exited).or(signal);
            (end.unwrap_or(ScriptEnd::Exited(-1)), output.finish())
        }
    }
}

fn start(command: &str, environment: &[(String, String)]) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new(SHELL);
    shell
        .args(["-c", command])
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let parent = std::process::id();
    // SAFETY: between fork and exec only what is async-signal-safe may be done: both functions make system
    // calls and compare numbers; they neither allocate nor lock.
    unsafe {
        shell.pre_exec(move || {
            sys::unblock_signals()?;
            sys::die_with_parent(parent)
        })
    };
    Ok((shell.spawn()?, reader))
}

/// Waits for the end of a script and kills what is left of its process group. `None` if it did not end in
/// time.
fn wait_until(child: &mut Child, end: Option<Instant>, running: &Running) -> io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    running.add(pid);
    let mut pause = Duration::from_millis(1);
    let mut is_late = false;
    while has_ended(pid)?.is_none() {
        is_late = end.is_none_or(|end| Instant::now() >= end);
        if is_late {
            break;
        }
        thread::sleep(pause);
        pause = pause.saturating_mul(2).min(POLL_INTERVAL);
    }
    // The script is not reaped yet, so its number still belongs to its group.
    let _ = kill_process_group(pid, Signal::KILL);
    running.remove(pid);
    let status = child.wait()?;
    Ok(Some(status).filter(|_| !is_late))
}

/// Whether a process has ended; it can still be waited for.
fn has_ended(pid: Pid) -> io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?)
}

/// The beginning of the output of a script, which a thread reads.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Output {
    fn collect(mut pipe: PipeReader) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let shared = kept.clone();
        let read = move || {
            let mut buffer = [0; 1_024];
            // Reads on after the part that is kept, so that the script can go on writing.
            while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let len = len.min(MAX_OUTPUT.saturating_sub(kept.len()));
                kept.extend_from_slice(buffer.get(..len).unwrap_or_default());
            }
        };
        // Without the thread the script runs on without a reader, and its output is lost.
        Self { kept, reader: thread::Builder::new().name("output".into()).spawn(read).ok() }
    }

    fn finish(self) -> String {
        let start = Instant::now();
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && start.elapsed() < OUTPUT_TIMEOUT
        {
            thread::sleep(Duration::from_millis(1));
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(command: &str, limit: Duration) -> (ScriptEnd, String) {
        run_for(command, &[("PATH".into(), "/usr/bin:/bin".into())], limit, &Running::default())
    }

    #[test]
    fn status_and_output_are_returned_and_much_output_is_cut() {
        let long = Duration::from_secs(60);
        assert_eq!(run_shell("echo a; echo b >&2; exit 7", long), (ScriptEnd::Exited(7), "a\nb\n".into()));
        assert_eq!(run_shell("kill -9 $$", long).0, ScriptEnd::Signal(9));
        let (end, output) = run_shell("yes | head -c 1000000", long);
        assert_eq!((end, output.len()), (ScriptEnd::Exited(0), MAX_OUTPUT));
        let (end, output) = run_shell("/no/such/script", long);
        assert!(end == ScriptEnd::Exited(127) && output.contains("not found"), "{output}");
    }

    #[test]
    fn a_script_that_hangs_is_killed_with_its_processes_and_so_are_those_it_leaves() {
        let start = Instant::now();
        let (end, output) = run_shell("sleep 61 & echo $!; wait", Duration::from_millis(100));
        assert_eq!(end, ScriptEnd::TimedOut);
        let (end, left) = run_shell("sleep 61 & echo $!", Duration::from_secs(60));
        assert_eq!(end, ScriptEnd::Exited(0));
        for pid in [output, left] {
            let stat = format!("/proc/{}/stat", pid.trim());
            let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
            casemate_test_support::eventually("the process ends", || is_gone().then_some(()));
        }
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    /// The end of the run. Without a runner, nothing would end them at their time limit.
    #[test]
    fn scripts_that_run_at_the_end_are_killed_with_their_processes() {
        let running = Arc::new(Running::default());
        let limit = Duration::from_secs(60);
        let script = |command: &'static str| {
            let running = running.clone();
            thread::spawn(move || {
                run_for(command, &[("PATH".into(), "/usr/bin:/bin".into())], limit, &running)
            })
        };
        let first = script("sleep 61 & echo $!; wait");
        casemate_test_support::eventually("it runs", || {
            running.lock().as_ref().is_some_and(|scripts| !scripts.is_empty()).then_some(())
        });
        thread::sleep(Duration::from_millis(200));
        running.kill_all();
        let (end, child) = first.join().unwrap();
        assert_eq!(end, ScriptEnd::Signal(9));
        let stat = format!("/proc/{}/stat", child.trim());
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        casemate_test_support::eventually("the process ends", || is_gone().then_some(()));
        assert_eq!(script("sleep 61").join().unwrap().0, ScriptEnd::Signal(9), "none may run any more");
    }
}
