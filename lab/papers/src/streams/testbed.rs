//! Testbed: sets up a forwarder, transfers a file through it for a while, and takes it down.

#![expect(clippy::indexing_slicing, reason = "an end is 0 or 1")]

use super::protection::{Case, Forwarder};
use super::protection::{Protection, SUITES, Suite};
use super::relay::{INTERFACE, Wiring};
use crate::hosts;
use casemate_measure::report::Skipped;
use casemate_measure::stats::LEAST_ROUNDS;
use casemate_testbed::gateway::{Gateway, START_TIMEOUT};
use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS, VethPair};
use casemate_testbed::{Background, Error, Netns, Result, sys};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest packet of the host, except with the gateway and the kernel's IPsec. With AH, a tunnel and the
/// relay's UDP header it still fits 1,500 bytes.
const MTU: u32 = 1_380;
/// TCP payload of such a packet: without IPv4 header, TCP header and TCP timestamps.
pub(super) const SEGMENT_PAYLOAD: f64 = 1_380.0 - 20.0 - 20.0 - 12.0;

/// Result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// Received TCP payload in Mb/s (10^6 bits).
    pub(super) rate: f64,
    /// Context switches in the programs of both ends, per segment.
    pub(super) switches: f64,
    /// CPU time of the programs per segment, in microseconds.
    pub(super) cpu: f64,
}

/// Two pairs of hosts: the link of one pair has no segmentation offload, the other pair is unchanged.
pub(super) struct Testbed {
    plain: VethPair,
    modern: VethPair,
    program: PathBuf,
    scratch: PathBuf,
}

impl Testbed {
    pub(super) fn new(program: &Path, scratch: &Path) -> Result<Self> {
        let plain = VethPair::new()?;
        // Network cards of that time had no segmentation offload.
        (0..2).try_for_each(|end| plain.run_in(end, || sys::disable_tso("wire")))?;
        Ok(Self { plain, modern: VethPair::new()?, program: program.into(), scratch: scratch.into() })
    }

    /// Measures a case for this time, after a warm-up for TCP.
    pub(super) fn run(&self, case: Case, time: Duration) -> Result<Sample> {
        match case.forwarder {
            Forwarder::Clear => self.over_link(time),
            Forwarder::Relay(wiring, protection) => {
                let file =
                    protection.map(|protection| move |end| protection.file(case.suite, end, INNER_ADDRS));
                let file = |end: usize| file.as_ref().map(|file| file(end));
                let relays = [self.relay(0, wiring, file(0))?, self.relay(1, wiring, file(1))?];
                measure(&self.plain, &relays, time)
            }
            Forwarder::Gateway(protection) => {
                let ends = [0, 1].map(|end| self.gateway(end, &protection.file(case.suite, end, LINK_ADDRS)));
                let [near, far] = ends;
                let sample = measure(&self.modern, &[near?, far?], time);
                (0..2).try_for_each(|end| self.modern.ends[end].ip(&link_route("del", end, "")))?;
                sample
            }
            Forwarder::Kernel(protection) => {
                let file = |end| batch(&protection.file(case.suite, end, LINK_ADDRS));
                let set_up =
                    |end: usize| self.modern.ends[end].ip(&(link_route("add", end, "") + &file(end)));
                let sample =
                    set_up(0).and_then(|()| set_up(1)).and_then(|()| measure(&self.modern, &[], time));
                (0..2).try_for_each(|end| {
                    self.modern.ends[end].ip(&(FLUSH.to_owned() + &link_route("del", end, "")))
                })?;
                sample
            }
        }
    }

    fn over_link(&self, time: Duration) -> Result<Sample> {
        let options = format!(" mtu lock {MTU}");
        (0..2).try_for_each(|end| self.plain.ends[end].ip(&link_route("add", end, &options)))?;
        let sample = measure(&self.plain, &[], time);
        (0..2).try_for_each(|end| self.plain.ends[end].ip(&link_route("del", end, "")))?;
        sample
    }

    fn relay(&self, end: usize, wiring: Wiring, file: Option<String>) -> Result<Background> {
        let netns = &self.plain.ends[end];
        let mut command = netns.command(&self.program);
        command.args(["lab", "relay", "--end", &end.to_string(), "--wiring", &wiring.to_string()]);
        if let Some(text) = file {
            command.arg("--xfrm").arg(hosts::write_xfrm(end, &text, &self.scratch)?);
        }
        let output = self.scratch.join(format!("relay{end}"));
        let mut relay = Background::start("casemate lab relay", command, &output)?;
        relay.wait_until(START_TIMEOUT, |said| said.contains("ready"))?;
        let (own, other) = (INNER_ADDRS[end], INNER_ADDRS[1 - end]);
        netns.ip(&format!(
            "link set {INTERFACE} mtu {MTU} up\nroute add {other}/32 dev {INTERFACE} src {own}\n"
        ))?;
        Ok(relay)
    }

    fn gateway(&self, end: usize, text: &str) -> Result<Background> {
        self.modern.ends[end].ip(&link_route("add", end, ""))?;
        let programs =
            self.program.parent().ok_or_else(|| Error::new("the path of the program has no directory"))?;
        hosts::start_gateway(&Gateway::in_directory(programs)?, &self.modern, end, text, &[], &self.scratch)
    }
}

/// Line for `ip` that adds or removes the route over the link to the other end.
fn link_route(verb: &str, end: usize, options: &str) -> String {
    let (own, other, via) = (INNER_ADDRS[end], INNER_ADDRS[1 - end], LINK_ADDRS[1 - end]);
    format!("route {verb} {other}/32 via {via} src {own}{options}\n")
}

