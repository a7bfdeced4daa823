//! The processes that experiments start: `casemate lab device`, which `embedded` measures, with the
//! stack in the same process or behind a stack server, and `casemate lab relay`, the data path of
//! `streams`.

use super::args::{DeviceArgs, RelayArgs};
use casemate::{Endpoint, Notice, bypass_control_plane};
use casemate_app::command::PendingCommand;
use casemate_app::config_source::ConfigSource;
use casemate_app::failure::Failure;
use casemate_app::log::notice::log_line;
use casemate_app::output;
use casemate_app::printable;
use casemate_app::providers;
use casemate_app::stack::runtime::open_ike;
use casemate_app::stack::tap_device::TapDevice;
use casemate_app::xfrm::{self, XfrmFile};
use casemate_crypto::Providers;
use casemate_datapath::{Config, Datapath, Direction, Unmatched};
use casemate_ike::IkeSettings;
use casemate_lab::embedded::device::{LibraryDevice, run_application};
use casemate_lab::streams::relay;
use casemate_linux::netlink::Netlink;
use casemate_linux::process::{Clock, SystemRng};
use casemate_linux::tap::Tap;
use casemate_sa::{Instant as SaInstant, Limits};
use casemate_smoltcp::{IkeSockets, IpsecConfig, IpsecDevice, to_smoltcp};
use casemate_socketd_client::poll_readable;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::phy::{Device, FaultInjector};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Ethernet address of the device; the cable has no other devices.
const MAC: HardwareAddress = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 2]));
/// Seed of the generator that selects lost frames.
const LOSS_SEED: u32 = 0x2545_F491;
/// Maximum time to sleep.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until an error or a signal.
pub(super) fn device(args: &DeviceArgs) -> Result<(), Failure> {
    if let Some(socket) = &args.socket {
        return run_application(socket).map_err(Failure::failed);
    }
    let name = args.tap.as_deref().ok_or_else(|| Failure::bad_input("--tap was expected"))?;
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let tap = Tap::open(name, &mut netlink).map_err(Failure::failed)?;
    let descriptor = tap.as_fd().try_clone_to_owned().map_err(Failure::failed)?;
    let (nic, clock) = (TapDevice::new(tap), Clock::start());
    let device_loop = DeviceLoop { descriptor, clock };
    match (&args.config, args.lose) {
        (Some(path), _) => negotiated_device(&device_loop, nic, path, args),
        (None, None) => manual_device(&device_loop, nic, args),
        (None, Some(percent)) => {
            let mut lossy = FaultInjector::new(nic, LOSS_SEED);
            lossy.set_drop_chance(percent);
            manual_device(&device_loop, lossy, args)
        }
    }
}

/// Runs a device with manual keys, without keys, or without IPsec.
fn manual_device(device_loop: &DeviceLoop, nic: impl Device, args: &DeviceArgs) -> Result<(), Failure> {
    if args.unguarded {
        let library = device_loop.library(nic, args)?;
        device_loop.serve(library, |_, _, _, _| None)
    }
    let library = device_loop.library(guarded(nic, args)?, args)?;
    device_loop.serve(library, |_, _, device, _| {
        // Discards events, which would accumulate otherwise.
        while device.endpoint_mut().datapath_mut().next_event().is_some() {}
        None
    })
}

/// Runs a device with keys from IKE.
fn negotiated_device(
    device_loop: &DeviceLoop,
    nic: TapDevice,
    path: &std::path::PathBuf,
    args: &DeviceArgs,
) -> Result<(), Failure> {
    let mut library = device_loop.library(guarded(nic, args)?, args)?;
    let mut handshakes = Handshakes::prepare(device_loop, path, &mut library, args.handshakes)?;
    device_loop.serve(library, move |now, interface, device, sockets| {
        handshakes.poll(now, interface, device, sockets)
    })
}

