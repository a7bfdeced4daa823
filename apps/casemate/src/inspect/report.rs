//! One line for each packet, as text or JSON, and the summary.

use super::datapath::Verdict;
use super::ike::decode;
use super::outer_headers::{OuterHeaders, Protection, ProtocolName};
use crate::printable;
use casemate_datapath::{DropReason, RestoredHeader};
use casemate_sa::AddrPair;
use casemate_wire::flow::{FlowKey, FlowPorts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Prints outcomes and counts them.
pub(super) struct PacketReport<O> {
    out: O,
    json: bool,
    line: String,
    summary: Summary,
}

impl<O: Write> PacketReport<O> {
    pub(super) fn new(out: O, json: bool) -> Self {
        Self { out, json, line: String::new(), summary: Summary::default() }
    }

    pub(super) fn add(&mut self, number: u64, outcome: &FrameOutcome<'_>) -> io::Result<()> {
        self.summary.count(outcome);
        self.line.clear();
        let written = if self.json {
            outcome.write_json(number, &mut self.line)
        } else {
            outcome.write_text(number, &mut self.line)
        };
        written.map_err(io::Error::other)?;
        // The line may contain data from peers, in JSON only inside strings.
        let line = if self.json { printable::json_text(&self.line) } else { printable::line(&self.line) };
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }
}

/// The result for a captured frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameOutcome<'p> {
    /// An IP packet: its visible headers and the verdict of the data path.
    Packet(OuterHeaders, Verdict<'p>),
    /// An IP packet with an IKE message: its visible headers and the decoded message.
    Ike(OuterHeaders, Value),
    /// An IP packet that was captured in part.
    Cut { captured: usize, expected: usize },
    /// Not an IP packet.
    Other,
}

impl FrameOutcome<'_> {
    /// The verdict in words, for text and JSON.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Packet(_, Verdict::Ok(..)) => "ok",
            Self::Packet(_, Verdict::Drop(_) | Verdict::RohcFailed(_)) => "drop",
            Self::Packet(_, Verdict::Clear) => "clear",
            Self::Packet(_, Verdict::Held) => "held",
            Self::Packet(_, Verdict::Dummy) => "dummy",
            Self::Packet(_, Verdict::RohcFeedback) => "rohc-feedback",
            Self::Packet(_, Verdict::Keepalive) => "keepalive",
            Self::Packet(_, Verdict::Ike) | Self::Ike(..) => "ike",
            Self::Cut { .. } => "cut",
            Self::Other => "other",
        }
    }

    fn drop_reason(&self) -> Option<DropReason> {
        match self {
            Self::Packet(_, Verdict::Drop(reason)) => Some(*reason),
            Self::Packet(_, Verdict::RohcFailed(_)) => Some(DropReason::RohcFailed),
            _ => None,
        }
    }

    fn headers(&self) -> Option<&OuterHeaders> {
        match self {
            Self::Packet(headers, _) | Self::Ike(headers, _) => Some(headers),
            Self::Cut { .. } | Self::Other => None,
        }
    }

    /// Writes a JSON object. All values of our own are numbers or plain ASCII, so nothing needs escaping.
    pub(super) fn write_json(&self, number: u64, line: &mut String) -> fmt::Result {
        write!(line, "{{\"n\":{number}")?;
        if let Some(headers) = self.headers() {
            if let Some(protocol) = headers.protocol {
                write!(line, ",\"proto\":\"{}\"", ProtocolName(protocol))?;
            }
            if let Some(Protection { spi, seq, .. }) = headers.protection {
                write!(line, ",\"spi\":\"{spi:#010x}\",\"seq\":{seq}")?;
            }
        }
        write!(line, ",\"verdict\":\"{}\"", self.word())?;
        match self {
            Self::Packet(_, Verdict::Ok(inner, rohc)) => {
                line.push_str(",\"inner\":\"");
                inner.iter().try_for_each(|byte| write!(line, "{byte:02x}"))?;
                line.push('"');
                if let Some(RestoredHeader { cid, profile, len }) = rohc {
                    write!(line, ",\"rohc\":{{\"cid\":{cid},\"profile\":\"{profile}\",\"header\":{len}}}")?;
                }
            }
            Self::Packet(_, Verdict::RohcFailed(fault)) => {
                let reason = DropReason::RohcFailed;
                write!(line, ",\"reason\":\"{reason}\",\"rohc\":{{\"fault\":\"{fault}\"}}")?;
            }
            Self::Packet(_, Verdict::Drop(reason)) => write!(line, ",\"reason\":\"{reason}\"")?,
            Self::Ike(_, message) => write!(line, ",\"ike\":{message}")?,
            Self::Cut { captured, expected } => {
                write!(line, ",\"captured\":{captured},\"length\":{expected}")?
            }
            _ => {}
        }
        line.push('}');
        Ok(())
    }

    /// Writes a line of text.
    pub(super) fn write_text(&self, number: u64, line: &mut String) -> fmt::Result {
        write!(line, "{number:>6}  {:<9}", self.word())?;
        if let Some(headers) = self.headers() {
            match headers.addresses {
                Some(AddrPair { src, dst }) => write!(line, " {src} > {dst}")?,
                None => line.push_str(" ?"),
            }
            if let Some(protocol) = headers.protocol {
                write!(line, " {}", ProtocolName(protocol))?;
            }
            if let Some(Protection { spi, seq, .. }) = headers.protection {
                write!(line, " spi {spi:#010x} seq {seq}")?;
            }
        }
        match self {
            Self::Packet(_, Verdict::Ok(inner, rohc)) => {
                write_inner(inner, line)?;
                rohc.map_or(Ok(()), |rohc| write_rohc(rohc, line))
            }
            Self::Packet(_, Verdict::RohcFailed(fault)) => {
                let reason = DropReason::RohcFailed;
                write!(line, ": {reason} ({}): {fault}", reason.source())
            }
            Self::Packet(_, Verdict::Drop(reason)) => write!(line, ": {reason} ({})", reason.source()),
            Self::Ike(_, message) => write!(line, ": {}", decode::summary_line(message)),
            Self::Cut { captured, expected } => write!(line, " {captured} of {expected} bytes were captured"),
            _ => Ok(()),
        }
    }
}

