//! Endpoints with a wire between them, in virtual time.
#![allow(clippy::panic, reason = "a test may fail")]

use super::{Dice, OWN, PEER, Ways, only, send};
use casemate::{Datapath, Endpoint, Means};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_datapath::{Config, Direction, DropReason, Outbound};
use casemate_ike::config::{Child, Connection, IdPattern, Identity};
use casemate_ike::{Path, Settings, SharedKeys};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Instant, Limits};
use std::sync::Arc;
use std::time::Duration;

/// An endpoint with its own clock.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) now: Instant,
    /// The pre-shared key.
    pub(crate) secret: &'static [u8],
    dice: Dice,
}

/// Between the two, from the point of view of `own`.
pub(crate) fn connection(own: [u8; 4], peer: [u8; 4], child: Child) -> Connection {
    let identity = |addr: [u8; 4]| Identity::Address(addr.into());
    let mut connection = Connection::with_shared_key("peer", identity(own), identity(peer));
    (connection.local_addrs, connection.remote_addrs) = (only(own), only(peer));
    connection.children = vec![Arc::new(child)];
    connection.dpd_delay = (own == OWN).then_some(Duration::from_secs(10));
    connection
}

impl Node {
    pub(crate) fn new(connection: Connection) -> Self {
        Self::with((Limits::DEVICE, Settings::DEVICE), connection)
    }

    pub(crate) fn with((limits, settings): (Limits, Settings), connection: Connection) -> Self {
        let datapath = Datapath::new(Config { limits, ..Config::server(1) });
        let endpoint = Endpoint::new(datapath, settings);
        let is_peer = connection.local_addrs[0].single() == Some(PEER.into());
        let dice = Dice(if is_peer { 2 } else { 1 });
        let mut node = Self { endpoint, now: Instant::from_secs(1), secret: b"a secret of both", dice };
        node.configure(vec![connection]);
        node
    }

    pub(crate) fn configure(&mut self, connections: Vec<Connection>) {
        let connections = connections.into_iter().map(Arc::new).collect();
        self.act(|endpoint, means| endpoint.configure(connections, &[], means)).unwrap();
    }

    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut Endpoint, &mut Means<'_>) -> R) -> R {
        let list: [&dyn Provider; 1] = [&RUSTCRYPTO];
        let mut means = Means {
            now: self.now,
            unix_time: 0,
            rng: &mut self.dice,
            providers: &Providers(&list),
            credentials: &SharedKeys::new().with(IdPattern::Any, SecretBytes::new(self.secret)),
            routes: &Ways,
        };
        act(&mut self.endpoint, &mut means)
    }

    /// Another random stream: a host that restarted does not draw its SPIs again.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.dice = Dice(seed);
    }

    pub(crate) fn children(&self) -> usize {
        self.endpoint.ike().status().map(|ike| ike.children.len()).sum()
    }

    pub(crate) fn policies(&self) -> usize {
        self.endpoint.datapath().policies(Direction::Outbound).count()
    }

    /// What becomes of a packet to the peer.
    pub(crate) fn send(&mut self) -> Outbound {
        send(&mut self.endpoint, self.now, (OWN, PEER))
    }

    pub(crate) fn is_held(&mut self) -> bool {
        self.holds(OWN, PEER)
    }

    /// Whether a packet is held back: it is neither sent nor passed in clear.
    pub(crate) fn holds(&mut self, from: [u8; 4], to: [u8; 4]) -> bool {
        let verdict = send(&mut self.endpoint, self.now, (from, to));
        matches!(verdict, Outbound::Drop(DropReason::NoOutboundSa))
    }
}

/// Carries IKE messages between the two until there are none.
pub(crate) fn settle(nodes: &mut [Node; 2]) {
    for _ in 0..100 {
        let mut any = false;
        for from in [0, 1] {
            nodes[from].act(Endpoint::serve);
            while nodes[from].endpoint.next_notice().is_some() {}
            while let Some(mut sent) = nodes[from].endpoint.next_transmit() {
                any = true;
                let path = Path { local: sent.path.remote, remote: sent.path.local };
                nodes[1 - from].act(|endpoint, means| endpoint.receive_ike(&mut sent.message, path, means));
            }
        }
        if !any {
            return;
        }
    }
    panic!("they talk without end");
}

pub(crate) fn pass(nodes: &mut [Node; 2], time: u64) {
    for _ in 0..time {
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_secs(1)));
        settle(nodes);
    }
}
