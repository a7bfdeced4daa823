//! What happened: on standard error, for those who ask later, and for those who listen.

use super::control::Reply;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many lines a second are written to standard error; the others are counted. An attacker must not fill the log.
const LINES_A_SECOND: u32 = 20;
/// Lines that are kept for those who ask later.
const KEPT: usize = 1_000;

/// The log of an instance.
pub(super) struct Logbook {
    kept: VecDeque<String>,
    listeners: Vec<Reply>,
    second: Instant,
    written: u32,
    unwritten: u64,
}

impl Logbook {
    pub(super) fn new() -> Self {
        Self {
            kept: VecDeque::new(),
            listeners: Vec::new(),
            second: Instant::now(),
            written: 0,
            unwritten: 0,
        }
    }

    /// Notes a line.
    pub(super) fn note(&mut self, line: &str) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            if self.unwritten > 0 {
                eprintln!("casemate: {} more lines were not written", self.unwritten);
            }
            (self.second, self.written, self.unwritten) = (Instant::now(), 0, 0);
        }
        if self.written >= LINES_A_SECOND {
            self.unwritten = self.unwritten.saturating_add(1);
            return;
        }
        self.written = self.written.saturating_add(1);
        eprintln!("casemate: {line}");
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(line.into());
        self.listeners.retain(|listener| listener.send(line.into()));
    }

    /// Tells a client everything that is kept, and what comes if it wants that too.
    pub(super) fn tell(&mut self, client: Reply, follow: bool) {
        let told = self.kept.iter().all(|line| client.send(line.clone()));
        if told && follow {
            self.listeners.push(client);
        }
    }
}
