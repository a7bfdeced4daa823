//! The runtime of the stack: smoltcp over the IPsec device, IKE beside it, and the socket server above it.

use super::args::StackArgs;
use super::tap_device::{DeviceErrors, TapDevice};
use crate::config_source::{ConfigSource, LoadedConfig};
use crate::failure::Failure;
use crate::log::notice::log_line;
use crate::log::rate_limit::LogCategory;
use crate::output::counted;
use casemate::{Datapath, Endpoint, Notice, bypass_control_plane};
use casemate_datapath::{Config, Unmatched};
use casemate_ike::IkeSettings;
use casemate_linux::process::SystemRng;
use casemate_linux::tap::Tap;
use casemate_sa::Limits;
use casemate_smoltcp::{BufferDevice, IkeConfig, IkeSockets, IpsecConfig, IpsecDevice};
use casemate_socketd::{Server, SessionId};
use casemate_socketd_client::ShmTransport;
use casemate_wire::invariant::OrBroken;
use smoltcp::iface::{Interface, PollIngressSingleResult, SocketSet};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of received frames before applications are served.
const BURST: usize = 64;
/// Initial link MTU of the data path, until the device reports it.
const LINK_MTU: usize = 1_500;

pub(super) struct StackRuntime {
    device: IpsecDevice<TapDevice>,
    interface: Interface,
    sockets: SocketSet<'static>,
    ike: Option<IkeSockets>,
    pub(super) server: Server<ShmTransport>,
}

impl StackRuntime {
    /// Makes the stack on this interface, with the addresses and routes of the command line.
    pub(super) fn new(
        tap: Tap,
        args: &StackArgs,
        limits: casemate_socketd::Limits,
        now: Instant,
    ) -> Result<Self, Failure> {
        let mut rng = SystemRng::new().map_err(Failure::failed)?;
        let [seed, ports, iss, mac] = [(); 4].map(|()| rng.secret_u64());
        let unmatched = if args.clear { Unmatched::PassClear } else { Unmatched::Discard };
        let config = Config { limits: Limits::SERVER, seed, unmatched, link_mtu: LINK_MTU };
        let mut datapath = Datapath::new(config);
        datapath.enable_rohc();
        bypass_control_plane(&mut datapath).map_err(|_| Failure::failed("the SPD is full"))?;
        let endpoint = Endpoint::new(datapath, IkeSettings::SERVER);
        let setup = IpsecConfig { endpoint, rng: Box::new(rng), limits: Limits::SERVER };
        let mut device = IpsecDevice::new(TapDevice::new(tap), setup);
        let mac = args.mac.unwrap_or_else(|| local_address(mac));
        let mut settings = smoltcp::iface::Config::new(HardwareAddress::Ethernet(mac));
        settings.random_seed = iss;
        let mut interface = Interface::new(settings, &mut device, now);
        set_addresses(&mut interface, args)?;
        let (sockets, server) = (SocketSet::new(Vec::new()), Server::new(limits, ports));
        Ok(Self { device, interface, sockets, ike: None, server })
    }

    /// Opens the IKE ports and applies a configuration.
    pub(super) fn configure(
        &mut self,
        source: &ConfigSource,
        loaded: LoadedConfig,
        now: Instant,
    ) -> Result<(), Failure> {
        let Self { device, interface, sockets, .. } = self;
        let ike = open_ike(source, loaded, now, device, interface, sockets)?;
        self.ike = Some(ike);
        Ok(())
    }

    /// Runs one round: receives frames, runs IKE, serves applications, sends frames. Returns the time
    /// until the next round if nothing else happens.
    pub(super) fn round(&mut self, now: Instant, mut log: impl FnMut(LogCategory, String)) -> Duration {
        let Self { device, interface, sockets, ike, server } = self;
        interface.poll_maintenance(now);
        let is_flooded = (0..BURST)
            .all(|_| interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None);
        match ike {
            Some(ike) => {
                let mut notices: Vec<Notice> = Vec::new();
                ike.serve(now, interface, device, sockets, |notice| notices.push(notice));
                let endpoint = device.endpoint();
                let lines =
                    notices.iter().filter_map(|notice| log_line(notice, endpoint.sa_of(notice).as_ref()));
                lines.for_each(|(kind, line)| log(kind, line));
            }
            // Discards events, which would accumulate otherwise.
            None => while device.endpoint_mut().datapath_mut().next_event().is_some() {},
        }
        let has_more =
            server.serve(now, interface, sockets, |notice| log(LogCategory::Application, describe(notice)));
        interface.poll_egress(now, device, sockets);
        if is_flooded || has_more {
            return Duration::ZERO;
        }
        let due = ike.as_ref().and_then(|ike| ike.due(device));
        let own = due.into_iter().chain(server.due()).min().map(|due| due.max(now) - now);
        let stack = interface.poll_delay(now, sockets);
        own.into_iter().chain(stack).min().unwrap_or(Duration::MAX)
    }

