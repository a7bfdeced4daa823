//! An IPsec endpoint: data path and IKE in one type.
//!
//! An [`Endpoint`] owns a [`Datapath`] and an [`Ike`]. It installs the Child SAs that IKE negotiates, with
//! their policies, and passes acquires and expired lifetimes of the data path to IKE. `no_std`, no I/O.
//!
//! ```text
//!  packets -> Datapath -- acquire, lifetime --> Endpoint --> Ike -> messages
//!                ^                                 |          |
//!                +------ SAs and policies ---------+<- events-+
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod children;
mod connection_keys;
mod control_plane;
mod endpoint;
mod held;
mod host;
mod message_counters;
mod notice;
#[cfg(feature = "spds")]
mod own_spds;
pub mod path;
mod policy;
mod traps;

pub use casemate_datapath::Datapath;
#[cfg(feature = "records")]
pub use casemate_ike::{
    ChildSequence, IkeRecord, MAX_RECORD, RecordChange, RecordError, RestoreError, RestoredIke,
};
pub use casemate_ike::{Context, HostAddrs, Ike, Lookup, Routes};
#[cfg(feature = "child-counters")]
pub use children::ChildCounters;
pub use children::ChildSas;
#[cfg(feature = "ppk")]
pub use connection_keys::AmbiguousPpk;
pub use connection_keys::{
    AuthKeys, Authorities, ConnectionKeys, LocalKey, PeerRejection, PeerTrust, peer_name,
};
pub use control_plane::bypass_control_plane;
pub use endpoint::{Endpoint, NamedSas, NoticeSa};
#[cfg(feature = "records")]
pub use endpoint::{NotRestored, OwnedRecord};
pub use held::{HeldPacket, HeldPackets};
pub use message_counters::{ExchangeCounters, MessageCount, MessageCounters};
pub use notice::{InstallError, Notice, PolicyChange, TrapError};
pub use policy::FIRST_REQID;

/// An endpoint may move to another thread, for example behind a lock.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Endpoint>();
};
