//! The records of a trace: steps and their facts. Plain data without text.

use crate::event::AuditedHeader;
use crate::spd::PolicyId;
use crate::{Consumed, Direction, DropReason, SaId};
use casemate_sa::{Instant, Protocol, Selector, UdpEncap};
use casemate_wire::ah::{AhHeader, AhPacket};
use casemate_wire::esp::EspHeader;
use casemate_wire::flow::{FlowKey, HeaderSummary};
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, proto, version};
use casemate_wire::udp::{self, Natt, Udp};
use core::net::IpAddr;

/// One step of a traced packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Number of the packet in its trace, from 1 on.
    pub packet: u32,
    /// Time of the batch.
    pub at: Instant,
    /// What happened.
    pub step: TraceStep,
}

/// What happened to a traced packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStep {
    /// First step of an outgoing packet: as its source sent it.
    Outgoing(InnerPacket),
    /// First step of an incoming packet: as it came from the network.
    Incoming(OuterPacket),
    /// First step of a packet that was dropped before the data path, or that is no longer known.
    Elsewhere(InnerPacket),
    /// First step of a datagram that was put together from fragments of SAs.
    Reassembled(InnerPacket),
    /// What the SPD of this direction says about the packet.
    Policy(Direction, PolicyFinding),
    /// The SA that protects the packet, or the SA that the SPI of the packet names.
    Sa(SaId),
    /// Length of the packet with its protection, and the path MTU.
    Size(SizeFacts),
    /// The packet gets this sequence number.
    Number(u64),
    /// The header of the packet is compressed (RFC 5856).
    Compressed,
    /// Bytes of padding that give the packet the length of its neighbours.
    Padded(u8),
    /// The headers that were written in front of the packet.
    Encapsulated(OuterPacket),
    /// The protected packet is longer than the path MTU and leaves in fragments of at most so many bytes.
    Fragmented(u16),
    /// Encryption and ICV are done.
    Sealed,
    /// The sequence number was not received before, and is not older than the replay window.
    NotReplayed(u64),
    /// The ICV is correct, and the packet is decrypted.
    Opened(SaId),
    /// The packet behind the removed headers. `outer_ecn` is the ECN field of the last outer header.
    Decapsulated {
        /// The packet.
        packet: InnerPacket,
        /// ECN of the outer header.
        outer_ecn: u8,
    },

    /// Last step: the packet was sent.
    Sent(Transmission),
    /// Last step: policy admits the packet; the caller delivers it.
    Delivered,
    /// Last step: the packet waits until its SA exists ([`Outbound::Hold`](crate::Outbound::Hold)).
    Held,
    /// Last step: the packet is a fragment that waits for the others of its datagram.
    Reassembling,
    /// Last step: the packet was meant for the data path.
    Consumed(Consumed),
    /// Last step: the packet is an IKE message.
    Ike,
    /// Last step: dropped, and its source gets an ICMP error.
    Rejected(DropReason),
    /// Last step: dropped.
    Dropped(DropReason),
}

impl TraceStep {
    /// Whether no step of the same packet follows. There is one exception: a delivered packet that the
    /// operating system does not take is dropped.
    pub const fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Sent(_)
                | Self::Delivered
                | Self::Held
                | Self::Reassembling
                | Self::Consumed(_)
                | Self::Ike
                | Self::Rejected(_)
                | Self::Dropped(_)
        )
    }
}

/// How a packet left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transmission {
    /// With the link address of the next hop.
    NextHop,
    /// Through a raw socket: the operating system chose the way.
    RawSocket,
    /// Through a UDP socket, together with others (GSO).
    UdpSocket,
}

/// A packet without protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerPacket {
    /// Addresses, protocol, ports and DSCP; `None` if the headers do not parse.
    pub flow: Option<FlowKey>,
    /// ECN field.
    pub ecn: u8,
    /// Length in bytes, IP header included.
    pub len: usize,
}

impl InnerPacket {
    /// The packet in these bytes.
    pub(crate) fn of(packet: &[u8]) -> Self {
        match HeaderSummary::parse(packet) {
            Ok(summary) => Self { flow: Some(summary.key), ecn: summary.tos() & 3, len: summary.total_len() },
            Err(_) => Self { flow: None, ecn: 0, len: packet.len() },
        }
    }
}

/// The headers of a packet on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OuterPacket {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// TOS or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Length in bytes, IP header included.
    pub len: usize,
    /// The ports, if the packet is a UDP datagram.
    pub udp: Option<UdpEncap>,
    /// The ESP or AH header, if there is one.
    pub header: Option<AuditedHeader>,
}

impl OuterPacket {
    /// Reads the headers; `None` if they do not parse.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let (src, dst, tos, len, protocol, at) = match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                let (src, dst) = (ip.src().into(), ip.dst().into());
                (src, dst, ip.tos(), usize::from(ip.total_len()), ip.protocol(), ip.header_len())
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let last = ip.chain().ok()?.last;
                (
                    ip.src().into(),
                    ip.dst().into(),
                    ip.traffic_class(),
                    ip.total_len(),
                    last.next_header,
                    last.at,
                )
            }
        };
        let mut outer = Self { src, dst, tos, len, udp: None, header: None };
        let payload = packet.get(at..).unwrap_or_default();
        match protocol {
            proto::ESP => outer.header = esp(payload),
            proto::AH => {
                let ah = AhPacket::parse(payload).ok();
                outer.header = ah.map(|AhPacket { header: AhHeader { spi, seq, .. }, .. }| AuditedHeader {
                    protocol: Protocol::Ah,
                    spi,
                    seq,
                });
            }
            proto::UDP => outer.read_udp(payload),
            _ => {}
        }
        Some(outer)
    }

    fn read_udp(&mut self, datagram: &[u8]) {
        let Ok(udp) = Udp::parse(datagram) else { return };
        self.udp = Some(UdpEncap { src_port: udp.src_port(), dst_port: udp.dst_port() });
        if let Natt::Esp(_) = Natt::classify(udp.payload()) {
            self.header = datagram.get(udp::HEADER_LEN..).and_then(esp);
        }
    }
}

fn esp(bytes: &[u8]) -> Option<AuditedHeader> {
    let EspHeader { spi, seq } = EspHeader::parse(bytes).ok()?;
    Some(AuditedHeader { protocol: Protocol::Esp, spi, seq })
}

/// What the SPD says about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyFinding {
    /// This policy is the first that matches, and the packet must be protected.
    Protect(PolicyId, Selector),
    /// This policy is the first that matches, and the packet may pass in clear.
    Bypass(PolicyId, Selector),
    /// This policy is the first that matches, and the packet may not pass.
    Discard(PolicyId, Selector),
    /// The packet is a fragment, and a policy needs fields that it hides.
    NeedsPorts,
    /// No policy matches.
    NoMatch,
}

/// Lengths of an outgoing packet in bytes, IP headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeFacts {
    /// Without protection.
    pub len: usize,
    /// With protection.
    pub protected: usize,
    /// Path MTU towards the peer.
    pub path_mtu: usize,
    /// The longest packet whose protected packet fits the path MTU.
    pub inner_mtu: usize,
}
