//! Every IKE SA of a host, and the ways to it: by name, SPI, connection, and time.

use crate::config::Connection;
use crate::sa::{IkeSa, State};
use crate::{Down, IkeSaId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use casemate_sa::Instant;
use casemate_tables::{Index, Names, Table, Words};
use casemate_wire::ike::IkeSpi;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// The IKE SAs. What else is known of one is kept in step with it: whoever changes its state takes it out and puts it back.
pub(crate) struct Registry {
    sas: Table<IkeSaId, Box<IkeSa>>,
    /// By our own SPI.
    by_spi: Table<u64, IkeSaId>,
    /// Half-open ones that peers began, by [`asking`]: for requests that come again.
    half_open: Names,
    /// How many of them there are from each source, by [`source_of`].
    sources: Table<u128, usize>,
    /// Those that others have replaced, by their names: the oldest first.
    replaced: Index,
    /// By the connection, as it lies in memory, and in this order: connection, IKE SA. Without half-open ones.
    by_connection: Index,
    /// When each has something to do, in this order: time, IKE SA.
    timers: Index,
    scheduled: Table<IkeSaId, Instant>,
    /// How often a NAT is shown that a way is still in use.
    keepalive: Duration,
}

/// What the tables say of an IKE SA that was taken out.
pub(crate) struct Before {
    own_spi: IkeSpi,
    half_open: Option<(Asking, u128)>,
    connected: Option<Words>,
}

impl Before {
    /// Whether it was half-open and begun by the peer.
    pub(crate) const fn is_half_open(&self) -> bool {
        self.half_open.is_some()
    }
}

impl Registry {
    /// Without IKE SAs.
    pub(crate) fn new(keepalive: Duration) -> Self {
        Self {
            sas: Table::default(),
            by_spi: Table::default(),
            half_open: Names::new(),
            sources: Table::default(),
            replaced: Index::new(),
            by_connection: Index::new(),
            timers: Index::new(),
            scheduled: Table::default(),
            keepalive,
        }
    }

    /// Adds an IKE SA.
    pub(crate) fn insert(&mut self, sa: IkeSa) {
        let id = sa.head.id;
        self.by_spi.insert(sa.head.own_spi().0, id);
        if sa.is_half_open() {
            self.half_open.insert(&asking(sa.head.path.remote, sa.head.spi_i), [id.0, 0]);
            let source = source_of(sa.head.path.remote.ip());
            let known = self.sources.get(source).copied().unwrap_or(0);
            self.sources.insert(source, known.saturating_add(1));
        }
        connected(&sa).map(|entry| self.by_connection.insert(entry));
        self.schedule(&sa);
        self.sas.insert(id, sa.into());
    }

    /// Takes an IKE SA out. With [`put_back`](Self::put_back) apart from what it does meanwhile, so that they are not there once for
    /// each of the things that an IKE SA can do.
    pub(crate) fn take(&mut self, id: IkeSaId) -> Option<(IkeSa, Before)> {
        let sa = *self.sas.remove(id)?;
        let remote = sa.head.path.remote;
        let half_open = sa.is_half_open().then(|| (asking(remote, sa.head.spi_i), source_of(remote.ip())));
        let connected = connected(&sa);
        let own_spi = sa.head.own_spi();
        Some((sa, Before { own_spi, half_open, connected }))
    }

    /// Puts an IKE SA back, and in order what is known of it. One that is closed is forgotten: it comes back, with the reason.
    pub(crate) fn put_back(&mut self, sa: IkeSa, before: Before) -> Option<(IkeSa, Down)> {
        if let Some((asking, source)) = before.half_open.filter(|_| !sa.is_half_open()) {
            self.half_open.remove(&asking, [sa.head.id.0, 0]);
            match self.half_open_from(source).saturating_sub(1) {
                0 => drop(self.sources.remove(source)),
                left => drop(self.sources.insert(source, left)),
            }
        }
        let own_spi = sa.head.own_spi();
        if own_spi != before.own_spi {
            self.by_spi.remove(before.own_spi.0);
            self.by_spi.insert(own_spi.0, sa.head.id);
        }
        let is_connected = connected(&sa);
        if let Some(known) = before.connected.filter(|_| is_connected != before.connected) {
            self.by_connection.remove(known);
        }
        is_connected.map(|entry| self.by_connection.insert(entry));
        match sa.is_replaced() {
            true => self.replaced.insert([sa.head.id.0, 0, 0]),
            false => self.replaced.remove([sa.head.id.0, 0, 0]),
        };
        if let State::Closed(why) = sa.state {
            self.by_spi.remove(sa.head.own_spi().0);
            self.unschedule(sa.head.id);
            return Some((sa, why));
        }
        self.schedule(&sa);
        self.sas.insert(sa.head.id, sa.into());
        None
    }

    fn schedule(&mut self, sa: &IkeSa) {
        let (id, due) = (sa.head.id, sa.due(self.keepalive));
        if self.scheduled.get(id).copied() == due {
            return;
        }
        self.unschedule(id);
        if let Some(at) = due {
            self.scheduled.insert(id, at);
            self.timers.insert(timer(at, id));
        }
    }

    fn unschedule(&mut self, id: IkeSaId) {
        if let Some(at) = self.scheduled.remove(id) {
            self.timers.remove(timer(at, id));
        }
    }

    /// After their connections were exchanged.
    pub(crate) fn connect_anew(&mut self) {
        self.by_connection.clear();
        for sa in self.sas.values() {
            connected(sa).map(|entry| self.by_connection.insert(entry));
        }
    }

    /// An IKE SA.
    pub(crate) fn get(&self, id: IkeSaId) -> Option<&IkeSa> {
        self.sas.get(id).map(|sa| &**sa)
    }

    /// An IKE SA, to be changed in what nothing else is known of.
    pub(crate) fn get_mut(&mut self, id: IkeSaId) -> Option<&mut IkeSa> {
        self.sas.get_mut(id).map(|sa| &mut **sa)
    }

    /// The IKE SA with this SPI of ours.
    pub(crate) fn with_spi(&self, own: IkeSpi) -> Option<&IkeSa> {
        self.get(*self.by_spi.get(own.0)?)
    }

    /// The half-open IKE SA that a peer began from there with this SPI.
    pub(crate) fn half_open(&self, spi: IkeSpi, remote: SocketAddr) -> Option<IkeSaId> {
        self.half_open.of(&asking(remote, spi)).next().map(|[id, _]| IkeSaId(id))
    }

    /// How many half-open IKE SAs peers began from a source.
    pub(crate) fn half_open_from(&self, source: u128) -> usize {
        self.sources.get(source).copied().unwrap_or(0)
    }

    /// How many there are that no other has replaced.
    pub(crate) fn current(&self) -> usize {
        self.sas.len().saturating_sub(self.replaced.len())
    }

    /// The oldest IKE SA that another has replaced.
    pub(crate) fn oldest_replaced(&self) -> Option<IkeSaId> {
        self.replaced.first().map(|[id, ..]| IkeSaId(id))
    }

    /// Those of a connection that may be asked for Child SAs, the oldest first.
    pub(crate) fn of_connection(&self, connection: &Arc<Connection>) -> impl Iterator<Item = &IkeSa> {
        let ids = self.by_connection.with(place_of(connection));
        ids.filter_map(|[_, id, _]| self.get(IkeSaId(id)))
    }

    /// Every IKE SA, the oldest first.
    pub(crate) fn values(&self) -> impl Iterator<Item = &IkeSa> {
        self.sas.values().map(|sa| &**sa)
    }

    /// Every IKE SA, in no order, to be changed in what nothing else is known of.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut IkeSa> {
        self.sas.values_mut().map(|sa| &mut **sa)
    }

    /// When the first of them has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// Those that have something to do by now.
    pub(crate) fn all_due(&self, now: Instant) -> impl Iterator<Item = IkeSaId> {
        let due = self.timers.iter().take_while(move |[at, ..]| *at <= now.as_micros());
        due.map(|[_, id, _]| IkeSaId(id))
    }

    /// How many there are, and how many of them are half-open ones that peers began.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.sas.len(), self.half_open.len())
    }
}

