//! IKEv2 (RFC 7296): negotiates keys and Child SAs with peers.
//!
//! [`Ike`] is the interface. The caller passes in messages, commands and the time, and takes out datagrams
//! ([`Transmit`]) and [`Event`]s, Child SAs among them. Each call borrows what the engine needs:
//! a [`Context`] with the time, randomness, algorithms, keys and routes, and the data path ([`Host`]).
//! The engine does no I/O and has neither a clock nor a random generator. `no_std`; allocates when SAs are
//! set up.
//!
//! ```text
//!  datagram -> engine::dispatch: finds the IKE SA -> transport: checks the message ID, decrypts, reassembles
//!           -> state: runs the exchange -> negotiate, child_sa, auth, nat, cookie, address_pool: decide
//!           -> transport: encrypts, fragments -> datagram
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod address_pool;
mod auth;
mod by_origin;
mod child_sa;
pub mod config;
mod context;
mod cookie;
#[cfg(feature = "records")]
mod counter_sync;
mod crash_token;
pub mod diagnosis;
mod engine;
mod event;
mod fault;
pub mod keymat;
#[cfg(feature = "mobike")]
mod mobike;
mod nat;
mod negotiate;
mod path_mtu;
#[cfg(feature = "records")]
mod record;
#[cfg(feature = "redirect")]
mod redirect;
#[cfg(feature = "resumption")]
mod resumption;
mod settings;
mod state;
mod status;
mod traffic_selector;
mod transport;

pub use auth::credentials::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates, SharedKeys};
#[cfg(feature = "eap")]
pub use auth::credentials::{EapSession, EapTls};
#[cfg(feature = "revocation")]
pub use auth::credentials::{PeerStatus, StatusQuery};
#[cfg(feature = "external-keys")]
pub use auth::credentials::{SignatureQuery, Signing};
pub use by_origin::ByOrigin;
pub use child_sa::AgreedRohc;
pub use config::{HostAddrs, Lookup};
pub use context::{Context, Host, Path, Routes, Transmit};
pub use engine::{Ike, PendingRetry};
#[cfg(feature = "records")]
pub use engine::{Restoration, RestoredIke};
pub use event::{AssignedConfig, ChildUp, DownReason, Event, ForgottenSign, IkeKeys, KeyPair};
pub use fault::{FaultCounters, PeerFault, StateFault};
pub use nat::NatStatus;
pub use negotiate::{Algorithm, ChildSuite, ChildTransform, IkeSuite};
#[cfg(feature = "records")]
pub use record::{ChildSequence, IkeRecord, MAX_RECORD, RecordChange, RecordError, RestoreError};
pub use settings::{IkeSettings, Retransmission};
pub use state::Role;
pub use status::{
    ChildId, ChildState, ChildStatus, IkeSaId, IkeSaState, IkeSpis, IkeState, IkeStatus, InitiateError,
    UnconfiguredSas,
};
#[cfg(feature = "eap")]
pub use status::{ProvenRound, UserIdentity};
pub use traffic_selector::{
    MAX_SELECTORS, PacketSelectors, TrafficSelector, TrafficSelectorTemplate, narrow, packet_selector,
};
pub use transport::{SealError, SkError, SkKey, SkSuite};
