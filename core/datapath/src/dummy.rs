//! Dummy packets of traffic-flow confidentiality (RFC 4303 sections 2.6 and 2.7): on the wire they are like
//! the other packets of their SA.
//!
//! What an observer sees of a packet is its length and its outer header. In an SA that carries dummy packets,
//! the fields of that header that follow the packet inside (DF, DSCP, ECN; in transport mode TTL, flow label
//! and identification, too) have one value for all packets, which comes from the SA alone. A dummy that copied
//! them from real packets would come too late: the first packet with another value is real. Limits: packets
//! that are cut show it, and IPv4 options and IPv6 extension headers in transport mode are not imitated.

use crate::classify::Chain;
use crate::datapath::Datapath;
use crate::framing::Framing;
use crate::outbound::Content;
use crate::sa_out::SaOut;
use crate::sealing::Step;
use crate::seq::Reserved;
use crate::spd::{Action, Bundle, Policy};
use crate::tunnel::{Fields, Inner};
use crate::{DropReason, Outbound, SaId, pmtu};
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode, Protocol};
use casemate_wire::ip::v4::{self, Ipv4};
use casemate_wire::ip::v6::{self, Ipv6};
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::Packet;
use core::slice;

/// The shortest header above IP that is common: UDP's and ICMP's.
const SHORTEST_PAYLOAD: usize = 8;

/// What shows of the IP headers of all packets of an SA that carries dummy packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    inner: Inner,
    /// In transport mode.
    ttl: u8,
}

impl Look {
    fn of(sa: &SaOut, version: IpVersion) -> Self {
        let outer = &sa.framing.outer;
        // An SA for some classes of service shows the first of them; otherwise the class stays hidden.
        let dscp = sa.dscp.iter().next().map_or(0, |dscp| dscp.value());
        let inner = Inner { version, tos: dscp << 2, df: true };
        Self { inner: Inner { tos: outer.tos(&inner), ..inner }, ttl: outer.choice().ttl }
    }

    /// Gives a real packet, which is about to be protected with this number, what all packets of its SA show.
    /// `header` is what an outer header is made from.
    #[cold]
    pub(crate) fn cover(&self, mode: Mode, packet: &mut Packet<'_>, header: &mut Inner, number: &Reserved) {
        *header = Inner { version: header.version, ..self.inner };
        if mode == Mode::Transport {
            self.cover_own_header(packet, number.low() as u16);
        }
    }

    /// `ident` is the identification that a dummy packet has. Nothing reads that of the source (RFC 6864 section
    /// 4.1), unless AH covers it.
    fn cover_own_header(&self, packet: &mut Packet<'_>, ident: u16) {
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

    /// The length of the shortest packet that is common.
    const fn shortest(&self) -> usize {
        let header = if self.inner.is_v4() { v4::HEADER_LEN } else { v6::HEADER_LEN };
        header.saturating_add(SHORTEST_PAYLOAD)
    }
}

impl Datapath {
    /// From now on an outbound ESP SA carries dummy packets, and all its packets show the same in their outer
    /// headers: call it before the SA carries the first packet, and after its policies were added. `false` if
    /// the SA is gone, or is one of AH.
    pub fn carry_dummies(&mut self, id: SaId) -> bool {
        let Some(sa) = self.sad.outbound_by_id(id).filter(|sa| sa.protocol == Protocol::Esp) else {
            return false;
        };
        let serves = |bundle: &Bundle| bundle.templates().last().is_some_and(|last| sa.is_wanted_by(last));
        let carries_v4 = |policy: &Policy| {
            matches!(&policy.action, Action::Protect(bundle) if serves(bundle))
                && policy.selector.src.is_ipv4()
        };
        let is_v4 = match sa.mode {
            Mode::Transport => sa.framing.outer.is_v4(),
            Mode::Tunnel => self.spd_out.iter().any(|(_, policy)| carries_v4(policy)),
        };
        sa.look = Some(Look::of(sa, if is_v4 { IpVersion::V4 } else { IpVersion::V6 }));
        true
    }

    /// Turns `packet` into a dummy packet of an outbound ESP SA, to hide when and how much real traffic flows
    /// (RFC 4303 section 2.6). Its length says how long the packet is that it stands for, IP header included;
    /// where no packet of the SA has such a length, another one is taken.
    ///
    /// Send it like any other. A dummy uses up a sequence number and counts towards the SA's lifetime. An SA of
    /// which [`carry_dummies`](Self::carry_dummies) was not told carries dummies from the first one on.
    pub fn dummy(&mut self, id: SaId, now: Instant, rng: &mut dyn Rng, packet: &mut Packet<'_>) -> Outbound {
        let mut step = Step { chain: Some(Chain { inner: id.slot(), outer: None }), ..Step::NEW };
        let mut verdict = step.verdict();
        let look = self.look_of(id);
        if let Ok(look) = look {
            self.prepare_dummy(id, look, now, packet);
        }
        let (packets, steps) = (slice::from_mut(packet), slice::from_mut(&mut step));
        match look {
            Err(reason) => steps.iter_mut().for_each(|step| step.stop(reason)),
            Ok(look) => {
                if let Some(sealer) =
                    self.frame_run(now, rng, id.slot(), packets, steps, Content::Dummies(&look))
                {
                    sealer.seal(packets, steps);
                }
            }
        }
        self.conclude(now, packets, steps, slice::from_mut(&mut verdict));
        verdict
    }

    fn look_of(&mut self, id: SaId) -> Result<Look, DropReason> {
        let sa = self.sad.outbound_by_id(id).ok_or(DropReason::NoOutboundSa)?;
        if let Some(look) = sa.look {
            return Ok(look);
        }
        self.carry_dummies(id);
        let look = self.sad.outbound_by_id(id).and_then(|sa| sa.look);
        look.ok_or(DropReason::BadNextHeader)
    }

    /// Makes the packet as long as one of this SA can be, and empty.
    fn prepare_dummy(&mut self, id: SaId, look: Look, now: Instant, packet: &mut Packet<'_>) {
        let link_mtu = self.link_mtu;
        let Some(sa) = self.sad.outbound_by_id(id) else { return };
        let mtu = sa.path_mtu.current(now, link_mtu).min(usize::from(u16::MAX));
        let longest = pmtu::inner_mtu(mtu, |len| sa.framing.growth.sealed_len(len));
        let len = packet.len().max(look.shortest()).min(longest);
        // A buffer without room for that is refused when the packet is framed.
        let _ = packet.set_len(len);
        // What the buffer held before is nobody's business, the receiver's included.
        packet.data_mut().fill(0);
    }
}

impl Framing {
    /// Puts the outer header of a dummy packet in front of it.
    pub(crate) fn push_dummy_header(
        &self,
        mode: Mode,
        packet: &mut Packet<'_>,
        protocol: u8,
        look: &Look,
        ident: u16,
    ) -> Result<(), DropReason> {
        match mode {
            Mode::Tunnel => self.outer.push(packet, protocol, &look.inner, false, ident),
            Mode::Transport => {
                let Look { inner: Inner { tos, df, .. }, ttl } = *look;
                self.outer.push_fields(packet, protocol, Fields { tos, df, ttl, flow_label: 0 }, ident)
            }
        }
    }
}
