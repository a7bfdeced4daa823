//! Explicit congestion notification across tunnels (RFC 6040) and across fragments (RFC 3168 section 5.3).
//!
//! [`encapsulate`] returns the codepoint of the outer header, and [`decapsulate`] the new codepoint of the
//! inner header. Both are pure functions. [`Ecn::from_packet`] reads the codepoint of a packet, and
//! [`Ecn::write_to`] writes it.

use casemate_wire::Malformed;
use casemate_wire::checksum::{self, Sum};
use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6};

/// The ECN codepoint: the two low bits of the IPv4 TOS byte or of the IPv6 traffic class (RFC 3168 section
/// 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not support ECN.
    NotEct = 0b00,
    /// ECN-capable transport, codepoint ECT(1).
    Ect1 = 0b01,
    /// ECN-capable transport, codepoint ECT(0).
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

/// How the ingress sets the codepoint of the outer header (RFC 6040 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingress {
    /// Copies the inner codepoint.
    Normal,
    /// Clears the codepoint, for an egress that would lose congestion marks.
    Compatibility,
}

/// Risk of a combination of inner and outer codepoint that no known tunnel produces (RFC 6040 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Danger {
    /// "(!)": currently unused and possibly dangerous.
    Possible,
    /// "(!!!)": currently unused and always potentially dangerous.
    Always,
}

/// What the egress does with a packet (RFC 6040 figure 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Egress {
    /// Forwards the inner packet with this codepoint.
    Forward(Ecn),
    /// Forwards the inner packet with this codepoint, but the combination SHOULD be logged.
    Suspect(Ecn, Danger),
    /// Drops the packet: it has a congestion mark, but its transport does not support ECN. The drop SHOULD be
    /// logged.
    Drop,
}

/// The outer codepoint for a packet with this inner codepoint (RFC 6040 figure 3). The inner codepoint does
/// not change.
pub const fn encapsulate(inner: Ecn, ingress: Ingress) -> Ecn {
    match ingress {
        Ingress::Normal => inner,
        Ingress::Compatibility => Ecn::NotEct,
    }
}

/// What to do with a packet that arrived with these codepoints (RFC 6040 figure 4).
pub const fn decapsulate(inner: Ecn, outer: Ecn) -> Egress {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    match (inner, outer) {
        (NotEct, NotEct) => Egress::Forward(NotEct),
        (NotEct, Ect0 | Ect1) => Egress::Suspect(NotEct, Danger::Always),
        (NotEct, Ce) => Egress::Drop,
        (Ect1, Ect0) => Egress::Suspect(Ect1, Danger::Possible),
        (Ce, Ect1) => Egress::Suspect(Ce, Danger::Always),
        (Ect0 | Ect1, Ce) | (Ce, NotEct | Ect0 | Ce) => Egress::Forward(Ce),
        (Ect0, Ect1) | (Ect1, NotEct | Ect1) => Egress::Forward(Ect1),
        (Ect0, NotEct | Ect0) => Egress::Forward(Ect0),
    }
}

