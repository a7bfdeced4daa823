//! Where experiments take place: hosts in network namespaces, links between them, programs on them.
//!
//! [`Netns`] is a namespace that ends with its owner, [`run`] and [`Background`] run programs in it. An [`arena`](arena::Arena) is two of
//! them with a link, and a [`gateway`](gateway::Gateway) is `casemate run` at an end of it. [`Guest`] is a Linux kernel under QEMU without
//! hardware virtualisation, so that there is a kernel with ESP and AH even where the host has none; [`Firmware`] is the machine without
//! an operating system. All is gone when it is dropped.

pub mod arena;
mod error;
mod firmware;
pub mod gateway;
pub mod governor;
mod guest;
mod mask;
pub mod meter;
pub mod negotiated;
mod netns;
pub mod paced;
mod process;
mod qmp;
pub mod scratch;
pub mod sys;
pub mod transfer;
mod tun;

pub use error::{Error, Result};
pub use firmware::{Firmware, FirmwareSpec};
pub use guest::{Content, Guest, Images, NetworkSpec};
pub use mask::Mask;
pub use netns::{Netns, is_root};
pub use process::{Background, Output, run};
pub use tun::Tun;
