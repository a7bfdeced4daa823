//! Dummy packets for traffic-flow confidentiality (RFC 4303 sections 2.6 and 2.7). On the wire they look like
//! the other packets of their SA.
//!
//! An observer sees the length and the outer header of a packet. In an SA with dummy packets, the fields of
//! that header that usually depend on the inner packet (DF, DSCP, ECN; in transport mode also TTL, flow label
//! and identification) have one value for all packets, which depends on the SA only. Copying these fields
//! from real packets would not help: the first packet with a new value would be recognized as real. Limits:
//! fragmented packets can be recognized, and dummy packets in transport mode have no IPv4 options or IPv6
//! extension headers.

use crate::classify::SaChain;
use crate::datapath::Datapath;
use crate::encapsulation::Encapsulation;
use crate::framing::Content;
use crate::sa::SaOut;
use crate::sealing::OutboundPacket;
use crate::seq::Reserved;
use crate::spd::{Action, Bundle, Policy};
use crate::tunnel::{HeaderFields, InnerHeader};
use crate::{DropReason, Outbound, SaId, pmtu};
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode, Protocol};
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::v4::{self, Ipv4};
use casemate_wire::ip::v6::{self, Ipv6};
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::Packet;
use core::slice;

/// Length in bytes of the shortest common header after IP: that of UDP and ICMP.
const SHORTEST_PAYLOAD: usize = 8;

/// The visible IP header fields of all packets of an SA with dummy packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UniformHeader {
    inner: InnerHeader,
    /// Used in transport mode.
    ttl: u8,
}

impl UniformHeader {
    fn of(sa: &SaOut, version: IpVersion) -> Self {
        let outer = &sa.encapsulation.outer;
        // An SA for some classes of service shows the first of them. Otherwise the class stays hidden.
        let dscp = sa.dscp.iter().next().map_or(0, |dscp| dscp.value());
        let inner = InnerHeader { version, tos: dscp << 2, df: true, is_compressed: false };
        Self { inner: InnerHeader { tos: outer.tos(&inner), ..inner }, ttl: outer.choice().ttl }
    }

    /// Applies the visible fields to a real packet that is about to be protected with this sequence number.
    /// `header` is the input of the outer header.
    #[cold]
    pub(crate) fn apply(
        &self,
        mode: Mode,
        packet: &mut Packet<'_>,
        header: &mut InnerHeader,
        number: &Reserved,
    ) {
        *header = InnerHeader { version: header.version, ..self.inner };
        if mode == Mode::Transport {
            self.apply_to_own_header(packet, number.low() as u16);
        }
    }

    /// `ident` is the identification that a dummy packet would have. The source's own value is not needed
    /// (RFC 6864 section 4.1), unless AH covers it.
    fn apply_to_own_header(&self, packet: &mut Packet<'_>, ident: u16) {
        match version(packet.data()) {
            Ok(IpVersion::V4) => {
                if let Ok(mut ip) = Ipv4::parse_quoted(packet.data_mut()) {
                    ip.set_tos(self.inner.tos);
                    ip.set_df(self.inner.df);
                    ip.set_ttl(self.ttl);
                    if ip.protocol() != proto::AH {
                        ip.set_ident(ident.max(1));
                    }
                }
            }
            Ok(IpVersion::V6) => {
                if let Ok(mut ip) = Ipv6::parse_quoted(packet.data_mut()) {
                    ip.set_traffic_class(self.inner.tos);
                    ip.set_hop_limit(self.ttl);
                    ip.set_flow_label(0);
                }
            }
            Err(_) => {}
        }
    }

    /// Length in bytes of the shortest common packet.
    const fn shortest(&self) -> usize {
        let header = if self.inner.is_v4() { v4::HEADER_LEN } else { v6::HEADER_LEN };
        header.saturating_add(SHORTEST_PAYLOAD)
    }
}

