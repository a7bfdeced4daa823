//! What a kernel says of its SAs: `ip -s xfrm state`, and the errors that it counts.

use casemate_interop::moved_counters;

/// A kernel's SAs and errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xfrm {
    pub(crate) states: Vec<State>,
    /// The counters of `/proc/net/xfrm_stat` that moved since the case began, with their values.
    pub(crate) errors: Vec<String>,
}

/// One SA, of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// `esp` or `ah`.
    pub(crate) protocol: String,
    /// In hexadecimal digits, lower case, eight of them.
    pub(crate) spi: String,
    /// `transport` or `tunnel`.
    pub(crate) mode: String,
    /// Whether it has extended sequence numbers.
    pub(crate) esn: bool,
    /// Whether it is in UDP.
    pub(crate) in_udp: bool,
    /// The selector, where there is one.
    pub(crate) selector: Option<String>,
    pub(crate) packets: u64,
    /// Whether it refused no packet: none outside the window, none for the second time, none with a wrong ICV.
    pub(crate) is_content: bool,
}

impl Xfrm {
    /// From the listing, and the counters of errors when the case began and now.
    pub(crate) fn parse(listing: &str, before: &str, now: &str) -> Self {
        let mut blocks: Vec<String> = Vec::new();
        for line in listing.lines() {
            match blocks.last_mut() {
                Some(block) if line.starts_with('\t') => block.push_str(&format!("{line}\n")),
                _ => blocks.push(format!("{line}\n")),
            }
        }
        Self {
            states: blocks.iter().map(|block| State::parse(block)).collect(),
            errors: moved_counters(before, now),
        }
    }
}

impl State {
    fn parse(block: &str) -> Self {
        let word_after = |name: &str| {
            let mut words = block.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).unwrap_or_default().to_owned()
        };
        let line_with = |name: &str| block.lines().map(str::trim).find_map(|line| line.strip_prefix(name));
        let current = block.split_once("lifetime current:").map_or("", |(_, current)| current);
        let packets = current.split_once("(packets)").map_or("", |(front, _)| front);
        Self {
            protocol: word_after("proto"),
            spi: word_after("spi").trim_start_matches("0x").chars().take(8).collect(),
            mode: word_after("mode"),
            esn: block.contains("flag ") && word_is_in(line_with("replay-window").unwrap_or_default(), "esn"),
            in_udp: line_with("encap type espinudp").is_some(),
            selector: line_with("sel ").map(|selector| selector.trim_end().into()),
            packets: packets.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default(),
            is_content: current.contains("replay-window 0 replay 0 failed 0"),
        }
    }
}

fn word_is_in(line: &str, wanted: &str) -> bool {
    line.split_whitespace().any(|word| word == wanted)
}
