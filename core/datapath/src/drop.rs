//! The table of all drop reasons.
//!
//! Each entry has the enum variant, name, audit flag and source. Counters, `casemate status`, audit events,
//! logs and tests read this table. Every drop has an entry here.

use casemate_wire::invariant::OrBroken;
use core::fmt;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $audit:ident, $source:literal;)+) => {
        /// Why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Source: ", $source, ".")] $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in user interfaces, for example `icv-mismatch`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether the RFC requires an audit event.
            pub const fn is_audited(self) -> bool {
                match self { $(Self::$variant => drop_reasons!(@audit $audit),)+ }
            }

            /// The RFC and section that require the drop.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }
        }
    };
    (@audit audited) => { true };
    (@audit counted) => { false };
}

drop_reasons! {
    /// The IP header or an extension header does not parse.
    MalformedHeader = "malformed-header", counted, "RFC 791 section 3.1, RFC 8200 section 4";
    /// A fragment was offered to ESP or AH, which take whole datagrams only.
    Fragment = "fragment", audited, "RFC 4303 section 3.4.1, RFC 4302 section 3.4.1";
    /// A fragment hides the ports that a policy needs to see.
    FragmentWithoutPorts = "fragment-without-ports", audited, "RFC 4301 section 7";
    /// Fragments of one datagram overlap.
    FragmentOverlap = "fragment-overlap", counted, "RFC 8200 section 4.5, RFC 5722 section 4";
    /// The first fragment is too small to hold the headers.
    FragmentTiny = "fragment-tiny", counted, "RFC 7112 section 5, RFC 3128 section 2";
    /// Fragments of one datagram disagree about its length, are misaligned, or make it too long.
    FragmentMalformed = "fragment-malformed", counted, "RFC 8200 section 4.5, RFC 791 section 3.2";
    /// Too many datagrams in reassembly, or too many fragments of one.
    FragmentTableFull = "fragment-table-full", counted, "RFC 4301 appendix D";
    /// Not all fragments arrived in time.
    FragmentTimeout = "fragment-timeout", counted, "RFC 8200 section 4.5, RFC 1122 section 3.3.2";
    /// The packet is shorter than its ESP or AH fields.
    Truncated = "truncated", counted, "RFC 4303 section 2, RFC 4302 section 2";
    /// No inbound SA has this SPI, protocol and destination.
    NoSa = "no-sa", audited, "RFC 4303 section 3.4.2, RFC 4302 section 3.4.2";
    /// The packet came in UDP but the SA has no UDP encapsulation, or the packet came without UDP but the SA
    /// has it.
    EncapsulationMismatch = "encapsulation-mismatch", counted, "RFC 3948 section 3";
    /// The SA's hard lifetime has ended.
    SaExpired = "sa-expired", counted, "RFC 4301 section 4.4.2.1";
    /// The sequence number was already received, or is older than the window.
    Replay = "replay", audited, "RFC 4303 section 3.4.3, RFC 4302 section 3.4.3";
    /// The integrity check value is wrong.
    IcvMismatch = "icv-mismatch", audited, "RFC 4303 section 3.4.4, RFC 4302 section 3.4.4";
    /// The AH length field does not fit the SA's algorithm.
    AhLength = "ah-length", counted, "RFC 4302 section 2.2";
    /// The headers that AH covers are longer than this implementation supports.
    AhHeadersTooLong = "ah-headers-too-long", counted, "RFC 4302 section 3.3.3";
    /// The padding is longer than the payload, or its bytes are not 1, 2, 3 and so on.
    BadPadding = "bad-padding", counted, "RFC 4303 section 2.4";
    /// The SA's mode cannot carry the protected payload.
    BadNextHeader = "bad-next-header", counted, "RFC 4303 section 3.4.4";
    /// The inner packet does not parse.
    InnerMalformed = "inner-malformed", counted, "RFC 4301 section 5.2";
    /// The compressed header of the packet could not be restored: too many packets before it were lost, or
    /// its CRC is wrong.
    RohcFailed = "rohc-failed", counted, "RFC 5795 section 5.3.2";
    /// The restored packet does not match its ROHC ICV.
    RohcIcvMismatch = "rohc-icv-mismatch", counted, "RFC 5858 section 4.2.1";
    /// The outer header has a congestion mark, but the inner transport does not support ECN.
    EcnInvalid = "ecn-invalid", audited, "RFC 6040 section 4.2";
    /// More nested ESP and AH headers than a policy can have, or a packet that would enter its own tunnel.
    NestedTooDeep = "nested-too-deep", counted, "RFC 4301 section 5.2";
    /// The opened packet does not match the selector of its SA.
    SelectorMismatch = "selector-mismatch", audited, "RFC 4301 section 5.2";
    /// The packet did not come through the SAs that its policy demands, nor through those of another policy
    /// with the same selector and priority.
    PolicyMismatch = "policy-mismatch", audited, "RFC 4301 section 5.2";
    /// Clear text that policy requires to be protected.
    Unprotected = "unprotected", audited, "RFC 4301 section 5.2";
    /// The policy says DISCARD.
    PolicyDiscard = "policy-discard", audited, "RFC 4301 section 5.1";
    /// No policy matches the packet, and the default is to discard. Or the packet is an ICMP error that
    /// quotes a packet whose replies are protected.
    NoPolicy = "no-policy", audited, "RFC 4301 sections 4.4.1 and 6";
    /// The policy demands an SA that does not exist.
    NoOutboundSa = "no-outbound-sa", counted, "RFC 4301 section 5.1";
    /// The sequence numbers of the SA are used up.
    SequenceExhausted = "sequence-exhausted", audited, "RFC 4303 section 3.3.3, RFC 4302 section 3.3.2";
    /// The next counter block has not been stored yet, so sealing could repeat an IV after a restart, or a
    /// received packet could be accepted again.
    CounterNotReserved = "counter-not-reserved", counted, "RFC 4106 section 2";
    /// The protected packet does not fit the path, and the packet forbids fragmentation.
    TooBig = "too-big", counted, "RFC 4301 section 8";
    /// The protected packet would be longer than an IP packet can be, or its padding longer than 255 bytes.
    TooLong = "too-long", counted, "RFC 791 section 3.1, RFC 8200 section 3";
    /// The caller's buffer has too little room around the packet.
    NoRoom = "no-room", counted, "none: a limit of the caller";
    /// The operating system did not take the packet.
    SendFailed = "send-failed", counted, "none: an error of the operating system";
    /// The link towards the peer accepts no more packets at the moment.
    LinkFull = "link-full", counted, "none: a limit of the link";
    /// The provider rejected the packet, or the caller skipped one of the three steps of a batch.
    CryptoFailed = "crypto-failed", counted, "none: an error of the provider or the caller";
    /// The flow of the packet already used its share of the queue before the crypto engine.
    QueueFull = "queue-full", counted, "none: a bound of the scheduler";
    /// The packet waited too long before the crypto engine, in a queue that did not get shorter.
    QueueLate = "queue-late", counted, "RFC 8289 section 5";
    /// The packet is longer than the queue before the crypto engine.
    QueueTooLong = "queue-too-long", counted, "none: a bound of the scheduler";
    /// Too many IKE messages that arrived among ESP packets wait for IKE.
    IkeQueueFull = "ike-queue-full", counted, "none: a bound of the gateway";
}

impl DropReason {
    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const COUNTER_EXISTS: &str = "each drop reason has a counter";

/// One counter for each reason.
#[derive(Debug, Clone)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl DropCounters {
    pub(crate) const fn new() -> Self {
        Self([0; DropReason::ALL.len()])
    }

    pub(crate) fn count(&mut self, reason: DropReason) {
        if let Some(counter) = self.0.get_mut(reason as usize).or_report(COUNTER_EXISTS) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// Number of packets dropped for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).copied().or_broken(COUNTER_EXISTS, 0)
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for &reason in DropReason::ALL {
            assert_eq!(DropReason::from_name(reason.name()), Some(reason));
            assert!(reason.source().starts_with("RFC ") || reason.source().starts_with("none: "));
        }
    }
}
