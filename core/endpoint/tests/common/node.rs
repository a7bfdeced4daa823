//! Two connected endpoints in virtual time.
#![allow(clippy::panic, reason = "a test may fail")]

use super::{OWN, OneSource, PEER, only, send};
use casemate::{Context, Datapath, Endpoint, Notice};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{ChildConfig, Connection, IdPattern, Identity};
use casemate_ike::{IkeSettings, Path, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use casemate_test_support::TestRng;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// An endpoint with its own clock.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) now: Instant,
    /// The pre-shared key.
    pub(crate) secret: &'static [u8],
    /// The source address on every route.
    pub(crate) source: Option<IpAddr>,
    rng: TestRng,
}

/// The connection between two addresses, as configured at `own`.
pub(crate) fn connection(own: [u8; 4], peer: [u8; 4], child: ChildConfig) -> Connection {
    let identity = |addr: [u8; 4]| Identity::Address(addr.into());
    let mut connection = Connection::with_shared_key("peer", identity(own), identity(peer));
    (connection.local_addrs, connection.remote_addrs) = (only(own), only(peer));
    connection.children = vec![Arc::new(child)];
    connection.dpd_delay = (own == OWN).then_some(Duration::from_secs(10));
    connection
}

impl Node {
    pub(crate) fn new(connection: Connection) -> Self {
        Self::with(Limits::DEVICE, IkeSettings::DEVICE, connection)
    }

    pub(crate) fn with(limits: Limits, settings: IkeSettings, connection: Connection) -> Self {
        let datapath = Datapath::new(Config { limits, ..Config::server(1) });
        let endpoint = Endpoint::new(datapath, settings);
        let is_peer = connection.local_addrs == only(PEER);
        let rng = TestRng::new(if is_peer { 2 } else { 1 });
        let mut node =
            Self { endpoint, now: Instant::from_secs(1), secret: b"a secret of both", source: None, rng };
        node.configure(vec![connection]);
        node
    }

    pub(crate) fn configure(&mut self, connections: Vec<Connection>) {
        let connections = connections.into_iter().map(Arc::new).collect();
        self.act(|endpoint, context| endpoint.configure(connections, &[], context)).unwrap();
    }

    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Context<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut context = Context {
            now: self.now,
            unix_time: 0,
            rng: &mut self.rng,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(self.secret)),
            routes: &OneSource(self.source),
        };
        act(&mut self.endpoint, &mut context)
    }

    /// Changes the random stream: a restarted host must not draw the same SPIs again.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.rng = TestRng::new(seed);
    }

    pub(crate) fn children(&self) -> usize {
        self.endpoint.ike().status().map(|ike| ike.children.len()).sum()
    }

    pub(crate) fn policies(&self) -> usize {
        self.endpoint.datapath().policies(Direction::Outbound).count()
    }

    /// Sends a packet to the peer and returns the verdict.
    pub(crate) fn send(&mut self) -> Outbound {
        send(&mut self.endpoint, self.now, OWN, PEER)
    }

    pub(crate) fn is_trapped(&mut self) -> bool {
        self.traps(OWN, PEER)
    }

    /// Whether a packet is dropped because there is no SA: neither sent nor passed in clear.
    pub(crate) fn traps(&mut self, from: [u8; 4], to: [u8; 4]) -> bool {
        let verdict = send(&mut self.endpoint, self.now, from, to);
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }
}

/// Exchanges IKE messages between the nodes until there are none.
pub(crate) fn exchange_messages(nodes: &mut [Node; 2]) {
    notices_of_exchange(nodes);
}

/// Exchanges IKE messages between the nodes until there are none. Returns the notices of both.
pub(crate) fn notices_of_exchange(nodes: &mut [Node; 2]) -> [Vec<Notice>; 2] {
    let mut notices = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        let mut any = false;
        for from in [0, 1] {
            nodes[from].act(Endpoint::handle_timeouts);
            notices[from].extend(std::iter::from_fn(|| nodes[from].endpoint.next_notice()));
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                any = true;
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from]
                    .act(|endpoint, context| endpoint.receive_ike(&mut sent.message, path, context));
            }
        }
        if !any {
            return notices;
        }
    }
    panic!("the nodes never stop sending");
}

pub(crate) fn advance(nodes: &mut [Node; 2], time: u64) {
    for _ in 0..time {
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
        exchange_messages(nodes);
    }
}
