//! The [`Endpoint`]: data path and IKE, connected.

mod close_action;
mod queries;
mod trap_routes;

use crate::Notice;
use crate::children::{Children, InstallContext};
use crate::host::{DatapathHost, Routes, SpiTable};
use crate::policy::Reqids;
use crate::traps::{Acquire, Traps};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{Providers, Rng};
use casemate_datapath::spd::InsertError;
use casemate_datapath::{Datapath, Direction};
use casemate_ike::config::{ChildConfig, Connection, Pool};
use casemate_ike::{
    ChildId, ChildUp, Credentials, DownReason, Env, Event, Ike, IkeSaId, IkeSettings, InitiateError, Path,
    StateFault, Transmit,
};
use casemate_sa::Instant;

pub use queries::NamedSas;

/// What a call of an endpoint needs from its caller.
pub struct Means<'m> {
    /// The time.
    pub now: Instant,
    /// Seconds since 1970, for certificates.
    pub unix_time: u64,
    /// Random source.
    pub rng: &'m mut dyn Rng,
    /// Providers of algorithms.
    pub providers: &'m Providers<'m>,
    /// Keys and certificates.
    pub credentials: &'m dyn Credentials,
    /// Routes of the host.
    pub routes: &'m dyn Routes,
}

/// A data path and IKE. Installs what IKE negotiates, and requests SAs for packets.
pub struct Endpoint {
    pub(crate) datapath: Datapath,
    ike: Ike,
    children: Children,
    traps: Traps,
    pub(crate) spis: SpiTable,
    notices: VecDeque<Notice>,
    reqids: Reqids,
    /// Number of lost data path events that are already handled.
    lost_events: u64,
    /// When traps next update their local addresses.
    next_addr_check: Option<Instant>,
    /// When traps last updated their local addresses; `None` forces an update.
    last_addr_update: Option<Instant>,
}

impl Endpoint {
    /// An endpoint for a data path, which may have SAs and policies with manual keys.
    pub fn new(datapath: Datapath, settings: IkeSettings) -> Self {
        let mut spis = SpiTable::default();
        let inbound = datapath.sas().filter(|sa| sa.id.direction() == Direction::Inbound);
        inbound.for_each(|sa| spis.block(sa.spi));
        Self {
            datapath,
            ike: Ike::new(settings),
            children: Children::new(settings.max_children),
            traps: Traps::default(),
            spis,
            notices: VecDeque::new(),
            reqids: Reqids::default(),
            lost_events: 0,
            next_addr_check: None,
            last_addr_update: None,
        }
    }

    /// The data path.
    pub const fn datapath(&self) -> &Datapath {
        &self.datapath
    }

    /// The data path, mutable, for packets.
    pub const fn datapath_mut(&mut self) -> &mut Datapath {
        &mut self.datapath
    }

    /// The IKE engine.
    pub const fn ike(&self) -> &Ike {
        &self.ike
    }

    /// Whether keys of IKE SAs are reported as events.
    pub fn report_keys(&mut self, report: bool) {
        self.ike.report_keys(report);
    }

