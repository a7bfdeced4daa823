//! The network stack: smoltcp with IPsec, the sockets of the services, IKE, and the link below.
//!
//! The link is plain Ethernet, or Ethernet with one neighbour whose address is known. The second kind needs
//! no ARP and no neighbour discovery, which the policies of the peer might drop.

use crate::config::{self, LIMITS};
use casemate::{Context, Endpoint, Notice};
use casemate_app::log::notice::log_line;
use casemate_app::status;
use casemate_firmware::{EchoDiscard, Http};
use casemate_ike::Event;
use casemate_linux::process::SystemRng;
use casemate_smoltcp::{IkeSockets, IpsecConfig, IpsecDevice, from_smoltcp};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TunTapInterface, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

/// Buffer size of echo and discard in bytes.
const ECHO_DISCARD_BUFFER: usize = 65_535;

pub(crate) struct Stack {
    device: IpsecDevice<EthernetLink<TunTapInterface>>,
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
    http: Http,
    echo_discard: EchoDiscard,
    ike: Option<IkeSockets>,
    /// IKE events of the last round.
    events: Vec<Event>,
}

impl Stack {
    pub(crate) fn new(
        link: EthernetLink<TunTapInterface>,
        addresses: &[IpCidr],
        gateways: &[IpAddr],
        now: casemate_sa::Instant,
    ) -> Result<Self, String> {
        let endpoint = config::unprotected(now);
        let rng = SystemRng::new().map_err(|error| error.to_string())?;
        let config = Config::new(link.hardware());
        let mut device = IpsecDevice::new(link, IpsecConfig { endpoint, rng: Box::new(rng), limits: LIMITS });
        let mut interface = Interface::new(config, &mut device, casemate_smoltcp::to_smoltcp(now));
        let mut refused = false;
        interface.update_ip_addrs(|list| {
            refused = addresses.iter().any(|cidr| list.push(*cidr).is_err());
        });
        if refused {
            return Err(format!("the network stack has no room for {} addresses", addresses.len()));
        }
        for gateway in gateways {
            let routes = interface.routes_mut();
            let route = match *gateway {
                IpAddr::V4(gateway) => routes.add_default_ipv4_route(gateway),
                IpAddr::V6(gateway) => routes.add_default_ipv6_route(gateway),
            };
            route
                .map_err(|_| format!("gateway {gateway}: the network stack has no room for another route"))?;
        }
        let mut sockets = SocketSet::new(vec![]);
        let (http, echo_discard) =
            (Http::open(&mut sockets), EchoDiscard::open(&mut sockets, ECHO_DISCARD_BUFFER));
        Ok(Self { device, interface, sockets, http, echo_discard, ike: None, events: Vec::new() })
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        self.http.serve(&mut self.sockets);
        self.echo_discard.serve(&mut self.sockets);
        self.serve_ike(now);
        // Send the packets of the services and of IKE now.
        self.interface.poll(now, &mut self.device, &mut self.sockets);
    }

    fn serve_ike(&mut self, now: Instant) {
        self.events.clear();
        let Some(ike) = &mut self.ike else { return };
        let mut notices: Vec<Notice> = Vec::new();
        ike.serve(now, &self.interface, &mut self.device, &mut self.sockets, |notice| notices.push(notice));
        for notice in notices {
            let sa = self.device.endpoint().sa_of(&notice);
            if let Some((_, line)) = log_line(&notice, sa.as_ref()) {
                eprintln!("{line}");
            }
            if let Notice::Ike(event) = notice {
                self.readdress(&event);
                self.events.push(event);
            }
        }
    }

    /// Adds and removes virtual IP addresses (RFC 7296 section 2.19).
    fn readdress(&mut self, event: &Event) {
        match event {
            Event::ConfigAssigned { new_addrs: fresh, .. } => self.interface.update_ip_addrs(|list| {
                for addr in fresh {
                    let host = if addr.is_ipv4() { 32 } else { 128 };
                    // At the front: it becomes the source address unless another address matches better.
                    if list.insert(0, IpCidr::new(IpAddress::from(*addr), host)).is_err() {
                        eprintln!("address {addr}: the network stack has no room for another address");
                    }
                }
            }),
            Event::AddrsReleased { addrs, .. } => self
                .interface
                .update_ip_addrs(|list| list.retain(|cidr| !addrs.contains(&IpAddr::from(cidr.address())))),
            _ => {}
        }
    }

    /// Returns the milliseconds until the next timer.
    pub(crate) fn delay(&mut self, now: Instant) -> u64 {
        let due = self.ike.as_ref().and_then(|ike| ike.due(&self.device));
        let ike = due.map(|due| if due > now { (due - now).total_millis() } else { 0 });
        let stack = self.interface.poll_delay(now, &self.sockets).map(|delay| delay.total_millis());
        ike.into_iter().chain(stack).min().unwrap_or(u64::MAX)
    }

