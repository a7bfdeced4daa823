//! The state of the system that this instance has set up: routes, rules, addresses and the guard. Keeps it up
//! to date when policies and addresses change.
//!
//! Most changes are a few netlink messages. A change that needs the program `nft` runs in a thread of its own
//! ([`ScriptJob`](crate::nft::ScriptJob)), and changes that are noted meanwhile wait:
//! [`SystemState::reconcile`] tells when the system has all of them. If `nft` fails or takes too long, the
//! kernel has its former filter or the new one. Then the whole filter is written again every
//! [`RETRY_INTERVAL`](reconcile::RETRY_INTERVAL) until it is installed, and only after that do routes change.

mod lost_routes;
mod reconcile;
mod virtual_addrs;

use super::configured_traffic::ConfiguredTraffic;
use super::desired_state::DesiredState;
use super::former_traffic::still_configured;
use super::guard_monitor::GuardMonitor;
use super::mark_routes::{MarkRoutes, MarkedTunnel};
use super::routing_check::{CheckReason, RoutingCheck};
use super::rp_filter::Peers;
use super::{Plan, SystemChange};
use crate::Error;
use crate::dns::{DnsHandle, DnsMode, DnsState, NameServers};
use crate::journal::{Journal, Undo};
use crate::netlink::{Netlink, NetworkChange, NetworkMonitor, RoutingChange};
use crate::route::{Prefix, RouteTarget, RoutingNumbers, Rule};
use crate::sys::EventFd;
use crate::tun::Tun;
use casemate::PolicyChange;
use casemate_datapath::Direction;
use casemate_ike::config::Connection;
use casemate_ike::{ChildId, Event};
use casemate_sa::{Selector, SpdId};
use reconcile::GuardJob;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtual_addrs::VirtualAddrs;

/// The state of the system. Dropping it leaves everything in place, after making sure that the guard is
/// installed; `close` undoes everything.
pub struct SystemState {
    journal: Journal,
    netlink: Netlink,
    guard_monitor: GuardMonitor,
    address_monitor: NetworkMonitor,
    /// Routes, from which source addresses follow.
    route_monitor: NetworkMonitor,
    tun: u32,
    numbers: RoutingNumbers,
    desired: DesiredState,
    /// The routes that are set.
    routes: BTreeMap<Prefix, RouteTarget>,
    /// The rules that are set.
    rules: Vec<Rule>,
    /// Rules and routes for packets with a mark.
    mark_routes: MarkRoutes,
    peers: Peers,
    /// Peers whose reverse path filters were not checked yet.
    new_peers: BTreeSet<IpAddr>,
    /// Indices of interfaces whose reverse path filters are loose.
    loosened_links: BTreeSet<u32>,
    /// The system does not match the desired state.
    is_stale: bool,
    /// A local address has changed.
    addresses_changed: bool,
    /// Whether routes and rules may have gone.
    routing_check: RoutingCheck,
    /// Addresses that peers have assigned to this host.
    virtual_addrs: VirtualAddrs,
    /// A script at which `nft` works.
    guard_job: Option<GuardJob>,
    /// Signalled when `nft` is done.
    nft_done: Arc<EventFd>,
    /// When the filter may be tried again.
    retry_at: Option<Instant>,
    /// The configuration that was used last to select the traffic of a former run that stays blocked.
    known_connections: Vec<Arc<Connection>>,
    /// The name servers of this host.
    name_servers: NameServers,
    /// Interfaces of the configuration's route-based tunnels, which are in the journal.
    tunnels: BTreeMap<String, u32>,
    /// The changes were undone, or left in place after an error.
    has_ended: bool,
}

impl SystemState {
    /// Takes over from an applied plan.
    pub fn new(plan: Plan, tun: &Tun, journal: Journal, netlink: Netlink) -> Result<Self, Error> {
        let Plan { changes, numbers, mut desired, .. } = plan;
        desired.guard.mark_applied();
        let has_guard = journal.lists_guard();
        if !has_guard {
            desired.guard.mark_unknown();
        }
        desired.routes.take_changed();
        let (mut routes, mut rules) = (BTreeMap::new(), Vec::new());
        for change in changes {
            match change {
                SystemChange::Route(route) => drop(routes.insert(route.dst, route.target)),
                SystemChange::Rule(rule) => rules.push(rule),
                _ => {}
            }
        }
        Ok(Self {
            journal,
            netlink,
            guard_monitor: GuardMonitor::open(desired.guard.table())?,
            address_monitor: NetworkMonitor::addresses()?,
            route_monitor: NetworkMonitor::routes()?,
            tun: tun.index(),
            numbers,
            desired,
            routes,
            rules,
            mark_routes: MarkRoutes::default(),
            peers: Peers::default(),
            new_peers: BTreeSet::new(),
            loosened_links: BTreeSet::new(),
            // The guard of a former run may still be installed instead of ours.
            is_stale: !has_guard,
            // An address may have changed since the plan was made.
            addresses_changed: true,
            routing_check: RoutingCheck::new(),
            virtual_addrs: VirtualAddrs::default(),
            guard_job: None,
            nft_done: Arc::new(EventFd::new().map_err(|error| Error::new("eventfd", error))?),
            retry_at: None,
            known_connections: Vec::new(),
            name_servers: NameServers::new(DnsMode::Off, None, tun.name().into()),
            tunnels: BTreeMap::new(),
            has_ended: false,
        })
    }

