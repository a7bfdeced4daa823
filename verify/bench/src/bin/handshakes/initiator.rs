//! Initiators: one IKE engine that starts handshakes, each with separate identity, SPIs and traffic
//! selectors; over UDP, with a number of handshakes in parallel.

use casemate_app::keyring::Keyring;
use casemate_app::swanctl::{Config, SystemEnvironment};
use casemate_crypto::{Provider, Providers, Rng};
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, Identity, LocalMethod};
use casemate_ike::{
    Context, DownReason, Event, Host, Ike, IkeSettings, Path as IkePath, Routes, TrafficSelectorTemplate,
    Transmit,
};
use casemate_interop::{Error, Result};
use casemate_sa::{AddrRange, Instant, PortRange, Spi};
use casemate_test_support::TestRng;
use socket2::SockRef;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

/// Providers in the order in which they are tried.
pub(crate) type ProviderList = &'static [&'static dyn Provider];

/// Providers of `casemate run --config`, in its order. AWS-LC has all algorithms of the handshakes.
pub(crate) const PROVIDERS: ProviderList = &[&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];

/// More SAs than any measurement needs.
const SETTINGS: IkeSettings = IkeSettings { max_ike_sas: 1 << 20, ..IkeSettings::SERVER };

/// 10.128.0.0, the first address of initiators with addresses of their own.
const FIRST_HOME: u32 = 0x0a80_0000;
/// 10.64.0.0, the first address behind the initiators.
const FIRST_ADDR: u32 = 0x0a40_0000;

/// Addresses of the initiators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    /// The configured address, for all initiators.
    Shared,
    /// A different address for each initiator.
    Own,
}

/// All initiators.
pub(crate) struct Initiator {
    ike: Ike,
    connection: Arc<Connection>,
    source_address: SourceAddress,
    providers: ProviderList,
    keyring: Keyring,
    rng: TestRng,
    spis: Spis,
    started: u32,
    completed: u32,
    failed: Vec<DownReason>,
}

/// Sequential SPIs.
struct Spis(u32);

impl Host for Spis {
    fn reserve_spi(&mut self, _: &mut dyn Rng) -> Option<Spi> {
        self.0 += 1;
        Spi::new(self.0)
    }

    fn release_spi(&mut self, _: Spi) {}

    fn last_inbound(&self, _: Spi) -> Option<Instant> {
        None
    }
}

/// A host whose source addresses are configured.
struct NoRoutes;

impl Routes for NoRoutes {
    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// Loads a configuration and its keys.
pub(crate) fn load(file: &Path, providers: ProviderList) -> (Vec<Arc<Connection>>, Keyring) {
    let config =
        Config::load(file, &SystemEnvironment).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let keyring =
        Keyring::load(&config, providers, &SystemEnvironment).unwrap_or_else(|errors| panic!("{errors:?}"));
    (config.connections, keyring)
}

impl Initiator {
    /// Initiators with the only connection of a `swanctl.conf`.
    pub(crate) fn new(file: &Path, source_address: SourceAddress, providers: ProviderList) -> Self {
        let (mut connections, keyring) = load(file, providers);
        let connection = connections.pop().expect("the file has a connection");
        Self {
            ike: Ike::new(SETTINGS),
            connection,
            source_address,
            providers,
            keyring,
            rng: TestRng::new(std::process::id().into()),
            spis: Spis(0x1000),
            started: 0,
            completed: 0,
            failed: Vec::new(),
        }
    }

    /// Starts a handshake.
    pub(crate) fn start_handshake(&mut self, now: Instant) {
        let mut connection = Connection::clone(&self.connection);
        // A certificate contains only one identity.
        if connection.local.method == LocalMethod::SharedKey {
            connection.local.id = Some(Identity::Fqdn(format!("initiator{}.test", self.started)));
        }
        if self.source_address == SourceAddress::Own {
            let own = Ipv4Addr::from_bits(FIRST_HOME + self.started);
            connection.local_addrs = vec![AddrPattern::Range(AddrRange::single(own.into()))];
        }
        let addr = Ipv4Addr::from_bits(FIRST_ADDR + self.started);
        let addrs = Some(AddrRange::single(addr.into()));
        let own = TrafficSelectorTemplate { addrs, proto: None, ports: PortRange::ANY };
        let child = ChildConfig { local_ts: vec![own], ..ChildConfig::clone(&connection.children[0]) };
        let child = Arc::new(child);
        connection.children = vec![child.clone()];
        self.started += 1;
        self.act(now, |ike, host, context| {
            ike.initiate(&Arc::new(connection), Some(&child), None, host, context)
        })
        .unwrap();
    }

    /// Processes a message without its non-ESP marker.
    pub(crate) fn receive(&mut self, message: &mut [u8], path: IkePath, now: Instant) {
        self.act(now, |ike, host, context| ike.receive(message, path, host, context));
    }

