//! What the owner of a host wants: with whom to speak IKE, how each side proves who it is, and which Child SAs there may be.
//!
//! Plain data. A [`Connection`] is an entry of the PAD (RFC 4301 section 4.4.3) together with the SPD entries that lead to it
//! (section 4.4.1), in the shape that users of `swanctl.conf` know. Nothing here is looked up or resolved.

mod child;
mod connection;
mod default;
mod identity;
mod peer;
mod pool;
mod proposal;
mod time;

pub use child::{Child, ChildMode, OnClose, Shunt, Start};
pub use connection::{Childless, Connection, Fragmentation, SendCert, Unique};
pub use default::{child_proposals, ike_proposals};
pub use identity::{Identity, IdentityKind};
pub use peer::{AddrPattern, IdPattern, LocalAuth, LocalMethod, RemoteAuth, RemoteMethod};
pub use pool::Pool;
pub use proposal::{ChildAlgorithms, ChildProposal, EspCombined, IkeEncryption, IkeProposal, Sequence};
pub use time::Lifespan;