/// Makes the IPsec device: with manual keys, without keys, or with policies for IKE.
fn guarded<D: Device>(nic: D, args: &DeviceArgs) -> Result<IpsecDevice<D>, Failure> {
    let rng = Box::new(SystemRng::new().map_err(Failure::failed)?);
    let limits = Limits::SERVER;
    let datapath = match &args.xfrm {
        Some(path) => manual_datapath(path, limits)?,
        None => {
            let unmatched = if args.config.is_some() { Unmatched::Discard } else { Unmatched::PassClear };
            let mut datapath = Datapath::new(Config { limits, unmatched, ..Config::server(0) });
            if args.config.is_some() {
                bypass_control_plane(&mut datapath).map_err(|_| Failure::failed("the SPD is full"))?;
            }
            datapath
        }
    };
    Ok(IpsecDevice::new(
        nic,
        IpsecConfig { endpoint: Endpoint::new(datapath, IkeSettings::SERVER), rng, limits },
    ))
}

/// The main loop of a device.
struct DeviceLoop {
    /// A duplicate of the TAP descriptor for polling, because the stack owns the interface.
    descriptor: OwnedFd,
    clock: Clock,
}

impl DeviceLoop {
    fn now(&self) -> Instant {
        to_smoltcp(self.clock.now())
    }

    fn library<D: Device>(&self, device: D, args: &DeviceArgs) -> Result<LibraryDevice<D>, Failure> {
        let seed = SystemRng::new().map_err(Failure::failed)?.secret_u64();
        let address = args.address.ok_or_else(|| Failure::bad_input("--address was expected"))?;
        let library = LibraryDevice::new(device, MAC, address, seed, self.now());
        library.ok_or_else(|| Failure::bad_input(format!("address {address}: the stack does not accept it")))
    }

    /// Runs the stack forever. Calls `task` in each round, which returns the time of its next call.
    fn serve<D: Device>(
        &self,
        mut library: LibraryDevice<D>,
        mut task: impl FnMut(Instant, &Interface, &mut D, &mut SocketSet<'static>) -> Option<Instant>,
    ) -> ! {
        report("ready");
        loop {
            let (now, mut due) = (self.now(), None);
            let idle = library.poll(now, |interface, device, sockets| {
                due = task(now, interface, device, sockets);
            });
            let own = due.map_or(TIMEOUT, |due| due.max(now) - now);
            let limit = idle.min(own).min(TIMEOUT);
            if limit > Duration::ZERO {
                poll_readable(&[self.descriptor.as_fd()], limit.into());
            }
        }
    }
}

/// Writes a line to standard output. A standard output that is full or closed does not stop the device.
fn report(line: &str) {
    let _ = output::print(&format!("{}\n", printable::line(line)));
}

/// IKE, and a connection that is set up and closed repeatedly.
struct Handshakes {
    ike: IkeSockets,
    name: String,
    remaining: u32,
    pending: Option<PendingCommand>,
    /// Whether the connection is established or being closed, so that the next command closes it.
    is_established: bool,
    start: HandshakeStart,
}

/// The start of a command.
struct HandshakeStart {
    time: std::time::Instant,
    /// Bytes that the device had transferred.
    bytes_transferred: u64,
}

impl Handshakes {
    fn prepare(
        device_loop: &DeviceLoop,
        path: &std::path::PathBuf,
        library: &mut LibraryDevice<IpsecDevice<TapDevice>>,
        count: u32,
    ) -> Result<Self, Failure> {
        let source = ConfigSource::new(Some(path))?;
        let loaded = source.load()?;
        let connection = loaded
            .connections
            .first()
            .ok_or_else(|| Failure::bad_input(format!("{}: a connection was expected", path.display())))?;
        let name = connection.name.clone();
        let LibraryDevice { device, interface, sockets, .. } = library;
        let ike = open_ike(&source, loaded, device_loop.now(), device, interface, sockets)?;
        let start = HandshakeStart { time: std::time::Instant::now(), bytes_transferred: 0 };
        Ok(Self { ike, name, remaining: count, pending: None, is_established: false, start })
    }

