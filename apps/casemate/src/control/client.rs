//! Clients of the control socket: the commands `initiate`, `terminate`, `rekey`, `redirect`, `reload` and
//! `log`.

use super::Request;
use crate::failure::Failure;
use crate::output;
use crate::printable;
use crate::swanctl;
use casemate_ike::config::Gateway;
use casemate_linux::instance::Instance;
use casemate_linux::unix_socket;
use clap::Args;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONTROL_EXAMPLES: &str = "\
Examples:
  casemate initiate gw            set up the IKE SA of the connection `gw` and all its Child SAs
  casemate initiate gw --ike      set up only the IKE SA
  casemate initiate net           set up the Child SA `net`; use `gw/net` if several connections have a `net`
  casemate rekey net              rekey a Child SA
  casemate rekey gw --ike         rekey an IKE SA
  casemate redirect users 192.0.2.2   send the peers of `users` to another gateway
  casemate terminate net          close a Child SA
  casemate terminate gw           close an IKE SA and all its Child SAs
  casemate terminate 'users[3]'   close one IKE SA of a connection, as the log names it
  casemate terminate carol        close the IKE SAs of a user, by the EAP identity

The commands go to the instance that runs in this network namespace.";

/// Arguments of `initiate`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct InitiateArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Set up only the IKE SA of the connection NAME.
    #[arg(long)]
    pub ike: bool,
    /// Timeout of the command in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u16,
}

/// Arguments of `terminate`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct NameArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Timeout of the command in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u16,
}

/// Arguments of `rekey`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct RekeyArgs {
    /// A connection, one of its children, or both as `connection/child`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Rekey the IKE SA of the connection NAME instead of a Child SA.
    #[arg(long)]
    pub ike: bool,
}

/// Arguments of `redirect`.
#[derive(Debug, Args)]
#[command(after_help = CONTROL_EXAMPLES)]
pub struct RedirectArgs {
    /// A connection, or one of its IKE SAs, such as `users[3]`.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Address or name of the other gateway.
    #[arg(value_name = "GATEWAY", value_parser = swanctl::gateway)]
    pub gateway: Gateway,
}

/// Arguments of `log`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  casemate log\n  casemate log --follow")]
pub struct LogArgs {
    /// Keep printing new messages until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
}

/// Timeout of requests that need no peer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a reload, including host lookups.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a response in bytes; more than 100,000 SAs need.
const MAX_ANSWER: u64 = 256 << 20;

/// Sends a request to an instance and returns the whole response.
pub fn send_request(instance: &Instance, request: &Request, timeout: Duration) -> io::Result<String> {
    let mut text = String::new();
    connect(instance, request, Some(timeout))?.take(MAX_ANSWER).read_to_string(&mut text)?;
    Ok(text)
}

