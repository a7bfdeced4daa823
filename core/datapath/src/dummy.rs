//! Dummy packets of traffic-flow confidentiality (RFC 4303 sections 2.6 and 2.7): on the wire they are like
//! the other packets of their SA.
//!
//! What an observer sees of a packet is its length and its outer header. Where the outer header follows the
//! packet inside (DF, DSCP, ECN; in transport mode TTL and flow label, too), a dummy takes these fields from
//! one of the last real packets of its SA, drawn by lot. Limit: [`RECENT`] packets. IPv4 options and IPv6
//! extension headers of real packets in transport mode are not imitated.

use crate::classify::Chain;
use crate::datapath::Datapath;
use crate::framing::Framing;
use crate::outbound::Content;
use crate::sa_out::SaOut;
use crate::sealing::Step;
use crate::seq::Reserved;
use crate::tunnel::{Fields, Inner};
use crate::{DropReason, Outbound, SaId, pmtu};
use casemate_crypto::Rng;
use casemate_sa::{Instant, Mode, Protocol};
use casemate_wire::ip::v4::{self, Ipv4};
use casemate_wire::ip::v6::{self, Ipv6};
use casemate_wire::ip::{IpVersion, version};
use casemate_wire::packet::Packet;
use core::slice;

/// How many real packets are remembered.
const RECENT: usize = 8;
/// The shortest header above IP that is common: UDP's and ICMP's.
const SHORTEST_PAYLOAD: usize = 8;
/// What the TTL of a packet is while none was seen.
const USUAL_TTL: u8 = 64;

/// The headers of the last real packets of an SA that carries dummy packets.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    looks: [Option<Look>; RECENT],
    /// Where the next one goes.
    next: usize,
}

/// What shows of a packet's IP header on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    inner: Inner,
    ttl: u8,
    flow_label: u32,
}

impl Recent {
    /// Remembers a real packet, which is about to be protected with this number. One of transport mode over
    /// IPv4 gets an identification by the number, as a dummy packet has it.
    #[cold]
    pub(crate) fn note_sent(&mut self, mode: Mode, packet: &mut Packet<'_>, number: &Reserved) {
        self.note(packet.data());
        if mode == Mode::Transport {
            set_ident(packet, number.low() as u16);
        }
    }

    fn note(&mut self, packet: &[u8]) {
        let Some(look) = Look::of(packet) else { return };
        if let Some(place) = self.looks.get_mut(self.next) {
            *place = Some(look);
        }
        self.next = self.next.wrapping_add(1) % RECENT;
    }

    /// One of those that are remembered.
    fn draw(&self, rng: &mut dyn Rng) -> Option<Look> {
        let count = self.looks.iter().flatten().count();
        let mut byte = [0];
        rng.secret(&mut byte);
        let at = usize::from(byte[0]).checked_rem(count)?;
        self.looks.iter().flatten().nth(at).copied()
    }
}

impl Look {
    fn of(packet: &[u8]) -> Option<Self> {
        let inner = Inner::of(packet).ok()?;
        let (ttl, flow_label) = match version(packet).ok()? {
            IpVersion::V4 => (Ipv4::parse(packet).ok()?.ttl(), 0),
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                (ip.hop_limit(), ip.flow_label())
            }
        };
        Some(Self { inner, ttl, flow_label })
    }

    /// Of an SA that has carried nothing yet: what most hosts send first.
    fn usual(is_v4: bool, rng: &mut dyn Rng) -> Self {
        let mut label = [0; 4];
        rng.public(&mut label);
        let version = if is_v4 { IpVersion::V4 } else { IpVersion::V6 };
        let inner = Inner { version, tos: 0, df: true };
        Self { inner, ttl: USUAL_TTL, flow_label: u32::from_be_bytes(label) & 0xf_ffff }
    }

    /// The length of the shortest packet that is common.
    const fn shortest(&self) -> usize {
        let header = if self.inner.is_v4() { v4::HEADER_LEN } else { v6::HEADER_LEN };
        header.saturating_add(SHORTEST_PAYLOAD)
    }
}

impl Datapath {
    /// Turns `packet` into a dummy packet of an outbound ESP SA, to hide when and how much real traffic flows
    /// (RFC 4303 section 2.6). Its length says how long the packet is that it stands for, IP header included;
    /// where no packet of the SA has such a length, another one is taken.
    ///
    /// Send it like any other. A dummy uses up a sequence number and counts towards the SA's lifetime. From
    /// the first one on, packets in transport mode over IPv4 have identifications by their sequence numbers,
    /// as dummies have.
    pub fn dummy(&mut self, id: SaId, now: Instant, rng: &mut dyn Rng, packet: &mut Packet<'_>) -> Outbound {
        let mut step = Step { chain: Some(Chain { inner: id.slot(), outer: None }), ..Step::NEW };
        let mut verdict = step.verdict();
        let link_mtu = self.link_mtu;
        let look = match self.sad.outbound_by_id(id) {
            None => Err(DropReason::NoOutboundSa),
            Some(sa) if sa.protocol != Protocol::Esp => Err(DropReason::BadNextHeader),
            Some(sa) => Ok(sa.prepare_dummy(now, link_mtu, rng, packet)),
        };
        let (packets, steps) = (slice::from_mut(packet), slice::from_mut(&mut step));
        match look {
            Err(reason) => steps.iter_mut().for_each(|step| step.stop(reason)),
            Ok(look) => {
                if let Some(sealer) =
                    self.frame_run(now, rng, id.slot(), packets, steps, Content::Dummies(look))
                {
                    sealer.seal(packets, steps);
                }
            }
        }
        self.conclude(now, packets, steps, slice::from_mut(&mut verdict));
        verdict
    }
}

impl SaOut {
    /// Makes the packet as long as one of this SA can be, and empty; returns what the dummy looks like.
    fn prepare_dummy(
        &mut self,
        now: Instant,
        link_mtu: usize,
        rng: &mut dyn Rng,
        packet: &mut Packet<'_>,
    ) -> Look {
        let recent = self.recent.get_or_insert_default();
        let is_v4 = self.framing.outer.is_v4();
        let look = recent.draw(rng).unwrap_or_else(|| Look::usual(is_v4, rng));
        let mtu = self.path_mtu.current(now, link_mtu).min(usize::from(u16::MAX));
        let longest = pmtu::inner_mtu(mtu, |len| self.framing.growth.sealed_len(len));
        let len = packet.len().max(look.shortest()).min(longest);
        // A buffer without room for that is refused when the packet is framed.
        let _ = packet.set_len(len);
        // What the buffer held before is nobody's business, the receiver's included.
        packet.data_mut().fill(0);
        look
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
                let Look { inner: Inner { tos, df, .. }, ttl, flow_label } = *look;
                self.outer.push_fields(packet, protocol, Fields { tos, df, ttl, flow_label }, ident)
            }
        }
    }
}

/// Gives a packet that is about to be protected in transport mode this identification, as a dummy packet has
/// it. Nothing reads the one of the source (RFC 6864 section 4.1), and no fragment is protected in transport
/// mode.
fn set_ident(packet: &mut Packet<'_>, ident: u16) {
    if let Ok(mut ip) = Ipv4::parse_quoted(packet.data_mut()) {
        ip.set_ident(ident.max(1));
    }
}
