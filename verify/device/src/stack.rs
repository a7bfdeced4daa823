//! The stack: smoltcp over a guarded device, and the sockets of its services.

use crate::keys::{self, LIMITS};
use crate::link::OneNeighbour;
use crate::services::Services;
use casemate_linux::rng::SystemRng;
use casemate_smoltcp::{Guarded, Setup};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::TunTapInterface;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, Ipv4Address, Ipv6Address};
use std::path::Path;

pub(crate) struct Stack {
    device: Guarded<OneNeighbour<TunTapInterface>>,
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
    services: Services,
}

impl Stack {
    pub(crate) fn new(
        device: OneNeighbour<TunTapInterface>,
        addresses: &[IpCidr],
        now: casemate_sa::Instant,
    ) -> Result<Self, String> {
        let endpoint = keys::none(now);
        let rng = SystemRng::new().map_err(|error| error.to_string())?;
        let mut device = Guarded::new(device, Setup { endpoint, rng: Box::new(rng), limits: LIMITS });
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        let mut refused = false;
        interface.update_ip_addrs(|list| {
            refused = addresses.iter().any(|cidr| list.push(*cidr).is_err());
        });
        // On a link without addresses a gateway is only a name for "out".
        let routes = interface.routes_mut();
        refused |= routes.add_default_ipv4_route(Ipv4Address::new(192, 0, 2, 1)).is_err();
        refused |= routes.add_default_ipv6_route(Ipv6Address::LOCALHOST).is_err();
        if refused {
            return Err(format!("{} addresses are more than the stack takes", addresses.len()));
        }
        let mut sockets = SocketSet::new(vec![]);
        let services = Services::open(&mut sockets);
        Ok(Self { device, interface, sockets, services })
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        self.services.serve(&mut self.sockets);
        // What the services have said goes at once.
        self.interface.poll(now, &mut self.device, &mut self.sockets);
    }

    /// Milliseconds until smoltcp has something to do by itself.
    pub(crate) fn delay(&mut self, now: Instant) -> u64 {
        self.interface.poll_delay(now, &self.sockets).map_or(u64::MAX, |delay| delay.total_millis())
    }

    /// Other SAs and policies from now on, from a file.
    pub(crate) fn load(&mut self, path: &Path, now: Instant) -> Result<(), String> {
        let endpoint = keys::load(path, self.interface.ip_addrs(), casemate_smoltcp::from_smoltcp(now))?;
        *self.device.endpoint_mut() = endpoint;
        Ok(())
    }

    /// What the data path has dropped.
    pub(crate) fn drops(&self) -> String {
        let drops = self.device.endpoint().datapath().drops();
        let named: Vec<String> = drops
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        if named.is_empty() { "nothing dropped".into() } else { format!("dropped: {}", named.join(", ")) }
    }
}
