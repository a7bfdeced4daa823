//! The event loop, on the thread that calls `Engine::run`. It waits for packets and events, polls the inputs
//! as the workers do, and alone handles signals, IKE and timers.

use super::cell_addresses::{AwaitedAddresses, CellAddresses};
use super::control::DiscardPolicies;
use super::endpoint_context::{EndpointContext, EndpointHandle};
use super::notices::PendingNotices;
use super::outbound::OutboundStage;
use super::rx::MAX_INPUTS;
use super::shared::{Batch, Shared};
use super::state_keeper::{CHECK_INTERVAL, StateKeeper};
use super::timed_packets::{DummyPacket, DummyScheduler, Keepalives};
use super::timers::TICK;
use super::{EngineHandler, SystemProblem};
use crate::counters::CounterStore;
use crate::dns::DnsState;
use crate::ike::{IkePorts, IkeSenders};
use crate::link_sender::HostRules;
use crate::netfilter::EarlyDrop;
use crate::process::{Clock, RunEnd, Signal, Signals, SystemRng};
use crate::raw_socket::RawSender;
use crate::setup::SystemState;
use crate::sys::{Epoll, NumberedFd};
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate::Endpoint;
use casemate_cell::Ingress;
use casemate_datapath::{Datapath, Outbound};
use casemate_ike::Transmit;
use casemate_sa::{Instant, SpdId};
use casemate_wire::invariant::OrBroken;
use casemate_wire::packet::Packet;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// State that only the event loop uses.
pub(super) struct EventLoop {
    /// The batch that the event loop reads into.
    pub(super) batch: Box<Batch>,
    pub(super) clock: Clock,
    pub(super) system: SystemState,
    pub(super) ike: Option<IkePorts>,
    /// Sockets that send IKE messages.
    pub(super) ike_senders: IkeSenders,
    pub(super) raw_sender: Arc<RawSender>,
    /// Rules of this host that decide how packets are sent.
    pub(super) host_rules: HostRules,
    /// Drops the kernel's copies of received packets; `None` if the kernel cannot do that.
    pub(super) early_drop: Option<EarlyDrop>,
    pub(super) keepalives: Keepalives,
    pub(super) dummies: Option<DummyScheduler>,
    pub(super) counters: Option<CounterStore>,
    pub(super) keeper: Option<StateKeeper>,
    /// Whether the SAs of a cell were left to its other nodes.
    pub(super) has_left_cell: bool,
    /// The addresses of a cell, which its owner has.
    pub(super) addresses: Option<CellAddresses>,
    /// Addresses of its SAs that it does not have yet.
    pub(super) awaited_addresses: AwaitedAddresses,
    pub(super) signals: Signals,
    pub(super) last_tick: Instant,
    /// IKE messages that wait until the system matches the policies.
    pub(super) ike_outbox: Vec<Transmit>,
    /// Notices that wait for the same.
    pub(super) pending_notices: PendingNotices,
    /// SPDs that belong to one SA, whose interfaces could not be made.
    pub(super) rejected_spds: Vec<SpdId>,
    /// DISCARD policies for the protected traffic of a former run.
    pub(super) discard_policies: DiscardPolicies,
    /// What the handler knows about name servers.
    pub(super) name_servers: DnsState,
    /// Whether that traffic stays blocked, whatever is configured.
    pub(super) keeps_former_traffic: bool,
    /// Removals of policies that `system` knows.
    pub(super) removed_policies: u64,
    /// Interfaces of the configuration and their indices, if the others are not removed yet.
    pub(super) configured_tunnels: Option<BTreeMap<String, u32>>,
}

impl EventLoop {
    /// Runs until a signal ends the run, or this node of a cell was drained. Then another node may take over
    /// while packets still move here.
    pub(super) fn run(
        &mut self,
        shared: &Shared,
        epoll: &Epoll,
        handler: &mut dyn EngineHandler,
    ) -> Result<RunEnd, Error> {
        let end = self.run_until_end(shared, epoll, handler);
        let is_drained = self.keeper.as_ref().is_some_and(StateKeeper::is_drained);
        if (end.is_ok() || is_drained)
            && let Err(error) = self.hand_over(shared, handler)
        {
            handler.on_problem(SystemProblem::Store, format!("handover to another node: {error}"));
        }
        end
    }

