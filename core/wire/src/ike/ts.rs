//! Traffic Selector payloads (RFC 7296 section 3.13).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Fault, PayloadType, TsType, WriteError, Writer};

const HEADER_LEN: usize = 4;
const V4_LEN: usize = 16;
const V6_LEN: usize = 40;

/// The traffic selectors of one side; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ts<'a> {
    selectors: &'a [u8],
}

/// A traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selector<'a> {
    /// A range of addresses.
    Range(RangeSelector),
    /// A selector of a type that is unknown here.
    Other {
        /// Type of the selector.
        kind: TsType,
        /// The byte after the type, which most types reserve.
        second: u8,
        /// Data after the length.
        data: &'a [u8],
    },
}

/// A range of addresses, with a protocol and its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeSelector {
    /// IP protocol; 0 for all protocols.
    pub protocol: u8,
    /// Ports of the protocol; [`Ports::ANY`] for all protocols.
    pub ports: Ports,
    /// Addresses.
    pub addresses: Addresses,
}

/// First and last address of a range, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// TS_IPV4_ADDR_RANGE.
    V4 {
        /// First address.
        start: Ipv4Addr,
        /// Last address.
        end: Ipv4Addr,
    },
    /// TS_IPV6_ADDR_RANGE.
    V6 {
        /// First address.
        start: Ipv6Addr,
        /// Last address.
        end: Ipv6Addr,
    },
}

/// A range of ports, ANY or OPAQUE. Type and code of ICMP, and the type of a Mobility header, are encoded as
/// a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    start: u16,
    end: u16,
}

impl Ports {
    /// All ports, including packets whose ports are not visible.
    pub const ANY: Self = Self { start: 0, end: u16::MAX };
    /// Packets whose ports are not visible.
    pub const OPAQUE: Self = Self { start: u16::MAX, end: 0 };

    /// Creates the range from `start` to `end`. The range from 65535 to 0 is OPAQUE; otherwise `start` must
    /// not exceed `end`.
    pub const fn new(start: u16, end: u16) -> Result<Self, Fault> {
        if start > end && !(start == u16::MAX && end == 0) {
            return Err(Fault::SelectorPorts { start, end });
        }
        Ok(Self { start, end })
    }

    /// Creates a range of one ICMP type and code.
    pub const fn icmp(kind: u8, code: u8) -> Self {
        let port = u16::from_be_bytes([kind, code]);
        Self { start: port, end: port }
    }

    /// First port; 65535 for OPAQUE.
    #[inline]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// Last port; 0 for OPAQUE.
    #[inline]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// ICMP type and code at both ends of the range.
    pub const fn as_icmp(self) -> [(u8, u8); 2] {
        let ([a, b], [c, d]) = (self.start.to_be_bytes(), self.end.to_be_bytes());
        [(a, b), (c, d)]
    }
}

impl<'a> Ts<'a> {
    /// Parses the body of a payload of type `payload`, which is TSi or TSr.
    pub fn parse(payload: PayloadType, body: &'a [u8]) -> Result<Self, Fault> {
        let (&[count, _, _, _], selectors) = body
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Fault::BodyTruncated { payload, len: body.len(), min: HEADER_LEN })?;
        let (mut rest, mut found) = (selectors, 0usize);
        while !rest.is_empty() {
            let at = body.len().saturating_sub(rest.len());
            (_, rest) = Selector::split(rest, at)?;
            found = found.saturating_add(1);
        }
        if found == 0 || found != usize::from(count) {
            return Err(Fault::SelectorCount { claimed: count, found });
        }
        Ok(Self { selectors })
    }

    /// Traffic selectors of the payload.
    pub fn selectors(&self) -> Selectors<'a> {
        Selectors(self.selectors)
    }
}

impl<'a> Selector<'a> {
    /// Parses the selector at the start of `bytes`; returns it with the remaining bytes.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[kind, second, hi, lo] =
            bytes.first_chunk::<HEADER_LEN>().ok_or(Fault::SelectorTruncated { at, len })?;
        let (kind, claimed) = (TsType(kind), u16::from_be_bytes([hi, lo]));
        let wrong = Fault::SelectorLength { at, selector: kind, claimed, len };
        let (selector, remaining) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let data = selector.get(HEADER_LEN..).ok_or(wrong)?;
        let selector = match kind {
            TsType::IPV4_ADDR_RANGE => Self::Range(RangeSelector::v4(second, data, at).ok_or(wrong)??),
            TsType::IPV6_ADDR_RANGE => Self::Range(RangeSelector::v6(second, data, at).ok_or(wrong)??),
            _ => Self::Other { kind, second, data },
        };
        Ok((selector, remaining))
    }

    fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        match *self {
            Self::Range(range) => range.emit(out),
            Self::Other { kind, second, data } => {
                out.u8(kind.0)?;
                out.u8(second)?;
                out.count_u16(data.len().saturating_add(HEADER_LEN))?;
                out.bytes(data)
            }
        }
    }
}

