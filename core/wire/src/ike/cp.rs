//! Configuration payload (RFC 7296 section 3.15).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{CfgAttribute, CfgType, Fault, PayloadType, WriteError, Writer};

const HEADER_LEN: usize = 4;
/// Reserved bit before the type of an attribute.
const RESERVED: u16 = 0x8000;

/// A configuration request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cp<'a> {
    /// Type of the payload: a request, a reply, and so on.
    pub kind: CfgType,
    attributes: &'a [u8],
}

/// A configuration attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpAttribute<'a> {
    /// Type of the attribute, below 32768.
    pub kind: CfgAttribute,
    /// Value of the attribute: empty, or of the length that its type requires if the type is known.
    pub value: &'a [u8],
}

impl<'a> Cp<'a> {
    /// Parses the body of a CP payload.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (&[kind, _, _, _], attributes) = body.split_first_chunk().ok_or(Fault::BodyTruncated {
            payload: PayloadType::CP,
            len: body.len(),
            min: 4,
        })?;
        let (mut rest, mut seen) = (attributes, SeenAttributes::default());
        while !rest.is_empty() {
            let at = body.len().saturating_sub(rest.len());
            let attribute;
            (attribute, rest) = CpAttribute::split(rest, at)?;
            attribute.check()?;
            seen.take(attribute.kind, at)?;
        }
        seen.check()?;
        Ok(Self { kind: CfgType(kind), attributes })
    }

    /// Attributes; possibly none.
    pub fn attributes(&self) -> CpAttributes<'a> {
        CpAttributes(self.attributes)
    }
}

/// Attributes found so far whose number RFC 7296 section 3.15.1 limits.
#[derive(Debug, Default)]
struct SeenAttributes {
    v4_address: bool,
    netmask: bool,
    version: bool,
    supported: bool,
}

impl SeenAttributes {
    /// Records the attribute at offset `at`. Attributes that are not "multi-valued" must be unique.
    fn take(&mut self, attribute: CfgAttribute, at: usize) -> Result<(), Fault> {
        let seen = match attribute {
            CfgAttribute::INTERNAL_IP4_ADDRESS => {
                self.v4_address = true;
                return Ok(());
            }
            CfgAttribute::INTERNAL_IP4_NETMASK => &mut self.netmask,
            CfgAttribute::APPLICATION_VERSION => &mut self.version,
            CfgAttribute::SUPPORTED_ATTRIBUTES => &mut self.supported,
            _ => return Ok(()),
        };
        if core::mem::replace(seen, true) { Err(Fault::CfgTwice { at, attribute }) } else { Ok(()) }
    }

    /// A netmask "MUST be used only with an INTERNAL_IP4_ADDRESS attribute".
    fn check(&self) -> Result<(), Fault> {
        if self.netmask && !self.v4_address { Err(Fault::CfgNetmaskAlone {}) } else { Ok(()) }
    }
}

