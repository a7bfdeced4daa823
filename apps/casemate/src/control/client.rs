//! The client's side of the control socket.

use super::Request;
use crate::cli::{InitiateArgs, LogArgs, NameArgs, RekeyArgs};
use crate::failure::Failure;
use crate::printable;
use casemate_linux::instance::Instance;
use casemate_linux::local;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an instance may take to answer what needs no peer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to read its configuration again, hosts that are looked up included.
const RELOAD_PATIENCE: Duration = Duration::from_secs(60);
/// More than a hundred thousand SAs need.
const MAX_ANSWER: u64 = 256 << 20;

/// Asks one instance, and gives its whole answer.
pub fn ask(instance: &Instance, request: &Request, patience: Duration) -> io::Result<String> {
    let mut text = String::new();
    connect(instance, request, Some(patience))?.take(MAX_ANSWER).read_to_string(&mut text)?;
    Ok(text)
}

fn connect(instance: &Instance, request: &Request, patience: Option<Duration>) -> io::Result<UnixStream> {
    let mut stream = local::connect(&instance.socket(), patience.unwrap_or(PATIENCE).min(PATIENCE))?;
    stream.set_read_timeout(patience)?;
    stream.write_all(request.to_line().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    Ok(stream)
}

/// Runs `casemate initiate`.
pub fn initiate(args: &InitiateArgs) -> Result<(), Failure> {
    command(&Request::Initiate(args.name.clone(), args.ike), Duration::from_secs(args.timeout.into()))
}

/// Runs `casemate terminate`.
pub fn terminate(args: &NameArgs) -> Result<(), Failure> {
    command(&Request::Terminate(args.name.clone()), Duration::from_secs(args.timeout.into()))
}

/// Runs `casemate rekey`.
pub fn rekey(args: &RekeyArgs) -> Result<(), Failure> {
    command(&Request::Rekey(args.name.clone(), args.ike), PATIENCE)
}

/// Runs `casemate reload`.
pub fn reload() -> Result<(), Failure> {
    command(&Request::Reload, RELOAD_PATIENCE)
}

/// The instance that runs IKE here. Commands are for one: with several it is not clear which.
fn instance() -> Result<Instance, Failure> {
    let all = Instance::all().map_err(Failure::failed)?;
    let mut alive = all.into_iter().filter(|instance| local::connect(&instance.socket(), PATIENCE).is_ok());
    match (alive.next(), alive.next()) {
        (Some(instance), None) => Ok(instance),
        (None, _) => Err(Failure::failed(
            "no instance is running in this network namespace, or none that this user may ask",
        )),
        (Some(_), Some(_)) => {
            Err(Failure::failed("several instances are running in this network namespace: one was expected"))
        }
    }
}

fn command(request: &Request, patience: Duration) -> Result<(), Failure> {
    let answer = ask(&instance()?, request, patience).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::failed(format!(
            "no answer within {} s: `casemate log` shows what happens",
            patience.as_secs()
        )),
        _ => Failure::failed(error),
    })?;
    let answer: Value = serde_json::from_str(&answer)
        .map_err(|_| Failure::failed("the instance ended before it answered"))?;
    if answer.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    let error = answer.get("error").and_then(Value::as_str).unwrap_or("no reason was given");
    Err(Failure::failed(error))
}

/// Runs `casemate log`.
pub fn log(args: &LogArgs) -> Result<(), Failure> {
    let patience = (!args.follow).then_some(PATIENCE);
    let stream = connect(&instance()?, &Request::Log(args.follow), patience).map_err(Failure::failed)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(Failure::failed)?;
        if writeln!(io::stdout(), "{}", printable::line(&line)).is_err() {
            break;
        }
    }
    Ok(())
}
