//! Configuration: the peers, the authentication of both sides, and the Child SAs.
//!
//! Plain data. A [`Connection`] is an entry of the PAD (RFC 4301 section 4.4.3) with the SPD entries that
//! refer to it (section 4.4.1), in the structure of `swanctl.conf`. Nothing is looked up or resolved here.

mod additional_kex;
mod address;
mod child;
mod connection;
mod gateway;
mod identity;
mod name_servers;
#[cfg(feature = "ppk")]
mod ppk;
mod proposal;
#[cfg(feature = "eap")]
mod rounds;

pub use additional_kex::{AdditionalKex, AdditionalKexes, AgreedKexes, KexRound};
#[cfg(feature = "mobike")]
pub(crate) use address::may_move_to;
pub use address::{AddrPattern, HostAddrs, Lookup};
pub use child::{ChildConfig, ChildMode, CloseAction, RohcConfig, Shunt, StartAction};
#[cfg(feature = "records")]
pub use connection::ReplayTakeover;
pub use connection::{
    Childless, Connection, Encapsulation, Fragmentation, Lifespan, PacketLimits, Pool, SERVER_POOL, Unique,
};
pub use gateway::{Gateway, HostName};
#[cfg(feature = "revocation")]
pub use identity::OcspInIke;
#[cfg(feature = "eap")]
pub use identity::{EapIdentity, LocalEap, RemoteEap};
pub use identity::{
    IdPattern, Identity, IdentityKind, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod, SendCert,
};
pub use name_servers::{DomainName, DomainPolicy, is_host};
#[cfg(feature = "ppk")]
pub use ppk::{PpkId, PpkPolicy};
pub use proposal::{
    ChildAlgorithms, ChildProposal, EsnPolicy, EspCombined, IkeEncryption, IkeProposal, child_proposals,
    ike_proposals,
};
#[cfg(feature = "eap")]
pub use rounds::{FurtherRounds, Round};
