//! Requests of clients of the control socket, and the commands that wait for events.

use super::controller::RunController;
use super::reload::ReloadClient;
use crate::command::{self, PendingCommand};
use crate::control::{Reply, Request, outcome};
use crate::status::Snapshot;
use crate::trace::RunningTrace;
use crate::why;
use casemate_ike::Event;
use casemate_linux::EndpointHandle;

impl RunController {
    /// Handles a request of a client of the control socket.
    pub(super) fn handle_request(&mut self, request: Request, reply: Reply, handle: &EndpointHandle<'_>) {
        let result = match request {
            Request::Status => {
                let snapshot = Snapshot::take(&handle.lock(), &self.identity, &self.history);
                let _ = reply.send(snapshot.to_json().to_string());
                return;
            }
            Request::Why(name) => {
                let report = why::report(&name, &handle.lock(), &self.history, self.identity.mark());
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
                let started = handle
                    .lock()
                    .with(|endpoint, context| PendingCommand::terminate(&name, endpoint, context));
                match started {
                    Ok(pending) => return self.pending_commands.wait(pending, reply),
                    Err(error) => Err(error),
                }
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
    pub(super) fn on_event(&mut self, event: &Event) {
        self.0.retain_mut(|(pending, reply)| match pending.on_event(event) {
            None => true,
            Some(result) => {
                let _ = reply.send(outcome(&result));
                false
            }
        });
    }
}
