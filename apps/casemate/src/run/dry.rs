//! What `--dry-run` shows of a swanctl.conf: the policies that stand before there is any SA, which are traps,
//! blocks and exceptions. Policies of Child SAs come later and depend on the peers.

use super::config::Loaded;
use crate::failure::Failure;
use crate::keyring::Keyring;
use casemate::{Endpoint, Means, Notice, PolicyChange, Routes};
use casemate_crypto::Providers;
use casemate_datapath::spd::{Action, Policy, PolicyId};
use casemate_datapath::{Config, Datapath, Direction};
use casemate_ike::Settings;
use casemate_ike::config::Connection;
use casemate_linux::rng::SystemRng;
use casemate_sa::Instant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// The policies of both directions.
#[derive(Default)]
pub(super) struct AtStart {
    pub(super) outbound: Vec<(PolicyId, Policy)>,
    pub(super) inbound: Vec<(PolicyId, Policy)>,
}

impl AtStart {
    /// What these connections ask for.
    pub(super) fn of(loaded: &Loaded) -> Result<Self, Failure> {
        let mut endpoint = Endpoint::new(Datapath::new(Config::server(0)), Settings::SERVER);
        let (mut rng, credentials) = (SystemRng::new().map_err(Failure::failed)?, Keyring::empty());
        let mut means = Means {
            now: Instant::ZERO,
            unix_time: 0,
            rng: &mut rng,
            providers: &Providers(&[]),
            credentials: &credentials,
            routes: &PresentRoutes,
        };
        let connections = loaded.connections.iter().map(without_start).collect();
        endpoint.configure(connections, &loaded.pools, &mut means).map_err(Failure::failed)?;
        let mut policies = Self::default();
        while let Some(notice) = endpoint.next_notice() {
            let Notice::Policy(PolicyChange::Added { direction, id, policy }) = notice else { continue };
            match direction {
                Direction::Outbound => policies.outbound.push((id, policy)),
                Direction::Inbound => policies.inbound.push((id, policy)),
            }
        }
        Ok(policies)
    }

    /// The traffic that is blocked until there is an SA, one comment line for each selector.
    pub(super) fn held(&self) -> String {
        let held = self.outbound.iter().filter(|(_, policy)| matches!(policy.action, Action::Protect(_)));
        held.map(|(_, policy)| format!("# blocked until an SA is up: {}\n", policy.selector)).collect()
    }
}

/// The connection with nothing that is begun at once.
fn without_start(connection: &Arc<Connection>) -> Arc<Connection> {
    let mut connection = Connection::clone(connection);
    for child in &mut connection.children {
        Arc::make_mut(child).start.at_once = false;
    }
    Arc::new(connection)
}

/// The routes that packets take before a start. Unlike those of a running instance they need no privilege.
struct PresentRoutes;

impl Routes for PresentRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let any: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        // Nothing is sent: the kernel only looks up the way.
        socket.connect((remote, casemate_linux::ike::IKE_PORT)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}
