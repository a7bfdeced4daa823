//! Outbound packets that are too long for their path: they are fragmented after protection, or rejected with
//! an ICMP error.
//!
//! The outbound path calls `check_size` before it reserves a sequence number. Adapters call
//! [`Datapath::reject_too_big`] if their link is too narrow for a bypassed packet.

use crate::classify::SaChain;
use crate::icmp::{self, NoReply};
use crate::outbound::Origin;
use crate::sa::SaOut;
use crate::sealing::OutboundPacket;
use crate::tunnel::InnerHeader;
use crate::{Datapath, DropReason, Outbound, SaId, pmtu, transport};
use casemate_sa::{Instant, Mode};
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;

impl Datapath {
    /// The longest packet that fits `mtu` bytes once this outbound SA has protected it; `None` if the SA does
    /// not exist.
    pub fn inner_mtu(&mut self, id: SaId, mtu: usize) -> Option<usize> {
        let sa = self.sad.outbound_by_id(id)?;
        Some(pmtu::inner_mtu(mtu, |len| sa.encapsulation.overhead.sealed_len(len)))
    }

    /// Checks whether the packet fits its path once it is protected. If not, the packet is marked for
    /// fragmentation after protection, or rejected (RFC 4301 section 8.2).
    #[inline]
    pub(crate) fn check_size(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        chain: SaChain,
        origin: Origin,
        record: &mut OutboundPacket,
    ) {
        let Some(inner) = self.sad.outbound_ref(chain.inner) else {
            return record.set_drop(DropReason::NoOutboundSa);
        };
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let mtu = outer.unwrap_or(inner).path_mtu.current(now, self.link_mtu);
        // An IP packet is never longer, whatever the path MTU.
        let mtu = mtu.min(usize::from(u16::MAX));
        let mut at_most = inner.encapsulation.overhead.sealed_len_at_most(packet.len());
        if let Some(outer) = outer {
            at_most = outer.encapsulation.overhead.sealed_len_at_most(at_most);
        }
        if at_most > mtu {
            self.check_exact_size(now, mtu, packet, origin, record);
        }
    }

    /// Repeats the check with the exact length for a packet that may be too long.
    #[cold]
    fn check_exact_size(
        &mut self,
        now: Instant,
        mtu: usize,
        packet: &mut Packet<'_>,
        origin: Origin,
        record: &mut OutboundPacket,
    ) {
        let header = record.header;
        let Some(chain) = record.chain.or_report("a packet to protect has its SAs") else { return };
        let inner = self.sad.outbound_ref(chain.inner).or_report("the SAs of a packet exist");
        let Some(inner) = inner else { return };
        let outer = chain.outer.and_then(|slot| self.sad.outbound_ref(slot));
        let sealed_len = sealed_len(packet.data(), inner, outer);
        if sealed_len(packet.len()) <= mtu {
            return;
        }
        let inner_mtu = pmtu::inner_mtu(mtu, sealed_len);
        if origin == Origin::Reassembled || may_fragment(header, inner, inner_mtu) {
            record.fragment_to = u16::try_from(mtu).ok();
            return;
        }
        let reason = DropReason::TooBig;
        self.reject(now, packet, reason, record, |packet| icmp::too_big(packet, inner_mtu, None));
    }

    /// Drops a bypassed packet that is longer than the `mtu` of its link and that only its source may
    /// fragment (RFC 1191 section 4, RFC 8201). The verdict is `Reply` or `Drop`.
    pub fn reject_too_big(&mut self, now: Instant, packet: &mut Packet<'_>, mtu: usize) -> Outbound {
        let mut record = OutboundPacket::NEW;
        self.reject(now, packet, DropReason::TooBig, &mut record, |packet| icmp::too_big(packet, mtu, None));
        record.verdict()
    }

    /// Drops a packet. If the rate limit allows, `reply` turns the packet into the ICMP error for its source.
    #[cold]
    pub(crate) fn reject(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        reason: DropReason,
        record: &mut OutboundPacket,
        reply: impl FnOnce(&mut Packet<'_>) -> Result<(), NoReply>,
    ) {
        record.set_drop(reason);
        // Count the drop now, because the reply overwrites the packet.
        self.count_drop(now, reason, packet.data(), None);
        record.counted = true;
        if self.icmp_limit.allow(now) && reply(packet).is_ok() {
            record.verdict = Outbound::Reply(reason);
        }
    }
}

/// Returns a function from the length of a packet to its length under one or two SAs. The headers are those
/// of `packet`.
#[cold]
pub(crate) fn sealed_len<'s>(
    packet: &[u8],
    inner: &'s SaOut,
    outer: Option<&'s SaOut>,
) -> impl Fn(usize) -> usize + 's {
    let headers = match inner.mode {
        Mode::Transport => transport::insert_point(packet).ok().map(|point| point.headers),
        Mode::Tunnel => None,
    };
    let under = move |sa: &SaOut, len| match headers {
        Some(headers) => sa.encapsulation.overhead.sealed_len_behind(len, headers),
        None => sa.encapsulation.overhead.sealed_len(len),
    };
    move |len| {
        let len = under(inner, len);
        outer.map_or(len, |outer| under(outer, len))
    }
}

/// Whether a packet that will exceed the path may be fragmented after protection. If not, its source gets an
/// ICMP error.
fn may_fragment(header: InnerHeader, sa: &SaOut, inner_mtu: usize) -> bool {
    let is_allowed = match sa.mode {
        Mode::Transport => !header.df,
        Mode::Tunnel => !sa.encapsulation.outer.df(&header),
    };
    // RFC 2473 section 7.1: an IPv6 source cannot be asked for less than 1,280 bytes, so the tunnel
    // fragments.
    is_allowed || (!header.is_v4() && inner_mtu < pmtu::V6_MIN_MTU)
}
