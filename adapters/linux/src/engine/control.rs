//! The control plane of the engine: IKE, notices, counters, and everything that depends on time alone.

use super::cell_addresses::AwaitedAddresses;
use super::endpoint_context::{EndpointContext, EndpointHandle};
use super::event_loop::EventLoop;
use super::notices::{PendingNotices, apply_notice};
use super::shared::Shared;
use super::state_keeper::{FormerState, Polled};
use super::timers::TICK;
use super::transmitter::REFUSED;
use super::{EngineHandler, SystemProblem, held};
use crate::Error;
use crate::ike::IkeDatagram;
use casemate::{Endpoint, Notice, NoticeSa};
use casemate_datapath::spd::{Action, InsertError, Policy, PolicyId};
use casemate_datapath::{Datapath, Direction};
use casemate_ike::{Path, Transmit};
use casemate_sa::{Selector, SpdId};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::MutexGuard;
use std::time::Duration;

/// IKE messages that wait for the system, at most.
const MAX_OUTBOX: usize = 4_096;

impl EventLoop {
    /// Whether the control plane has nothing to do, which is so after most packets. This check costs much
    /// less than running the control plane, whose code has left the cache, while the response to a single
    /// packet may be on its way.
    pub(super) fn is_idle(&self, shared: &Shared) -> bool {
        let now = self.batch.now;
        let usage = shared.reports.number_usage();
        let context = shared.lock_endpoint();
        let endpoint = context.endpoint();
        now.since(self.last_tick) < TICK
            && self.system.time_to_retry() != Some(Duration::ZERO)
            && !endpoint.datapath().has_events()
            && !endpoint.datapath().has_rohc_feedback()
            && !endpoint.datapath().has_trace_records()
            && endpoint.next_timeout().is_none_or(|timeout| timeout > now)
            && !self
                .counters
                .as_ref()
                .is_some_and(|counters| counters.needs_poll(usage.sealed, usage.is_missing))
            && !self
                .keeper
                .as_ref()
                .is_some_and(|keeper| keeper.needs_poll(usage.sealed, usage.is_missing, now))
    }

    /// Runs the control plane once.
    ///
    /// Routes and packet filter are changed while packets move: the endpoint is not locked, and no thread
    /// waits for `nft`. IKE messages and notices for the handler wait until the system matches the policies,
    /// because a peer may use a Child SA as soon as it receives the message.
    pub(super) fn run_control_plane(
        &mut self,
        ike_datagrams: Vec<IkeDatagram>,
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) -> Result<(), Error> {
        let now = self.batch.now;
        let usage = shared.reports.take_number_usage();
        let mut context = shared.lock_endpoint();
        // A node that stands by has no SAs and no configuration: any response would be wrong.
        let is_standby = self.keeper.as_ref().is_some_and(|keeper| !keeper.is_owner());
        for IkeDatagram { path, mut message } in ike_datagrams.into_iter().filter(|_| !is_standby) {
            context.with(|endpoint, context| endpoint.receive_ike(&mut message, path, context));
        }
        context.with(Endpoint::handle_timeouts);
        if let Some(keeper) = &mut self.keeper {
            let Polled { released, former } =
                keeper.poll(&mut context, usage.sealed, usage.is_missing, now)?;
            self.ike_outbox.extend(released);
            context.keeper = keeper.status(now);
            keeper.update_cell(&mut context, shared.forwarder.as_ref());
            if let Some(former) = former {
                drop(context);
                self.take_over(former, shared, handler)?;
                context = shared.lock_endpoint();
            }
        }
        if let (Some(keeper), Some(forwarder)) = (&mut self.keeper, &shared.forwarder) {
            keeper.direct(forwarder);
        }
        let datapath = context.endpoint.datapath_mut();
        let written = self
            .counters
            .as_mut()
            .and_then(|counters| counters.poll(datapath, usage.sealed, usage.is_missing));
        let route_error = context.routes.take_error();
        let is_tracing = context.endpoint.datapath().is_tracing();
        self.collect_output(context, shared, handler);
        self.reject_spds(shared, handler);
        self.send_rohc_feedback(shared);
        if is_tracing {
            handler.on_trace(&EndpointHandle(shared));
        }
        if let Some(error) = route_error {
            handler.on_problem(SystemProblem::Sending, error.to_string());
        }
        if let Err(error) = self.install_discard_policies(shared) {
            handler.on_problem(SystemProblem::Policies, error.to_string());
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.check(now, handler)?;
            self.addresses.iter_mut().try_for_each(|addresses| addresses.keep(keeper, now, handler))?;
        }
        if let Some(Err(error)) = written {
            handler.on_problem(SystemProblem::Counters, format!("the counter file was not written: {error}"));
        }
        self.reconcile(shared, handler);
        if let Some(error) = shared.reports.take_error() {
            handler.on_problem(SystemProblem::Sending, error);
        }
        self.run_timers(shared, handler, now);
        // Without the process that runs nft, the guard cannot follow policies any more. It stays when the run
        // ends. Without that for name servers, those of a tunnel that has ended would stay.
        self.system.check()?;
        match &self.counters {
            Some(counters) if counters.writer_has_ended() => {
                Err(Error::other("counters", "the thread that writes the file has ended"))
            }
            _ => Ok(()),
        }
    }

