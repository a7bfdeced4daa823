//! Outbound packets that are too long for their path: they are fragmented after protection, or rejected with
//! an ICMP error.
//!
//! The outbound path calls `check_exact_size` before it reserves a sequence number. Adapters call
//! [`Datapath::reject_too_big`] if their link is too narrow for a bypassed packet.

use crate::classify::SaChain;
use crate::icmp::{self, NoReply};
use crate::outbound::Origin;
use crate::sa::SaOut;
use crate::sealing::OutboundPacket;
use crate::tunnel::InnerHeader;
use crate::{Datapath, DropReason, Outbound, SaId, pmtu, transport};
use casemate_sa::{Instant, Mode};
use casemate_wire::packet::Packet;

/// See [`Datapath::safe_len`].
#[derive(Clone, Copy)]
pub(crate) struct SafeLen {
    pub(crate) chain: SaChain,
    pub(crate) len: usize,
}

impl Datapath {
    /// The longest packet that fits `mtu` bytes once this outbound SA has protected it; `None` if the SA does
    /// not exist.
    pub fn inner_mtu(&mut self, id: SaId, mtu: usize) -> Option<usize> {
        let sa = self.sad.outbound_by_id(id)?;
        Some(pmtu::inner_mtu(mtu, |len| sa.encapsulation.overhead.sealed_len(len)))
    }

    /// Length up to which packets fit the path of these SAs without a look at their headers.
    #[inline(never)]
    pub(crate) fn safe_len(&self, now: Instant, chain: SaChain) -> SafeLen {
        let growth = |slot| self.sad.outbound_ref(slot).map(|sa| sa.encapsulation.overhead.max_growth());
        let growth = growth(chain.inner).zip(chain.outer.map_or(Some(0), growth));
        let len = growth
            .zip(self.path_mtu_of(now, chain))
            .map_or(0, |((inner, outer), mtu)| mtu.saturating_sub(inner).saturating_sub(outer));
        SafeLen { chain, len }
    }

    /// The path MTU of the last of these SAs; `None` if it does not exist.
    pub(crate) fn path_mtu_of(&self, now: Instant, chain: SaChain) -> Option<usize> {
        let last = self.sad.outbound_ref(chain.outer.unwrap_or(chain.inner))?;
        // An IP packet is never longer, whatever the path MTU.
        Some(last.path_mtu.current(now, self.link_mtu).min(usize::from(u16::MAX)))
    }

    /// Checks whether a packet that is longer than the [`SafeLen`] of its SAs fits its path once it is
    /// protected. If not, the packet is marked for fragmentation after protection, or rejected (RFC 4301
    /// section 8.2).
    #[cold]
    pub(crate) fn check_exact_size(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        chain: SaChain,
        origin: Origin,
        record: &mut OutboundPacket,
    ) {
        let header = record.header;
        let Some((inner, mtu)) = self.sad.outbound_ref(chain.inner).zip(self.path_mtu_of(now, chain)) else {
            return record.set_drop(DropReason::NoOutboundSa);
        };
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
