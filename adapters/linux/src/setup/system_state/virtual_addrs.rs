//! The addresses that peers have assigned to this host.

use super::SystemState;
use super::lost_routes::host_len;
use crate::Error;
use crate::netlink::Netlink;
use crate::setup::routing_check::CheckReason;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time until the last packet from a released address has been read from the TUN interface.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The addresses that peers have assigned to this host.
#[derive(Debug, Default)]
pub(super) struct VirtualAddrs {
    assigned: BTreeSet<IpAddr>,
    /// Addresses of IKE SAs that have ended a short time ago.
    released: Vec<Released>,
}

#[derive(Debug)]
struct Released {
    addr: IpAddr,
    at: Instant,
}

impl VirtualAddrs {
    pub(super) fn assign(&mut self, addrs: &[IpAddr]) {
        self.assigned.extend(addrs);
    }

    pub(super) fn release(&mut self, now: Instant, addrs: &[IpAddr]) {
        self.assigned.retain(|addr| !addrs.contains(addr));
        self.released.extend(addrs.iter().map(|&addr| Released { addr, at: now }));
    }

    /// The addresses that are assigned.
    pub(super) fn assigned(&self) -> impl Iterator<Item = IpAddr> {
        self.assigned.iter().copied()
    }

    /// The addresses from which packets may come: those that are assigned or were released a short time ago.
    pub(super) fn sources(&mut self, now: Instant) -> BTreeSet<IpAddr> {
        self.released.retain(|released| now.saturating_duration_since(released.at) < DRAIN_TIME);
        self.assigned().chain(self.released.iter().map(|released| released.addr)).collect()
    }
}

impl SystemState {
    /// Addresses from which no packet may leave in clear.
    pub(crate) fn virtual_sources(&mut self) -> BTreeSet<IpAddr> {
        self.virtual_addrs.sources(Instant::now())
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
        self.virtual_addrs.release(Instant::now(), addrs);
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
    fn packets_may_come_from_a_released_address_for_a_second() {
        let [first, second] = [[10, 9, 0, 1], [10, 9, 0, 2]].map(IpAddr::from);
        let (mut addrs, start) = (VirtualAddrs::default(), Instant::now());
        addrs.assign(&[first, second]);
        addrs.release(start, &[first]);
        assert_eq!(addrs.assigned().collect::<Vec<_>>(), [second]);
        let at = |millis| start.checked_add(Duration::from_millis(millis)).unwrap();
        assert_eq!(addrs.sources(at(999)), [first, second].into());
        assert_eq!(addrs.sources(at(1_000)), [second].into());
        addrs.assign(&[first]);
        assert_eq!(addrs.sources(at(1_000)), [first, second].into());
    }
}
