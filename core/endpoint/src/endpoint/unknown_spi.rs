//! ESP and AH packets with an SPI that this host does not know, from the address of a configured peer.
//!
//! After a crash of this host, its peers send on SAs that no longer exist here (RFC 7296 section 1.5).
//! Nothing in such a packet is authenticated, so it only causes what this host may do at any time: it starts
//! the connection that names the address, unless there is an IKE SA with the peer. The peer learns from
//! INITIAL_CONTACT that the old SAs are gone (section 2.4). If no connection names the address, but one
//! accepts it, the source is told that the SPI is unknown. [`NamedPeers`] bounds what a sender of forged
//! packets can cause (docs/decisions/0080-liveness-when-needed.md).

use super::Endpoint;
use crate::Notice;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::Audit;
use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{Context, DownReason, Event, HostAddrs, Lookup, Path, Routes};
use casemate_sa::table::ByteIndex;
use casemate_sa::{Instant, RateLimiter, UdpEncap};
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// Pause of a connection after its first attempt. Each further attempt without an established IKE SA doubles
/// the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Number of doublings after which the pause no longer grows: 320 s.
const MAX_DOUBLINGS: u32 = 5;
/// Pause of a connection whose peer has an IKE SA, or had one until now: packets of its Child SAs may still
/// arrive.
const CONNECTED_PAUSE: Duration = Duration::from_secs(1);
/// UDP port of IKE (RFC 7296 section 2).
const IKE_PORT: u16 = 500;
/// Attempts per second of all connections together, and at once.
const ATTEMPTS_PER_SECOND: u32 = 64;

/// The connections that name the address of their peer.
pub(super) struct NamedPeers {
    /// Ordered by address, then as configured.
    peers: Vec<NamedPeer>,
    /// Positions in `peers` by the names of the connections.
    by_name: ByteIndex,
    limiter: RateLimiter,
}

struct NamedPeer {
    addr: IpAddr,
    connection: Arc<Connection>,
    /// Attempts since the last established IKE SA.
    attempts: u32,
    /// When another attempt is allowed.
    paused_until: Instant,
    /// A local command has closed the connection.
    is_stopped: bool,
}

impl NamedPeers {
    pub(super) const fn new() -> Self {
        Self {
            peers: Vec::new(),
            by_name: ByteIndex::new(),
            limiter: RateLimiter::new(ATTEMPTS_PER_SECOND, ATTEMPTS_PER_SECOND),
        }
    }

    /// Replaces the connections, and the addresses of their hosts. A connection that keeps its name keeps its
    /// pause.
    pub(super) fn configure(&mut self, connections: &[Arc<Connection>], routes: &dyn Routes) {
        let mut known = core::mem::take(&mut self.peers);
        known.sort_by(|one, other| one.connection.name.cmp(&other.connection.name));
        let named = connections.iter().filter(|connection| !connection.children.is_empty());
        self.peers.extend(named.filter_map(|connection| {
            let known_addr = |pattern: &AddrPattern| match pattern.single_addrs(Lookup::Cached, routes) {
                HostAddrs::Known(addrs) => addrs.first().copied(),
                HostAddrs::Pending | HostAddrs::Unknown => None,
            };
            let addr = connection.remote_addrs.iter().find_map(known_addr)?;
            let connection = connection.clone();
            let before = known.binary_search_by(|known| known.connection.name.cmp(&connection.name));
            let before = before.ok().and_then(|at| known.get(at));
            Some(NamedPeer {
                addr,
                connection,
                attempts: before.map_or(0, |before| before.attempts),
                paused_until: before.map_or(Instant::ZERO, |before| before.paused_until),
                is_stopped: before.is_some_and(|before| before.is_stopped),
            })
        }));
        self.peers.sort_by_key(|peer| peer.addr);
        self.by_name = ByteIndex::new();
        for (position, peer) in (0..).zip(&self.peers) {
            self.by_name.insert(peer.connection.name.as_bytes(), [position, 0]);
        }
    }

    /// The connections with the peer at this address.
    fn at(&mut self, addr: IpAddr) -> impl Iterator<Item = &mut NamedPeer> {
        let first = self.peers.partition_point(|peer| peer.addr < addr);
        self.peers.iter_mut().skip(first).take_while(move |peer| peer.addr == addr)
    }

