//! The engine: every IKE SA of a host, found by SPI, served by messages, commands and time.

use crate::child::Wish;
use crate::config::{Child, Connection, Pool};
use crate::cookie::CookieJar;
use crate::dispatch;
use crate::farewell::Farewells;
use crate::peers::Peers;
use crate::pool::Pools;
use crate::sa::{Cx, Effect, IkeSa, InitSent, Shared, State, Task};
use crate::{
    ChildId, Credentials, Down, Event, FaultCounters, Host, IkeSaId, IkeStatus, NotBegun, Path, Settings,
    StateFault, Traffic, Transmit, Unconfigured,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Providers, Rng};
use casemate_sa::Instant;
use casemate_tables::{Index, Names, Table, Words};
use casemate_wire::ike::IkeSpi;
use core::net::{IpAddr, SocketAddr};

/// What the caller lends for a call.
pub struct Env<'e> {
    /// The time.
    pub now: Instant,
    /// Seconds since 1970, for certificates.
    pub unix_time: u64,
    /// Randomness.
    pub rng: &'e mut dyn Rng,
    /// Algorithms.
    pub providers: &'e Providers<'e>,
    /// Keys and certificates.
    pub credentials: &'e dyn Credentials,
    /// The data path.
    pub host: &'e mut dyn Host,
}

/// All IKE SAs of a host.
pub struct Ike {
    shared: Shared,
    sas: Table<IkeSaId, Box<IkeSa>>,
    /// By our own SPI.
    by_spi: Table<u64, IkeSaId>,
    /// Half-open ones that peers began, by [`asking`]: for requests that come again.
    half_open: Names,
    /// By the connection, as it lies in memory, and in this order: connection, IKE SA. Without half-open ones.
    by_connection: Index,
    /// When each has something to do, in this order: time, IKE SA.
    timers: Index,
    scheduled: Table<IkeSaId, Instant>,
}

/// What the tables say of an IKE SA that was taken out.
struct Before {
    half_open: Option<Asking>,
    connected: Option<Words>,
}

impl Ike {
    /// An engine without connections.
    pub fn new(settings: Settings) -> Self {
        let shared = Shared {
            settings,
            connections: Vec::new(),
            pools: Pools::default(),
            cookies: CookieJar::default(),
            transmits: VecDeque::new(),
            farewells: Farewells::default(),
            events: VecDeque::new(),
            faults: FaultCounters::new(),
            peers: Peers::default(),
            owners: Table::default(),
            scratch: vec![0; settings.message_bytes].into_boxed_slice(),
            tell_keys: false,
            last_child: 0,
            last_ike: 0,
            effects: Vec::new(),
        };
        Self {
            shared,
            sas: Table::default(),
            by_spi: Table::default(),
            half_open: Names::new(),
            by_connection: Index::new(),
            timers: Index::new(),
            scheduled: Table::default(),
        }
    }

    /// Whether keys of IKE SAs are told as events, for those who must read captures.
    pub fn tell_keys(&mut self, tell: bool) {
        self.shared.tell_keys = tell;
    }

    /// Puts new connections and pools in the place of the old ones. IKE SAs whose connection differs in its children only go on
    /// under the new one. Answers what is no longer configured, to be closed by the caller.
    pub fn configure(&mut self, connections: Vec<Arc<Connection>>, pools: &[Pool]) -> Unconfigured {
        let mut gone = Unconfigured::default();
        for sa in self.sas.values_mut() {
            let connection = connections.iter().find(|new| new.differs_in_children_only(&sa.head.connection));
            match connection {
                Some(connection) => {
                    sa.head.connection = connection.clone();
                    gone.children.extend(sa.children_but(&connection.children));
                }
                None => gone.ikes.push(sa.head.id),
            }
        }
        self.by_connection.clear();
        for sa in self.sas.values() {
            connected(sa).map(|entry| self.by_connection.insert(entry));
        }
        self.shared.connections = connections;
        self.shared.pools.replace(pools);
        gone
    }