    /// Replaces the connections and pools, with their traps and shunts. Closes SAs of connections that are
    /// removed or changed. Initiates new children whose `start_action` demands it. If the SPD has no room for
    /// the traps, nothing changes.
    pub fn configure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        means: &mut Means<'_>,
    ) -> Result<(), InsertError> {
        let before = self.ike.connections().to_vec();
        // Unchanged children are not initiated again, even if they are down.
        let is_unchanged = |connection: &Connection, child: &ChildConfig| {
            let known = before.iter().find(|old| old.differs_in_children_only(connection));
            known.is_some_and(|old| old.children.iter().any(|old| **old == *child))
        };
        let mut to_initiate = Vec::new();
        for connection in &connections {
            let starts = connection.children.iter().filter(|child| child.start_action.at_once);
            let new = starts.filter(|child| !is_unchanged(connection, child));
            to_initiate.extend(new.map(|child| (connection.clone(), child.clone())));
        }
        let specs = self.kept_traps(&connections, means.routes);
        let specs_before = self.kept_traps(&before, means.routes);
        if let Err(full) = self.set_traps(&connections, specs, means) {
            // Cannot fail: the former traps had room.
            let _ = self.set_traps(&before, specs_before, means);
            return Err(full);
        }
        let removed = self.ike.configure(connections, pools);
        for ike in removed.ikes {
            self.with_ike(means, |engine, env| engine.terminate(ike, DownReason::Unconfigured, env));
        }
        for child in removed.children {
            self.with_ike(means, |ike, env| ike.terminate_child(child, DownReason::Unconfigured, env));
        }
        for (connection, child) in to_initiate {
            self.with_ike(means, |ike, env| ike.initiate_or_retry(&connection, &child, env));
        }
        self.handle_timeouts(means);
        Ok(())
    }

    /// Processes an IKE message without the non-ESP marker.
    pub fn receive_ike(&mut self, message: &mut [u8], path: Path, means: &mut Means<'_>) {
        self.with_ike(means, |ike, env| ike.receive(message, path, env));
        self.handle_timeouts(means);
    }

    /// Initiates a Child SA, or without a child an IKE SA. Ends the pauses of its traps.
    pub fn initiate(
        &mut self,
        connection: &Arc<Connection>,
        child: Option<&Arc<ChildConfig>>,
        means: &mut Means<'_>,
    ) -> Result<(), InitiateError> {
        if self.traps.resume(&connection.name, child.map(|child| &*child.name)) {
            self.datapath.flush_flow_cache();
        }
        let result = self.with_ike(means, |ike, env| ike.initiate(connection, child, None, env));
        self.handle_timeouts(means);
        result
    }

    /// Closes an IKE SA and its Child SAs; `false` if it does not exist.
    pub fn terminate(&mut self, ike: IkeSaId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |engine, env| engine.terminate(ike, DownReason::Local, env));
        self.handle_timeouts(means);
        done
    }

    /// Closes a Child SA; `false` if it does not exist.
    pub fn terminate_child(&mut self, child: ChildId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |ike, env| ike.terminate_child(child, DownReason::Local, env));
        self.handle_timeouts(means);
        done
    }

    /// Rekeys an IKE SA; `false` if it does not exist.
    pub fn rekey(&mut self, ike: IkeSaId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |engine, env| engine.rekey(ike, env));
        self.handle_timeouts(means);
        done
    }

    /// Rekeys a Child SA; `false` if it does not exist.
    pub fn rekey_child(&mut self, child: ChildId, means: &mut Means<'_>) -> bool {
        let done = self.with_ike(means, |ike, env| ike.rekey_child(child, env));
        self.handle_timeouts(means);
        done
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) must be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let traps = self.next_addr_check.into_iter().chain(self.traps.next_timeout());
        self.ike.next_timeout().into_iter().chain(self.children.next_timeout()).chain(traps).min()
    }

    /// Handles events and timers. Call it after packets were processed, and at
    /// [`next_timeout`](Self::next_timeout).
    pub fn handle_timeouts(&mut self, means: &mut Means<'_>) {
        self.children.expire(&mut self.datapath, &mut self.spis, means.now);
        self.update_trap_addrs(means);
        if self.traps.end_pauses(means.now) {
            self.datapath.flush_flow_cache();
        }
        // Events of IKE may raise events of the data path, and the other way round. The number of rounds is
        // bounded, so that the caller can proceed.
        for _ in 0..MAX_EVENT_ROUNDS {
            let timer_due = self.ike.next_timeout().is_some_and(|due| due <= means.now);
            if timer_due {
                self.with_ike(means, Ike::handle_timeouts);
            }
            let had_events = self.take_datapath_events(means) | self.take_ike_events(means);
            if !timer_due && !had_events {
                return;
            }
        }
    }

    fn take_datapath_events(&mut self, means: &mut Means<'_>) -> bool {
        use casemate_datapath::Event as DatapathEvent;
        let mut any = false;
        while let Some(event) = self.datapath.next_event() {
            any = true;
            match event {
                DatapathEvent::Acquire { policy, ref flow } => {
                    if let Some(Acquire { connection, children, packet }) = self.traps.on_packet(policy, flow)
                    {
                        for child in children {
                            self.acquire(&connection, &child, packet, means);
                        }
                    }
                }
                DatapathEvent::SoftLifetime(sa) => {
                    if let Some(child) = self.children.by_sa_id(sa) {
                        self.with_ike(means, |ike, env| ike.rekey_child(child, env));
                    }
                }
                DatapathEvent::HardLifetime(sa) => {
                    if let Some(child) = self.children.by_sa_id(sa) {
                        self.with_ike(means, |ike, env| ike.terminate_child(child, DownReason::Expired, env));
                    }
                }
                DatapathEvent::Audit(_) => {}
            }
            self.notices.push_back(Notice::Datapath(event));
        }
        let lost = self.datapath.lost_events();
        if core::mem::replace(&mut self.lost_events, lost) != lost {
            // An [`Event::Acquire`](casemate_datapath::Event::Acquire) may be among the lost events.
            self.datapath.flush_flow_cache();
        }
        any
    }

    fn acquire(
        &mut self,
        connection: &Arc<Connection>,
        child: &Arc<ChildConfig>,
        packet: (casemate_ike::TrafficSelector, casemate_ike::TrafficSelector),
        means: &mut Means<'_>,
    ) {
        let result =
            self.with_ike(means, |ike, env| ike.initiate(connection, Some(child), Some(packet), env));
        if let Err(error) = result {
            self.traps.initiate_failed(&connection.name, &child.name, means.now);
            let connection = connection.clone();
            self.notices.push_back(Notice::Ike(Event::InitiateFailed { connection, error }));
        }
    }

    /// Allows a trap to request a Child SA again.
    fn rearm(&mut self, connection: &Connection, child: &ChildConfig) {
        self.traps.rearm(&connection.name, &child.name);
        self.datapath.flush_flow_cache();
    }

    fn take_ike_events(&mut self, means: &mut Means<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.ike.next_event() {
            any = true;
            self.apply_ike_event(&event, means);
            self.notices.push_back(Notice::Ike(event));
        }
        any
    }

    /// Applies an IKE event to the data path.
    fn apply_ike_event(&mut self, event: &Event, means: &mut Means<'_>) {
        match event {
            Event::ChildUp(up) => self.install(up, means),
            Event::ChildActive(id) => {
                let (children, mut cx) = self.install_context(means);
                if children.activate(*id, &mut cx).is_err() {
                    let reason = DownReason::Fault(StateFault::Provider.into());
                    self.with_ike(means, |ike, env| ike.terminate_child(*id, reason, env));
                }
            }
            Event::ChildClosing(id) => self.children.stop_sending(*id, &mut self.datapath),
            Event::ChildDown { id, reason, origin } => self.child_down(*id, *reason, *origin, means),
            // The Child SA is no longer wanted.
            Event::ChildFailed {
                connection,
                child,
                reason: DownReason::Local | DownReason::Unconfigured,
            } => {
                self.rearm(connection, child);
            }
            Event::ChildFailed { connection, child, .. } => {
                self.traps.failed(&connection.name, &child.name, means.now);
            }
            // The Child SAs of a replaced IKE SA live on. A half-open IKE SA that the peer initiated has no
            // requests of ours.
            Event::IkeDown { connection, reason, half_open: false, .. }
                if *reason != DownReason::Replaced =>
            {
                let Self { traps, ike, .. } = self;
                traps.ike_down(connection, means.now, |connection, child| {
                    ike.has_or_requests(connection, child)
                });
            }
            Event::PathChanged { children, path, .. } => {
                self.children.move_to_path(children, *path, &mut self.datapath, means.routes);
            }
            Event::IkeUp { .. }
            | Event::IkeDown { .. }
            | Event::IkeRekeyed { .. }
            | Event::InitiateFailed { .. }
            | Event::ConfigAssigned { .. }
            | Event::AddrsReleased { .. }
            | Event::Fault { .. }
            | Event::Keys(_) => {}
        }
    }

    fn install(&mut self, up: &ChildUp, means: &mut Means<'_>) {
        let known = self.children.inherited_reqid(up).or(up.child.reqid);
        let reqid = known.unwrap_or_else(|| self.reqids.next());
        let (children, mut cx) = self.install_context(means);
        let installed = children.install(up, reqid, &mut cx);
        self.datapath.flush_flow_cache();
        match installed {
            Ok(()) => self.traps.child_up(&up.connection.name, &up.child.name),
            Err(error) => {
                // If the Child SA was never installed, no other code releases its SPI.
                self.spis.release(up.inbound.spi);
                self.traps.failed(&up.connection.name, &up.child.name, means.now);
                let (connection, child) = (up.connection.clone(), up.child.clone());
                self.notices.push_back(Notice::ChildNotInstalled { connection, child, error: error.into() });
                let reason = DownReason::Fault(StateFault::Provider.into());
                self.with_ike(means, |ike, env| ike.terminate_child(up.id, reason, env));
            }
        }
    }

    fn install_context<'b>(&'b mut self, means: &'b Means<'_>) -> (&'b mut Children, InstallContext<'b>) {
        let Self { children, datapath, notices, spis, .. } = self;
        let (providers, routes, now) = (means.providers, means.routes, means.now);
        (children, InstallContext { datapath, notices, spis, providers, routes, now })
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

    /// The next IKE datagram to send.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        self.ike.next_transmit()
    }

    /// The next notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

const MAX_EVENT_ROUNDS: usize = 16;
