//! Traffic Selector payloads (RFC 7296 section 3.13).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Fault, PayloadType, TsType, WriteError, Writer};

const HEADER_LEN: usize = 4;
const V4_LEN: usize = 16;
const V6_LEN: usize = 40;

/// The traffic selectors of one side: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ts<'a> {
    selectors: &'a [u8],
}

/// One traffic selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selector<'a> {
    /// A range of addresses.
    Range(RangeSelector),
    /// A type that is unknown here.
    Other {
        /// The type.
        kind: TsType,
        /// The byte behind the type, which most types reserve.
        second: u8,
        /// What follows the length.
        data: &'a [u8],
    },
}

/// A range of addresses, with a protocol and its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeSelector {
    /// The IP protocol; 0 for all.
    pub protocol: u8,
    /// The ports of the protocol; ANY for all protocols.
    pub ports: Ports,
    /// The addresses.
    pub addresses: Addresses,
}

/// First and last address of a range, both inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// TS_IPV4_ADDR_RANGE.
    V4 {
        /// The first.
        start: Ipv4Addr,
        /// The last.
        end: Ipv4Addr,
    },
    /// TS_IPV6_ADDR_RANGE.
    V6 {
        /// The first.
        start: Ipv6Addr,
        /// The last.
        end: Ipv6Addr,
    },
}

/// A range of ports, ANY or OPAQUE. ICMP's type and code, and the type of a mobility header, count as a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    start: u16,
    end: u16,
}

impl Ports {
    /// All ports, and packets whose ports cannot be seen.
    pub const ANY: Self = Self { start: 0, end: u16::MAX };
    /// Packets whose ports cannot be seen.
    pub const OPAQUE: Self = Self { start: u16::MAX, end: 0 };

    /// The ports from `start` to `end`; 65535 and 0 are OPAQUE, all else must be in order.
    pub const fn new(start: u16, end: u16) -> Result<Self, Fault> {
        if start > end && !(start == u16::MAX && end == 0) {
            return Err(Fault::SelectorPorts { start, end });
        }
        Ok(Self { start, end })
    }

    /// One type and code of ICMP.
    pub const fn icmp(kind: u8, code: u8) -> Self {
        let port = u16::from_be_bytes([kind, code]);
        Self { start: port, end: port }
    }

    /// The first port; that of OPAQUE is 65535.
    #[inline]
    pub const fn start(self) -> u16 {
        self.start
    }

    /// The last port; that of OPAQUE is 0.
    #[inline]
    pub const fn end(self) -> u16 {
        self.end
    }

    /// Type and code of ICMP at both ends of the range.
    pub const fn as_icmp(self) -> [(u8, u8); 2] {
        let ([a, b], [c, d]) = (self.start.to_be_bytes(), self.end.to_be_bytes());
        [(a, b), (c, d)]
    }
}

impl<'a> Ts<'a> {
    /// The payload of type `payload`, TSi or TSr, with this `body`.
    pub fn parse(payload: PayloadType, body: &'a [u8]) -> Result<Self, Fault> {
        let (&[count, _, _, _], selectors) = body
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Fault::BodyTruncated { payload, len: body.len(), least: HEADER_LEN })?;
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

    /// The traffic selectors.
    pub fn selectors(&self) -> Selectors<'a> {
        Selectors(self.selectors)
    }
}

impl<'a> Selector<'a> {
    /// The selector at the start of `bytes`, and what is behind it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let len = bytes.len();
        let &[kind, second, hi, lo] =
            bytes.first_chunk::<HEADER_LEN>().ok_or(Fault::SelectorTruncated { at, len })?;
        let (kind, claimed) = (TsType(kind), u16::from_be_bytes([hi, lo]));
        let wrong = Fault::SelectorLength { at, selector: kind, claimed, len };
        let (selector, behind) = bytes.split_at_checked(claimed.into()).ok_or(wrong)?;
        let data = selector.get(HEADER_LEN..).ok_or(wrong)?;
        let selector = match kind {
            TsType::IPV4_ADDR_RANGE => Self::Range(RangeSelector::v4(second, data, at).ok_or(wrong)??),
            TsType::IPV6_ADDR_RANGE => Self::Range(RangeSelector::v6(second, data, at).ok_or(wrong)??),
            _ => Self::Other { kind, second, data },
        };
        Ok((selector, behind))
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
    /// Reads ports and IPv4 addresses; `None` if `data` has another length.
    fn v4(protocol: u8, data: &[u8], at: usize) -> Option<Result<Self, Fault>> {
        let &[a, b, c, d, s0, s1, s2, s3, e0, e1, e2, e3] = data.as_array()?;
        let addresses =
            Addresses::V4 { start: Ipv4Addr::new(s0, s1, s2, s3), end: Ipv4Addr::new(e0, e1, e2, e3) };
        Some(Self::checked(protocol, [a, b, c, d], addresses, at))
    }

    /// Reads ports and IPv6 addresses; `None` if `data` has another length.
    fn v6(protocol: u8, data: &[u8], at: usize) -> Option<Result<Self, Fault>> {
        let (&ports, addresses) = data.split_first_chunk::<4>()?;
        let (&start, end) = addresses.split_first_chunk::<16>()?;
        let addresses = Addresses::V6 { start: start.into(), end: (*end.as_array::<16>()?).into() };
        Some(Self::checked(protocol, ports, addresses, at))
    }

    fn checked(protocol: u8, [a, b, c, d]: [u8; 4], addresses: Addresses, at: usize) -> Result<Self, Fault> {
        let (start, end) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let ports = Ports::new(start, end)?;
        // RFC 7296 section 3.13.1: "including protocol 0", 0 and 65535.
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

/// The traffic selectors of a payload.
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
mod tests;
