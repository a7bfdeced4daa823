//! The machine's work: a stack over a guarded device, and tasks that take turns.

use crate::bulk::Bulk;
use crate::config::{Config, Protection};
use crate::http::Http;
use crate::memory::Needs;
use crate::speaker::Speaker;
use crate::{keys, lines};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Datapath, Endpoint, housekeeping};
use casemate_crypto::Rng;
use casemate_datapath::{AddSaError, DropReason, Unmatched};
use casemate_ike::Settings;
use casemate_sa::Limits;
use casemate_smoltcp::{Exchange, Guarded, Setup, from_smoltcp};
use core::fmt;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

/// Tables of a machine with a few megabytes.
const LIMITS: Limits = Limits {
    sas: 32,
    policies: 64,
    flows: 256,
    audit_events: 32,
    replay_window: 1_024,
    reassemblies: 4,
    reassembly_bytes: 65_535,
};

const SETTINGS: Settings = Settings::DEVICE;

/// Buffers of the services for bytes by the thousand.
const BULK: usize = 16_384;

/// Events of the data path that are told in one round.
const EVENTS: usize = 8;

/// Why there is no station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// An address or a route that the stack does not take.
    Network,
    /// A table of policies is too small.
    Policies,
    /// An SA with manual keys.
    Sa(AddSaError),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("the stack takes neither more addresses nor more routes"),
            Self::Policies => f.write_str("the SPD is full"),
            Self::Sa(error) => write!(f, "manual keys: {error}"),
        }
    }
}

impl core::error::Error for Trouble {}

impl From<AddSaError> for Trouble {
    fn from(error: AddSaError) -> Self {
        Self::Sa(error)
    }
}

/// A stack with its tasks.
pub struct Station<D: Exchange> {
    device: Guarded<D>,
    interface: Interface,
    sockets: SocketSet<'static>,
    ike: Option<Speaker>,
    http: Http,
    bulk: Bulk,
}

impl<D: Exchange> Station<D> {
    /// On this device, with this Ethernet address. `seed` is random, and secret.
    pub fn new(
        device: D,
        address: EthernetAddress,
        config: &Config,
        rng: Box<dyn Rng>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, Trouble> {
        let mut endpoint = endpoint(config, seed)?;
        if let Protection::Manual(keys) = &config.protection {
            keys::add_manual(&mut endpoint, config.address, keys, from_smoltcp(now))?;
        }
        let mut device = Guarded::new(device, Setup { endpoint, rng, limits: LIMITS });
        let mut settings = smoltcp::iface::Config::new(HardwareAddress::Ethernet(address));
        settings.random_seed = seed.rotate_left(32);
        let mut interface = Interface::new(settings, &mut device, now);
        set_addresses(&mut interface, config)?;
        let mut sockets = SocketSet::new(vec![]);
        let (http, bulk) = (Http::open(&mut sockets), Bulk::open(&mut sockets, BULK));
        let mut station = Self { device, interface, sockets, ike: None, http, bulk };
        station.open_ike(config, now)?;
        Ok(station)
    }

    fn open_ike(&mut self, config: &Config, now: Instant) -> Result<(), Trouble> {
        let Protection::Ike(keys) = &config.protection else { return Ok(()) };
        let Self { device, interface, sockets, .. } = self;
        let what = (config.address, keys, Needs::of(&LIMITS, &SETTINGS));
        self.ike = Some(Speaker::open(what, now, interface, device, sockets)?);
        Ok(())
    }

    /// One round: each task has its turn. What happened is told in lines.
    pub fn round(&mut self, now: Instant, mut tell: impl FnMut(String)) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        self.http.serve(&mut self.sockets);
        self.bulk.serve(&mut self.sockets);
        match &mut self.ike {
            Some(ike) => ike.serve(now, &self.interface, &mut self.device, &mut self.sockets, tell),
            None => {
                let datapath = self.device.endpoint_mut().datapath_mut();
                let events = core::iter::from_fn(|| datapath.next_event()).take(EVENTS);
                events.for_each(|event| tell(lines::of_datapath(&event)));
            }
        }
    }

    /// Pages that were served.
    pub const fn served(&self) -> u64 {
        self.http.served()
    }

    /// What IKE refused for want of memory.
    pub fn refused(&self) -> u64 {
        self.ike.as_ref().map_or(0, Speaker::refused)
    }

    /// What was dropped, and how often.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.device.endpoint().datapath().drops().iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The device below.
    pub const fn device_mut(&mut self) -> &mut D {
        self.device.device_mut()
    }
}

/// Data path and IKE. Where nothing is to be protected, everything passes; otherwise only what a policy names.
fn endpoint(config: &Config, seed: u64) -> Result<Endpoint, Trouble> {
    let unmatched = match config.protection {
        Protection::None => Unmatched::PassClear,
        Protection::Manual(_) | Protection::Ike(_) => Unmatched::Discard,
    };
    let server = casemate_datapath::Config::server(seed);
    let mut datapath = Datapath::new(casemate_datapath::Config { limits: LIMITS, unmatched, ..server });
    housekeeping(&mut datapath).map_err(|_| Trouble::Policies)?;
    Ok(Endpoint::new(datapath, SETTINGS))
}

fn set_addresses(interface: &mut Interface, config: &Config) -> Result<(), Trouble> {
    let mut added = Ok(());
    interface.update_ip_addrs(|list| {
        let own = IpCidr::new(IpAddress::from(config.address), config.prefix);
        added = list.push(own).map_err(|_| Trouble::Network);
    });
    added?;
    let routes = interface.routes_mut();
    let route = match config.gateway {
        None => return Ok(()),
        Some(IpAddr::V4(gateway)) => routes.add_default_ipv4_route(gateway),
        Some(IpAddr::V6(gateway)) => routes.add_default_ipv6_route(gateway),
    };
    route.map(drop).map_err(|_| Trouble::Network)
}