    /// The connections.
    pub fn connections(&self) -> &[Arc<Connection>] {
        &self.shared.connections
    }

    /// Takes an IKE message, without the marker that it may have had in front. It is opened in place.
    pub fn receive(&mut self, datagram: &mut [u8], path: Path, env: &mut Env<'_>) {
        dispatch::receive(self, datagram, path, env);
    }

    /// Sets up a Child SA: in an IKE SA of the connection that is there, or in a new one. `packet` is what wants it, if a
    /// packet does. Without a child, only the IKE SA.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<Child>>,
        packet: Option<(Traffic, Traffic)>,
        env: &mut Env<'_>,
    ) -> Result<(), NotBegun> {
        let wish = child.map(|child| Wish::new(child.clone(), packet));
        let takes_wishes = |id: &IkeSaId| self.sas.get(*id).is_some_and(|sa| sa.takes_wishes());
        let connected = self.by_connection.with(place_of(connection)).map(|[_, id, _]| IkeSaId(id));
        let existing = { connected }.find(takes_wishes);
        match (existing, wish) {
            (Some(id), Some(wish)) => {
                self.with(id, env, |sa, cx| sa.wish(wish, cx));
                Ok(())
            }
            (Some(_), None) => Ok(()),
            (None, wish) => self.begin(connection, wish.into_iter().collect(), env),
        }
    }

    fn begin(
        &mut self,
        connection: &Arc<Connection>,
        wishes: Vec<Wish>,
        env: &mut Env<'_>,
    ) -> Result<(), NotBegun> {
        if self.sas.len() >= self.shared.settings.ike_sas {
            return Err(NotBegun::Full);
        }
        let path = self.path_of(connection, env.host)?;
        let mut cx = Cx { env, shared: &mut self.shared };
        let begun = InitSent::begin((connection.clone(), path), wishes, &mut cx);
        let sa = begun.map_err(|_| NotBegun::Provider)?;
        self.insert(sa);
        self.settle(env);
        Ok(())
    }

    fn path_of(&self, connection: &Connection, host: &dyn Host) -> Result<Path, NotBegun> {
        let remote = connection.remote_addrs.iter().find_map(|pattern| pattern.single());
        let remote = remote.ok_or(NotBegun::NoRemoteAddress)?;
        let same_version = |addr: &IpAddr| addr.is_ipv4() == remote.is_ipv4();
        let configured = connection.local_addrs.iter().filter_map(|pattern| pattern.single());
        let local = configured.into_iter().find(same_version).or_else(|| host.source_for(remote));
        let local = local.ok_or(NotBegun::NoRoute)?;
        Ok(Path {
            local: SocketAddr::new(local, connection.local_port),
            remote: SocketAddr::new(remote, connection.remote_port),
        })
    }

    /// Closes an IKE SA with everything in it.
    pub fn terminate(&mut self, ike: IkeSaId, why: Down, env: &mut Env<'_>) -> bool {
        self.with(ike, env, |sa, cx| sa.end(why, cx))
    }

    /// Closes one Child SA.
    pub fn terminate_child(&mut self, child: ChildId, why: Down, env: &mut Env<'_>) -> bool {
        self.task_of(child, Task::DeleteChild(child, why), env)
    }

    /// Puts another Child SA in the place of this one.
    pub fn rekey_child(&mut self, child: ChildId, env: &mut Env<'_>) -> bool {
        self.task_of(child, Task::RekeyChild(child), env)
    }

    /// Puts another IKE SA in the place of this one.
    pub fn rekey(&mut self, ike: IkeSaId, env: &mut Env<'_>) -> bool {
        self.with(ike, env, |sa, cx| sa.ask(Task::RekeyIke, cx))
    }

    fn task_of(&mut self, child: ChildId, task: Task, env: &mut Env<'_>) -> bool {
        let owner = self.shared.owners.get(child).copied();
        owner.is_some_and(|ike| self.with(ike, env, |sa, cx| sa.ask(task, cx)))
    }

    /// When [`tick`](Self::tick) is to be called.
    pub fn due(&self) -> Option<Instant> {
        self.timers.first().map(|[at, ..]| Instant::from_micros(at))
    }

    /// Does what is due.
    pub fn tick(&mut self, env: &mut Env<'_>) {
        let until = env.now.as_micros();
        let due = self.timers.iter().take_while(|[at, ..]| *at <= until);
        let due: Vec<IkeSaId> = due.map(|[_, id, _]| IkeSaId(id)).collect();
        for id in due {
            self.with(id, env, IkeSa::on_time);
        }
    }

    /// The next datagram to be sent.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.shared.transmits.pop_front()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// What peers did wrong, counted.
    pub fn faults(&self) -> &FaultCounters {
        &self.shared.faults
    }

    /// Every IKE SA, the oldest first.
    pub fn status(&self) -> impl Iterator<Item = IkeStatus> + '_ {
        self.sas.values().map(|sa| sa.status())
    }

    /// Lets one IKE SA do something; `false` if it is gone.
    pub(crate) fn with(
        &mut self,
        id: IkeSaId,
        env: &mut Env<'_>,
        act: impl FnOnce(IkeSa, &mut Cx<'_, '_>) -> IkeSa,
    ) -> bool {
        let done = self.act(id, env, act);
        self.settle(env);
        done
    }

    fn act(
        &mut self,
        id: IkeSaId,
        env: &mut Env<'_>,
        act: impl FnOnce(IkeSa, &mut Cx<'_, '_>) -> IkeSa,
    ) -> bool {
        let Some((sa, before)) = self.take(id) else { return false };
        let sa = act(sa, &mut Cx { env, shared: &mut self.shared });
        self.put_back(sa, before);
        true
    }

    /// Takes an IKE SA out of its table. With [`put_back`](Self::put_back) apart from `act`, so that they are not there once for each
    /// of the things that an IKE SA can do.
    fn take(&mut self, id: IkeSaId) -> Option<(IkeSa, Before)> {
        let sa = *self.sas.remove(id)?;
        let half_open = sa.is_half_open().then_some(asking(sa.head.path.remote, sa.head.spi_i));
        let connected = connected(&sa);
        Some((sa, Before { half_open, connected }))
    }

    /// Puts an IKE SA back, and in order what is known of it elsewhere.
    fn put_back(&mut self, sa: IkeSa, before: Before) {
        if let Some(asking) = before.half_open.filter(|_| !sa.is_half_open()) {
            self.half_open.remove(&asking, [sa.head.id.0, 0]);
        }
        let is_connected = connected(&sa);
        if let Some(known) = before.connected.filter(|_| is_connected != before.connected) {
            self.by_connection.remove(known);
        }
        is_connected.map(|entry| self.by_connection.insert(entry));
        match sa.state {
            State::Closed(why) => self.forget(&sa, why),
            _ => {
                self.schedule(&sa);
                self.sas.insert(sa.head.id, sa.into());
            }
        }
    }

    fn forget(&mut self, sa: &IkeSa, why: Down) {
        let id = sa.head.id;
        self.by_spi.remove(sa.head.own_spi().0);
        if let Some(at) = self.scheduled.remove(id) {
            self.timers.remove(timer(at, id));
        }
        let connection = sa.head.connection.clone();
        self.shared.events.push_back(Event::IkeDown { ike: id, connection, why });
    }

    fn schedule(&mut self, sa: &IkeSa) {
        let (id, due) = (sa.head.id, sa.due(self.shared.settings.keepalive));
        if self.scheduled.get(id).copied() == due {
            return;
        }
        if let Some(at) = self.scheduled.remove(id) {
            self.timers.remove(timer(at, id));
        }
        if let Some(at) = due {
            self.scheduled.insert(id, at);
            self.timers.insert(timer(at, id));
        }
    }

    pub(crate) fn insert(&mut self, sa: IkeSa) {
        let id = sa.head.id;
        self.by_spi.insert(sa.head.own_spi().0, id);
        if sa.is_half_open() {
            self.half_open.insert(&asking(sa.head.path.remote, sa.head.spi_i), [id.0, 0]);
        }
        connected(&sa).map(|entry| self.by_connection.insert(entry));
        self.schedule(&sa);
        self.sas.insert(id, sa.into());
    }

    /// Carries out what states asked for. Each effect may have effects; a chain of them is short.
    pub(crate) fn settle(&mut self, env: &mut Env<'_>) {
        for _ in 0..MAX_EFFECTS {
            let effects = core::mem::take(&mut self.shared.effects);
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.carry_out(effect, env));
        }
    }

    fn carry_out(&mut self, effect: Effect, env: &mut Env<'_>) {
        match effect {
            Effect::Spawn(sa) => {
                let id = sa.head.id;
                self.insert(*sa);
                self.act(id, env, IkeSa::proceed);
            }
            Effect::Adopt(id, heritage) => {
                self.shared.own(&heritage.children, id);
                let heir = self.sas.get_mut(id).and_then(|sa| match &mut sa.state {
                    State::Established(heir) => Some(heir),
                    _ => None,
                });
                match heir {
                    Some(heir) => heir.adopt(*heritage),
                    None => heritage.dissolve(id, Down::Dead, &mut Cx { env, shared: &mut self.shared }),
                }
                self.act(id, env, IkeSa::proceed);
            }
            Effect::Redundant(id) => {
                self.act(id, env, IkeSa::await_end);
            }
            Effect::Close { ike, why, tell } => {
                self.act(ike, env, |sa, cx| if tell { sa.end(why, cx) } else { sa.drop_silently(why, cx) });
            }
            Effect::Begin(connection, children) => self.begin_again(connection, children, env),
        }
    }

    /// Sets up what ended, unless another IKE SA of the connection has it: with two of them, whose peer begins anew as well,
    /// there would soon be four, or each would take the other's place for ever. What is no longer configured is left.
    fn begin_again(&mut self, connection: Arc<Connection>, children: Vec<Arc<Child>>, env: &mut Env<'_>) {
        if !self.shared.connections.iter().any(|known| Arc::ptr_eq(known, &connection)) {
            return;
        }
        let others = || self.sas.values().filter(|sa| Arc::ptr_eq(&sa.head.connection, &connection));
        let missing = children.into_iter().filter(|child| !others().any(|sa| sa.has(child)));
        let wishes: Vec<Wish> = missing.map(|child| Wish::new(child, None)).collect();
        let other = others().find(|sa| sa.takes_wishes()).map(|sa| sa.head.id);
        if let Some(other) = other {
            for wish in wishes {
                self.act(other, env, |sa, cx| sa.wish(wish, cx));
            }
        } else if let Err(error) = self.begin(&connection, wishes, env) {
            self.shared.faults.count(StateFault::Provider.into());
            self.shared.events.push_back(Event::NotBegun { connection, error });
        }
    }

    pub(crate) fn parts(&mut self) -> (&mut Shared, &mut Table<IkeSaId, Box<IkeSa>>) {
        (&mut self.shared, &mut self.sas)
    }

    /// The IKE SA with this SPI of ours.
    pub(crate) fn with_spi(&self, own: IkeSpi) -> Option<(IkeSaId, &IkeSa)> {
        let id = *self.by_spi.get(own.0)?;
        Some((id, self.sas.get(id)?))
    }

    pub(crate) fn half_open(&self, spi: IkeSpi, remote: SocketAddr) -> Option<IkeSaId> {
        self.half_open.of(&asking(remote, spi)).next().map(|[id, _]| IkeSaId(id))
    }

    /// How many IKE SAs there are, and how many of them are half-open ones that peers began.
    pub fn counts(&self) -> (usize, usize) {
        (self.sas.len(), self.half_open.len())
    }
}

/// Where a connection lies. While an IKE SA holds it, no other lies there.
fn place_of(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

fn timer(at: Instant, id: IkeSaId) -> Words {
    [at.as_micros(), id.0, 0]
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

/// More effects than any message has.
const MAX_EFFECTS: usize = 16;
