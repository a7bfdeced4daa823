//! The [`Endpoint`]: data path and IKE, connected.

mod close_action;
mod commands;
mod queries;
#[cfg(feature = "records")]
mod records;
mod spds;
mod trap_routes;
mod unknown_spi;

use crate::children::{ChildPlace, Children, SaWriter};
use crate::host::{DatapathHost, SpiTable};
use crate::message_counters::MessageCounters;
use crate::policy::Reqids;
use crate::traps::{Acquire, Traps};
use crate::{InstallError, Notice};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_datapath::spd::InsertError;
use casemate_datapath::{Datapath, Direction, DropReason};
use casemate_ike::config::{ChildConfig, Connection, Pool};
use casemate_ike::{
    ChildId, ChildUp, Context, DownReason, Event, Host, Ike, IkeSettings, Path, StateFault, Transmit,
};
use casemate_sa::Instant;

pub use queries::{NamedSas, NoticeSa};
#[cfg(feature = "records")]
pub use records::{NotRestored, OwnedRecord};
use unknown_spi::NamedPeers;

/// Initiates a child whose `start_action` demands it.
type StartChild = fn(&mut Ike, &Arc<Connection>, &Arc<ChildConfig>, &mut dyn Host, &mut Context<'_>);

/// A data path and IKE. Installs what IKE negotiates, and requests SAs for packets.
pub struct Endpoint {
    pub(crate) datapath: Datapath,
    ike: Ike,
    children: Children,
    #[cfg(feature = "spds")]
    own_spds: crate::own_spds::OwnSpds,
    traps: Traps,
    pub(crate) spis: SpiTable,
    notices: VecDeque<Notice>,
    named_peers: NamedPeers,
    reqids: Reqids,
    messages: MessageCounters,
    /// Number of lost data path events that are already handled.
    lost_events: u64,
    /// When traps and IKE SAs next follow the addresses of this host.
    next_addr_check: Option<Instant>,
    /// When they last did; `None` forces an update.
    last_addr_update: Option<Instant>,
    /// When they last did, whatever the reason.
    addrs_followed_at: Option<Instant>,
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
            #[cfg(feature = "spds")]
            own_spds: crate::own_spds::OwnSpds::default(),
            traps: Traps::default(),
            spis,
            notices: VecDeque::new(),
            named_peers: NamedPeers::new(),
            reqids: Reqids::default(),
            messages: MessageCounters::default(),
            lost_events: 0,
            next_addr_check: None,
            last_addr_update: None,
            addrs_followed_at: None,
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

    /// Numbers of IKE messages since the start.
    pub const fn message_counters(&self) -> &MessageCounters {
        &self.messages
    }

    /// Replaces the connections and pools, with their traps and shunts. Closes SAs of connections that are
    /// removed or changed. Initiates new children whose `start_action` demands it. If the SPD has no room for
    /// the traps, nothing changes.
    pub fn configure(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        context: &mut Context<'_>,
    ) -> Result<(), InsertError> {
        self.configure_with(connections, pools, |_, _| Ike::initiate_or_retry, context)
    }

    /// Replaces the connections and pools, as [`Self::configure`]. `restore` may add SAs, and returns the
    /// function that initiates a child then.
    fn configure_with(
        &mut self,
        connections: Vec<Arc<Connection>>,
        pools: &[Pool],
        restore: impl FnOnce(&mut Self, &mut Context<'_>) -> StartChild,
        context: &mut Context<'_>,
    ) -> Result<(), InsertError> {
        let before = self.ike.connections().to_vec();
        let by_name: BTreeMap<&str, &Arc<Connection>> =
            before.iter().map(|connection| (connection.name.as_str(), connection)).collect();
        // Unchanged children are not initiated again, even if they are down.
        let is_unchanged = |connection: &Connection, child: &ChildConfig| {
            let known = by_name.get(connection.name.as_str());
            let known = known.filter(|old| old.differs_in_children_only(connection));
            known.is_some_and(|old| old.children.iter().any(|old| **old == *child))
        };
        let mut to_initiate = Vec::new();
        for connection in &connections {
            let starts = connection.children.iter().filter(|child| child.start_action.at_once);
            let new = starts.filter(|child| !is_unchanged(connection, child));
            to_initiate.extend(new.map(|child| (connection.clone(), child.clone())));
        }
        let specs = self.kept_traps(&connections, context.routes);
        self.replace_traps(&before, &connections, specs, context)?;
        self.named_peers.configure(&connections, context.routes);
        self.children.configure_counters(&connections);
        let removed = self.ike.configure(connections, pools);
        self.schedule_addr_check(context);
        for ike in removed.ikes {
            self.with_ike(|engine, host| engine.terminate(ike, DownReason::Unconfigured, host, context));
        }
        for child in removed.children {
            self.with_ike(|ike, host| ike.terminate_child(child, DownReason::Unconfigured, host, context));
        }
        let start = restore(self, context);
        for (connection, child) in to_initiate {
            self.with_ike(|ike, host| start(ike, &connection, &child, host, context));
        }
        self.handle_timeouts(context);
        Ok(())
    }

    /// Processes an IKE message without the non-ESP marker.
    pub fn receive_ike(&mut self, message: &mut [u8], path: Path, context: &mut Context<'_>) {
        self.messages.received.count(message);
        self.with_ike(|ike, host| ike.receive(message, path, host, context));
        self.handle_timeouts(context);
    }

    /// When [`handle_timeouts`](Self::handle_timeouts) must be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        let traps = self.next_addr_check.into_iter().chain(self.traps.next_timeout());
        self.ike.next_timeout().into_iter().chain(self.children.next_timeout()).chain(traps).min()
    }

    /// Handles events and timers. Call it after packets were processed, and at
    /// [`next_timeout`](Self::next_timeout).
    pub fn handle_timeouts(&mut self, context: &mut Context<'_>) {
        self.children.expire(&mut self.datapath, &mut self.spis, context.now);
        self.children.take_reports(&mut self.notices);
        self.follow_addrs(context);
        if self.traps.end_pauses(context.now) {
            self.datapath.flush_flow_cache();
        }
        // Events of IKE may raise events of the data path, and the other way round. The number of rounds is
        // bounded, so that the caller can proceed.
        for _ in 0..MAX_EVENT_ROUNDS {
            let timer_due = self.ike.next_timeout().is_some_and(|due| due <= context.now);
            if timer_due {
                self.with_ike(|ike, host| ike.handle_timeouts(host, context));
            }
            let had_events = self.take_datapath_events(context) | self.take_ike_events(context);
            if !timer_due && !had_events {
                return;
            }
        }
    }

    fn take_datapath_events(&mut self, context: &mut Context<'_>) -> bool {
        use casemate_datapath::Event as DatapathEvent;
        let mut any = false;
        while let Some(event) = self.datapath.next_event() {
            any = true;
            match event {
                DatapathEvent::Acquire { policy, ref flow } => {
                    if let Some(Acquire { connection, children, packet }) = self.traps.on_packet(policy, flow)
                    {
                        for child in children {
                            self.acquire(&connection, &child, packet, context);
                        }
                    }
                }
                DatapathEvent::SoftLifetime(sa) => {
                    if let Some(child) = self.children.by_sa_id(sa) {
                        self.with_ike(|ike, host| ike.rekey_child(child, host, context));
                    }
                }
                DatapathEvent::HardLifetime(sa) => {
                    if let Some(child) = self.children.by_sa_id(sa) {
                        self.with_ike(|ike, host| {
                            ike.terminate_child(child, DownReason::Expired, host, context)
                        });
                    }
                }
                DatapathEvent::Audit(ref audit) if audit.reason == DropReason::NoSa => {
                    self.on_unknown_spi(audit, context);
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
        packet: casemate_ike::PacketSelectors,
        context: &mut Context<'_>,
    ) {
        let result =
            self.with_ike(|ike, host| ike.initiate(connection, Some(child), Some(packet), host, context));
        if let Err(error) = result {
            self.traps.initiate_failed(&connection.name, &child.name, context.now);
            let connection = connection.clone();
            self.notices.push_back(Notice::Ike(Event::InitiateFailed { connection, error }));
        }
    }

    /// Allows a trap to request a Child SA again.
    fn rearm(&mut self, connection: &Connection, child: &ChildConfig) {
        self.traps.rearm(&connection.name, &child.name);
        self.datapath.flush_flow_cache();
    }

    fn take_ike_events(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Some(event) = self.ike.next_event() {
            any = true;
            self.apply_ike_event(&event, context);
            self.note_own_spds(&event);
            self.named_peers.note_event(&event, context.now);
            self.children.take_reports(&mut self.notices);
            self.notices.push_back(Notice::Ike(event));
        }
        any
    }

    /// Applies an IKE event to the data path.
    fn apply_ike_event(&mut self, event: &Event, context: &mut Context<'_>) {
        match event {
            Event::ChildUp(up) => self.install(up, context),
            Event::ChildActive(id) => {
                let (children, mut sas) = self.sa_writer();
                if children.activate(*id, &mut sas, context).is_err() {
                    let reason = DownReason::Fault(StateFault::Provider.into());
                    self.with_ike(|ike, host| ike.terminate_child(*id, reason, host, context));
                }
                self.set_probed_mtu(*id);
            }
            Event::ChildClosing(id) => self.children.stop_sending(*id, &mut self.datapath),
            Event::ChildDown { id, reason, origin } => self.child_down(*id, *reason, *origin, context),
            // The Child SA is no longer wanted.
            Event::ChildFailed {
                connection,
                child,
                reason: DownReason::Local | DownReason::Unconfigured,
                ..
            } => {
                self.rearm(connection, child);
            }
            Event::ChildFailed { connection, child, .. } => {
                self.traps.failed(&connection.name, &child.name, context.now);
            }
            // The Child SAs of a replaced IKE SA live on. A half-open IKE SA that the peer initiated has no
            // requests of ours.
            Event::IkeDown { connection, reason, half_open: false, .. }
                if *reason != DownReason::Replaced =>
            {
                let Self { traps, ike, .. } = self;
                traps.ike_down(connection, context.now, |connection, child| {
                    ike.has_or_requests(connection, child)
                });
            }
            Event::PathChanged { children, path, udp_encap, .. } => {
                let Self { children: installed, datapath, .. } = self;
                installed.move_to_path(children, *path, *udp_encap, datapath, context.routes);
            }
            Event::NumbersSkipped { children, count, .. } => self.skip_numbers(children, *count, context),
            Event::PathMtu { children, .. } => children.iter().for_each(|child| self.set_probed_mtu(*child)),
            Event::IkeUp { .. }
            | Event::IkeDown { .. }
            | Event::IkeRekeyed { .. }
            | Event::IkeRekeyFailed { .. }
            | Event::Redirected { .. }
            | Event::NotResumed { .. }
            | Event::InitiateFailed { .. }
            | Event::ConfigAssigned { .. }
            | Event::AddrsReleased { .. }
            | Event::Fault { .. }
            | Event::Retransmitted { .. }
            | Event::Keys(_) => {}
        }
    }

    fn install(&mut self, up: &ChildUp, context: &mut Context<'_>) {
        let installed = self.assign_spds(up).and_then(|spds| {
            let known = self.children.inherited_reqid(up, spds).or(up.child.reqid);
            let reqid = known.unwrap_or_else(|| self.reqids.next());
            let (children, mut sas) = self.sa_writer();
            Ok(children.install(up, ChildPlace { reqid, spds }, &mut sas, context)?)
        });
        self.datapath.flush_flow_cache();
        match installed {
            Ok(()) => {
                self.traps.child_up(&up.connection.name, &up.child.name);
                self.set_probed_mtu(up.id);
            }
            Err(error) => {
                // If the Child SA was never installed, no other code releases its SPI.
                self.spis.release(up.inbound.spi);
                self.traps.failed(&up.connection.name, &up.child.name, context.now);
                self.close_uninstalled(up.id, (&up.connection, &up.child), error, context);
                self.release_spds(up.id);
            }
        }
    }

    /// Closes a Child SA that cannot be used, and says why.
    fn close_uninstalled(
        &mut self,
        id: ChildId,
        (connection, child): (&Arc<Connection>, &Arc<ChildConfig>),
        error: InstallError,
        context: &mut Context<'_>,
    ) {
        let (connection, child) = (connection.clone(), child.clone());
        self.notices.push_back(Notice::ChildNotInstalled { connection, child, error });
        let reason = DownReason::Fault(StateFault::Provider.into());
        self.with_ike(|ike, host| ike.terminate_child(id, reason, host, context));
    }

    /// Applies to a Child SA the path MTU that probes have found.
    fn set_probed_mtu(&mut self, child: ChildId) {
        if let Some(outbound) = self.children.sas(child).and_then(|sas| sas.outbound) {
            let mtu = self.ike.probed_path_mtu(child).map(usize::from);
            self.datapath.set_sa_probed_mtu(outbound, mtu);
        }
    }

    fn sa_writer(&mut self) -> (&mut Children, SaWriter<'_>) {
        let Self { children, datapath, notices, spis, .. } = self;
        (children, SaWriter { datapath, notices, spis })
    }

    fn with_ike<T>(&mut self, act: impl FnOnce(&mut Ike, &mut dyn Host) -> T) -> T {
        let Self { ike, datapath, spis, children, .. } = self;
        act(ike, &mut DatapathHost { datapath, spis, children })
    }

    /// The next IKE datagram to send.
    pub fn next_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.ike.next_transmit()?;
        self.messages.sent.count(&transmit.message);
        Some(transmit)
    }

    /// The next notice.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

const MAX_EVENT_ROUNDS: usize = 16;
