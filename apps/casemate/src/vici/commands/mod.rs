//! The commands of clients: those of strongSwan 6 that have a meaning here.
//!
//! `load` changes the part of the configuration that clients have loaded. The others read state or act on
//! SAs: `list` streams events, `get` responds with a list, `control` sets up and closes SAs. A command that
//! is not in these tables gets the packet CMD_UNKNOWN, as from a charon without the plugin for it.

mod control;
mod get;
mod list;
mod load;

use super::ViciContext;
use super::message::{MessageWriter, Section};
use super::server::ViciServer;
pub(super) use control::RunningCommand;

/// How a command goes on.
pub(super) enum Outcome {
    /// There is no such command.
    Unknown,
    /// The command is complete, with this response.
    Response(Vec<u8>),
    /// The response follows when SAs are up or down.
    Running(RunningCommand),
    /// The response follows when the file has been read.
    Reload,
}

/// A command of a client that changes no configuration.
pub(super) struct Call<'c, 'a, 'h> {
    pub(super) server: &'c mut ViciServer,
    pub(super) request: &'c Section,
    pub(super) context: &'c mut ViciContext<'a, 'h>,
    /// Events that precede the response: their names and messages.
    pub(super) events: &'c mut Vec<(&'static str, Vec<u8>)>,
}

/// Runs a command that changes no configuration.
type Command = fn(Call<'_, '_, '_>) -> Outcome;

/// The command with this name that changes no configuration.
pub(super) fn command(name: &str) -> Option<Command> {
    Some(match name {
        "version" => get::version,
        "stats" => get::stats,
        "get-algorithms" => get::algorithms,
        "get-conns" => get::connections,
        "get-pools" => get::pools,
        "get-authorities" => get::authorities,
        "get-keys" => get::keys,
        "get-shared" => get::shared_keys,
        "get-counters" => get::counters,
        "reset-counters" => get::reset_counters,
        "list-sas" => list::sas,
        "list-conns" => list::connections,
        "list-policies" => list::policies,
        "list-certs" => list::certificates,
        "list-authorities" => list::authorities,
        "initiate" => control::initiate,
        "terminate" => control::terminate,
        "rekey" => control::rekey,
        // RFC 5685
        "redirect" => control::redirect,
        "reload-settings" => |_| Outcome::Reload,
        "flush-certs" => control::flush_certificates,
        _ => return None,
    })
}

/// Whether the command changes the configuration.
pub(super) fn is_change(name: &str) -> bool {
    load::change(name).is_some()
}

/// Changes what clients have loaded. Returns the response, or why nothing has changed.
pub(super) fn change(
    server: &mut ViciServer,
    name: &str,
    message: &Section,
    context: &mut ViciContext<'_, '_>,
) -> Result<Vec<u8>, String> {
    let change = load::change(name).ok_or("there is no such command")?;
    change(server, message, context)
}

/// The response to a command that succeeded.
pub(super) fn success() -> Vec<u8> {
    MessageWriter::message(|message| message.value("success", "yes"))
}

/// The response to a command that failed.
pub(super) fn failure(reason: &str) -> Vec<u8> {
    MessageWriter::message(|message| {
        message.value("success", "no");
        message.value("errmsg", reason);
    })
}

/// The response to a command with this result.
pub(super) fn result(result: &Result<(), String>) -> Vec<u8> {
    result.as_ref().map_or_else(|reason| failure(reason), |()| success())
}
