//! Looks after the running engine: answers for its state and writes down what it reports.

use super::control::Control;
use crate::status::{Identity, Snapshot};
use casemate_datapath::{Audit, Datapath, Event};
use casemate_linux::Attendant;
use casemate_sa::{Instant, Protocol};
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::time::{self, Duration};

/// So many lines a second are written; the others are counted. An attacker must not fill the log.
const LINES_A_SECOND: u32 = 10;

/// The attendant of `casemate run`.
pub(super) struct Journalist {
    control: Control,
    identity: Identity,
    second: time::Instant,
    written: u32,
    unwritten: u64,
}

impl Journalist {
    pub(super) fn new(control: Control, identity: Identity) -> Self {
        Self { control, identity, second: time::Instant::now(), written: 0, unwritten: 0 }
    }

    fn write(&mut self, line: &str) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            if self.unwritten > 0 {
                eprintln!("casemate: {} more lines were not written", self.unwritten);
            }
            (self.second, self.written, self.unwritten) = (time::Instant::now(), 0, 0);
        }
        if self.written < LINES_A_SECOND {
            self.written = self.written.saturating_add(1);
            eprintln!("casemate: {line}");
        } else {
            self.unwritten = self.unwritten.saturating_add(1);
        }
    }
}

impl Attendant for Journalist {
    fn wake(&self) -> BorrowedFd<'_> {
        self.control.wake()
    }

    fn attend(&mut self, datapath: &Datapath, now: Instant) {
        let snapshot = Snapshot::take(datapath, &self.identity, now);
        self.control.answer(snapshot);
    }

    fn event(&mut self, datapath: &Datapath, event: &Event) {
        let line = match event {
            Event::Audit(audit) => audit_line(audit),
            Event::SoftLifetime(id) => {
                format!("{}: the soft lifetime is reached, time for new keys", name(datapath, *id))
            }
            Event::HardLifetime(id) => {
                format!("{}: the hard lifetime is over, it passes no more packets", name(datapath, *id))
            }
            Event::Acquire { flow, .. } => {
                format!("no SA for packets from {} to {}, which a policy protects", flow.src(), flow.dst())
            }
        };
        self.write(&line);
    }

    fn trouble(&mut self, what: String) {
        self.write(&what);
    }
}

/// What RFC 4303 section 3.4 wants in the log: reason, addresses, SPI, sequence number, flow label.
fn audit_line(audit: &Audit) -> String {
    let mut line = format!("audit: {}", audit.reason);
    if let (Some(src), Some(dst)) = (audit.src, audit.dst) {
        let _ = write!(line, ", {src} > {dst}");
    }
    if let Some((protocol, spi, seq)) = audit.header {
        let _ = write!(line, ", {protocol} spi {spi:#010x} seq {seq}");
    }
    if let Some(label) = audit.flow_label {
        let _ = write!(line, ", flow label {label:#x}");
    }
    let _ = write!(line, " ({})", audit.reason.source());
    line
}

fn name(datapath: &Datapath, id: casemate_datapath::SaId) -> String {
    let sa = datapath.sas().find(|sa| sa.id == id);
    sa.map_or_else(
        || id.to_string(),
        |sa| {
            let protocol: Protocol = sa.protocol;
            format!("SA {} > {} {protocol} spi {}", sa.src, sa.dst, sa.spi)
        },
    )
}
