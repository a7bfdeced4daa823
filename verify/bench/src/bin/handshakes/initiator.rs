//! Initiators: one IKE engine that starts handshakes, each with separate identity, SPIs and traffic
//! selectors.

use casemate_app::keyring::Keyring;
use casemate_app::swanctl::{Config, SystemEnvironment};
use casemate_crypto::{Provider, Providers, Rng};
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, Identity, LocalMethod};
use casemate_ike::{
    Context, DownReason, Event, Host, Ike, IkeSettings, Path, Routes, TrafficSelectorTemplate, Transmit,
};
use casemate_sa::{AddrRange, Instant, PortRange, Spi};
use casemate_test_support::TestRng;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as File;
use std::sync::Arc;

/// Providers of `casemate run --config`, in its order.
pub(crate) const PROVIDERS: [&dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];

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
pub(crate) fn load(file: &File) -> (Vec<Arc<Connection>>, Keyring) {
    let config =
        Config::load(file, &SystemEnvironment).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let keyring =
        Keyring::load(&config, &PROVIDERS, &SystemEnvironment).unwrap_or_else(|errors| panic!("{errors:?}"));
    (config.connections.into_iter().map(Arc::new).collect(), keyring)
}

impl Initiator {
    /// Initiators with the only connection of a `swanctl.conf`.
    pub(crate) fn new(file: &File, source_address: SourceAddress) -> Self {
        let (mut connections, keyring) = load(file);
        let connection = connections.pop().expect("the file has a connection");
        Self {
            ike: Ike::new(SETTINGS),
            connection,
            source_address,
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
    pub(crate) fn receive(&mut self, message: &mut [u8], path: Path, now: Instant) {
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
        let providers = Providers(&PROVIDERS);
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
