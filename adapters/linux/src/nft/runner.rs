//! The runner: a process that only applies nftables scripts, so that the process with keys and sockets need
//! not start programs.
//!
//! The runner is another process of this program, started before the system calls of its parent are limited.
//! It keeps CAP_NET_ADMIN and the system calls that `nft` needs. It ignores signals of a terminal or a
//! service manager, because its parent needs it until the end, and it ends with its parent.
//!
//! | | bytes |
//! |---|---|
//! | request | length of the script (4, in the byte order of the machine), script |
//! | reply | 0 or, after an error, 1; length of the message (4), message |

use super::program::{self, MAX_MESSAGE};
use crate::helper_process::HelperProcess;
use crate::process::Signals;
use crate::{Error, sandbox};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Name of the process in errors.
const PROCESS_NAME: &str = "the process that runs nft";
/// Length of the longest script, in bytes. A hundred thousand policies need less.
const MAX_SCRIPT: u32 = 64 << 20;

/// The process, as its parent sees it.
#[derive(Debug)]
pub(super) struct Runner {
    process: HelperProcess,
    /// The process has closed the socket, or sent an invalid reply.
    has_ended: bool,
}

impl Runner {
    /// Starts the process with these arguments.
    pub(super) fn start(arguments: &[&str]) -> Result<Self, Error> {
        Ok(Self { process: HelperProcess::start(arguments, PROCESS_NAME)?, has_ended: false })
    }

    /// Applies a script and waits for its end, however long that takes.
    pub(super) fn run(&mut self, script: &str) -> Result<(), Error> {
        self.check()?;
        let Some(len) = u32::try_from(script.len()).ok().filter(|len| *len <= MAX_SCRIPT) else {
            return Err(Error::other("nft", "the script is too long"));
        };
        let socket = &mut self.process.socket;
        let reply = send(socket, len, script).and_then(|()| receive_reply(socket));
        reply.unwrap_or_else(|error| {
            self.has_ended = true;
            Err(Error::new(PROCESS_NAME, error))
        })
    }

    /// An error if the process has ended.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.has_ended || self.process.has_closed() {
            Err(Error::other(PROCESS_NAME, "it has ended"))
        } else {
            Ok(())
        }
    }

    /// Process ID.
    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.process.child.id()
    }
}

fn send(socket: &mut UnixStream, len: u32, script: &str) -> io::Result<()> {
    socket.write_all(&len.to_ne_bytes())?;
    socket.write_all(script.as_bytes())
}

fn receive_reply(socket: &mut UnixStream) -> io::Result<Result<(), Error>> {
    let (mut status, mut len) = ([0; 1], [0; 4]);
    socket.read_exact(&mut status)?;
    socket.read_exact(&mut len)?;
    let mut message = Vec::new();
    socket.take(u32::from_ne_bytes(len).into()).read_to_end(&mut message)?;
    Ok(if status == [0] { Ok(()) } else { Err(runner_error(&String::from_utf8_lossy(&message))) })
}

/// Converts an error message of the process.
fn runner_error(message: &str) -> Error {
    Error::other("nft", message.strip_prefix("nft: ").unwrap_or(message))
}

/// Main loop of the process: applies scripts from standard input until the parent ends.
pub fn run_script_server() -> Result<(), Error> {
    let failed = |error| Error::new("standard input, for scripts", error);
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let _signals = Signals::block()?;
    sandbox::keep_for_nft()?;
    while let Some(script) = receive(&mut socket).map_err(failed)? {
        reply(&mut socket, program::run(&script)).map_err(failed)?;
    }
    Ok(())
}

/// Receives the next script; `None` at the end.
fn receive(socket: &mut UnixStream) -> io::Result<Option<String>> {
    let mut len = [0; 4];
    match socket.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u32::from_ne_bytes(len);
    if len > MAX_SCRIPT {
        return Err(io::Error::other("the script is too long"));
    }
    let mut script = String::new();
    let read = socket.take(len.into()).read_to_string(&mut script)?;
    if read == len as usize { Ok(Some(script)) } else { Ok(None) }
}

fn reply(socket: &mut UnixStream, done: Result<(), Error>) -> io::Result<()> {
    let message = done.err().map(|error| error.to_string());
    let status = u8::from(message.is_some());
    let message = message.unwrap_or_default().into_bytes();
    let message = message.get(..MAX_MESSAGE as usize).unwrap_or(&message);
    socket.write_all(&[status])?;
    socket.write_all(&(message.len() as u32).to_ne_bytes())?;
    socket.write_all(message)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::netfilter::Netfilter;
    use crate::netns::Netns;

    /// Starts [`runs_as_runner`] in a process of its own.
    pub(in crate::nft) fn start() -> Runner {
        let test = "nft::runner::tests::runs_as_runner";
        Runner::start(&["--ignored", "--exact", test, "--test-threads=1"]).unwrap()
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
            runner.process.child.kill().unwrap();
            for _ in 0..2 {
                let error = runner.run("table inet four { }\n").unwrap_err().to_string();
                assert!(error.contains("the process that runs nft"), "{error}");
            }
            runner.process.child.wait().unwrap();
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
        let started =
            casemate_test_support::eventually("it ends", || runner.process.child.try_wait().unwrap());
        assert!(!started.success(), "killed by the kernel");
        assert!(runner.run("table inet one { }\n").is_err());
    }
}