    /// Ends the session of an application.
    pub(super) fn end(&mut self, id: SessionId, now: Instant) {
        self.server.end_session(id, now, &mut self.sockets);
    }

    pub(super) fn nic(&mut self) -> &mut TapDevice {
        self.device.device_mut()
    }

    /// A summary of the counters, for the end of the program.
    pub(super) fn summary(&mut self) -> String {
        let counters = self.server.counters();
        let DeviceErrors { read_errors, write_errors } = self.nic().errors();
        let drops: u64 = self.device.endpoint().datapath().drops().iter().map(|(_, count)| count).sum();
        format!(
            "{}, {} refused, {} violated the protocol; {}, {} refused; {} dropped; \
             {} and {} of the interface",
            counted(counters.admitted, "application", "applications"),
            counters.rejected,
            counters.violations,
            counted(counters.requests, "call", "calls"),
            counters.failed,
            counted(drops, "packet", "packets"),
            counted(read_errors, "read error", "read errors"),
            counted(write_errors, "write error", "write errors"),
        )
    }

    /// Closes every IKE SA without waiting for responses: a peer that misses the message detects the end
    /// by itself.
    pub(super) fn close(&mut self, now: Instant) {
        let Self { device, interface, sockets, ike, .. } = self;
        let Some(ike) = ike else { return };
        let all: Vec<_> = device.endpoint().ike().status().map(|sa| sa.id).collect();
        ike.with_endpoint(now, interface, device, |endpoint, context| {
            for id in all {
                endpoint.terminate(id, context);
            }
        });
        ike.serve(now, interface, device, sockets, |_| ());
        interface.poll_egress(now, device, sockets);
    }
}

fn describe(notice: casemate_socketd::Notice) -> String {
    match notice {
        casemate_socketd::Notice::ProtocolViolation(id, why) => {
            format!("application {id}: disconnected: {why}")
        }
    }
}

/// A random locally administered address (IEEE 802).
fn local_address(random: u64) -> EthernetAddress {
    let [_, a, b, c, d, e, ..] = random.to_be_bytes();
    EthernetAddress([0x02, a, b, c, d, e])
}

fn set_addresses(interface: &mut Interface, args: &StackArgs) -> Result<(), Failure> {
    let mut refused = None;
    interface.update_ip_addrs(|list| {
        refused = args.addresses.iter().find(|cidr| list.push(**cidr).is_err());
    });
    if let Some(cidr) = refused {
        return Err(Failure::bad_input(format!("address {cidr}: too many addresses")));
    }
    for gateway in &args.gateways {
        let added = match IpAddress::from(*gateway) {
            IpAddress::Ipv4(gateway) => interface.routes_mut().add_default_ipv4_route(gateway),
            IpAddress::Ipv6(gateway) => interface.routes_mut().add_default_ipv6_route(gateway),
        };
        added.map_err(|_| Failure::bad_input(format!("gateway {gateway}: too many routes")))?;
    }
    Ok(())
}

/// Opens the IKE ports and applies a configuration.
pub fn open_ike<D: BufferDevice>(
    source: &ConfigSource,
    loaded: LoadedConfig,
    now: Instant,
    device: &mut IpsecDevice<D>,
    interface: &Interface,
    sockets: &mut SocketSet<'_>,
) -> Result<IkeSockets, Failure> {
    if let Some(key) = loaded.scripts.first_unknown(|_| false) {
        return Err(Failure::bad_input(format!("{key}: no script is run here: no value was expected")));
    }
    // With a clock before 1970, no certificate is valid yet.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let uptime = u64::try_from(now.secs()).or_broken("the clock of the stack starts at 0", 0);
    let keys = IkeConfig {
        providers: source.providers().to_vec(),
        credentials: Box::new(loaded.keyring),
        unix_time_at_origin: since_1970.saturating_sub(uptime),
    };
    let ike = IkeSockets::new(device, sockets, keys);
    let (connections, pools) = (loaded.connections, loaded.pools);
    ike.with_endpoint(now, interface, device, |endpoint, context| {
        endpoint.configure(connections, &pools, context)
    })
    .map_err(Failure::failed)?;
    Ok(ike)
}
