//! What became of a packet.

use crate::DropReason;
use crate::admission::Via;
use crate::sad::SaId;

/// The verdict on an outgoing packet; the packet's buffer was changed to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// Protected: the buffer holds the whole outer IP packet, ready for the wire.
    Send(Sealed),
    /// Policy lets it pass in clear; unchanged.
    Bypass,
    /// A fragment whose policy wants the whole datagram (transport mode, or ports): reassemble it and offer that. Unchanged.
    Reassemble,
    /// Dropped, and the buffer now holds an ICMP error to be delivered to the packet's source.
    Reply(DropReason),
    /// Dropped.
    Drop(DropReason),
}

/// How a protected packet goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The SA whose header is outermost.
    pub sa: SaId,
    /// With UDP encapsulation: where the UDP payload starts, for senders that let a socket write the headers before it.
    pub udp_payload: Option<u16>,
    /// The packet is longer than its path takes and is to be cut into fragments of at most this many bytes.
    pub fragment_to: Option<u16>,
}

/// The verdict on an incoming packet; the packet's buffer was changed to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// Policy admits it: the buffer holds the IP packet to deliver.
    Deliver(Admitted),
    /// A fragment of ESP, AH or UDP, or one in clear whose policy looks at ports: reassemble first and offer
    /// the whole datagram. Unchanged.
    Reassemble,
    /// A fragment that these SAs delivered and whose policy wants the whole datagram: reassemble it with
    /// others that came through the same SAs, and offer that to
    /// [`Datapath::admit_reassembled`](crate::Datapath::admit_reassembled). The buffer holds the opened
    /// fragment.
    ReassembleOpened(Via),
    /// Rightly nothing to deliver: a NAT keepalive, a dummy packet, or news for the data path itself.
    Consumed(Consumed),
    /// For IKE: the UDP payload starts at this offset, non-ESP marker passed over. Unchanged.
    Ike(u16),
    /// Dropped.
    Drop(DropReason),
}

/// Packets that end here without being dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// A NAT keepalive (RFC 3948 section 2.3).
    Keepalive,
    /// A dummy packet, next header 59 (RFC 4303 section 2.6).
    Dummy,
    /// An ICMP error about the path MTU of one of our SAs, which has been taken note of (RFC 4301 section 8.2.1).
    PathMtu,
}

/// Proof that the inbound SPD check let a packet pass. Only that check makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// The SA that the packet came through last (the innermost); `None` for clear text that policy bypasses.
    pub sa: Option<SaId>,
    // Only `admission` can make one.
    pub(crate) proof: crate::admission::Proof,
}
