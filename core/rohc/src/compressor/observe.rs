//! What the headers of a flow show about the application and the host that send it.

use crate::headers::{Ip, Rtp, Transport};
use crate::state::IpIdBehavior;

/// Packets that must look like RTP before a flow counts as RTP.
const RTP_PACKETS: u8 = 2;
/// Most sequence numbers between two packets of RTP.
const MAX_RTP_STEP: u16 = 16;
/// Most Identifications between two packets of a flow whose host counts them.
const MAX_IDENT_STEP: u16 = 32;
/// Numbers that the Identification may skip before the flow counts as random, beyond one for each packet. A
/// jump counts as [`JUMP`].
const MAX_SKIPPED: u16 = 64;
const JUMP: u16 = 16;
/// Steps in a row after which a flow gets another behaviour than the one before.
const MIN_STEPS: u8 = 4;
/// Steps of exactly one in a row after which a random flow counts as sequential again.
const MIN_RANDOM_STEPS: u8 = 16;

/// Whether a UDP datagram may be RTP: version 2, neither RTCP (RFC 5761 section 4) nor sent to a well-known
/// port.
pub(super) fn may_be_rtp(transport: &Transport, payload: &[u8]) -> bool {
    let (Transport::Udp(udp), [flags, marker_type, ..]) = (transport, payload) else { return false };
    let is_rtcp = (64..96).contains(&(marker_type & 0x7f));
    flags >> 6 == 2 && !is_rtcp && udp.dst_port >= 1_024 && udp.src_port >= 1_024
}

/// Tells RTP from other payloads of UDP: the SSRC stays, and the sequence number grows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RtpObserver {
    ssrc: u32,
    sequence: u16,
    matches: u8,
}

impl RtpObserver {
    /// Notes a packet. Returns whether the flow counts as RTP.
    pub(super) fn note(&mut self, rtp: &Rtp) -> bool {
        let step = rtp.sequence.wrapping_sub(self.sequence);
        let fits = rtp.ssrc == self.ssrc && (1..=MAX_RTP_STEP).contains(&step);
        self.matches = if fits { self.matches.saturating_add(1) } else { 0 };
        (self.ssrc, self.sequence) = (rtp.ssrc, rtp.sequence);
        self.matches >= RTP_PACKETS
    }
}

/// Learns how the Identification of a flow changes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdentObserver {
    last: u16,
    /// Numbers that were skipped, less one for each packet.
    skipped: u16,
    steps: u8,
}

impl IdentObserver {
    /// Behaviour of a flow from its first packet.
    pub(super) fn first(&mut self, ip: Option<&Ip>) -> IpIdBehavior {
        match ip {
            Some(Ip::V4(ip)) => {
                self.last = ip.ident;
                if ip.ident == 0 { IpIdBehavior::Zero } else { IpIdBehavior::Sequential }
            }
            _ => IpIdBehavior::Random,
        }
    }

    /// Behaviour after one more packet, given the behaviour before.
    pub(super) fn next(&mut self, ip: Option<&Ip>, behavior: IpIdBehavior) -> IpIdBehavior {
        let Some(Ip::V4(ip)) = ip else { return IpIdBehavior::Random };
        let (ident, last) = (ip.ident, core::mem::replace(&mut self.last, ip.ident));
        let is_random = behavior == IpIdBehavior::Random;
        let (most, min_steps) = match is_random {
            true => (1, MIN_RANDOM_STEPS),
            false => (MAX_IDENT_STEP, MIN_STEPS),
        };
        let skipped = |step: u16| (1..=most).contains(&step).then(|| step.saturating_sub(1));
        let plain = skipped(ident.wrapping_sub(last));
        let swapped = skipped(ident.swap_bytes().wrapping_sub(last.swap_bytes()));
        let fits = match behavior {
            IpIdBehavior::Zero => (ident == 0).then_some(0),
            IpIdBehavior::Sequential => plain,
            IpIdBehavior::Swapped => swapped,
            IpIdBehavior::Random => None,
        };
        self.skipped = self.skipped.saturating_add(fits.unwrap_or(JUMP)).saturating_sub(1);
        let is_regular = plain.is_some() || swapped.is_some() || (ident == 0 && last == 0);
        self.steps = if fits.is_none() && is_regular { self.steps.saturating_add(1) } else { 0 };
        let is_new = self.steps >= min_steps;
        match behavior {
            // Zero cannot represent another value.
            IpIdBehavior::Zero if fits.is_none() => self.start(IpIdBehavior::Sequential),
            _ if is_new && plain.is_some() => self.start(IpIdBehavior::Sequential),
            _ if is_new && swapped.is_some() => self.start(IpIdBehavior::Swapped),
            _ if is_new && ident == 0 => self.start(IpIdBehavior::Zero),
            _ if !is_random && self.skipped > MAX_SKIPPED => self.start(IpIdBehavior::Random),
            _ => behavior,
        }
    }

