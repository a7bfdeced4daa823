//! The addresses that peers have assigned to this host.

use super::SystemState;
use super::lost_routes::host_len;
use crate::Error;
use crate::netlink::Netlink;
use crate::setup::routing_check::CheckReason;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// Released addresses that are remembered, at most.
const MAX_RELEASED: usize = 64;

/// The addresses that peers have assigned to this host.
#[derive(Debug, Default)]
pub(super) struct VirtualAddrs {
    assigned: BTreeSet<IpAddr>,
    /// The last addresses of IKE SAs that have ended, the oldest first. Packets from them may wait in the TUN
    /// interface, and Linux lets IPv6 sockets go on with an address that is gone.
    released: VecDeque<IpAddr>,
}

impl VirtualAddrs {
    pub(super) fn assign(&mut self, addrs: &[IpAddr]) {
        self.assigned.extend(addrs);
    }

    pub(super) fn release(&mut self, addrs: &[IpAddr]) {
        self.assigned.retain(|addr| !addrs.contains(addr));
        self.released.retain(|addr| !addrs.contains(addr));
        self.released.extend(addrs);
        self.released.drain(..self.released.len().saturating_sub(MAX_RELEASED));
    }

    /// The addresses that are assigned.
    pub(super) fn assigned(&self) -> impl Iterator<Item = IpAddr> {
        self.assigned.iter().copied()
    }

    /// The addresses from which packets may come: those that are assigned or were released.
    pub(super) fn sources(&self) -> BTreeSet<IpAddr> {
        self.assigned().chain(self.released.iter().copied()).collect()
    }
}

impl SystemState {
    /// Addresses from which no packet may leave in clear.
    pub(crate) fn virtual_sources(&self) -> BTreeSet<IpAddr> {
        self.virtual_addrs.sources()
    }

    /// Adds virtual addresses to the TUN interface. It may have one already, whose removal has failed, or by
    /// a command of the administrator.
    pub(super) fn add_addresses(&mut self, addrs: &[IpAddr]) -> Result<(), Error> {
        self.change_addresses(addrs, |netlink, tun, addr, len| match netlink.add_address(tun, addr, len) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            added => added,
        })
    }

    /// Removes virtual addresses from the TUN interface.
    pub(super) fn remove_addresses(&mut self, addrs: &[IpAddr]) -> Result<(), Error> {
        self.virtual_addrs.release(addrs);
        self.routing_check.request(CheckReason::OwnAddress);
        self.change_addresses(addrs, Netlink::remove_address)
    }

    /// Adds virtual addresses to the TUN interface, or removes them.
    pub(super) fn change_addresses(
        &mut self,
        addrs: &[IpAddr],
        change: fn(&mut Netlink, u32, IpAddr, u8) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Routes may prefer other source addresses now.
        (self.is_stale, self.addresses_changed) = (true, true);
        addrs
            .iter()
            .map(|addr| change(&mut self.netlink, self.tun, *addr, host_len(*addr)))
            .fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_may_come_from_released_addresses() {
        let addr = |n: u8| IpAddr::from([10, 9, 0, n]);
        let mut addrs = VirtualAddrs::default();
        addrs.assign(&[addr(1), addr(2)]);
        addrs.release(&[addr(1)]);
        assert_eq!(addrs.assigned().collect::<Vec<_>>(), [addr(2)]);
        assert_eq!(addrs.sources(), [addr(1), addr(2)].into());
        (3..=66).for_each(|n| addrs.release(&[addr(n)]));
        assert_eq!(
            addrs.released.iter().copied().collect::<Vec<_>>(),
            (3..=66).map(addr).collect::<Vec<_>>()
        );
        assert!(addrs.sources().contains(&addr(2)));
    }
}
