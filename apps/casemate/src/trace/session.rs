//! The trace of a running instance: collects the steps of each packet, and sends them to the client when the
//! packet has had its last step.

use super::facts::Names;
use super::{MAX_COUNT, MAX_TIMEOUT, selector};
use crate::control::{Reply, outcome};
use crate::status::Narrowing;
use casemate::Endpoint;
use casemate_datapath::trace::{TraceFilter, TraceRecord, TraceSummary};
use casemate_linux::{EndpointHandle, Scheduling};
use casemate_sa::{AddrRange, Instant};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant as SystemInstant};

/// How long packets may wait for their last step after the data path has seen all packets.
const PATIENCE: Duration = Duration::from_secs(1);

/// Version of the JSON output (docs/manual/schema/trace.json).
const SCHEMA_VERSION: u32 = 1;

/// Maximum number of notes at the start of a trace.
const MAX_NOTES: usize = 8;

/// A trace with its client. One runs at a time.
pub(crate) struct RunningTrace {
    reply: Reply,
    until: SystemInstant,
    /// When the trace began, in the time of the data path.
    began: Instant,
    /// Packets without their last step: the steps so far.
    open: BTreeMap<u32, Packet>,
    /// Number of packets that were sent to the client.
    complete: u32,
}

/// The steps of a packet.
struct Packet {
    /// Time of the first step.
    at: Instant,
    steps: Vec<Value>,
}

/// Why a trace ended.
enum End {
    Count,
    Timeout,
    ClientGone,
}

impl RunningTrace {
    /// Starts a trace. `mark` is that of the packets that the instance sends. Responds with an error if the
    /// request is wrong or another trace is running.
    pub(crate) fn start(
        selector: &str,
        count: u16,
        timeout: u16,
        mark: u32,
        reply: Reply,
        handle: &EndpointHandle<'_>,
    ) -> Option<Self> {
        let started = check(count, timeout).and_then(|()| selector::parse(selector)).and_then(|filter| {
            handle
                .start_trace(filter, count.into())
                .map(|()| filter)
                .map_err(|error| format!("{error}: try again when it has ended"))
        });
        let response = match &started {
            Ok(filter) => {
                let notes = notes(filter, handle.lock().endpoint());
                json!({"ok": true, "mark": mark, "notes": notes}).to_string()
            }
            Err(error) => outcome(&Err(error.clone())),
        };
        let is_sent = reply.send(response);
        if started.is_err() {
            return None;
        }
        if !is_sent {
            handle.stop_trace();
            return None;
        }
        let until = SystemInstant::now() + Duration::from_secs(timeout.into());
        let began = handle.lock().now();
        Some(Self { reply, until, began, open: BTreeMap::new(), complete: 0 })
    }

    /// Whether the client waits for packets.
    pub(crate) fn has_client(&self) -> bool {
        self.reply.is_open()
    }

    /// Passes new records on to the client. Returns `None` when the trace has ended.
    pub(crate) fn proceed(
        mut self,
        handle: &EndpointHandle<'_>,
        scheduling: Option<&Scheduling>,
    ) -> Option<Self> {
        let records = handle.take_trace_records();
        let (names, summary) = {
            let context = handle.lock();
            let summary = context.endpoint().datapath().trace_summary().unwrap_or_default();
            (Names::look_up(&records, context.endpoint()), summary)
        };
        let is_sent = records.iter().all(|record| self.add(record, &names, scheduling));
        match self.end(is_sent, &summary) {
            None => Some(self),
            Some(end) => {
                handle.stop_trace();
                self.finish(&end, &summary);
                None
            }
        }
    }

    /// Adds a step. Sends the packet if it is the last one. Returns `false` if the client is gone.
    fn add(&mut self, record: &TraceRecord, names: &Names, scheduling: Option<&Scheduling>) -> bool {
        let TraceRecord { packet: number, at, step } = *record;
        let packet = self.open.entry(number).or_insert_with(|| Packet { at, steps: Vec::new() });
        packet.steps.push(names.to_json(&step, scheduling));
        if !step.is_last() {
            return true;
        }
        let Some(packet) = self.open.remove(&number) else { return true };
        // A single step continues a packet that was complete.
        self.complete = self.complete.saturating_add(u32::from(packet.steps.len() > 1));
        self.send(number, &packet)
    }

    fn send(&self, number: u32, packet: &Packet) -> bool {
        let after = packet.at.since(self.began).as_secs_f64();
        let line = json!({
            "schema_version": SCHEMA_VERSION,
            "packet": number,
            "after_seconds": after,
            "steps": packet.steps,
        });
        self.reply.send(line.to_string())
    }

    fn end(&mut self, is_sent: bool, summary: &TraceSummary) -> Option<End> {
        let now = SystemInstant::now();
        if !is_sent || !self.has_client() {
            return Some(End::ClientGone);
        }
        if summary.left == 0 {
            if self.complete >= summary.packets {
                return Some(End::Count);
            }
            self.until = self.until.min(now + PATIENCE);
        }
        (now >= self.until).then_some(if summary.left == 0 { End::Count } else { End::Timeout })
    }

    /// Sends what is left, and the summary.
    fn finish(self, end: &End, summary: &TraceSummary) {
        let end = match end {
            End::Count => "count",
            End::Timeout => "timeout",
            End::ClientGone => return,
        };
        // Without all their steps, because records were lost.
        for (number, packet) in &self.open {
            let _ = self.send(*number, packet);
        }
        let line = json!({
            "end": end,
            "packets": summary.packets,
            "missed": summary.missed,
            "lost_records": summary.lost_records,
            "undecided": summary.undecided,
        });
        // Sending fails only if the client has disconnected.
        let _ = self.reply.send(line.to_string());
    }
}

/// Why packets that match may not reach the data path.
fn notes(filter: &TraceFilter, endpoint: &Endpoint) -> Vec<String> {
    let asked: Vec<AddrRange> = [filter.src, filter.dst].into_iter().flatten().collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let narrowings = Narrowing::all(endpoint.ike().status());
    let concerned = narrowings.iter().filter(|narrowing| narrowing.leaves_out(&asked));
    concerned.take(MAX_NOTES).map(Narrowing::cause).collect()
}

/// Checks the limits, which every client of the control socket has to keep.
fn check(count: u16, timeout: u16) -> Result<(), String> {
    let is_in = |value: u16, max| (1..=max).contains(&i64::from(value));
    if is_in(count, MAX_COUNT) && is_in(timeout, MAX_TIMEOUT) {
        return Ok(());
    }
    Err(format!(
        "{count} packets within {timeout} s: 1 to {MAX_COUNT} packets within 1 to {MAX_TIMEOUT} s were \
         expected"
    ))
}
