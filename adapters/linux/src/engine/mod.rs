//! The engine: it moves packets between the TUN interface and the network, through the data path.
//!
//! A thread reads up to [`BATCH`](crate::BATCH) packets from one input and does all further work for them, in
//! buffers that are allocated once: nothing is allocated for a packet, except for fragments, ICMP errors and
//! IKE messages. The data path makes the decisions; the engine applies its verdicts.
//!
//! ```text
//!  read         a batch from the TUN interface (tun_queue.rs), a packet     rx.rs
//!    |          socket or a UDP port; one thread at a time
//!    v
//!  begin        reserve sequence numbers, or find the SAs; then the next    outbound.rs, inbound.rs
//!    |          thread may read
//!    v
//!  seal, open   ESP, by the thread that has read; more threads are woken    workers.rs
//!    |          only while more packets wait to be read
//!    v
//!  reorder      batches in the order in which they were read; an early      reorder.rs
//!    |          batch is parked
//!    v
//!  finish       verdicts: packets are sent (transmitter.rs), or delivered   outbound.rs, inbound.rs
//!               to the host
//! ```
//!
//! So all threads serve one SA, and its packets keep their order. One thread is the event loop
//! (event_loop.rs): it waits while there are no packets, and does all work that is not for packets
//! (control.rs, timed_packets.rs). shared.rs has what the threads share, and the lock order.

mod cell_addresses;
mod control;
mod end;
mod endpoint_context;
mod event_loop;
mod forwarding;
mod gso;
mod handler;
mod held;
mod inbound;
mod ip_idents;
mod notices;
mod outbound;
mod own_tunnels;
mod reorder;
mod rx;
mod shared;
mod state_keeper;
#[cfg(test)]
pub(crate) mod tests;
mod timed_packets;
mod timers;
mod transmitter;
mod tun_queue;
mod tunnels;
mod workers;

pub use endpoint_context::{CellState, EndpointContext, EndpointHandle};
pub use forwarding::{ForwardStatus, Forwarding};
pub use handler::{EngineHandler, EngineParts, ManualSa, Performance, SystemProblem};
pub use state_keeper::{CellNode, FormerState, StateKeeper, StoreWaker};
pub use timed_packets::DummyTraffic;
pub use tun_queue::Scheduling;
pub use tunnels::{MAX_TUNNELS, PreparedTunnels, TunnelSpec};

use crate::Error;
use crate::dns::DnsState;
use crate::ike::{IkePorts, IkeSenders};
use crate::link_sender::{HostRules, LinkSender};
use crate::marked_routes::{MarkedRoutes, OwnTun};
use crate::netfilter::EarlyDrop;
use crate::packet_socket::PacketSocket;
use crate::process::RunEnd;
use crate::raw_socket::{EspAhSinks, RawSender};
use crate::socket_filter::{SocketShare, UrgentDscps};
use crate::sys::EventFd;
use crate::udp::UdpPort;
use casemate::path::{InboundFragments, OpenedFragments, OutboundPath};
use casemate_datapath::{BatchPadding, Direction};
use casemate_ike::IkeSettings;
use casemate_sa::{Protocol, SaParams};
use casemate_wire::ip::IpVersion;
use cell_addresses::{AwaitedAddresses, CellAddresses};
use control::DiscardPolicies;
use event_loop::EventLoop;
use inbound::InboundStage;
use ip_idents::IpIdents;
use notices::PendingNotices;
use outbound::OutboundStage;
use rx::{BatchSizer, NetworkInputs, RxPoller};
use shared::{Batch, Shared, SharedParts};
use std::sync::Arc;
use std::thread;
use timed_packets::{DummyScheduler, Keepalives};
use transmitter::Transmitter;
use tun_queue::PacketSource;
use tunnels::Tunnels;

/// The engine.
pub struct Engine {
    // Dropped first: it makes sure that the guard stands before the TUN interface goes, and the routes with
    // it.
    event_loop: EventLoop,
    shared: Shared,
    worker_count: usize,
    _sinks: EspAhSinks,
}