    /// Runs the retransmission timers that are due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.ike.next_timeout().is_some_and(|due| due <= now) {
            self.act(now, |ike, host, context| ike.handle_timeouts(host, context));
        }
    }

    fn act<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>) -> T,
    ) -> T {
        let providers = Providers(self.providers);
        let mut context = Context {
            now,
            unix_time: unix_time(),
            rng: &mut self.rng,
            providers: &providers,
            credentials: &self.keyring,
            routes: &NoRoutes,
        };
        let completed = act(&mut self.ike, &mut self.spis, &mut context);
        while let Some(event) = self.ike.next_event() {
            match event {
                Event::ChildUp(_) => self.completed += 1,
                Event::IkeDown { reason: why, .. } | Event::ChildFailed { reason: why, .. } => {
                    self.failed.push(why)
                }
                _ => {}
            }
        }
        completed
    }

    /// Next datagram to send.
    pub(crate) fn next_transmit(&mut self) -> Option<Transmit> {
        self.ike.next_transmit()
    }

    /// Number of completed handshakes, each with a Child SA.
    pub(crate) const fn completed(&self) -> u32 {
        self.completed
    }

    /// Number of handshakes in progress.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.started - self.completed
    }

    /// Number of started handshakes.
    pub(crate) const fn started(&self) -> u32 {
        self.started
    }

    /// Panics if a handshake failed, because the measurement is then invalid.
    pub(crate) fn check(&self) {
        assert!(self.failed.is_empty(), "handshakes failed: {:?}", self.failed);
    }
}

/// Seconds since 1970, for the validity of certificates.
pub(crate) fn unix_time() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("the clock is set").as_secs()
}

/// Handshakes in parallel. Casemate requests cookies from 64 half-open IKE SAs on.
const MAX_IN_FLIGHT: u32 = 32;
/// Time to wait for the responder before the retransmission timers are checked.
const WAIT: Duration = Duration::from_millis(20);
/// Longer than any measurement.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Non-ESP marker (RFC 7296 section 3.1): precedes IKE messages on the port that IKE shares with ESP.
const MARKER: [u8; 4] = [0; 4];

/// Sockets of both IKE ports.
struct Ports([(UdpSocket, SocketAddr); 2]);

/// Completes `count` handshakes, keeps their IKE SAs, and returns the duration. `file` contains the
/// configuration.
pub(crate) fn run_load(file: &Path, from: &str, count: u32) -> Result<Duration> {
    let ports = Ports::open(from)?;
    let mut initiator = Initiator::new(file, SourceAddress::Shared, PROVIDERS);
    let start = Clock::now();
    let now = || Instant::ZERO.after(start.elapsed());
    let mut buffer = vec![0; 65_536];
    while initiator.completed() < count {
        if start.elapsed() > LOAD_LIMIT {
            return Err(Error::new(format!(
                "{} of {count} handshakes in {LOAD_LIMIT:?}",
                initiator.completed()
            )));
        }
        while initiator.in_flight() < MAX_IN_FLIGHT && initiator.started() < count {
            initiator.start_handshake(now());
        }
        initiator.tick(now());
        ports.send_all(&mut initiator)?;
        ports.wait()?;
        while let Some(Received { path, len, marker_len }) = ports.receive(&mut buffer) {
            initiator.receive(&mut buffer[marker_len..len], path, now());
        }
        initiator.check();
    }
    Ok(start.elapsed())
}

impl Ports {
    fn open(from: &str) -> Result<Self> {
        let open = |port: u16| -> Result<(UdpSocket, SocketAddr)> {
            let addr: SocketAddr = format!("{from}:{port}").parse().map_err(Error::context(from))?;
            let socket = UdpSocket::bind(addr).map_err(Error::context(addr))?;
            socket.set_nonblocking(true).map_err(Error::context(addr))?;
            SockRef::from(&socket).set_recv_buffer_size(1 << 20).map_err(Error::context(addr))?;
            Ok((socket, addr))
        };
        Ok(Self([open(500)?, open(4_500)?]))
    }

    fn send_all(&self, initiator: &mut Initiator) -> Result<()> {
        while let Some(transmit) = initiator.next_transmit() {
            let own = self.0.iter().find(|(_, addr)| *addr == transmit.path.local);
            let (socket, _) = own.ok_or_else(|| Error::new(format!("no port {}", transmit.path.local)))?;
            // An empty message is a NAT keepalive, and there is no NAT.
            if transmit.message.is_empty() {
                continue;
            }
            let marker: &[u8] = if transmit.non_esp_marker { &MARKER } else { &[] };
            let datagram = [marker, &transmit.message].concat();
            // The initiator retransmits a message that cannot be sent now.
            let _ = socket.send_to(&datagram, transmit.path.remote);
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        use std::os::fd::AsRawFd;
        let poll =
            |socket: &UdpSocket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls = [poll(&self.0[0].0), poll(&self.0[1].0)];
        // SAFETY: pointer and length are those of the array, which lives until the call returns.
        let completed = unsafe { libc::poll(polls.as_mut_ptr(), 2, WAIT.as_millis() as libc::c_int) };
        if completed < 0 {
            Err(Error::new(format!("poll: {}", std::io::Error::last_os_error())))
        } else {
            Ok(())
        }
    }

    /// Receives a message; `None` if no socket has one.
    fn receive(&self, buffer: &mut [u8]) -> Option<Received> {
        self.0.iter().find_map(|(socket, local)| {
            let (len, remote) = socket.recv_from(buffer).ok()?;
            let marker_len = if local.port() == 500 { 0 } else { MARKER.len() };
            Some(Received { path: IkePath { local: *local, remote }, len, marker_len: marker_len.min(len) })
        })
    }
}

/// A received message in a buffer.
struct Received {
    path: IkePath,
    /// Length, with the marker.
    len: usize,
    /// Length of the non-ESP marker in front of the message.
    marker_len: usize,
}