impl RangeSelector {
    /// Parses ports and IPv4 addresses. Returns `None` if `data` has the wrong length.
    fn v4(protocol: u8, data: &[u8], at: usize) -> Option<Result<Self, Fault>> {
        let &[a, b, c, d, s0, s1, s2, s3, e0, e1, e2, e3] = data.as_array()?;
        let addresses =
            Addresses::V4 { start: Ipv4Addr::new(s0, s1, s2, s3), end: Ipv4Addr::new(e0, e1, e2, e3) };
        Some(Self::checked(protocol, [a, b, c, d], addresses, at))
    }

    /// Parses ports and IPv6 addresses. Returns `None` if `data` has the wrong length.
    fn v6(protocol: u8, data: &[u8], at: usize) -> Option<Result<Self, Fault>> {
        let (&ports, addresses) = data.split_first_chunk::<4>()?;
        let (&start, end) = addresses.split_first_chunk::<16>()?;
        let addresses = Addresses::V6 { start: start.into(), end: (*end.as_array::<16>()?).into() };
        Some(Self::checked(protocol, ports, addresses, at))
    }

    fn checked(protocol: u8, [a, b, c, d]: [u8; 4], addresses: Addresses, at: usize) -> Result<Self, Fault> {
        let (start, end) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let ports = Ports::new(start, end)?;
        // RFC 7296 section 3.13.1: for protocol 0, the ports must be 0 and 65535.
        if protocol == 0 && ports != Ports::ANY {
            return Err(Fault::SelectorPortsOfAll { start, end });
        }
        let is_range = match addresses {
            Addresses::V4 { start, end } => start <= end,
            Addresses::V6 { start, end } => start <= end,
        };
        if !is_range {
            return Err(Fault::SelectorAddresses { at });
        }
        Ok(Self { protocol, ports, addresses })
    }

    fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        let (kind, len) = match self.addresses {
            Addresses::V4 { .. } => (TsType::IPV4_ADDR_RANGE, V4_LEN),
            Addresses::V6 { .. } => (TsType::IPV6_ADDR_RANGE, V6_LEN),
        };
        out.u8(kind.0)?;
        out.u8(self.protocol)?;
        out.count_u16(len)?;
        out.u16(self.ports.start)?;
        out.u16(self.ports.end)?;
        match self.addresses {
            Addresses::V4 { start, end } => {
                out.bytes(&start.octets())?;
                out.bytes(&end.octets())
            }
            Addresses::V6 { start, end } => {
                out.bytes(&start.octets())?;
                out.bytes(&end.octets())
            }
        }
    }
}

/// Writes the body of a TSi or TSr payload.
pub(super) fn emit(selectors: &[Selector<'_>], out: &mut Writer<'_>) -> Result<(), WriteError> {
    out.count_u8(selectors.len())?;
    out.bytes(&[0; 3])?;
    selectors.iter().try_for_each(|selector| selector.emit(out))
}

/// Iterator over the traffic selectors of a payload.
#[derive(Debug, Clone)]
pub struct Selectors<'a>(&'a [u8]);

