//! Linux adapter of the data path: TUN, raw, packet and UDP sockets, routes, the packet filter, and the files
//! that outlive a run.
//!
//! The modules are thin translations; the data path makes every protocol decision. [`Engine`] connects them:
//! packets that the host sends come from [`tun::Tun`] and leave through [`raw_socket`]; packets from the
//! network arrive at [`packet_socket`] or [`udp`] and go to [`tun::Tun`]. [`setup`] directs the host's
//! traffic there and undoes all changes at the end. Linux only.

pub mod buffers;
pub mod counters;
pub mod crash_secret;
pub mod dns;
mod engine;
mod forward_port;
mod helper_process;
pub mod ike;
pub mod instance;
pub mod journal;
mod leak_guard;
mod link_sender;
mod marked_routes;
mod netfilter;
pub mod netlink;
pub mod netns;
pub mod nft;
mod offload;
pub mod packet_socket;
mod port_holder;
pub mod process;
mod program;
pub mod protected_traffic;
mod queue_steering;
pub mod raw_socket;
mod resolver;
pub mod route;
pub mod route_lookup;
mod runner;
pub mod sandbox;
pub mod service_manager;
pub mod setup;
mod socket_filter;
mod sys;
pub mod tap;
pub mod tun;
pub mod udp;
pub mod unix_socket;
pub mod updown;
mod virtual_addresses;

pub use engine::{
    CellNode, CellState, DummyTraffic, EndpointContext, EndpointHandle, Engine, EngineHandler, EngineParts,
    FormerState, ForwardStatus, Forwarding, MAX_TUNNELS, ManualSa, Performance, PreparedTunnels, Scheduling,
    StateKeeper, StoreWaker, SystemProblem, TunnelSpec,
};
pub use link_sender::LinkSending;
pub use virtual_addresses::{
    AddressEvent, MAX_ADDRESSES, MAX_LIFETIME, MIN_LIFETIME, MacAddress, VirtualAddress, VirtualAddresses,
};

pub use casemate_private_file as private_file;

use std::{fmt, io};

/// Packets of a batch, at most: three large TCP packets, so that the GSO batches made from them are full.
pub const BATCH: usize = 128;

/// An error of the operating system, and the object or operation that failed.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
}

impl Error {
    /// `what` failed with this error.
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source }
    }

    /// `what` failed, for a reason given as text.
    pub fn other(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(what, io::Error::other(reason.into()))
    }

    /// The error number of the kernel, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
