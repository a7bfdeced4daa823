//! Where experiments take place: hosts in network namespaces, links between them, programs on them.
//!
//! [`Netns`] is a namespace that ends with its owner, [`run`] and [`Background`] run programs in it. An [`arena`](arena::Arena) is two of
//! them with a link, and a [`gateway`](gateway::Gateway) is `casemate run` at an end of it. All is gone when it is dropped.

pub mod arena;
mod error;
pub mod gateway;
pub mod governor;
pub mod meter;
pub mod negotiated;
mod netns;
pub mod paced;
mod process;
pub mod scratch;
pub mod sys;
pub mod transfer;
mod tun;

pub use error::{Error, Result};
pub use netns::{Netns, is_root};
pub use process::{Background, Output, run};
pub use tun::Tun;
