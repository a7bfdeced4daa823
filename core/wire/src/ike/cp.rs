//! Configuration payload (RFC 7296 section 3.15).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{CfgAttribute, CfgType, Fault, PayloadType, WriteError, Writer};

const HEADER_LEN: usize = 4;
/// The reserved bit in front of an attribute's type.
const RESERVED: u16 = 0x8000;

/// Questions about a configuration, or answers to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cp<'a> {
    /// What the attributes are: a request, a reply, and so on.
    pub kind: CfgType,
    attributes: &'a [u8],
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpAttribute<'a> {
    /// Its type, below 32768.
    pub kind: CfgAttribute,
    /// Its value: empty, or as long as its type wants it if that is known.
    pub value: &'a [u8],
}

impl<'a> Cp<'a> {
    /// The CP payload with this `body`.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (&[kind, _, _, _], attributes) = body.split_first_chunk().ok_or(Fault::BodyTruncated {
            payload: PayloadType::CP,
            len: body.len(),
            least: 4,
        })?;
        let (mut rest, mut kinds) = (attributes, Kinds::default());
        while !rest.is_empty() {
            let at = body.len().saturating_sub(rest.len());
            let attribute;
            (attribute, rest) = CpAttribute::split(rest, at)?;
            attribute.check()?;
            kinds.take(attribute.kind, at)?;
        }
        kinds.check()?;
        Ok(Self { kind: CfgType(kind), attributes })
    }

    /// The attributes; there may be none.
    pub fn attributes(&self) -> CpAttributes<'a> {
        CpAttributes(self.attributes)
    }
}

/// The attributes that are there, of those whose number RFC 7296 section 3.15.1 limits.
#[derive(Debug, Default)]
struct Kinds {
    v4_address: bool,
    netmask: bool,
    version: bool,
    supported: bool,
}

impl Kinds {
    /// Takes the attribute at offset `at`. Attributes that are not "multi-valued" are there once.
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
    /// The attribute at the start of `bytes`, and what is behind it.
    fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), Fault> {
        let truncated = Fault::CfgTruncated { at, len: bytes.len() };
        let (&[a, b, c, d], rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(truncated)?;
        let kind = CfgAttribute(u16::from_be_bytes([a, b]) & !RESERVED);
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([c, d]).into()).ok_or(truncated)?;
        Ok((Self { kind, value }, rest))
    }

    // The table of RFC 7296 section 3.15.1. Every value may be empty: in a request, and in CFG_ACK.
    fn check(&self) -> Result<(), Fault> {
        let (attribute, len) = (self.kind, self.value.len());
        let is_right = match attribute {
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
        if !is_right && len > 0 {
            return Err(Fault::CfgLength { attribute, len });
        }
        match self.v6_prefix() {
            Some((_, found)) if found > 128 => Err(Fault::CfgPrefix { attribute, found }),
            _ => Ok(()),
        }
    }

    /// The IPv4 address, if the attribute is one and not empty.
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

    /// The IPv6 address, if the attribute is one without a prefix length and not empty.
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

    /// Address and prefix length, if the attribute is INTERNAL_IP6_ADDRESS or INTERNAL_IP6_SUBNET and not empty.
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
mod tests;
