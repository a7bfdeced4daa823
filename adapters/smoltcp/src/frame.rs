//! The link-layer frame of an IP packet.

use casemate_wire::ip::IpVersion;
use smoltcp::phy::Medium;

/// Length of an Ethernet header.
pub(crate) const ETHERNET_HEADER_LEN: usize = 14;

/// Link-layer header of an IP packet: Ethernet, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkHeader {
    Ethernet { to: [u8; 6], from: [u8; 6] },
    Bare,
}

/// Content of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameContent {
    /// An IP packet after this header.
    Ip(LinkHeader),
    /// ARP, which IPsec does not process.
    Arp,
    /// Any other protocol.
    Other,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xDD];

/// Returns the length of the link-layer header for a medium.
pub(crate) const fn header_len(medium: Medium) -> usize {
    match medium {
        Medium::Ethernet => ETHERNET_HEADER_LEN,
        _ => 0,
    }
}

impl FrameContent {
    pub(crate) fn classify(medium: Medium, frame: &[u8]) -> Self {
        match medium {
            Medium::Ip => Self::Ip(LinkHeader::Bare),
            Medium::Ethernet => Self::classify_ethernet(frame).unwrap_or(Self::Other),
            #[allow(unreachable_patterns, reason = "another crate may enable other media of smoltcp")]
            _ => Self::Other,
        }
    }

    fn classify_ethernet(frame: &[u8]) -> Option<Self> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        Some(match *rest.first_chunk::<2>()? {
            IPV4 | IPV6 => Self::Ip(LinkHeader::Ethernet { to: *to, from: *from }),
            ARP => Self::Arp,
            _ => Self::Other,
        })
    }
}

impl LinkHeader {
    /// Returns the header of a frame in the opposite direction.
    pub(crate) const fn reversed(self) -> Self {
        match self {
            Self::Ethernet { to, from } => Self::Ethernet { to: from, from: to },
            Self::Bare => Self::Bare,
        }
    }

    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Ethernet { .. } => ETHERNET_HEADER_LEN,
            Self::Bare => 0,
        }
    }

    /// Writes the header for a packet of this IP version. The EtherType follows the packet itself,
    /// because the IP version outside of a tunnel may differ from the version inside.
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
    fn frames_are_classified_by_ethertype() {
        let frame = |kind: [u8; 2]| [&[1; 6][..], &[2; 6], &kind, &[0x45]].concat();
        for kind in [IPV4, IPV6] {
            let FrameContent::Ip(link) = FrameContent::classify(Medium::Ethernet, &frame(kind)) else {
                panic!("an IP packet")
            };
            let mut header = [0; ETHERNET_HEADER_LEN];
            link.reversed().write(IpVersion::V6, &mut header);
            assert_eq!(header, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x86, 0xDD]);
        }
        assert!(matches!(FrameContent::classify(Medium::Ethernet, &frame(ARP)), FrameContent::Arp));
        // A VLAN tag, LLDP, and truncated frames.
        for other in [frame([0x81, 0]), frame([0x88, 0xCC]), frame(IPV4)[..13].to_vec(), [].to_vec()] {
            assert!(matches!(FrameContent::classify(Medium::Ethernet, &other), FrameContent::Other));
        }
        assert!(matches!(FrameContent::classify(Medium::Ip, &[]), FrameContent::Ip(LinkHeader::Bare)));
    }
}