impl Engine {
    /// Opens the sockets that the SAs and IKE need.
    pub fn new(mut parts: EngineParts) -> Result<Self, Error> {
        let sinks = EspAhSinks::open()?;
        let urgent =
            parts.scheduling.as_ref().and_then(|scheduling| UrgentDscps::of(scheduling.classifier.table()));
        prepare_datapath(&mut parts)?;
        let sockets = open_packet_sockets(&parts, urgent.as_ref())?;
        let ports = open_udp_ports(&parts, urgent.as_ref())?;
        let raw_sender = Arc::new(RawSender::open(parts.mark)?);
        let (host_rules, links) = link_sender(&parts);
        // Without it, the kernel delivers packets to the sinks.
        let early_drop = EarlyDrop::open(parts.tun.name(), parts.tun.index()).ok();
        let outbound = outbound_stage(&mut parts, raw_sender.clone(), links, &ports)?;
        let inbound = inbound_stage(&mut parts);
        let idents = IpIdents::new(parts.rng.secret_u64() as u32, parts.manual_sas.iter().any(is_ah_v4_out));
        let inbound_addrs = inbound_sas(&parts.manual_sas).map(|sa| sa.dst).collect();
        let wakeup = EventFd::new().map_err(|error| Error::new("eventfd", error))?;
        let source = PacketSource::new(parts.scheduling.take(), &parts.tun, parts.rng.secret_u64())?;
        let (writer, tunnels) =
            (parts.tun.writer()?, Tunnels::new(parts.tun.name(), parts.system.former_tunnels()));
        let worker_count = parts.threads.get().saturating_sub(1);
        let EngineParts { endpoint, clock, rng, providers, credentials, tun, system, mark, .. } = parts;
        let EngineParts {
            ike_enabled,
            manual_sas,
            dummy_traffic,
            counters,
            keeper,
            addresses,
            forwarding,
            signals,
            keeps_former_traffic,
            ..
        } = parts;
        let ike = if ike_enabled { Some(IkePorts::open(mark)?) } else { None };
        let senders = ike.iter().flat_map(|ike| &ike.0).chain(&ports).map(UdpPort::sender);
        let ike_senders = IkeSenders {
            ports: senders.collect::<Result<_, _>>()?,
            raw: raw_sender.clone(),
            probes: RawSender::open_for_path_probes(mark)?,
        };
        let event_loop = EventLoop {
            batch: Batch::new(),
            clock,
            system,
            ike_senders,
            ike,
            keepalives: Keepalives::new(raw_sender.clone(), &manual_sas),
            raw_sender,
            host_rules,
            early_drop,
            dummies: dummy_traffic.and_then(DummyScheduler::new),
            counters,
            keeper,
            has_left_cell: false,
            addresses: addresses.map(CellAddresses::new),
            awaited_addresses: AwaitedAddresses::default(),
            signals,
            last_tick: casemate_sa::Instant::ZERO,
            ike_outbox: Vec::new(),
            pending_notices: PendingNotices::default(),
            rejected_spds: Vec::new(),
            discard_policies: DiscardPolicies::default(),
            name_servers: DnsState::default(),
            keeps_former_traffic,
            removed_policies: 0,
            configured_tunnels: None,
        };
        if let Some(forwarding) = &forwarding {
            forwarding.set_mark(mark)?;
        }
        let (forwarder, receiver) =
            forwarding.map(|Forwarding { forwarder, receiver }| (forwarder, receiver)).unzip();
        let inputs = NetworkInputs { sockets, ports, forwarded: receiver };
        let own_tun = OwnTun { index: tun.index(), name: tun.name().into() };
        let shared = Shared::new(SharedParts {
            rx: RxPoller::new(clock, tun, source, inputs, urgent.map(|_| BatchSizer::new()))?,
            endpoint: EndpointContext::new(
                endpoint,
                rng,
                clock,
                MarkedRoutes::open(mark, own_tun)?,
                providers,
                credentials,
            ),
            outbound,
            inbound,
            tun: writer,
            tunnels,
            inbound_addrs,
            idents,
            forwarder,
            wakeup,
            worker_count,
        });
        Ok(Self { shared, event_loop, worker_count, _sinks: sinks })
    }