impl Datapath {
    /// Enables dummy packets for an outbound ESP SA: all its packets get the same visible outer header
    /// fields. Call it before the first packet of the SA and after its policies are added. Returns `false` if
    /// the SA does not exist, is an AH SA or compresses headers, which shows in the lengths of its packets.
    pub fn enable_dummies(&mut self, id: SaId) -> bool {
        let can_hide = |sa: &&mut SaOut| sa.protocol == Protocol::Esp && sa.rohc.is_none();
        let Some(sa) = self.sad.outbound_by_id(id).filter(can_hide) else { return false };
        let has_last_sa =
            |bundle: &Bundle| bundle.templates().last().is_some_and(|last| sa.matches_template(last));
        let carries_v4 = |policy: &Policy| {
            matches!(&policy.action, Action::Protect(bundle) if has_last_sa(bundle))
                && policy.selector.src.is_ipv4()
        };
        let is_v4 = match sa.mode {
            Mode::Transport => sa.encapsulation.outer.is_v4(),
            Mode::Tunnel => self.spd_out.iter().any(|(_, policy)| carries_v4(policy)),
        };
        sa.uniform_header = Some(UniformHeader::of(sa, if is_v4 { IpVersion::V4 } else { IpVersion::V6 }));
        true
    }

    /// Turns `packet` into a dummy packet of an outbound ESP SA, to hide when and how much real traffic flows
    /// (RFC 4303 section 2.6). The length of `packet` is the length of the packet to imitate, IP header
    /// included. If no packet of the SA can have this length, another length is used.
    ///
    /// Send the result like any other packet. A dummy packet uses a sequence number and counts towards the
    /// lifetime of the SA. The first dummy packet enables dummy packets for its SA if
    /// [`enable_dummies`](Self::enable_dummies) was not called.
    pub fn outbound_dummy(
        &mut self,
        id: SaId,
        now: Instant,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Outbound {
        let mut record =
            OutboundPacket { chain: Some(SaChain { inner: id.slot(), outer: None }), ..OutboundPacket::NEW };
        let mut verdict = record.verdict();
        let uniform_header = self.uniform_header_of(id);
        if let Ok(uniform_header) = uniform_header {
            self.prepare_dummy(id, uniform_header, now, packet);
        }
        let (packets, records) = (slice::from_mut(packet), slice::from_mut(&mut record));
        match uniform_header {
            Err(reason) => records.iter_mut().for_each(|record| record.set_drop(reason)),
            Ok(uniform_header) => {
                if let Some(sealer) =
                    self.frame_run(now, rng, id.slot(), packets, records, Content::Dummies(&uniform_header))
                {
                    sealer.seal(packets, records);
                }
            }
        }
        self.write_verdicts(now, packets, records, slice::from_mut(&mut verdict));
        verdict
    }

    fn uniform_header_of(&mut self, id: SaId) -> Result<UniformHeader, DropReason> {
        let sa = self.sad.outbound_by_id(id).ok_or(DropReason::NoOutboundSa)?;
        if let Some(uniform_header) = sa.uniform_header {
            return Ok(uniform_header);
        }
        self.enable_dummies(id);
        let uniform_header = self.sad.outbound_by_id(id).and_then(|sa| sa.uniform_header);
        uniform_header.ok_or(DropReason::BadNextHeader)
    }

    /// Gives the packet a length that packets of this SA can have, and clears it.
    fn prepare_dummy(
        &mut self,
        id: SaId,
        uniform_header: UniformHeader,
        now: Instant,
        packet: &mut Packet<'_>,
    ) {
        let link_mtu = self.link_mtu;
        let sa = self.sad.outbound_by_id(id).or_report("the SA of a dummy packet exists");
        let Some(sa) = sa else { return };
        let mtu = sa.path_mtu.current(now, link_mtu).min(usize::from(u16::MAX));
        let longest = pmtu::inner_mtu(mtu, |len| sa.encapsulation.overhead.sealed_len(len));
        let len = packet.len().max(uniform_header.shortest()).min(longest);
        // If the buffer has no room, framing rejects the packet.
        let _ = packet.set_len(len);
        // Former contents of the buffer must not leak, not even to the receiver.
        packet.data_mut().fill(0);
    }
}

impl Encapsulation {
    /// Fields of the outer header of a dummy packet.
    pub(crate) fn dummy_header_fields(&self, mode: Mode, uniform_header: &UniformHeader) -> HeaderFields {
        match mode {
            Mode::Tunnel => self.outer.fields(&uniform_header.inner, false),
            Mode::Transport => {
                let UniformHeader { inner: InnerHeader { tos, df, .. }, ttl } = *uniform_header;
                HeaderFields { tos, df, ttl, flow_label: 0 }
            }
        }
    }
}