    /// Takes the connection to start for a packet from `src` to `dst`, and begins its pause. `has_ike_sa`
    /// returns whether there is an IKE SA with the peer; the limits bound how often it is called.
    fn take_due(
        &mut self,
        src: IpAddr,
        dst: IpAddr,
        context: &Context<'_>,
        has_ike_sa: impl FnOnce() -> bool,
    ) -> Option<Arc<Connection>> {
        let (now, routes) = (context.now, context.routes);
        let is_due = self.at(src).any(|peer| peer.is_due(dst, now, routes)) && self.limiter.allow(now);
        let peer = self.at(src).find(|peer| is_due && peer.is_due(dst, now, routes))?;
        if has_ike_sa() {
            peer.paused_until = now.after(CONNECTED_PAUSE);
            return None;
        }
        let doublings = peer.attempts.min(MAX_DOUBLINGS);
        let pause = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(1));
        peer.attempts = peer.attempts.saturating_add(1);
        peer.paused_until = now.after(pause);
        Some(peer.connection.clone())
    }

    /// Follows the IKE SAs of the connections.
    pub(super) fn note_event(&mut self, event: &Event, now: Instant) {
        let (connection, is_stopped) = match event {
            Event::IkeUp { connection, .. } => (connection, Some(false)),
            Event::IkeDown { connection, reason: DownReason::Local, half_open: false, .. } => {
                (connection, Some(true))
            }
            Event::IkeDown { connection, half_open: false, .. } => (connection, None),
            _ => return,
        };
        let Self { peers, by_name, .. } = self;
        for [position, _] in by_name.get_all(connection.name.as_bytes()) {
            let peer = usize::try_from(position).ok().and_then(|position| peers.get_mut(position));
            let Some(peer) = peer.filter(|peer| peer.connection.name == connection.name) else { continue };
            match is_stopped {
                Some(is_stopped) => (peer.is_stopped, peer.attempts) = (is_stopped, 0),
                None => peer.paused_until = peer.paused_until.max(now.after(CONNECTED_PAUSE)),
            }
        }
    }
}

impl NamedPeer {
    fn is_due(&self, dst: IpAddr, now: Instant, routes: &dyn Routes) -> bool {
        let is_local = || self.connection.local_addrs.iter().any(|pattern| pattern.matches(dst, routes));
        !self.is_stopped && self.paused_until <= now && is_local()
    }
}

impl Endpoint {
    /// Handles a packet with an unknown SPI.
    pub(super) fn on_unknown_spi(&mut self, audit: &Audit, context: &mut Context<'_>) {
        let (Some(src), Some(dst)) = (audit.src, audit.dst) else { return };
        if self.named_peers.at(src).next().is_none() {
            return self.report_unknown_spi(audit, src, dst, context);
        }
        let Self { named_peers, ike, .. } = self;
        let now = context.now;
        let has_ike_sa = || ike.has_ike_sa_with(src, now);
        let Some(connection) = named_peers.take_due(src, dst, context, has_ike_sa) else { return };
        self.notices.push_back(Notice::PeerUsesUnknownSpi { connection: connection.clone() });
        // The packet does not show which of the Child SAs the peer uses.
        for child in &connection.children {
            let initiated =
                self.with_ike(|ike, host| ike.initiate(&connection, Some(child), None, host, context));
            if let Err(error) = initiated {
                let connection = connection.clone();
                self.notices.push_back(Notice::Ike(Event::InitiateFailed { connection, error }));
                return;
            }
        }
    }
    /// Reports a packet with an unknown SPI to its source, which this host cannot initiate a connection with.
    fn report_unknown_spi(&mut self, audit: &Audit, src: IpAddr, dst: IpAddr, context: &mut Context<'_>) {
        let Some(header) = audit.header else { return };
        // RFC 7296 section 1.5: to the port from which an encapsulated packet came.
        let udp = audit.udp.unwrap_or(UdpEncap { src_port: IKE_PORT, dst_port: IKE_PORT });
        let path =
            Path { local: SocketAddr::new(dst, udp.dst_port), remote: SocketAddr::new(src, udp.src_port) };
        self.with_ike(|ike, host| ike.report_unknown_spi(path, header.spi, host, context));
    }
}
