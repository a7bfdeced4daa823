//! A handshake between two IKE engines in memory: IKE_SA_INIT and IKE_AUTH (RFC 7296 section 1.2), with a pre-shared key and the
//! paper's algorithms, each call timed by itself.

use super::super::subject::{CIPHER, MAC};
use super::Case;
use casemate_crypto::{PrfAlg, Providers, Rng, SecretBytes};
use casemate_ike::config::{
    AddrPattern, Child, ChildAlgorithms, ChildProposal, Connection, IdPattern, Identity, IkeEncryption,
    IkeProposal, Sequence,
};
use casemate_ike::{Env, Event, Host, Ike, Path, Settings, SharedKeys};
use casemate_linux::rng::SystemRng;
use casemate_measure::harness::time;
use casemate_sa::{AddrRange, Instant, Spi};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What is timed, in its order.
pub(super) const STEPS: [&str; 5] = [
    "initiator: IKE_SA_INIT request made",
    "responder: IKE_SA_INIT request in, response made",
    "initiator: IKE_SA_INIT response in, IKE_AUTH request made",
    "responder: IKE_AUTH request in, response made",
    "initiator: IKE_AUTH response in",
];
/// How many of them, the first ones, are of IKE_SA_INIT.
pub(super) const INIT: usize = 3;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const NAMES: [&str; 2] = ["initiator.test", "responder.test"];
const PORT: u16 = 500;
const NOW: Instant = Instant::from_secs(1);

/// The time of each step; `None` if the two do not end with a Child SA each.
pub(super) fn handshake(case: Case) -> Option<[Duration; STEPS.len()]> {
    let mut initiator = Side::new(case, ADDRESSES, NAMES)?;
    let [first, second] = ADDRESSES;
    let [name, peer] = NAMES;
    let mut responder = Side::new(case, [second, first], [peer, name])?;
    let asks = initiator.begin();
    let answers = responder.take(initiator.message()?);
    let proves = initiator.take(responder.message()?);
    let accepts = responder.take(initiator.message()?);
    let ends = initiator.take(responder.message()?);
    (initiator.has_child() && responder.has_child()).then_some([asks, answers, proves, accepts, ends])
}

/// One of the two.
struct Side {
    ike: Ike,
    connection: Arc<Connection>,
    path: Path,
    case: Case,
    keys: SharedKeys,
    rng: SystemRng,
    spis: Spis,
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

impl Side {
    fn new(case: Case, [own, peer]: [Ipv4Addr; 2], names: [&str; 2]) -> Option<Self> {
        let [name, peer_name] = names.map(|name| Identity::Fqdn(name.into()));
        let only = |address: Ipv4Addr| vec![AddrPattern::Range(AddrRange::single(address.into()))];
        let (encryption, algorithms) = (
            IkeEncryption::Separate(vec![CIPHER], vec![MAC]),
            ChildAlgorithms::EspSeparate(vec![CIPHER], vec![MAC]),
        );
        let proposal = IkeProposal { encryption, prfs: vec![PrfAlg::HmacSha1], kex: vec![case.method] };
        let child = ChildProposal { algorithms, kex: Vec::new(), sequence: Sequence::PreferPlain };
        let connection = Arc::new(Connection {
            local_addrs: only(own),
            remote_addrs: only(peer),
            proposals: vec![proposal],
            children: vec![Arc::new(Child { proposals: vec![child], ..Child::new("child") })],
            ..Connection::with_shared_key("peer", name, peer_name)
        });
        let mut ike = Ike::new(Settings::DEVICE);
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
            spis: Spis(0x1000),
        })
    }

    fn begin(&mut self) -> Duration {
        let connection = self.connection.clone();
        // What went wrong is seen by the message that is not there.
        self.act(|ike, env| ike.initiate(&connection, connection.children.first(), None, env).is_ok())
    }

    fn take(&mut self, mut message: Vec<u8>) -> Duration {
        let path = self.path;
        self.act(|ike, env| ike.receive(&mut message, path, env))
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Ike, &mut Env<'_>) -> T) -> Duration {
        let Self { ike, case, keys, rng, spis, .. } = self;
        let provider = [case.provider];
        let providers = Providers(&provider);
        let mut env =
            Env { now: NOW, unix_time: 0, rng, providers: &providers, credentials: keys, host: spis };
        time(|| drop(std::hint::black_box(act(ike, &mut env))))
    }

    /// The one message that is to be sent.
    fn message(&mut self) -> Option<Vec<u8>> {
        let message = self.ike.next_transmit()?.message;
        self.ike.next_transmit().is_none().then_some(message)
    }

    fn has_child(&mut self) -> bool {
        std::iter::from_fn(|| self.ike.next_event()).any(|event| matches!(event, Event::ChildUp(_)))
    }
}