    /// Becomes the owner of a cell. The guard and the SAs are in place before a former owner that hands over
    /// stops, and before a packet arrives: the addresses of the cell come then.
    fn take_over(
        &mut self,
        former: FormerState,
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) -> Result<(), Error> {
        handler.on_takeover(former, &EndpointHandle(shared))?;
        self.collect_output(shared.lock_endpoint(), shared, handler);
        self.install_discard_policies(shared)?;
        self.system.reconcile_blocking()?;
        self.begin_restored(shared)?;
        self.batch.now = self.clock.now();
        if let Some(addresses) = &mut self.addresses {
            addresses.take(self.batch.now)?;
        }
        self.system.read_system_changes();
        self.collect_output(shared.lock_endpoint(), shared, handler);
        self.reconcile(shared, handler);
        self.update_ike_addrs(shared);
        if self.addresses.is_none() {
            let own = self.system.addresses();
            self.awaited_addresses = AwaitedAddresses::of(&shared.lock_endpoint().endpoint, own);
        }
        Ok(())
    }

    /// Lets restored SAs go on, if this process owns them.
    fn begin_restored(&mut self, shared: &Shared) -> Result<(), Error> {
        let keeper = self.keeper.as_mut().filter(|keeper| keeper.is_owner());
        keeper.map_or(Ok(()), |keeper| keeper.begin(shared))
    }

    /// Sets up routes and packet filter for the policies, before packets move. An error if the filter could
    /// not be made.
    pub(super) fn reconcile_before_run(
        &mut self,
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) -> Result<(), Error> {
        self.begin_restored(shared)?;
        self.collect_output(shared.lock_endpoint(), shared, handler);
        self.install_discard_policies(shared)?;
        self.system.reconcile_blocking()?;
        self.reconcile(shared, handler);
        // At once, and not with the first tick: the peers of a host that was restarted send all the time.
        self.update_ike_addrs(shared);
        Ok(())
    }

    /// Takes from the endpoint what it has for the system, for peers and for the handler.
    pub(super) fn collect_output(
        &mut self,
        mut context: MutexGuard<'_, EndpointContext>,
        shared: &Shared,
        handler: &mut dyn EngineHandler,
    ) {
        let notices: Vec<Notice> = std::iter::from_fn(|| context.endpoint.next_notice()).collect();
        self.removed_policies = context.endpoint.datapath().removals();
        let sas: Vec<Option<NoticeSa>> =
            notices.iter().map(|notice| context.endpoint.sa_of(notice)).collect();
        let mut lost = 0_usize;
        let mut transmits: Vec<Transmit> = std::iter::from_fn(|| context.endpoint.next_transmit()).collect();
        if let Some(keeper) = &mut self.keeper {
            transmits = keeper.collect(&mut context, transmits);
        }
        for transmit in transmits {
            // A message that is dropped here is retransmitted, by the peer or by us.
            if self.ike_outbox.len() < MAX_OUTBOX {
                self.ike_outbox.push(transmit);
            } else {
                lost = lost.saturating_add(1);
            }
        }
        let has_new_sa = notices.iter().any(held::adds_outbound_sa);
        let blocked = context.blocked.take();
        // A node that stands by has no connections yet, and blocks what they may protect.
        let is_standby = self.keeper.as_ref().is_some_and(|keeper| !keeper.is_owner());
        let has_former_traffic =
            self.system.has_former_traffic() && !self.keeps_former_traffic && !is_standby;
        let connections = has_former_traffic.then(|| context.endpoint.ike().connections().to_vec());
        drop(context);
        if has_new_sa {
            self.submit_held(shared);
        }
        if lost > 0 {
            let what =
                format!("{lost} IKE messages were dropped while the system did not follow the policies");
            handler.on_problem(SystemProblem::Policies, what);
        }
        self.follow_own_spds(&notices, shared, handler);
        if let Some(tunnels) = shared.tunnels.take_marked() {
            self.system.set_marked_tunnels(tunnels);
        }
        if let Err(error) = self.record_tunnels(shared) {
            let what = format!("an interface of a tunnel does not outlive this process: {error}");
            handler.on_problem(SystemProblem::Policies, what);
        }
        for (notice, sa) in notices.into_iter().zip(sas) {
            apply_notice(&mut self.system, &notice, shared, handler);
            if PendingNotices::must_wait(&notice) {
                self.pending_notices.push(notice, sa);
            } else {
                handler.on_notice(&notice, sa.as_ref());
            }
        }
        if let Some(blocked) = blocked {
            self.system.block_configured_traffic(&blocked);
        }
        if let Some(connections) = connections {
            self.system.narrow_former_traffic(&connections);
        }
    }