impl<'a> CpAttribute<'a> {
    /// Parses the attribute at the start of `bytes`; returns it with the remaining bytes.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let truncated = Fault::CfgTruncated { at, len: bytes.len() };
        let (&[a, b, c, d], rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated)?;
        let kind = CfgAttribute(u16::from_be_bytes([a, b]) & !RESERVED);
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([c, d]).into()).ok_or(truncated)?;
        Ok((Self { kind, value }, rest))
    }

    // The table of RFC 7296 section 3.15.1. All values may be empty: in requests, and in CFG_ACK.
    fn check(&self) -> Result<(), Fault> {
        let (attribute, len) = (self.kind, self.value.len());
        let is_valid = match attribute {
            CfgAttribute::INTERNAL_IP4_ADDRESS
            | CfgAttribute::INTERNAL_IP4_NETMASK
            | CfgAttribute::INTERNAL_IP4_DNS
            | CfgAttribute::INTERNAL_IP4_NBNS
            | CfgAttribute::INTERNAL_IP4_DHCP => len == 4,
            CfgAttribute::INTERNAL_IP6_DNS | CfgAttribute::INTERNAL_IP6_DHCP => len == 16,
            CfgAttribute::INTERNAL_IP4_SUBNET => len == 8,
            CfgAttribute::INTERNAL_IP6_ADDRESS | CfgAttribute::INTERNAL_IP6_SUBNET => len == 17,
            CfgAttribute::SUPPORTED_ATTRIBUTES => len.is_multiple_of(2),
            _ => true,
        };
        if !is_valid && len > 0 {
            return Err(Fault::CfgLength { attribute, len });
        }
        match self.v6_prefix() {
            Some((_, found)) if found > 128 => Err(Fault::CfgPrefix { attribute, found }),
            _ => Ok(()),
        }
    }

    /// IPv4 address, if the attribute has that type and is not empty.
    pub fn v4(&self) -> Option<Ipv4Addr> {
        let is_one = matches!(
            self.kind,
            CfgAttribute::INTERNAL_IP4_ADDRESS
                | CfgAttribute::INTERNAL_IP4_NETMASK
                | CfgAttribute::INTERNAL_IP4_DNS
                | CfgAttribute::INTERNAL_IP4_NBNS
                | CfgAttribute::INTERNAL_IP4_DHCP
        );
        self.value.as_array::<4>().filter(|_| is_one).map(|address| (*address).into())
    }

    /// IPv6 address, if the attribute has that type (without a prefix length) and is not empty.
    pub fn v6(&self) -> Option<Ipv6Addr> {
        let is_one = matches!(self.kind, CfgAttribute::INTERNAL_IP6_DNS | CfgAttribute::INTERNAL_IP6_DHCP);
        self.value.as_array::<16>().filter(|_| is_one).map(|address| (*address).into())
    }

    /// Address and mask, if the attribute is INTERNAL_IP4_SUBNET and not empty.
    pub fn v4_subnet(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let is_one = self.kind == CfgAttribute::INTERNAL_IP4_SUBNET;
        let &[a, b, c, d, m0, m1, m2, m3] = self.value.as_array::<8>().filter(|_| is_one)?;
        Some((Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(m0, m1, m2, m3)))
    }

    /// Address and prefix length, if the attribute is INTERNAL_IP6_ADDRESS or INTERNAL_IP6_SUBNET and not
    /// empty.
    pub fn v6_prefix(&self) -> Option<(Ipv6Addr, u8)> {
        let is_one =
            matches!(self.kind, CfgAttribute::INTERNAL_IP6_ADDRESS | CfgAttribute::INTERNAL_IP6_SUBNET);
        match self.value.split_first_chunk::<16>().filter(|_| is_one)? {
            (address, &[len]) => Some(((*address).into(), len)),
            _ => None,
        }
    }

    fn emit(&self, out: &mut Writer<'_>) -> Result<(), WriteError> {
        if self.kind.0 & RESERVED != 0 {
            return Err(WriteError::TooLong);
        }
        out.u16(self.kind.0)?;
        out.count_u16(self.value.len())?;
        out.bytes(self.value)
    }
}

/// Writes the body of a CP payload.
pub(super) fn emit(
    kind: CfgType,
    attributes: &[CpAttribute<'_>],
    out: &mut Writer<'_>,
) -> Result<(), WriteError> {
    out.u8(kind.0)?;
    out.bytes(&[0; 3])?;
    attributes.iter().try_for_each(|attribute| attribute.emit(out))
}

/// The attributes of a CP payload.
#[derive(Debug, Clone)]
pub struct CpAttributes<'a>(&'a [u8]);

