//! Demultiplexing of received packets: is the packet protected, by which SA, and where does its ESP or AH
//! header begin?

use crate::admission::SecPathSlots;
use crate::event::AuditedHeader;
use crate::sa::SaIn;
use crate::sad::{IndexEntry, SaLookupKey, Sad};
use crate::transport::FrontHeaders;
use crate::{Consumed, DropReason, Inbound};
use arrayvec::ArrayVec;
use casemate_sa::Protocol;
use casemate_wire::ah::{AhHeader, AhPacket};
use casemate_wire::esp::EspHeader;
use casemate_wire::ip::v4::{self, Ipv4};
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, NON_ESP_MARKER, Natt, Udp};
use core::net::IpAddr;

/// UDP ports at which ESP may arrive.
pub(crate) type EncapPorts = ArrayVec<u16, 8>;

/// Progress of a packet through the inbound path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not parsed yet.
    New,
    /// The packet has an ESP or AH header; its SA has not been looked up.
    Identified,
    /// The packet is protected by a local inbound SA.
    Protected,
    /// The packet is not protected, or not by a local SA. The policy check follows.
    Plain,
    /// The verdict is known.
    Decided(EarlyVerdict),
}

/// Whether an ESP or AH header may follow an IP header with this `protocol`, directly or after extension
/// headers.
#[inline]
pub(crate) const fn may_hide_protection(protocol: u8) -> bool {
    use proto::{AH, DEST_OPTS, ESP, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(protocol, ESP | AH | HOP_BY_HOP | ROUTING | FRAGMENT | DEST_OPTS)
}

/// A verdict without a policy check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyVerdict {
    Reassemble,
    Consumed(Consumed),
    Ike(u16),
    Drop(DropReason),
}

impl From<EarlyVerdict> for Inbound {
    fn from(early: EarlyVerdict) -> Self {
        match early {
            EarlyVerdict::Reassemble => Self::Reassemble,
            EarlyVerdict::Consumed(what) => Self::Consumed(what),
            EarlyVerdict::Ike(offset) => Self::Ike(offset),
            EarlyVerdict::Drop(reason) => Self::Drop(reason),
        }
    }
}

/// State of one packet of an inbound batch. Small, and written in place.
#[derive(Debug)]
pub(crate) struct InboundPacket {
    pub(crate) stage: Stage,
    /// Slot of the SA, and offset of the ESP or AH header. Valid in [`Stage::Protected`].
    slot: u32,
    header_at: u16,
    /// The headers in front of ESP or AH.
    pub(crate) front: FrontHeaders,
    /// TOS or traffic class of the IP header in front.
    pub(crate) outer_tos: u8,
    /// Whether the packet is clear-text ICMP, which may be an error about the path MTU of an SA.
    pub(crate) may_be_pmtu_error: bool,
    /// Whether the ESP header came inside UDP.
    in_udp: bool,
    /// SPI, protocol and destination of the last ESP or AH header.
    lookup_key: SaLookupKey,
    /// Sequence number of that header. The replay check adds the upper half of an extended number.
    seq: u64,
    /// The SAs that opened the packet so far, outermost first.
    pub(crate) sec_path: SecPathSlots,
}

/// Fields of the first IP header.
struct OuterIp {
    front: FrontHeaders,
    tos: u8,
    protocol: u8,
    dst: IpAddr,
    len: usize,
    is_fragment: bool,
}

