//! Execution of requests on the servers: one at a time, within a deadline, on one connection.
//!
//! A request that a server has certainly not executed is sent to the next server. Reads and requests for
//! leases may be repeated in any case. A transaction whose outcome is unknown is not repeated.

use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::exchange::{Failed, describe, exchange, interpret, is_lease_missing, open, token};
use crate::message::{self, number};
use crate::schedule::Job;
use casemate_store::{Lease, MAX_RANGE, Outcome, Range, Request, Revision, StoreError, Transaction};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const TRANSACTION: &str = "/v3/kv/txn";
/// Time that each of several attempts has at least, unless the deadline is earlier.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(200);
/// Pause after all servers have failed.
const PAUSE: Duration = Duration::from_millis(50);

/// What else a store does when a client finds a fault.
pub(crate) trait Observer {
    /// Called when another server is used, and when the cluster is damaged.
    fn on_change(&self);
}

/// Executes the requests of one thread.
pub(crate) struct Client<'c> {
    cluster: &'c Cluster,
    observer: &'c dyn Observer,
    /// The connection, and the index of its server.
    connection: Option<(usize, Connection)>,
}

/// Whether a request may be executed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    No,
    Yes,
}

impl<'c> Client<'c> {
    pub(crate) const fn new(cluster: &'c Cluster, observer: &'c dyn Observer) -> Self {
        Self { cluster, observer, connection: None }
    }

    /// Executes the requests that a [`Schedule`](crate::schedule::Schedule) returned together, and returns
    /// them with their outcomes.
    pub(crate) fn execute(&mut self, jobs: Vec<Job>) -> Vec<(Job, Result<Outcome, StoreError>)> {
        let outcomes = self
            .execute_batch(&jobs)
            .unwrap_or_else(|| jobs.iter().map(|job| self.execute_one(&job.request, job.deadline)).collect());
        if outcomes.contains(&Err(StoreError::Damaged)) {
            self.observer.on_change();
        }
        jobs.into_iter().zip(outcomes).collect()
    }

