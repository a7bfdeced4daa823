//! Requests of clients of the control socket, and the commands that wait for events.

use super::controller::RunController;
use super::reload::ReloadClient;
use crate::command::{self, PendingCommand};
use crate::control::{Reply, Request, outcome};
use crate::history::{Cause, History, PastEvent};
use crate::log::level::Level;
use crate::status::Snapshot;
use crate::trace::RunningTrace;
use crate::why;
use casemate_ike::{Event, StateFault};
use casemate_linux::EndpointHandle;

impl RunController {
    /// Handles a request of a client of the control socket.
    pub(super) fn handle_request(&mut self, request: Request, reply: Reply, handle: &EndpointHandle<'_>) {
        let result = match request {
            Request::Status => {
                let snapshot = Snapshot::take(&handle.lock(), &self.identity, &self.history);
                let _ = reply.send_with(move || snapshot.to_json().to_string());
                return;
            }
            Request::Cell => {
                let context = handle.lock();
                let cell = self.identity.cell_json(&context.keeper(), context.cell());
                let _ = reply.send(cell.to_string());
                return;
            }
            Request::Why(name) => {
                let sources = why::Sources {
                    history: &self.history,
                    keyring: &self.keyring,
                    mark: self.identity.mark(),
                    tun: self.identity.tun(),
                };
                let report = why::report(&name, &handle.lock(), &sources);
                let _ = reply.send(report.map_or_else(|error| outcome(&Err(error)), |it| it.to_string()));
                return;
            }
            Request::Trace { selector, count, timeout } => {
                if self.trace.as_ref().is_some_and(|trace| !trace.has_client()) {
                    self.trace = None;
                    handle.stop_trace();
                }
                let started =
                    RunningTrace::start(&selector, count, timeout, self.identity.mark(), reply, handle);
                self.trace = started.or(self.trace.take());
                return;
            }
            Request::Log { follow } => return self.log.send_to(reply, follow),
            Request::Reload => return self.start_reload(vec![ReloadClient::Control(reply)]),
            Request::Initiate { name, ike } => {
                let started = handle
                    .lock()
                    .with(|endpoint, context| PendingCommand::initiate(&name, ike, endpoint, context));
                match started {
                    Ok(pending) => return self.pending_commands.wait(pending, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Terminate(name) => {
                let line = format!("a client of the control socket requests the end of {name}");
                self.log.program(Level::Info, &line);
                let started = handle
                    .lock()
                    .with(|endpoint, context| PendingCommand::terminate(&name, endpoint, context));
                match started {
                    Ok(pending) => return self.pending_commands.wait(pending, reply),
                    Err(error) => Err(error),
                }
            }
            Request::Drain { is_drained } => {
                let line = match is_drained {
                    true => "cell: a client of the control socket drains this node",
                    false => "cell: a client of the control socket lets this node own the SAs again",
                };
                self.log.program(Level::Info, line);
                if handle.lock().drain_node(is_drained) {
                    return self.cell_node.drain_replies.push(reply);
                }
                Err("this instance is not a node of a cell".into())
            }
            Request::Rekey { name, ike } => {
                handle.lock().with(|endpoint, context| command::rekey(&name, ike, endpoint, context))
            }
            Request::Redirect { name, gateway } => {
                handle.lock().with(|endpoint, context| command::redirect(&name, &gateway, endpoint, context))
            }
        };
        let _ = reply.send(outcome(&result));
    }
}

/// The error of a command with the reason that the history has, and where there is more.
fn explained(error: &str, pending: &PendingCommand, history: &History) -> String {
    let Some(name) = pending.connection_name() else { return error.to_owned() };
    let last = history.of(name).and_then(|record| record.last_error.as_ref()).filter(|last| !last.is_over);
    let reason = last.map_or(String::new(), |last| reason_lines(&last.event));
    format!("{error}{reason}\n`casemate why {name}` says more")
}

/// The lines that say why a command has failed, each after a line break.
fn reason_lines(event: &PastEvent) -> String {
    // The second line names the values that were compared; some causes have one line only. Why a certificate
    // is refused follows behind it.
    let has_more = matches!(
        event.cause,
        Some(Cause::Fault(StateFault::Certificate | StateFault::SignatureAlgorithm) | Cause::Eap(_))
    );
    let shown = match event.lines.get(1..) {
        None | Some([]) => &event.lines[..],
        Some(details) if has_more => details,
        Some(details) => details.get(..1).unwrap_or(details),
    };
    shown.iter().map(|line| format!("\n{line}")).collect()
}

/// Commands in progress, with the clients that wait for them.
#[derive(Default)]
pub(super) struct PendingCommands(Vec<(PendingCommand, Reply)>);

impl PendingCommands {
    /// Adds a command in progress, or responds immediately if it is complete.
    pub(super) fn wait(&mut self, pending: PendingCommand, reply: Reply) {
        if pending.is_complete() {
            let _ = reply.send(outcome(&Ok(())));
        } else {
            // Removes clients that disconnected since the last event.
            self.0.retain(|(_, reply)| reply.is_open());
            self.0.push((pending, reply));
        }
    }

    /// Processes an event, and responds to the clients whose commands it completes.
    pub(super) fn on_event(&mut self, event: &Event, history: &History) {
        self.0.retain_mut(|(pending, reply)| match pending.on_event(event) {
            None => true,
            Some(result) => {
                let explained = result.map_err(|error| explained(&error, pending, history));
                let _ = reply.send(outcome(&explained));
                false
            }
        });
    }
}
