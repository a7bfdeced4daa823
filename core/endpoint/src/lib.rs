//! IPsec behind one door: the data path and IKE joined.
//!
//! An [`Endpoint`] owns a [`Datapath`] and an [`Ike`]. Child SAs that IKE agrees on are installed here, with the policies that
//! lead to them; packets that need an SA, and SAs that are worn out, are told to IKE. `no_std`, no I/O.
//!
//! ```text
//!  packets -> Datapath -- needs an SA, is worn out --> Endpoint --> Ike -> messages
//!                ^                                        |          |
//!                +------- SAs and policies, in order -----+<- events-+
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod children;
mod connection_keys;
mod endpoint;
mod host;
mod housekeeping;
mod manual;
mod names;
mod notice;
pub mod path;
mod policy;
mod reqids;
mod traps;

pub use casemate_datapath::Datapath;
pub use casemate_ike::Ike;
pub use connection_keys::{Authorities, ConnectionKeys, Keys, OwnProof, PeerProof, Refusal, peer_name};
pub use endpoint::{Endpoint, Means};
pub use host::Routes;
pub use housekeeping::housekeeping;
pub use names::Named;
pub use notice::{HoldError, InstallError, Notice, PolicyChange};

/// An endpoint may change threads, for example behind a lock that several of them take.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Endpoint>();
};
