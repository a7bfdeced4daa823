//! Our virtual addresses, while several IKE SAs have the same one: the old and the new one during
//! reauthentication (RFC 7296 section 2.8.3).

use alloc::vec::Vec;
use casemate_tables::Table;
use core::net::IpAddr;

/// How many IKE SAs have each address that a peer assigned to us, by [`bits`].
#[derive(Debug, Default)]
pub(crate) struct AssignedAddrs(Table<u128, usize>);

impl AssignedAddrs {
    /// An IKE SA has these addresses. Returns those that no other had.
    pub(crate) fn hold(&mut self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let is_fresh = |addr: &&IpAddr| {
            let holders = self.0.get(bits(**addr)).copied().unwrap_or(0);
            self.0.insert(bits(**addr), holders.saturating_add(1));
            holders == 0
        };
        addrs.iter().filter(is_fresh).copied().collect()
    }

    /// An IKE SA that had these addresses is gone. Returns those that no other has.
    pub(crate) fn release(&mut self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let is_gone = |addr: &&IpAddr| match self.0.remove(bits(**addr)) {
            Some(holders @ 2..) => {
                self.0.insert(bits(**addr), holders.saturating_sub(1));
                false
            }
            held => held.is_some(),
        };
        addrs.iter().filter(is_gone).copied().collect()
    }
}

/// The bits of an IPv6 address, or of an IPv4-mapped one.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_fresh_once_and_gone_once() {
        let [a, b] = ["10.0.0.1", "fd00::1"].map(|addr| addr.parse::<IpAddr>().unwrap());
        let mut known = AssignedAddrs::default();
        assert_eq!(known.hold(&[a]), [a]);
        assert_eq!(known.hold(&[a, b, b]), [b]);
        assert!(known.release(&[a]).is_empty());
        assert_eq!(known.release(&[a, b, b]), [a, b]);
        assert_eq!((known.release(&[a]), known.0.len()), (Vec::new(), 0), "it was not held");
    }
}
