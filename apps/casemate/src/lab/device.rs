//! `casemate lab device`: what `embedded` measures, with the stack in it or over a stack server.

use super::args::DeviceArgs;
use super::manual;
use crate::command::Wanted;
use crate::failure::Failure;
use crate::run::config::Source;
use crate::run::lines;
use crate::stack::ike;
use crate::stack::nic::Nic;
use casemate::{Datapath, Endpoint, Notice, housekeeping};
use casemate_datapath::{Config, Unmatched};
use casemate_ike::Settings;
use casemate_lab::embedded::device::{Library, application};
use casemate_linux::clock::Clock;
use casemate_linux::netlink::Netlink;
use casemate_linux::rng::SystemRng;
use casemate_linux::tap::Tap;
use casemate_sa::Limits;
use casemate_shm::wait;
use casemate_smoltcp::{Guarded, IkeSockets, Setup, to_smoltcp};
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::phy::Device;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress};
use std::os::fd::{AsFd, OwnedFd};

/// The device's address on the cable, on which nobody else is.
const MAC: HardwareAddress = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 2]));
/// The longest sleep.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs until it fails or is ended.
pub(super) fn device(args: &DeviceArgs) -> Result<(), Failure> {
    if let Some(socket) = &args.socket {
        return application(socket).map_err(Failure::failed);
    }
    let name = args.tap.as_deref().unwrap_or_default();
    let mut netlink = Netlink::open().map_err(Failure::failed)?;
    let tap = Tap::open(name, &mut netlink).map_err(Failure::failed)?;
    let descriptor = tap.as_fd().try_clone_to_owned().map_err(Failure::failed)?;
    let (nic, clock) = (Nic::new(tap), Clock::start());
    let place = Place { descriptor, clock };
    if args.unguarded {
        let library = place.library(nic, args)?;
        place.serve(library, |_, _, _, _| None)
    }
    let mut library = place.library(guarded(nic, args)?, args)?;
    let Some(path) = &args.config else {
        place.serve(library, |_, _, device, _| {
            // What nobody reads would stay.
            while device.endpoint_mut().datapath_mut().next_event().is_some() {}
            None
        })
    };
    let mut handshakes = Handshakes::prepare(&place, path, &mut library, args.handshakes)?;
    place.serve(library, move |now, interface, device, sockets| {
        handshakes.go_on(now, interface, device, sockets)
    })
}

/// The guard, with manual keys, with none, or with those that IKE will have.
fn guarded(nic: Nic, args: &DeviceArgs) -> Result<Guarded<Nic>, Failure> {
    let rng = Box::new(SystemRng::new().map_err(Failure::failed)?);
    let limits = Limits::SERVER;
    let datapath = match &args.xfrm {
        Some(path) => manual::load(path, limits)?,
        None => {
            let unmatched = if args.config.is_some() { Unmatched::Discard } else { Unmatched::PassClear };
            let mut datapath = Datapath::new(Config { limits, unmatched, ..Config::server(0) });
            if args.config.is_some() {
                housekeeping(&mut datapath).map_err(|_| Failure::failed("the SPD is full"))?;
            }
            datapath
        }
    };
    Ok(Guarded::new(nic, Setup { endpoint: Endpoint::new(datapath, Settings::SERVER), rng, limits }))
}

/// What the stack lives in.
struct Place {
    /// The interface once more, to wait for it while the stack has it.
    descriptor: OwnedFd,
    clock: Clock,
}

impl Place {
    fn now(&self) -> Instant {
        to_smoltcp(self.clock.now())
    }

    fn library<D: Device>(&self, device: D, args: &DeviceArgs) -> Result<Library<D>, Failure> {
        let seed = SystemRng::new().map_err(Failure::failed)?.secret_u64();
        let address = args.address.ok_or_else(|| Failure::bad_input("--address was expected"))?;
        let library = Library::new(device, MAC, address, seed, self.now());
        library.ok_or_else(|| Failure::bad_input(format!("address {address}: the stack does not take it")))
    }

