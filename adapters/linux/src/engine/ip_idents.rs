//! Identifications of IPv4 packets and of IPv6 fragments that the engine assigns.

use casemate_wire::ip::Ipv4;
use casemate_wire::packet::Packet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Source of IPv4 identifications and of identifications of IPv6 fragments.
pub(super) struct IpIdents {
    last: AtomicU32,
    before_protection: AtomicBool,
}

impl IpIdents {
    /// The first identification is the one after `last`. With `before_protection`, packets get theirs before
    /// they are protected.
    pub(super) fn new(last: u32, before_protection: bool) -> Self {
        Self { last: AtomicU32::new(last), before_protection: AtomicBool::new(before_protection) }
    }

    /// Assigns identifications before protection from now on, because an SA uses AH over IPv4, which covers
    /// the identification.
    pub(super) fn assign_before_protection(&self) {
        self.before_protection.store(true, Ordering::Relaxed);
    }

    /// Prepares packets from the TUN interface for protection. The kernel sets the identification of an IPv4
    /// packet that is sent without one, which would break the ICV of AH; so such a packet gets one here (RFC
    /// 6864 section 4.1 lets the source choose).
    #[inline]
    pub(super) fn prepare(&self, packets: &mut [Packet<'_>]) {
        if self.before_protection.load(Ordering::Relaxed) {
            packets.iter_mut().for_each(|packet| set_ipv4_ident_if_zero(packet, self.next_v4()));
        }
    }

    /// Identification for a packet that is fragmented.
    pub(super) fn next(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Identification of an IPv4 packet, never 0.
    #[inline]
    pub(super) fn next_v4(&self) -> u16 {
        (self.next() as u16).max(1)
    }
}

/// Sets the identification of an IPv4 packet that has none. Fragments keep theirs, by which they are
/// reassembled.
pub(super) fn set_ipv4_ident_if_zero(packet: &mut Packet<'_>, ident: u16) {
    if packet.data().first().is_none_or(|first| first >> 4 != 4) {
        return;
    }
    if let Ok(mut ip) = Ipv4::parse_quoted(packet.data_mut())
        && ip.ident() == 0
        && !ip.is_fragment()
    {
        ip.set_ident(ident);
        ip.fill_checksum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with this identification and fragment field.
    fn header(ident: u16, fragment: u16) -> [u8; 20] {
        let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 51, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[4..6].copy_from_slice(&ident.to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        Ipv4::parse_quoted(&mut header[..]).unwrap().fill_checksum();
        header
    }

    fn ident_after(mut header: [u8; 20]) -> u16 {
        let mut packet = Packet::new(&mut header, 0, 20).unwrap();
        set_ipv4_ident_if_zero(&mut packet, 77);
        let ip = Ipv4::parse(packet.data()).unwrap();
        assert!(ip.verify_checksum());
        ip.ident()
    }

    #[test]
    fn only_whole_packets_without_identification_get_one() {
        assert_eq!(ident_after(header(0, 0)), 77);
        assert_eq!(ident_after(header(0, 0x4000)), 77);
        assert_eq!(ident_after(header(5, 0)), 5);
        assert_eq!(ident_after(header(0, 0x2000)), 0, "first fragment");
        assert_eq!(ident_after(header(0, 9)), 0, "later fragment");
        let mut v6 = [0x60; 40];
        set_ipv4_ident_if_zero(&mut Packet::new(&mut v6, 0, 40).unwrap(), 77);
        assert_eq!(v6, [0x60; 40]);
    }
}