/// The codepoint of a datagram with two fragments that carry `a` and `b`; `None` if the datagram must be
/// dropped.
///
/// A congestion mark MUST NOT be lost, and MUST NOT be set if any fragment is Not-ECT (RFC 3168 section 5.3).
pub const fn combine(a: Ecn, b: Ecn) -> Option<Ecn> {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    match (a, b) {
        (NotEct, Ce) | (Ce, NotEct) => None,
        (Ce, _) | (_, Ce) => Some(Ce),
        // For combinations that the RFC does not define, the result claims no more than every fragment does.
        (NotEct, _) | (_, NotEct) => Some(NotEct),
        (Ect1, _) | (_, Ect1) => Some(Ect1),
        (Ect0, Ect0) => Some(Ect0),
    }
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS byte or traffic class.
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// `tos` with this codepoint in its low two bits.
    pub const fn apply_to_tos(self, tos: u8) -> u8 {
        (tos & !0b11) | self as u8
    }

    /// The codepoint of an IP packet.
    pub fn from_packet(packet: &[u8]) -> Result<Self, Malformed> {
        Ok(Self::from_tos(match ip::version(packet)? {
            IpVersion::V4 => Ipv4::parse_quoted(packet)?.ecn(),
            IpVersion::V6 => Ipv6::parse_quoted(packet)?.ecn(),
        }))
    }

    /// Writes the codepoint to an IP packet. Updates the IPv4 header checksum incrementally.
    pub fn write_to(self, packet: &mut [u8]) -> Result<(), Malformed> {
        match ip::version(packet)? {
            IpVersion::V4 => {
                let mut ip = Ipv4::parse_quoted(packet)?;
                // Only the low byte of the first 16-bit word of the header changes (RFC 1624).
                let old = Sum::ZERO.add_u16(ip.tos().into());
                ip.set_ecn(self as u8);
                let new = Sum::ZERO.add_u16(ip.tos().into());
                ip.set_checksum(checksum::adjust(ip.checksum(), old, new));
            }
            IpVersion::V6 => Ipv6::parse_quoted(packet)?.set_ecn(self as u8),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    use proptest::prelude::*;

    const ALL: [Ecn; 4] = [NotEct, Ect0, Ect1, Ce];

    #[test]
    fn figure_3() {
        for ecn in ALL {
            assert_eq!(encapsulate(ecn, Ingress::Normal), ecn);
            assert_eq!(encapsulate(ecn, Ingress::Compatibility), NotEct);
        }
    }

    #[test]
    fn figure_4() {
        use Danger::{Always, Possible};
        use Egress::{Drop, Forward, Suspect};
        // Rows: inner; columns: outer, both in the order of the RFC.
        let figure = [
            [Forward(NotEct), Suspect(NotEct, Always), Suspect(NotEct, Always), Drop],
            [Forward(Ect0), Forward(Ect0), Forward(Ect1), Forward(Ce)],
            [Forward(Ect1), Suspect(Ect1, Possible), Forward(Ect1), Forward(Ce)],
            [Forward(Ce), Forward(Ce), Suspect(Ce, Always), Forward(Ce)],
        ];
        for (inner, row) in ALL.into_iter().zip(figure) {
            for (outer, expected) in ALL.into_iter().zip(row) {
                assert_eq!(decapsulate(inner, outer), expected, "inner {inner:?}, outer {outer:?}");
            }
        }
    }

    #[test]
    fn combination_does_not_depend_on_the_order() {
        let fold = |set: [Ecn; 3]| set.into_iter().try_fold(set[0], combine);
        for (a, b, c) in
            ALL.iter().flat_map(|a| ALL.iter().flat_map(move |b| ALL.iter().map(move |c| (*a, *b, *c))))
        {
            let whole = fold([a, b, c]);
            for order in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
                assert_eq!(fold(order), whole);
            }
            let any = |ecn| [a, b, c].contains(&ecn);
            match whole {
                None => assert!(any(Ce) && any(NotEct)),
                Some(Ce) => assert!(any(Ce) && !any(NotEct)),
                Some(_) => assert!(!any(Ce), "a mark was lost"),
            }
            if a == b && b == c {
                assert_eq!(whole, Some(a));
            }
        }
    }

    proptest! {
        #[test]
        fn codepoints_in_packets(tos: u8, rest: [u8; 18]) {
            for ecn in ALL {
                prop_assert_eq!(Ecn::from_tos(ecn.apply_to_tos(tos)), ecn);
                prop_assert_eq!(ecn.apply_to_tos(tos) >> 2, tos >> 2);

                let mut v4 = [[0x45, tos].as_slice(), &rest].concat();
                v4[2..4].copy_from_slice(&20u16.to_be_bytes());
                Ipv4::parse(&mut v4[..]).unwrap().fill_checksum();
                ecn.write_to(&mut v4).unwrap();
                let ip = Ipv4::parse(&v4[..]).unwrap();
                prop_assert!(ip.verify_checksum());
                prop_assert_eq!(ip.tos(), ecn.apply_to_tos(tos));
                prop_assert_eq!(Ecn::from_packet(&v4), Ok(ecn));

                let mut v6 = std::vec![0x11; 40];
                v6[..2].copy_from_slice(&[0x60 | tos >> 4, tos << 4 | 7]);
                let before = v6.clone();
                ecn.write_to(&mut v6).unwrap();
                prop_assert_eq!(Ipv6::parse_quoted(&v6[..]).unwrap().traffic_class(), ecn.apply_to_tos(tos));
                prop_assert_eq!(Ecn::from_packet(&v6), Ok(ecn));
                prop_assert_eq!(&v6[2..], &before[2..]);
                prop_assert_eq!(v6[1] & 0x0f, 7);
            }
        }
    }

    #[test]
    fn invalid_packets_are_rejected() {
        for bytes in [&[][..], &[0x45], &[0x60; 39], &[0x50; 60]] {
            assert!(Ecn::from_packet(bytes).is_err());
            assert!(Ce.write_to(&mut bytes.to_vec()).is_err());
        }
    }
}
