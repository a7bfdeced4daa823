//! Sorting what arrives: which SA a packet belongs to, where its protection begins, or what else it is.

use crate::admission::Trail;
use crate::sad::{Arrival, Known, Sad};
use crate::transport::Front;
use crate::{Consumed, DropReason, Inbound};
use arrayvec::ArrayVec;
use casemate_sa::Protocol;
use casemate_wire::ah::AhHeader;
use casemate_wire::esp::EspHeader;
use casemate_wire::ip::v4::{self, Ipv4};
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::natt::{NON_ESP_MARKER, Natt};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, Udp};
use core::net::IpAddr;

/// UDP ports on which ESP may arrive.
pub(crate) type EncapPorts = ArrayVec<u16, 8>;

/// How far a packet has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is known of the packet as it stands.
    New,
    /// Protected, it says: the SA is to be looked up.
    Named,
    /// Protected by an inbound SA of ours.
    Protected,
    /// Not protected, or not by an SA of ours: for the policy check.
    Plain,
    /// Decided.
    Early(Early),
}

/// Whether ESP or AH may follow an IP header that names `protocol`: at once, or behind extension headers.
#[inline]
pub(crate) const fn may_hide_protection(protocol: u8) -> bool {
    use proto::{AH, DEST_OPTS, ESP, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(protocol, ESP | AH | HOP_BY_HOP | ROUTING | FRAGMENT | DEST_OPTS)
}

/// A verdict that needs no policy check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    Reassemble,
    Consumed(Consumed),
    Ike(u16),
    Drop(DropReason),
}

impl From<Early> for Inbound {
    fn from(early: Early) -> Self {
        match early {
            Early::Reassemble => Self::Reassemble,
            Early::Consumed(what) => Self::Consumed(what),
            Early::Ike(at) => Self::Ike(at),
            Early::Drop(reason) => Self::Drop(reason),
        }
    }
}

/// One packet of the batch on its way in. Small, and filled where it lies.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) stage: Stage,
    /// While it is [`Stage::Protected`]: the slot of its SA, and where its ESP or AH header stands.
    slot: u32,
    at: u16,
    /// The headers in front of the protection.
    pub(crate) front: Front,
    /// TOS or traffic class of the header in front.
    pub(crate) outer_tos: u8,
    /// ICMP in clear: it may tell about the path of an SA.
    pub(crate) is_path_news: bool,
    /// Whether the protection came inside UDP.
    in_udp: bool,
    /// The protection seen last.
    arrival: Arrival,
    /// Its sequence number: as in the header, and with the upper half once the replay check has found that.
    seq: u64,
    /// The SAs opened so far, outermost first.
    pub(crate) trail: Trail,
}

/// What the IP header says.
struct Outermost {
    front: Front,
    tos: u8,
    protocol: u8,
    dst: IpAddr,
    len: usize,
    is_fragment: bool,
}

impl Outermost {
    #[inline]
    fn of(packet: &[u8]) -> Option<Self> {
        match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                Some(Self {
                    front: Front {
                        version: IpVersion::V4,
                        headers: ip.header_len() as u8 as u16,
                        named_at: v4::PROTOCOL_AT as u16,
                    },
                    tos: ip.tos(),
                    protocol: ip.protocol(),
                    dst: ip.dst().into(),
                    len: ip.total_len().into(),
                    is_fragment: ip.is_fragment(),
                })
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let chain = ip.chain().ok()?;
                Some(Self {
                    front: Front {
                        version: IpVersion::V6,
                        headers: u16::try_from(chain.last.at).ok()?,
                        named_at: u16::try_from(chain.last.named_at).ok()?,
                    },
                    tos: ip.traffic_class(),
                    protocol: chain.last.next_header,
                    dst: ip.dst().into(),
                    len: ip.total_len(),
                    is_fragment: chain.fragment.is_some_and(|fragment| !fragment.is_atomic()),
                })
            }
        }
    }
}