impl OuterIp {
    /// Fast path for most packets: unfragmented IPv4 without options.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn parse_common_v4(packet: &[u8]) -> Option<Self> {
        let h: &[u8; v4::HEADER_LEN] = packet.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([h[2], h[3]]));
        let is_common = h[0] == 0x45 && h[6] & !v4::DF == 0 && h[7] == 0;
        (is_common && (h.len()..=packet.len()).contains(&len)).then(|| Self {
            front: FrontHeaders {
                version: IpVersion::V4,
                headers: v4::HEADER_LEN as u16,
                next_header_at: v4::PROTOCOL_AT as u16,
            },
            tos: h[1],
            protocol: h[v4::PROTOCOL_AT],
            dst: IpAddr::from([h[16], h[17], h[18], h[19]]),
            len,
            is_fragment: false,
        })
    }

    #[inline]
    fn parse(packet: &[u8]) -> Option<Self> {
        match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                Some(Self {
                    front: FrontHeaders {
                        version: IpVersion::V4,
                        headers: ip.header_len() as u8 as u16,
                        next_header_at: v4::PROTOCOL_AT as u16,
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
                    front: FrontHeaders {
                        version: IpVersion::V6,
                        headers: u16::try_from(chain.last.at).ok()?,
                        next_header_at: u16::try_from(chain.last.next_header_at).ok()?,
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

impl InboundPacket {
    pub(crate) const NEW: Self = Self {
        stage: Stage::New,
        slot: 0,
        header_at: 0,
        front: FrontHeaders { version: IpVersion::V4, headers: 0, next_header_at: 0 },
        outer_tos: 0,
        may_be_pmtu_error: false,
        in_udp: false,
        lookup_key: SaLookupKey::NONE,
        seq: 0,
        sec_path: SecPathSlots::EMPTY,
    };

    /// The slot of the SA that is to open the packet.
    #[inline]
    pub(crate) fn slot(&self) -> Option<u32> {
        matches!(self.stage, Stage::Protected).then_some(self.slot)
    }

    /// Offset of the ESP or AH header.
    #[inline]
    pub(crate) fn header_at(&self) -> usize {
        self.header_at.into()
    }

    /// The sequence number. It has its upper half only after the replay check.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The last ESP or AH header.
    pub(crate) fn header(&self) -> Option<AuditedHeader> {
        let (protocol, spi) = self.lookup_key.header()?;
        Some(AuditedHeader { protocol, spi, seq: self.seq as u32 })
    }

    #[inline]
    pub(crate) fn set_drop(&mut self, reason: DropReason) {
        self.stage = Stage::Decided(EarlyVerdict::Drop(reason));
    }

    /// Drop reason for a packet whose headers do not parse.
    #[cold]
    pub(crate) fn malformed(&self) -> DropReason {
        if self.sec_path.is_empty() { DropReason::MalformedHeader } else { DropReason::InnerMalformed }
    }

    /// Removes the protection with `expose`, unless the packet was dropped, and adds the SA to `sec_path`.
    #[inline]
    pub(crate) fn remove_protection(&mut self, expose: impl FnOnce(&Self) -> Result<Stage, DropReason>) {
        let Some(slot) = self.slot() else { return };
        match expose(self) {
            Ok(_) if !self.sec_path.push(slot) => self.set_drop(DropReason::NestedTooDeep),
            Ok(stage) => self.stage = stage,
            Err(reason) => self.set_drop(reason),
        }
    }

    /// Parses a packet in [`Stage::New`] and sets its next stage.
    #[inline]
    pub(crate) fn demux(&mut self, packet: &mut Packet<'_>, encap_ports: &EncapPorts) {
        if self.stage != Stage::New {
            return;
        }
        match OuterIp::parse_common_v4(packet.data()) {
            Some(ip) => self.demux_behind(&ip, packet, encap_ports),
            None => self.demux_uncommon(packet, encap_ports),
        }
    }

    #[inline(never)]
    fn demux_uncommon(&mut self, packet: &mut Packet<'_>, encap_ports: &EncapPorts) {
        match OuterIp::parse(packet.data()) {
            Some(ip) => self.demux_behind(&ip, packet, encap_ports),
            None => self.set_drop(self.malformed()),
        }
    }

    /// Sets the next stage of a packet with this IP header.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn demux_behind(&mut self, ip: &OuterIp, packet: &mut Packet<'_>, encap_ports: &EncapPorts) {
        // Padding may follow the IP packet: of the link, or traffic-flow padding inside a tunnel.
        if packet.set_len(ip.len).is_err() {
            return self.set_drop(self.malformed());
        }
        (self.front, self.outer_tos) = (ip.front, ip.tos);
        let at = usize::from(ip.front.headers);
        match ip.protocol {
            proto::ESP | proto::AH | proto::UDP if ip.is_fragment => self.handle_fragment(),
            proto::ESP => self.parse_esp(packet.data(), ip.dst, at, false),
            proto::AH => self.parse_ah(packet.data(), ip.dst, at),
            proto::UDP if !encap_ports.is_empty() && self.sec_path.is_empty() => {
                self.parse_udp(packet.data(), ip.dst, at, encap_ports);
            }
            proto::ICMP | proto::ICMPV6 if self.sec_path.is_empty() => {
                self.may_be_pmtu_error = true;
                self.stage = Stage::Plain;
            }
            _ => self.stage = Stage::Plain,
        }
    }

    /// Checks a packet of this SA for a replay and sets the full sequence number.
    #[inline]
    pub(crate) fn check_replay(&mut self, packet: &Packet<'_>, sa: &mut SaIn) {
        if sa.is_transport && !self.has_valid_checksum(packet.data()) {
            return self.set_drop(DropReason::MalformedHeader);
        }
        match sa.state.check_replay(self.seq as u32) {
            Ok(full) => self.seq = full,
            Err(reason) => self.set_drop(reason),
        }
    }

    /// Whether the checksum of the IPv4 header in front is correct (RFC 1122 section 3.2.1.2). Transport mode
    /// delivers that header with a new checksum, which must not hide an error: ESP covers none of the header,
    /// and AH not all of it.
    #[inline(never)]
    fn has_valid_checksum(&self, packet: &[u8]) -> bool {
        self.front.version == IpVersion::V6 || Ipv4::parse_quoted(packet).is_ok_and(|ip| ip.verify_checksum())
    }

    /// RFC 4303 section 3.4.1: reassembly comes first. A fragment inside a tunnel is not opened here.
    fn handle_fragment(&mut self) {
        self.stage =
            if self.sec_path.is_empty() { Stage::Decided(EarlyVerdict::Reassemble) } else { Stage::Plain };
    }

    #[inline]
    fn parse_esp(&mut self, packet: &[u8], dst: IpAddr, at: usize, in_udp: bool) {
        match packet.get(at..).map(EspHeader::parse) {
            Some(Ok(EspHeader { spi, seq })) => self.set_lookup_key(Protocol::Esp, spi, seq, dst, at, in_udp),
            _ => self.handle_truncated(),
        }
    }

    /// Handles ESP or AH that is too short to have an SPI. Inside a tunnel it may be for another host.
    #[cold]
    fn handle_truncated(&mut self) {
        self.stage = if self.sec_path.is_empty() {
            Stage::Decided(EarlyVerdict::Drop(DropReason::Truncated))
        } else {
            Stage::Plain
        };
    }

    #[inline(never)]
    fn parse_ah(&mut self, packet: &[u8], dst: IpAddr, at: usize) {
        match AhPacket::parse(packet.get(at..).unwrap_or_default()) {
            Ok(AhPacket { header: AhHeader { spi, seq, .. }, .. }) => {
                self.set_lookup_key(Protocol::Ah, spi, seq, dst, at, false);
            }
            Err(_) => self.handle_truncated(),
        }
    }

    #[inline(never)]
    fn parse_udp(&mut self, packet: &[u8], dst: IpAddr, udp_at: usize, encap_ports: &EncapPorts) {
        let datagram = Udp::parse(packet.get(udp_at..).unwrap_or_default()).ok();
        let Some(datagram) = datagram.filter(|datagram| encap_ports.contains(&datagram.dst_port())) else {
            self.stage = Stage::Plain;
            return;
        };
        let at = udp_at.saturating_add(udp::HEADER_LEN);
        self.stage = match Natt::classify(datagram.payload()) {
            Natt::Esp(_) => return self.parse_esp(packet, dst, at, true),
            Natt::Keepalive => Stage::Decided(EarlyVerdict::Consumed(Consumed::Keepalive)),
            Natt::NonEsp(_) => {
                let offset = at.saturating_add(NON_ESP_MARKER.len());
                Stage::Decided(EarlyVerdict::Ike(u16::try_from(offset).unwrap_or(u16::MAX)))
            }
            Natt::TooShort => Stage::Decided(EarlyVerdict::Drop(DropReason::Truncated)),
        };
    }

    /// Stores protocol, SPI, sequence number and header offset.
    #[inline]
    fn set_lookup_key(
        &mut self,
        protocol: Protocol,
        spi: u32,
        seq: u32,
        dst: IpAddr,
        at: usize,
        in_udp: bool,
    ) {
        (self.seq, self.in_udp) = (seq.into(), in_udp);
        self.lookup_key = SaLookupKey::new(spi, protocol, dst);
        match u16::try_from(at) {
            Ok(at) => (self.header_at, self.stage) = (at, Stage::Identified),
            Err(_) => self.set_drop(DropReason::Truncated),
        }
    }

    /// Finds the SA of the packet. `last` is the result for the previous packet, which usually has the same
    /// SA.
    #[inline]
    pub(crate) fn find_sa<'s>(&mut self, len: usize, sad: &'s Sad, last: &mut Option<&'s IndexEntry>) {
        if self.stage != Stage::Identified {
            return;
        }
        if last.is_none_or(|entry| entry.lookup_key != self.lookup_key) {
            *last = sad.find_inbound(&self.lookup_key);
        }
        let Some(entry) = last else { return self.handle_unknown_sa() };
        match entry.format.check(self.in_udp, len.saturating_sub(self.header_at())) {
            Ok(()) => (self.slot, self.stage) = (entry.slot, Stage::Protected),
            Err(reason) => self.set_drop(reason),
        }
    }

    /// Protected traffic inside a tunnel without a local SA is for another host. The policy decides.
    #[cold]
    fn handle_unknown_sa(&mut self) {
        self.stage = if self.sec_path.is_empty() {
            Stage::Decided(EarlyVerdict::Drop(DropReason::NoSa))
        } else {
            Stage::Plain
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbound_packet_fits_one_cache_line() {
        assert!(size_of::<InboundPacket>() <= 64, "{}", size_of::<InboundPacket>());
    }
}