    /// Serves for ever. `beside` has a turn in each round, and says when it wants the next.
    fn serve<D: Device>(
        &self,
        mut library: Library<D>,
        mut beside: impl FnMut(Instant, &Interface, &mut D, &mut SocketSet<'static>) -> Option<Instant>,
    ) -> ! {
        println!("ready");
        loop {
            let (now, mut due) = (self.now(), None);
            let idle = library.round(now, |interface, device, sockets| {
                due = beside(now, interface, device, sockets);
            });
            let own = due.map_or(PATIENCE, |due| due.max(now) - now);
            let limit = idle.min(own).min(PATIENCE);
            if limit > Duration::ZERO {
                wait(&[self.descriptor.as_fd()], limit.into());
            }
        }
    }
}

/// IKE beside the application, and a connection that is set up again and again.
struct Handshakes {
    ike: IkeSockets,
    name: String,
    left: u32,
    wanted: Option<Wanted>,
    /// Whether the connection is being set up, and not being closed.
    is_begun: bool,
    since: (std::time::Instant, u64),
}

impl Handshakes {
    fn prepare(
        place: &Place,
        path: &std::path::PathBuf,
        library: &mut Library<Guarded<Nic>>,
        count: u32,
    ) -> Result<Self, Failure> {
        let source = Source::new(Some(path))?;
        let loaded = source.load()?;
        let name = loaded.connections.first().map(|connection| connection.name.clone()).unwrap_or_default();
        let Library { device, interface, sockets, .. } = library;
        let ike = ike::open(&source, loaded, place.now(), device, interface, sockets)?;
        let since = (std::time::Instant::now(), 0);
        Ok(Self { ike, name, left: count, wanted: None, is_begun: false, since })
    }

    /// Serves IKE, and begins or ends a connection when it is time to. When it wants to be asked again.
    fn go_on(
        &mut self,
        now: Instant,
        interface: &Interface,
        device: &mut Guarded<Nic>,
        sockets: &mut SocketSet<'static>,
    ) -> Option<Instant> {
        let mut notices: Vec<Notice> = Vec::new();
        self.ike.serve(now, interface, device, sockets, |notice| notices.push(notice));
        for notice in &notices {
            if let Some((_, line)) = lines::of(notice, device.endpoint().sa_of(notice).as_ref()) {
                println!("{line}");
            }
            if let Notice::Ike(event) = notice {
                let told = self.wanted.as_mut().and_then(|wanted| wanted.hear(event));
                if let Some(outcome) = told {
                    self.has_ended(outcome, device);
                }
            }
        }
        if self.wanted.is_none() && self.left > 0 {
            self.begin(now, interface, device);
            self.ike.serve(now, interface, device, sockets, |_| ());
        }
        self.ike.due(device)
    }

    fn begin(&mut self, now: Instant, interface: &Interface, device: &mut Guarded<Nic>) {
        self.since = (std::time::Instant::now(), device.device_mut().carried());
        let (name, is_begun) = (&self.name, self.is_begun);
        let wanted = self.ike.with(now, interface, device, |endpoint, means| {
            if is_begun {
                Wanted::terminate(name, endpoint, means)
            } else {
                Wanted::initiate(name, false, endpoint, means)
            }
        });
        match wanted {
            Ok(wanted) => self.wanted = Some(wanted),
            Err(error) => self.fail(&error),
        }
    }

    fn has_ended(&mut self, outcome: Result<(), String>, device: &mut Guarded<Nic>) {
        self.wanted = None;
        if let Err(error) = outcome {
            return self.fail(&error);
        }
        if !self.is_begun {
            let (since, carried) = self.since;
            let bytes = device.device_mut().carried().saturating_sub(carried);
            println!("handshake {} us {bytes} bytes", since.elapsed().as_micros());
            self.left = self.left.saturating_sub(1);
        }
        self.is_begun = !self.is_begun;
    }

    fn fail(&mut self, error: &str) {
        self.left = 0;
        println!("handshake failed: {error}");
    }
}
