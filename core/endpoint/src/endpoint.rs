//! The door.

mod ended;
mod follow;

use crate::Notice;
use crate::children::{Bench, Children};
use crate::host::{DatapathHost, Routes, Spis};
use crate::reqids::Reqids;
use crate::traps::{Sprung, Traps};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{Providers, Rng};
use casemate_datapath::spd::InsertError;
use casemate_datapath::{Datapath, Direction, SaId, SaStatus};
use casemate_ike::config::{Child, Connection, Pool};
use casemate_ike::{
    ChildId, ChildUp, Credentials, Down, Env, Event, Ike, IkeSaId, NotBegun, Path, Settings, StateFault,
    Transmit, Waiting,
};
use casemate_sa::Instant;

/// What the caller lends for a call.
pub struct Means<'m> {
    /// The time.
    pub now: Instant,
    /// Seconds since 1970, for certificates.
    pub unix_time: u64,
    /// Randomness.
    pub rng: &'m mut dyn Rng,
    /// Algorithms.
    pub providers: &'m Providers<'m>,
    /// Keys and certificates.
    pub credentials: &'m dyn Credentials,
    /// Ways to others.
    pub routes: &'m dyn Routes,
}

/// Data path and IKE, joined.
pub struct Endpoint {
    pub(crate) datapath: Datapath,
    ike: Ike,
    children: Children,
    traps: Traps,
    pub(crate) spis: Spis,
    notices: VecDeque<Notice>,
    reqids: Reqids,
    /// Events of the data path that are known to be lost.
    lost: u64,
    /// When traps are to follow the addresses of this host.
    follow_at: Option<Instant>,
    /// When the addresses of all traps were looked up; `None` if they are to be looked up in any case.
    looked_up_at: Option<Instant>,
}

impl Endpoint {
    /// An endpoint around a data path, which may have SAs and policies with manual keys.
    pub fn new(datapath: Datapath, settings: Settings) -> Self {
        let mut spis = Spis::default();
        let inbound = datapath.sas().filter(|sa| sa.id.direction() == Direction::Inbound);
        inbound.for_each(|sa| spis.block(sa.spi));
        Self {
            datapath,
            ike: Ike::new(settings),
            children: Children::new(settings.children),
            traps: Traps::default(),
            spis,
            notices: VecDeque::new(),
            reqids: Reqids::default(),
            lost: 0,
            follow_at: None,
            looked_up_at: None,
        }
    }

    /// The data path, to look at.
    pub const fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// The data path, for packets.
    pub const fn datapath_mut(&mut self) -> &mut Datapath {
        &mut self.datapath
    }

    /// IKE, to look at.
    pub const fn ike(&self) -> &Ike {
        &self.ike
    }

    /// Whether keys of IKE SAs are told as events.
    pub fn tell_keys(&mut self, tell: bool) {
        self.ike.tell_keys(tell);
    }

