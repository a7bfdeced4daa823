//! Packet classification: configured selectors first, then the DSCP.

use crate::Class;
use alloc::boxed::Box;
use casemate_sa::Selector;
use casemate_wire::dscp::Dscp;
use casemate_wire::flow::HeaderSummary;
use casemate_wire::invariant::OrBroken;

/// A classification rule: packets that match `selector` belong to `class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Packets to which the rule applies.
    pub selector: Selector,
    /// Class of these packets.
    pub class: Class,
}

/// Class of each DSCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DscpTable([Class; Dscp::COUNT]);

impl DscpTable {
    /// All code points are [`Class::Standard`].
    pub const ALL_STANDARD: Self = Self([Class::Standard; Dscp::COUNT]);

    /// Assigns `class` to packets with `dscp`.
    pub fn assign(&mut self, dscp: Dscp, class: Class) {
        if let Some(entry) = self.0.get_mut(usize::from(dscp.value())) {
            *entry = class;
        }
    }

    /// Class of packets with `dscp`.
    #[inline]
    pub fn class_of(&self, dscp: Dscp) -> Class {
        self.0.get(usize::from(dscp.value())).copied().or_broken("each DSCP has a class", Class::Standard)
    }
}

/// The service classes of RFC 4594 (figure 3), aggregated as in RFC 5127 section 4.1. All other code points
/// are [`Class::Standard`], so that an undefined code point brings no advantage.
const SERVICE_CLASSES: [(Class, &[u8]); 4] = [
    // Telephony EF, capacity-admitted EF (RFC 5865), signalling CS5, network control CS6.
    (Class::LowLatency, &[46, 44, 40, 48]),
    // Multimedia conferencing AF41 to AF43, real-time interactive CS4, broadcast video CS3.
    (Class::RealTime, &[34, 36, 38, 32, 24]),
    // Multimedia streaming AF3x, low-latency data AF2x, high-throughput data AF1x, OAM CS2.
    (Class::Assured, &[26, 28, 30, 18, 20, 22, 10, 12, 14, 16]),
    // Lower effort LE (RFC 8622), and CS1, the former code point of lower effort.
    (Class::Least, &[1, 8]),
];

impl Default for DscpTable {
    /// Returns the service classes of RFC 4594.
    fn default() -> Self {
        let mut table = Self::ALL_STANDARD;
        for (class, values) in SERVICE_CLASSES {
            values.iter().filter_map(|value| Dscp::new(*value)).for_each(|dscp| table.assign(dscp, class));
        }
        table
    }
}

/// Maps packets to classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classifier {
    rules: Box<[Rule]>,
    table: DscpTable,
}

impl Classifier {
    /// Creates a classifier. The first of `rules` that matches a packet determines its class; without a
    /// match, `table` does. Each packet is compared with the rules one by one, so there should be few.
    pub fn new(rules: impl Into<Box<[Rule]>>, table: DscpTable) -> Self {
        Self { rules: rules.into(), table }
    }

    /// The rules, for kernels and network cards that classify packets as well.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The class of each DSCP, for packets that match no rule.
    pub const fn table(&self) -> &DscpTable {
        &self.table
    }

    /// Returns the class of a packet. For an ESP or AH packet, only the outermost header counts.
    #[inline]
    pub fn classify(&self, packet: &HeaderSummary) -> Class {
        match self.rules.iter().find(|rule| rule.selector.matches(&packet.key)) {
            Some(rule) => rule.class,
            None => self.table.class_of(Dscp::from_tos(packet.tos())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_sa::{AddrRange, PortRange};

    /// A UDP packet to port 5060 with this TOS byte.
    fn packet(tos: u8) -> HeaderSummary {
        let mut bytes = [0; 28];
        bytes[..20]
            .copy_from_slice(&[0x45, tos, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[20..24].copy_from_slice(&[0x40, 0, 0x13, 0xc4]);
        HeaderSummary::parse(&bytes).unwrap()
    }

    #[test]
    fn the_dscp_determines_the_class_and_ecn_does_not() {
        let classifier = Classifier::default();
        let class = |dscp: &str, ecn: u8| {
            classifier.classify(&packet(dscp.parse::<Dscp>().unwrap().value() << 2 | ecn))
        };
        for ecn in 0..4 {
            for dscp in ["ef", "voice-admit", "cs5", "cs6"] {
                assert_eq!(class(dscp, ecn), Class::LowLatency, "{dscp}");
            }
            for dscp in ["af41", "af42", "af43", "cs4", "cs3"] {
                assert_eq!(class(dscp, ecn), Class::RealTime, "{dscp}");
            }
            for dscp in ["af31", "af32", "af33", "af21", "af22", "af23", "af11", "af12", "af13", "cs2"] {
                assert_eq!(class(dscp, ecn), Class::Assured, "{dscp}");
            }
            for dscp in ["le", "cs1"] {
                assert_eq!(class(dscp, ecn), Class::Least, "{dscp}");
            }
        }
        let table = DscpTable::default();
        let standard = (0..64).filter_map(Dscp::new).filter(|dscp| table.class_of(*dscp) == Class::Standard);
        assert_eq!(standard.count(), 64 - 4 - 5 - 10 - 2);
    }

    #[test]
    fn the_first_matching_rule_overrides_the_dscp() {
        let to = |port| Selector {
            proto: Some(17),
            dst_port: PortRange::single(port),
            ..Selector::between(AddrRange::ANY_V4, AddrRange::ANY_V4)
        };
        let rule = |port, class| Rule { selector: to(port), class };
        let rules = [rule(4500, Class::Least), rule(5060, Class::LowLatency), rule(5060, Class::Assured)];
        let classifier = Classifier::new(rules, DscpTable::default());
        assert_eq!(classifier.classify(&packet(0)), Class::LowLatency);
        assert_eq!(
            Classifier::new([rules[0]], DscpTable::ALL_STANDARD).classify(&packet(0xb8)),
            Class::Standard
        );
    }
}