impl<'a> Iterator for Selectors<'a> {
    type Item = Selector<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (selector, rest) = Selector::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(selector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const V4: [u8; 16] = [7, 6, 0, 16, 0, 80, 0, 90, 10, 0, 0, 1, 10, 0, 0, 9];

    fn v6() -> Vec<u8> {
        [&[8, 58, 0, 40, 8, 0, 8, 255][..], &[1; 16], &[2; 16]].concat()
    }

    fn parse(count: u8, selectors: &[u8]) -> Result<usize, Fault> {
        let body = [&[count, 0xff, 0xff, 0xff], selectors].concat();
        Ts::parse(PayloadType::TS_I, &body).map(|ts| ts.selectors().count())
    }

    /// Parses the IPv4 selector with the bytes at `at` replaced.
    fn changed(at: usize, bytes: &[u8]) -> Result<usize, Fault> {
        let mut selector = V4;
        selector[at..at + bytes.len()].copy_from_slice(bytes);
        parse(1, &selector)
    }

    #[test]
    fn selectors_of_both_families() {
        let body = [&[2, 0, 0, 0], &V4[..], &v6()].concat();
        let found: Vec<_> = Ts::parse(PayloadType::TS_R, &body).unwrap().selectors().collect();
        let v4 = RangeSelector {
            protocol: 6,
            ports: Ports::new(80, 90).unwrap(),
            addresses: Addresses::V4 { start: Ipv4Addr::new(10, 0, 0, 1), end: Ipv4Addr::new(10, 0, 0, 9) },
        };
        let v6 = RangeSelector {
            protocol: 58,
            ports: Ports::new(0x0800, 0x08ff).unwrap(),
            addresses: Addresses::V6 { start: [1; 16].into(), end: [2; 16].into() },
        };
        assert_eq!(found, [Selector::Range(v4), Selector::Range(v6)]);
        assert_eq!(v6.ports.as_icmp(), [(8, 0), (8, 255)]);
        assert_eq!(Ports::icmp(8, 0).as_icmp(), [(8, 0); 2]);
    }

    #[test]
    fn cve_2023_23009_wrong_selector_counts() {
        for claimed in 0..=255 {
            for found in 0..4 {
                let selectors = V4.repeat(found);
                let fault = Fault::SelectorCount { claimed, found };
                let expected =
                    if found > 0 && found == usize::from(claimed) { Ok(found) } else { Err(fault) };
                assert_eq!(parse(claimed, &selectors), expected);
            }
        }
        // 256 selectors exceed the range of the field.
        assert_eq!(parse(0, &V4.repeat(256)), Err(Fault::SelectorCount { claimed: 0, found: 256 }));
    }

    #[test]
    fn vpp_ab63c83_selectors_must_have_the_length_of_their_type() {
        for claimed in 0..=u16::MAX {
            let bytes = claimed.to_be_bytes();
            let fault = Fault::SelectorLength { at: 4, selector: TsType(7), claimed, len: 16 };
            assert_eq!(changed(2, &bytes), if claimed == 16 { Ok(1) } else { Err(fault) });
            let mut selector = v6();
            selector[2..4].copy_from_slice(&bytes);
            let fault = Fault::SelectorLength { at: 4, selector: TsType(8), claimed, len: 40 };
            assert_eq!(parse(1, &selector), if claimed == 40 { Ok(1) } else { Err(fault) });
        }
        // An IPv6 selector with the length of an IPv4 selector, and the reverse.
        assert!(changed(0, &[8]).is_err());
        let mut selector = v6();
        selector[0] = 7;
        assert!(parse(1, &selector).is_err());
        for len in 1..4 {
            assert_eq!(parse(1, &V4[..len]), Err(Fault::SelectorTruncated { at: 4, len }));
        }
    }

    #[test]
    fn ports_must_be_in_order_or_opaque() {
        assert_eq!(changed(4, &[0, 90, 0, 80]), Err(Fault::SelectorPorts { start: 90, end: 80 }));
        assert_eq!(changed(4, &[0xff, 0xff, 0, 1]), Err(Fault::SelectorPorts { start: 65_535, end: 1 }));
        assert_eq!(changed(4, &[0xff, 0xfe, 0, 0]), Err(Fault::SelectorPorts { start: 65_534, end: 0 }));
        // RFC 7296 section 3.13.1: OPAQUE, ANY.
        assert_eq!(changed(4, &[0xff, 0xff, 0, 0]), Ok(1));
        assert_eq!(changed(4, &[0, 0, 0xff, 0xff]), Ok(1));
        assert_eq!(Ports::new(0xffff, 0), Ok(Ports::OPAQUE));
        assert_eq!((Ports::ANY.start(), Ports::ANY.end()), (0, 65_535));
    }

    #[test]
    fn a_selector_for_all_protocols_has_no_ports() {
        let of_all = |start, end| Err(Fault::SelectorPortsOfAll { start, end });
        assert_eq!(changed(1, &[0]), of_all(80, 90));
        assert_eq!(changed(1, &[0, 0, 16, 0, 0, 0, 0]), of_all(0, 0));
        assert_eq!(changed(1, &[0, 0, 16, 0xff, 0xff, 0, 0]), of_all(65_535, 0));
        assert_eq!(changed(1, &[0, 0, 16, 0, 0, 0xff, 0xff]), Ok(1));
    }

    #[test]
    fn addresses_must_be_in_order() {
        assert_eq!(changed(8, &[10, 0, 0, 9]), Ok(1));
        assert_eq!(changed(8, &[10, 0, 0, 10]), Err(Fault::SelectorAddresses { at: 4 }));
        let mut selector = v6();
        selector[8] = 3;
        let second = [&V4[..], &selector].concat();
        assert_eq!(parse(2, &second), Err(Fault::SelectorAddresses { at: 20 }));
    }

    #[test]
    fn unknown_types_are_preserved() {
        let body = [&[1, 0, 0, 0, 10, 5, 0, 7], &b"lbl"[..]].concat();
        let ts = Ts::parse(PayloadType::TS_I, &body).unwrap();
        let label = Selector::Other { kind: TsType::SECLABEL, second: 5, data: b"lbl" };
        assert_eq!(ts.selectors().collect::<Vec<_>>(), vec![label]);
        let fault = Fault::SelectorLength { at: 4, selector: TsType(10), claimed: 3, len: 4 };
        assert_eq!(parse(1, &[10, 0, 0, 3]), Err(fault));
        for len in 0..4 {
            let fault = Fault::BodyTruncated { payload: PayloadType::TS_R, len, min: 4 };
            assert_eq!(Ts::parse(PayloadType::TS_R, &[0; 4][..len]), Err(fault));
        }
    }
}
