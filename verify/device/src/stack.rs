//! The stack: smoltcp over a guarded device, the sockets of its services, and IKE.

use crate::keys::{self, LIMITS};
use crate::link::Link;
use casemate::{Endpoint, Means, Notice};
use casemate_app::run::lines;
use casemate_app::status;
use casemate_firmware::{Bulk, Http};
use casemate_ike::Event;
use casemate_linux::rng::SystemRng;
use casemate_smoltcp::{Guarded, IkeSockets, Setup, from_smoltcp};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::TunTapInterface;
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpCidr};
use std::net::IpAddr;
use std::path::Path;

/// Buffers of echo and discard.
const BULK: usize = 65_535;

pub(crate) struct Stack {
    device: Guarded<Link<TunTapInterface>>,
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
    http: Http,
    bulk: Bulk,
    ike: Option<IkeSockets>,
    /// What IKE told in the last round.
    told: Vec<Event>,
}

impl Stack {
    pub(crate) fn new(
        link: Link<TunTapInterface>,
        addresses: &[IpCidr],
        gateways: &[IpAddr],
        now: casemate_sa::Instant,
    ) -> Result<Self, String> {
        let endpoint = keys::none(now);
        let rng = SystemRng::new().map_err(|error| error.to_string())?;
        let config = Config::new(link.hardware());
        let mut device = Guarded::new(link, Setup { endpoint, rng: Box::new(rng), limits: LIMITS });
        let mut interface = Interface::new(config, &mut device, casemate_smoltcp::to_smoltcp(now));
        let mut refused = false;
        interface.update_ip_addrs(|list| {
            refused = addresses.iter().any(|cidr| list.push(*cidr).is_err());
        });
        if refused {
            return Err(format!("{} addresses are more than the stack takes", addresses.len()));
        }
        for gateway in gateways {
            let routes = interface.routes_mut();
            let route = match *gateway {
                IpAddr::V4(gateway) => routes.add_default_ipv4_route(gateway),
                IpAddr::V6(gateway) => routes.add_default_ipv6_route(gateway),
            };
            route.map_err(|_| format!("{gateway}: no more routes"))?;
        }
        let mut sockets = SocketSet::new(vec![]);
        let (http, bulk) = (Http::open(&mut sockets), Bulk::open(&mut sockets, BULK));
        Ok(Self { device, interface, sockets, http, bulk, ike: None, told: Vec::new() })
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        self.http.serve(&mut self.sockets);
        self.bulk.serve(&mut self.sockets);
        self.serve_ike(now);
        // What services and IKE have said goes at once.
        self.interface.poll(now, &mut self.device, &mut self.sockets);
    }

    fn serve_ike(&mut self, now: Instant) {
        self.told.clear();
        let Some(ike) = &mut self.ike else { return };
        let mut notices: Vec<Notice> = Vec::new();
        ike.serve(now, &self.interface, &mut self.device, &mut self.sockets, |notice| notices.push(notice));
        for notice in notices {
            let sa = self.device.endpoint().sa_of(&notice);
            if let Some((_, line)) = lines::of(&notice, sa.as_ref()) {
                eprintln!("{line}");
            }
            if let Notice::Ike(event) = notice {
                self.readdress(&event);
                self.told.push(event);
            }
        }
    }

    /// Takes virtual addresses, and gives them back (RFC 7296 section 2.19).
    fn readdress(&mut self, event: &Event) {
        match event {
            Event::Assigned { fresh, .. } => self.interface.update_ip_addrs(|list| {
                for addr in fresh {
                    let host = if addr.is_ipv4() { 32 } else { 128 };
                    // In front: it is the source of packets to wherever no other address is nearer.
                    if list.insert(0, IpCidr::new(IpAddress::from(*addr), host)).is_err() {
                        eprintln!("{addr}: more addresses than the stack takes");
                    }
                }
            }),
            Event::Unassigned { addrs, .. } => self
                .interface
                .update_ip_addrs(|list| list.retain(|cidr| !addrs.contains(&IpAddr::from(cidr.address())))),
            _ => {}
        }
    }

    /// Milliseconds until there is something to do that no frame asks for.
    pub(crate) fn delay(&mut self, now: Instant) -> u64 {
        let due = self.ike.as_ref().and_then(|ike| ike.due(&self.device));
        let ike = due.map(|due| if due > now { (due - now).total_millis() } else { 0 });
        let stack = self.interface.poll_delay(now, &self.sockets).map(|delay| delay.total_millis());
        ike.into_iter().chain(stack).min().unwrap_or(u64::MAX)
    }

    /// Other SAs and policies from now on, from a file with manual keys.
    pub(crate) fn load_keys(&mut self, path: &Path, now: Instant) -> Result<(), String> {
        if self.ike.is_some() {
            return Err("keys are IKE's: start anew for manual ones".into());
        }
        let endpoint = keys::manual(path, self.interface.ip_addrs(), from_smoltcp(now))?;
        self.device.replace_endpoint(endpoint);
        Ok(())
    }

    /// Other connections from now on, from a file for IKE.
    pub(crate) fn load_connections(&mut self, path: &Path, now: Instant) -> Result<(), String> {
        let keys::Loaded { connections, pools, keys } = keys::negotiated(path, from_smoltcp(now))?;
        match &mut self.ike {
            Some(ike) => ike.set_keys(keys),
            None => {
                self.device.replace_endpoint(keys::for_ike(from_smoltcp(now))?);
                self.ike = Some(IkeSockets::new(&mut self.device, &mut self.sockets, keys));
            }
        }
        self.with_ike(now, |endpoint, means| {
            endpoint.configure(connections, &pools, means).map_err(|error| error.to_string())
        })
    }

    /// Lets the endpoint do what IKE is told.
    pub(crate) fn with_ike<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        let ike = self.ike.as_ref().ok_or("there are no connections: `connections FILE` was expected")?;
        ike.with(now, &self.interface, &mut self.device, act)
    }

    /// What IKE told in the last round.
    pub(crate) fn told(&self) -> &[Event] {
        &self.told
    }

    /// IKE SAs with their Child SAs, as JSON.
    pub(crate) fn ike_sas(&self, now: Instant) -> String {
        status::ike_sas(self.device.endpoint(), from_smoltcp(now)).to_string()
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