    /// Uses the name servers of tunnels in this way. Without a handle, they are only reported as unused.
    pub fn use_name_servers(&mut self, mode: DnsMode, handle: Option<DnsHandle>) {
        self.name_servers = NameServers::new(mode, handle, self.journal.tun().into());
    }

    /// What this host does with name servers of tunnels.
    pub(crate) fn name_servers(&self) -> DnsState {
        self.name_servers.state()
    }

    /// Lets the name servers follow the tunnels. Returns problems for the log.
    pub(crate) fn advance_name_servers(&mut self) -> Vec<String> {
        self.name_servers.note_policies(self.desired.protected_outbound());
        self.name_servers.advance(&mut self.journal, &self.nft_done)
    }

    /// Restores the name servers at the end of a run. Returns a warning.
    pub(crate) fn restore_name_servers(&mut self) -> Option<String> {
        self.name_servers.end(&mut self.journal)
    }

    /// Ends an orderly run: undoes all changes. An error if one cannot be undone.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.has_ended = true;
        if let Some(guard_job) = &mut self.guard_job {
            // The script must not install the filter after it was removed.
            guard_job.job.wait()?;
        }
        self.journal.undo()
    }

    /// Leaves everything in place, as a crash does.
    #[cfg(test)]
    fn crash(mut self) {
        self.has_ended = true;
        self.journal.abandoned = true;
    }

    /// An error if the filter or the name servers cannot be changed any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.journal.nft().check().and_then(|()| self.name_servers.check())
    }

    /// Signalled when [`reconcile`](Self::reconcile) should be called again.
    pub(crate) fn nft_done(&self) -> &EventFd {
        &self.nft_done
    }

    /// Whether traffic of a former run is still blocked.
    pub(crate) fn has_former_traffic(&self) -> bool {
        self.desired.has_former_traffic()
    }

    /// Outbound selectors of a former run that are still blocked; `None` if they have not changed since the
    /// last call.
    pub(crate) fn take_former_outbound(&mut self) -> Option<HashSet<Selector>> {
        self.desired.take_former_outbound()
    }

    /// Unblocks traffic of a former run, except what these connections may protect.
    pub(crate) fn narrow_former_traffic(&mut self, connections: &[Arc<Connection>]) {
        let same = |(a, b): (&Arc<Connection>, &Arc<Connection>)| Arc::ptr_eq(a, b);
        let known = self.known_connections.len() == connections.len()
            && self.known_connections.iter().zip(connections).all(same);
        if self.desired.has_former_traffic() && (!known || self.known_connections.is_empty()) {
            self.known_connections = connections.to_vec();
            let exact = ConfiguredTraffic::of(connections, &[]);
            self.desired.narrow_former_traffic(|selector| {
                if exact.contains(selector) {
                    vec![*selector]
                } else {
                    still_configured(selector, connections)
                }
            });
            self.is_stale = true;
        }
    }

    /// Blocks what another node may protect with these connections, and unblocks what a former run has
    /// protected with others.
    pub(crate) fn block_configured_traffic(&mut self, configured: &ConfiguredTraffic) {
        self.desired.block(configured.selectors());
        self.narrow_former_traffic(configured.connections());
        self.is_stale = true;
    }

    /// The local addresses.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        self.desired.routes.addresses()
    }

    /// Readable when the system has changed: the addresses, the routes, or the guard.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.address_monitor.as_fd(), self.route_monitor.as_fd(), self.guard_monitor.as_fd()]
    }

    /// Reads the changes. Returns whether the addresses or routes have changed.
    /// [`reconcile`](Self::reconcile) checks the guard.
    pub(crate) fn read_system_changes(&mut self) -> bool {
        let NetworkChange { any: changed, removed_address } = self.address_monitor.read();
        (self.is_stale, self.addresses_changed) =
            (self.is_stale || changed, self.addresses_changed || changed);
        if removed_address {
            self.routing_check.request(CheckReason::Address);
        }
        let routing = self.route_monitor.read_routing(self.netlink.port());
        if self.is_affected(&routing) {
            self.is_stale = true;
            self.routing_check.request(CheckReason::Routing);
        }
        routing.any || changed
    }

    /// Whether routes or rules of this instance may have gone.
    fn is_affected(
        &self,
        RoutingChange { is_unknown, removed_rule, tables, links, .. }: &RoutingChange,
    ) -> bool {
        *is_unknown
            || *removed_rule
            || tables.contains(&self.numbers.table)
            || links.contains(&self.tun)
            || self.mark_routes.is_affected(tables, links)
    }

    /// Takes the messages for the log about routes and rules.
    pub(crate) fn take_routing_messages(&mut self) -> Vec<String> {
        self.routing_check.take_messages()
    }

    /// The monitor of the guard.
    pub(crate) const fn guard_monitor(&mut self) -> &mut GuardMonitor {
        &mut self.guard_monitor
    }

    /// Time until the filter, or routes and rules, may be tried again, if they wait for that.
    pub(crate) fn time_to_retry(&self) -> Option<Duration> {
        let next = self.retry_at.into_iter().chain(self.routing_check.retry_at()).min();
        next.map(|retry_at| retry_at.saturating_duration_since(Instant::now()))
    }

    /// Notes that a policy was added or removed.
    pub(crate) fn note_policy(&mut self, change: &PolicyChange) {
        self.is_stale = true;
        match change {
            PolicyChange::Added { direction, id, policy } => {
                self.desired.add(*direction, *id, policy);
                if *direction == Direction::Outbound {
                    self.mark_routes.add(*id, policy);
                }
            }
            PolicyChange::Removed { direction, id } => {
                self.desired.remove(*direction, *id);
                if *direction == Direction::Outbound {
                    self.mark_routes.remove(*id);
                }
            }
            PolicyChange::SpdAdded { .. } | PolicyChange::SpdRemoved { .. } => {}
        }
    }

    /// Uses the interfaces of these tunnels for packets with marks.
    pub(crate) fn set_marked_tunnels(&mut self, tunnels: BTreeMap<SpdId, MarkedTunnel>) {
        self.is_stale |= self.mark_routes.set_tunnels(tunnels);
    }

    /// Indices of the interfaces of route-based tunnels that a former run has left, by their names.
    pub(crate) fn former_tunnels(&self) -> BTreeMap<String, u32> {
        self.journal.tunnels()
    }

    /// Records the interfaces of the configuration's route-based tunnels, before they become persistent.
    pub(crate) fn record_tunnels(&mut self, tunnels: &BTreeMap<String, u32>) -> Result<(), Error> {
        for (name, index) in tunnels {
            self.journal.record(Undo::Tunnel { name: name.clone(), index: *index })?;
        }
        Ok(())
    }

    /// Removes the interfaces that are in the journal and not in the configuration any more; with
    /// `keeps_former`, none of a former run.
    pub(crate) fn keep_tunnels(
        &mut self,
        tunnels: BTreeMap<String, u32>,
        keeps_former: bool,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (name, index) in self.journal.tunnels() {
            let is_former = self.tunnels.get(&name) != Some(&index);
            if tunnels.get(&name) != Some(&index) && !(keeps_former && is_former) {
                outcome = outcome.and(self.journal.remove_tunnel(&name, index, &mut self.netlink));
            }
        }
        self.tunnels = tunnels;
        outcome
    }

    /// Notes an IKE event: peers with new, removed and moved Child SAs, virtual addresses, and name servers.
    pub(crate) fn note_event(&mut self, event: &Event) -> Result<(), Error> {
        self.name_servers.note(event);
        match event {
            Event::ChildUp(up) => self.note_peer(up.id, up.outbound.dst),
            Event::ChildDown { id, .. } => self.peers.remove(*id),
            Event::PathChanged { children, path, .. } => {
                children.iter().for_each(|child| self.note_peer(*child, path.remote.ip()));
            }
            Event::ConfigAssigned { new_addrs, .. } => {
                self.virtual_addrs.assign(new_addrs);
                // An address that cannot be added now is tried again.
                return self.add_addresses(new_addrs).inspect_err(|_| {
                    self.routing_check.request(CheckReason::Address);
                });
            }
            Event::AddrsReleased { addrs, .. } => {
                return self.remove_addresses(addrs);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_peer(&mut self, child: ChildId, peer: IpAddr) {
        if self.peers.add(child, peer) {
            self.is_stale = true;
            self.new_peers.insert(peer);
        }
    }
}

#[cfg(test)]
mod tests;