fn write_inner(inner: &[u8], line: &mut String) -> fmt::Result {
    write!(line, ": {} bytes", inner.len())?;
    let Ok(flow) = FlowKey::parse(inner) else { return Ok(()) };
    write!(line, ", {} > {}", flow.src(), flow.dst())?;
    if let Some(protocol) = OuterHeaders::parse(inner, &[]).protocol {
        write!(line, " {}", ProtocolName(protocol))?;
    }
    match flow.ports() {
        Some(ports) if ports != FlowPorts::NONE => write!(line, " {} > {}", ports.src, ports.dst),
        _ => Ok(()),
    }
}

fn write_rohc(RestoredHeader { cid, profile, len }: RestoredHeader, line: &mut String) -> fmt::Result {
    let unit = if len == 1 { "byte" } else { "bytes" };
    write!(line, ", rohc cid {cid} profile {profile} (header {len} {unit})")
}

/// Counts outcomes.
#[derive(Debug, Default)]
pub(super) struct Summary {
    packets: u64,
    words: BTreeMap<&'static str, u64>,
    reasons: BTreeMap<DropReason, u64>,
}

impl Summary {
    pub(super) fn count(&mut self, outcome: &FrameOutcome<'_>) {
        let add = |count: &mut u64| *count = count.saturating_add(1);
        add(&mut self.packets);
        add(self.words.entry(outcome.word()).or_default());
        if let Some(reason) = outcome.drop_reason() {
            add(self.reasons.entry(reason).or_default());
        }
    }
}

impl fmt::Display for Summary {
    /// For example `12 packets: 1 clear, 3 drop (2 replay, 1 icv-mismatch), 8 ok`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packet{}", self.packets, if self.packets == 1 { "" } else { "s" })?;
        for (n, (word, count)) in self.words.iter().enumerate() {
            write!(f, "{} {count} {word}", if n == 0 { ":" } else { "," })?;
            if *word == "drop" {
                let reasons: Vec<String> =
                    self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                write!(f, " ({})", reasons.join(", "))?;
            }
        }
        Ok(())
    }
}