impl<'a> Iterator for CpAttributes<'a> {
    type Item = CpAttribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (attribute, rest) = CpAttribute::split(self.0, 0).ok()?;
        self.0 = rest;
        Some(attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn parse(kind: u16, value: &[u8]) -> Result<(), Fault> {
        let [a, b] = kind.to_be_bytes();
        let [c, d] = u16::try_from(value.len()).unwrap().to_be_bytes();
        let body = [&[1, 0xff, 0xff, 0xff, a, b, c, d], value].concat();
        // A netmask needs an address.
        let address: &[u8] = if kind & 0x7fff == 2 { &[0, 1, 0, 0] } else { &[] };
        let body = [body.as_slice(), address].concat();
        let cp = Cp::parse(&body)?;
        assert_eq!(cp.attributes().next(), Some(CpAttribute { kind: CfgAttribute(kind & 0x7fff), value }));
        assert_eq!(cp.attributes().count(), 1 + address.len() / 4);
        Ok(())
    }

    #[test]
    fn a_netmask_must_be_unique_and_accompany_an_address() {
        let parse = |kinds: &[u8]| {
            let attributes: Vec<u8> = kinds.iter().flat_map(|kind| [0, *kind, 0, 0]).collect();
            Cp::parse(&[&[1, 0, 0, 0], attributes.as_slice()].concat()).map(|cp| cp.attributes().count())
        };
        assert_eq!(parse(&[1, 2]), Ok(2));
        assert_eq!(parse(&[2, 1, 1, 3, 3, 8, 8]), Ok(7));
        for alone in [&[2][..], &[2, 3], &[8, 2, 10]] {
            assert_eq!(parse(alone), Err(Fault::CfgNetmaskAlone {}), "{alone:?}");
        }
        // RFC 7296 section 3.15.1: not "multi-valued".
        for (kind, attribute) in [
            (2, CfgAttribute::INTERNAL_IP4_NETMASK),
            (7, CfgAttribute::APPLICATION_VERSION),
            (14, CfgAttribute::SUPPORTED_ATTRIBUTES),
        ] {
            assert_eq!(parse(&[1, kind, 3, kind]), Err(Fault::CfgTwice { at: 16, attribute }));
            assert_eq!(parse(&[1, kind, 3]), Ok(3));
        }
    }

    #[test]
    fn value_lengths_match_the_table() {
        // RFC 7296 section 3.15.1.
        let table: [(u16, &[usize]); 12] = [
            (1, &[0, 4]),
            (2, &[0, 4]),
            (3, &[0, 4]),
            (4, &[0, 4]),
            (6, &[0, 4]),
            (8, &[0, 17]),
            (10, &[0, 16]),
            (12, &[0, 16]),
            (13, &[0, 8]),
            (14, &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
            (15, &[0, 17]),
            (0x8001, &[0, 4]),
        ];
        for (kind, right) in table {
            for len in 0..20 {
                let fault = Fault::CfgLength { attribute: CfgAttribute(kind & 0x7fff), len };
                let expected = if right.contains(&len) { Ok(()) } else { Err(fault) };
                assert_eq!(parse(kind, &vec![1; len]), expected, "{kind} {len}");
            }
        }
        for len in 0..20 {
            assert_eq!(parse(7, &vec![1; len]), Ok(()));
            assert_eq!(parse(30_000, &vec![1; len]), Ok(()));
        }
    }

    #[test]
    fn prefixes_have_at_most_128_bits() {
        for found in 0..=255 {
            let value = [&[0xfd; 16][..], &[found]].concat();
            for attribute in [CfgAttribute::INTERNAL_IP6_ADDRESS, CfgAttribute::INTERNAL_IP6_SUBNET] {
                let fault = Fault::CfgPrefix { attribute, found };
                assert_eq!(parse(attribute.0, &value), if found <= 128 { Ok(()) } else { Err(fault) });
            }
        }
    }

    #[test]
    fn attributes_must_not_exceed_the_payload() {
        let good = [2, 0, 0, 0, 0, 7, 0, 2, b'v', b'1', 0, 1, 0, 0];
        assert_eq!(Cp::parse(&good).unwrap().attributes().count(), 2);
        for len in 0..good.len() {
            let expected = match len {
                0..4 => Err(Fault::BodyTruncated { payload: PayloadType::CP, len, min: 4 }),
                4 => Ok(0),
                10 => Ok(1),
                5..10 => Err(Fault::CfgTruncated { at: 4, len: len - 4 }),
                _ => Err(Fault::CfgTruncated { at: 10, len: len - 10 }),
            };
            assert_eq!(Cp::parse(&good[..len]).map(|cp| cp.attributes().count()), expected, "{len}");
        }
    }

    #[test]
    fn values_are_read_by_their_type() {
        let attribute = |kind, value| CpAttribute { kind, value };
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        let dns = attribute(CfgAttribute::INTERNAL_IP4_DNS, &[192, 0, 2, 1]);
        assert_eq!((dns.v4(), dns.v6(), dns.v4_subnet(), dns.v6_prefix()), (Some(v4), None, None, None));
        assert_eq!(attribute(CfgAttribute::APPLICATION_VERSION, b"1234").v4(), None);
        assert_eq!(attribute(CfgAttribute::INTERNAL_IP4_DNS, &[]).v4(), None);
        assert_eq!(attribute(CfgAttribute::INTERNAL_IP6_DNS, &[1; 16]).v6(), Some([1; 16].into()));
        let subnet = attribute(CfgAttribute::INTERNAL_IP4_SUBNET, &[192, 0, 2, 1, 255, 255, 255, 0]);
        assert_eq!(subnet.v4_subnet(), Some((v4, Ipv4Addr::new(255, 255, 255, 0))));
        let prefix = attribute(CfgAttribute::INTERNAL_IP6_SUBNET, &[1; 17]);
        assert_eq!(prefix.v6_prefix(), Some(([1; 16].into(), 1)));
    }
}