    /// Moves packets until a signal ends the run. The SAs of a cell are left to its other nodes then.
    pub fn run(&mut self, handler: &mut dyn EngineHandler) -> Result<RunEnd, Error> {
        let Self { shared, event_loop, worker_count, .. } = self;
        let epoll = event_loop.epoll(shared, handler)?;
        let end = thread::scope(|scope| {
            // Ends the workers however the event loop ends: the scope waits for them.
            let _shutdown = ShutdownOnDrop(shared);
            for _ in 0..*worker_count {
                let worker = thread::Builder::new().name("worker".into());
                let started = worker.spawn_scoped(scope, || shared.run_guarded(|| shared.run_worker(&epoll)));
                started.map_err(|error| Error::new("thread", error))?;
            }
            event_loop.run(shared, &epoll, handler)
        });
        match event_loop.leave_cell(shared) {
            Err(error) if end.is_ok() => return Err(error),
            Err(error) => handler.on_problem(SystemProblem::Store, error.to_string()),
            Ok(()) => {}
        }
        end
    }

    /// Ends an orderly run: terminates all IKE SAs, returns unused sequence numbers, and undoes all changes
    /// to the system.
    pub fn close(self) -> Result<(), Error> {
        self.event_loop.close(true, &self.shared)
    }

    /// Ends a run that failed, or that another run follows. Does the same, but the changes to the system
    /// stay: because of the guard, protected traffic does not leave in clear.
    pub fn close_guarded(self) -> Result<(), Error> {
        self.event_loop.close(false, &self.shared)
    }

    /// The endpoint, for calls before [`run`](Self::run).
    pub fn endpoint_context(&mut self) -> &mut EndpointContext {
        self.shared.endpoint_mut()
    }

    /// Access to the endpoint and to the interfaces of tunnels, for calls before [`run`](Self::run).
    pub const fn handle(&self) -> EndpointHandle<'_> {
        EndpointHandle(&self.shared)
    }

    /// Sets up routes and packet filter for the policies that the endpoint has now. Until this call, or
    /// [`run`](Self::run), packets take their former routes, in clear. An error if the guard does not stand.
    pub fn reconcile(&mut self, handler: &mut dyn EngineHandler) -> Result<(), Error> {
        self.event_loop.reconcile_before_run(&self.shared, handler)
    }
}

/// Ends the workers.
struct ShutdownOnDrop<'e>(&'e Shared);

impl Drop for ShutdownOnDrop<'_> {
    fn drop(&mut self) {
        self.0.workers.shutdown();
    }
}

/// Sets the addresses of the data path, its encapsulation ports, and the SAs that carry dummy packets.
fn prepare_datapath(parts: &mut EngineParts) -> Result<(), Error> {
    let datapath = parts.endpoint.datapath_mut();
    for sa in parts.dummy_traffic.iter().flat_map(|traffic| &traffic.sas) {
        datapath.enable_dummies(*sa);
    }
    if parts.ike_enabled && !datapath.add_encap_port(IkeSettings::SERVER.natt_port) {
        return Err(Error::other("UDP port of IKE", "the SAs use too many other UDP ports"));
    }
    datapath.set_local_addrs(parts.system.addresses());
    datapath.hold_packets(parts.ike_enabled);
    datapath.expect_routes_to_follow();
    let padding = BatchPadding { max_percent: parts.performance.batch_padding, ttl: gso::TTL };
    // Dummy packets exclude GSO, see `outbound_stage`.
    datapath.set_batch_padding(parts.dummy_traffic.is_none().then_some(padding));
    Ok(())
}

