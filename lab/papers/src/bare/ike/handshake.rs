//! Handshake between two IKE engines in memory: IKE_SA_INIT and IKE_AUTH (RFC 7296 section 1.2) with a
//! pre-shared key and the paper's algorithms. Each call is timed separately.

use super::super::benchmark::{CIPHER, MAC};
use super::Case;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes};
use casemate_ike::config::{
    AdditionalKexes, AddrPattern, ChildAlgorithms, ChildConfig, ChildProposal, Connection, EsnPolicy,
    IdPattern, Identity, IkeEncryption, IkeProposal,
};
use casemate_ike::{Context, Event, Host, Ike, IkeSettings, Path, Routes, SharedKeys};
use casemate_linux::process::SystemRng;
use casemate_measure::harness::time;
use casemate_sa::{AddrRange, Instant, Spi};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Timed steps, in order.
pub(super) const STEPS: [&str; 5] = [
    "initiator: send IKE_SA_INIT request",
    "responder: process IKE_SA_INIT request, send response",
    "initiator: process IKE_SA_INIT response, send IKE_AUTH request",
    "responder: process IKE_AUTH request, send response",
    "initiator: process IKE_AUTH response",
];
/// Number of steps that belong to IKE_SA_INIT. They come first.
pub(super) const INIT_STEPS: usize = 3;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const NAMES: [&str; 2] = ["initiator.test", "responder.test"];
const PORT: u16 = 500;
const NOW: Instant = Instant::from_secs(1);

/// Returns the time of each step; `None` unless both peers establish a Child SA.
pub(super) fn handshake(case: Case) -> Option<[Duration; STEPS.len()]> {
    let mut initiator = Peer::new(case, ADDRESSES, NAMES)?;
    let [first, second] = ADDRESSES;
    let [name, peer] = NAMES;
    let mut responder = Peer::new(case, [second, first], [peer, name])?;
    let asks = initiator.initiate();
    let answers = responder.receive(initiator.next_message()?);
    let proves = initiator.receive(responder.next_message()?);
    let accepts = responder.receive(initiator.next_message()?);
    let ends = initiator.receive(responder.next_message()?);
    (initiator.has_child() && responder.has_child()).then_some([asks, answers, proves, accepts, ends])
}

/// One of the two peers.
struct Peer {
    ike: Ike,
    connection: Arc<Connection>,
    path: Path,
    case: Case,
    keys: SharedKeys,
    rng: SystemRng,
    spis: SequentialSpis,
}

/// Allocator of consecutive SPIs.
struct SequentialSpis(u32);

impl Host for SequentialSpis {
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

impl Peer {
    fn new(case: Case, [own, peer]: [Ipv4Addr; 2], names: [&str; 2]) -> Option<Self> {
        let [name, peer_name] = names.map(|name| Identity::Fqdn(name.into()));
        let only = |address: Ipv4Addr| vec![AddrPattern::Range(AddrRange::single(address.into()))];
        let (encryption, algorithms) = (
            IkeEncryption::Separate(vec![CIPHER], vec![MAC]),
            ChildAlgorithms::EspSeparate(vec![CIPHER], vec![MAC]),
        );
        let proposal = IkeProposal {
            encryption,
            prfs: vec![PrfAlg::HmacSha1],
            kex: vec![case.method],
            additional: AdditionalKexes::new(),
        };
        let child = ChildProposal {
            algorithms,
            kex: Vec::new(),
            additional: AdditionalKexes::new(),
            esn: EsnPolicy::Allowed,
        };
        let connection = Arc::new(Connection {
            local_addrs: only(own),
            remote_addrs: only(peer),
            proposals: vec![proposal],
            children: vec![Arc::new(ChildConfig { proposals: vec![child], ..ChildConfig::new("child") })],
            ..Connection::with_shared_key("peer", name, peer_name)
        });
        let mut ike = Ike::new(IkeSettings::DEVICE);
        ike.configure(vec![connection.clone()], &[]);
        Some(Self {
            ike,
            connection,
            path: Path {
                local: SocketAddr::new(own.into(), PORT),
                remote: SocketAddr::new(peer.into(), PORT),
            },
            case,
            keys: SharedKeys::new().with(IdPattern::Any, SecretBytes::new(b"protects nothing")),
            rng: SystemRng::new().ok()?,
            spis: SequentialSpis(0x1000),
        })
    }

    fn initiate(&mut self) -> Duration {
        let connection = self.connection.clone();
        // After an error there is no message, which the caller detects.
        self.timed(|ike, host, context| {
            ike.initiate(&connection, connection.children.first(), None, host, context).is_ok()
        })
    }

    fn receive(&mut self, mut message: Vec<u8>) -> Duration {
        let path = self.path;
        self.timed(|ike, host, context| ike.receive(&mut message, path, host, context))
    }

    fn timed<T>(&mut self, act: impl FnOnce(&mut Ike, &mut dyn Host, &mut Context<'_>) -> T) -> Duration {
        let Self { ike, case, keys, rng, spis, .. } = self;
        let provider = [case.provider];
        let providers = Providers(&provider);
        let mut context = Context {
            now: NOW,
            unix_time: 0,
            rng,
            providers: &providers,
            credentials: keys,
            routes: &NoRoutes,
        };
        time(|| drop(std::hint::black_box(act(ike, spis, &mut context))))
    }

    /// Returns the message to send if there is exactly one.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let message = self.ike.next_transmit()?.message;
        self.ike.next_transmit().is_none().then_some(message)
    }

    fn has_child(&mut self) -> bool {
        std::iter::from_fn(|| self.ike.next_event()).any(|event| matches!(event, Event::ChildUp(_)))
    }
}
