//! The runner: a process that starts programs for its parent, so that the process with keys and sockets need
//! not start programs.
//!
//! A runner is another process of this program, started before the system calls of its parent are limited. It
//! keeps only what its work needs. It ignores signals of a terminal or a service manager, because its parent
//! needs it until the end, and it ends with its parent. There is one for scripts of `nft` and one for the
//! name servers of this host ([`dns`](crate::dns)).
//!
//! | | bytes |
//! |---|---|
//! | request | length of the text (4, in the byte order of the machine), text |
//! | reply | 0 or, after an error, 1; length of the message (4), message |

use crate::Error;
use crate::helper_process::HelperProcess;
use crate::process::Signals;
use crate::program::MAX_MESSAGE;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, TryLockError};

/// Length of the longest request, in bytes. The script for a hundred thousand policies needs less.
const MAX_REQUEST: u32 = 64 << 20;

/// The process, as its parent sees it.
#[derive(Debug)]
pub(crate) struct Runner {
    /// What it runs, for errors.
    what: &'static str,
    process: HelperProcess,
    /// The process has closed the socket, or sent an invalid reply.
    has_ended: bool,
}

impl Runner {
    /// Starts the process with these arguments. `what` names what it runs.
    pub(crate) fn start(what: &'static str, arguments: &[&str]) -> Result<Self, Error> {
        let process = HelperProcess::start(arguments, &process_name(what))?;
        Ok(Self { what, process, has_ended: false })
    }

    /// Sends a request and waits for the reply, however long that takes. Returns the message of the reply.
    pub(crate) fn run(&mut self, request: &str) -> Result<String, Error> {
        self.check()?;
        let Some(len) = u32::try_from(request.len()).ok().filter(|len| *len <= MAX_REQUEST) else {
            return Err(Error::other(self.what, "the request is too long"));
        };
        let reply = send(&mut self.process.socket, len, request)
            .and_then(|()| receive_reply(&mut self.process.socket))
            .map(|reply| reply.map_err(|message| runner_error(self.what, &message)));
        reply.unwrap_or_else(|error| {
            self.has_ended = true;
            Err(Error::new(process_name(self.what), error))
        })
    }

    /// An error if the process has ended.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let has_ended = self.has_ended || self.process.has_closed();
        if has_ended { Err(Error::other(process_name(self.what), "it has ended")) } else { Ok(()) }
    }

    /// The same for a runner that another thread may be using.
    pub(crate) fn check_shared(runner: &Mutex<Self>) -> Result<(), Error> {
        match runner.try_lock() {
            Ok(runner) => runner.check(),
            // The thread that waits for a reply detects the end.
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Poisoned(error)) => error.into_inner().check(),
        }
    }

    /// Process ID.
    #[cfg(test)]
    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Kills the process.
    #[cfg(test)]
    pub(crate) fn kill(&mut self) {
        self.process.child.kill().unwrap();
        self.process.child.wait().unwrap();
    }

    /// How the process has ended, if it has.
    #[cfg(test)]
    pub(crate) fn exit_status(&mut self) -> Option<std::process::ExitStatus> {
        self.process.child.try_wait().unwrap()
    }
}

fn process_name(what: &str) -> String {
    format!("the process that runs {what}")
}

fn send(socket: &mut UnixStream, len: u32, request: &str) -> io::Result<()> {
    socket.write_all(&len.to_ne_bytes())?;
    socket.write_all(request.as_bytes())
}

/// The message of the reply, or that of an error.
fn receive_reply(socket: &mut UnixStream) -> io::Result<Result<String, String>> {
    let (mut status, mut len) = ([0; 1], [0; 4]);
    socket.read_exact(&mut status)?;
    socket.read_exact(&mut len)?;
    let mut message = Vec::new();
    socket.take(u32::from_ne_bytes(len).into()).read_to_end(&mut message)?;
    let message = String::from_utf8_lossy(&message).into_owned();
    Ok(if status == [0] { Ok(message) } else { Err(message) })
}

/// Converts an error message of the process, which begins with the name of what failed.
fn runner_error(what: &str, message: &str) -> Error {
    match message.split_once(": ") {
        Some((what, reason)) => Error::other(what, reason),
        None => Error::other(what, message),
    }
}

/// Main loop of the process: drops privileges with `confine` and handles requests from standard input until
/// the parent ends. The text that `handle` returns is the message of the reply.
pub(crate) fn serve(
    confine: impl FnOnce() -> Result<bool, Error>,
    mut handle: impl FnMut(&str) -> Result<String, Error>,
) -> Result<(), Error> {
    let failed = |error| Error::new("standard input, for requests", error);
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let _signals = Signals::block()?;
    confine()?;
    while let Some(request) = receive(&mut socket).map_err(failed)? {
        reply(&mut socket, handle(&request)).map_err(failed)?;
    }
    Ok(())
}

/// Receives the next request; `None` at the end.
fn receive(socket: &mut UnixStream) -> io::Result<Option<String>> {
    let mut len = [0; 4];
    match socket.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u32::from_ne_bytes(len);
    if len > MAX_REQUEST {
        return Err(io::Error::other("the request is too long"));
    }
    let mut request = String::new();
    let read = socket.take(len.into()).read_to_string(&mut request)?;
    if read == len as usize { Ok(Some(request)) } else { Ok(None) }
}

fn reply(socket: &mut UnixStream, done: Result<String, Error>) -> io::Result<()> {
    let (status, message) = match done {
        Ok(message) => (0, message),
        Err(error) => (1, error.to_string()),
    };
    let message = message.into_bytes();
    let message = message.get(..MAX_MESSAGE as usize).unwrap_or(&message);
    socket.write_all(&[status])?;
    socket.write_all(&(message.len() as u32).to_ne_bytes())?;
    socket.write_all(message)
}