/// Packet sockets for the IP versions of the SAs, in the order in which the sockets are read.
fn open_packet_sockets(
    parts: &EngineParts,
    urgent: Option<&UrgentDscps>,
) -> Result<Vec<PacketSocket>, Error> {
    let shares = SocketShare::all(urgent);
    let has_version =
        |version| parts.manual_sas.iter().any(|sa| sa.params.dst.is_ipv4() == (version == IpVersion::V4));
    [IpVersion::V4, IpVersion::V6]
        .into_iter()
        .filter(|version| parts.ike_enabled || has_version(*version))
        .flat_map(|version| shares.iter().map(move |share| (version, share)))
        .map(|(version, share)| PacketSocket::open(version, parts.tun.index(), share))
        .collect()
}

/// UDP ports for encapsulated packets of the SAs, and for NAT traversal with IKE.
fn open_udp_ports(parts: &EngineParts, urgent: Option<&UrgentDscps>) -> Result<Vec<UdpPort>, Error> {
    let mut numbers = encap_ports(&parts.manual_sas);
    if parts.ike_enabled && !numbers.contains(&IkeSettings::SERVER.natt_port) {
        numbers.push(IkeSettings::SERVER.natt_port);
    }
    let mut ports = Vec::new();
    for number in numbers {
        ports.extend(match urgent {
            Some(urgent) => UdpPort::open_with_urgent(number, urgent)?,
            None => UdpPort::open_both(number)?,
        });
    }
    ports.iter().try_for_each(|port| port.set_mark(parts.mark))?;
    Ok(ports)
}

/// The link sender, and the rules of the host that decide about it. Without it, packets leave through the raw
/// socket.
fn link_sender(parts: &EngineParts) -> (HostRules, Option<LinkSender>) {
    let mut rules = match HostRules::open(parts.tun.name()) {
        Ok(rules) => rules,
        Err(error) => return (HostRules::unknown(error.to_string()), None),
    };
    if !parts.performance.link_sending {
        rules.switch_off("it is switched off".into());
        return (rules, None);
    }
    match LinkSender::open(parts.mark, rules.permission()) {
        Ok(links) => (rules, Some(links)),
        Err(error) => {
            rules.switch_off(error.to_string());
            (rules, None)
        }
    }
}

fn outbound_stage(
    parts: &mut EngineParts,
    raw_sender: Arc<RawSender>,
    links: Option<LinkSender>,
    ports: &[UdpPort],
) -> Result<OutboundStage, Error> {
    let path = OutboundPath::gateway(&parts.limits, parts.rng.secret_u64() as u32);
    // With GSO the kernel writes headers that differ from those of the data path. A single dummy packet
    // never uses GSO, so it would be known by its header.
    let gso_ports = if parts.dummy_traffic.is_some() { &[] } else { ports };
    Ok(OutboundStage::new(path, Transmitter::new(raw_sender, links, parts.mark, gso_ports)?))
}

fn inbound_stage(parts: &mut EngineParts) -> InboundStage {
    let fragments = InboundFragments::new(&parts.limits, parts.limits.reassemblies);
    let opened = OpenedFragments::new(&parts.limits, parts.rng.secret_u64() as u32);
    InboundStage::new(fragments, opened)
}

/// Whether the SA sends AH over IPv4. AH covers the identification, so the kernel must not choose it.
fn is_ah_v4_out(sa: &ManualSa) -> bool {
    let is_ah_v4 = sa.params.transform.protocol() == Protocol::Ah && sa.params.src.is_ipv4();
    is_ah_v4 && sa.is(Direction::Outbound)
}

fn inbound_sas(sas: &[ManualSa]) -> impl Iterator<Item = &SaParams> {
    sas.iter().filter(|sa| sa.is(Direction::Inbound)).map(|sa| &sa.params)
}

/// The UDP ports on which packets of the inbound SAs arrive.
fn encap_ports(sas: &[ManualSa]) -> Vec<u16> {
    let mut ports: Vec<u16> =
        inbound_sas(sas).filter_map(|sa| sa.encap.map(|encap| encap.dst_port)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}
