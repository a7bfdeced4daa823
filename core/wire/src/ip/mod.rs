//! The Internet Protocol, versions 4 (RFC 791) and 6 (RFC 8200).

pub mod ext;
pub mod v4;
mod v4_options;
pub mod v6;

use crate::Malformed;
use core::net::IpAddr;

pub use v4::{Ipv4, Ipv4Header};
pub use v6::{Ipv6, Ipv6Header};

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Returns the IP version in the first four bits of a packet.
#[inline]
pub fn version(packet: &[u8]) -> Result<IpVersion, Malformed> {
    match packet.first().map(|b| b >> 4) {
        Some(4) => Ok(IpVersion::V4),
        Some(6) => Ok(IpVersion::V6),
        Some(_) => Err(Malformed::new("IP version", "must be 4 or 6")),
        None => Err(Malformed::new("IP version", "must be present, but the packet is empty")),
    }
}

/// Returns the source address of an IP packet without validating the rest of the packet.
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    match version(packet).ok()? {
        IpVersion::V4 => packet.get(12..16)?.first_chunk::<4>().map(|addr| IpAddr::from(*addr)),
        IpVersion::V6 => packet.get(8..24)?.first_chunk::<16>().map(|addr| IpAddr::from(*addr)),
    }
}

/// Returns the destination address of an IP packet without validating the rest of the packet.
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match version(packet).ok()? {
        IpVersion::V4 => packet.get(16..20)?.first_chunk::<4>().map(|addr| IpAddr::from(*addr)),
        IpVersion::V6 => packet.get(24..40)?.first_chunk::<16>().map(|addr| IpAddr::from(*addr)),
    }
}

/// Whether an IP packet is a fragment. Malformed packets and atomic fragments (RFC 6946) are not.
pub fn is_fragment(packet: &[u8]) -> bool {
    match version(packet) {
        Ok(IpVersion::V4) => Ipv4::parse(packet).is_ok_and(|ip| ip.is_fragment()),
        Ok(IpVersion::V6) => Ipv6::parse(packet)
            .and_then(|ip| ip.chain())
            .is_ok_and(|chain| chain.fragment.is_some_and(|fragment| !fragment.is_atomic())),
        Err(_) => false,
    }
}

/// Protocol numbers (IANA "Protocol Numbers"), as in the protocol field of IPv4 and the next header field of
/// IPv6.
pub mod proto {
    /// IPv6 Hop-by-Hop Options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPIP: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 Routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 Fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Generic Routing Encapsulation.
    pub const GRE: u8 = 47;
    /// Encapsulating Security Payload.
    pub const ESP: u8 = 50;
    /// Authentication Header.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header; inside ESP, a dummy packet (RFC 4303 section 2.6).
    pub const NO_NEXT: u8 = 59;
    /// IPv6 Destination Options.
    pub const DEST_OPTS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6 Mobility header.
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// Host Identity Protocol.
    pub const HIP: u8 = 139;
    /// Shim6.
    pub const SHIM6: u8 = 140;
    /// A packet whose headers are compressed (RFC 5858 section 4.1).
    pub const ROHC: u8 = 142;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version(&[0x45]), Ok(IpVersion::V4));
        assert_eq!(version(&[0x60, 1]), Ok(IpVersion::V6));
        assert!(version(&[0x50]).is_err());
        assert!(version(&[]).is_err());
    }

    #[test]
    fn addresses_are_read_without_validation() {
        let (mut v4, mut v6) = ([0; 20], [0; 40]);
        (v4[0], v4[15], v4[19]) = (0x45, 1, 2);
        (v6[0], v6[23], v6[39]) = (0x60, 1, 2);
        assert_eq!((source(&v4), destination(&v4)), (Some([0, 0, 0, 1].into()), Some([0, 0, 0, 2].into())));
        let addr = |last| Some(IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, last]));
        assert_eq!((source(&v6), destination(&v6)), (addr(1), addr(2)));
        for short in [&[][..], &[0x45; 15], &[0x60; 23], &[0x50; 60]] {
            assert_eq!((source(short), destination(short)), (None, None));
        }
    }

    #[test]
    fn fragments_are_distinguished_from_whole_packets() {
        let mut v4 = [0; 28];
        (v4[0], v4[3], v4[8], v4[9]) = (0x45, 28, 64, 17);
        for (field, expected) in [([0, 0], false), ([0x40, 0], false), ([0x20, 0], true), ([0, 1], true)] {
            v4[6..8].copy_from_slice(&field);
            assert_eq!(is_fragment(&v4), expected, "{field:?}");
        }
        let mut v6 = [0; 56];
        (v6[0], v6[5], v6[6], v6[40]) = (0x60, 16, proto::FRAGMENT, 17);
        for (field, expected) in [([0, 0], false), ([0, 1], true), ([0, 8], true)] {
            v6[42..44].copy_from_slice(&field);
            assert_eq!(is_fragment(&v6), expected, "{field:?}");
        }
        assert!(!is_fragment(&[]) && !is_fragment(&v4[..10]) && !is_fragment(&[0x50; 40]));
    }
}
