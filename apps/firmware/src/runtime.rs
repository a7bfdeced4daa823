//! The run time of the machine: a network stack with IPsec, and its tasks.

use crate::config::{Config, Protection};
use crate::echo_discard::EchoDiscard;
use crate::http::Http;
use crate::memory_budget::{IkeRuntime, IkeSetup, MemoryNeeds};
use crate::{ipsec, log};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use casemate::{Datapath, Endpoint, bypass_control_plane};
use casemate_crypto::Rng;
use casemate_datapath::{AddSaError, Direction, DropReason, RohcStatus, Unmatched};
use casemate_ike::IkeSettings;
use casemate_sa::Limits;
use casemate_smoltcp::{BufferDevice, IpsecConfig, IpsecDevice, from_smoltcp};
use core::fmt;
use core::net::IpAddr;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

/// Limits for a machine with a few megabytes of memory.
const LIMITS: Limits = Limits {
    sas: 32,
    policies: 64,
    flows: 256,
    audit_events: 32,
    replay_window: 1_024,
    reassemblies: 4,
    reassembly_bytes: 65_535,
};

const SETTINGS: IkeSettings = IkeSettings::DEVICE;

/// Buffer size of the echo and discard services in bytes.
const ECHO_DISCARD_BUFFER: usize = 16_384;

/// Maximum number of data path events logged per round.
const EVENTS: usize = 8;

/// Reason why the stack could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupError {
    /// The stack has no room for an address or route.
    Network,
    /// The SPD has no room for a policy.
    Policies,
    /// An SA with manual keys was refused.
    Sa(AddSaError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("the network stack has no room for another address or route"),
            Self::Policies => f.write_str("the SPD is full"),
            Self::Sa(error) => write!(f, "manual keys: {error}"),
        }
    }
}

impl core::error::Error for SetupError {}

impl From<AddSaError> for SetupError {
    fn from(error: AddSaError) -> Self {
        Self::Sa(error)
    }
}

/// The network stack with its tasks.
pub struct StackRuntime<D: BufferDevice> {
    device: IpsecDevice<D>,
    interface: Interface,
    sockets: SocketSet<'static>,
    ike: Option<IkeRuntime>,
    http: Http,
    echo_discard: EchoDiscard,
}

impl<D: BufferDevice> StackRuntime<D> {
    /// Creates the stack on this device. `seed` must be random and secret.
    pub fn new(
        device: D,
        address: EthernetAddress,
        config: &Config,
        rng: Box<dyn Rng>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, SetupError> {
        let mut endpoint = endpoint(config, seed)?;
        if let Protection::Manual(keys) = &config.protection {
            ipsec::add_manual(&mut endpoint, config.address, keys, from_smoltcp(now))?;
        }
        let mut device = IpsecDevice::new(device, IpsecConfig { endpoint, rng, limits: LIMITS });
        let mut settings = smoltcp::iface::Config::new(HardwareAddress::Ethernet(address));
        settings.random_seed = seed.rotate_left(32);
        let mut interface = Interface::new(settings, &mut device, now);
        set_addresses(&mut interface, config)?;
        let mut sockets = SocketSet::new(vec![]);
        let (http, echo_discard) =
            (Http::open(&mut sockets), EchoDiscard::open(&mut sockets, ECHO_DISCARD_BUFFER));
        let mut runtime = Self { device, interface, sockets, ike: None, http, echo_discard };
        runtime.open_ike(config, now)?;
        Ok(runtime)
    }

    fn open_ike(&mut self, config: &Config, now: Instant) -> Result<(), SetupError> {
        let Protection::Ike(keys) = &config.protection else { return Ok(()) };
        let Self { device, interface, sockets, .. } = self;
        let needs = MemoryNeeds::of(&LIMITS, &SETTINGS, keys.rohc);
        let setup = IkeSetup { own: config.address, keys, needs };
        self.ike = Some(IkeRuntime::open(&setup, now, interface, device, sockets)?);
        Ok(())
    }

    /// Runs each task once. `log_line` receives a message for each event.
    pub fn round(&mut self, now: Instant, mut log_line: impl FnMut(String)) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        self.http.serve(&mut self.sockets);
        self.echo_discard.serve(&mut self.sockets);
        match &mut self.ike {
            Some(ike) => ike.serve(now, &self.interface, &mut self.device, &mut self.sockets, log_line),
            None => {
                let datapath = self.device.endpoint_mut().datapath_mut();
                let events = core::iter::from_fn(|| datapath.next_event()).take(EVENTS);
                events.for_each(|event| log_line(log::describe_datapath(&event)));
            }
        }
    }

    /// Returns the number of pages served.
    pub const fn served(&self) -> u64 {
        self.http.served()
    }

    /// Returns the number of IKE messages and timers refused because of low memory.
    pub fn refused(&self) -> u64 {
        self.ike.as_ref().map_or(0, IkeRuntime::refused)
    }

    /// Returns the drop counters that are not 0.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.device.endpoint().datapath().drops().iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Returns what the header compression of the present SAs of a direction has done; `None` if none of
    /// them has header compression.
    pub fn rohc(&self, direction: Direction) -> Option<RohcStatus> {
        let sas = self.device.endpoint().datapath().sas().filter(|sa| sa.id.direction() == direction);
        sas.filter_map(|sa| sa.rohc).reduce(|sum, rohc| RohcStatus {
            contexts: sum.contexts.saturating_add(rohc.contexts),
            packets: sum.packets.saturating_add(rohc.packets),
            header_bytes: sum.header_bytes.saturating_add(rohc.header_bytes),
            compressed_bytes: sum.compressed_bytes.saturating_add(rohc.compressed_bytes),
            failures: sum.failures.saturating_add(rohc.failures),
        })
    }

    /// Returns the network device.
    pub const fn device_mut(&mut self) -> &mut D {
        self.device.device_mut()
    }
}

/// Creates the endpoint. Without protection all packets pass; otherwise only packets that match a policy.
fn endpoint(config: &Config, seed: u64) -> Result<Endpoint, SetupError> {
    let unmatched = match config.protection {
        Protection::None => Unmatched::PassClear,
        Protection::Manual(_) | Protection::Ike(_) => Unmatched::Discard,
    };
    let server = casemate_datapath::Config::server(seed);
    let mut datapath = Datapath::new(casemate_datapath::Config { limits: LIMITS, unmatched, ..server });
    if matches!(&config.protection, Protection::Ike(keys) if keys.rohc) {
        datapath.enable_rohc();
    }
    bypass_control_plane(&mut datapath).map_err(|_| SetupError::Policies)?;
    Ok(Endpoint::new(datapath, SETTINGS))
}

fn set_addresses(interface: &mut Interface, config: &Config) -> Result<(), SetupError> {
    let mut added = Ok(());
    interface.update_ip_addrs(|list| {
        let own = IpCidr::new(IpAddress::from(config.address), config.prefix);
        added = list.push(own).map_err(|_| SetupError::Network);
    });
    added?;
    let routes = interface.routes_mut();
    let route = match config.gateway {
        None => return Ok(()),
        Some(IpAddr::V4(gateway)) => routes.add_default_ipv4_route(gateway),
        Some(IpAddr::V6(gateway)) => routes.add_default_ipv6_route(gateway),
    };
    route.map(drop).map_err(|_| SetupError::Network)
}
