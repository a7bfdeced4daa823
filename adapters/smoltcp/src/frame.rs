//! What stands around an IP packet on the link.

use casemate_wire::ip::IpVersion;
use smoltcp::phy::Medium;

/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// The header in front of an IP packet: of an Ethernet frame, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Link {
    Ethernet { to: [u8; 6], from: [u8; 6] },
    Bare,
}

/// What a frame holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// An IP packet, behind this header.
    Ip(Link),
    /// Address resolution, which IPsec has nothing to do with.
    Arp,
    /// Something that nobody here understands.
    Other,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xDD];

/// Length of the header that frames of this medium have.
pub(crate) const fn header_len(medium: Medium) -> usize {
    match medium {
        Medium::Ethernet => ETHERNET,
        _ => 0,
    }
}

impl Content {
    pub(crate) fn of(medium: Medium, frame: &[u8]) -> Self {
        match medium {
            Medium::Ip => Self::Ip(Link::Bare),
            Medium::Ethernet => Self::of_ethernet(frame).unwrap_or(Self::Other),
            #[allow(unreachable_patterns, reason = "another crate may switch on other media of smoltcp")]
            _ => Self::Other,
        }
    }

    fn of_ethernet(frame: &[u8]) -> Option<Self> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        Some(match *rest.first_chunk::<2>()? {
            IPV4 | IPV6 => Self::Ip(Link::Ethernet { to: *to, from: *from }),
            ARP => Self::Arp,
            _ => Self::Other,
        })
    }
}

impl Link {
    /// The header of a frame back.
    pub(crate) const fn reversed(self) -> Self {
        match self {
            Self::Ethernet { to, from } => Self::Ethernet { to: from, from: to },
            Self::Bare => Self::Bare,
        }
    }

    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Ethernet { .. } => ETHERNET,
            Self::Bare => 0,
        }
    }

    /// Writes the header for a packet of this version. The type is what the packet says of itself: protection may have had
    /// another version around it.
    pub(crate) fn write(self, version: IpVersion, out: &mut [u8]) {
        let Self::Ethernet { to, from } = self else { return };
        let kind = match version {
            IpVersion::V4 => IPV4,
            IpVersion::V6 => IPV6,
        };
        for (byte, value) in out.iter_mut().zip(to.into_iter().chain(from).chain(kind)) {
            *byte = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_frames() {
        let frame = |kind: [u8; 2]| [&[1; 6][..], &[2; 6], &kind, &[0x45]].concat();
        for kind in [IPV4, IPV6] {
            let Content::Ip(link) = Content::of(Medium::Ethernet, &frame(kind)) else {
                panic!("an IP packet")
            };
            let mut header = [0; ETHERNET];
            link.reversed().write(IpVersion::V6, &mut header);
            assert_eq!(header, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x86, 0xDD]);
        }
        assert!(matches!(Content::of(Medium::Ethernet, &frame(ARP)), Content::Arp));
        // A VLAN tag, LLDP, and frames that end too early.
        for other in [frame([0x81, 0]), frame([0x88, 0xCC]), frame(IPV4)[..13].to_vec(), [].to_vec()] {
            assert!(matches!(Content::of(Medium::Ethernet, &other), Content::Other));
        }
        assert!(matches!(Content::of(Medium::Ip, &[]), Content::Ip(Link::Bare)));
    }
}
