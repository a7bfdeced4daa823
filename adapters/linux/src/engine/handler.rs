//! What an engine is made from, and the callbacks through which it reports.

use super::{DummyTraffic, EndpointHandle, FormerState, Forwarding, Scheduling, StateKeeper, TunnelSpec};
use crate::Error;
use crate::counters::CounterStore;
use crate::dns::DnsState;
use crate::process::{Clock, Signals, SystemRng};
use crate::setup::SystemState;
use crate::tun::Tun;
use crate::virtual_addresses::VirtualAddresses;
use casemate::{Endpoint, Notice, NoticeSa};
use casemate_cell::KeeperRole;
use casemate_crypto::Provider;
use casemate_datapath::{Direction, SaId};
use casemate_ike::Credentials;
use casemate_sa::{Limits, SaParams, SpdId};
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Callbacks of a running engine. The event loop calls them; the endpoint is not locked during any of these
/// calls.
pub trait EngineHandler {
    /// Descriptor that becomes readable when the handler wants a call of [`on_wakeup`](Self::on_wakeup).
    fn wakeup_fd(&self) -> BorrowedFd<'_>;
    /// The descriptor is readable. An error ends the run.
    fn on_wakeup(&mut self, endpoint: &EndpointHandle<'_>) -> Result<(), Error>;
    /// SIGHUP has arrived: the handler reads the configuration again.
    fn on_reload(&mut self);
    /// The event loop is alive. Called about once a second.
    fn on_tick(&mut self);
    /// Routes and packet filter match all changes of earlier calls. Called at least once a second.
    fn on_reconciled(&mut self);
    /// A trace of packets is running and may have records to read. Called at least once a second.
    fn on_trace(&mut self, endpoint: &EndpointHandle<'_>);
    /// A notice of the endpoint, in the order of events. `sa` is the SA of the notice
    /// ([`Endpoint::sa_of`]), as it was when the notice arose.
    fn on_notice(&mut self, notice: &Notice, sa: Option<&NoticeSa>);
    /// The interface to make for an SPD that belongs to one SA
    /// ([`SpdAdded`](casemate::PolicyChange::SpdAdded)); `None` if there is none for it.
    fn own_tunnel(&self, spd: SpdId) -> Option<TunnelSpec>;
    /// Other name servers of tunnels are in use, or not in use any more.
    fn on_name_servers(&mut self, state: &DnsState);
    /// This node of a cell has become the owner of the SAs of a former one, and packets do not reach it yet.
    /// The handler configures the endpoint. An error ends the run.
    fn on_takeover(&mut self, former: FormerState, endpoint: &EndpointHandle<'_>) -> Result<(), Error>;
    /// This node of a cell has another role. `owner` is the node that owns the SAs, if it is known.
    fn on_cell_role(&mut self, role: KeeperRole, owner: Option<&str>);
    /// A request to drain this node of a cell has ended
    /// ([`drain_node`](super::EndpointContext::drain_node)): whether it is drained now.
    fn on_drained(&mut self, drained: Result<bool, String>);
    /// The operating system refused an operation; `what` names object and cause. Packets from the network can
    /// cause any number of these calls.
    fn on_problem(&mut self, kind: SystemProblem, what: String);
}

/// The kind of operation that the operating system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemProblem {
    /// Sending a packet or an IKE message.
    Sending,
    /// Sending to a link that takes packets more slowly than they arrive.
    LinkFull,
    /// Writing the counter file.
    Counters,
    /// Writing the state of SAs to its store.
    Store,
    /// Keeping the addresses of a cell: another host uses one, or the kernel refuses it.
    Addresses,
    /// Changing routes, addresses or the packet filter for policies and peers.
    Policies,
    /// Keeping the guard: another program has changed or removed it.
    Guard,
    /// Looking up the name of a host.
    Names,
    /// Using the name servers of a tunnel.
    NameServers,
}

impl fmt::Display for SystemProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sending => "sending failed",
            Self::LinkFull => "full links",
            Self::Counters => "counters not written",
            Self::Store => "SAs not stored",
            Self::Addresses => "addresses of the cell",
            Self::Policies => "policies not applied",
            Self::Guard => "guard changed",
            Self::Names => "names not found",
            Self::NameServers => "name servers not used",
        })
    }
}

/// An SA with manual keys.
#[derive(Debug, Clone)]
pub struct ManualSa {
    /// Identifies the SA in the data path, and tells its direction.
    pub id: SaId,
    /// Keys, addresses and the like, as the data path received them.
    pub params: SaParams,
}

impl ManualSa {
    /// Whether the SA has this direction.
    pub fn is(&self, direction: Direction) -> bool {
        self.id.direction() == direction
    }
}

/// Ways to move packets that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Performance {
    /// How much packets that wait together are padded to one length, in percent of their bytes; 0 if they
    /// are not.
    pub batch_padding: u8,
    /// Protected packets leave through a packet socket where that is equivalent to a raw socket.
    pub link_sending: bool,
}

impl Default for Performance {
    fn default() -> Self {
        Self { batch_padding: 50, link_sending: true }
    }
}

/// What an engine is made from.
pub struct EngineParts {
    /// Data path and IKE, with their SAs, policies and connections.
    pub endpoint: Endpoint,
    /// Clock of the endpoint.
    pub clock: Clock,
    /// Random numbers for the endpoint.
    pub rng: SystemRng,
    /// Crypto providers, the preferred one first.
    pub providers: Vec<&'static dyn Provider>,
    /// Keys and certificates for IKE.
    pub credentials: Arc<dyn Credentials + Send + Sync>,
    /// Whether the engine opens the UDP ports of IKE.
    pub ike_enabled: bool,
    /// Sizes of the reassembly buffers.
    pub limits: Limits,
    /// Whether the protected traffic of a former run stays blocked until this run ends, whatever is
    /// configured, because programs load the configuration in parts.
    pub keeps_former_traffic: bool,
    /// The TUN interface.
    pub tun: Tun,
    /// Scheduler for packets that wait for protection; without one they keep their order.
    pub scheduling: Option<Scheduling>,
    /// Ways to move packets.
    pub performance: Performance,
    /// Routes, rules and packet filter that were set up.
    pub system: SystemState,
    /// Firewall mark of the packets that the engine sends.
    pub mark: u32,
    /// The SAs with manual keys, in the order in which they were added.
    pub manual_sas: Vec<ManualSa>,
    /// Dummy packets to send, if any.
    pub dummy_traffic: Option<DummyTraffic>,
    /// Sequence numbers that survive a restart, if a counter file is used.
    pub counters: Option<CounterStore>,
    /// Keeps the state of IKE SAs in a store, if they are to outlive the process.
    pub keeper: Option<StateKeeper>,
    /// The addresses of a cell, which its owner has.
    pub addresses: Option<VirtualAddresses>,
    /// Forwarding between the nodes of a cell, if it is configured.
    pub forwarding: Option<Forwarding>,
    /// The signals that end the run or ask for a reload.
    pub signals: Signals,
    /// Number of threads that move packets, at most. All but one sleep unless there is a backlog.
    pub threads: NonZeroUsize,
}
