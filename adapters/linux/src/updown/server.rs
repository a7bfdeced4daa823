//! The process that runs scripts. It accepts only the numbers of the commands that it was started with.

use super::message::{self, Request};
use super::{MAX_RUNNING, ScriptEnd, UpdownResult, program};
use crate::process::Signals;
use crate::{Error, sandbox};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Main loop of the process: runs scripts that standard input asks for, until the parent ends.
pub fn run_updown_server(commands: Vec<String>) -> Result<(), Error> {
    let failed = |error| Error::new("standard input, for scripts", error);
    let mut requests = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let results = Arc::new(Mutex::new(requests.try_clone().map_err(failed)?));
    let _signals = Signals::block()?;
    sandbox::keep_for_scripts()?;
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
        let (of_job, taken) = (results.clone(), taken.clone());
        let run = move || {
            let (end, output) = program::run(&command, &environment);
            let _ = taken.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
            send(&of_job, id, end, output);
        };
        if let Err(error) = thread::Builder::new().name("script".into()).spawn(run) {
            send(&results, id, ScriptEnd::Failed(format!("thread: {error}")), String::new());
        }
    }
    Ok(())
}

/// Sends a result. Without a parent there is nobody to receive it, and the process ends.
fn send(socket: &Mutex<UnixStream>, id: u64, end: ScriptEnd, output: String) {
    let result = message::encode_result(&UpdownResult { id, end, output });
    let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = socket.write_all(&result);
}
