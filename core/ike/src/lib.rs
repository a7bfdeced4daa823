//! IKEv2 (RFC 7296): keys and Child SAs negotiated with peers.
//!
//! [`Ike`] is the door: messages, commands and time go in, datagrams ([`Transmit`]) and [`Event`]s come out, Child SAs among
//! them. What it needs of its home it borrows for each call ([`Env`]): the time, randomness, algorithms, keys and
//! certificates ([`Credentials`]), and the data path ([`Host`]). No I/O, no clock, no randomness of its own. `no_std`;
//! allocates when SAs are set up.
//!
//! ```text
//!  datagram -> dispatch: which IKE SA -> message: number, open, put together -> sa: the exchange, in its state
//!           -> negotiate, child, auth, nat, cookie, pool: what the exchange decides -> message: seal, cut -> datagram
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod answer;
mod assigned;
mod auth;
mod child;
pub mod config;
mod cookie;
mod credentials;
mod dispatch;
mod engine;
mod event;
mod farewell;
mod fault;
pub mod keymat;
mod message;
mod nat;
mod negotiate;
mod peers;
mod pool;
mod registry;
mod restarts;
mod sa;
mod settings;
mod sk;
pub mod spelling;
mod traffic;

pub use answer::{ChildId, IkeSaId, NotBegun, Unconfigured};
pub use credentials::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates, SharedKeys};
pub use engine::{Env, Ike, Waiting};
pub use event::{Assigned, ChildStatus, ChildUp, Down, Event, Host, IkeKeys, IkeStatus, Path, Transmit};
pub use fault::{FaultCounters, PeerFault, StateFault};
pub use negotiate::{ChildSuite, ChildTransform, IkeSuite};
pub use sa::Role;
pub use settings::{Retransmission, Settings};
pub use sk::{NotSealed, SkError, SkKey, SkSuite};
pub use traffic::{MAX_SELECTORS, Traffic, TrafficTemplate, narrow, selector};