    fn run_until_end(
        &mut self,
        shared: &Shared,
        epoll: &Epoll,
        handler: &mut dyn EngineHandler,
    ) -> Result<RunEnd, Error> {
        loop {
            let ready = self.wait(shared, epoll)?;
            if shared.reports.has_worker_panicked() {
                return Err(Error::other("a worker thread", "it panicked"));
            }
            let [signal, handler_wakeup, report, system_change, ike, nft_done, resolved, _] = ready.events();
            if let Some(end) = signal.then(|| self.handle_signal(handler)).flatten() {
                let warning = self.system.restore_name_servers();
                warning.into_iter().for_each(|what| handler.on_problem(SystemProblem::NameServers, what));
                return Ok(end);
            }
            if handler_wakeup {
                let queue_counters = shared.lock_rx().source.counters();
                let mut context = shared.lock_endpoint();
                context.queue_counters = queue_counters;
                context.rejected_gro_writes = shared.rejected_gro_writes();
                context.guard_state = self.system.guard_monitor().state();
                context.link_sending = self.host_rules.state().clone();
                context.name_servers = self.system.name_servers();
                drop(context);
                handler.on_wakeup(&EndpointHandle(shared))?;
            }
            if report {
                shared.reports.wakeup.clear();
            }
            if nft_done {
                self.system.nft_done().clear();
            }
            if system_change {
                self.host_rules.check_after_change(self.clock.now());
                if self.system.read_system_changes() {
                    shared.lock_endpoint().endpoint.routes_changed();
                }
            }
            if resolved {
                self.note_resolved_hosts(shared, handler);
            }
            shared.poll_all(&ready, &mut self.batch)?;
            self.batch.now = self.clock.now();
            let mut ike_datagrams = shared.reports.take_ike();
            for port in self.ike.iter_mut().filter(|_| ike).flat_map(|ike| &mut ike.0) {
                let buffers = &mut self.batch.buffers;
                IkePorts::receive(port, buffers).map_err(|error| Error::new("IKE port", error))?;
                if let Some(forwarder) = &shared.forwarder {
                    forwarder.forward(Ingress::IkePort, buffers);
                }
                ike_datagrams.extend(IkePorts::datagrams(buffers));
            }
            self.send_dummies(shared);
            if ready.events().contains(&true) || !ike_datagrams.is_empty() || !self.is_idle(shared) {
                self.run_control_plane(ike_datagrams, shared, handler)?;
            }
        }
    }

    /// Continues what waited for a look-up of a host name.
    fn note_resolved_hosts(&mut self, shared: &Shared, handler: &mut dyn EngineHandler) {
        let mut context = shared.lock_endpoint();
        let errors = context.routes.resolver().take_errors();
        context.with(Endpoint::hosts_resolved);
        drop(context);
        errors.into_iter().for_each(|error| handler.on_problem(SystemProblem::Names, error));
    }

    /// Handles a signal. Returns how it ends the run; `None` if the run goes on.
    fn handle_signal(&mut self, handler: &mut dyn EngineHandler) -> Option<RunEnd> {
        match self.signals.take()? {
            // SIGHUP never ends a run: a terminal that closes sends it, too, and the guard must stay.
            Signal::Hangup => {
                handler.on_reload();
                None
            }
            Signal::End(end) => Some(end),
        }
    }

    /// Sends the dummy packets that are due, at most as many as fit into one batch.
    fn send_dummies(&mut self, shared: &Shared) {
        let Self { dummies: Some(dummies), batch, .. } = self else { return };
        for _ in 0..BATCH {
            let mut context = shared.lock_endpoint();
            let now = batch.now;
            let Some(DummyPacket { sa, len }) = dummies.next(now, &mut context.rng) else { return };
            send_own_packet(batch, SpdId::MAIN, len, context, shared, |datapath, rng, packet| {
                Some(datapath.outbound_dummy(sa, now, rng, packet))
            });
        }
    }

    /// Sends feedback of header compression that no other packet has carried, at most as many packets as fit
    /// into one batch.
    pub(super) fn send_rohc_feedback(&mut self, shared: &Shared) {
        for _ in 0..BATCH {
            let context = shared.lock_endpoint();
            if !context.endpoint().datapath().has_rohc_feedback() {
                return;
            }
            let now = self.batch.now;
            let batch = &mut self.batch;
            send_own_packet(
                batch,
                SpdId::MAIN,
                MAX_FEEDBACK_LEN,
                context,
                shared,
                |datapath, rng, packet| datapath.next_rohc_feedback(now, rng, packet),
            );
        }
    }