    /// Puts new connections and pools in the place of the old ones: their traps and shunts too. SAs of connections that are
    /// no more, or not the same, are closed; those that `start_action` names are begun. If the SPD has no room for the traps, all
    /// stays as it was.
    pub fn configure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        means: &mut Means<'_>,
    ) -> Result<(), InsertError> {
        let before = self.ike.connections().to_vec();
        // What is as it was is not begun anew, even if it is down.
        let was_there = |connection: &Connection, child: &Child| {
            let known = before.iter().find(|old| old.differs_in_children_only(connection));
            known.is_some_and(|old| old.children.iter().any(|old| **old == *child))
        };
        let mut fresh = Vec::new();
        for connection in &connections {
            let starts = connection.children.iter().filter(|child| child.start.at_once);
            let new = starts.filter(|child| !was_there(connection, child));
            fresh.extend(new.map(|child| (connection.clone(), child.clone())));
        }
        let held = self.still_held(&connections, means.routes);
        let held_before = self.still_held(&before, means.routes);
        if let Err(full) = self.set_traps(&connections, held, means) {
            // There was room for the old ones.
            let _ = self.set_traps(&before, held_before, means);
            return Err(full);
        }
        let gone = self.ike.configure(connections, pools);
        for ike in gone.ikes {
            self.with_ike(means, |engine, env| engine.terminate(ike, Down::Unconfigured, env));
        }
        for child in gone.children {
            self.with_ike(means, |ike, env| ike.terminate_child(child, Down::Unconfigured, env));
        }
        for (connection, child) in fresh {
            self.with_ike(means, |ike, env| ike.start(&connection, &child, env));
        }
        self.serve(means);
        Ok(())
    }

    /// Takes an IKE message, without the marker that it may have had in front.
    pub fn receive_ike(&mut self, message: &mut [u8], path: Path, means: &mut Means<'_>) {
        self.with_ike(means, |ike, env| ike.receive(message, path, env));
        self.serve(means);
    }

    /// Sets up a Child SA, or without a child the IKE SA. Pauses of traps after failures end.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<Child>>,
        means: &mut Means<'_>,
    ) -> Result<(), NotBegun> {
        if self.traps.resume(&connection.name, child.map(|child| &*child.name)) {
            self.datapath.ask_again();
        }
        let begun = self.with_ike(means, |ike, env| ike.initiate(connection, child, None, env));
        self.serve(means);
        begun
    }

    /// Closes an IKE SA with everything in it; `false` if it is gone.
    pub fn terminate(&mut self, ike: IkeSaId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |engine, env| engine.terminate(ike, Down::Local, env));
        self.serve(means);
        done
    }

    /// Closes a Child SA; `false` if it is gone.
    pub fn terminate_child(&mut self, child: ChildId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |ike, env| ike.terminate_child(child, Down::Local, env));
        self.serve(means);
        done
    }

    /// Rekeys an IKE SA; `false` if it is gone.
    pub fn rekey(&mut self, ike: IkeSaId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |engine, env| engine.rekey(ike, env));
        self.serve(means);
        done
    }

    /// Rekeys a Child SA; `false` if it is gone.
    pub fn rekey_child(&mut self, child: ChildId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |ike, env| ike.rekey_child(child, env));
        self.serve(means);
        done
    }

    /// When [`serve`](Self::serve) is to be called at the latest.
    pub fn due(&self) -> Option<Instant> {
        let traps = self.follow_at.into_iter().chain(self.traps.due());
        self.ike.due().into_iter().chain(self.children.due()).chain(traps).min()
    }

    /// Does everything beside packets: call it after packets were moved, and when it is [`due`](Self::due).
    pub fn serve(&mut self, means: &mut Means<'_>) {
        self.children.expire(&mut self.datapath, &mut self.spis, means.now);
        self.follow_routes(means);
        if self.traps.wake(means.now) {
            self.datapath.ask_again();
        }
        // What one side tells may make the other tell something: a few rounds, then it is somebody else's turn.
        for _ in 0..MAX_ROUNDS {
            let due = self.ike.due().is_some_and(|due| due <= means.now);
            if due {
                self.with_ike(means, Ike::tick);
            }
            let told = self.take_datapath_events(means) | self.take_ike_events(means);
            if !due && !told {
                return;
            }
        }
    }

    fn take_datapath_events(&mut self, means: &mut Means<'_>) -> bool {
        use casemate_datapath::Event as Told;
        let mut any = false;
        while let Some(event) = self.datapath.next_event() {
            any = true;
            match event {
                Told::Acquire { policy, ref flow } => {
                    if let Some(Sprung { connection, children, packet }) = self.traps.spring(policy, flow) {
                        for child in children {
                            self.acquire(&connection, &child, packet, means);
                        }
                    }
                }
                Told::SoftLifetime(sa) => {
                    if let Some(child) = self.children.of_sa(sa) {
                        self.with_ike(means, |ike, env| ike.rekey_child(child, env));
                    }
                }
                Told::HardLifetime(sa) => {
                    if let Some(child) = self.children.of_sa(sa) {
                        self.with_ike(means, |ike, env| ike.terminate_child(child, Down::Expired, env));
                    }
                }
                Told::Audit(_) => {}
            }
            self.notices.push_back(Notice::Datapath(event));
        }
        let lost = self.datapath.lost_events();
        if core::mem::replace(&mut self.lost, lost) != lost {
            // A packet that called for an SA may be among them.
            self.datapath.ask_again();
        }
        any
    }

    fn acquire(
        &mut self,
        connection: &Arc<Connection>,
        child: &Arc<Child>,
        packet: (casemate_ike::Traffic, casemate_ike::Traffic),
        means: &mut Means<'_>,
    ) {
        let begun = self.with_ike(means, |ike, env| ike.initiate(connection, Some(child), Some(packet), env));
        if let Err(error) = begun {
            self.traps.not_begun(&connection.name, &child.name, means.now);
            let connection = connection.clone();
            self.notices.push_back(Notice::Ike(Event::NotBegun { connection, error }));
        }
    }

    /// A trap may be sprung again.
    fn rearm(&mut self, connection: &Connection, child: &Child) {
        self.traps.rearm(&connection.name, &child.name);
        self.datapath.ask_again();
    }

    fn take_ike_events(&mut self, means: &mut Means<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.ike.next_event() {
            any = true;
            self.obey(&event, means);
            self.notices.push_back(Notice::Ike(event));
        }
        any
    }

    /// Does in the data path what IKE says.
    fn obey(&mut self, event: &Event, means: &mut Means<'_>) {
        match event {
            Event::ChildUp(up) => self.install(up, means),
            Event::ChildActive(id) => {
                let (children, mut bench) = self.bench(means);
                if children.activate(*id, &mut bench).is_err() {
                    let why = Down::Fault(StateFault::Provider.into());
                    self.with_ike(means, |ike, env| ike.terminate_child(*id, why, env));
                }
            }
            Event::ChildClosing(id) => self.children.stop_sending(*id, &mut self.datapath),
            Event::ChildDown { id, why, origin } => self.child_down(*id, *why, *origin, means),
            // It is not wanted any more.
            Event::ChildFailed { connection, child, why: Down::Local | Down::Unconfigured } => {
                self.rearm(connection, child);
            }
            Event::ChildFailed { connection, child, .. } => {
                self.traps.failed(&connection.name, &child.name, means.now);
            }
            // The Child SAs of one that was replaced live on. A half-open one that the peer began was not asked for anything.
            Event::IkeDown { connection, why, half_open: false, .. } if *why != Down::Replaced => {
                let Self { traps, ike, .. } = self;
                traps.ike_down(connection, means.now, |connection, child| ike.seeks(connection, child));
            }
            Event::Moved { children, path, .. } => {
                self.children.follow(children, *path, &mut self.datapath, means.routes);
            }
            Event::IkeUp { .. }
            | Event::IkeDown { .. }
            | Event::IkeRekeyed { .. }
            | Event::NotBegun { .. }
            | Event::Assigned { .. }
            | Event::Unassigned { .. }
            | Event::Fault { .. }
            | Event::Keys(_) => {}
        }
    }

    fn install(&mut self, up: &ChildUp, means: &mut Means<'_>) {
        let known = self.children.inherited_reqid(up).or(up.child.reqid);
        let reqid = known.unwrap_or_else(|| self.reqids.next());
        let (children, mut bench) = self.bench(means);
        let installed = children.install(up, reqid, &mut bench);
        self.datapath.ask_again();
        match installed {
            Ok(()) => self.traps.came_up(&up.connection.name, &up.child.name),
            Err(error) => {
                // Of one that was never installed, nobody else gives the SPI back.
                self.spis.release(up.inbound.spi);
                self.traps.failed(&up.connection.name, &up.child.name, means.now);
                let (connection, child) = (up.connection.clone(), up.child.clone());
                self.notices.push_back(Notice::NotInstalled { connection, child, why: error.into() });
                let why = Down::Fault(StateFault::Provider.into());
                self.with_ike(means, |ike, env| ike.terminate_child(up.id, why, env));
            }
        }
    }

    fn bench<'b>(&'b mut self, means: &'b Means<'_>) -> (&'b mut Children, Bench<'b>) {
        let Self { children, datapath, notices, spis, .. } = self;
        let (providers, routes, now) = (means.providers, means.routes, means.now);
        (children, Bench { datapath, notices, spis, providers, routes, now })
    }

    fn with_ike<T>(&mut self, means: &mut Means<'_>, act: impl FnOnce(&mut Ike, &mut Env<'_>) -> T) -> T {
        let mut host = DatapathHost {
            datapath: &self.datapath,
            spis: &mut self.spis,
            routes: means.routes,
            children: &self.children,
        };
        let mut env = Env {
            now: means.now,
            unix_time: means.unix_time,
            rng: means.rng,
            providers: means.providers,
            credentials: means.credentials,
            host: &mut host,
        };
        act(&mut self.ike, &mut env)
    }

    /// What is set up again later, by itself or, where a trap pauses after a failure, by the first packet after that.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.ike.waiting().chain(self.traps.paused())
    }

    /// The next IKE datagram to be sent.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.ike.next_transmit()
    }

    /// The next notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The SA that a notice is about, if it is one of the data path's that names one and is still there.
    pub fn sa_of(&self, notice: &Notice) -> Option<SaStatus> {
        use casemate_datapath::Event::{HardLifetime, SoftLifetime};
        let Notice::Datapath(SoftLifetime(id) | HardLifetime(id)) = notice else { return None };
        self.datapath().sas().find(|sa| sa.id == *id)
    }

    /// The data path's SAs of a Child SA: inbound, and outbound if that is in use.
    pub fn sas_of(&self, child: ChildId) -> Option<(SaId, Option<SaId>)> {
        self.children.sas(child)
    }

    /// How many inbound SPIs are taken: by SAs, and by those that are being negotiated.
    pub fn reserved_spis(&self) -> usize {
        self.spis.count()
    }
}

const MAX_ROUNDS: usize = 16;