    /// Executes several transactions as one. Returns `None` if there are not several, or if etcd has refused
    /// and not executed them: one of them names a lease that does not exist, for example.
    fn execute_batch(&mut self, jobs: &[Job]) -> Option<Vec<Result<Outcome, StoreError>>> {
        let transaction = |job: &Job| match &job.request {
            Request::Commit(transaction) => Some(self.cluster.namespace.transaction(transaction)),
            _ => None,
        };
        let [first, _, ..] = jobs else { return None };
        let transactions: Vec<Value> = jobs.iter().map(transaction).collect::<Option<_>>()?;
        let body = message::batch(transactions);
        let outcomes = match self.linearizable(TRANSACTION, &body, Repeat::No, first.deadline) {
            Err(StoreError::Refused) => return None,
            Err(error) => Err(error),
            Ok((response, revision)) => {
                let succeeded = message::batch_results(&response, jobs.len());
                let outcome = |succeeded| {
                    if succeeded { Outcome::Committed(revision) } else { Outcome::Refused(revision) }
                };
                let outcomes = succeeded.map(|list| list.into_iter().map(outcome).collect::<Vec<_>>());
                outcomes.ok_or_else(|| self.malformed(TRANSACTION))
            }
        };
        Some(match outcomes {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); jobs.len()],
        })
    }

    /// Watches have a thread of their own and are refused here.
    fn execute_one(&mut self, request: &Request, deadline: Instant) -> Result<Outcome, StoreError> {
        match request {
            Request::Commit(transaction) => self.commit(transaction, deadline),
            Request::Read(range) => self.read(range, deadline),
            Request::NewLease(time) => self.grant(*time, deadline),
            Request::Renew(lease) => self.renew(*lease, deadline),
            Request::Revoke(lease) => self.revoke(*lease, deadline),
            Request::Watch { .. } | Request::Unwatch(_) => Err(StoreError::Refused),
        }
    }

    fn commit(&mut self, transaction: &Transaction, deadline: Instant) -> Result<Outcome, StoreError> {
        let body = self.cluster.namespace.transaction(transaction);
        let (response, revision) = self.linearizable(TRANSACTION, &body, Repeat::No, deadline)?;
        Ok(match message::flag(&response, "succeeded") {
            true => Outcome::Committed(revision),
            false => Outcome::Refused(revision),
        })
    }

    /// Reads a range, with a lower limit if the response is too long: one entry is always short enough.
    fn read(&mut self, range: &Range, deadline: Instant) -> Result<Outcome, StoreError> {
        let mut limit = range.limit.min(MAX_RANGE);
        loop {
            let body = self.cluster.namespace.range(range, limit);
            let (response, revision) = match self.linearizable("/v3/kv/range", &body, Repeat::Yes, deadline) {
                Ok((Value::Null, _)) if limit > 1 => {
                    limit = limit.div_ceil(2);
                    continue;
                }
                other => other?,
            };
            let entries = self.cluster.namespace.entries(&response);
            let (entries, more) = entries.ok_or_else(|| self.malformed("/v3/kv/range"))?;
            return Ok(Outcome::Entries { entries, more, revision });
        }
    }

    fn grant(&mut self, time: Duration, deadline: Instant) -> Result<Outcome, StoreError> {
        let body = json!({ "TTL": time.as_secs().to_string() });
        let response = self.call("/v3/lease/grant", &body, Repeat::Yes, deadline)?;
        self.check_cluster(&response, "/v3/lease/grant")?;
        let lease = number(&response, "ID").filter(|&lease| lease != 0);
        lease
            .map(|lease| Outcome::LeaseGranted(Lease(lease)))
            .ok_or_else(|| self.malformed("/v3/lease/grant"))
    }

    /// The time to live of a lease that does not exist is zero.
    fn renew(&mut self, lease: Lease, deadline: Instant) -> Result<Outcome, StoreError> {
        const PATH: &str = "/v3/lease/keepalive";
        let response = self.call(PATH, &json!({ "ID": lease.0.to_string() }), Repeat::Yes, deadline)?;
        let result = response.get("result").ok_or_else(|| self.malformed(PATH))?;
        self.check_cluster(result, PATH)?;
        let is_same = number(result, "ID") == Some(lease.0);
        match number::<i64>(result, "TTL").filter(|_| is_same) {
            None => Err(self.malformed(PATH)),
            Some(1..) => Ok(Outcome::Renewed),
            Some(_) => Ok(Outcome::Ended),
        }
    }

    fn revoke(&mut self, lease: Lease, deadline: Instant) -> Result<Outcome, StoreError> {
        const PATH: &str = "/v3/lease/revoke";
        let response = self.call(PATH, &json!({ "ID": lease.0.to_string() }), Repeat::Yes, deadline)?;
        if response != Value::Null {
            self.check_cluster(&response, PATH)?;
        }
        Ok(Outcome::Ended)
    }

    /// A call whose response has the revision of the cluster. The response is null if it is too long.
    fn linearizable(
        &mut self,
        path: &str,
        body: &Value,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<(Value, Revision), StoreError> {
        let floor = self.cluster.seen().map_or(0, |seen| seen.revision);
        let response = self.call(path, body, repeat, deadline)?;
        if response == Value::Null {
            return Ok((response, Revision::ABSENT));
        }
        let header = message::header(&response).ok_or_else(|| self.malformed(path))?;
        self.cluster.check(header, Some(floor))?;
        Ok((response, Revision(header.revision)))
    }

    fn check_cluster(&self, response: &Value, path: &str) -> Result<(), StoreError> {
        let header = message::header(response).ok_or_else(|| self.malformed(path))?;
        self.cluster.check(header, None)
    }

    fn malformed(&self, path: &str) -> StoreError {
        self.cluster.report(format!("etcd: {path}: a response of etcd 3.4 or 3.5 was expected"));
        StoreError::Unavailable
    }

    /// Sends a request until a server has executed it. Returns null if a response is too long, or if the
    /// lease of the request does not exist.
    fn call(
        &mut self,
        path: &str,
        body: &Value,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let body = body.to_string();
        let mut attempts = 0_usize;
        let mut has_new_token = false;
        while Instant::now() < deadline && !self.cluster.is_closing() {
            if self.cluster.is_damaged() {
                return Err(StoreError::Damaged);
            }
            attempts = attempts.saturating_add(1);
            let result = self.attempt(path, body.as_bytes(), repeat, deadline);
            // The end of the time says less than the failure of an earlier attempt.
            let is_cut_off = attempts > 1 && Instant::now() >= deadline;
            match result {
                Ok(response) => return Ok(response),
                Err(Failed::NotExecuted(why)) => self.avoid((!is_cut_off).then_some(why.as_str())),
                Err(Failed::Unknown(why)) => {
                    self.avoid((!is_cut_off).then_some(why.as_str()));
                    if repeat == Repeat::No {
                        return Err(StoreError::Unavailable);
                    }
                }
                // The next attempt logs in again.
                Err(Failed::Token(fault)) if !has_new_token => {
                    self.cluster.report(describe(path, &fault));
                    has_new_token = true;
                }
                Err(Failed::TooLong) => return Ok(Value::Null),
                Err(Failed::Refused(fault)) if is_lease_missing(&fault) && path == "/v3/lease/revoke" => {
                    return Ok(Value::Null);
                }
                Err(Failed::Refused(fault) | Failed::Token(fault)) => {
                    self.cluster.report(describe(path, &fault));
                    return Err(StoreError::Refused);
                }
                Err(Failed::Damaged(why)) => {
                    self.cluster.set_damaged(&why);
                    return Err(StoreError::Damaged);
                }
            }
            if attempts.checked_rem(self.cluster.config.endpoints.len()) == Some(0) {
                thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
            }
        }
        Err(StoreError::Unavailable)
    }

    /// Ends the connection and uses another server.
    fn avoid(&mut self, why: Option<&str>) {
        let used = self.connection.take().map(|(index, _)| index);
        if let Some(index) = used.or_else(|| self.cluster.preferred().map(|(index, _)| index))
            && self.cluster.avoid(index, why)
        {
            self.observer.on_change();
        }
    }

    /// Sends a request to one server. One that may be repeated waits for half of the time only, so that
    /// another server can execute it if this one hangs.
    fn attempt(
        &mut self,
        path: &str,
        body: &[u8],
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Value, Failed> {
        let now = Instant::now();
        let half = deadline.saturating_duration_since(now).div_f32(2.0);
        let has_others = self.cluster.config.endpoints.len() > 1;
        let part = half.max(SHORTEST_ATTEMPT);
        let until = if repeat == Repeat::Yes && has_others { deadline.min(now + part) } else { deadline };
        let cluster = self.cluster;
        let connection = self.connect(until)?;
        let token = token(cluster, connection, until)?;
        let result = exchange(connection, path, token.as_deref(), body, until);
        if matches!(result, Err(Failed::TooLong)) {
            // The rest of the response is still to come.
            self.connection = None;
        }
        let result = result.and_then(|response| interpret(&response));
        if let (Err(Failed::Token(_)), Some(token)) = (&result, &token) {
            cluster.forget_token(token);
        }
        result
    }

    /// The connection to the server that is used.
    fn connect(&mut self, deadline: Instant) -> Result<&mut Connection, Failed> {
        let (index, _) = self.cluster.preferred().ok_or(Failed::Unknown("no server".into()))?;
        let is_usable = |(used, connection): &(usize, Connection)| *used == index && connection.is_idle();
        let usable = self.connection.take().filter(is_usable);
        let connected = match usable {
            Some(connected) => connected,
            None => open(self.cluster, deadline)?,
        };
        Ok(&mut self.connection.insert(connected).1)
    }
}
