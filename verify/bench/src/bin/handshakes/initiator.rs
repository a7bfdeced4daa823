//! Initiators without number: an engine that begins handshakes, each with an identity, SPIs and traffic of its own.

use crate::dice::Dice;
use casemate_app::keyring::Keyring;
use casemate_app::swanctl::Config;
use casemate_crypto::{Provider, Providers, Rng};
use casemate_ike::config::{AddrPattern, Child, Connection, Identity, LocalMethod};
use casemate_ike::{Down, Env, Event, Host, Ike, Path, Settings, TrafficTemplate, Transmit};
use casemate_sa::{AddrRange, Instant, PortRange, Spi};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as File;
use std::sync::Arc;

/// What `casemate run --config` uses, in its order.
pub(crate) const PROVIDERS: [&dyn Provider; 2] = [&casemate_aws_lc::AWS_LC, &casemate_rustcrypto::RUSTCRYPTO];

/// More SAs than any measurement makes.
const SETTINGS: Settings = Settings { ike_sas: 1 << 20, ..Settings::SERVER };

/// 10.128.0.0, the first of the addresses of initiators that have one of their own.
const FIRST_HOME: u32 = 0x0a80_0000;
/// 10.64.0.0, the first of the addresses behind initiators.
const FIRST_ADDR: u32 = 0x0a40_0000;

/// Where initiators are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// All at the address that is configured.
    Shared,
    /// Each at an address of its own.
    Own,
}

/// Initiators.
pub(crate) struct Initiator {
    ike: Ike,
    connection: Arc<Connection>,
    home: Home,
    keyring: Keyring,
    dice: Dice,
    spis: Spis,
    begun: u32,
    done: u32,
    failed: Vec<Down>,
}

/// SPIs, one after the other.
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

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// A configuration and its keys.
pub(crate) fn load(file: &File) -> (Vec<Arc<Connection>>, Keyring) {
    let config = Config::load(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let keyring = Keyring::load(&config, &PROVIDERS).unwrap_or_else(|errors| panic!("{errors:?}"));
    (config.connections.into_iter().map(Arc::new).collect(), keyring)
}

impl Initiator {
    /// With the one connection of a `swanctl.conf`.
    pub(crate) fn new(file: &File, home: Home) -> Self {
        let (mut connections, keyring) = load(file);
        let connection = connections.pop().expect("the file has a connection");
        Self {
            ike: Ike::new(SETTINGS),
            connection,
            home,
            keyring,
            dice: Dice::new(),
            spis: Spis(0x1000),
            begun: 0,
            done: 0,
            failed: Vec::new(),
        }
    }

    /// Begins a handshake.
    pub(crate) fn begin(&mut self, now: Instant) {
        let mut connection = Connection::clone(&self.connection);
        // A certificate names one identity only.
        if connection.local.method == LocalMethod::SharedKey {
            connection.local.id = Some(Identity::Fqdn(format!("initiator{}.test", self.begun)));
        }
        if self.home == Home::Own {
            let own = Ipv4Addr::from_bits(FIRST_HOME + self.begun);
            connection.local_addrs = vec![AddrPattern::Range(AddrRange::single(own.into()))];
        }
        let addr = Ipv4Addr::from_bits(FIRST_ADDR + self.begun);
        let addrs = Some(AddrRange::single(addr.into()));
        let own = TrafficTemplate { addrs, proto: None, ports: PortRange::ANY };
        let child = Child { local_ts: vec![own], ..Child::clone(&connection.children[0]) };
        let child = Arc::new(child);
        connection.children = vec![child.clone()];
        self.begun += 1;
        self.act(now, |ike, env| ike.initiate(&Arc::new(connection), Some(&child), None, env)).unwrap();
    }

    /// Takes a message without its marker.
    pub(crate) fn receive(&mut self, message: &mut [u8], path: Path, now: Instant) {
        self.act(now, |ike, env| ike.receive(message, path, env));
    }

    /// Repeats what got lost.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.ike.due().is_some_and(|due| due <= now) {
            self.act(now, Ike::tick);
        }
    }

    fn act<T>(&mut self, now: Instant, act: impl FnOnce(&mut Ike, &mut Env<'_>) -> T) -> T {
        let providers = Providers(&PROVIDERS);
        let mut env = Env {
            now,
            unix_time: unix_time(),
            rng: &mut self.dice,
            providers: &providers,
            credentials: &self.keyring,
            host: &mut self.spis,
        };
        let done = act(&mut self.ike, &mut env);
        while let Some(event) = self.ike.next_event() {
            match event {
                Event::ChildUp(_) => self.done += 1,
                Event::IkeDown { why, .. } | Event::ChildFailed { why, .. } => self.failed.push(why),
                _ => {}
            }
        }
        done
    }

    /// The next datagram to be sent.
    pub(crate) fn next_transmit(&mut self) -> Option<Transmit> {
        self.ike.next_transmit()
    }

    /// Handshakes that came to their end, with a Child SA.
    pub(crate) const fn done(&self) -> u32 {
        self.done
    }

    /// Handshakes that are on their way.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.begun - self.done
    }

    /// Handshakes that were begun.
    pub(crate) const fn begun(&self) -> u32 {
        self.begun
    }

    /// A measurement in which a handshake fails is none.
    pub(crate) fn check(&self) {
        assert!(self.failed.is_empty(), "handshakes failed: {:?}", self.failed);
    }
}

/// Seconds since 1970, for certificates.
pub(crate) fn unix_time() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("the clock is set").as_secs()
}
