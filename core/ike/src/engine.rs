//! The engine: every IKE SA of a host, found by SPI, served by messages, commands and time.

mod reauthenticate;
mod waiting;

use crate::assigned::AssignedAddrs;
use crate::child::Wish;
use crate::config::{Child, Connection, Pool};
use crate::cookie::CookieJar;
use crate::dispatch;
use crate::farewell::Farewells;
use crate::peers::Peers;
use crate::pool::Pools;
use crate::registry::Registry;
use crate::restarts::{Restart, Restarts};
use crate::sa::{Cx, Effect, Head, IkeSa, InitSent, Shared, State, Task, retry_at};
use crate::{
    ChildId, Credentials, Down, Event, FaultCounters, Host, IkeSaId, IkeStatus, NotBegun, Path, Settings,
    Traffic, Transmit, Unconfigured,
};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use casemate_crypto::{Providers, Rng};
use casemate_sa::Instant;
use casemate_tables::Table;

pub use waiting::Waiting;

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
    sas: Registry,
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
            assigned: AssignedAddrs::default(),
            farewells: Farewells::default(),
            restarts: Restarts::default(),
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
        Self { sas: Registry::new(shared.settings.keepalive), shared }
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
                    gone.children.extend(sa.reconfigure(connection));
                    for child in sa.cancel(&|child| !connection.children.contains(child)) {
                        let (connection, why) = (connection.clone(), Down::Unconfigured);
                        self.shared.events.push_back(Event::ChildFailed { connection, child, why });
                    }
                }
                None => gone.ikes.push(sa.head.id),
            }
        }
        self.sas.connect_anew();
        self.shared.restarts.reconfigure(&connections);
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
        let existing = self.sas.of_connection(connection).find(|sa| sa.takes_wishes()).map(|sa| sa.head.id);
        match (existing, wish) {
            (Some(id), Some(wish)) => {
                self.with(id, env, |sa, cx| sa.wish(wish, cx));
                Ok(())
            }
            (Some(_), None) => Ok(()),
            (None, wish) => {
                let most = self.shared.settings.ike_sas;
                self.begin(connection, wish.into_iter().collect(), most, env).map(|_| ())
            }
        }
    }

    /// Sets up a Child SA as [`initiate`](Self::initiate) does. If it cannot be begun now, [`Event::NotBegun`] says why, and it is tried
    /// again later if the connection's `keying_tries` allow that.
    pub fn start(&mut self, connection: &Arc<Connection>, child: &Arc<Child>, env: &mut Env<'_>) {
        if let Err(error) = self.initiate(connection, Some(child), None, env) {
            let (connection, children) = (connection.clone(), vec![child.clone()]);
            self.not_begun(Restart { connection, children, at: env.now, attempts: 0 }, error, env);
        }
    }

    /// Begins an IKE SA if there are fewer than `most`.
    fn begin(
        &mut self,
        connection: &Arc<Connection>,
        wishes: Vec<Wish>,
        most: usize,
        env: &mut Env<'_>,
    ) -> Result<IkeSaId, NotBegun> {
        if self.sas.current() >= most {
            return Err(NotBegun::Full);
        }
        let path = connection.path(|remote| env.host.source_for(remote))?;
        let mut cx = Cx { env, shared: &mut self.shared };
        let begun = InitSent::begin((connection.clone(), path), wishes, &mut cx);
        let sa = begun.map_err(|_| NotBegun::Provider)?;
        let id = sa.head.id;
        self.sas.insert(sa);
        self.make_room(env);
        self.settle(env);
        Ok(id)
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
        self.sas.due().into_iter().chain(self.shared.restarts.due()).min()
    }

    /// Does what is due.
    pub fn tick(&mut self, env: &mut Env<'_>) {
        let due: Vec<IkeSaId> = self.sas.all_due(env.now).collect();
        for id in due {
            self.with(id, env, IkeSa::on_time);
        }
        // What fails again is due later.
        while let Some(restart) = self.shared.restarts.take_due(env.now) {
            self.begin_again(restart, env);
            self.settle(env);
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
        self.sas.values().map(IkeSa::status)
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
        let Some((sa, before)) = self.sas.take(id) else { return false };
        let sa = act(sa, &mut Cx { env, shared: &mut self.shared });
        let half_open = before.is_half_open();
        if let Some((sa, why)) = self.sas.put_back(sa, before) {
            let (ike, connection) = (sa.head.id, sa.head.connection.clone());
            self.shared.events.push_back(Event::IkeDown { ike, connection, why, half_open });
        }
        true
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
                self.sas.insert(*sa);
                self.act(id, env, IkeSa::proceed);
                self.make_room(env);
            }
            Effect::Adopt(id, heritage, path) => {
                self.shared.own(&heritage.children, id);
                match self.sas.get_mut(id) {
                    Some(IkeSa { head, state: State::Established(heir) }) => {
                        heir.adopt(head, *heritage, path);
                    }
                    _ => heritage.dissolve((id, id), Down::Dead, &mut Cx { env, shared: &mut self.shared }),
                }
                self.act(id, env, IkeSa::proceed);
            }
            Effect::Redundant(id) => {
                self.act(id, env, IkeSa::await_end);
            }
            Effect::Forget(id) if self.sas.get(id).is_some_and(IkeSa::is_replaced) => {
                self.act(id, env, |sa, cx| sa.drop_silently(Down::Replaced, cx));
            }
            Effect::Forget(_) => {}
            Effect::RivalGone(id, rival) => {
                self.act(id, env, |sa, _| sa.forget_rival(rival));
            }
            Effect::Close { ike, why, tell } => {
                self.act(ike, env, |sa, cx| if tell { sa.end(why, cx) } else { sa.drop_silently(why, cx) });
            }
            Effect::Evict(id) => {
                let why = Down::NotUnique;
                self.act(id, env, |sa, cx| sa.end(why, cx).drop_silently(why, cx));
            }
            Effect::Begin(restart) if restart.at <= env.now => self.begin_again(restart, env),
            Effect::Begin(restart) => self.shared.restarts.add(restart),
            Effect::Reauthenticate(id) => self.reauthenticate(id, env),
            Effect::Reauthenticated(origin) => self.end_origin(origin, env),
        }
    }

    /// Closes IKE SAs that others have replaced until there are no more than there may be.
    pub(crate) fn make_room(&mut self, env: &mut Env<'_>) {
        let most = self.shared.settings.ike_sas_with_replaced();
        while self.sas.counts().0 > most
            && let Some(oldest) = self.sas.oldest_replaced()
        {
            self.act(oldest, env, |sa, cx| sa.drop_silently(Down::Replaced, cx));
        }
    }

    /// Sets up what ended, unless another IKE SA of the connection has it: with two of them, whose peer begins anew as well,
    /// there would soon be four, or each would take the other's place for ever. What is no longer configured is left.
    fn begin_again(&mut self, restart: Restart, env: &mut Env<'_>) {
        let Restart { connection, children, attempts, .. } = restart;
        if !self.shared.connections.iter().any(|known| Arc::ptr_eq(known, &connection)) {
            return;
        }
        let others = || self.sas.values().filter(|sa| Arc::ptr_eq(&sa.head.connection, &connection));
        let missing = children.iter().filter(|child| !others().any(|sa| sa.has(child)));
        let wishes: Vec<Wish> = missing.map(|child| Wish::new(child.clone(), None)).collect();
        let other = others().find(|sa| sa.takes_wishes()).map(|sa| sa.head.id);
        if let Some(other) = other {
            for wish in wishes {
                self.act(other, env, |sa, cx| sa.wish(wish, cx));
            }
            return;
        }
        match self.begin(&connection, wishes, self.shared.settings.ike_sas, env) {
            Ok(id) => self.head_of(id, |head| head.attempts = attempts),
            Err(error) => self.not_begun(Restart { connection, children, ..restart }, error, env),
        }
    }

    fn head_of(&mut self, id: IkeSaId, change: impl FnOnce(&mut Head)) {
        if let Some(sa) = self.sas.get_mut(id) {
            change(&mut sa.head);
        }
    }

    /// A connection could not be begun: another attempt follows if the connection wants one. There is none without an address.
    fn not_begun(&mut self, restart: Restart, error: NotBegun, env: &mut Env<'_>) {
        let Restart { connection, attempts, .. } = &restart;
        let attempts = attempts.saturating_add(1);
        self.shared.events.push_back(Event::NotBegun { connection: connection.clone(), error });
        if error != NotBegun::NoRemoteAddress && connection.tries_again_after(attempts.into()) {
            let at = retry_at(attempts, &mut Cx { env, shared: &mut self.shared });
            self.shared.restarts.add(Restart { at, attempts, ..restart });
        }
    }

    pub(crate) fn parts(&mut self) -> (&mut Shared, &mut Registry) {
        (&mut self.shared, &mut self.sas)
    }

    /// How many IKE SAs there are, and how many of them are half-open ones that peers began.
    pub fn counts(&self) -> (usize, usize) {
        self.sas.counts()
    }
}

/// More effects than any message has.
const MAX_EFFECTS: usize = 16;