/// Where a connection lies. While an IKE SA holds it, no other lies there.
fn place_of(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

const fn timer(at: Instant, id: IkeSaId) -> Words {
    [at.as_micros(), id.0, 0]
}

/// The source that shares a quota with others: an IPv4 address, or the /64 prefix of an IPv6 address, because one host has a whole prefix.
pub(crate) fn source_of(addr: IpAddr) -> u128 {
    match addr {
        // No IPv6 prefix has the bits of a mapped address: it would have to have bits behind the first 64.
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits() >> 64 << 64,
    }
}

/// The peer's address, port and SPI.
type Asking = [u8; 26];

fn asking(peer: SocketAddr, spi: IkeSpi) -> Asking {
    let addr = match peer.ip() {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let parts = [&addr.octets()[..], &peer.port().to_be_bytes(), &spi.0.to_be_bytes()];
    let mut asking = [0; size_of::<Asking>()];
    for (byte, value) in asking.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = *value;
    }
    asking
}

/// An IKE SA among those of its connection that may be asked for Child SAs, if it is one.
fn connected(sa: &IkeSa) -> Option<Words> {
    let may_be_asked = !matches!(sa.state, State::HalfOpen(_) | State::Closed(_));
    may_be_asked.then(|| [place_of(&sa.head.connection), sa.head.id.0, 0])
}
