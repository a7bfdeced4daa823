//! Verdicts on packets.

use crate::DropReason;
use crate::admission::SecPath;
use crate::sad::SaId;
use casemate_sa::SpdId;

/// Verdict on an outgoing packet. The packet's buffer was changed accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// Protected. The buffer contains the whole outer IP packet.
    Send(Sealed),
    /// Policy lets the packet pass in clear. The packet is unchanged.
    Bypass,
    /// A fragment, and its policy needs the whole datagram (transport mode, or ports). Reassemble the
    /// datagram and submit it again. The packet is unchanged.
    Reassemble,
    /// Its policy demands an SA that does not exist, and [`Event::Acquire`](crate::Event::Acquire) was
    /// raised. Only for callers that keep such packets
    /// ([`Datapath::hold_packets`](crate::Datapath::hold_packets)): submit it again when the SA exists, or
    /// count it with [`record_drop`](crate::Datapath::record_drop). The packet is unchanged.
    Hold,
    /// Dropped. The buffer contains an ICMP error for the source of the packet.
    Reply(DropReason),
    /// Dropped.
    Drop(DropReason),
}

/// How to send a protected packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The SA of the outermost header.
    pub sa: SaId,
    /// With UDP encapsulation: offset of the UDP payload, for callers that send through a UDP socket.
    pub udp_payload: Option<u16>,
    /// Set if the packet exceeds its path MTU: the maximum size of its fragments, in bytes.
    pub fragment_to: Option<u16>,
}

/// Verdict on an incoming packet. The packet's buffer was changed accordingly. Not `Clone`, because
/// [`Deliver`](Self::Deliver) contains a proof that belongs to one packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Policy admits the packet. The buffer contains the IP packet to deliver.
    Deliver(Admitted),
    /// A fragment of ESP, AH or UDP, or a clear-text fragment whose policy needs ports. Reassemble the
    /// datagram and submit it again. The packet is unchanged.
    Reassemble,
    /// A fragment that these SAs delivered, and its policy needs the whole datagram. Reassemble it from
    /// fragments that came through the same SAs, and pass it to
    /// [`Datapath::admit_reassembled`](crate::Datapath::admit_reassembled). The buffer contains the opened
    /// fragment.
    ReassembleOpened(SecPath),
    /// Not to be delivered, and not a drop: a NAT keepalive, a dummy packet, feedback of header compression,
    /// or an ICMP error for the data path.
    Consumed(Consumed),
    /// An IKE message: its offset in the packet, after the non-ESP marker. The packet is unchanged.
    Ike(u16),
    /// Dropped.
    Drop(DropReason),
}

/// Packets that end in the data path without being dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// A NAT keepalive (RFC 3948 section 2.3).
    Keepalive,
    /// A dummy packet, next header 59 (RFC 4303 section 2.6).
    Dummy,
    /// A packet with nothing but feedback for the header compression of its SA pair (RFC 5795 section 5.2.4).
    RohcFeedback,
    /// An ICMP error that changed the path MTU of a local SA (RFC 4301 section 8.2.1).
    PathMtu,
}

/// Proof that the inbound policy check admitted a packet. Only that check creates it, once for each packet:
/// it is not `Clone`, so the proof of one packet cannot deliver another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The innermost SA that the packet came through; `None` for clear text that policy bypasses.
    pub sa: Option<SaId>,
    /// The SPD that admitted it.
    pub spd: SpdId,
    // Private to `admission`.
    pub(crate) proof: crate::admission::Proof,
}