    /// Replaces SAs and policies by those of a file with manual keys.
    pub(crate) fn load_keys(&mut self, path: &Path, now: Instant) -> Result<(), String> {
        if self.ike.is_some() {
            return Err("the device uses IKE: restart it to use manual keys".into());
        }
        let endpoint = config::from_xfrm(path, self.interface.ip_addrs(), from_smoltcp(now))?;
        self.device.replace_endpoint(endpoint);
        Ok(())
    }

    /// Replaces the IKE connections by those of a file.
    pub(crate) fn load_connections(&mut self, path: &Path, now: Instant) -> Result<(), String> {
        let config::Loaded { connections, pools, keys } = config::from_swanctl(path, from_smoltcp(now))?;
        match &mut self.ike {
            Some(ike) => ike.set_config(keys),
            None => {
                self.device.replace_endpoint(config::without_connections(from_smoltcp(now))?);
                self.ike = Some(IkeSockets::new(&mut self.device, &mut self.sockets, keys));
            }
        }
        self.with_ike(now, |endpoint, context| {
            endpoint.configure(connections, &pools, context).map_err(|error| error.to_string())
        })
    }

    /// Calls `act` with the endpoint. Returns an error if IKE is not configured.
    pub(crate) fn with_ike<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        let ike =
            self.ike.as_ref().ok_or("IKE is not configured: load connections first (`connections FILE`)")?;
        ike.with_endpoint(now, &self.interface, &mut self.device, act)
    }

    /// Returns the IKE events of the last round.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the IKE SAs and their Child SAs as JSON.
    pub(crate) fn ike_sas(&self, now: Instant) -> String {
        status::ike_sas(self.device.endpoint(), from_smoltcp(now)).to_string()
    }

    /// Returns the drop counters that are not 0.
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

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac([u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: expected an Ethernet address such as 02:00:00:00:00:01");
        let mut parts = text.split(':');
        let mut mac = [0; 6];
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(mac)) }
    }
}

const HEADER: usize = 14;
/// Destination and source address of the Ethernet header.
type Addresses = [u8; 12];

/// An Ethernet device. With a fixed neighbour it is presented as a device for IP packets.
pub(crate) struct EthernetLink<D> {
    device: D,
    own: Mac,
    fixed: Option<Addresses>,
}

impl<D: Device> EthernetLink<D> {
    pub(crate) fn new(device: D, own: Mac, neighbour: Option<Mac>) -> Self {
        let fixed = neighbour.map(|neighbour| {
            let mut addresses = [0; 12];
            addresses.iter_mut().zip(neighbour.0.iter().chain(&own.0)).for_each(|(to, from)| *to = *from);
            addresses
        });
        Self { device, own, fixed }
    }

    /// Returns the hardware address for an interface on this link.
    pub(crate) const fn hardware(&self) -> HardwareAddress {
        match self.fixed {
            Some(_) => HardwareAddress::Ip,
            None => HardwareAddress::Ethernet(EthernetAddress(self.own.0)),
        }
    }
}

impl<D: Device> Device for EthernetLink<D> {
    type RxToken<'a>
        = ReceivedFrame<D::RxToken<'a>>
    where
        Self: 'a;
    type TxToken<'a>
        = Room<D::TxToken<'a>>
    where
        Self: 'a;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let (rx, tx) = self.device.receive(now)?;
        let skipped = if self.fixed.is_some() { HEADER } else { 0 };
        Some((ReceivedFrame { token: rx, skipped }, Room { token: tx, fixed: self.fixed }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        Some(Room { token: self.device.transmit(now)?, fixed: self.fixed })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.device.capabilities();
        if self.fixed.is_some() {
            capabilities.max_transmission_unit = capabilities.ip_mtu();
            capabilities.medium = Medium::Ip;
        }
        capabilities
    }
}

/// A received frame.
pub(crate) struct ReceivedFrame<T> {
    token: T,
    skipped: usize,
}

impl<T: RxToken> RxToken for ReceivedFrame<T> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        // Without the header, ARP frames look like IP packets of an unknown version, which are dropped.
        self.token.consume(|frame| f(frame.get(self.skipped..).unwrap_or_default()))
    }
}

/// Permission to send a frame.
pub(crate) struct Room<T> {
    token: T,
    fixed: Option<Addresses>,
}

impl<T: TxToken> TxToken for Room<T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Some(addresses) = self.fixed else { return self.token.consume(len, f) };
        self.token.consume(len.saturating_add(HEADER), |frame| {
            let (front, packet) = frame.split_at_mut(HEADER.min(frame.len()));
            let written = f(packet);
            let kind =
                if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xDD] } else { [8, 0] };
            front.iter_mut().zip(addresses.iter().chain(&kind)).for_each(|(to, from)| *to = *from);
            written
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_have_six_bytes() {
        assert_eq!("02:00:00:00:0a:Ff".parse(), Ok(Mac([2, 0, 0, 0, 10, 255])));
        for wrong in ["", "02", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:0g"]
        {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
