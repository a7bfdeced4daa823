//! The thread of a watch: receives its events on a stream. After a failure, the stream begins again after the
//! last event that has arrived.
//!
//! A stream has one watch. etcd's gateway would take several, but it loses those that follow in the request
//! when the response to the first one begins (Go's HTTP/1.1 server).

use crate::connection::{Connection, Response};
use crate::exchange::{Failed, interpret, open, token};
use crate::message::{self, Fault};
use crate::shared::Shared;
use crate::watches::{Received, Wanted};
use casemate_store::{Outcome, StoreError};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

/// Longest message of a stream. etcd splits messages that are longer than its longest request, 1.5 MiB by
/// default, and base64 adds a third.
const MAX_MESSAGE: usize = 16 << 20;
/// A stream on which nothing arrives begins again after this time, in case its server hangs.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(50);
const PATH: &str = "/v3/watch";

/// Receives the events of the watch with this number until the watch has ended or the store is dropped.
pub(crate) fn run(shared: &Shared, number: u64) {
    let cluster = &shared.cluster;
    while let Some(wanted) = next_wanted(shared, number) {
        let mut stream = Stream { shared, number, server: None };
        let Err(failed) = stream.receive(&wanted) else { continue };
        let text = failed.describe(PATH);
        if let Failed::Damaged(_) = &failed {
            cluster.set_damaged(&text);
            shared.state().watches.interrupt();
        }
        // Another thread interrupts a stream to move it to another server, or because its watch has ended.
        if stream.server.is_none() || shared.state().watches.has_socket(number) {
            let server = stream.server.or_else(|| cluster.preferred().map(|(index, _)| index));
            if let Some(index) = server
                && cluster.avoid(index, Some(&text))
            {
                shared.state().watches.interrupt();
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The watch as it is requested next; `None` if it has ended. A watch that has not begun in time ends here,
/// and so does each watch of a damaged cluster.
fn next_wanted(shared: &Shared, number: u64) -> Option<Wanted> {
    let mut state = shared.state();
    if shared.cluster.is_closing() {
        return None;
    }
    let wanted = state.watches.wanted(number);
    let is_late = |wanted: &Wanted| wanted.deadline.is_some_and(|deadline| deadline <= Instant::now());
    let error = match &wanted {
        Some(_) if shared.cluster.is_damaged() => StoreError::Damaged,
        Some(wanted) if is_late(wanted) => StoreError::Unavailable,
        Some(_) => return wanted,
        // The watch may have ended with a gap just now.
        None => StoreError::Unavailable,
    };
    if let Some(request) = state.watches.end(number) {
        state.complete(request, Err(error));
    }
    drop(state);
    shared.wake();
    None
}

struct Stream<'s> {
    shared: &'s Shared,
    /// Number of the watch.
    number: u64,
    /// Index of the server.
    server: Option<usize>,
}

fn broken(error: io::Error) -> Failed {
    Failed::Unknown(error.to_string())
}

impl Stream<'_> {
    /// Receives events until the watch ends or nothing arrives for a while.
    fn receive(&mut self, wanted: &Wanted) -> Result<(), Failed> {
        let cluster = &self.shared.cluster;
        let begun_by = Instant::now() + cluster.config.deadline;
        let deadline = wanted.deadline.map_or(begun_by, |deadline| deadline.min(begun_by));
        let (index, mut connection) = open(cluster, deadline)?;
        self.server = Some(index);
        let socket = connection.shutdown_handle().map_err(broken)?;
        if !self.shared.state().watches.set_socket(self.number, socket) {
            return Ok(());
        }
        let token = token(cluster, &mut connection, deadline)?;
        let body = cluster.namespace.watch(&wanted.prefix, wanted.from).to_string();
        connection.send(PATH, token.as_deref(), body.as_bytes(), deadline).map_err(broken)?;
        let status = connection.receive_head(deadline).map_err(broken)?;
        let result = self.messages(&mut connection, status, deadline);
        if let (Err(Failed::Token(_)), Some(token)) = (&result, &token) {
            cluster.forget_token(token);
        }
        result
    }

    /// Processes the messages of the stream. The first one must arrive before `begun_by`.
    fn messages(&self, connection: &mut Connection, status: u16, begun_by: Instant) -> Result<(), Failed> {
        let mut deadline = begun_by;
        loop {
            match connection.next_line(MAX_MESSAGE, deadline) {
                Ok(Some(body)) => self.process(&interpret(&Response { status, body })?)?,
                Ok(None) => return Err(Failed::Unknown("the stream has ended".into())),
                Err(error) if error.kind() == ErrorKind::TimedOut && deadline != begun_by => return Ok(()),
                Err(error) => return Err(broken(error)),
            }
            deadline = Instant::now() + MAX_SILENCE;
        }
    }

    fn process(&self, message: &Value) -> Result<(), Failed> {
        let malformed = || Failed::Unknown("a result of a watch was expected".into());
        let result = message.get("result").ok_or_else(malformed)?;
        let header = message::header(result).ok_or_else(malformed)?;
        let cluster = &self.shared.cluster;
        // The member may be behind others, so its revision may be lower.
        cluster.check(header, None).map_err(|error| Failed::Damaged(error.to_string()))?;
        let mut state = self.shared.state();
        match state.watches.receive(self.number, result, &cluster.namespace) {
            Received::Completion(request, outcome) => {
                state.complete(request, outcome.map(|()| Outcome::Watching));
            }
            Received::Events => {}
            Received::Restart(reason) if reason.contains("auth token") => {
                return Err(Failed::Token(Fault { code: 16, message: reason }));
            }
            Received::Restart(reason) => return Err(Failed::Unknown(reason)),
        }
        drop(state);
        self.shared.wake();
        Ok(())
    }
}
