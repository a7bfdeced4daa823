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

    /// What a counter of errors says; none where it did not move.
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        let values = self.errors.iter().filter_map(|error| error.strip_prefix(counter));
        values.filter_map(|value| value.trim().parse::<u64>().ok()).sum()
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
            esn: line_with("replay-window")
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "esn")),
            in_udp: line_with("encap type espinudp").is_some(),
            packets: packets.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default(),
            is_content: current.contains("replay-window 0 replay 0 failed 0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from what iproute2 6.1 says of Linux 6.1.
    const LISTING: &str = "\
src 10.9.2.2 dst 10.9.1.2
\tproto esp spi 0x6896988f(1754699919) reqid 1(0x00000001) mode transport
\treplay-window 0 seq 0x00000000 flag esn (0x10000000)
\tanti-replay esn context:
\t seq-hi 0x0, seq 0x0, oseq-hi 0x0, oseq 0xc7
\tlifetime config:
\t  limit: soft (INF)(packets), hard (INF)(packets)
\tlifetime current:
\t  220950(bytes), 199(packets)
\tstats:
\t  replay-window 0 replay 0 failed 0
src 10.9.1.2 dst 10.9.2.2
\tproto esp spi 0xc6e72faf(3337039791) reqid 1(0x00000001) mode tunnel
\treplay-window 32 seq 0x00000000 flag af-unspec (0x00100000)
\tencap type espinudp sport 4500 dport 4500 addr 0.0.0.0
\tlifetime current:
\t  84(bytes), 1(packets)
\tstats:
\t  replay-window 0 replay 0 failed 2
";

    #[test]
    fn two_sas_are_told_apart_with_what_they_are() {
        let xfrm = Xfrm::parse(LISTING, "XfrmInError 0\n", "XfrmInError 2\n");
        assert_eq!(xfrm.errors, ["XfrmInError 2"]);
        assert_eq!(
            (xfrm.counted("XfrmInError"), xfrm.counted("XfrmIn"), xfrm.counted("XfrmOutError")),
            (2, 0, 0)
        );
        let [first, second] = xfrm.states.as_slice() else { panic!("{xfrm:?}") };
        assert_eq!((first.protocol.as_str(), first.spi.as_str()), ("esp", "6896988f"));
        assert_eq!((first.mode.as_str(), first.esn, first.in_udp), ("transport", true, false));
        assert_eq!((first.packets, first.is_content), (199, true));
        assert_eq!((second.mode.as_str(), second.esn, second.in_udp), ("tunnel", false, true));
        assert_eq!((second.packets, second.is_content), (1, false));
    }
}
