//! One turn: a way is set up, a large file goes through it for a while, and everything is taken down.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use super::kernel;
use super::relay::{INTERFACE, Wiring};
use super::rows::{Subject, Way};
use crate::{download, manual};
use casemate_stage::arena::{Arena, BEHIND, WIRE};
use casemate_stage::gateway::{Gateway, START_LIMIT};
use casemate_stage::{Background, Error, Result, sys};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest packet of the host, in every way but the gateway's and the kernel's own: with AH and a tunnel around it, and the relay's
/// UDP, it still fits 1,500 bytes.
const MTU: u32 = 1_380;
/// What a segment of it carries: less IPv4 and TCP headers and TCP's timestamps.
pub(super) const SEGMENT: f64 = 1_380.0 - 20.0 - 20.0 - 12.0;

/// What came out of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// Payload of TCP that arrived, in Mb/s (10^6 bits).
    pub(super) rate: f64,
    /// Context switches in the programs of both ends, for each segment.
    pub(super) switches: f64,
    /// Their CPU time for each segment, in microseconds.
    pub(super) cpu: f64,
}

/// Where turns take place: two hosts whose link gets segment by segment, and two as they are.
pub(super) struct Ground {
    plain: Arena,
    modern: Arena,
    program: PathBuf,
    scratch: PathBuf,
}

impl Ground {
    pub(super) fn new(program: &Path, scratch: &Path) -> Result<Self> {
        let plain = Arena::new()?;
        // No network card of the time cut segments.
        (0..2).try_for_each(|end| plain.inside(end, || sys::cut_before("wire")))?;
        Ok(Self { plain, modern: Arena::new()?, program: program.into(), scratch: scratch.into() })
    }

    /// Measures for so long, after a shorter time in which TCP finds its pace.
    pub(super) fn turn(&self, subject: Subject, time: Duration) -> Result<Outcome> {
        match subject.way {
            Way::Clear => self.over_link(time),
            Way::Relay(wiring, protection) => {
                let file =
                    protection.map(|protection| move |end| protection.file(subject.suite, end, BEHIND));
                let file = |end: usize| file.as_ref().map(|file| file(end));
                let relays = [self.relay(0, wiring, file(0))?, self.relay(1, wiring, file(1))?];
                measure(&self.plain, &relays, time)
            }
            Way::Gateway(protection) => {
                let ends = [0, 1].map(|end| self.gateway(end, &protection.file(subject.suite, end, WIRE)));
                let [near, far] = ends;
                let outcome = measure(&self.modern, &[near?, far?], time);
                (0..2).try_for_each(|end| self.modern.ends[end].ip(&link_route("del", end, "")))?;
                outcome
            }
            Way::Kernel(protection) => {
                let file = |end| kernel::batch(&protection.file(subject.suite, end, WIRE));
                let set_up =
                    |end: usize| self.modern.ends[end].ip(&(link_route("add", end, "") + &file(end)));
                let outcome =
                    set_up(0).and_then(|()| set_up(1)).and_then(|()| measure(&self.modern, &[], time));
                (0..2).try_for_each(|end| {
                    self.modern.ends[end].ip(&(kernel::FLUSH.to_owned() + &link_route("del", end, "")))
                })?;
                outcome
            }
        }
    }

    fn over_link(&self, time: Duration) -> Result<Outcome> {
        let options = format!(" mtu lock {MTU}");
        (0..2).try_for_each(|end| self.plain.ends[end].ip(&link_route("add", end, &options)))?;
        let outcome = measure(&self.plain, &[], time);
        (0..2).try_for_each(|end| self.plain.ends[end].ip(&link_route("del", end, "")))?;
        outcome
    }

    fn relay(&self, end: usize, wiring: Wiring, file: Option<String>) -> Result<Background> {
        let netns = &self.plain.ends[end];
        let mut command = netns.command(&self.program);
        command.args(["lab", "relay", "--end", &end.to_string(), "--wiring", &wiring.to_string()]);
        if let Some(text) = file {
            command.arg("--xfrm").arg(manual::write(end, &text, &self.scratch)?);
        }
        let output = self.scratch.join(format!("relay{end}"));
        let mut relay = Background::start("casemate lab relay", command, &output)?;
        relay.wait_until(START_LIMIT, |said| said.contains("ready"))?;
        let (own, other) = (BEHIND[end], BEHIND[1 - end]);
        netns.ip(&format!(
            "link set {INTERFACE} mtu {MTU} up\nroute add {other}/32 dev {INTERFACE} src {own}\n"
        ))?;
        Ok(relay)
    }

    fn gateway(&self, end: usize, text: &str) -> Result<Background> {
        self.modern.ends[end].ip(&link_route("add", end, ""))?;
        let programs = self.program.parent().ok_or_else(|| Error::new("the program is nowhere"))?;
        manual::start(&Gateway::in_directory(programs)?, &self.modern, end, text, &[], &self.scratch)
    }
}

/// The line that leads what is for the other side over the link, or no longer.
fn link_route(verb: &str, end: usize, options: &str) -> String {
    let (own, other, via) = (BEHIND[end], BEHIND[1 - end], WIRE[1 - end]);
    format!("route {verb} {other}/32 via {via} src {own}{options}\n")
}

fn measure(arena: &Arena, programs: &[Background], time: Duration) -> Result<Outcome> {
    let seen = download::watch(arena, programs, time)?;
    let segments = seen.bytes / SEGMENT;
    Ok(Outcome {
        rate: seen.bytes * 8.0 / 1e6 / seen.elapsed.as_secs_f64(),
        switches: seen.switches / segments,
        cpu: seen.cpu.as_secs_f64() * 1e6 / segments,
    })
}

/// How many rounds there are, and how long a turn measures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) rounds: usize,
    pub(super) turn: Duration,
}

impl Effort {
    /// For so many subjects in so much time.
    pub(super) fn within(time: Duration, subjects: usize, quick: bool) -> Self {
        let rounds = if quick { 3 } else { 5 };
        // To start and to end programs takes its time too, and a third of a turn is not measured.
        const SET_UP: Duration = Duration::from_millis(200);
        const LEAST: Duration = Duration::from_millis(100);
        let each = time / u32::try_from(rounds * subjects.max(1)).unwrap_or(u32::MAX);
        Self { rounds, turn: (each.saturating_sub(SET_UP) * 3 / 4).max(LEAST) }
    }
}