fn measure(veth: &VethPair, programs: &[Background], time: Duration) -> Result<Sample> {
    let seen = hosts::watch(veth, programs, time)?;
    let segments = seen.bytes / SEGMENT_PAYLOAD;
    Ok(Sample {
        rate: seen.bytes * 8.0 / 1e6 / seen.elapsed.as_secs_f64(),
        switches: seen.switches / segments,
        cpu: seen.cpu.as_secs_f64() * 1e6 / segments,
    })
}

/// Number of rounds and duration of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) rounds: usize,
    pub(super) sample_time: Duration,
}

impl Schedule {
    /// Distributes this time over all cases.
    pub(super) fn within(time: Duration, cases: usize) -> Self {
        let rounds = LEAST_ROUNDS;
        // Starting and stopping programs takes time, too, and the warm-up is not measured.
        const SET_UP: Duration = Duration::from_millis(200);
        const LEAST: Duration = Duration::from_millis(100);
        let each = time / u32::try_from(rounds * cases.max(1)).unwrap_or(u32::MAX);
        Self { rounds, sample_time: (each.saturating_sub(SET_UP) * 3 / 4).max(LEAST) }
    }
}

/// Removes what [`batch`] has set up.
pub(super) const FLUSH: &str = "xfrm policy flush\nxfrm state flush\n";

/// Suites for which the kernel supports SAs.
pub(super) struct KernelSupport {
    pub(super) suites: Vec<Suite>,
    /// Unsupported suites with the kernel's error.
    refused: Vec<(Suite, String)>,
}

impl KernelSupport {
    /// Probes the kernel in a new namespace. It may not support ESP, or not with these algorithms.
    pub(super) fn probe() -> Result<Self> {
        let netns = Netns::new()?;
        let mut knows = Self { suites: Vec::new(), refused: Vec::new() };
        for suite in SUITES {
            match netns.ip(&(FLUSH.to_owned() + &batch(&Protection::EspTunnelAh.file(suite, 0, LINK_ADDRS))))
            {
                Ok(()) => knows.suites.push(suite),
                Err(error) => knows.refused.push((suite, kernel_error(&error.to_string()))),
            }
        }
        Ok(knows)
    }

    /// Returns the measurements that have to be skipped, if any.
    pub(super) fn skipped(&self) -> Option<Skipped> {
        let refused = self.refused.iter().map(|(suite, answer)| format!("{suite} ({answer})"));
        let refused: Vec<String> = refused.collect();
        (!refused.is_empty()).then(|| Skipped {
            what: "inside IP".into(),
            why: format!("the kernel's own IPsec does not support: {}", refused.join(", ")),
            failed: false,
        })
    }
}

/// Converts lines for `ip xfrm` to lines for `ip -batch`.
pub(super) fn batch(file: &str) -> String {
    file.lines().filter_map(|line| Some(format!("{}\n", line.strip_prefix("ip ")?))).collect()
}

/// Extracts the kernel's error from the output of `ip`.
fn kernel_error(said: &str) -> String {
    let marks = ["RTNETLINK answers: ", "Error: "];
    let answer = said.lines().find_map(|line| marks.iter().find_map(|mark| Some(line.split_once(mark)?.1)));
    answer.or_else(|| said.lines().next()).unwrap_or_default().trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_lines_omit_the_program_name() {
        let file = Protection::EspTunnelAh.file(Suite::Today, 1, LINK_ADDRS);
        let batch = batch(&file);
        assert_eq!(batch.lines().count(), file.lines().count());
        assert!(
            batch
                .lines()
                .all(|line| line.starts_with("xfrm state add ") || line.starts_with("xfrm policy add "))
        );
        // At this end, the tunnel SA is applied first, and AH around it (RFC 4301 section 4.5).
        assert!(batch.contains(
            "xfrm policy add src 10.2.0.1/32 dst 10.1.0.1/32 dir out \
             tmpl src 192.0.2.2 dst 192.0.2.1 proto esp mode tunnel \
             tmpl src 192.0.2.2 dst 192.0.2.1 proto ah mode transport\n"
        ));
        assert!(batch.contains("proto ah spi 4097 mode transport auth-trunc 'hmac(sha256)' 0x2222"));
    }

    #[test]
    fn unsupported_suites_are_reported_with_the_kernels_error() {
        let refused = vec![
            (
                Suite::Era,
                kernel_error(
                    "ip -batch failed: RTNETLINK answers: Protocol not supported\n\
                     Command failed -:1\nin:\nxfrm",
                ),
            ),
            (
                Suite::Today,
                kernel_error(
                    "ip -batch failed: Error: Requested AEAD algorithm not found.\nCommand failed -:1\nin:",
                ),
            ),
        ];
        let out = KernelSupport { suites: Vec::new(), refused }.skipped().unwrap();
        assert_eq!(
            format!("{}: {}", out.what, out.why),
            "inside IP: the kernel's own IPsec does not support: DES, MD5 (Protocol not supported), \
                 AES-GCM, SHA-2 (Requested AEAD algorithm not found)"
        );
        assert!(!out.failed);
    }

    /// Every suite is either supported or reported.
    #[test]
    fn every_suite_is_supported_or_reported() {
        let Ok(knows) = KernelSupport::probe() else {
            casemate_test_support::skip("no network namespace can be created");
            return;
        };
        assert_eq!(knows.suites.len() + knows.refused.len(), SUITES.len());
        assert_eq!(knows.skipped().is_none(), knows.suites == SUITES);
        for (_, answer) in &knows.refused {
            assert!(!answer.is_empty() && !answer.contains("ip -batch"), "{answer}");
        }
    }
}