    const fn start(&mut self, behavior: IpIdBehavior) -> IpIdBehavior {
        (self.skipped, self.steps) = (0, 0);
        behavior
    }
}

/// Learns by how much the RTP timestamp grows with the sequence number.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StrideObserver {
    sequence: u16,
    timestamp: u32,
    candidate: u32,
}

impl StrideObserver {
    /// Notes a packet. Returns the stride once it was seen twice in a row.
    pub(super) fn note(&mut self, rtp: &Rtp) -> Option<u32> {
        let step = rtp.sequence.wrapping_sub(self.sequence);
        let growth = rtp.timestamp.wrapping_sub(self.timestamp);
        (self.sequence, self.timestamp) = (rtp.sequence, rtp.timestamp);
        // Reordered packets, and pauses, show nothing.
        if !(1..=MAX_RTP_STEP).contains(&step) || growth > u32::MAX / 2 {
            return None;
        }
        let stride =
            growth.checked_div(step.into()).filter(|stride| stride.wrapping_mul(step.into()) == growth)?;
        let was_seen = core::mem::replace(&mut self.candidate, stride) == stride;
        (was_seen && stride != 0).then_some(stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Ipv4;

    fn with_ident(ident: u16) -> Ip {
        let (src, dst) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        Ip::V4(Ipv4 { tos: 0, ident, dont_fragment: true, ttl: 64, protocol: 17, src, dst })
    }

    /// The behaviour after many packets whose Identifications are these steps apart, again and again.
    fn behavior_of(steps: &[u16]) -> IpIdBehavior {
        let (mut observer, mut ident) = (IdentObserver::default(), 7u16);
        let mut behavior = observer.first(Some(&with_ident(ident)));
        let mut random = 0;
        for step in steps.iter().cycle().take(2_000) {
            ident = ident.wrapping_add(*step);
            behavior = observer.next(Some(&with_ident(ident)), behavior);
            random += u32::from(behavior == IpIdBehavior::Random);
        }
        // The behaviour hardly ever changes, because each change is sent.
        assert!(!(100..=1_900).contains(&random), "{random} of 2,000 for {steps:?}");
        behavior
    }

    #[test]
    fn irregular_steps_count_as_random() {
        for sequential in [&[1][..], &[1, 1, 1, 1, 1, 1, 1, 8], &[2], &[1, 3]] {
            assert_eq!(behavior_of(sequential), IpIdBehavior::Sequential, "{sequential:?}");
        }
        for random in [&[3, 1, 6, 2, 9, 1, 1, 12][..], &[5, 1, 4], &[700, 9_000, 3]] {
            assert_eq!(behavior_of(random), IpIdBehavior::Random, "{random:?}");
        }
        assert_eq!(behavior_of(&[256]), IpIdBehavior::Swapped);
    }

    #[test]
    fn an_identification_that_is_not_zero_never_counts_as_zero() {
        for ident in 1..=u16::MAX {
            let mut observer = IdentObserver::default();
            let mut behavior = observer.first(Some(&with_ident(0)));
            assert_eq!(behavior, IpIdBehavior::Zero);
            for _ in 0..20 {
                behavior = observer.next(Some(&with_ident(ident)), behavior);
                assert_ne!(behavior, IpIdBehavior::Zero, "{ident:#x}");
            }
        }
    }
}