impl Arriving {
    pub(crate) const NEW: Self = Self {
        stage: Stage::New,
        slot: 0,
        at: 0,
        front: Front { version: IpVersion::V4, headers: 0, named_at: 0 },
        outer_tos: 0,
        is_path_news: false,
        in_udp: false,
        arrival: Arrival::NONE,
        seq: 0,
        trail: Trail::EMPTY,
    };

    /// The SA that the packet waits to be opened with.
    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        matches!(self.stage, Stage::Protected).then_some(self.slot)
    }

    /// Where the ESP or AH header stands.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at.into()
    }

    /// The sequence number, with its upper half once the replay check let it pass.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Protocol, SPI and sequence number of the protection seen last.
    pub(crate) fn header(&self) -> Option<(Protocol, u32, u32)> {
        let (protocol, spi) = self.arrival.header()?;
        Some((protocol, spi, self.seq as u32))
    }

    #[inline]
    pub(crate) fn stop(&mut self, reason: DropReason) {
        self.stage = Stage::Early(Early::Drop(reason));
    }

    /// Why a packet is dropped whose headers do not parse.
    #[cold]
    pub(crate) fn malformed(&self) -> DropReason {
        if self.trail.is_empty() { DropReason::MalformedHeader } else { DropReason::InnerMalformed }
    }

    /// Takes the protection off with `expose`, unless the packet was stopped; notes the SA on the trail.
    #[inline]
    pub(crate) fn unwrap_with(&mut self, expose: impl FnOnce(&Self) -> Result<Stage, DropReason>) {
        let Some(slot) = self.slot() else { return };
        match expose(self) {
            Ok(_) if !self.trail.push(slot) => self.stop(DropReason::NestedTooDeep),
            Ok(stage) => self.stage = stage,
            Err(reason) => self.stop(reason),
        }
    }

    /// Looks at a packet that is [`Stage::New`] and sorts it.
    #[inline]
    pub(crate) fn look(&mut self, packet: &mut Packet<'_>, encap_ports: &EncapPorts) {
        if self.stage != Stage::New {
            return;
        }
        let Some(ip) = Outermost::of(packet.data()) else {
            return self.stop(self.malformed());
        };
        // Link padding, or inside a tunnel traffic-flow padding, may follow the IP packet.
        if packet.set_len(ip.len).is_err() {
            return self.stop(self.malformed());
        }
        (self.front, self.outer_tos) = (ip.front, ip.tos);
        self.stage = match ip.protocol {
            proto::ESP | proto::AH | proto::UDP if ip.is_fragment => self.fragment(),
            proto::ESP => self.esp(packet.data(), &ip, ip.front.headers.into(), false),
            proto::AH => self.ah(packet.data(), &ip),
            proto::UDP if !encap_ports.is_empty() && self.trail.is_empty() => {
                self.udp(packet.data(), &ip, encap_ports)
            }
            proto::ICMP | proto::ICMPV6 if self.trail.is_empty() => {
                self.is_path_news = true;
                Stage::Plain
            }
            _ => Stage::Plain,
        };
    }

    /// Asks the SA that the packet names for its full sequence number, if that may be new.
    #[inline]
    pub(crate) fn check_replay(&mut self, packet: &[u8], sad: &mut Sad) {
        let Some(sa) = self.slot().and_then(|slot| sad.inbound(slot)) else { return };
        if sa.is_transport && !self.has_sound_header(packet) {
            return self.stop(DropReason::MalformedHeader);
        }
        match sa.state.check_replay(self.seq as u32) {
            Ok(full) => self.seq = full,
            Err(reason) => self.stop(reason),
        }
    }

    /// Whether the checksum of the IPv4 header in front is right (RFC 1122 section 3.2.1.2). Transport mode
    /// delivers that header with a new checksum, which must not hide an error: ESP covers nothing of the
    /// header, and AH not all.
    #[inline(never)]
    fn has_sound_header(&self, packet: &[u8]) -> bool {
        self.front.version == IpVersion::V6 || Ipv4::parse_quoted(packet).is_ok_and(|ip| ip.verify_checksum())
    }

    /// RFC 4303 section 3.4.1: reassembly comes first. Inside a tunnel a fragment is not for us to open.
    fn fragment(&self) -> Stage {
        if self.trail.is_empty() { Stage::Early(Early::Reassemble) } else { Stage::Plain }
    }

    #[inline]
    fn esp(&mut self, packet: &[u8], ip: &Outermost, at: usize, in_udp: bool) -> Stage {
        match EspHeader::parse(packet.get(at..).unwrap_or_default()) {
            Ok(EspHeader { spi, seq }) => self.name(Protocol::Esp, spi, seq, ip, at, in_udp),
            Err(_) => self.no_header(),
        }
    }

    /// For ESP or AH that is too short to show its SPI. Inside a tunnel it may be on its way to somebody else.
    fn no_header(&self) -> Stage {
        if self.trail.is_empty() { Stage::Early(Early::Drop(DropReason::Truncated)) } else { Stage::Plain }
    }

    fn ah(&mut self, packet: &[u8], ip: &Outermost) -> Stage {
        let at = ip.front.headers.into();
        match AhHeader::parse(packet.get(at..).unwrap_or_default()) {
            Ok((AhHeader { spi, seq, .. }, ..)) => self.name(Protocol::Ah, spi, seq, ip, at, false),
            Err(_) => self.no_header(),
        }
    }

    fn udp(&mut self, packet: &[u8], ip: &Outermost, encap_ports: &EncapPorts) -> Stage {
        let udp_at = usize::from(ip.front.headers);
        let Ok(datagram) = Udp::parse(packet.get(udp_at..).unwrap_or_default()) else { return Stage::Plain };
        if !encap_ports.contains(&datagram.dst_port()) {
            return Stage::Plain;
        }
        let at = udp_at.saturating_add(udp::HEADER_LEN);
        match Natt::classify(datagram.payload()) {
            Natt::Keepalive => Stage::Early(Early::Consumed(Consumed::Keepalive)),
            Natt::NonEsp(_) => {
                let offset = at.saturating_add(NON_ESP_MARKER.len());
                Stage::Early(Early::Ike(u16::try_from(offset).unwrap_or(u16::MAX)))
            }
            Natt::Esp(_) => self.esp(packet, ip, at, true),
            Natt::TooShort => Stage::Early(Early::Drop(DropReason::Truncated)),
        }
    }

    /// Notes what the packet says of its SA.
    #[inline]
    fn name(
        &mut self,
        protocol: Protocol,
        spi: u32,
        seq: u32,
        ip: &Outermost,
        at: usize,
        in_udp: bool,
    ) -> Stage {
        (self.seq, self.in_udp) = (seq.into(), in_udp);
        self.arrival = Arrival::new(spi, protocol, ip.dst);
        match u16::try_from(at) {
            Ok(at) => {
                self.at = at;
                Stage::Named
            }
            Err(_) => Stage::Early(Early::Drop(DropReason::Truncated)),
        }
    }

    /// Finds the SA that the packet names. Neighbours usually name the same: `last` is what was found before.
    #[inline]
    pub(crate) fn find<'s>(&mut self, len: usize, sad: &'s Sad, last: &mut Option<&'s Known>) {
        if self.stage != Stage::Named {
            return;
        }
        if last.is_none_or(|known| known.arrival != self.arrival) {
            *last = sad.find(&self.arrival);
        }
        self.stage = match last {
            // Protected traffic inside a tunnel that is not ours to open is somebody else's: policy decides.
            None if !self.trail.is_empty() => Stage::Plain,
            None => Stage::Early(Early::Drop(DropReason::NoSa)),
            Some(known) => match known.gate.check(self.in_udp, len.saturating_sub(self.at())) {
                Ok(()) => {
                    self.slot = known.slot;
                    Stage::Protected
                }
                Err(reason) => Stage::Early(Early::Drop(reason)),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_cache_line() {
        assert!(size_of::<Arriving>() <= 64, "{}", size_of::<Arriving>());
    }
}
