//! Checksums of transport-mode packets that crossed a NAT (RFC 3948 section 3.1.2).
//!
//! Checksums of TCP, UDP and ICMPv6 cover the IP addresses. The sender computes them with the addresses that
//! it sees, but a NAT changes the addresses of the outer header, which in transport mode is the packet's own
//! header. IKEv2 negotiates the sender's addresses as traffic selectors (RFC 7296 section 2.23.1). The
//! inbound path calls this module for SAs with such addresses.

use casemate_sa::AddrPair;
use casemate_wire::checksum::{Sum, adjust};
use casemate_wire::ip::v4::Ipv4;
use casemate_wire::ip::v6::Ipv6;
use casemate_wire::ip::{IpVersion, proto, version};
use core::net::IpAddr;

/// UDP-Lite (RFC 3828) has its checksum at the same offset as UDP.
const UDP_LITE: u8 = 136;
/// DCCP (RFC 4340 section 9.1).
const DCCP: u8 = 33;

/// Sum of the addresses that the peer's checksums cover.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginalAddrs(Sum);

impl OriginalAddrs {
    /// The addresses of a packet as the peer sees them.
    pub(crate) fn new(addrs: AddrPair) -> Self {
        Self(sum(addrs.src).combine(sum(addrs.dst)))
    }

    /// Updates the checksum of a `packet` without protection from the original addresses to those in its
    /// header. A packet without a checksum over the addresses stays unchanged. A wrong checksum stays wrong.
    pub(crate) fn fix_checksum(&self, packet: &mut [u8]) {
        let Some(UpperLayer { protocol, at, addrs }) = upper_layer(packet) else { return };
        let offset = match protocol {
            proto::TCP => 16,
            proto::UDP | UDP_LITE | DCCP => 6,
            proto::ICMPV6 => 2,
            _ => return,
        };
        let field = packet.get_mut(at.saturating_add(offset)..).and_then(<[u8]>::first_chunk_mut::<2>);
        let Some(field) = field else { return };
        // RFC 768: zero means "no checksum".
        if protocol == proto::UDP && *field == [0, 0] {
            return;
        }
        let checksum = match adjust(u16::from_be_bytes(*field), self.0, addrs) {
            // UDP-Lite always has a checksum and forbids zero (RFC 3828 section 3.1).
            0 if matches!(protocol, proto::UDP | UDP_LITE) => 0xffff,
            checksum => checksum,
        };
        *field = checksum.to_be_bytes();
    }
}

fn sum(addr: IpAddr) -> Sum {
    match addr {
        IpAddr::V4(addr) => Sum::of(&addr.octets()),
        IpAddr::V6(addr) => Sum::of(&addr.octets()),
    }
}

/// The upper-layer header of a packet.
struct UpperLayer {
    protocol: u8,
    /// Offset of the header in the packet.
    at: usize,
    /// Sum of the addresses of the packet.
    addrs: Sum,
}

/// Finds the upper-layer header; `None` if an earlier fragment has it.
fn upper_layer(packet: &mut [u8]) -> Option<UpperLayer> {
    match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok().filter(|ip| ip.frag_offset() == 0)?;
            let addrs = sum(ip.src().into()).combine(sum(ip.dst().into()));
            Some(UpperLayer { protocol: ip.protocol(), at: ip.header_len(), addrs })
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            let chain = ip.chain().ok().filter(|chain| !chain.is_later_fragment())?;
            let addrs = sum(ip.src().into()).combine(sum(ip.dst().into()));
            Some(UpperLayer { protocol: chain.last.next_header, at: chain.last.at, addrs })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The checksum field of a packet of `protocol`, which held `checksum`, after a NAT changed the source
    /// address.
    fn checksum_after_nat(protocol: u8, checksum: u16, at: usize) -> [u8; 2] {
        let mut packet: Vec<u8> = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0].to_vec();
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        packet.resize(40, 0);
        packet[20 + at..22 + at].copy_from_slice(&checksum.to_be_bytes());
        let original =
            OriginalAddrs::new(AddrPair { src: [192, 0, 0, 1].into(), dst: [192, 0, 2, 2].into() });
        original.fix_checksum(&mut packet);
        [packet[20 + at], packet[21 + at]]
    }

    #[test]
    fn zero_becomes_ones_where_zero_means_no_checksum() {
        // The addresses differ by 0x0200, so the result is 0.
        let becomes_zero = 0x0200;
        assert_eq!(checksum_after_nat(proto::TCP, becomes_zero, 16), [0, 0]);
        assert_eq!(checksum_after_nat(proto::UDP, becomes_zero, 6), [0xff, 0xff]);
        assert_eq!(checksum_after_nat(UDP_LITE, becomes_zero, 6), [0xff, 0xff]);
        assert_eq!(checksum_after_nat(DCCP, becomes_zero, 6), [0, 0]);
        // Only UDP has "no checksum".
        assert_eq!(checksum_after_nat(proto::UDP, 0, 6), [0, 0]);
        assert_ne!(checksum_after_nat(UDP_LITE, 0, 6), [0, 0]);
    }
}
