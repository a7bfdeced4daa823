//! The stack itself: smoltcp over the guarded device, IKE beside it, the server of sockets above it.

use super::ike;
use super::nic::{Nic, Trouble};
use crate::cli::StackArgs;
use crate::failure::Failure;
use crate::run::budget::Kind;
use crate::run::config::{Loaded, Source};
use crate::run::lines;
use casemate::{Datapath, Endpoint, Notice, housekeeping};
use casemate_datapath::{Config, Unmatched};
use casemate_ike::Settings;
use casemate_linux::rng::SystemRng;
use casemate_linux::tap::Tap;
use casemate_sa::Limits;
use casemate_shm::Link;
use casemate_smoltcp::{Guarded, IkeSockets, Setup};
use casemate_stack::{Server, SessionId};
use smoltcp::iface::{Interface, PollIngressSingleResult, SocketSet};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress};

/// Frames that are taken from the device before applications have a turn.
const BURST: usize = 64;
/// What the data path is told of the link until the guard knows it.
const LINK_MTU: usize = 1_500;

pub(super) struct Station {
    device: Guarded<Nic>,
    interface: Interface,
    sockets: SocketSet<'static>,
    ike: Option<IkeSockets>,
    pub(super) server: Server<Link>,
}

impl Station {
    /// On this interface, with the addresses and routes of the command line.
    pub(super) fn new(
        tap: Tap,
        args: &StackArgs,
        limits: casemate_stack::Limits,
        now: Instant,
    ) -> Result<Self, Failure> {
        let mut rng = SystemRng::new().map_err(Failure::failed)?;
        let [seed, ports, iss, mac] = [(); 4].map(|()| rng.secret_u64());
        let unmatched = if args.clear { Unmatched::PassClear } else { Unmatched::Discard };
        let config = Config { limits: Limits::SERVER, seed, unmatched, link_mtu: LINK_MTU };
        let mut datapath = Datapath::new(config);
        housekeeping(&mut datapath).map_err(|_| Failure::failed("the SPD is full"))?;
        let endpoint = Endpoint::new(datapath, Settings::SERVER);
        let setup = Setup { endpoint, rng: Box::new(rng), limits: Limits::SERVER };
        let mut device = Guarded::new(Nic::new(tap), setup);
        let mac = args.mac.unwrap_or_else(|| local_address(mac));
        let mut settings = smoltcp::iface::Config::new(HardwareAddress::Ethernet(mac));
        settings.random_seed = iss;
        let mut interface = Interface::new(settings, &mut device, now);
        set_addresses(&mut interface, args)?;
        let (sockets, server) = (SocketSet::new(Vec::new()), Server::new(limits, ports));
        Ok(Self { device, interface, sockets, ike: None, server })
    }

    /// Opens IKE's ports and applies a configuration.
    pub(super) fn configure(&mut self, source: &Source, loaded: Loaded, now: Instant) -> Result<(), Failure> {
        let Self { device, interface, sockets, .. } = self;
        let ike = ike::open(source, loaded, now, device, interface, sockets)?;
        self.ike = Some(ike);
        Ok(())
    }

    /// One round: frames in, IKE, the applications' turns, frames out. Answers how long there is nothing to do by itself.
    pub(super) fn round(&mut self, now: Instant, mut tell: impl FnMut(Kind, String)) -> Duration {
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
                    notices.iter().filter_map(|notice| lines::of(notice, endpoint.sa_of(notice).as_ref()));
                lines.for_each(|(kind, line)| tell(kind, line));
            }
            // What nobody reads would stay.
            None => while device.endpoint_mut().datapath_mut().next_event().is_some() {},
        }
        let has_more =
            server.serve(now, interface, sockets, |notice| tell(Kind::Application, describe(notice)));
        interface.poll_egress(now, device, sockets);
        if is_flooded || has_more {
            return Duration::ZERO;
        }
        let due = ike.as_ref().and_then(|ike| ike.due(device));
        let own = due.into_iter().chain(server.due()).min().map(|due| due.max(now) - now);
        let stack = interface.poll_delay(now, sockets);
        own.into_iter().chain(stack).min().unwrap_or(Duration::MAX)
    }

    /// The application of this session has ended.
    pub(super) fn end(&mut self, id: SessionId, now: Instant) {
        self.server.end(id, now, &mut self.sockets);
    }

    pub(super) fn nic(&mut self) -> &mut Nic {
        self.device.device_mut()
    }

    /// What happened, for the end.
    pub(super) fn summary(&mut self) -> String {
        let counters = self.server.counters();
        let Trouble { reading, writing } = self.nic().trouble();
        let drops: u64 = self.device.endpoint().datapath().drops().iter().map(|(_, count)| count).sum();
        format!(
            "{} applications, {} turned away, {} broke the rules; {} calls, {} refused; {drops} packets dropped; \
             the interface failed {reading} times and did not take {writing} frames",
            counters.admitted, counters.turned_away, counters.broken, counters.calls, counters.refused
        )
    }

    /// Closes every IKE SA. An answer is not waited for: a peer that does not hear it finds out by itself.
    pub(super) fn close(&mut self, now: Instant) {
        let Self { device, interface, sockets, ike, .. } = self;
        let Some(ike) = ike else { return };
        let all: Vec<_> = device.endpoint().ike().status().map(|sa| sa.id).collect();
        ike.with(now, interface, device, |endpoint, means| {
            for id in all {
                endpoint.terminate(id, means);
            }
        });
        ike.serve(now, interface, device, sockets, |_| ());
        interface.poll_egress(now, device, sockets);
    }
}

fn describe(notice: casemate_stack::Notice) -> String {
    match notice {
        casemate_stack::Notice::Broken(id, why) => format!("application {id}: sent away: {why}"),
    }
}

/// A locally administered address (IEEE 802).
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
        return Err(Failure::bad_input(format!("address {cidr}: the stack takes no more addresses")));
    }
    for gateway in &args.gateways {
        let added = match IpAddress::from(*gateway) {
            IpAddress::Ipv4(gateway) => interface.routes_mut().add_default_ipv4_route(gateway),
            IpAddress::Ipv6(gateway) => interface.routes_mut().add_default_ipv6_route(gateway),
        };
        added
            .map_err(|_| Failure::bad_input(format!("gateway {gateway}: the stack takes no more routes")))?;
    }
    Ok(())
}