    /// Lets the interfaces of the configuration outlive the process, so that packets do not leave in clear
    /// until the next start.
    fn record_tunnels(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(tunnels) = shared.tunnels.take_configured() else { return Ok(()) };
        let recorded = self.system.record_tunnels(&tunnels);
        self.configured_tunnels = Some(tunnels);
        recorded.and_then(|()| shared.tunnels.make_persistent())
    }

    /// Removes the interfaces that the configuration does not name any more: the guard and the routes now
    /// hold back what was routed into them, if it is still to be protected.
    fn remove_tunnels(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(tunnels) = self.configured_tunnels.take() else { return Ok(()) };
        let removed = self.system.keep_tunnels(tunnels, self.keeps_former_traffic);
        removed.and(shared.tunnels.remove_leaving())
    }

    /// Installs DISCARD policies for the protected traffic of a former run, before a route leads it into the
    /// data path.
    fn install_discard_policies(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(selectors) = self.system.take_former_outbound() else { return Ok(()) };
        let done = self.discard_policies.set(&selectors, shared.lock_endpoint().endpoint.datapath_mut());
        done.map_err(|error| Error::other("policies for what a former run protected", error.to_string()))
    }

    /// Makes routes and packet filter match the policies. Then sends what waited for that: IKE messages and
    /// notices.
    fn reconcile(&mut self, shared: &Shared, handler: &mut dyn EngineHandler) {
        let is_reconciled = self.system.reconcile(&mut |error| {
            let what = format!("the system does not follow the policies: {error}");
            handler.on_problem(SystemProblem::Policies, what)
        });
        let messages = self.system.guard_monitor().take_messages();
        messages.into_iter().for_each(|message| handler.on_problem(SystemProblem::Guard, message));
        let messages = self.system.take_routing_messages();
        messages.into_iter().for_each(|message| handler.on_problem(SystemProblem::Policies, message));
        if !is_reconciled {
            return;
        }
        if let Err(error) = self.remove_tunnels(shared) {
            let what = format!("an interface of a former configuration is not removed: {error}");
            handler.on_problem(SystemProblem::Policies, what);
        }
        shared.tunnels.remove_leaving_own();
        let mut context = shared.lock_endpoint();
        context.endpoint.datapath_mut().set_virtual_addrs(self.system.virtual_sources());
        context.endpoint.datapath_mut().removals_followed(self.removed_policies);
        context.endpoint.datapath_mut().set_local_addrs(self.system.addresses());
        drop(context);
        // After the routes that lead to the servers.
        let problems = self.system.advance_name_servers();
        problems.into_iter().for_each(|what| handler.on_problem(SystemProblem::NameServers, what));
        let state = self.system.name_servers();
        if state != self.name_servers {
            handler.on_name_servers(&state);
            self.name_servers = state;
        }
        if self.awaited_addresses.resend(self.system.addresses(), shared) {
            self.collect_output(shared.lock_endpoint(), shared, handler);
        }
        let outbox = std::mem::take(&mut self.ike_outbox);
        self.send_ike(outbox, shared, &mut |what| handler.on_problem(SystemProblem::Sending, what));
        let PendingNotices { waiting, lost } = std::mem::take(&mut self.pending_notices);
        // A program may use a tunnel as soon as the notice says that it is up.
        waiting.iter().for_each(|(notice, sa)| handler.on_notice(notice, sa.as_ref()));
        if lost > 0 {
            let what = format!("{lost} notices were dropped while the system did not follow the policies");
            handler.on_problem(SystemProblem::Policies, what);
        }
        handler.on_reconciled();
    }