    /// Runs IKE and starts the next command when the previous one is complete. Returns the time of the
    /// next call.
    fn poll(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut IpsecDevice<TapDevice>,
        sockets: &mut SocketSet<'static>,
    ) -> Option<Instant> {
        let mut notices: Vec<Notice> = Vec::new();
        self.ike.serve(now, interface, device, sockets, |notice| notices.push(notice));
        for notice in &notices {
            if let Some((_, line)) = log_line(notice, device.endpoint().sa_of(notice).as_ref()) {
                report(&line);
            }
            if let Notice::Ike(event) = notice {
                let outcome = self.pending.as_mut().and_then(|pending| pending.on_event(event));
                if let Some(outcome) = outcome {
                    self.on_outcome(outcome, device);
                }
            }
        }
        if self.pending.is_none() && self.remaining > 0 {
            self.begin(now, interface, device);
            self.ike.serve(now, interface, device, sockets, |_| ());
        }
        self.ike.due(device)
    }

    fn begin(&mut self, now: Instant, interface: &Interface, device: &mut IpsecDevice<TapDevice>) {
        let bytes_transferred = device.device_mut().bytes_transferred();
        self.start = HandshakeStart { time: std::time::Instant::now(), bytes_transferred };
        let (name, is_established) = (&self.name, self.is_established);
        let pending = self.ike.with_endpoint(now, interface, device, |endpoint, context| {
            if is_established {
                PendingCommand::terminate(name, endpoint, context)
            } else {
                PendingCommand::initiate(name, false, endpoint, context)
            }
        });
        match pending {
            Ok(pending) => self.pending = Some(pending),
            Err(error) => self.fail(&error),
        }
    }

    fn on_outcome(&mut self, outcome: Result<(), String>, device: &mut IpsecDevice<TapDevice>) {
        self.pending = None;
        if let Err(error) = outcome {
            return self.fail(&error);
        }
        if !self.is_established {
            let HandshakeStart { time, bytes_transferred } = self.start;
            let bytes = device.device_mut().bytes_transferred().saturating_sub(bytes_transferred);
            report(&format!("handshake {} us {bytes} bytes", time.elapsed().as_micros()));
            self.remaining = self.remaining.saturating_sub(1);
        }
        self.is_established = !self.is_established;
    }

    fn fail(&mut self, error: &str) {
        self.remaining = 0;
        report(&format!("handshake failed: {error}"));
    }
}

/// Runs until an error or a signal.
pub(super) fn relay(args: &RelayArgs) -> Result<(), Failure> {
    let datapath = args.xfrm.as_deref().map(|path| manual_datapath(path, Limits::DEVICE)).transpose()?;
    relay::run(args.end, args.wiring, datapath).map_err(Failure::failed)
}

/// Makes a data path with the SAs and policies of a file. An SA is outbound if an outbound policy matches
/// its source, otherwise inbound.
pub(super) fn manual_datapath(path: &Path, limits: Limits) -> Result<Datapath, Failure> {
    let file = XfrmFile::load(path).map_err(Failure::bad_input)?;
    // The experiment controls both ends, so the hash tables need no secret seed.
    let mut datapath = Datapath::new(Config { limits, ..Config::server(0) });
    let providers = providers::for_sas(file.states.iter().map(|state| &state.value));
    for state in &file.states {
        let sa = &state.value;
        let out = file.policies.iter().filter(|policy| policy.value.direction == xfrm::Direction::Out);
        let is_out = out.clone().any(|policy| policy.value.policy.selector.src.contains(sa.src));
        let direction = if is_out { Direction::Outbound } else { Direction::Inbound };
        let added = datapath.add_sa(sa, direction, &Providers(&providers), SaInstant::ZERO);
        added.map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), state.line)))?;
    }
    for policy in &file.policies {
        let direction = match policy.value.direction {
            xfrm::Direction::Out => Direction::Outbound,
            xfrm::Direction::In | xfrm::Direction::Forward => Direction::Inbound,
        };
        let added = datapath.add_policy(direction, policy.value.policy.clone());
        added.map_err(|error| Failure::bad_input(format!("{}:{}: {error}", path.display(), policy.line)))?;
    }
    Ok(datapath)
}