fn connect(instance: &Instance, request: &Request, timeout: Option<Duration>) -> io::Result<UnixStream> {
    let mut stream =
        unix_socket::connect(&instance.control_socket(), timeout.unwrap_or(TIMEOUT).min(TIMEOUT))?;
    stream.set_read_timeout(timeout)?;
    stream.write_all(request.to_line().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    Ok(stream)
}

/// Runs `casemate initiate`.
pub fn initiate(args: &InitiateArgs) -> Result<(), Failure> {
    let request = Request::Initiate { name: args.name.clone(), ike: args.ike };
    command(&request, Duration::from_secs(args.timeout.into()))
}

/// What to do when the end of an SA is not confirmed. The instance repeats the request, and ends the SA when
/// the last repetition has had no response.
const NOT_CONFIRMED: &str = "the peer does not confirm the end of the SA, perhaps because the path to it has \
                             failed; this host goes on asking, and ends the SA without it after the last \
                             repetition: `casemate status` shows it until then";

/// Runs `casemate terminate`.
pub fn terminate(args: &NameArgs) -> Result<(), Failure> {
    let timeout = Duration::from_secs(args.timeout.into());
    report(query_or(&Request::Terminate(args.name.clone()), timeout, NOT_CONFIRMED)?)
}

/// Runs `casemate rekey`.
pub fn rekey(args: &RekeyArgs) -> Result<(), Failure> {
    command(&Request::Rekey { name: args.name.clone(), ike: args.ike }, TIMEOUT)
}

/// Runs `casemate redirect`.
pub fn redirect(args: &RedirectArgs) -> Result<(), Failure> {
    command(&Request::Redirect { name: args.name.clone(), gateway: args.gateway.clone() }, TIMEOUT)
}

/// Runs `casemate reload`.
pub fn reload() -> Result<(), Failure> {
    command(&Request::Reload, RELOAD_TIMEOUT)
}

/// Finds the running instance. Commands require exactly one in the network namespace.
fn instance() -> Result<Instance, Failure> {
    let all = Instance::all().map_err(Failure::failed)?;
    let mut alive = all.into_iter().filter(is_running);
    match (alive.next(), alive.next()) {
        (Some(instance), None) => Ok(instance),
        (None, _) => Err(Failure::failed(no_instance())),
        (Some(_), Some(_)) => Err(Failure::failed(
            "several instances are running in this network namespace: exactly one was expected",
        )),
    }
}

/// Whether an instance listens at its control socket.
pub(crate) fn is_running(instance: &Instance) -> bool {
    unix_socket::connect(&instance.control_socket(), TIMEOUT).is_ok()
}

/// That no instance is running, and what to do if one has left its changes behind.
pub(crate) fn no_instance() -> String {
    let mut text =
        "no instance is running in this network namespace, or this user may not access it".to_owned();
    for instance in Instance::with_journal().unwrap_or_default() {
        let tun = instance.tun();
        text.push_str(&format!(
            "\nthe instance with --tun {tun} has ended without removing its changes, so its guard may block \
             traffic: `casemate run --tun {tun}` takes them over, and `casemate cleanup --tun {tun}` \
             removes them"
        ));
    }
    text
}

/// Whether an instance with this TUN interface has ended without removing its changes, as far as this user
/// may know.
pub(crate) fn has_left_changes(tun: &str) -> bool {
    let all = Instance::with_journal().unwrap_or_default();
    all.iter().any(|instance| instance.tun() == tun && !is_running(instance))
}

pub(crate) fn command(request: &Request, timeout: Duration) -> Result<(), Failure> {
    report(query(request, timeout)?)
}

/// The result in a response.
fn report(answer: Value) -> Result<(), Failure> {
    if answer.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    let error = answer.get("error").and_then(Value::as_str).unwrap_or("no reason was given");
    let is_input = answer.get("is_input").and_then(Value::as_bool) == Some(true);
    Err(if is_input { Failure::bad_input(error) } else { Failure::failed(error) })
}

/// Sends a request to the running instance and returns its response.
pub(crate) fn query(request: &Request, timeout: Duration) -> Result<Value, Failure> {
    query_or(request, timeout, "`casemate log` shows the events")
}

/// Like [`query`], with what to say when the time is over.
fn query_or(request: &Request, timeout: Duration, hint: &str) -> Result<Value, Failure> {
    let answer = send_request(&instance()?, request, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Failure::failed(format!("no response within {} s: {hint}", timeout.as_secs()))
        }
        _ => Failure::failed(error),
    })?;
    serde_json::from_str(&answer).map_err(|_| Failure::failed("the instance ended before it responded"))
}

/// Sends a request to the running instance and returns the lines of its response, which may come slowly.
pub(crate) fn stream(request: &Request) -> Result<impl Iterator<Item = io::Result<String>> + use<>, Failure> {
    let stream = connect(&instance()?, request, None).map_err(Failure::failed)?;
    Ok(BufReader::new(stream).lines())
}

/// Runs `casemate log`.
pub fn log(args: &LogArgs) -> Result<(), Failure> {
    let timeout = (!args.follow).then_some(TIMEOUT);
    let request = Request::Log { follow: args.follow };
    let stream = connect(&instance()?, &request, timeout).map_err(Failure::failed)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(Failure::failed)?;
        if !output::print_if_open(&format!("{}\n", printable::line(&line)))? {
            break;
        }
    }
    Ok(())
}
