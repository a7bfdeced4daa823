//! SAs and error counters of a kernel: the output of `ip -s xfrm state` and `/proc/net/xfrm_stat`.

use casemate_interop::changed_counters;

/// SAs and error counters of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xfrm {
    pub(crate) states: Vec<SaState>,
    /// Counters of `/proc/net/xfrm_stat` that have changed since the start of the case, with their values.
    pub(crate) errors: Vec<String>,
}

/// SA of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaState {
    /// `esp` or `ah`.
    pub(crate) protocol: String,
    /// Eight lower-case hexadecimal digits.
    pub(crate) spi: String,
    /// `transport` or `tunnel`.
    pub(crate) mode: String,
    /// Whether the SA uses extended sequence numbers.
    pub(crate) esn: bool,
    /// Whether the SA uses UDP encapsulation.
    pub(crate) in_udp: bool,
    pub(crate) packets: u64,
    /// Whether the SA dropped no packet: outside the replay window, replayed, or with a wrong ICV.
    pub(crate) is_error_free: bool,
}

impl Xfrm {
    /// Parses the output of `ip`, with the error counters at the start of the case and now.
    pub(crate) fn parse(listing: &str, before: &str, now: &str) -> Self {
        let mut blocks: Vec<String> = Vec::new();
        for line in listing.lines() {
            match blocks.last_mut() {
                Some(block) if line.starts_with('\t') => block.push_str(&format!("{line}\n")),
                _ => blocks.push(format!("{line}\n")),
            }
        }
        Self {
            states: blocks.iter().map(|block| SaState::parse(block)).collect(),
            errors: changed_counters(before, now),
        }
    }

    /// Returns the value of an error counter, or 0 if it has not changed.
    pub(crate) fn error_count(&self, counter: &str) -> u64 {
        let values = self.errors.iter().filter_map(|error| error.strip_prefix(counter));
        values.filter_map(|value| value.trim().parse::<u64>().ok()).sum()
    }
}

impl SaState {
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
            is_error_free: current.contains("replay-window 0 replay 0 failed 0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened output of iproute2 6.1 on Linux 6.1.
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
    fn parses_two_sas_and_error_counters() {
        let xfrm = Xfrm::parse(LISTING, "XfrmInError 0\n", "XfrmInError 2\n");
        assert_eq!(xfrm.errors, ["XfrmInError 2"]);
        assert_eq!(
            (xfrm.error_count("XfrmInError"), xfrm.error_count("XfrmIn"), xfrm.error_count("XfrmOutError")),
            (2, 0, 0)
        );
        let [first, second] = xfrm.states.as_slice() else { panic!("{xfrm:?}") };
        assert_eq!((first.protocol.as_str(), first.spi.as_str()), ("esp", "6896988f"));
        assert_eq!((first.mode.as_str(), first.esn, first.in_udp), ("transport", true, false));
        assert_eq!((first.packets, first.is_error_free), (199, true));
        assert_eq!((second.mode.as_str(), second.esn, second.in_udp), ("tunnel", false, true));
        assert_eq!((second.packets, second.is_error_free), (1, false));
    }
}
