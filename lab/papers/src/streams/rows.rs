//! The rows of the paper's table, its remedies, and what stands for each of them here.

use super::protection::{Protection, Suite};
use super::relay::Wiring;

/// What moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The kernel alone, one segment at a time.
    Clear,
    /// The relay, with modules that do nothing or those of the data path.
    Relay(Wiring, Option<Protection>),
    /// `casemate run`.
    Gateway(Protection),
    /// The kernel's own IPsec: inside IP.
    Kernel(Protection),
}

/// A row of the paper's table.
#[derive(Debug)]
pub(super) struct Row {
    /// The paper's words.
    pub(super) name: &'static str,
    /// For a figure.
    pub(super) short: &'static str,
    /// In kb/s, as printed. Whether a b is a bit or a byte is not said; ratios do not ask.
    pub(super) paper: f64,
    /// What stands for it here.
    pub(super) way: Way,
}

const fn queued(name: &'static str, short: &'static str, paper: f64, protection: Option<Protection>) -> Row {
    Row { name, short, paper, way: Way::Relay(Wiring::Queues, protection) }
}

/// The table, in the paper's order.
pub(super) static ROWS: [Row; 10] = [
    Row { name: "no IPsec, no STREAMS", short: "none", paper: 315.0, way: Way::Clear },
    Row {
        name: "STREAMS without queues or context switches, no IPsec",
        short: "functions",
        paper: 237.0,
        way: Way::Relay(Wiring::Functions, None),
    },
    queued("STREAMS with queues and context switches, no IPsec", "queues", 56.0, None),
    queued("IPsec without AH and ESP", "bypass", 47.0, Some(Protection::Bypass)),
    queued("AH", "AH", 26.0, Some(Protection::Ah)),
    queued("transport-mode ESP", "ESP tr.", 26.0, Some(Protection::EspTransport)),
    queued("tunnel-mode ESP", "ESP tun.", 26.0, Some(Protection::EspTunnel)),
    queued("ESP-part AH and tunnel-mode ESP", "AH in tun.", 19.0, Some(Protection::AhInEspTunnel)),
    queued("transport-mode ESP and AH", "tr. + AH", 20.0, Some(Protection::EspTransportAh)),
    queued("tunnel-mode ESP and AH", "tun. + AH", 18.0, Some(Protection::EspTunnelAh)),
];

/// What the paper hopes for when everything is done in one context, in kb/s.
pub(super) const HOPE: [f64; 2] = [180.0, 200.0];

/// Something to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) way: Way,
    /// Where there is a choice, or the older one.
    pub(super) suite: Suite,
}

impl Subject {
    const fn of(way: Way, suite: Suite) -> Self {
        Self { way, suite }
    }

    /// For progress and samples.
    pub(super) fn name(self) -> String {
        let Self { way, suite } = self;
        match way {
            Way::Clear => "the kernel alone".into(),
            Way::Relay(wiring, None) => format!("modules that do nothing, as {wiring}"),
            Way::Relay(wiring, Some(Protection::Bypass)) => format!("{:?} as {wiring}", Protection::Bypass),
            Way::Relay(wiring, Some(protection)) => format!("{protection:?} as {wiring}, {suite}"),
            Way::Gateway(protection) => format!("{protection:?} by the gateway, {suite}"),
            Way::Kernel(protection) => format!("{protection:?} by the kernel, {suite}"),
        }
    }
}

/// The same row with today's algorithms; `None` where it has none.
pub(super) fn today(row: &Row) -> Option<Subject> {
    match row.way {
        Way::Relay(_, Some(protection)) if protection != Protection::Bypass => {
            Some(Subject::of(row.way, Suite::Today))
        }
        _ => None,
    }
}

/// The row as it was.
pub(super) fn era(row: &Row) -> Subject {
    Subject::of(row.way, Suite::Era)
}

/// The paper's remedies for three protections: queues, one context, one context until it is congested (the gateway, one program,
/// whose other threads take turns only while more packets wait than one can protect), and inside IP (the kernel).
pub(super) fn remedies(protection: Protection, suite: Suite) -> [Subject; 4] {
    [
        Way::Relay(Wiring::Queues, Some(protection)),
        Way::Relay(Wiring::Functions, Some(protection)),
        Way::Gateway(protection),
        Way::Kernel(protection),
    ]
    .map(|way| Subject::of(way, suite))
}

/// What they are called, in this order.
pub(super) const REMEDIES: [&str; 4] = ["queues", "one context", "the gateway", "inside IP"];

/// For which protections the remedies are tried.
pub(super) const REMEDIED: [(&str, Protection, Suite); 5] = [
    ("bypass", Protection::Bypass, Suite::Era),
    ("ESP tunnel, then", Protection::EspTunnel, Suite::Era),
    ("ESP + AH, then", Protection::EspTunnelAh, Suite::Era),
    ("ESP tunnel, today", Protection::EspTunnel, Suite::Today),
    ("ESP + AH, today", Protection::EspTunnelAh, Suite::Today),
];

/// Everything to be measured, each once; the kernel's own IPsec with those algorithms that it has.
pub(super) fn subjects(kernels: &[Suite]) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    let rows = ROWS.iter().flat_map(|row| [Some(era(row)), today(row)]).flatten();
    let remedies = REMEDIED.iter().flat_map(|(_, protection, suite)| remedies(*protection, *suite));
    for subject in rows.chain(remedies) {
        let wanted = match subject.way {
            // The gateway does not take part in what is bypassed: the kernel sends it as it always does.
            Way::Gateway(Protection::Bypass) | Way::Kernel(Protection::Bypass) => false,
            Way::Kernel(_) => kernels.contains(&subject.suite),
            Way::Clear | Way::Relay(..) | Way::Gateway(_) => true,
        };
        if wanted && !all.contains(&subject) {
            all.push(subject);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::protection::SUITES;

    #[test]
    fn everything_is_measured_once() {
        // Ten rows, six of them twice, three more in one context with DES and two with AES, four gateways, and four kernels.
        assert_eq!(subjects(&[]).len(), 10 + 6 + 3 + 2 + 4);
        let all = subjects(&SUITES);
        assert_eq!(all.len(), 10 + 6 + 3 + 2 + 4 + 4);
        assert!(all.iter().all(|subject| all.iter().filter(|other| *other == subject).count() == 1));
    }

    #[test]
    fn no_name_stands_for_two() {
        let mut names: Vec<String> = subjects(&SUITES).into_iter().map(Subject::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), subjects(&SUITES).len());
    }
}