    /// Sends IKE messages.
    pub(super) fn send_ike(&self, messages: Vec<Transmit>, shared: &Shared, report: &mut dyn FnMut(String)) {
        for transmit in messages {
            let ident = shared.idents.next();
            let sent = self.ike_senders.send(ident, self.batch.now, &transmit);
            if let Err(error) = sent {
                let Path { local, remote } = transmit.path;
                let hint = match error.kind() {
                    ErrorKind::NetworkUnreachable
                    | ErrorKind::HostUnreachable
                    | ErrorKind::AddrNotAvailable => {
                        let (own, peer) = (local.ip(), remote.ip());
                        format!("; an interface with {own} and a route to {peer} were expected")
                    }
                    ErrorKind::PermissionDenied => format!("; {REFUSED}"),
                    _ => String::new(),
                };
                report(format!("IKE message from {local} to {remote}: {error}{hint}"));
            }
        }
    }
}

/// DISCARD policies for the outbound traffic that a former run protected, or that another node of the cell
/// may protect, and that no policy covers yet.
///
/// The packet filter drops such packets. But a route for another policy may lead them into the TUN interface,
/// where packets that match no policy pass, with our mark, which the filter accepts. So each selector of such
/// traffic is a DISCARD policy behind all others.
#[derive(Debug, Default)]
pub(super) struct DiscardPolicies(HashMap<Selector, PolicyId>);

impl DiscardPolicies {
    /// Adds and removes policies, so that there is one for each of these selectors. If the SPD is full, none
    /// is removed.
    fn set(&mut self, selectors: &HashSet<Selector>, datapath: &mut Datapath) -> Result<(), InsertError> {
        for &selector in selectors {
            if let Entry::Vacant(entry) = self.0.entry(selector) {
                let policy =
                    Policy { spd: SpdId::MAIN, selector, action: Action::Discard, priority: u32::MAX };
                entry.insert(datapath.add_policy(Direction::Outbound, policy)?);
            }
        }
        self.0.retain(|selector, id| {
            let stays = selectors.contains(selector);
            if !stays {
                datapath.remove_policy(Direction::Outbound, *id);
            }
            stays
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_datapath::{Config, Unmatched};
    use casemate_sa::{AddrRange, Limits};

    fn selector(n: u8) -> Selector {
        let range = |net: u8| AddrRange::prefix([10, net, n, 0].into(), 24).unwrap();
        Selector::between(range(1), range(2))
    }

    #[test]
    fn there_is_exactly_one_discard_policy_for_each_selector() {
        let limits = Limits { policies: 3, ..Limits::SERVER };
        let config = Config { limits, seed: 1, unmatched: Unmatched::PassClear, link_mtu: 1_500 };
        let mut datapath = Datapath::new(config);
        let mut discard_policies = DiscardPolicies::default();
        let mut set = |wanted: &[u8]| {
            let wanted = wanted.iter().map(|n| selector(*n)).collect();
            let done = discard_policies.set(&wanted, &mut datapath).is_ok();
            let policies = datapath.policies(Direction::Outbound);
            let mut actual: Vec<_> = policies.map(|(_, policy)| policy.selector.to_string()).collect();
            actual.sort();
            (done, actual)
        };
        let texts = |all: &[u8]| all.iter().map(|n| selector(*n).to_string()).collect::<Vec<_>>();
        assert_eq!(set(&[1, 2]), (true, texts(&[1, 2])));
        assert_eq!(set(&[2, 3]), (true, texts(&[2, 3])));
        let (done, actual) = set(&[4, 5]);
        assert!(!done && actual.len() == 3, "the SPD is full, so nothing is removed: {actual:?}");
        assert_eq!(set(&[]), (true, texts(&[])));
    }
}