    /// Registers all descriptors with the kernel.
    pub(super) fn epoll(&self, shared: &Shared, handler: &dyn EngineHandler) -> Result<Epoll, Error> {
        let first: [BorrowedFd<'_>; SYSTEM_CHANGE] =
            [self.signals.as_fd(), handler.wakeup_fd(), shared.reports.wakeup.as_fd()];
        let numbered = |number| move |fd| NumberedFd { number, fd };
        let first = (0..).zip(first).map(|(number, fd)| NumberedFd { number, fd });
        let system_changes = self.system.descriptors().map(numbered(SYSTEM_CHANGE));
        let ike = self.ike_ports().map(AsFd::as_fd).map(numbered(IKE));
        let nft_done = std::iter::once(self.system.nft_done().as_fd()).map(numbered(NFT_DONE));
        let resolved = shared.lock_endpoint().routes.resolver().ended().clone();
        let resolved = NumberedFd { number: RESOLVED, fd: resolved.as_fd() };
        let stored = self.keeper.iter().map(|keeper| NumberedFd { number: STORED, fd: keeper.fd() });
        let rx = shared.lock_rx();
        let inputs = rx.descriptors().map(|input| NumberedFd { number: EVENTS + input.number, ..input });
        let all = first
            .chain(system_changes)
            .chain(ike)
            .chain(nft_done)
            .chain([resolved])
            .chain(stored)
            .chain(inputs);
        Epoll::new(all).map_err(|error| Error::new("epoll", error))
    }

    /// Waits for events and packets. Does not wait while packets are buffered.
    fn wait(&self, shared: &Shared, epoll: &Epoll) -> Result<ReadySet, Error> {
        let ike = self.ike_ports().any(UdpPort::has_buffered);
        let mut ready = ReadySet::buffered([false, false, false, false, ike, false, false, false], shared);
        let timeout = if ready.is_empty() { self.timeout(shared) } else { Duration::ZERO };
        ready.add_readable(epoll, timeout)?;
        Ok(ready)
    }

    fn ike_ports(&self) -> impl Iterator<Item = &UdpPort> {
        self.ike.iter().flat_map(|ike| &ike.0)
    }

    /// Time until the next timer.
    fn timeout(&self, shared: &Shared) -> Duration {
        let now = self.clock.now();
        let dummies = self.dummies.as_ref().map(|dummies| dummies.wait(now));
        let endpoint = shared.lock_endpoint().endpoint.next_timeout().map(|timeout| timeout.since(now));
        let check = self.keeper.as_ref().map(|_| CHECK_INTERVAL);
        dummies
            .into_iter()
            .chain(endpoint)
            .chain(check)
            .chain(self.system.time_to_retry())
            .fold(TICK, Duration::min)
    }
}

/// Room for the feedback of several packets.
const MAX_FEEDBACK_LEN: usize = 128;

/// Sends a packet of at most `len` bytes that the data path makes by the policies of an SPD, behind those
/// that were begun before.
pub(super) fn send_own_packet(
    batch: &mut Batch,
    spd: SpdId,
    len: usize,
    mut context: MutexGuard<'_, EndpointContext>,
    shared: &Shared,
    make: impl FnOnce(&mut Datapath, &mut SystemRng, &mut Packet<'_>) -> Option<Outbound>,
) {
    let Batch { buffers, now, .. } = batch;
    buffers.set_lens(&[len]);
    buffers.with_packets(|packets| {
        let Some(packet) = packets.first_mut().or_report("the batch has one packet") else { return };
        let EndpointContext { endpoint, rng, .. } = &mut *context;
        let Some(verdict) = make(endpoint.datapath_mut(), rng, packet) else { return };
        let sequence = shared.outbound.sequence();
        drop(context);
        let send = |stage: &mut OutboundStage| stage.apply_verdicts(spd, packets, &[verdict], shared, *now);
        shared.outbound.run_in_order(sequence, send, |stage, batch| stage.finish(batch, shared));
    });
}

/// Events of the event loop alone: a signal, a wake-up of the handler, a report of a worker, a change of the
/// system by other programs, packets at the ports of IKE alone (one event for all of them), the ends of a
/// script of `nft` and of a look-up of a host name, and completions of the store of SAs.
pub(super) const EVENTS: usize = 8;
/// Index of the event that a worker has reported something.
pub(super) const REPORT: usize = 2;
/// Index of the event that another program has changed the system.
const SYSTEM_CHANGE: usize = 3;
/// Index of the event that packets wait at the ports of IKE.
const IKE: usize = 4;
/// Index of the event that a script of `nft` has ended.
const NFT_DONE: usize = 5;
/// Index of the event that a look-up of a host name has ended.
const RESOLVED: usize = 6;
/// Index of the event that the store of SAs has completions.
pub(super) const STORED: usize = 7;

/// Which descriptors are readable or have buffered packets: the events of the event loop, then the inputs.
pub(super) struct ReadySet(ArrayVec<bool, { EVENTS + MAX_INPUTS }>);

impl ReadySet {
    /// What a worker can read now, without waiting.
    pub(super) fn poll(shared: &Shared, epoll: &Epoll) -> Result<Self, Error> {
        let mut ready = Self::buffered([false; EVENTS], shared);
        ready.add_readable(epoll, Duration::ZERO)?;
        Ok(ready)
    }

    /// The given events, and the inputs with buffered packets.
    pub(super) fn buffered(events: [bool; EVENTS], shared: &Shared) -> Self {
        let rx = shared.lock_rx();
        Self(events.into_iter().chain(rx.buffered()).collect())
    }

    /// Adds the descriptors that are readable within `timeout`.
    pub(super) fn add_readable(&mut self, epoll: &Epoll, timeout: Duration) -> Result<(), Error> {
        epoll.wait(&mut self.0, timeout).map_err(|error| Error::new("epoll", error))
    }

    /// Whether nothing is ready.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    /// The events of the event loop, in the order of [`EVENTS`].
    fn events(&self) -> [bool; EVENTS] {
        self.0.first_chunk().copied().or_broken_default("the set contains the events of the event loop")
    }

    /// The inputs that are ready.
    pub(super) fn inputs(&self) -> impl Iterator<Item = usize> {
        let inputs = self.0.iter().skip(EVENTS).enumerate();
        inputs.filter_map(|(input, ready)| ready.then_some(input))
    }
}
