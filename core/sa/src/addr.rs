//! Address pairs and ranges (RFC 4301 section 4.4.1.1 has lists of ranges in selectors; here a selector has
//! one range).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination address of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddrPair {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
}

/// An inclusive range of addresses of one IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddrRange {
    first: IpAddr,
    last: IpAddr,
}

/// Why two addresses, or an address and a prefix length, are not a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeError {
    /// The addresses have different IP versions.
    MixedVersions,
    /// The first address is above the last.
    Reversed,
    /// The prefix is longer than the address.
    PrefixTooLong,
}

impl AddrRange {
    /// All IPv4 addresses.
    pub const ANY_V4: Self =
        Self { first: IpAddr::V4(Ipv4Addr::UNSPECIFIED), last: IpAddr::V4(Ipv4Addr::BROADCAST) };
    /// All IPv6 addresses.
    pub const ANY_V6: Self =
        Self { first: IpAddr::V6(Ipv6Addr::UNSPECIFIED), last: IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)) };

    /// The range from `first` to `last`, inclusive.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, RangeError> {
        if first.is_ipv4() != last.is_ipv4() {
            return Err(RangeError::MixedVersions);
        }
        if first > last {
            return Err(RangeError::Reversed);
        }
        Ok(Self { first, last })
    }

    /// A range of one address.
    pub const fn single(addr: IpAddr) -> Self {
        Self { first: addr, last: addr }
    }

    /// All addresses that share the first `len` bits with `addr`. Host bits in `addr` are ignored.
    pub fn prefix(addr: IpAddr, len: u8) -> Result<Self, RangeError> {
        match addr {
            IpAddr::V4(addr) => {
                let host =
                    host_mask(128u8.checked_sub(32).and_then(|n| n.checked_add(len)), len <= 32)? as u32;
                let bits = addr.to_bits();
                Ok(Self {
                    first: Ipv4Addr::from_bits(bits & !host).into(),
                    last: Ipv4Addr::from_bits(bits | host).into(),
                })
            }
            IpAddr::V6(addr) => {
                let host = host_mask(Some(len), len <= 128)?;
                let bits = addr.to_bits();
                Ok(Self {
                    first: Ipv6Addr::from_bits(bits & !host).into(),
                    last: Ipv6Addr::from_bits(bits | host).into(),
                })
            }
        }
    }

    /// The lowest address.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub const fn last(&self) -> IpAddr {
        self.last
    }

    /// Whether the range has IPv4 addresses.
    pub const fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Whether the range contains `addr`.
    #[inline]
    pub fn contains(&self, addr: IpAddr) -> bool {
        // IpAddr orders every IPv4 address below every IPv6 address, so IP versions never mix here.
        self.first <= addr && addr <= self.last
    }

    /// The prefix length, if the range is a prefix.
    pub fn prefix_len(&self) -> Option<u8> {
        let (first, last, width) = match (self.first, self.last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32u32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return None,
        };
        let differ = first ^ last;
        let host_bits = 128u32.checked_sub(differ.leading_zeros())?;
        let is_mask = differ & differ.wrapping_add(1) == 0 && first & differ == 0;
        if is_mask { width.checked_sub(host_bits)?.try_into().ok() } else { None }
    }
}

/// The low `128 - len` bits, as a mask.
fn host_mask(len: Option<u8>, fits: bool) -> Result<u128, RangeError> {
    match len {
        Some(len) if fits => Ok(u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)),
        _ => Err(RangeError::PrefixTooLong),
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_len() {
            Some(len) => write!(f, "{}/{len}", self.first),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    fn range(text: &str, len: u8) -> AddrRange {
        AddrRange::prefix(text.parse().unwrap(), len).unwrap()
    }

    #[test]
    fn prefixes() {
        for (addr, len, shown) in [
            ("10.1.2.3", 8, "10.0.0.0/8"),
            ("10.1.2.3", 0, "0.0.0.0/0"),
            ("10.1.2.3", 32, "10.1.2.3/32"),
            ("fd00::1", 64, "fd00::/64"),
            ("fd00::1", 0, "::/0"),
            ("fd00::1", 128, "fd00::1/128"),
        ] {
            assert_eq!(range(addr, len).to_string(), shown);
            assert_eq!(range(addr, len).prefix_len(), Some(len));
        }
        assert_eq!(range("0.0.0.0", 0), AddrRange::ANY_V4);
        assert_eq!(range("::", 0), AddrRange::ANY_V6);
        assert_eq!(AddrRange::prefix("10.0.0.0".parse().unwrap(), 33), Err(RangeError::PrefixTooLong));
        assert_eq!(AddrRange::prefix("::".parse().unwrap(), 129), Err(RangeError::PrefixTooLong));
    }

    #[test]
    fn ranges_without_prefix_length() {
        let range = AddrRange::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()).unwrap();
        assert_eq!(range.prefix_len(), None);
        assert_eq!(range.to_string(), "10.0.0.1-10.0.0.2");
        assert!(range.contains("10.0.0.2".parse().unwrap()));
        assert!(!range.contains("10.0.0.3".parse().unwrap()));
        assert!(!AddrRange::ANY_V4.contains("::".parse().unwrap()));
        assert_eq!(AddrRange::new(range.last(), range.first()), Err(RangeError::Reversed));
    }
}
